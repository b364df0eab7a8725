//! One job of a claim, and what leaving its `with` block means.

use crate::claim::Claim;
use crate::errors::{describe, log, readable};
use crate::gate::{Held, enter};
use crate::guard::Write;
use crate::values::{datetime, given, span, uuid};
use pyo3::exceptions::{PyBaseException, PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use rowclaim::blocking::{self, Claimable};
use rowclaim::{Finish, OnLost, Outcome};
use std::time::Duration;

static DECODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// One job of a claim: ``with job:`` completes it when the block ends, and fails it when the block raises.
///
/// An ``Exception`` is written to the job and to the logger ``rowclaim`` and goes no further, so that a loop goes on.
/// ``KeyboardInterrupt``, ``SystemExit`` and the like give the job back without blame and go on; in a claim that holds they
/// leave it to be held, since it was begun. A job that the block has finished itself stays as it is. Jobs do not cross a
/// fork.
#[pyclass(module = "rowclaim", frozen)]
pub(crate) struct Job {
    inner: Held<blocking::Job>,
    payload: PyOnceLock<Py<PyAny>>,
}

impl Job {
    pub(crate) fn new(job: blocking::Job) -> Self {
        Job { inner: Held::new(job), payload: PyOnceLock::new() }
    }

    pub(crate) fn inner(&self, py: Python<'_>) -> PyResult<&blocking::Job> {
        self.inner.get(py)
    }

    fn finish(&self, py: Python<'_>, outcome: &Outcome) -> PyResult<bool> {
        let job = self.inner.get(py)?;
        Ok(enter(py, || job.finish(outcome))? == Finish::Accepted)
    }
}

/// What became of a row whose block has ended; `true` when the block's exception goes no further.
pub(crate) fn leave<R: Claimable + Send + Sync>(
    py: Python<'_>,
    job: &blocking::Job<R>,
    shown: impl Fn() -> PyResult<String>,
    raised: Option<&Bound<'_, PyBaseException>>,
) -> PyResult<bool> {
    let finish = |outcome: &Outcome| enter(py, || job.finish(outcome)).map(drop);
    let Some(raised) = raised else {
        if !job.is_finished() {
            finish(&Outcome::Complete)?;
        }
        return Ok(false);
    };
    let error = PyErr::from_value(raised.clone().into_any());
    if raised.is_instance_of::<PyException>() {
        if job.is_finished() {
            log(py, &format!("{} was finished, then its block raised", shown()?), &error)?;
        } else {
            finish(&crate::errors::failure(py, raised)?)?;
            log(py, &format!("{} failed", shown()?), &error)?;
        }
        return Ok(true);
    }
    // Where nothing is sent twice, what was begun is left to its lease, and then held.
    if !job.is_finished()
        && job.claim().on_lost() == OnLost::Retry
        && let Err(failure) = finish(&Outcome::Release { delay: Duration::ZERO })
    {
        log(py, &format!("{} could not be released; it comes back when its lease ends", shown()?), &failure)?;
    }
    Ok(false)
}

/// The text of a failure: an exception is described, text stays as it is.
pub(crate) fn failure(error: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = error.cast::<PyString>() {
        return readable(text);
    }
    if error.is_instance_of::<PyBaseException>() {
        return describe(error.py(), error);
    }
    Err(PyTypeError::new_err("error must be str or an exception"))
}

/// The outcome of a release; the core's own delay is none.
pub(crate) fn release(delay: Option<&Bound<'_, PyAny>>) -> PyResult<Outcome> {
    let delay = given(delay).map(|delay| span("delay", delay)).transpose()?;
    Ok(Outcome::Release { delay: delay.unwrap_or_default() })
}

/// The outcome of a failure.
pub(crate) fn fail(error: &Bound<'_, PyAny>, delay: Option<&Bound<'_, PyAny>>) -> PyResult<Outcome> {
    let delay = given(delay).map(|delay| span("delay", delay)).transpose()?;
    Ok(Outcome::Fail { error: failure(error)?, delay })
}

/// The outcome of a failure for good.
pub(crate) fn reject(error: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    Ok(Outcome::Reject { error: failure(error)? })
}

#[pymethods]
impl Job {
    /// The job's id.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.inner.get(py)?.id)
    }

    /// Its queue.
    #[getter]
    fn queue(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(&self.inner.get(py)?.queue)
    }

    /// Its business key as given, or None.
    #[getter]
    fn key(&self, py: Python<'_>) -> PyResult<Option<&str>> {
        Ok(self.inner.get(py)?.key.as_deref())
    }

    /// Smaller runs first.
    #[getter]
    fn priority(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.inner.get(py)?.priority)
    }

    /// The payload, decoded on first use and then kept. Raises DecodeError when Python cannot represent it.
    #[getter]
    fn payload(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let job = self.inner.get(py)?;
        let decoded = self.payload.get_or_try_init(py, || {
            PyResult::Ok(DECODE.import(py, "rowclaim._payload", "decode")?.call1((&job.payload,))?.unbind())
        })?;
        Ok(decoded.clone_ref(py))
    }

    /// The payload's JSON text, byte for byte as it was created.
    #[getter]
    fn raw_payload(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(&self.inner.get(py)?.payload)
    }

    /// Attempts so far, this one included.
    #[getter]
    fn attempts(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.inner.get(py)?.attempts)
    }

    /// Attempts before the job is dead.
    #[getter]
    fn max_attempts(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.inner.get(py)?.max_attempts)
    }

    /// How often a lease on it ran out.
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.inner.get(py)?.lost)
    }

    /// The fence of this claim of the job: every later claim has a larger one.
    #[getter]
    fn fence(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.inner.get(py)?.fence)
    }

    /// When it was created: an aware datetime in UTC, from the database's clock.
    #[getter]
    fn created_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.inner.get(py)?.created_at)
    }

    /// Its claim's token.
    #[getter]
    fn token<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.inner.get(py)?.token().map(|token| uuid(py, token.as_u128())).transpose()
    }

    /// The claim it belongs to.
    #[getter]
    fn claim(&self, py: Python<'_>) -> PyResult<Claim> {
        Ok(Claim::new(self.inner.get(py)?.claim()))
    }

    /// True when it was finished through this claim.
    #[getter]
    fn finished(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner.get(py)?.is_finished())
    }

    /// Done. Durable when it returns. False: lost, somebody else owns the job now; nothing was changed.
    ///
    /// Raises UnavailableError when it is unknown whether it was written; the same call may be repeated.
    fn complete(&self, py: Python<'_>) -> PyResult<bool> {
        self.finish(py, &Outcome::Complete)
    }

    /// Failed: the job comes back after ``delay`` or the back-off, or is dead when its attempts are used up.
    ///
    /// ``error`` is text or an exception, written as ``Class: message`` and cut to 4,000 characters. False and errors
    /// as for ``complete``.
    #[pyo3(signature = (error, delay=None))]
    fn fail(&self, py: Python<'_>, error: &Bound<'_, PyAny>, delay: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.finish(py, &fail(error, delay)?)
    }

    /// Failed for good: the job is dead, whatever attempts are left. For what no repetition mends; ``retry`` brings it back.
    ///
    /// ``error``, False and errors as for ``fail``.
    fn reject(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.finish(py, &reject(error)?)
    }

    /// Given back without blame, not to be handed out before ``delay`` has gone by. The attempt is not counted.
    ///
    /// False and errors as for ``complete``.
    #[pyo3(signature = (delay=None))]
    fn release(&self, py: Python<'_>, delay: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.finish(py, &release(delay)?)
    }

    /// Makes a write on any table with the fence of this claim of the job. False when a later owner has written: nothing
    /// was changed then.
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
        let job = self.inner.get(py)?;
        let write = Write { table, key, set, fence_column }.read()?;
        enter(py, || job.guard(&write))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, raised, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        raised: Option<&Bound<'_, PyBaseException>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let _ = (kind, traceback);
        let job = self.inner.get(py)?;
        leave(py, job, || Ok(format!("job {}", job.id)), raised)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let job = self.inner.get(py)?;
        Ok(format!("<rowclaim.Job {} of queue {:?}, attempt {}>", job.id, job.queue, job.attempts))
    }
}
