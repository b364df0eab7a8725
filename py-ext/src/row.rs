//! Rows of mapped tables: records to look at, and rows of a claim, which are records that can be finished.

use crate::column_values::{columns, object};
use crate::gate::{Held, enter};
use crate::guard::Write;
use crate::job::{fail, leave, reject, release};
use crate::row_claim::RowClaim;
use crate::values::{given, span, uuid};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyBaseException, PyKeyError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyMapping};
use rowclaim::blocking;
use rowclaim::{ClaimedRow, Finish, Outcome};
use std::sync::Arc;

/// A row of a mapped table as it stood when it was read: a read-only mapping of columns to values.
///
/// Whole numbers are ``int``, DECIMAL is ``Decimal``, DATETIME and TIMESTAMP are ``datetime`` without a zone, in the
/// mapping's; DATE is ``date``; BLOB and BINARY are ``bytes``; NULL is None; everything else is ``float`` or ``str``.
#[pyclass(module = "rowclaim", frozen, subclass, mapping)]
pub(crate) struct Record {
    row: Arc<ClaimedRow>,
    /// Its values, made on first use.
    values: PyOnceLock<Py<PyDict>>,
}

impl Record {
    pub(crate) fn new(row: Arc<ClaimedRow>) -> Self {
        Record { row, values: PyOnceLock::new() }
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyDict>> {
        let made = self.values.get_or_try_init(py, || {
            let values = PyDict::new(py);
            for (column, value) in self.row.iter() {
                values.set_item(column, object(py, value)?)?;
            }
            PyResult::Ok(values.unbind())
        })?;
        Ok(made.bind(py))
    }
}

#[pymethods]
impl Record {
    /// The value of its key column.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        object(py, &self.row.key)
    }

    /// Attempts so far, one that is under way included; 1 where the mapping does not name them.
    #[getter]
    fn attempts(&self) -> i64 {
        self.row.attempts
    }

    /// Attempts before the row is failed; None where there is no limit.
    #[getter]
    fn max_attempts(&self) -> Option<i64> {
        self.row.max_attempts
    }

    /// The fence of the row's last claim: every later claim has a larger one; 0 where the mapping does not name it.
    #[getter]
    fn fence(&self) -> i64 {
        self.row.fence
    }

    /// The names of its columns, in their order.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.call_method0("keys")
    }

    /// Its values, in the order of the columns.
    #[pyo3(name = "values")]
    fn all_values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.call_method0("values")
    }

    /// Columns and values, in order.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.call_method0("items")
    }

    /// The value of a column, or ``default`` when the row comes without it.
    #[pyo3(signature = (column, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        column: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.dict(py)?.get_item(column)?.or(default))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, column: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.dict(py)?.get_item(column)? {
            Some(value) => Ok(value),
            None => {
                let there = self.row.columns().names().join(", ");
                Err(PyKeyError::new_err(format!("no column {}; the row has {there}", column.repr()?)))
            }
        }
    }

    fn __contains__(&self, py: Python<'_>, column: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.dict(py)?.contains(column)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.dict(py)?.len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.dict(py)?.try_iter()?.into_any())
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, operation: CompareOp) -> PyResult<Py<PyAny>> {
        let is_equality = matches!(operation, CompareOp::Eq | CompareOp::Ne);
        let Some(other) = other.cast::<PyMapping>().ok().filter(|_| is_equality) else { return Ok(py.NotImplemented()) };
        let values = PyDict::new(py);
        values.update(other)?;
        Ok(self.dict(py)?.rich_compare(values, operation)?.unbind())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<rowclaim.Record {}, {} columns>", object(py, &self.row.key)?.repr()?, self.row.columns().names().len()))
    }
}

/// One row of a claim: ``with row:`` completes it when the block ends, and fails it when the block raises.
///
/// An ``Exception`` is written to the row, as far as the mapping has a place for it, and to the logger ``rowclaim`` and
/// goes no further, so that a loop goes on. ``KeyboardInterrupt``, ``SystemExit`` and the like give the row back without
/// blame and go on; where the mapping holds they leave it to be held, since it was begun. A row that the block has finished
/// itself stays as it is; one that recurs it must complete itself, with a delay. Rows do not cross a fork.
#[pyclass(module = "rowclaim", frozen, extends = Record)]
pub(crate) struct Row {
    inner: Held<blocking::Row>,
    table: Arc<str>,
}

impl Row {
    /// `None` when the row is not in its claim, which does not happen.
    pub(crate) fn new(py: Python<'_>, row: blocking::Row, table: &Arc<str>) -> PyResult<Option<Py<Row>>> {
        let Some(values) = row.claim().rows().get(row.index()).map(Arc::clone) else { return Ok(None) };
        let own = Row { inner: Held::new(row), table: Arc::clone(table) };
        Py::new(py, PyClassInitializer::from(Record::new(values)).add_subclass(own)).map(Some)
    }

    pub(crate) fn inner(&self, py: Python<'_>) -> PyResult<&blocking::Row> {
        self.inner.get(py)
    }

    fn finish(&self, py: Python<'_>, outcome: &Outcome) -> PyResult<bool> {
        let row = self.inner.get(py)?;
        Ok(enter(py, || row.finish(outcome))? == Finish::Accepted)
    }
}

/// `row 5 of targets`, for the log.
pub(crate) fn shown(py: Python<'_>, row: &ClaimedRow, table: &str) -> PyResult<String> {
    Ok(format!("row {} of {table}", object(py, &row.key)?.repr()?))
}

/// The outcome of a completion.
pub(crate) fn complete(set: Option<&Bound<'_, PyAny>>, delay: Option<&Bound<'_, PyAny>>) -> PyResult<Outcome> {
    if given(set).is_none() && given(delay).is_none() {
        return Ok(Outcome::Complete);
    }
    let delay = given(delay).map(|delay| span("delay", delay)).transpose()?;
    Ok(Outcome::CompleteWith { set: columns("set", set)?, delay })
}

#[pymethods]
impl Row {
    /// Its claim's token.
    #[getter]
    fn token<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.inner.get(py)?.token().map(|token| uuid(py, token.as_u128())).transpose()
    }

    /// The claim it belongs to.
    #[getter]
    fn claim(&self, py: Python<'_>) -> PyResult<RowClaim> {
        Ok(RowClaim::new(self.inner.get(py)?.claim(), &self.table))
    }

    /// True when it was finished through this claim.
    #[getter]
    fn finished(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner.get(py)?.is_finished())
    }

    /// Done. Durable when it returns. False: lost, somebody else owns the row now; nothing was changed.
    ///
    /// ``set``: columns of the row and their values, written in the same step. A row that recurs (``done`` is
    /// ``pending``) waits again for ``delay``, or until the time that ``set`` gives it. Raises InvalidError, naming the
    /// column, for what does not fit, and UnavailableError when it is unknown whether it was written; the same call may
    /// be repeated.
    #[pyo3(signature = (set=None, delay=None))]
    fn complete(&self, py: Python<'_>, set: Option<&Bound<'_, PyAny>>, delay: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.finish(py, &complete(set, delay)?)
    }

    /// Failed: the row comes back after ``delay`` or the back-off, or is failed when its attempts are used up.
    ///
    /// ``error`` is text or an exception, written as ``Class: message`` and cut to 4,000 characters and to the column's
    /// length. False and errors as for ``complete``.
    #[pyo3(signature = (error, delay=None))]
    fn fail(&self, py: Python<'_>, error: &Bound<'_, PyAny>, delay: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.finish(py, &fail(error, delay)?)
    }

    /// Failed for good: the row is failed, whatever attempts are left. For what no repetition mends; ``retry`` brings it back.
    ///
    /// ``error``, False and errors as for ``fail``; InvalidError when the mapping has no ``failed``.
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

    /// Makes a write on any table with the fence of this claim of the row. False when a later owner has written: nothing
    /// was changed then.
    ///
    /// Otherwise as ``Engine.guard``, and InvalidError when the
    /// mapping names no fence.
    fn guard(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        set: &Bound<'_, PyAny>,
        fence_column: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let row = self.inner.get(py)?;
        let write = Write { table, key, set, fence_column }.read()?;
        enter(py, || row.guard(&write))
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
        let row = self.inner.get(py)?;
        leave(py, row, || shown(py, row, &self.table), raised)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let row = self.inner.get(py)?;
        Ok(format!("<rowclaim.Row {} of {}, attempt {}>", object(py, &row.key)?.repr()?, self.table, row.attempts))
    }
}
