//! A mapped table in Python's hands: its verbs convert their arguments, go through the gate and convert the answer.

use crate::column_values::{filters, keys, object, value};
use crate::gate::enter;
use crate::mapping::entries;
use crate::results;
use crate::row::Record;
use crate::row_claim::RowClaim;
use crate::values::{given, partition, span, text, whole};
use crate::work::{Options, work_rows};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use rowclaim::blocking;
use rowclaim::{DoctorRequest, DoctorTable, Filters, RowClaimRequest, RowFilter, Value};
use std::sync::Arc;

type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// Verbs on a table that was there already, made by ``Engine.table``. Usable from any thread, and in a forked child.
///
/// ``where`` is a mapping of columns to a value, or to several of which any will do; None is IS NULL. Values are
/// converted to the column's type or refused by its name: ``datetime`` with a zone is that instant, without one it is
/// meant as the column shows it. Names are quoted and values bound, whatever they hold. Every verb may raise InvalidError
/// for arguments, ConfigError and SchemaError when the table has changed under its mapping, and UnavailableError.
#[pyclass(module = "rowclaim", frozen)]
pub(crate) struct Table {
    inner: blocking::Table,
}

impl Table {
    pub(crate) fn new(inner: blocking::Table) -> Self {
        Table { inner }
    }

    pub(crate) fn inner(&self) -> &blocking::Table {
        &self.inner
    }
}

#[pymethods]
impl Table {
    /// The table's name as it was given.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// What its columns mean: the entries that differ from the defaults.
    #[getter]
    fn mapping<'py>(&self, py: Python<'py>) -> Object<'py> {
        entries(py, &self.inner.mapping().to_json())
    }

    /// Takes up to ``limit`` rows (1 to 10,000). The claim is empty when nothing waits.
    ///
    /// ``order``: a column or several, with ``-`` in front for falling; by priority and time when left out. ``lease``:
    /// from 1 second; renewed in the background, not past ``max_run`` from the start. ``partition``: ``(k, n)``, only rows
    /// whose key leaves the remainder k when divided by n.
    #[pyo3(signature = (limit=None, *, r#where=None, order=None, lease=None, max_run=None, partition=None))]
    #[allow(clippy::too_many_arguments)]
    fn claim(
        &self,
        py: Python<'_>,
        limit: Argument<'_, '_>,
        r#where: Argument<'_, '_>,
        order: Argument<'_, '_>,
        lease: Argument<'_, '_>,
        max_run: Argument<'_, '_>,
        partition: Argument<'_, '_>,
    ) -> PyResult<RowClaim> {
        let mut request = claim_request(limit, r#where, order, lease, max_run)?;
        if let Some(value) = given(partition) {
            request.partition = Some(self::partition(value)?);
        }
        let claim = enter(py, || self.inner.claim(&request))?;
        Ok(RowClaim::new(claim, &Arc::from(self.inner.name())))
    }

    /// Claims batches and calls ``handler(row)`` for each row until told to stop.
    ///
    /// ``where`` and ``order`` as for ``claim``, everything else as for ``Engine.work``. A handler of rows that recur
    /// completes each row itself, with a delay.
    #[pyo3(signature = (handler, *, r#where=None, order=None, batch=None, max_seconds=None, max_jobs=None, until_empty=false, lease=None, max_run=None, max_idle=None, finish=None))]
    #[allow(clippy::too_many_arguments)]
    fn work<'py>(
        &self,
        py: Python<'py>,
        handler: &Bound<'py, PyAny>,
        r#where: Argument<'_, 'py>,
        order: Argument<'_, 'py>,
        batch: Argument<'_, 'py>,
        max_seconds: Argument<'_, 'py>,
        max_jobs: Argument<'_, 'py>,
        until_empty: bool,
        lease: Argument<'_, 'py>,
        max_run: Argument<'_, 'py>,
        max_idle: Argument<'_, 'py>,
        finish: Option<&str>,
    ) -> Object<'py> {
        let options = Options { max_seconds, max_jobs, until_empty, max_idle, finish };
        let request = options.request(py, claim_request(batch, r#where, order, lease, max_run)?)?;
        work_rows(py, &self.inner, &request, handler)?.answer(py)
    }

    /// Whether any row waits or is in a claim: two look-ups that stop at the first row, never a count. Failed rows and those
    /// that wait for a person do not count.
    #[pyo3(signature = (r#where=None))]
    fn remaining(&self, py: Python<'_>, r#where: Argument<'_, '_>) -> PyResult<bool> {
        let filters = filters(r#where)?;
        enter(py, || self.inner.remaining(&filters))
    }

    /// Looks at the server, Rowclaim's tables and this table for what is wrong, or will be; changes nothing.
    ///
    /// ``filters``: columns that claims on it filter by; the index has to have them.
    #[pyo3(signature = (filters=None))]
    fn doctor<'py>(&self, py: Python<'py>, filters: Argument<'_, 'py>) -> PyResult<Bound<'py, PyList>> {
        let mut table = DoctorTable::new(self.inner.name(), self.inner.mapping().clone());
        table.filters = names("filters", filters)?;
        let request = DoctorRequest::new(vec![table]);
        let found = enter(py, || self.inner.engine().doctor(&request))?;
        results::list(py, &found, results::finding)
    }

    /// Takes rows back: of every claim of this database whose lease has run out, and of this table those that other code
    /// has held for longer than the mapping's ``recover_after``. Claims do this by themselves now and then.
    fn recover<'py>(&self, py: Python<'py>) -> Object<'py> {
        results::recovered(py, &enter(py, || self.inner.recover())?)
    }

    /// Puts failed rows back with all their attempts: those of ``keys`` (one or several), or up to ``limit`` for which
    /// ``where`` holds. How many.
    ///
    /// Raises InvalidError for a mapping without ``failed``.
    #[pyo3(signature = (keys=None, *, r#where=None, limit=None))]
    fn retry(&self, py: Python<'_>, keys: Argument<'_, '_>, r#where: Argument<'_, '_>, limit: Argument<'_, '_>) -> PyResult<u64> {
        let which = Which::new(keys, r#where, limit)?;
        enter(py, || self.inner.retry(which.keys.as_deref(), &which.filters, which.limit))
    }

    /// Takes held rows away from their owners and puts them back at once, chosen as for ``retry``. How many.
    ///
    /// The owners' writes are refused from then on. For a person who knows that the owner is gone.
    #[pyo3(signature = (keys=None, *, r#where=None, limit=None))]
    fn take_back(
        &self,
        py: Python<'_>,
        keys: Argument<'_, '_>,
        r#where: Argument<'_, '_>,
        limit: Argument<'_, '_>,
    ) -> PyResult<u64> {
        let which = Which::new(keys, r#where, limit)?;
        enter(py, || self.inner.take_back(which.keys.as_deref(), &which.filters, which.limit))
    }

    /// Says of rows in the mapping's ``held`` status (one key or several), which were begun when their lease ran out, whether
    /// they were ``sent``: those that were are done, the others are handed out again, and the attempt is not counted.
    ///
    /// Gives for each key True, or False when the row does not wait for a person, or not any more. Raises InvalidError for a
    /// mapping without ``held``.
    #[pyo3(signature = (keys, sent))]
    fn resolve<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>, sent: bool) -> PyResult<Bound<'py, PyDict>> {
        let keys = self::keys(keys)?;
        let answers = enter(py, || self.inner.resolve(&keys, results::resolution(sent)))?;
        let by_key = PyDict::new(py);
        for (key, answer) in keys.iter().zip(answers) {
            by_key.set_item(object(py, key)?, answer)?;
        }
        Ok(by_key)
    }

    /// Rows in the order of their keys, whoever holds them.
    ///
    /// ``status``: only rows with this value of the status column. ``after``: only larger keys, for the next page.
    /// ``limit``: 1 to 10,000.
    #[pyo3(signature = (r#where=None, *, status=None, after=None, limit=None))]
    fn rows(
        &self,
        py: Python<'_>,
        r#where: Argument<'_, '_>,
        status: Argument<'_, '_>,
        after: Argument<'_, '_>,
        limit: Argument<'_, '_>,
    ) -> PyResult<Vec<Record>> {
        let mut filter = RowFilter { filters: filters(r#where)?, ..RowFilter::default() };
        if let Some(status) = given(status) {
            filter.status = Some(value("status", status)?);
        }
        if let Some(after) = given(after) {
            filter.after = Some(value("after", after)?);
        }
        if let Some(limit) = given(limit) {
            filter.limit = whole("limit", limit)?;
        }
        let rows = enter(py, || self.inner.rows(&filter))?;
        Ok(rows.into_iter().map(|row| Record::new(Arc::new(row))).collect())
    }

    /// One row by its key, or None.
    fn row(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Record>> {
        let key = value("key", key)?;
        let row = enter(py, || self.inner.row(&key))?;
        Ok(row.map(|row| Record::new(Arc::new(row))))
    }

    fn __repr__(&self) -> String {
        format!("<rowclaim.Table {}>", self.inner.name())
    }
}

/// Which rows a person means.
struct Which {
    keys: Option<Vec<Value>>,
    filters: Filters,
    limit: usize,
}

impl Which {
    fn new(keys: Argument<'_, '_>, r#where: Argument<'_, '_>, limit: Argument<'_, '_>) -> PyResult<Self> {
        Ok(Which {
            keys: given(keys).map(self::keys).transpose()?,
            filters: filters(r#where)?,
            limit: given(limit).map_or(Ok(RowFilter::default().limit), |limit| whole("limit", limit))?,
        })
    }
}

/// One name or several.
fn names(argument: &'static str, named: Argument<'_, '_>) -> PyResult<Vec<String>> {
    match given(named) {
        None => Ok(Vec::new()),
        Some(name) if name.is_instance_of::<PyString>() => Ok(vec![text(argument, name)?]),
        Some(names) => names.try_iter()?.map(|name| text(argument, &name?)).collect(),
    }
}

pub(crate) fn claim_request(
    limit: Argument<'_, '_>,
    r#where: Argument<'_, '_>,
    order: Argument<'_, '_>,
    lease: Argument<'_, '_>,
    max_run: Argument<'_, '_>,
) -> PyResult<RowClaimRequest> {
    let mut request = RowClaimRequest { filters: filters(r#where)?, ..RowClaimRequest::default() };
    if let Some(limit) = given(limit) {
        request.limit = whole("limit", limit)?;
    }
    request.order = names("order", order)?;
    if let Some(lease) = given(lease) {
        request.lease = Some(span("lease", lease)?);
    }
    if let Some(max_run) = given(max_run) {
        request.max_run = Some(span("max_run", max_run)?);
    }
    Ok(request)
}
