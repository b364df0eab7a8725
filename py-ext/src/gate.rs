//! The only way into the core: the interpreter lock is let go, panics are caught, signals are heard.
//!
//! A wait calls [`check_signals`] about every 50 ms. When a Python signal handler raises there, its exception is kept
//! for the thread and raised by [`enter`] in place of the core's `Interrupted`.

use crate::errors;
use pyo3::prelude::*;
use rowclaim::{Error, ErrorKind};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
    static IS_DROPPING: Cell<bool> = const { Cell::new(false) };
}

/// The core's wait hook: runs pending Python signal handlers; `false` when one of them raised.
pub(crate) fn check_signals() -> bool {
    // An object may be dropped while an exception is on its way: no Python code may run then.
    if IS_DROPPING.get() {
        return true;
    }
    match Python::try_attach(|py| py.check_signals()) {
        Some(Ok(())) => true,
        Some(Err(error)) => {
            RAISED.set(Some(error));
            false
        }
        // The interpreter is going away, and the wait with it.
        None => false,
    }
}

/// Calls the core without the interpreter lock.
pub(crate) fn enter<T: Send>(py: Python<'_>, work: impl FnOnce() -> rowclaim::Result<T> + Send) -> PyResult<T> {
    let work = AssertUnwindSafe(work);
    let answer = py.detach(|| catch_unwind(work));
    if let Some(raised) = RAISED.take() {
        return Err(raised);
    }
    match answer {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(errors::raise(py, &error)),
        Err(panic) => Err(errors::raise(py, &unexpected(panic.as_ref()))),
    }
}

fn unexpected(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::new(ErrorKind::Unexpected, format!("a fault in Rowclaim: {}", text.unwrap_or("no text")))
}

/// A handle of the core whose last drop may wait for the database: that happens without the interpreter lock too.
pub(crate) struct Held<T: Send>(Option<T>);

impl<T: Send> Held<T> {
    pub(crate) fn new(handle: T) -> Self {
        Held(Some(handle))
    }

    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.0.as_ref().ok_or_else(|| errors::invalid(py, "the object is being destroyed"))
    }

    pub(crate) fn get_mut(&mut self, py: Python<'_>) -> PyResult<&mut T> {
        self.0.as_mut().ok_or_else(|| errors::invalid(py, "the object is being destroyed"))
    }

    /// The handle itself, to be used up behind the gate.
    pub(crate) fn take(mut self, py: Python<'_>) -> PyResult<T> {
        self.0.take().ok_or_else(|| errors::invalid(py, "the object is being destroyed"))
    }
}

impl<T: Send> Drop for Held<T> {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else { return };
        let drop_it = AssertUnwindSafe(|| {
            let before = IS_DROPPING.replace(true);
            // A panic in a destructor has been printed; there is nobody to raise it to.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
            IS_DROPPING.set(before);
        });
        Python::try_attach(|py| py.detach(drop_it));
    }
}
