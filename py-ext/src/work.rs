//! `work`: the core's loop with Python handlers.
//!
//! The loop runs without the interpreter lock; each handler call attaches. An exception fails its job, what is no
//! `Exception` (KeyboardInterrupt, SystemExit) breaks the job off, ends the loop and is raised when the loop has let go of
//! everything. Runners work by the same loop.

use crate::errors::{failure, invalid, log, raise};
use crate::gate::enter;
use crate::job::Job;
use crate::row::{Row, shown};
use crate::values::{given, span, text, whole};
use crate::{results, signals};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use rowclaim::blocking::{self, Claimable, Handled, Summary, WorkRequest};
use rowclaim::{Outcome, RowClaimRequest};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// The handlers by queue or task, and their names in the caller's order.
pub(crate) struct Handlers {
    pub names: Vec<String>,
    by_name: HashMap<String, Py<PyAny>>,
}

impl Handlers {
    /// From a mapping whose keys are each a `what`.
    pub(crate) fn new(given: &Bound<'_, PyMapping>, what: &str) -> PyResult<Self> {
        let mut handlers = Handlers { names: Vec::new(), by_name: HashMap::new() };
        for pair in given.items()? {
            let (name, handler): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            let name = text(what, &name)?;
            if !handler.is_callable() {
                return Err(invalid(given.py(), format!("the handler of {what} {name} cannot be called")));
            }
            handlers.names.push(name.clone());
            handlers.by_name.insert(name, handler.unbind());
        }
        Ok(handlers)
    }

    pub(crate) fn get(&self, py: Python<'_>, name: &str) -> PyResult<&Py<PyAny>> {
        self.by_name.get(name).ok_or_else(|| invalid(py, format!("no handler for {name}")))
    }

    pub(crate) fn functions(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.by_name.values()
    }

    fn call(&self, py: Python<'_>, job: &blocking::Job) -> PyResult<Handled> {
        let returned = self.get(py, &job.queue)?.call1(py, (Job::new(job.clone()),));
        outcome(py, returned, job, || Ok(format!("job {}", job.id)))
    }
}

/// The options of a `work` call, beside what it claims.
pub(crate) struct Options<'a, 'py> {
    pub max_seconds: Argument<'a, 'py>,
    pub max_jobs: Argument<'a, 'py>,
    pub until_empty: bool,
    pub max_idle: Argument<'a, 'py>,
    pub finish: Option<&'a str>,
}

impl Options<'_, '_> {
    pub(crate) fn request<C>(&self, py: Python<'_>, claim: C) -> PyResult<WorkRequest<C>> {
        let mut request = WorkRequest::new(claim);
        request.until_empty = self.until_empty;
        if let Some(max_seconds) = given(self.max_seconds) {
            request.max_time = Some(span("max_seconds", max_seconds)?);
        }
        if let Some(max_jobs) = given(self.max_jobs) {
            request.max_jobs = Some(whole("max_jobs", max_jobs)?);
        }
        if let Some(max_idle) = given(self.max_idle) {
            request.max_idle = span("max_idle", max_idle)?;
        }
        match self.finish {
            None => {}
            Some("each") => request.finish_each = true,
            Some("group") => request.finish_each = false,
            Some(other) => return Err(invalid(py, format!("finish must be each or group, not {other}"))),
        }
        Ok(request)
    }
}

/// What a handler's return, or its exception, means for its job. What goes past the loop is the error.
fn outcome<R: Claimable>(
    py: Python<'_>,
    returned: PyResult<Py<PyAny>>,
    job: &blocking::Job<R>,
    shown: impl Fn() -> PyResult<String>,
) -> PyResult<Handled> {
    let error = match returned {
        Ok(_) => return Ok(Handled::As(Outcome::Complete)),
        Err(error) if error.is_instance_of::<PyException>(py) => error,
        Err(error) => return Err(error),
    };
    let what = if job.is_finished() { "was finished, then its handler raised" } else { "failed" };
    log(py, &format!("{} {what}", shown()?), &error)?;
    Ok(Handled::As(failure(py, error.value(py))?))
}

/// Attaches for one handler. What goes past the loop is left in `raised`.
fn attached(raised: &mut Option<PyErr>, call: impl FnOnce(Python<'_>) -> PyResult<Handled>) -> Handled {
    match Python::try_attach(call) {
        Some(Ok(handled)) => handled,
        Some(Err(error)) => {
            *raised = Some(error);
            Handled::BrokenOff
        }
        // The interpreter is going away.
        None => Handled::BrokenOff,
    }
}

/// What a loop came to that no handler and no signal handler has ended by an exception.
pub(crate) struct Worked {
    pub summary: rowclaim::Result<Summary>,
    /// The signal that asked it to stop.
    pub came: Option<i32>,
}

impl Worked {
    pub(crate) fn answer(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        results::summary(py, &self.summary.map_err(|error| raise(py, &error))?, self.came)
    }
}

/// Works until the request's end, with SIGTERM and SIGINT as a wish to stop when this is the main thread.
fn run(
    py: Python<'_>,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(&mut Option<PyErr>) -> rowclaim::Result<Summary> + Send,
) -> PyResult<Worked> {
    let watch = signals::install(py, stop)?;
    let mut raised = None;
    let summary = enter(py, || Ok(work(&mut raised)));
    if let Some(watch) = &watch {
        signals::restore(watch)?;
    }
    if let Some(raised) = raised {
        return Err(raised);
    }
    Ok(Worked { summary: summary?, came: watch.and_then(|watch| watch.get().came()) })
}

/// The jobs of an engine's queues.
pub(crate) fn work(py: Python<'_>, engine: &blocking::Engine, request: &WorkRequest, handlers: &Handlers) -> PyResult<Worked> {
    run(py, &request.stop, |raised| engine.work(request, |job| attached(raised, |py| handlers.call(py, job))))
}

/// The rows of a mapped table.
pub(crate) fn work_rows<'py>(
    py: Python<'py>,
    table: &blocking::Table,
    request: &WorkRequest<RowClaimRequest>,
    handler: &Bound<'py, PyAny>,
) -> PyResult<Worked> {
    if !handler.is_callable() {
        return Err(invalid(py, "the handler cannot be called"));
    }
    let (handler, name): (_, Arc<str>) = (handler.clone().unbind(), table.name().into());
    let call = |py: Python<'_>, row: &blocking::Row| {
        let returned = Row::new(py, row.clone(), &name).and_then(|row| handler.call1(py, (row,)));
        outcome(py, returned, row, || shown(py, row, &name))
    };
    run(py, &request.stop, |raised| table.work(request, |row| attached(raised, |py| call(py, row))))
}
