//! A claim on a mapped table in Python's hands: as a claim on jobs, with rows that are finished by key.

use crate::claim::leave;
use crate::column_values::{keys, object};
use crate::gate::{Held, enter};
use crate::job::{fail, reject, release};
use crate::row::{Row, complete};
use crate::values::{given, uuid};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rowclaim::blocking;
use rowclaim::{ClaimedRow, Finish, Outcome, Value};
use std::sync::Arc;

/// A batch of rows of a mapped table with one token and one lease.
///
/// Iterating hands the rows out, each only while the lease is surely valid. ``with claim:`` gives back what was not
/// started when the block ends, by an exception too. The lease is renewed in the background until every row is finished
/// or the claim and its rows are gone. Claims do not cross a fork.
#[pyclass(module = "rowclaim", frozen)]
pub(crate) struct RowClaim {
    inner: Held<blocking::Claim<ClaimedRow>>,
    table: Arc<str>,
}

impl RowClaim {
    pub(crate) fn new(claim: blocking::Claim<ClaimedRow>, table: &Arc<str>) -> Self {
        RowClaim { inner: Held::new(claim), table: Arc::clone(table) }
    }

    /// The keys asked for, or of all rows that are not finished.
    fn keys(&self, py: Python<'_>, asked: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Value>> {
        if let Some(asked) = given(asked) {
            return keys(asked);
        }
        let claim = self.inner.get(py)?;
        let open = (0..claim.len()).filter_map(|index| claim.job(index)).filter(|row| !row.is_finished());
        Ok(open.map(|row| row.key.clone()).collect())
    }

    fn finish<'py>(&self, py: Python<'py>, keys: &[Value], outcome: &Outcome) -> PyResult<Bound<'py, PyDict>> {
        let claim = self.inner.get(py)?;
        let answers = enter(py, || claim.finish(keys, outcome))?;
        let by_key = PyDict::new(py);
        for (key, answer) in keys.iter().zip(answers) {
            by_key.set_item(object(py, key)?, answer == Finish::Accepted)?;
        }
        Ok(by_key)
    }
}

#[pymethods]
impl RowClaim {
    /// Its token, a UUID; None for an empty claim.
    #[getter]
    fn token<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.inner.get(py)?.token().map(|token| uuid(py, token.as_u128())).transpose()
    }

    /// The id of its row in the claims table; None for an empty claim and without a registry.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        Ok(self.inner.get(py)?.id())
    }

    /// True once a renewal was refused: somebody else may own the rows now.
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

    /// Completes rows by key, or all that are not finished yet, in one step; durable when it returns.
    ///
    /// ``set`` and ``delay`` as for ``Row.complete``, the same for every row. Gives for each key True (accepted) or False
    /// (lost). Raises InvalidError for a key that is not in the claim, before anything is written, and UnavailableError.
    #[pyo3(signature = (keys=None, set=None, delay=None))]
    fn complete<'py>(
        &self,
        py: Python<'py>,
        keys: Option<&Bound<'py, PyAny>>,
        set: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.finish(py, &self.keys(py, keys)?, &complete(set, delay)?)
    }

    /// Fails rows by key: each comes back after ``delay`` or its back-off, or is failed. Otherwise as ``complete``.
    #[pyo3(signature = (keys, error, delay=None))]
    fn fail<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        error: &Bound<'py, PyAny>,
        delay: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.finish(py, &crate::column_values::keys(keys)?, &fail(error, delay)?)
    }

    /// Fails rows by key for good, whatever attempts are left. Otherwise as ``complete``.
    fn reject<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>, error: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        self.finish(py, &crate::column_values::keys(keys)?, &reject(error)?)
    }

    /// Gives rows back by key, or all that are not finished yet, without blame. Otherwise as ``complete``.
    #[pyo3(signature = (keys=None, delay=None))]
    fn release<'py>(
        &self,
        py: Python<'py>,
        keys: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.finish(py, &self.keys(py, keys)?, &release(delay)?)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.inner.get(py)?.len())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Row>>> {
        let claim = self.inner.get(py)?;
        match enter(py, || claim.next_job())? {
            Some(row) => Row::new(py, row, &self.table),
            None => Ok(None),
        }
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
        Ok(format!("<rowclaim.RowClaim {id}, {} rows of {}>", claim.len(), self.table))
    }
}
