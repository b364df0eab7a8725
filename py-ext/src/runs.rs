//! Runs: a planned time of a task in the hands of the function that runs it, and the history.

use crate::engine::Engine;
use crate::errors::{describe, invalid, log, raise};
use crate::gate::{Held, enter};
use crate::guard::Write;
use crate::results;
use crate::values::{datetime, given, slot, span, text, uuid, whole};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rowclaim::blocking::{self, RunStart};
use rowclaim::{Error, ErrorKind, RunFilter, RunRecord, RunRequest, RunState};

type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// One run of a task, in the hands of the function that runs it: made by ``Engine.run_slot`` and ``Engine.run_due``.
///
/// It is renewed in the background until the function has ended. Runs do not cross a fork: in the child they are left
/// alone.
#[pyclass(module = "rowclaim", frozen)]
pub(crate) struct Run {
    inner: Held<blocking::Run>,
}

#[pymethods]
impl Run {
    /// Its number in the history.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.inner.get(py)?.id())
    }

    /// The task.
    #[getter]
    fn task(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(self.inner.get(py)?.task())
    }

    /// The planned time, an aware datetime in UTC; of a run that a person asked for, when that was.
    #[getter]
    fn slot<'py>(&self, py: Python<'py>) -> Object<'py> {
        datetime(py, self.inner.get(py)?.slot())
    }

    /// A number above that of every earlier run of the task, for writes that a late run must not make.
    #[getter]
    fn fence(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.inner.get(py)?.fence())
    }

    /// Its token, a UUID.
    #[getter]
    fn token<'py>(&self, py: Python<'py>) -> Object<'py> {
        uuid(py, self.inner.get(py)?.token().as_u128())
    }

    /// True when a person asked for it.
    #[getter]
    fn manual(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner.get(py)?.is_manual())
    }

    /// True once a renewal was refused, or after it ended: the task may run elsewhere now.
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner.get(py)?.is_lost())
    }

    /// For how many seconds it surely is the only run of its task from now on; 0.0 when lost.
    #[getter]
    fn valid_for(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.inner.get(py)?.valid_for().as_secs_f64())
    }

    /// Makes a write on any table with this run's fence. False when a later run has written: nothing was changed then.
    ///
    /// Otherwise as ``Engine.guard``.
    fn guard(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        set: &Bound<'_, PyAny>,
        fence_column: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let run = self.inner.get(py)?;
        let write = Write { table, key, set, fence_column }.read()?;
        enter(py, || run.guard(&write))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let run = self.inner.get(py)?;
        Ok(format!("<rowclaim.Run {} of {:?}, slot {}>", run.id(), run.task(), datetime(py, run.slot())?))
    }
}

/// Calls the function of a run and writes down how it went; its record then, and what the function raised.
///
/// # Errors
/// When it cannot be written down; what the function raised matters more.
pub(crate) fn carry_out<'py>(
    py: Python<'py>,
    run: blocking::Run,
    function: &Bound<'py, PyAny>,
) -> PyResult<(RunRecord, Option<PyErr>)> {
    let object = Bound::new(py, Run { inner: Held::new(run) })?;
    let returned = function.call1((&object,));
    let run = object.get().inner.get(py)?;
    let error = match returned {
        Ok(_) => {
            let record = enter(py, || run.succeed().and_then(|_| run.record()))?;
            return Ok((record, None));
        }
        Err(error) => error,
    };
    let (text, error) = match describe(py, error.value(py)) {
        Ok(text) => (text, error),
        Err(failure) => (error.get_type(py).name()?.to_string(), failure),
    };
    match enter(py, || run.fail(&text).and_then(|_| run.record())) {
        Ok(record) => Ok((record, Some(error))),
        Err(failure) if failure.is_instance_of::<PyException>(py) => {
            log(py, &format!("the failure of run {} of {} could not be written down", run.id(), run.task()), &failure)?;
            Err(error)
        }
        Err(failure) => Err(failure),
    }
}

#[pymethods]
impl Engine {
    /// Runs ``run(run)`` for a planned time of a task, unless that slot has had its run or the task is running.
    ///
    /// ``task``: 1 to 187 bytes. ``slot``: an aware datetime, text as in RFC 3339 with its zone, or seconds since 1970; the
    /// same task and slot run once, however many processes ask. ``lease``: a run that is silent for longer is taken for
    /// lost (from 1 second; 60 when None); renewed in the background, not past ``max_run`` from the start. ``manual``: a
    /// person wants it, also when the slot has had its run; it is marked as such.
    ///
    /// Gives the slot's record: the new one, ``succeeded`` or ``lost``, when it ran; the earlier one when it had run or is
    /// running; ``skipped`` with the reason ``busy`` when another slot of the task is running. An exception of ``run`` fails
    /// the run and is raised when that is recorded.
    ///
    /// Raises InvalidError for arguments, a datetime without a zone among them, and UnavailableError, also when the outcome
    /// could not be recorded: the run counts as lost then.
    #[pyo3(signature = (task, slot, run, *, lease=None, max_run=None, manual=false))]
    #[allow(clippy::too_many_arguments)]
    fn run_slot<'py>(
        &self,
        py: Python<'py>,
        task: &Bound<'py, PyAny>,
        slot: &Bound<'py, PyAny>,
        run: &Bound<'py, PyAny>,
        lease: Argument<'_, 'py>,
        max_run: Argument<'_, 'py>,
        manual: bool,
    ) -> Object<'py> {
        let engine = self.open(py)?;
        let mut request = RunRequest::new(text("task", task)?, self::slot("slot", slot)?);
        if let Some(lease) = given(lease) {
            request.lease = span("lease", lease)?;
        }
        request.max_run = given(max_run).map(|max_run| span("max_run", max_run)).transpose()?;
        request.is_manual = manual;
        if !run.is_callable() {
            return Err(invalid(py, "run cannot be called"));
        }
        match enter(py, || engine.run_slot(&request))? {
            RunStart::Run(ours) => match carry_out(py, ours, run)? {
                (record, None) => results::run(py, &record),
                (_, Some(error)) => Err(error),
            },
            RunStart::Already(record) | RunStart::Busy(Some(record)) => results::run(py, &record),
            RunStart::Busy(None) => Err(raise(py, &Error::new(ErrorKind::Busy, "the task is running"))),
        }
    }

    /// The history of runs and skipped slots, newest first.
    ///
    /// ``state``: started, succeeded, failed, lost or skipped. ``before``: only smaller ids, for the next page. ``limit``:
    /// 100 when None.
    #[pyo3(signature = (*, task=None, state=None, before=None, limit=None))]
    fn runs<'py>(
        &self,
        py: Python<'py>,
        task: Argument<'_, 'py>,
        state: Argument<'_, 'py>,
        before: Argument<'_, 'py>,
        limit: Argument<'_, 'py>,
    ) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let mut filter = RunFilter::default();
        if let Some(task) = given(task) {
            filter.task = Some(text("task", task)?);
        }
        if let Some(state) = given(state) {
            filter.state = Some(RunState::parse(&text("state", state)?).map_err(|error| raise(py, &error))?);
        }
        if let Some(before) = given(before) {
            filter.before = Some(whole("before", before)?);
        }
        if let Some(limit) = given(limit) {
            filter.limit = whole("limit", limit)?;
        }
        let runs = enter(py, || engine.runs(&filter))?;
        results::list(py, &runs, results::run)
    }
}
