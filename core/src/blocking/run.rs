//! A run in its process's hands, and a pass over the schedules.

use super::Engine;
use super::registry::Local;
use crate::claim::Finish;
use crate::engine::RunFilter;
use crate::engine::guard::GuardedWrite;
use crate::engine::runs::{Hold, Started};
use crate::engine::schedule::ScheduleFilter;
use crate::error::{ErrorKind, Result};
use crate::runs::{Missed, RunRecord, RunRequest, ScheduleRecord, ScheduleRequest};
use crate::time::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The answer to [`super::Engine::run_slot`].
pub enum RunStart {
    /// It is ours: run it, then [`Run::succeed`] or [`Run::fail`].
    Run(Run),
    /// The slot has had its run, or it goes on elsewhere.
    Already(RunRecord),
    /// An earlier run of the task goes on: the slot is recorded as skipped.
    Busy(Option<RunRecord>),
}

/// A run; renewed in the background until it ends. Dropped without an end, it has failed.
pub struct Run {
    local: Arc<Local>,
    hold: Hold,
    has_ended: AtomicBool,
}

fn start(local: &Arc<Local>, request: &RunRequest, records_busy: bool) -> Result<RunStart> {
    Ok(match local.wait(local.engine.begin_run(request, records_busy))? {
        Started::Ours(hold) => RunStart::Run(Run { local: Arc::clone(local), hold, has_ended: AtomicBool::new(false) }),
        Started::Already(record) => RunStart::Already(record),
        Started::Busy(record) => RunStart::Busy(record),
    })
}

impl Run {
    /// Its number in the history.
    pub fn id(&self) -> i64 {
        self.hold.id
    }

    /// The task.
    pub fn task(&self) -> &str {
        &self.hold.request.task
    }

    /// The planned time; of a run that a person asked for, when that was.
    pub fn slot(&self) -> Timestamp {
        self.hold.request.slot
    }

    /// A person asked for it.
    pub fn is_manual(&self) -> bool {
        self.hold.request.is_manual
    }

    /// A number above that of every earlier run of the task; for writes that late runs must not make.
    pub fn fence(&self) -> i64 {
        self.hold.lease.fence
    }

    /// Its token: 128 random bits.
    pub fn token(&self) -> Uuid {
        self.hold.lease.owner
    }

    /// True once a renewal was refused, or after it ended: the task may run elsewhere now.
    pub fn is_lost(&self) -> bool {
        self.hold.lease.is_lost()
    }

    /// For how long it surely is the only run of its task from now on; zero when lost.
    pub fn valid_for(&self) -> Duration {
        self.hold.lease.valid_for()
    }

    /// It ended well.
    ///
    /// # Errors
    /// `Invalid` after a fork or close; `Unavailable`: it counts as lost when its lease ends; `Interrupted`: it is written all
    /// the same, unless the wait was interrupted twice: then it counts as lost too.
    pub fn succeed(&self) -> Result<Finish> {
        self.end(None)
    }

    /// It ended with an error.
    ///
    /// # Errors
    /// As [`Run::succeed`].
    pub fn fail(&self, error: &str) -> Result<Finish> {
        self.end(Some(error))
    }

    /// As it stands in the history.
    ///
    /// # Errors
    /// `NotFound` when it was pruned; `Unavailable`.
    pub fn record(&self) -> Result<RunRecord> {
        self.local.wait(self.local.engine.run_record(self.hold.id))
    }

    /// Makes a write with this run's fence, whatever the write's own is; false when a later run has written before.
    ///
    /// # Errors
    /// As [`super::Engine::guard`]; `Invalid` after a fork or close.
    pub fn guard(&self, write: &GuardedWrite) -> Result<bool> {
        let write = GuardedWrite { fence: self.fence(), ..write.clone() };
        self.local.wait(self.local.engine.guard(&write))
    }

    fn end(&self, error: Option<&str>) -> Result<Finish> {
        self.local.engine.shared.check_process()?;
        self.has_ended.store(true, Relaxed);
        let written = self.local.wait_through(self.local.engine.finish_run(&self.hold, error));
        if matches!(&written, Err(error) if error.kind() == ErrorKind::Interrupted) {
            // Whoever waits no longer must not keep the task: its lease ends.
            self.local.engine.shared.background()?.forget_lease(&self.hold.lease);
            self.hold.lease.set_lost();
        }
        let (finish, interruption) = written?;
        interruption.map(|()| finish)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.has_ended.load(Relaxed) {
            return;
        }
        if self.local.engine.shared.is_foreign() {
            // The parent's: not a byte on its sockets.
            std::mem::forget(Arc::clone(&self.local));
            return;
        }
        if let Err(error) = self.fail("ended without an outcome") {
            log::warn!("{error}");
        }
    }
}

/// One pass over schedules: each slot that is due is claimed right before it runs.
pub struct Tick {
    local: Arc<Local>,
    tasks: VecDeque<String>,
    until: Option<Instant>,
    /// Runs of the first task in this pass.
    made: u32,
}

impl Tick {
    pub(super) fn new(local: Arc<Local>, tasks: &[String], max_time: Option<Duration>) -> Self {
        let until = max_time.and_then(|span| Instant::now().checked_add(span));
        Tick { local, tasks: tasks.iter().cloned().collect(), until, made: 0 }
    }

    /// The next run, or `None` at the end of the pass: nothing more is due, or its time is over.
    ///
    /// # Errors
    /// `NotFound` for a task without a schedule; `Schema`, `Unavailable`.
    pub fn next_run(&mut self) -> Result<Option<Run>> {
        while let Some(task) = self.tasks.front() {
            if self.until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
            let Some(wanted) = self.local.wait(self.local.engine.wanted(task, false))? else {
                self.next_task();
                continue;
            };
            let makes_up = wanted.request.missed == Missed::All;
            if makes_up && self.made >= wanted.request.cap {
                self.next_task();
                continue;
            }
            // Slots that are all to be run wait for the run that goes on; a person's too.
            let waits = makes_up || wanted.run.is_manual;
            let start = start(&self.local, &wanted.run, !waits)?;
            if matches!(start, RunStart::Busy(_)) && waits {
                self.next_task();
                continue;
            }
            self.local.wait(self.local.engine.accounted(&wanted.run))?;
            if let RunStart::Run(run) = start {
                self.made += 1;
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    fn next_task(&mut self) {
        self.tasks.pop_front();
        self.made = 0;
    }
}

impl Engine {
    /// Begins the run of a planned time, unless the slot has had its run or the task is busy.
    ///
    /// # Errors
    /// `Invalid` for a wrong task or lease; `Schema`, `Unavailable`.
    pub fn run_slot(&self, request: &RunRequest) -> Result<RunStart> {
        start(&self.local()?, request, true)
    }

    /// One pass over the schedules of `tasks`, in this order, that starts no run after `max_time`.
    ///
    /// # Errors
    /// `Invalid` after close.
    pub fn tick(&self, tasks: &[String], max_time: Option<Duration>) -> Result<Tick> {
        Ok(Tick::new(self.local()?, tasks, max_time))
    }

    /// See [`crate::Engine::runs`].
    ///
    /// # Errors
    /// As there.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRecord>> {
        let local = self.local()?;
        local.wait(local.engine.runs(filter))
    }

    /// See [`crate::Engine::run_of_slot`].
    ///
    /// # Errors
    /// As there.
    pub fn run_of_slot(&self, task: &str, slot: Timestamp) -> Result<Option<RunRecord>> {
        let local = self.local()?;
        local.wait(local.engine.run_of_slot(task, slot))
    }

    /// See [`crate::Engine::schedule`].
    ///
    /// # Errors
    /// As there.
    pub fn schedule(&self, request: &ScheduleRequest) -> Result<ScheduleRecord> {
        let local = self.local()?;
        local.wait(local.engine.schedule(request))
    }

    /// See [`crate::Engine::unschedule`].
    ///
    /// # Errors
    /// As there.
    pub fn unschedule(&self, task: &str) -> Result<bool> {
        let local = self.local()?;
        local.wait(local.engine.unschedule(task))
    }

    /// See [`crate::Engine::schedules`].
    ///
    /// # Errors
    /// As there.
    pub fn schedules(&self, filter: &ScheduleFilter) -> Result<Vec<ScheduleRecord>> {
        let local = self.local()?;
        local.wait(local.engine.schedules(filter))
    }

    /// See [`crate::Engine::pause_schedule`].
    ///
    /// # Errors
    /// As there.
    pub fn pause_schedule(&self, task: &str) -> Result<bool> {
        let local = self.local()?;
        local.wait(local.engine.pause_schedule(task))
    }

    /// See [`crate::Engine::resume_schedule`].
    ///
    /// # Errors
    /// As there.
    pub fn resume_schedule(&self, task: &str) -> Result<bool> {
        let local = self.local()?;
        local.wait(local.engine.resume_schedule(task))
    }

    /// See [`crate::Engine::ask_run`].
    ///
    /// # Errors
    /// As there.
    pub fn ask_run(&self, task: &str) -> Result<()> {
        let local = self.local()?;
        local.wait(local.engine.ask_run(task))
    }
}
