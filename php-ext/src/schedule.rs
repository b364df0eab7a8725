//! `Rowclaim\ScheduleRecord`: a schedule as it stands; and what a schedule is told.

use crate::arguments::{Int, Seconds, Text};
use crate::exceptions::{exception, invalid};
use crate::run::RunRecord;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use rowclaim::{Missed, ScheduleRequest, Timestamp};

/// What a caller says about a schedule.
pub struct ScheduleArguments {
    /// `task`
    pub task: Text,
    /// `cron`
    pub cron: Text,
    /// `zone`
    pub zone: Text,
    /// `missed`
    pub missed: Option<Text>,
    /// `cap`
    pub cap: Option<Int>,
    /// `catchUp`
    pub catch_up: Option<Seconds>,
    /// `grace`
    pub grace: Option<Seconds>,
    /// `lease`
    pub lease: Option<Seconds>,
    /// `maxRun`
    pub max_run: Option<Seconds>,
}

impl ScheduleArguments {
    /// The schedule they describe.
    ///
    /// # Errors
    /// `InvalidException`.
    pub fn request(self) -> PhpResult<ScheduleRequest> {
        let mut request = ScheduleRequest::new(self.task.utf8("task")?, self.cron.utf8("cron")?, self.zone.utf8("zone")?);
        if let Some(missed) = self.missed {
            request.missed = Missed::parse(&missed.utf8("missed")?).map_err(|error| exception(&error))?;
        }
        if let Some(cap) = self.cap {
            request.cap = u32::try_from(cap.0).or_else(|_| invalid(format!("cap must be from 1 to 1000, not {}", cap.0)))?;
        }
        request.catch_up_for = self.catch_up.map(|span| span.span("catchUp")).transpose()?;
        if let Some(grace) = self.grace {
            request.grace = grace.span("grace")?;
        }
        if let Some(lease) = self.lease {
            request.lease = lease.span("lease")?;
        }
        request.max_run = self.max_run.map(|span| span.span("maxRun")).transpose()?;
        Ok(request)
    }
}

/// A schedule as it stands.
#[php_class]
#[php(name = "Rowclaim\\ScheduleRecord", flags = crate::CLASS)]
pub struct ScheduleRecord(pub rowclaim::ScheduleRecord);

#[php_impl]
impl ScheduleRecord {
    /// The task.
    #[php(getter)]
    pub fn get_task(&self) -> String {
        self.0.request.task.clone()
    }

    /// The expression.
    #[php(getter)]
    pub fn get_cron(&self) -> String {
        self.0.request.cron.clone()
    }

    /// The zone the expression is read in.
    #[php(getter)]
    pub fn get_zone(&self) -> String {
        self.0.request.zone.clone()
    }

    /// What is done about slots that nobody ran in time.
    #[php(getter)]
    pub fn get_missed(&self) -> String {
        self.0.request.missed.name().to_owned()
    }

    /// Slots made up for in one pass.
    #[php(getter)]
    pub fn get_cap(&self) -> i64 {
        i64::from(self.0.request.cap)
    }

    /// Slots older than so many seconds are never made up for.
    #[php(getter)]
    pub fn get_catch_up(&self) -> Option<f64> {
        self.0.request.catch_up_for.map(|span| span.as_secs_f64())
    }

    /// A slot so many seconds late is still on time.
    #[php(getter)]
    pub fn get_grace(&self) -> f64 {
        self.0.request.grace.as_secs_f64()
    }

    /// The lease of its runs, in seconds.
    #[php(getter)]
    pub fn get_lease(&self) -> f64 {
        self.0.request.lease.as_secs_f64()
    }

    /// No renewal of a run goes past so many seconds from its start.
    #[php(getter)]
    pub fn get_max_run(&self) -> Option<f64> {
        self.0.request.max_run.map(|span| span.as_secs_f64())
    }

    /// Every slot up to here has its row in the history, in seconds since 1970.
    #[php(getter)]
    pub fn get_accounted_until(&self) -> f64 {
        self.0.accounted_until.as_unix_seconds()
    }

    /// Since when it is paused.
    #[php(getter)]
    pub fn get_paused_at(&self) -> Option<f64> {
        self.0.paused_at.map(Timestamp::as_unix_seconds)
    }

    /// Since when a person wants it run at once.
    #[php(getter)]
    pub fn get_asked_at(&self) -> Option<f64> {
        self.0.asked_at.map(Timestamp::as_unix_seconds)
    }

    /// The next slot.
    #[php(getter)]
    pub fn get_next_at(&self) -> Option<f64> {
        self.0.next_at.map(Timestamp::as_unix_seconds)
    }

    /// The newest slot that was run.
    #[php(getter)]
    pub fn get_last(&self) -> Option<RunRecord> {
        self.0.last.clone().map(RunRecord)
    }
}
