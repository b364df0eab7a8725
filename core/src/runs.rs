//! Runs: one row for each planned time of a task, and how it went. Schedules: which times those are.

use crate::bounds::check_task;
use crate::error::{Error, Result};
use crate::time::Timestamp;
use std::time::Duration;

/// A run that is asked for.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// 1 to 187 bytes.
    pub task: String,
    /// The planned time: the same task and slot run once.
    pub slot: Timestamp,
    /// How long the run is taken for alive without a renewal; at least 1 second. Renewed in the background.
    pub lease: Duration,
    /// No renewal goes past this time from the start: a run that hangs is taken for lost then.
    pub max_run: Option<Duration>,
    /// A person wants it: it is marked as such, and runs although the slot has had its run.
    pub is_manual: bool,
}

impl RunRequest {
    /// The planned run of a slot, with a lease of 60 seconds.
    pub fn new(task: impl Into<String>, slot: Timestamp) -> Self {
        RunRequest { task: task.into(), slot, lease: Duration::from_secs(60), max_run: None, is_manual: false }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_task(&self.task)?;
        crate::claim::check_lease(self.lease, self.max_run)
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$each:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$each])* $variant),* }

        impl $name {
            /// Every one.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Its name, the same in SQL and in every language.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }

            /// The one of a name.
            ///
            /// # Errors
            /// `Invalid` for any other word.
            pub fn parse(name: &str) -> Result<Self> {
                let found = $name::ALL.iter().copied().find(|item| item.name() == name);
                let words = [$($word),*].join(", ");
                found.ok_or_else(|| Error::invalid(format!("{} {name} is none of {words}", $what)))
            }
        }
    };
}

words! {
    /// How a run stands.
    RunState, "state" {
        /// It goes on.
        Started = "started",
        /// Ended well.
        Succeeded = "succeeded",
        /// Ended with an error.
        Failed = "failed",
        /// Its process was silent past the lease.
        Lost = "lost",
        /// Not run; see [`SkipReason`].
        Skipped = "skipped",
    }
}

words! {
    /// Why a slot was not run.
    SkipReason, "reason" {
        /// An earlier run of the task was still going on.
        Busy = "busy",
        /// Nobody looked in time.
        Missed = "missed",
        /// The schedule was paused.
        Disabled = "disabled",
    }
}

words! {
    /// What is done about slots that nobody ran in time.
    Missed, "missed" {
        /// They are recorded as skipped.
        Skip = "skip",
        /// The newest is run, the others are recorded as skipped.
        Once = "once",
        /// All are run, oldest first, [`ScheduleRequest::cap`] in one pass.
        All = "all",
    }
}

/// A run as it stands in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Its number in the history.
    pub id: i64,
    /// The task.
    pub task: String,
    /// The planned time.
    pub slot: Timestamp,
    /// 0, or counts what people ran again of the same slot.
    pub rerun: i64,
    /// A person asked for it.
    pub is_manual: bool,
    /// How it stands.
    pub state: RunState,
    /// Why it was skipped.
    pub reason: Option<SkipReason>,
    /// More than 1: this row stands for so many missed slots, of which `slot` is the last.
    pub slots: i64,
    /// The fence of its lease; `None` for a skipped one.
    pub fence: Option<i64>,
    /// Who ran or skipped it, for people.
    pub worker: String,
    /// When it began, or was skipped.
    pub started_at: Timestamp,
    /// When it ended; `None` while it goes on.
    pub finished_at: Option<Timestamp>,
    /// What went wrong.
    pub error: Option<String>,
}

impl RunRecord {
    /// From its start to its end; `None` while it goes on and for skipped ones.
    pub fn duration(&self) -> Option<Duration> {
        let ended = self.finished_at.filter(|_| self.state != RunState::Skipped)?;
        Some(Duration::from_micros(u64::try_from(ended.0.saturating_sub(self.started_at.0)).unwrap_or(0)))
    }
}

/// A task that runs by the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRequest {
    /// 1 to 187 bytes.
    pub task: String,
    /// Five fields, or six with seconds first: minute, hour, day, month, day of the week. `L`, `W` and `#` are known.
    pub cron: String,
    /// The zone the expression is read in: `UTC`, an offset such as `+08:00`, or a name such as `Asia/Shanghai`.
    pub zone: String,
    /// What is done about slots that nobody ran in time.
    pub missed: Missed,
    /// With [`Missed::All`]: slots made up for in one pass, at least 1.
    pub cap: u32,
    /// Slots older than this are never made up for.
    pub catch_up_for: Option<Duration>,
    /// A slot this late is still on time; at least 1 second.
    pub grace: Duration,
    /// The lease of its runs.
    pub lease: Duration,
    /// As in [`RunRequest::max_run`].
    pub max_run: Option<Duration>,
}

impl ScheduleRequest {
    /// A plan that skips what was missed; 90 seconds late is on time, so that a look each minute is enough.
    pub fn new(task: impl Into<String>, cron: impl Into<String>, zone: impl Into<String>) -> Self {
        ScheduleRequest {
            task: task.into(),
            cron: cron.into(),
            zone: zone.into(),
            missed: Missed::Skip,
            cap: 10,
            catch_up_for: None,
            grace: Duration::from_secs(90),
            lease: Duration::from_secs(60),
            max_run: None,
        }
    }

    pub(crate) fn check(&self) -> Result<crate::plan::slots::Plan> {
        check_task(&self.task)?;
        crate::claim::check_lease(self.lease, self.max_run)?;
        if self.cap == 0 || self.cap > 1_000 {
            return Err(Error::invalid(format!("cap must be from 1 to 1000, not {}", self.cap)));
        }
        if self.grace < Duration::from_secs(1) || self.grace > Duration::from_secs(86_400) {
            return Err(Error::invalid("grace must be from 1 second to 1 day"));
        }
        if self.catch_up_for.is_some_and(|span| span < self.grace) {
            return Err(Error::invalid("catch_up must not be shorter than grace"));
        }
        crate::plan::slots::Plan::parse(&self.cron, &self.zone)
    }
}

/// A schedule as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// What was asked for.
    pub request: ScheduleRequest,
    /// Every slot up to here has its row in the history.
    pub accounted_until: Timestamp,
    /// Since when it is paused.
    pub paused_at: Option<Timestamp>,
    /// Since when a person wants it run at once.
    pub asked_at: Option<Timestamp>,
    /// The next slot; `None` when it is paused or the expression never comes again.
    pub next_at: Option<Timestamp>,
    /// The newest slot that was run.
    pub last: Option<RunRecord>,
}
