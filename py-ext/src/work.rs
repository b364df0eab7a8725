//! `work`: the core's loop with Python handlers.
//!
//! The loop runs without the interpreter lock; each handler call attaches. An exception fails its job, what is no
//! `Exception` (KeyboardInterrupt, SystemExit) releases the job, ends the loop and is raised when the loop has let go of
//! everything.

use crate::errors::{describe, invalid, log};
use crate::gate::enter;
use crate::job::Job;
use crate::values::text;
use crate::{results, signals};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use rowclaim::Outcome;
use rowclaim::blocking::{self, Handled, WorkRequest};
use std::collections::HashMap;
use std::time::Duration;

/// The handlers by queue, and the queues in the caller's order.
pub(crate) struct Handlers {
    pub queues: Vec<String>,
    by_queue: HashMap<String, Py<PyAny>>,
}

impl Handlers {
    pub(crate) fn new(given: &Bound<'_, PyMapping>) -> PyResult<Self> {
        let mut handlers = Handlers { queues: Vec::new(), by_queue: HashMap::new() };
        for pair in given.items()? {
            let (queue, handler): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            let queue = text("queue", &queue)?;
            if !handler.is_callable() {
                return Err(invalid(given.py(), format!("the handler of queue {queue} cannot be called")));
            }
            handlers.queues.push(queue.clone());
            handlers.by_queue.insert(queue, handler.unbind());
        }
        Ok(handlers)
    }

    /// Runs the handler of a job. What goes past the loop is left in `raised`.
    fn call(&self, job: &blocking::Job, raised: &mut Option<PyErr>) -> Handled {
        let called = Python::try_attach(|py| self.call_attached(py, job));
        match called {
            Some(Ok(handled)) => handled,
            Some(Err(error)) => {
                *raised = Some(error);
                Handled::Last(Outcome::Release { delay: Duration::ZERO })
            }
            // The interpreter is going away.
            None => Handled::Last(Outcome::Release { delay: Duration::ZERO }),
        }
    }

    fn call_attached(&self, py: Python<'_>, job: &blocking::Job) -> PyResult<Handled> {
        let Some(handler) = self.by_queue.get(&job.queue) else {
            return Err(invalid(py, format!("no handler for queue {}", job.queue)));
        };
        let error = match handler.call1(py, (Job::new(job.clone()),)) {
            Ok(_) => return Ok(Handled::As(Outcome::Complete)),
            Err(error) if error.is_instance_of::<PyException>(py) => error,
            Err(error) => return Err(error),
        };
        let what = if job.is_finished() { "was finished, then its handler raised" } else { "failed" };
        log(py, &format!("job {} {what}", job.id), &error)?;
        Ok(Handled::As(Outcome::Fail { error: describe(py, error.value(py))?, delay: None }))
    }
}

/// Works until the request's end, with SIGTERM and SIGINT as a wish to stop when this is the main thread.
pub(crate) fn work<'py>(
    py: Python<'py>,
    engine: &blocking::Engine,
    request: &WorkRequest,
    handlers: &Handlers,
) -> PyResult<Bound<'py, PyAny>> {
    let watch = signals::install(py, &request.stop)?;
    let mut raised = None;
    let answer = enter(py, || engine.work(request, |job| handlers.call(job, &mut raised)));
    if let Some(watch) = &watch {
        signals::restore(watch)?;
    }
    if let Some(raised) = raised {
        return Err(raised);
    }
    results::summary(py, &answer?, watch.and_then(|watch| watch.get().came()))
}
