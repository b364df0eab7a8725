//! Until when something that is held is surely held, known without asking the database.
//!
//! The one thing to know: the time is on the process's CLOCK_BOOTTIME, which runs on through SIGSTOP and suspend, and is set
//! from before the request was sent, so it errs towards "no longer valid".

use crate::time::{boottime, micros};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

/// Shared by the owner and the background thread; everything in it is atomic.
#[derive(Debug)]
pub(crate) struct Validity {
    pub lease: Duration,
    /// On CLOCK_BOOTTIME; no renewal counts past it.
    max_until: Option<i64>,
    valid_until: AtomicI64,
    lost: AtomicBool,
}

impl Validity {
    /// Valid from `started` on, when it was asked for.
    pub(crate) fn new(lease: Duration, max_run: Option<Duration>, started: i64) -> Self {
        let max_until = max_run.map(|max_run| started.saturating_add(micros(max_run)));
        let validity = Validity { lease, max_until, valid_until: AtomicI64::new(0), lost: AtomicBool::new(false) };
        validity.renewed(started);
        validity
    }

    /// A renewal that was asked for at `started` has succeeded.
    pub(crate) fn renewed(&self, started: i64) {
        // A margin for the way to the server and back, and for the handler's first step.
        let margin = (self.lease / 10).min(Duration::from_secs(1));
        let until = started.saturating_add(micros(self.lease - margin));
        let until = self.max_until.map_or(until, |max| until.min(max));
        self.valid_until.fetch_max(until, Relaxed);
    }

    /// For how long it is surely valid from now on.
    pub(crate) fn valid_for(&self) -> Duration {
        if self.is_lost() {
            return Duration::ZERO;
        }
        let left = self.valid_until.load(Relaxed).saturating_sub(boottime());
        Duration::from_micros(u64::try_from(left).unwrap_or(0))
    }

    /// No renewal counts any more.
    pub(crate) fn is_past_max_run(&self) -> bool {
        self.max_until.is_some_and(|max| boottime() >= max)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    pub(crate) fn set_lost(&self) {
        self.lost.store(true, Relaxed);
    }
}
