//! Group finish: the outcomes that arrived during the previous commit, written together.

use super::Shared;
use super::finish::write as write_outcome;
use crate::background::Pending;
use crate::driver::Session;
use crate::error::Result;
use crate::plan::finish::Held;

/// What became of the outcomes.
#[derive(Default)]
pub(crate) struct Written {
    /// Claims that have nothing left.
    pub finished: Vec<i64>,
    /// Claims with outcomes that can never be written (their table is gone, a value does not fit), and how many.
    pub refused: Vec<(i64, usize)>,
}

/// Writes all of `pending`, each claim's completions in one statement.
///
/// What is written leaves `pending`, so that after an error only the rest is tried again. A repeat after a
/// lost connection is accepted as the same outcome. What the server refuses for good leaves it too: it must not keep the
/// others waiting, and its rows come back when the lease ends.
///
/// # Errors
/// Those that are worth another try.
pub(crate) async fn write(shared: &Shared, session: &mut Session, pending: &mut Vec<Pending>) -> Result<Written> {
    let mut written = Written::default();
    while let Some(first) = pending.first() {
        let (claim, outcome) = (first.claim.clone(), first.outcome.clone());
        let is_together = |item: &Pending| item.claim.id == claim.id && item.outcome == outcome;
        let jobs: Vec<Held> = pending.iter().filter(|item| is_together(item)).map(|item| item.job).collect();
        match write_outcome(shared, session, &claim, &jobs, &outcome).await {
            Ok(answers) => {
                pending.retain(|item| !is_together(item));
                for answer in &answers {
                    claim.tally.count(&outcome, *answer);
                }
                if claim.finished(jobs.len()) {
                    written.finished.push(claim.id);
                }
            }
            Err(error) if !error.is_permanent() => return Err(error),
            Err(error) => {
                log::error!("{}: {} outcomes cannot be written: {error}", shared.worker, jobs.len());
                session.rollback().await?;
                pending.retain(|item| !is_together(item));
                written.refused.push((claim.id, jobs.len()));
            }
        }
    }
    Ok(written)
}
