//! The started mark of claims that hold: it is durable before the handler sees the row, so that recovery knows what was begun.

use super::Engine;
use crate::claim::{ClaimState, HeldRows};
use crate::error::Result;
use crate::plan::claim as plan;
use crate::plan::finish::Held;
use crate::plan::keys::shown;

impl Engine {
    /// Writes that a row is about to be handed out; durable when it returns. `false` when the claim is not open any more:
    /// the row must not be handed out then.
    ///
    /// # Errors
    /// `Schema`, `Unavailable`: unknown whether it was written. A mark too many only means that a person is asked.
    pub(crate) async fn start(&self, claim: &ClaimState, row: &Held) -> Result<bool> {
        let key = match &claim.held {
            HeldRows::Jobs => None,
            HeldRows::Rows { keys, .. } => usize::try_from(row.id).ok().and_then(|position| keys.get(position)).map(shown),
        };
        let job_id = if key.is_some() { 0 } else { row.id };
        let written = self
            .run("start", async |_, statements, session, _| {
                session.execute(&plan::start(statements, claim.id, job_id, key.clone(), row.fence)).await
            })
            .await?;
        let is_open = written.matched == 1;
        if !is_open {
            claim.set_lost();
        }
        Ok(is_open)
    }
}
