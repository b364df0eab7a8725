//! Schedules: tasks by the clock of the database, and a pass over those that are due.

use crate::engine::Engine;
use crate::errors::{log, raise};
use crate::gate::{Held, enter};
use crate::results;
use crate::runs::carry_out;
use crate::values::{given, span, text, whole};
use crate::work::Handlers;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMapping};
use rowclaim::{Missed, ScheduleFilter, ScheduleRequest};

type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
type Object<'py> = PyResult<Bound<'py, PyAny>>;

#[pymethods]
impl Engine {
    /// Records a schedule, or changes it: call it at every start. A changed expression or zone counts from now on.
    ///
    /// ``task``: 1 to 187 bytes. ``cron``: five fields, or six with seconds first. ``zone``: ``UTC``, ``+08:00`` or
    /// ``Asia/Shanghai``. ``missed``, what is done about slots that nobody ran in time: ``"skip"`` (when None) records them
    /// as skipped, ``"once"`` runs the newest, ``"all"`` runs all, oldest first, ``cap`` (1 to 1,000; 10 when None) in one
    /// pass; slots older than ``catch_up`` are never made up for. ``grace``: a slot this late is on time (1 second to 1 day;
    /// 90 seconds when None). ``lease`` and ``max_run`` as for ``run_slot``.
    ///
    /// Raises InvalidError, naming what cannot be.
    #[pyo3(signature = (task, cron, zone, *, missed=None, cap=None, catch_up=None, grace=None, lease=None, max_run=None))]
    #[allow(clippy::too_many_arguments)]
    fn schedule<'py>(
        &self,
        py: Python<'py>,
        task: &Bound<'py, PyAny>,
        cron: &Bound<'py, PyAny>,
        zone: &Bound<'py, PyAny>,
        missed: Argument<'_, 'py>,
        cap: Argument<'_, 'py>,
        catch_up: Argument<'_, 'py>,
        grace: Argument<'_, 'py>,
        lease: Argument<'_, 'py>,
        max_run: Argument<'_, 'py>,
    ) -> Object<'py> {
        let engine = self.open(py)?;
        let mut request = ScheduleRequest::new(text("task", task)?, text("cron", cron)?, text("zone", zone)?);
        if let Some(missed) = given(missed) {
            request.missed = Missed::parse(&text("missed", missed)?).map_err(|error| raise(py, &error))?;
        }
        if let Some(cap) = given(cap) {
            request.cap = whole("cap", cap)?;
        }
        request.catch_up_for = given(catch_up).map(|catch_up| span("catch_up", catch_up)).transpose()?;
        if let Some(grace) = given(grace) {
            request.grace = span("grace", grace)?;
        }
        if let Some(lease) = given(lease) {
            request.lease = span("lease", lease)?;
        }
        request.max_run = given(max_run).map(|max_run| span("max_run", max_run)).transpose()?;
        results::schedule(py, &enter(py, || engine.schedule(&request))?)
    }

    /// Schedules in the order of their names, each with its next slot and its last run.
    #[pyo3(signature = (*, limit=None))]
    fn schedules<'py>(&self, py: Python<'py>, limit: Argument<'_, 'py>) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let mut filter = ScheduleFilter::default();
        if let Some(limit) = given(limit) {
            filter.limit = whole("limit", limit)?;
        }
        let schedules = enter(py, || engine.schedules(&filter))?;
        results::list(py, &schedules, results::schedule)
    }

    /// Deletes a schedule; its history stays. False when there was none.
    fn unschedule(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<bool> {
        let engine = self.open(py)?;
        let task = text("task", task)?;
        enter(py, || engine.unschedule(&task))
    }

    /// Stops a schedule: its slots are recorded as skipped until it is resumed. False when it is paused already.
    ///
    /// Raises NotFoundError.
    fn pause_schedule(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<bool> {
        let engine = self.open(py)?;
        let task = text("task", task)?;
        enter(py, || engine.pause_schedule(&task))
    }

    /// Starts a paused schedule again; slots that came meanwhile are recorded as skipped. False when it was not paused.
    ///
    /// Raises NotFoundError.
    fn resume_schedule(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<bool> {
        let engine = self.open(py)?;
        let task = text("task", task)?;
        enter(py, || engine.resume_schedule(&task))
    }

    /// Asks for a run at once: the next ``run_due`` of the task makes it, marked as manual, also when it is paused.
    ///
    /// Raises NotFoundError.
    fn ask_run(&self, py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let engine = self.open(py)?;
        let task = text("task", task)?;
        enter(py, || engine.ask_run(&task))
    }

    /// One pass over schedules: runs ``handlers[task](run)`` for every slot that is due, in the order of ``handlers``. Call
    /// it every minute.
    ///
    /// Each slot is claimed right before it runs, so any number of processes may do this. No run is begun after
    /// ``max_seconds``. Gives the records of what ran in this pass. An exception of a handler fails its run, goes to the
    /// logger ``rowclaim``, and the pass goes on; KeyboardInterrupt and SystemExit fail the run, end the pass and are
    /// raised.
    ///
    /// Raises NotFoundError for a task without a schedule, when its turn comes, and UnavailableError.
    #[pyo3(signature = (handlers, *, max_seconds=None))]
    fn run_due<'py>(
        &self,
        py: Python<'py>,
        handlers: &Bound<'py, PyMapping>,
        max_seconds: Argument<'_, 'py>,
    ) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let handlers = Handlers::new(handlers, "task")?;
        let max_time = given(max_seconds).map(|max_seconds| span("max_seconds", max_seconds)).transpose()?;
        let mut held = Held::new(enter(py, || engine.tick(&handlers.names, max_time))?);
        let records = PyList::empty(py);
        let tick = held.get_mut(py)?;
        while let Some(run) = enter(py, || tick.next_run())? {
            let handler = handlers.get(py, run.task())?;
            let (record, raised) = carry_out(py, run, handler.bind(py))?;
            records.append(results::run(py, &record)?)?;
            match raised {
                None => {}
                Some(error) if error.is_instance_of::<PyException>(py) => {
                    log(py, &format!("run {} of {} failed", record.id, record.task), &error)?;
                }
                Some(error) => return Err(error),
            }
        }
        Ok(records)
    }
}
