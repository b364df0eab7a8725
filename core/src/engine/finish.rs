//! Rows leaving a claim: complete, fail, release. Every write carries the claim and the state, and its count is looked at.
//!
//! The same code serves the caller's *each* and the background thread's *group*.

use super::{Engine, Shared};
use crate::claim::{ClaimState, Finish, HeldRows, Outcome};
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::finish::{self as plan, Ended, Held, Left, Stands};
use crate::plan::ids::Ids;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Engine {
    /// Writes one outcome for some rows of a claim; durable when it returns. Answers in the order of `jobs`.
    ///
    /// # Errors
    /// `Unavailable`, `Contention` when the budget ran out: nothing is known then, and the same call may be repeated.
    pub(crate) async fn finish(&self, claim: &Arc<ClaimState>, jobs: &[Held], outcome: &Outcome) -> Result<Vec<Finish>> {
        claim.writing.fetch_add(1, Relaxed);
        let answers = self
            .run_without_tables(outcome.verb(), async |shared, session, _| write(shared, session, claim, jobs, outcome).await)
            .await;
        claim.writing.fetch_sub(1, Relaxed);
        let answers = answers?;
        for answer in &answers {
            claim.tally.count(outcome, *answer);
        }
        Ok(answers)
    }

    /// Counts rows as finished and has the claim closed with its last one.
    pub(crate) fn settle(&self, claim: &Arc<ClaimState>, rows: usize) {
        if claim.finished(rows)
            && let Ok(background) = self.shared.background()
        {
            background.close_claim(claim);
        }
    }
}

/// One outcome for some jobs or rows of one claim. Answers in the order of `jobs`.
pub(crate) async fn write(
    shared: &Shared,
    session: &mut Session,
    claim: &ClaimState,
    jobs: &[Held],
    outcome: &Outcome,
) -> Result<Vec<Finish>> {
    if let HeldRows::Rows { table, keys } = &claim.held {
        return super::table::finish::write(shared, session, claim, table, keys, jobs, outcome).await;
    }
    let statements = shared.statements(session).await?;
    let lost = match outcome {
        Outcome::CompleteWith { .. } => {
            return Err(Error::invalid("a job has no columns to set; only rows of mapped tables have"));
        }
        Outcome::Complete => complete(statements, session, claim, jobs).await?,
        Outcome::Fail { error, .. } | Outcome::Reject { error } => {
            fail(shared, statements, session, claim, jobs, error, outcome).await?
        }
        Outcome::Release { delay } => release(statements, session, claim, jobs, *delay).await?,
    };
    Ok(jobs.iter().map(|job| lost.get(&job.id).copied().unwrap_or(Finish::Accepted)).collect())
}

/// Answers of rows that did not match; rows not named were accepted.
type Unmatched = HashMap<i64, Finish>;

async fn complete(statements: &Statements, session: &mut Session, claim: &ClaimState, jobs: &[Held]) -> Result<Unmatched> {
    let ids: Ids = jobs.iter().map(|job| job.id).collect();
    let mut matched = 0;
    for chunk in ids.chunks() {
        matched += session.execute(&plan::complete(statements, &chunk, claim.id)).await?.matched;
    }
    if matched == ids.len() as u64 {
        return Ok(Unmatched::new());
    }
    explain(statements, session, claim, jobs, &Outcome::Complete).await
}

async fn release(
    statements: &Statements,
    session: &mut Session,
    claim: &ClaimState,
    jobs: &[Held],
    delay: Duration,
) -> Result<Unmatched> {
    let ids: Ids = jobs.iter().map(|job| job.id).collect();
    let ended: Vec<Ended<'_>> = jobs.iter().map(|job| ended(claim, job, "released", false, None)).collect();
    session.begin().await?;
    let mut matched = 0;
    for chunk in ids.chunks() {
        matched += session.execute(&plan::release(statements, &chunk, claim.id, delay)).await?.matched;
    }
    if matched == ids.len() as u64 {
        record(statements, session, &ended).await?;
        session.commit().await?;
        return Ok(Unmatched::new());
    }
    // Some were not ours any more: undo, find out which, and write the others alone.
    session.rollback().await?;
    let outcome = Outcome::Release { delay };
    let unmatched = explain_held(statements, session, claim, jobs, &outcome).await?;
    let held: Vec<Held> = jobs.iter().filter(|job| !unmatched.contains_key(&job.id)).copied().collect();
    if !held.is_empty() {
        Box::pin(release(statements, session, claim, &held, delay)).await?;
    }
    Ok(unmatched)
}

async fn fail(
    shared: &Shared,
    statements: &Statements,
    session: &mut Session,
    claim: &ClaimState,
    jobs: &[Held],
    error: &str,
    outcome: &Outcome,
) -> Result<Unmatched> {
    let mut jobs = jobs.to_vec();
    jobs.sort_unstable_by_key(|job| job.id);
    session.begin().await?;
    let mut written = Vec::with_capacity(jobs.len());
    let mut missed = Vec::new();
    for job in &jobs {
        let wait = plan::wait_after(job, outcome, &shared.config.backoff);
        if session.execute(&plan::fail(statements, job, claim.id, error, wait)).await?.matched == 1 {
            written.push(ended(claim, job, "failed", wait.is_none(), Some(error)));
        } else {
            missed.push(*job);
        }
    }
    record(statements, session, &written).await?;
    session.commit().await?;
    explain(statements, session, claim, &missed, outcome).await
}

fn ended<'a>(claim: &'a ClaimState, job: &Held, outcome: &'static str, is_final: bool, error: Option<&'a str>) -> Ended<'a> {
    let left = Left::dead_if(is_final);
    Ended { job_id: job.id, row_key: None, fence: job.fence, outcome, left, worker: &claim.worker, claim_id: claim.id, error }
}

/// Writes rows of the attempts ledger, inside the caller's transaction.
pub(super) async fn record(statements: &Statements, session: &mut Session, ended: &[Ended<'_>]) -> Result<()> {
    for chunk in ended.chunks(500) {
        session.execute(&plan::insert_attempts(statements, chunk)).await?;
    }
    Ok(())
}

/// Tells repeated finishes from lost ones, for rows that did not match a write.
///
/// A row that is still held although the write did not match it was given back in between by a person:
/// the caller's step is tried again.
async fn explain(
    statements: &Statements,
    session: &mut Session,
    claim: &ClaimState,
    jobs: &[Held],
    outcome: &Outcome,
) -> Result<Unmatched> {
    let unmatched = explain_held(statements, session, claim, jobs, outcome).await?;
    // `complete` asks about all its rows: those that were written stand there as done and accepted.
    if unmatched.len() < jobs.len() {
        return Err(Error::new(ErrorKind::Contention, "a row changed while it was being finished"));
    }
    Ok(unmatched)
}

/// As [`explain`], leaving out rows the claim still holds.
async fn explain_held(
    statements: &Statements,
    session: &mut Session,
    claim: &ClaimState,
    jobs: &[Held],
    outcome: &Outcome,
) -> Result<Unmatched> {
    let by_id: HashMap<i64, &Held> = jobs.iter().map(|job| (job.id, job)).collect();
    // Rows that are gone (pruned, deleted) are lost.
    let mut answers: Unmatched = jobs.iter().map(|job| (job.id, Finish::Lost)).collect();
    let ids: Ids = jobs.iter().map(|job| job.id).collect();
    for chunk in ids.chunks() {
        for row in session.query(&plan::inspect(statements, &chunk)).await? {
            let (id, stands) = plan::stands(&row, claim, outcome)?;
            match stands {
                Stands::Answer(answer) => {
                    answers.insert(id, answer);
                }
                Stands::Held => {
                    answers.remove(&id);
                }
                Stands::PutBack => {
                    let Some(job) = by_id.get(&id) else { continue };
                    let rows = session.query(&plan::outcome_of(statements, job)).await?;
                    let ledger = rows.first().map(|row| row.text(0)).transpose()?;
                    answers.insert(id, plan::same_outcome(ledger.as_deref(), outcome));
                }
            }
        }
    }
    Ok(answers)
}
