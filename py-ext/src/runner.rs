//! Runners: the core's door for HTTP requests and crontabs, the work loop behind it.

use crate::engine::{self, Engine};
use crate::errors::{invalid, raise};
use crate::gate::{Held, enter};
use crate::table::{self, Table};
use crate::values::{given, text};
use crate::work::{Handlers, Options, Worked, work, work_rows};
use crate::{results, signals};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyMapping;
use rowclaim::RowClaimRequest;
use rowclaim::blocking::{self, Admission, RunnerRequest, Waiting, WorkRequest};
use std::sync::Arc;

static RESPOND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// Work behind an HTTP request or a line of a crontab, made by ``Engine.runner`` and ``Table.runner``: who may start it,
/// one at a time of a name, and what is answered. Usable from any thread, and in a forked child.
///
/// In the main thread SIGTERM and SIGINT end the work after the job in hand, as in ``Engine.work``; when the runner has let
/// go of everything they do what they did before.
#[pyclass(module = "rowclaim", frozen)]
pub(crate) struct Runner {
    engine: blocking::Engine,
    door: RunnerRequest,
    jobs: Jobs,
}

enum Jobs {
    Queues { handlers: Handlers, request: WorkRequest },
    Table { table: blocking::Table, handler: Py<PyAny>, request: WorkRequest<RowClaimRequest> },
}

fn door(py: Python<'_>, token: Argument<'_, '_>, name: Argument<'_, '_>) -> PyResult<RunnerRequest> {
    let mut door = RunnerRequest::new(given(token).map(|token| text("token", token)).transpose()?);
    door.name = given(name).map(|name| text("name", name)).transpose()?;
    door.check().map_err(|error| raise(py, &error))?;
    Ok(door)
}

/// The request of one call: whoever stops it stops no other.
fn once<C: Clone>(request: &WorkRequest<C>) -> WorkRequest<C> {
    WorkRequest { stop: Arc::default(), ..request.clone() }
}

impl Runner {
    fn work(&self, py: Python<'_>) -> PyResult<Worked> {
        match &self.jobs {
            Jobs::Queues { handlers, request } => work(py, &self.engine, &once(request), handlers),
            Jobs::Table { table, handler, request } => work_rows(py, table, &once(request), handler.bind(py)),
        }
    }

    fn answer<'py>(&self, py: Python<'py>, method: &str, token: Option<&str>) -> Object<'py> {
        let admitted = match enter(py, || Ok(self.engine.admit(&self.door, method, token)))? {
            Admission::Refused(answer) => return results::runner_answer(py, &answer),
            Admission::Work(admitted) => Held::new(admitted),
        };
        let worked = self.work(py)?;
        let admitted = admitted.take(py)?;
        let waiting = match &self.jobs {
            Jobs::Queues { handlers, .. } => Waiting::Queues(&handlers.names),
            Jobs::Table { table, request, .. } => Waiting::Table(table, &request.claim.filters),
        };
        let answer = enter(py, || Ok(admitted.answer(&worked.summary, waiting)))?;
        if let Some(signal) = worked.came {
            // It was a wish to the process, not to this request.
            signals::pass_on(py, signal)?;
        }
        results::runner_answer(py, &answer)
    }
}

#[pymethods]
impl Runner {
    /// Works when the request may: POST (otherwise 405) with the token, raw or as ``Bearer …`` (otherwise 403), while no
    /// other runner of its name works (otherwise 409, at once). First, jobs of workers that died are taken back.
    ///
    /// Gives a RunnerAnswer: 200 with what was done and whether more waits, 503 without the database, 500 for other faults.
    /// A handler's exception only fails its job; KeyboardInterrupt and SystemExit end the work and are raised.
    ///
    /// Raises InvalidError for a runner without a token.
    #[pyo3(signature = (method, token=None))]
    fn handle<'py>(&self, py: Python<'py>, method: &Bound<'py, PyAny>, token: Argument<'_, 'py>) -> Object<'py> {
        let method = text("method", method)?;
        let token = given(token).map(|token| text("token", token)).transpose()?;
        if self.door.token.is_none() {
            let message = "the runner has no token, so anybody could start it; give it one, or call run()";
            return Err(invalid(py, message));
        }
        self.answer(py, &method, token.as_deref())
    }

    /// Works without asking for a token: for crontabs. Otherwise as ``handle``.
    fn run<'py>(&self, py: Python<'py>) -> Object<'py> {
        self.answer(py, "POST", self.door.token.as_deref())
    }

    /// The runner as a WSGI application: the method and the header ``Authorization`` go to ``handle``, and its answer comes
    /// back as ``application/json``.
    fn wsgi<'py>(slf: &Bound<'py, Self>, environ: &Bound<'py, PyAny>, start_response: &Bound<'py, PyAny>) -> Object<'py> {
        RESPOND.import(slf.py(), "rowclaim._wsgi", "respond")?.call1((slf, environ, start_response))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.jobs {
            Jobs::Queues { handlers, .. } => handlers.functions().try_for_each(|handler| visit.call(handler)),
            Jobs::Table { handler, .. } => visit.call(handler),
        }
    }

    fn __repr__(&self) -> String {
        let name = self.door.name.as_ref().map_or_else(String::new, |name| format!(" {name:?}"));
        match &self.jobs {
            Jobs::Queues { handlers, .. } => format!("<rowclaim.Runner{name} of {}>", handlers.names.join(", ")),
            Jobs::Table { table, .. } => format!("<rowclaim.Runner{name} of {}>", table.name()),
        }
    }
}

#[pymethods]
impl Engine {
    /// A door for HTTP requests and crontabs, behind which ``handlers`` work off what waits and stop when nothing does.
    ///
    /// ``token``: what a request must bring, at least 16 bytes. ``name``: one runner of this name works at a time; any
    /// number side by side when None. The other arguments are those of ``work``; give ``max_seconds``, less than the server
    /// allows a request.
    ///
    /// Raises InvalidError for a token that can be guessed.
    #[pyo3(signature = (handlers, *, token=None, name=None, batch=None, max_seconds=None, max_jobs=None, lease=None, max_run=None, finish=None))]
    #[allow(clippy::too_many_arguments)]
    fn runner<'py>(
        &self,
        py: Python<'py>,
        handlers: &Bound<'py, PyMapping>,
        token: Argument<'_, 'py>,
        name: Argument<'_, 'py>,
        batch: Argument<'_, 'py>,
        max_seconds: Argument<'_, 'py>,
        max_jobs: Argument<'_, 'py>,
        lease: Argument<'_, 'py>,
        max_run: Argument<'_, 'py>,
        finish: Option<&str>,
    ) -> PyResult<Runner> {
        let engine = self.open(py)?.clone();
        let door = door(py, token, name)?;
        let handlers = Handlers::new(handlers, "queue")?;
        let options = Options { max_seconds, max_jobs, until_empty: true, max_idle: None, finish };
        let request = options.request(py, engine::claim_request(handlers.names.clone(), batch, lease, max_run)?)?;
        Ok(Runner { engine, door, jobs: Jobs::Queues { handlers, request } })
    }
}

#[pymethods]
impl Table {
    /// A door for HTTP requests and crontabs, behind which ``handler(row)`` works off what waits and stops when nothing
    /// does.
    ///
    /// ``token`` and ``name`` as for ``Engine.runner``, the other arguments as for ``work``.
    #[pyo3(signature = (handler, *, token=None, name=None, r#where=None, order=None, batch=None, max_seconds=None, max_jobs=None, lease=None, max_run=None, finish=None))]
    #[allow(clippy::too_many_arguments)]
    fn runner<'py>(
        &self,
        py: Python<'py>,
        handler: &Bound<'py, PyAny>,
        token: Argument<'_, 'py>,
        name: Argument<'_, 'py>,
        r#where: Argument<'_, 'py>,
        order: Argument<'_, 'py>,
        batch: Argument<'_, 'py>,
        max_seconds: Argument<'_, 'py>,
        max_jobs: Argument<'_, 'py>,
        lease: Argument<'_, 'py>,
        max_run: Argument<'_, 'py>,
        finish: Option<&str>,
    ) -> PyResult<Runner> {
        if !handler.is_callable() {
            return Err(invalid(py, "the handler cannot be called"));
        }
        let door = door(py, token, name)?;
        let options = Options { max_seconds, max_jobs, until_empty: true, max_idle: None, finish };
        let request = options.request(py, table::claim_request(batch, r#where, order, lease, max_run)?)?;
        let table = self.inner().clone();
        let jobs = Jobs::Table { table: table.clone(), handler: handler.clone().unbind(), request };
        Ok(Runner { engine: table.engine().clone(), door, jobs })
    }
}
