//! The statements that take rows out of a claim.

use super::ids::Ids;
use super::{plain, spread};
use crate::claim::{ClaimState, Finish, Outcome};
use crate::config::truncate;
use crate::dialect::Statements;
use crate::error::Result;
use crate::job::{JobState, MAX_ERROR};
use crate::time::{Backoff, micros};
use crate::value::{Row, Statement, Value};
use std::time::Duration;

/// What a finish needs to know of a claimed job or row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The job's id, or the row's place in its claim.
    pub id: i64,
    pub fence: i64,
    pub attempts: i64,
    pub max_attempts: i64,
}

impl From<(i64, i64, i64, i64)> for Held {
    fn from((id, fence, attempts, max_attempts): (i64, i64, i64, i64)) -> Self {
        Held { id, fence, attempts, max_attempts }
    }
}

/// Where an attempt left its row, as the ledger's `final` keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It goes on, or is done.
    Open = 0,
    /// Out of attempts.
    Dead = 1,
    /// Waits for a person.
    Held = 2,
}

impl Left {
    pub(crate) fn dead_if(is_final: bool) -> Self {
        if is_final { Left::Dead } else { Left::Open }
    }
}

/// A row of the attempts ledger.
pub(crate) struct Ended<'a> {
    /// 0 for a row of a mapped table.
    pub job_id: i64,
    pub row_key: Option<String>,
    pub fence: i64,
    pub outcome: &'static str,
    pub left: Left,
    pub worker: &'a str,
    pub claim_id: i64,
    pub error: Option<&'a str>,
}

/// The text as it is stored: no NUL, at most 4,000 characters.
pub(crate) fn stored_error(error: &str) -> String {
    let mut text = error.replace('\0', "\u{fffd}");
    truncate(&mut text, MAX_ERROR);
    text
}

pub(crate) fn complete(statements: &Statements, ids: &Ids, claim_id: i64) -> Statement {
    ids.statement(&statements.complete, vec![], vec![claim_id.into()])
}

pub(crate) fn release(statements: &Statements, ids: &Ids, claim_id: i64, delay: Duration) -> Statement {
    ids.statement(&statements.release, vec![micros(delay).into()], vec![claim_id.into()])
}

/// How long a job waits after `outcome`, a failure; `None` when it is dead.
pub(crate) fn wait_after(job: &Held, outcome: &Outcome, backoff: &Backoff) -> Option<Duration> {
    match outcome {
        Outcome::Reject { .. } => None,
        _ if job.attempts >= job.max_attempts => None,
        Outcome::Fail { delay: Some(delay), .. } => Some(*delay),
        _ => Some(backoff.delay(job.attempts)),
    }
}

/// The write of a failure; without a wait the job is dead after it.
pub(crate) fn fail(statements: &Statements, job: &Held, claim_id: i64, error: &str, wait: Option<Duration>) -> Statement {
    let error = stored_error(error);
    match wait {
        None => plain(&statements.fail_dead, vec![error.into(), job.id.into(), claim_id.into()]),
        Some(wait) => plain(&statements.fail_back, vec![micros(wait).into(), error.into(), job.id.into(), claim_id.into()]),
    }
}

pub(crate) fn insert_attempts(statements: &Statements, ended: &[Ended<'_>]) -> Statement {
    let mut values = Vec::with_capacity(ended.len() * 9);
    for attempt in ended {
        values.extend([
            attempt.job_id.into(),
            attempt.fence.into(),
            attempt.outcome.into(),
            Value::Int(attempt.left as i64),
            attempt.worker.into(),
            attempt.claim_id.into(),
            attempt.error.map(stored_error).into(),
            attempt.claim_id.into(),
            attempt.row_key.clone().into(),
        ]);
    }
    Statement { sql: spread(&statements.insert_attempts, "{rows}", &statements.insert_attempts_row, ended.len()), values }
}

pub(crate) fn inspect(statements: &Statements, ids: &Ids) -> Statement {
    ids.statement(&statements.inspect, vec![], vec![])
}

pub(crate) fn outcome_of(statements: &Statements, job: &Held) -> Statement {
    plain(&statements.outcome_of, vec![job.id.into(), job.fence.into()])
}

/// What a row that did not match a finish says about it.
pub(crate) enum Stands {
    /// Still held by this claim: the write must be sent again.
    Held,
    /// The answer is clear.
    Answer(Finish),
    /// Put back by this claim: the attempts ledger knows by which outcome.
    PutBack,
}

/// Reads a row of `inspect`: (id, where it stands for `claim`, seen from a repeated `outcome`).
pub(crate) fn stands(row: &Row, claim: &ClaimState, outcome: &Outcome) -> Result<(i64, Stands)> {
    let id = row.int(0)?;
    let state = JobState::parse(&row.text(1)?)?;
    if row.opt(2, Row::int)? != Some(claim.id) {
        return Ok((id, Stands::Answer(Finish::Lost)));
    }
    let stands = match (state, outcome) {
        (JobState::Claimed, _) => Stands::Held,
        (JobState::Done, Outcome::Complete | Outcome::CompleteWith { .. }) => Stands::Answer(Finish::Accepted),
        (JobState::Dead, Outcome::Fail { .. } | Outcome::Reject { .. }) => Stands::Answer(Finish::Accepted),
        (JobState::Ready, Outcome::Fail { .. } | Outcome::Release { .. }) => Stands::PutBack,
        _ => Stands::Answer(Finish::Lost),
    };
    Ok((id, stands))
}

/// The end of a job as the ledger names it.
pub(crate) fn ended_as(outcome: &str) -> &'static str {
    ["failed", "lost", "released", "completed"].into_iter().find(|name| *name == outcome).unwrap_or("unknown")
}

/// What the state of a job says of the claim it carries; nothing when it was put back.
pub(crate) fn job_end(state: &str) -> Option<&'static str> {
    match JobState::parse(state).ok()? {
        JobState::Claimed => Some("held"),
        JobState::Done => Some("completed"),
        JobState::Dead => Some("failed"),
        JobState::Cancelled => Some("cancelled"),
        JobState::Held => Some("lost"),
        JobState::Ready => None,
    }
}

/// Whether the ledger's last entry is the same outcome as the repeated one.
pub(crate) fn same_outcome(ledger: Option<&str>, outcome: &Outcome) -> Finish {
    match (ledger, outcome) {
        (Some("completed"), Outcome::Complete | Outcome::CompleteWith { .. }) => Finish::Accepted,
        (Some("failed"), Outcome::Fail { .. }) | (Some("released"), Outcome::Release { .. }) => Finish::Accepted,
        _ => Finish::Lost,
    }
}
