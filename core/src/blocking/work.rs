//! The loop most users want: claim, hand out, finish, until told to stop.

use super::claim::{Claim, Job, Row};
use super::registry::Local;
use super::table::Table;
use super::wait::sleep;
use super::{Engine, wait};
use crate::bounds::MAX_LIMIT;
use crate::claim::{ClaimRequest, Claimable, OnLost, Outcome};
use crate::engine::ahead::Ahead;
use crate::error::{Error, ErrorKind, Result};
use crate::job::ClaimedJob;
use crate::row::{ClaimedRow, RowClaimRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The pause after the first empty claim; it doubles up to `max_idle`.
const FIRST_IDLE: Duration = Duration::from_millis(50);
/// The next batch is asked for when the rest of this one takes less than this.
const AHEAD: Duration = Duration::from_millis(50);
/// Claims handed out before their outcomes are added up.
const SETTLING: usize = 64;

/// How to work.
#[derive(Clone, Debug)]
pub struct WorkRequest<C = ClaimRequest> {
    /// What to claim; its limit is the batch size.
    pub claim: C,
    /// Stop after this time, and before a job that would not fit if it took as long as those before it; what is held and not
    /// started is released.
    pub max_time: Option<Duration>,
    /// Stop after this many jobs.
    pub max_jobs: Option<u64>,
    /// Stop when nothing waits.
    pub until_empty: bool,
    /// The longest pause between two claims when nothing waits.
    pub max_idle: Duration,
    /// Have the next batch claimed in the background when the last jobs of this one are in hand. Jobs of queues only.
    pub prefetch: bool,
    /// Finish each job durably before the next; otherwise the background thread writes outcomes together.
    pub finish_each: bool,
    /// Set it (from a signal handler, another thread) to stop after the job in hand.
    pub stop: Arc<AtomicBool>,
}

impl<C> WorkRequest<C> {
    /// Works on what `claim` asks for until stopped.
    pub fn new(claim: C) -> Self {
        WorkRequest {
            claim,
            max_time: None,
            max_jobs: None,
            until_empty: false,
            max_idle: Duration::from_secs(1),
            prefetch: true,
            finish_each: false,
            stop: Arc::default(),
        }
    }
}

/// What became of a job in its handler.
#[derive(Clone, Debug)]
pub enum Handled {
    /// Leaves its claim with this outcome.
    As(Outcome),
    /// The handler finished it itself.
    Itself,
    /// As the first, and no further job.
    Last(Outcome),
    /// It was broken off (the program ends, an interrupt) and says nothing: given back, or, in a claim that holds, left to its
    /// lease, since it was begun. No further job.
    BrokenOff,
}

/// What a `work` call did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Jobs claimed.
    pub claimed: u64,
    /// Completions accepted.
    pub completed: u64,
    /// Failures accepted.
    pub failed: u64,
    /// Jobs given back: by handlers, and those not started.
    pub released: u64,
    /// Jobs whose claim was lost before their outcome was written.
    pub lost: u64,
    /// True when it ended because it was told to stop.
    pub stopped: bool,
    /// Seconds from start to end.
    pub seconds: f64,
}

/// Where a `work` call gets its batches.
trait Source {
    type Item: Claimable;

    /// Rows at most in a batch.
    fn batch(&self) -> usize;

    fn claim(&self, limit: usize) -> Result<Claim<Self::Item>>;

    /// Has the next batch claimed in the background; `None` where that is not done.
    fn ahead(&self, _limit: usize) -> Result<Option<Next>> {
        Ok(None)
    }

    /// What was claimed ahead.
    fn claimed_ahead(&self, _next: Next) -> Result<Claim<Self::Item>> {
        self.claim(self.batch())
    }
}

/// A batch on its way.
struct Next {
    local: Arc<Local>,
    ahead: Ahead,
}

/// Jobs of queues.
struct Queues<'a> {
    engine: &'a Engine,
    request: &'a ClaimRequest,
}

impl Source for Queues<'_> {
    type Item = ClaimedJob;

    fn batch(&self) -> usize {
        self.request.limit
    }

    fn claim(&self, limit: usize) -> Result<Claim> {
        self.engine.claim(&self.request.clone().limit(limit))
    }

    fn ahead(&self, limit: usize) -> Result<Option<Next>> {
        let local = self.engine.local()?;
        let ahead = local.engine.claim_ahead(self.request.clone().limit(limit))?;
        Ok(Some(Next { local, ahead }))
    }

    fn claimed_ahead(&self, next: Next) -> Result<Claim> {
        let claimed = next.local.claimed_ahead(next.ahead)?;
        Ok(Claim::new(next.local, claimed))
    }
}

/// Rows of a mapped table.
struct Rows<'a> {
    table: &'a Table,
    request: &'a RowClaimRequest,
}

impl Source for Rows<'_> {
    type Item = ClaimedRow;

    fn batch(&self) -> usize {
        self.request.limit
    }

    fn claim(&self, limit: usize) -> Result<Claim<ClaimedRow>> {
        self.table.claim(&RowClaimRequest { limit, ..self.request.clone() })
    }
}

/// The state of one `work` call.
struct Loop<'a, S: Source, C> {
    source: S,
    request: &'a WorkRequest<C>,
    started: Instant,
    handed_out: u64,
    /// Time spent in handlers.
    busy: Duration,
    next: Option<Next>,
    summary: Summary,
    settling: Vec<Claim<S::Item>>,
}

impl Engine {
    /// Claims batches and calls `handler` for each job, until the time, the number of jobs or the work is over, or
    /// `stop` is set. A database that goes away meanwhile is waited for. Outcomes are written when it returns.
    ///
    /// # Errors
    /// `Invalid`, `Schema`, `Config` at once; `Unavailable` when the database never answered, or outcomes are left
    /// unwritten; `Interrupted`. What is held and not started is released before.
    pub fn work(&self, request: &WorkRequest, handler: impl FnMut(&Job) -> Handled) -> Result<Summary> {
        request.claim.check(self.config.lease).map_err(|e| e.during("work"))?;
        run(self, Queues { engine: self, request: &request.claim }, request, handler)
    }
}

impl Table {
    /// As [`Engine::work`], for the rows of this table.
    ///
    /// # Errors
    /// As there.
    pub fn work(&self, request: &WorkRequest<RowClaimRequest>, handler: impl FnMut(&Row) -> Handled) -> Result<Summary> {
        request.claim.check(self.default_lease()?).map_err(|e| e.during("work"))?;
        run(self.engine(), Rows { table: self, request: &request.claim }, request, handler)
    }
}

fn run<S: Source, C>(
    engine: &Engine,
    source: S,
    request: &WorkRequest<C>,
    mut handler: impl FnMut(&Job<S::Item>) -> Handled,
) -> Result<Summary> {
    if request.max_jobs == Some(0) {
        return Err(Error::invalid("max_jobs must be 1 or more").during("work"));
    }
    let mut work = Loop {
        source,
        request,
        started: Instant::now(),
        handed_out: 0,
        busy: Duration::ZERO,
        next: None,
        summary: Summary::default(),
        settling: Vec::new(),
    };
    let result = work.run(&mut handler);
    let result = result.and(work.drop_next());
    let flushed = engine.flush();
    work.settle(true);
    let mut summary = work.summary;
    summary.seconds = work.started.elapsed().as_secs_f64();
    summary.stopped = request.stop.load(Relaxed);
    result.and(flushed).map_err(|e| e.during("work"))?;
    Ok(summary)
}

impl<S: Source, C> Loop<'_, S, C> {
    fn is_over(&self) -> bool {
        self.request.stop.load(Relaxed)
            || self.request.max_time.is_some_and(|limit| self.started.elapsed() >= limit)
            || self.left() == 0
    }

    /// Whether a further job fits into the time that is left, if it takes as long as those before it did.
    fn fits(&self) -> bool {
        let handled = u32::try_from(self.handed_out).unwrap_or(u32::MAX);
        let each = self.busy.checked_div(handled).unwrap_or_default();
        self.request.max_time.is_none_or(|limit| self.started.elapsed() + each <= limit)
    }

    fn left(&self) -> u64 {
        self.request.max_jobs.map_or(u64::MAX, |max| max.saturating_sub(self.handed_out))
    }

    fn run(&mut self, handler: &mut impl FnMut(&Job<S::Item>) -> Handled) -> Result<()> {
        let mut idle = FIRST_IDLE;
        let mut has_answered = false;
        while !self.is_over() {
            let limit = usize::try_from(self.left()).unwrap_or(MAX_LIMIT).min(self.source.batch());
            let claim = match self.claim(limit) {
                Ok(claim) => claim,
                Err(error) if error.kind() == ErrorKind::Unavailable && has_answered => {
                    log::warn!("work: {error}; waiting for the database");
                    self.pause(&mut idle, Duration::from_secs(5))?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            has_answered = true;
            if claim.is_empty() {
                if self.request.until_empty {
                    return Ok(());
                }
                self.pause(&mut idle, self.request.max_idle)?;
                continue;
            }
            idle = FIRST_IDLE;
            self.summary.claimed += claim.len() as u64;
            let is_last = self.batch(&claim, handler);
            self.settling.push(claim);
            if self.settling.len() > SETTLING {
                self.settle(false);
            }
            if is_last? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands out one claim; true when there shall be no further one. What was not started is released.
    fn batch(&mut self, claim: &Claim<S::Item>, handler: &mut impl FnMut(&Job<S::Item>) -> Handled) -> Result<bool> {
        let mut is_last = false;
        let mut dropped = Ok(());
        while !is_last && !self.is_over() && self.fits() {
            let job = match claim.next_job() {
                Ok(Some(job)) => job,
                Ok(None) => break,
                // The renewal or the mark that is needed cannot be written: the rows are given back, or left to their lease.
                Err(error) if error.is_retryable() => {
                    log::warn!("work: {error}");
                    break;
                }
                Err(error) => return Err(error),
            };
            self.look_ahead(claim.len() - job.index())?;
            self.handed_out += 1;
            let since = Instant::now();
            let handled = handler(&job);
            self.busy += since.elapsed();
            let (outcome, is_end) = match handled {
                Handled::Itself => continue,
                Handled::As(outcome) => (Some(outcome), false),
                Handled::Last(outcome) => (Some(outcome), true),
                Handled::BrokenOff if claim.on_lost() == OnLost::Hold => (None, true),
                Handled::BrokenOff => (Some(Outcome::Release { delay: Duration::ZERO }), true),
            };
            if is_end {
                is_last = true;
                // Before anything is given back: a claim made ahead would take it, only to give it back too.
                dropped = self.drop_next();
            }
            let Some(outcome) = outcome else { continue };
            if job.is_finished() {
                continue;
            }
            if self.request.finish_each {
                self.finish_each(&job, &outcome)?;
            } else {
                job.finish_later(outcome)?;
            }
            if !wait::go_on() {
                is_last = true;
            }
        }
        is_last |= !self.fits();
        if is_last || self.is_over() {
            dropped = dropped.and(self.drop_next());
        }
        match claim.release_unstarted() {
            Err(error) if error.kind() == ErrorKind::Unavailable => log::warn!("work: {error}"),
            other => drop(other?),
        }
        dropped?;
        Ok(is_last)
    }

    fn claim(&mut self, limit: usize) -> Result<Claim<S::Item>> {
        if let Some(next) = self.next.take() {
            let claim = self.source.claimed_ahead(next)?;
            // That nothing waited then does not say that nothing waits now.
            if !claim.is_empty() {
                return Ok(claim);
            }
        }
        self.source.claim(limit)
    }

    /// Has the next batch claimed when the `rest` of this one, with the job in hand, will not take long: jobs must not wait
    /// in the hands of a slow worker.
    fn look_ahead(&mut self, rest: usize) -> Result<()> {
        let handled = u32::try_from(self.handed_out).unwrap_or(u32::MAX);
        let each = self.busy.checked_div(handled).unwrap_or(AHEAD);
        let is_near = each.saturating_mul(u32::try_from(rest).unwrap_or(u32::MAX)) < AHEAD;
        let left = self.left().saturating_sub(rest as u64);
        if !self.request.prefetch || self.next.is_some() || !is_near || left == 0 {
            return Ok(());
        }
        let limit = usize::try_from(left).unwrap_or(MAX_LIMIT).min(self.source.batch());
        self.next = self.source.ahead(limit)?;
        Ok(())
    }

    /// Gives back what was claimed ahead and is not wanted any more.
    fn drop_next(&mut self) -> Result<()> {
        match self.next.take().map(|next| self.source.claimed_ahead(next)) {
            // Without the database they come back when the lease ends.
            Some(Err(error)) if error.kind() != ErrorKind::Unavailable => Err(error),
            _ => Ok(()),
        }
    }

    /// Insists on a durable outcome as long as the database comes back within the lease.
    fn finish_each(&self, job: &Job<S::Item>, outcome: &Outcome) -> Result<()> {
        loop {
            match job.finish(outcome) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_retryable() && !job.claim().valid_for().is_zero() => log::warn!("work: {error}"),
                Err(error) if error.is_retryable() => {
                    log::warn!("work: {error}; the job comes back when its lease ends");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn pause(&self, idle: &mut Duration, longest: Duration) -> Result<()> {
        let jitter = 0.75 + fastrand::f64() / 2.0;
        if !sleep(idle.mul_f64(jitter), || self.is_over()) {
            return Err(Error::new(ErrorKind::Interrupted, "the wait was interrupted"));
        }
        *idle = (*idle * 2).min(longest);
        Ok(())
    }

    /// Adds up the outcomes of claims that have all their answers; of every claim with `all`, after a flush.
    fn settle(&mut self, all: bool) {
        let (over, open) = std::mem::take(&mut self.settling).into_iter().partition(|claim| all || claim.is_settled());
        self.settling = open;
        let over: Vec<Claim<S::Item>> = over;
        for tally in over.iter().filter_map(Claim::tally) {
            self.summary.completed += tally.completed.load(Relaxed);
            self.summary.failed += tally.failed.load(Relaxed);
            self.summary.released += tally.released.load(Relaxed);
            self.summary.lost += tally.lost.load(Relaxed);
        }
    }
}
