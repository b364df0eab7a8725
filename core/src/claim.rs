//! A claim as the process sees it: its token, its rows, and until when it is surely valid.
//!
//! [`ClaimState`] is shared by the owner and the background thread; everything in it is atomic. How its time runs is
//! [`Validity`]'s.

use crate::bounds::{check_limit, check_queue};
use crate::error::{Error, Result};
use crate::job::ClaimedJob;
use crate::plan::claim::NewClaim;
use crate::plan::table::Table;
use crate::row::ClaimedRow;
use crate::validity::Validity;
use crate::value::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use uuid::Uuid;

/// What becomes of rows that were begun when their claim's lease runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLost {
    /// At least once: they come back and are done again by another worker.
    #[default]
    Retry,
    /// At most once: they wait in state `held` for a person, or code that asks the receiver, to [`resolve`] them. Handing a
    /// row out costs one write more, by which it is known that it was begun; rows that were not come back at once.
    ///
    /// [`resolve`]: crate::Engine::resolve
    Hold,
}

impl OnLost {
    /// Its name, the same in SQL and in every language.
    pub fn name(self) -> &'static str {
        match self {
            OnLost::Retry => "retry",
            OnLost::Hold => "hold",
        }
    }

    /// The policy of a name: `retry` or `hold`.
    ///
    /// # Errors
    /// `Invalid` for any other word.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "retry" => Ok(OnLost::Retry),
            "hold" => Ok(OnLost::Hold),
            _ => Err(Error::invalid(format!("on_lost must be retry or hold, not {name}"))),
        }
    }
}

/// What has turned out about a row that was begun when its lease ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It was sent: done.
    Sent,
    /// It was not sent: it is handed out again, and the attempt is not counted.
    NotSent,
}

/// What a claim asks for.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The queues, asked in this order within one priority. At least one.
    pub queues: Vec<String>,
    /// Only jobs of this priority.
    pub priority: Option<i16>,
    /// Rows at most, 1 to 10,000.
    pub limit: usize,
    /// The lease; the engine's default when `None`; at least 1 second.
    pub lease: Option<Duration>,
    /// No renewal goes past this time from the start. Must not be shorter than the lease.
    pub max_run: Option<Duration>,
    /// Only jobs whose id leaves the remainder `.0` when divided by `.1`.
    pub partition: Option<(i64, i64)>,
    /// What becomes of jobs that were begun when the lease runs out.
    pub on_lost: OnLost,
}

impl ClaimRequest {
    /// A claim of up to 100 jobs of one queue.
    pub fn new(queue: impl Into<String>) -> Self {
        ClaimRequest {
            queues: vec![queue.into()],
            priority: None,
            limit: 100,
            lease: None,
            max_run: None,
            partition: None,
            on_lost: OnLost::Retry,
        }
    }

    /// The same with another limit.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// The same with another lease.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The same with another answer to a lost lease.
    #[must_use]
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    pub(crate) fn check(&self, default_lease: Duration) -> Result<()> {
        if self.queues.is_empty() {
            return Err(Error::invalid("queues must name at least one queue"));
        }
        self.queues.iter().try_for_each(|queue| check_queue(queue))?;
        check_limit("limit", self.limit)?;
        check_lease(self.lease.unwrap_or(default_lease), self.max_run)?;
        check_partition(self.partition)
    }
}

pub(crate) fn check_lease(lease: Duration, max_run: Option<Duration>) -> Result<()> {
    if lease < Duration::from_secs(1) || lease > Duration::from_secs(31_536_000) {
        return Err(Error::invalid("lease must be from 1 second to 1 year"));
    }
    if max_run.is_some_and(|max_run| max_run < lease) {
        return Err(Error::invalid("max_run must not be shorter than the lease"));
    }
    Ok(())
}

pub(crate) fn check_partition(partition: Option<(i64, i64)>) -> Result<()> {
    match partition {
        Some((k, n)) if !(n >= 1 && (0..n).contains(&k)) => Err(Error::invalid("partition must be (k, n) with 0 <= k < n")),
        _ => Ok(()),
    }
}

/// How a row leaves its claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Done.
    Complete,
    /// Done, and columns of the same row set in the same write; rows of mapped tables only.
    CompleteWith {
        /// Columns and their values.
        set: Vec<(String, Value)>,
        /// Rows that recur: not handed out again before this has gone by.
        delay: Option<Duration>,
    },
    /// Failed: it comes back after the back-off, or is dead when its attempts are used up.
    Fail {
        /// What went wrong; cut to 4,000 characters.
        error: String,
        /// Instead of the back-off.
        delay: Option<Duration>,
    },
    /// Failed for good: it is dead, whatever attempts are left. For what no repetition mends.
    Reject {
        /// What is wrong with it; cut to 4,000 characters.
        error: String,
    },
    /// Given back without blame: the attempt is not counted.
    Release {
        /// Not handed out again before this has gone by.
        delay: Duration,
    },
}

impl Outcome {
    /// The verb that brings it about.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Outcome::Complete | Outcome::CompleteWith { .. } => "complete",
            Outcome::Fail { .. } => "fail",
            Outcome::Reject { .. } => "reject",
            Outcome::Release { .. } => "release",
        }
    }
}

/// The answer to a finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Accepted now, or the same outcome had been accepted before.
    Accepted,
    /// Somebody else owns the row now; nothing was changed.
    Lost,
}

/// What a claim holds.
#[derive(Debug)]
pub(crate) enum HeldRows {
    /// Jobs of the own table.
    Jobs,
    /// Rows of a mapped table, by position.
    Rows { table: Arc<Table>, keys: Vec<Value> },
}

/// The part of a claim that outlives its handle: the heartbeat's and the writers' view.
#[derive(Debug)]
pub(crate) struct ClaimState {
    /// Its row in the claims table; below 0 for a claim that has none.
    pub id: i64,
    pub held: HeldRows,
    pub token: Uuid,
    pub worker: String,
    pub on_lost: OnLost,
    validity: Validity,
    /// Rows without an accepted or lost outcome.
    unfinished: AtomicUsize,
    /// Writes of outcomes that the foreground waits for.
    pub writing: AtomicUsize,
    pub tally: Tally,
}

/// Outcomes written, by kind.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub completed: AtomicU64,
    pub failed: AtomicU64,
    pub released: AtomicU64,
    pub lost: AtomicU64,
}

impl Tally {
    pub(crate) fn count(&self, outcome: &Outcome, finish: Finish) {
        let counter = match (finish, outcome) {
            (Finish::Lost, _) => &self.lost,
            (_, Outcome::Complete | Outcome::CompleteWith { .. }) => &self.completed,
            (_, Outcome::Fail { .. } | Outcome::Reject { .. }) => &self.failed,
            (_, Outcome::Release { .. }) => &self.released,
        };
        counter.fetch_add(1, Relaxed);
    }
}

impl std::ops::Deref for ClaimState {
    type Target = Validity;
    fn deref(&self) -> &Validity {
        &self.validity
    }
}

impl ClaimState {
    pub(crate) fn new(id: i64, made: &NewClaim, held: HeldRows, rows: usize, started: i64) -> Self {
        ClaimState {
            id,
            held,
            token: made.token,
            worker: made.worker.clone(),
            on_lost: made.on_lost,
            validity: Validity::new(made.lease, made.max_run, started),
            unfinished: AtomicUsize::new(rows),
            writing: AtomicUsize::new(0),
            tally: Tally::default(),
        }
    }

    /// Counts `rows` as finished; true when none is left.
    pub(crate) fn finished(&self, rows: usize) -> bool {
        let before = self.unfinished.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(rows)));
        before.is_ok_and(|left| left > 0 && left <= rows)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.unfinished.load(Relaxed) == 0
    }
}

/// What a claim can hold: jobs of the own table, or rows of a mapped one.
pub trait Claimable {
    /// What a finish needs to know: id or place, fence, attempts, most attempts.
    #[doc(hidden)]
    fn control(&self) -> (i64, i64, i64, i64);
}

impl Claimable for ClaimedJob {
    fn control(&self) -> (i64, i64, i64, i64) {
        (self.id, self.fence, self.attempts, self.max_attempts)
    }
}

impl Claimable for ClaimedRow {
    fn control(&self) -> (i64, i64, i64, i64) {
        (i64::try_from(self.position).unwrap_or(i64::MAX), self.fence, self.attempts, self.max_attempts.unwrap_or(i64::MAX))
    }
}
