//! `Rowclaim\Run` and `Rowclaim\RunRecord`: a run in its process's hands, and one as it stands in the history; and how a
//! run's function is called.
//!
//! The end of a run is written before anything goes on: an exception of the function waits until then, also `exit()` and
//! fatal errors.
#![allow(non_snake_case)]

use crate::arguments::Text;
use crate::guard::GuardArguments;
use crate::handlers::{Handler, Handlers};
use crate::process::{Called, Drain, call, gate, is_leaving};
use crate::thrown::Thrown;
use ext_php_rs::convert::IntoZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::ZendHashTable;
use rowclaim::blocking::{Engine, RunStart};
use rowclaim::{Error, ErrorKind, GuardedWrite, RunRequest, Timestamp};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Why a run has failed whose function did not come back.
const CUT_OFF: &str = "the script ended in the middle";

/// A run.
#[php_class]
#[php(name = "Rowclaim\\Run", flags = crate::CLASS)]
pub struct Run {
    inner: Rc<rowclaim::blocking::Run>,
    engine: Engine,
}

#[php_impl]
impl Run {
    /// Its number in the history.
    #[php(getter)]
    pub fn get_id(&self) -> i64 {
        self.inner.id()
    }

    /// The task.
    #[php(getter)]
    pub fn get_task(&self) -> String {
        self.inner.task().to_owned()
    }

    /// The planned time, in seconds since 1970.
    #[php(getter)]
    pub fn get_slot(&self) -> f64 {
        self.inner.slot().as_unix_seconds()
    }

    /// A number above that of every earlier run of the task.
    #[php(getter)]
    pub fn get_fence(&self) -> i64 {
        self.inner.fence()
    }

    /// Its token as a UUID.
    #[php(getter)]
    pub fn get_token(&self) -> String {
        self.inner.token().to_string()
    }

    /// A person asked for it.
    #[php(getter)]
    pub fn get_manual(&self) -> bool {
        self.inner.is_manual()
    }

    /// True once a renewal was refused, or after it ended.
    #[php(getter)]
    pub fn get_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// For how many seconds it surely is the only run of its task.
    #[php(getter)]
    pub fn get_valid_for(&self) -> f64 {
        self.inner.valid_for().as_secs_f64()
    }

    /// Makes a write with its fence; false when a later run has written before. Throws as the engine's `guard`.
    pub fn guard(&self, table: Text, key: &ZendHashTable, set: &ZendHashTable, fenceColumn: Text) -> PhpResult<bool> {
        let arguments = GuardArguments { table, key, set, fence_column: fenceColumn };
        let write = GuardedWrite { fence: self.inner.fence(), ..arguments.write()? };
        gate(|| self.engine.guard(&write))
    }
}

/// A run as it stands in the history.
#[php_class]
#[php(name = "Rowclaim\\RunRecord", flags = crate::CLASS)]
pub struct RunRecord(pub rowclaim::RunRecord);

#[php_impl]
impl RunRecord {
    /// Its number in the history.
    #[php(getter)]
    pub fn get_id(&self) -> i64 {
        self.0.id
    }

    /// The task.
    #[php(getter)]
    pub fn get_task(&self) -> String {
        self.0.task.clone()
    }

    /// The planned time, in seconds since 1970.
    #[php(getter)]
    pub fn get_slot(&self) -> f64 {
        self.0.slot.as_unix_seconds()
    }

    /// 0, or counts what people ran again of the same slot.
    #[php(getter)]
    pub fn get_rerun(&self) -> i64 {
        self.0.rerun
    }

    /// A person asked for it.
    #[php(getter)]
    pub fn get_manual(&self) -> bool {
        self.0.is_manual
    }

    /// How it stands.
    #[php(getter)]
    pub fn get_state(&self) -> String {
        self.0.state.name().to_owned()
    }

    /// Why it was skipped.
    #[php(getter)]
    pub fn get_reason(&self) -> Option<String> {
        self.0.reason.map(|reason| reason.name().to_owned())
    }

    /// For how many missed slots it stands.
    #[php(getter)]
    pub fn get_slots(&self) -> i64 {
        self.0.slots
    }

    /// The fence of its lease; null for a skipped one.
    #[php(getter)]
    pub fn get_fence(&self) -> Option<i64> {
        self.0.fence
    }

    /// Who ran or skipped it.
    #[php(getter)]
    pub fn get_worker(&self) -> String {
        self.0.worker.clone()
    }

    /// When it began, or was skipped, in seconds since 1970.
    #[php(getter)]
    pub fn get_started_at(&self) -> f64 {
        self.0.started_at.as_unix_seconds()
    }

    /// When it ended; null while it goes on.
    #[php(getter)]
    pub fn get_finished_at(&self) -> Option<f64> {
        self.0.finished_at.map(Timestamp::as_unix_seconds)
    }

    /// Seconds from its start to its end.
    #[php(getter)]
    pub fn get_duration(&self) -> Option<f64> {
        self.0.duration().map(|span| span.as_secs_f64())
    }

    /// What went wrong.
    #[php(getter)]
    pub fn get_error(&self) -> Option<String> {
        self.0.error.clone()
    }
}

/// How the function of a run ended; the run's end is written.
enum Ended {
    /// It went on to its end.
    Well,
    /// It threw this.
    Badly(Thrown),
    /// The script ends.
    Left,
}

/// Calls the function of a run and writes down how that ended.
fn carry_out(engine: &Engine, run: &Rc<rowclaim::blocking::Run>, function: &Handler) -> rowclaim::Result<Ended> {
    let called = match (Run { inner: Rc::clone(run), engine: engine.clone() }).into_zval(false) {
        Ok(argument) => call(function, vec![&argument]),
        Err(_) => Called::Left,
    };
    match called {
        Called::Returned(()) => run.succeed().map(|_| Ended::Well),
        Called::Left => run.fail(CUT_OFF).map(|_| Ended::Left),
        Called::Threw => match Thrown::take() {
            None => run.fail(CUT_OFF).map(|_| Ended::Left),
            Some(thrown) => {
                let text = thrown.text();
                match run.fail(&text) {
                    Ok(_) => Ok(Ended::Badly(thrown)),
                    Err(error) => {
                        // It says more than that its end could not be written.
                        thrown.put_back();
                        Err(error)
                    }
                }
            }
        },
    }
}

fn cut_off() -> Error {
    Error::new(ErrorKind::Interrupted, CUT_OFF)
}

/// Runs a planned time once; the record of the slot.
///
/// # Errors
/// As the core's `run_slot`; what the function throws.
pub fn run_slot(engine: &Engine, request: &RunRequest, function: &Handler) -> PhpResult<RunRecord> {
    gate(|| {
        let run = match engine.run_slot(request)? {
            RunStart::Run(run) => Rc::new(run),
            RunStart::Already(record) | RunStart::Busy(Some(record)) => return Ok(record),
            RunStart::Busy(None) => {
                return Err(Error::new(ErrorKind::Busy, format!("an earlier run of {} goes on", request.task)));
            }
        };
        match carry_out(engine, &run, function)? {
            Ended::Well => run.record(),
            Ended::Left => Err(cut_off()),
            Ended::Badly(thrown) => {
                thrown.put_back();
                Err(cut_off())
            }
        }
    })
    .map(RunRecord)
}

/// One pass over the schedules of the handlers' tasks; the records of what ran.
///
/// # Errors
/// As the core's `tick`; what a signal handler throws while nothing runs.
pub fn run_due(engine: &Engine, handlers: &Handlers, max_time: Option<Duration>) -> PhpResult<Vec<RunRecord>> {
    let drain = Drain::begin();
    gate(|| {
        let records = pass(engine, handlers, max_time);
        drop(drain);
        records
    })
    .map(|records| records.into_iter().map(RunRecord).collect())
}

fn pass(engine: &Engine, handlers: &Handlers, max_time: Option<Duration>) -> rowclaim::Result<Vec<rowclaim::RunRecord>> {
    let mut tick = engine.tick(handlers.names(), max_time)?;
    let mut records = Vec::new();
    while !Drain::stop().load(Relaxed)
        && let Some(run) = tick.next_run()?
    {
        let run = Rc::new(run);
        let Some(function) = handlers.get(run.task()) else { continue };
        if let Ended::Left = carry_out(engine, &run, function)? {
            return Err(cut_off());
        }
        // What the exception held is gone with it; a destructor may have thrown.
        if is_leaving() {
            return Err(cut_off());
        }
        records.push(run.record()?);
    }
    Ok(records)
}
