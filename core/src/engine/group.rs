//! Group finish: the outcomes that arrived during the previous commit, written together.

use super::Shared;
use super::finish::write as write_outcome;
use crate::background::Pending;
use crate::driver::Session;
use crate::error::Result;
use crate::plan::finish::Held;

/// Writes all of `pending`, each claim's completions in one statement; the ids of claims that have nothing left.
///
/// What is written leaves `pending`, so that after an error only the rest is tried again. A repeat after a
/// lost connection is accepted as the same outcome.
pub(crate) async fn write(shared: &Shared, session: &mut Session, pending: &mut Vec<Pending>) -> Result<Vec<i64>> {
    let mut finished = Vec::new();
    while let Some(first) = pending.first() {
        let (claim, outcome) = (first.claim.clone(), first.outcome.clone());
        let is_together = |item: &Pending| item.claim.id == claim.id && item.outcome == outcome;
        let jobs: Vec<Held> = pending.iter().filter(|item| is_together(item)).map(|item| item.job).collect();
        let answers = write_outcome(shared, session, &claim, &jobs, &outcome).await?;
        pending.retain(|item| !is_together(item));
        for answer in &answers {
            claim.tally.count(&outcome, *answer);
        }
        if claim.finished(jobs.len()) {
            finished.push(claim.id);
        }
    }
    Ok(finished)
}
