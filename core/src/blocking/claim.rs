//! A claim in a worker's hands: rows are handed out one by one, each only while the claim is surely valid.
//!
//! When the last handle on a claim is dropped, rows that were never handed out are released; rows that were
//! handed out and not finished stay with the claim until its lease ends.

use super::registry::Local;
use super::steps::{Step, Steps};
use crate::claim::{ClaimState, Claimable, Finish, HeldRows, OnLost, Outcome};
use crate::engine::Claimed;
use crate::error::{Error, Result};
use crate::job::ClaimedJob;
use crate::plan::finish::Held;
use crate::row::ClaimedRow;
use crate::value::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uuid::Uuid;

pub(super) struct Core<R: Claimable> {
    /// `None` for an empty claim.
    pub(super) owned: Option<Owned>,
    pub(super) jobs: Vec<Arc<R>>,
    pub(super) steps: Mutex<Steps>,
}

pub(super) struct Owned {
    pub(super) local: Arc<Local>,
    pub(super) state: Arc<ClaimState>,
}

/// A batch of jobs, or of rows of a mapped table, with one token and one lease. Handles share it; none crosses a fork.
pub struct Claim<R: Claimable = ClaimedJob> {
    pub(super) core: Arc<Core<R>>,
}

/// One job, or one row of a mapped table, of a claim.
pub struct Job<R: Claimable = ClaimedJob> {
    pub(super) core: Arc<Core<R>>,
    pub(super) index: usize,
    pub(super) row: Arc<R>,
}

/// One row of a mapped table of a claim.
pub type Row = Job<ClaimedRow>;

impl<R: Claimable> Clone for Claim<R> {
    fn clone(&self) -> Self {
        Claim { core: Arc::clone(&self.core) }
    }
}

impl<R: Claimable> Clone for Job<R> {
    fn clone(&self) -> Self {
        Job { core: Arc::clone(&self.core), index: self.index, row: Arc::clone(&self.row) }
    }
}

impl<R: Claimable> std::ops::Deref for Job<R> {
    type Target = R;
    fn deref(&self) -> &R {
        &self.row
    }
}

impl<R: Claimable> Core<R> {
    pub(super) fn steps(&self) -> std::sync::MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, indexes: &[usize]) -> Vec<Held> {
        indexes.iter().filter_map(|index| self.jobs.get(*index)).map(|job| job.control().into()).collect()
    }

    pub(super) fn owned(&self) -> Result<&Owned> {
        let owned = self.owned.as_ref().ok_or_else(|| Error::invalid("the claim is empty"))?;
        owned.local.engine.shared.check_process()?;
        Ok(owned)
    }

    /// Finishes rows now; durable when it returns.
    pub(super) fn finish(&self, indexes: &[usize], outcome: &Outcome) -> Result<Vec<Finish>> {
        if indexes.is_empty() {
            return Ok(Vec::new());
        }
        let owned = self.owned()?;
        let outcome = owned.check(outcome)?;
        let jobs = self.held(indexes);
        let answers = owned.local.wait(owned.local.engine.finish(&owned.state, &jobs, &outcome))?;
        let settled = self.steps().set(indexes, Step::Finished);
        owned.local.engine.settle(&owned.state, settled);
        Ok(answers)
    }

    /// Gives an outcome to the background thread.
    pub(super) fn finish_later(&self, index: usize, outcome: Outcome) -> Result<()> {
        let owned = self.owned()?;
        let outcome = owned.check(&outcome)?;
        for job in self.held(&[index]) {
            owned.local.engine.shared.background()?.finish(&owned.state, job, outcome.clone())?;
        }
        self.steps().set(&[index], Step::Finished);
        Ok(())
    }

    /// Gives back the rows that were not handed out.
    fn release_waiting(&self) -> Result<Vec<Finish>> {
        // Marked first, so that no thread starts one of them meanwhile.
        let waiting = {
            let mut steps = self.steps();
            let waiting = steps.indexes(|step| step == Step::Waiting);
            steps.set(&waiting, Step::Started);
            waiting
        };
        let released = self.finish(&waiting, &Outcome::Release { delay: Duration::ZERO });
        if released.is_err() {
            self.steps().set(&waiting, Step::Waiting);
        }
        released
    }
}

impl<R: Claimable> Drop for Core<R> {
    fn drop(&mut self) {
        let Some(owned) = self.owned.take() else { return };
        if owned.local.engine.shared.is_foreign() {
            // The parent's: not a byte on its sockets, not a lock of its threads.
            std::mem::forget(owned);
            return;
        }
        self.owned = Some(owned);
        if let Err(error) = self.release_waiting() {
            log::warn!("{error}");
        }
        if let Some(owned) = &self.owned
            && !owned.state.is_finished()
            && !self.steps().indexes(|step| step != Step::Finished).is_empty()
            && let Some(background) = owned.local.engine.shared.background.get()
        {
            background.forget(&owned.state);
        }
    }
}

impl Owned {
    /// A key as the table's column has it: `'12'` for a number is 12. `None` when it does not fit.
    fn fit_key(&self, key: &Value) -> Option<Value> {
        match &self.state.held {
            HeldRows::Rows { table, .. } => table.fit(&table.key, key).ok(),
            HeldRows::Jobs => None,
        }
    }

    /// Whether a later claim of a row has a larger fence.
    pub(super) fn has_fences(&self) -> bool {
        match &self.state.held {
            HeldRows::Rows { table, .. } => table.fence.is_some(),
            HeldRows::Jobs => true,
        }
    }

    /// The outcome as it can be written, checked before it is on its way.
    pub(super) fn check(&self, outcome: &Outcome) -> Result<Outcome> {
        match (&self.state.held, outcome) {
            (HeldRows::Rows { table, .. }, _) => {
                crate::plan::table::rows::outcome(table, outcome).map_err(|e| e.during(outcome.verb()))
            }
            (HeldRows::Jobs, Outcome::CompleteWith { .. }) => {
                Err(Error::invalid("a job has no columns to set and does not recur; rows of mapped tables can"))
            }
            (HeldRows::Jobs, _) => Ok(outcome.clone()),
        }
    }
}

impl<R: Claimable> Claim<R> {
    pub(super) fn new(local: Arc<Local>, claimed: Option<Claimed<R>>) -> Self {
        let (owned, jobs) = match claimed {
            Some(claimed) => (Some(Owned { local, state: claimed.state }), claimed.jobs),
            None => (None, Vec::new()),
        };
        let steps = Mutex::new(Steps::new(jobs.len()));
        Claim { core: Arc::new(Core { owned, jobs: jobs.into_iter().map(Arc::new).collect(), steps }) }
    }

    pub(super) fn tally(&self) -> Option<&crate::claim::Tally> {
        self.core.owned.as_ref().map(|owned| &owned.state.tally)
    }

    pub(super) fn is_settled(&self) -> bool {
        self.core.owned.as_ref().is_none_or(|owned| owned.state.is_finished())
    }

    /// Rows in it.
    pub fn len(&self) -> usize {
        self.core.jobs.len()
    }

    /// True when nothing waited.
    pub fn is_empty(&self) -> bool {
        self.core.jobs.is_empty()
    }

    /// Its token: 128 random bits; `None` for an empty claim.
    pub fn token(&self) -> Option<Uuid> {
        self.core.owned.as_ref().map(|owned| owned.state.token)
    }

    /// The id of its row in the claims table; `None` for an empty claim and for one that has no record.
    pub fn id(&self) -> Option<i64> {
        self.core.owned.as_ref().map(|owned| owned.state.id).filter(|id| *id > 0)
    }

    /// Its rows in order, for looking at. Handing out goes by [`Claim::next_job`].
    pub fn rows(&self) -> &[Arc<R>] {
        &self.core.jobs
    }

    /// True once a renewal was refused: somebody else may own the rows now.
    pub fn is_lost(&self) -> bool {
        self.core.owned.as_ref().is_some_and(|owned| owned.state.is_lost())
    }

    /// For how long it is surely valid from now on; zero when lost or empty.
    pub fn valid_for(&self) -> Duration {
        self.core.owned.as_ref().map_or(Duration::ZERO, |owned| owned.state.valid_for())
    }

    /// What becomes of its rows that were begun when the lease runs out.
    pub fn on_lost(&self) -> OnLost {
        self.core.owned.as_ref().map_or(OnLost::Retry, |owned| owned.state.on_lost)
    }

    /// The next row that was not handed out yet, or `None`.
    ///
    /// Past the time until which the claim is surely valid, it is renewed first; when that is refused no
    /// further row is started. With [`OnLost::Hold`] it is written first that the row is begun.
    ///
    /// # Errors
    /// `Invalid` after a fork or close; `Unavailable` when the renewal or the write that is needed cannot be asked for: no row
    /// is handed out then.
    pub fn next_job(&self) -> Result<Option<Job<R>>> {
        if !self.core.steps().is_waiting() {
            return Ok(None);
        }
        let owned = self.core.owned()?;
        if owned.state.valid_for().is_zero() && !self.renew()? {
            return Ok(None);
        }
        // Chosen and marked under one lock: threads that share the claim get different rows.
        let Some(index) = self.core.steps().start_next() else { return Ok(None) };
        if owned.state.on_lost == OnLost::Hold {
            let begun = self.begin(owned, index);
            if !matches!(begun, Ok(true)) {
                self.core.steps().unstart(index);
                return begun.map(|_| None);
            }
        }
        Ok(self.job(index))
    }

    /// Writes that a row is begun. `false` when the claim was lost meanwhile.
    fn begin(&self, owned: &Owned, index: usize) -> Result<bool> {
        for row in self.core.held(&[index]) {
            if !owned.local.wait(owned.local.engine.start(&owned.state, &row))? {
                return Ok(false);
            }
        }
        // The write may have taken until after the end of the lease.
        Ok(!owned.state.valid_for().is_zero() || self.renew()?)
    }

    /// The row at a position, handed out or not.
    pub fn job(&self, index: usize) -> Option<Job<R>> {
        let row = Arc::clone(self.core.jobs.get(index)?);
        Some(Job { core: Arc::clone(&self.core), index, row })
    }

    /// Renews the lease now; `false` when it is lost.
    ///
    /// # Errors
    /// `Unavailable`; the claim stays valid for [`Claim::valid_for`].
    pub fn renew(&self) -> Result<bool> {
        let owned = self.core.owned()?;
        owned.local.wait(owned.local.engine.renew(&owned.state))
    }

    /// Completes all rows that were not finished yet. One answer a row, in order.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn complete_all(&self) -> Result<Vec<Finish>> {
        let open = self.core.steps().indexes(|step| step != Step::Finished);
        self.core.finish(&open, &Outcome::Complete)
    }

    /// Releases the rows that were not handed out; how many were given back.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn release_unstarted(&self) -> Result<usize> {
        let answers = self.core.release_waiting()?;
        Ok(answers.iter().filter(|answer| **answer == Finish::Accepted).count())
    }
}

impl Claim {
    /// Finishes rows by id in one step; durable when it returns. One answer an id, in order.
    ///
    /// # Errors
    /// `Invalid` for an id that is not in the claim, before anything is written; `Unavailable`.
    pub fn finish(&self, ids: &[i64], outcome: &Outcome) -> Result<Vec<Finish>> {
        let by_id: HashMap<i64, usize> = self.core.jobs.iter().enumerate().map(|(index, job)| (job.id, index)).collect();
        let find = |id: &i64| by_id.get(id).copied().ok_or_else(|| Error::invalid(format!("job {id} is not in this claim")));
        let indexes = ids.iter().map(find).collect::<Result<Vec<_>>>()?;
        self.core.finish(&indexes, outcome)
    }
}

impl Claim<ClaimedRow> {
    /// Finishes rows by key in one step; durable when it returns. One answer a key, in order.
    ///
    /// # Errors
    /// `Invalid` for a key that is not in the claim, before anything is written; `Unavailable`.
    pub fn finish(&self, keys: &[Value], outcome: &Outcome) -> Result<Vec<Finish>> {
        let rows = &self.core.jobs;
        let mut next = 0;
        let mut find = |key: &Value| {
            let fitted = self.core.owned.as_ref().and_then(|owned| owned.fit_key(key));
            let key = fitted.as_ref().unwrap_or(key);
            // Keys mostly come in the order of the rows.
            let mut indexes = (next..rows.len()).chain(0..next);
            let index = indexes.find(|index| rows.get(*index).is_some_and(|row| row.key == *key));
            next = index.map_or(next, |index| index + 1);
            index.ok_or_else(|| Error::invalid(format!("row {} is not in this claim", crate::plan::keys::shown(key))))
        };
        let indexes = keys.iter().map(&mut find).collect::<Result<Vec<_>>>()?;
        self.core.finish(&indexes, outcome)
    }
}

impl<R: Claimable> Iterator for Claim<R> {
    type Item = Result<Job<R>>;
    fn next(&mut self) -> Option<Result<Job<R>>> {
        self.next_job().transpose()
    }
}
