//! One row of a claim: how it leaves the claim, and what it may write meanwhile.

use super::claim::{Claim, Job, Row};
use super::registry::Local;
use super::steps::Step;
use crate::claim::{Claimable, Finish, Outcome};
use crate::engine::effect::Completes;
use crate::engine::guard::GuardedWrite;
use crate::error::{Error, Result};
use crate::value::Value;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

impl<R: Claimable> Job<R> {
    /// The claim it belongs to.
    pub fn claim(&self) -> Claim<R> {
        Claim { core: Arc::clone(&self.core) }
    }

    /// Done. Durable when it returns.
    ///
    /// # Errors
    /// `Unavailable`: unknown whether it was written; the same call may be repeated.
    pub fn complete(&self) -> Result<Finish> {
        self.finish(&Outcome::Complete)
    }

    /// Failed: comes back after `delay` or the back-off, or is dead when its attempts are used up.
    ///
    /// # Errors
    /// As [`Job::complete`].
    pub fn fail(&self, error: impl Into<String>, delay: Option<Duration>) -> Result<Finish> {
        self.finish(&Outcome::Fail { error: error.into(), delay })
    }

    /// Failed for good: it is dead, whatever attempts are left. For what no repetition mends; a person may `retry` it.
    ///
    /// # Errors
    /// As [`Job::complete`]; `Invalid` for a row whose mapping names no status for failed rows.
    pub fn reject(&self, error: impl Into<String>) -> Result<Finish> {
        self.finish(&Outcome::Reject { error: error.into() })
    }

    /// Given back without blame, not to be handed out before `delay` has gone by. The attempt is not counted.
    ///
    /// # Errors
    /// As [`Job::complete`].
    pub fn release(&self, delay: Duration) -> Result<Finish> {
        self.finish(&Outcome::Release { delay })
    }

    /// Leaves the claim with `outcome`. Durable when it returns.
    ///
    /// # Errors
    /// As [`Job::complete`].
    pub fn finish(&self, outcome: &Outcome) -> Result<Finish> {
        let answers = self.core.finish(&[self.index], outcome)?;
        answers.first().copied().ok_or_else(|| Error::invalid("no answer for the job"))
    }

    /// Leaves the claim with `outcome`, written soon by the background thread; `flush` waits for it.
    ///
    /// # Errors
    /// `Invalid` after a fork or close.
    pub fn finish_later(&self, outcome: Outcome) -> Result<()> {
        self.core.finish_later(self.index, outcome)
    }

    /// Makes a write with the fence of this claim of the row, whatever the write's own is; false when a later owner has
    /// written before.
    ///
    /// # Errors
    /// As [`super::Engine::guard`]; `Invalid` for a row whose mapping names no fence, and after a fork or close.
    pub fn guard(&self, write: &GuardedWrite) -> Result<bool> {
        let owned = self.core.owned()?;
        if !owned.has_fences() {
            return Err(Error::invalid("the mapping names no fence column, so its rows cannot guard a write").during("guard"));
        }
        let (_, fence, ..) = self.row.control();
        let write = GuardedWrite { fence, ..write.clone() };
        owned.local.wait(owned.local.engine.guard(&write))
    }

    /// Its place in the claim, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// True when it was finished through this claim, or its finish is on the way.
    pub fn is_finished(&self) -> bool {
        self.core.steps().is_finished(self.index)
    }

    /// What an effect needs to complete it in its own transaction.
    ///
    /// # Errors
    /// `Invalid` after a fork, and for rows that recur: they cannot be completed without their next time.
    pub(super) fn completes(&self) -> Result<Completes> {
        let owned = self.core.owned()?;
        owned.check(&Outcome::Complete)?;
        Ok(Completes { claim: Arc::clone(&owned.state), job: self.row.control().into() })
    }

    /// The engine it was claimed through, as this process has it.
    ///
    /// # Errors
    /// `Invalid` after a fork.
    pub(super) fn local(&self) -> Result<Arc<Local>> {
        Ok(Arc::clone(&self.core.owned()?.local))
    }

    /// Counts it as finished: an effect has completed it.
    pub(super) fn mark_finished(&self) {
        self.core.steps().set(&[self.index], Step::Finished);
    }

    /// Its claim's token.
    pub fn token(&self) -> Option<Uuid> {
        self.claim().token()
    }
}

impl Row {
    /// Done, and columns of the row set in the same write. A row that recurs comes back after `delay`, or at the time set.
    ///
    /// # Errors
    /// `Invalid`, naming a column that is not there or a value that does not fit; as [`Job::complete`].
    pub fn complete_with(&self, set: Vec<(String, Value)>, delay: Option<Duration>) -> Result<Finish> {
        self.finish(&Outcome::CompleteWith { set, delay })
    }
}
