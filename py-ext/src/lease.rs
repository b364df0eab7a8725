//! A lease by name in Python's hands: leaving the `with` block gives it back.

use crate::errors::log;
use crate::gate::{Held, enter};
use crate::guard::Write;
use crate::values::uuid;
use pyo3::prelude::*;
use rowclaim::blocking;

/// A lease by name that is held, made by ``Engine.lease``: ``with lease:`` gives it back when the block ends.
///
/// It is renewed in the background until it is released or the object is gone. Leases do not cross a fork: in the child
/// they are left alone.
#[pyclass(module = "rowclaim", frozen)]
pub(crate) struct Lease {
    inner: Held<blocking::Lease>,
}

impl Lease {
    pub(crate) fn new(lease: blocking::Lease) -> Self {
        Lease { inner: Held::new(lease) }
    }
}

#[pymethods]
impl Lease {
    /// Its name.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(self.inner.get(py)?.name())
    }

    /// The token of this holding, a UUID.
    #[getter]
    fn token<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        uuid(py, self.inner.get(py)?.token().as_u128())
    }

    /// A number above that of every earlier holder, for writes that a late holder must not make: see ``guard``.
    #[getter]
    fn fence(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.inner.get(py)?.fence())
    }

    /// True once a renewal was refused, or after it was released: somebody else may hold it now.
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner.get(py)?.is_lost())
    }

    /// For how many seconds it is surely held from now on; 0.0 when lost.
    #[getter]
    fn valid_for(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.inner.get(py)?.valid_for().as_secs_f64())
    }

    /// Renews it now. False when it is lost.
    ///
    /// Raises UnavailableError; it stays held for ``valid_for``.
    fn renew(&self, py: Python<'_>) -> PyResult<bool> {
        let lease = self.inner.get(py)?;
        enter(py, || lease.renew())
    }

    /// Gives it back. False when it was lost, or given back, before.
    ///
    /// Raises UnavailableError; it ends by itself then.
    fn release(&self, py: Python<'_>) -> PyResult<bool> {
        let lease = self.inner.get(py)?;
        enter(py, || lease.release())
    }

    /// Makes a write on any table with this lease's fence. False when a later holder has written: nothing was changed then.
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
        let lease = self.inner.get(py)?;
        let write = Write { table, key, set, fence_column }.read()?;
        enter(py, || lease.guard(&write))
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
        match self.release(py) {
            // The block's own exception matters more.
            Err(failure) if raised.is_some() => log(py, "a lease could not be released; it ends by itself", &failure),
            other => other.map(drop),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let lease = self.inner.get(py)?;
        Ok(format!("<rowclaim.Lease {:?}, fence {}>", lease.name(), lease.fence()))
    }
}
