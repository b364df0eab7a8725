//! A claim in Python's hands: iterating hands its jobs out, leaving the `with` block gives back what was not started.

use crate::errors::log;
use crate::gate::{Held, enter};
use crate::job::{Job, fail, reject, release};
use crate::values::{ids, uuid};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rowclaim::blocking::{self, Claimable};
use rowclaim::{Finish, Outcome};

/// A batch of jobs with one token and one lease.
///
/// Iterating hands the jobs out, each only while the lease is surely valid. ``with claim:`` gives back what was not
/// started when the block ends, by an exception too. The lease is renewed in the background until every job is finished
/// or the claim and its jobs are gone. Claims do not cross a fork.
#[pyclass(module = "rowclaim", frozen)]
pub(crate) struct Claim {
    inner: Held<blocking::Claim>,
}

impl Claim {
    pub(crate) fn new(claim: blocking::Claim) -> Self {
        Claim { inner: Held::new(claim) }
    }

    /// The ids asked for, or of all jobs that are not finished.
    fn ids(&self, py: Python<'_>, given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<i64>> {
        if let Some(given) = given.filter(|given| !given.is_none()) {
            return ids(given);
        }
        let claim = self.inner.get(py)?;
        let open = (0..claim.len()).filter_map(|index| claim.job(index)).filter(|job| !job.is_finished());
        Ok(open.map(|job| job.id).collect())
    }

    fn finish<'py>(&self, py: Python<'py>, ids: &[i64], outcome: &Outcome) -> PyResult<Bound<'py, PyDict>> {
        let claim = self.inner.get(py)?;
        let answers = enter(py, || claim.finish(ids, outcome))?;
        let by_id = PyDict::new(py);
        for (id, answer) in ids.iter().zip(answers) {
            by_id.set_item(id, answer == Finish::Accepted)?;
        }
        Ok(by_id)
    }
}

/// Gives back what was not started in a claim whose block has ended.
pub(crate) fn leave<R: Claimable + Send + Sync>(
    py: Python<'_>,
    claim: &blocking::Claim<R>,
    raised: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    match enter(py, || claim.release_unstarted()) {
        // The block's own exception matters more.
        Err(failure) if raised.is_some() => {
            log(py, "a claim could not be released; its rows come back when its lease ends", &failure)
        }
        other => other.map(drop),
    }
}

#[pymethods]
impl Claim {
    /// Its token, a UUID; None for an empty claim.
    #[getter]
    fn token<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.inner.get(py)?.token().map(|token| uuid(py, token.as_u128())).transpose()
    }

    /// The id of its row in the claims table; None for an empty claim.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        Ok(self.inner.get(py)?.id())
    }

    /// True once a renewal was refused: somebody else may own the jobs now.
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner.get(py)?.is_lost())
    }

    /// For how many seconds it is surely valid from now on; 0.0 when lost or empty.
    #[getter]
    fn valid_for(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.inner.get(py)?.valid_for().as_secs_f64())
    }

    /// Renews the lease now. False when it is lost.
    ///
    /// Raises UnavailableError; the claim stays valid for ``valid_for``.
    fn renew(&self, py: Python<'_>) -> PyResult<bool> {
        let claim = self.inner.get(py)?;
        enter(py, || claim.renew())
    }

    /// Completes jobs by id, or all that are not finished yet, in one step; durable when it returns.
    ///
    /// Gives for each id True (accepted) or False (lost). Raises InvalidError for an id that is not in the claim, before
    /// anything is written, and UnavailableError.
    #[pyo3(signature = (ids=None))]
    fn complete<'py>(&self, py: Python<'py>, ids: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
        self.finish(py, &self.ids(py, ids)?, &Outcome::Complete)
    }

    /// Fails jobs by id: each comes back after ``delay`` or its back-off, or is dead. Otherwise as ``complete``.
    #[pyo3(signature = (ids, error, delay=None))]
    fn fail<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
        error: &Bound<'py, PyAny>,
        delay: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.finish(py, &crate::values::ids(ids)?, &fail(error, delay)?)
    }

    /// Fails jobs by id for good, whatever attempts are left. Otherwise as ``complete``.
    fn reject<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>, error: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        self.finish(py, &crate::values::ids(ids)?, &reject(error)?)
    }

    /// Gives jobs back by id, or all that are not finished yet, without blame. Otherwise as ``complete``.
    #[pyo3(signature = (ids=None, delay=None))]
    fn release<'py>(
        &self,
        py: Python<'py>,
        ids: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.finish(py, &self.ids(py, ids)?, &release(delay)?)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.inner.get(py)?.len())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Job>> {
        let claim = self.inner.get(py)?;
        Ok(enter(py, || claim.next_job())?.map(Job::new))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, raised, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        raised: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (kind, traceback);
        leave(py, self.inner.get(py)?, raised)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let claim = self.inner.get(py)?;
        let id = claim.id().map_or_else(|| "empty".to_owned(), |id| id.to_string());
        Ok(format!("<rowclaim.Claim {id}, {} jobs>", claim.len()))
    }
}
