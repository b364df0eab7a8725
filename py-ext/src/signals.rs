//! SIGTERM and SIGINT while `work` runs in the main thread: the first one asks it to stop after the job in hand and puts
//! the previous handlers back, so that a second one does what it did before.
//!
//! Signals that are ignored stay ignored, and handlers that were not installed from Python stay in place: neither could
//! be put back.

use pyo3::prelude::*;
use pyo3::types::PyModule;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The Python signal handler that sets the stop flag.
#[pyclass(module = "rowclaim._native", frozen)]
pub(crate) struct StopOnSignal {
    stop: Arc<AtomicBool>,
    /// The signal that came, or 0.
    came: AtomicI32,
    previous: Mutex<Vec<(i32, Py<PyAny>)>>,
}

#[pymethods]
impl StopOnSignal {
    fn __call__(slf: &Bound<'_, Self>, signal: i32, frame: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = frame;
        slf.get().came.store(signal, Relaxed);
        slf.get().stop.store(true, Relaxed);
        restore(slf)
    }
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    Ok(threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?))
}

/// Installs the handlers; `None` outside of the main thread, where Python allows none.
pub(crate) fn install<'py>(py: Python<'py>, stop: &Arc<AtomicBool>) -> PyResult<Option<Bound<'py, StopOnSignal>>> {
    if !is_main_thread(py)? {
        return Ok(None);
    }
    let handler = Bound::new(py, StopOnSignal { stop: Arc::clone(stop), came: AtomicI32::new(0), previous: Mutex::default() })?;
    let module = py.import("signal")?;
    for name in ["SIGTERM", "SIGINT"] {
        let installed = install_one(&module, &module.getattr(name)?, &handler);
        if installed.is_err() {
            restore(&handler)?;
        }
        installed?;
    }
    Ok(Some(handler))
}

fn install_one(module: &Bound<'_, PyModule>, signal: &Bound<'_, PyAny>, handler: &Bound<'_, StopOnSignal>) -> PyResult<()> {
    let previous = module.call_method1("getsignal", (signal,))?;
    if previous.is_none() || previous.eq(module.getattr("SIG_IGN")?)? {
        return Ok(());
    }
    handler.get().push(signal.extract()?, previous.unbind());
    module.call_method1("signal", (signal, handler))?;
    Ok(())
}

impl StopOnSignal {
    fn push(&self, signal: i32, previous: Py<PyAny>) {
        self.previous.lock().unwrap_or_else(PoisonError::into_inner).push((signal, previous));
    }

    fn take(&self) -> Vec<(i32, Py<PyAny>)> {
        std::mem::take(&mut *self.previous.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The signal that asked to stop.
    pub(crate) fn came(&self) -> Option<i32> {
        Some(self.came.load(Relaxed)).filter(|signal| *signal != 0)
    }
}

/// Does what a signal would have done, had it not asked `work` to stop first.
pub(crate) fn pass_on(py: Python<'_>, signal: i32) -> PyResult<()> {
    py.import("signal")?.call_method1("raise_signal", (signal,)).map(drop)
}

/// Puts the previous handlers back where ours are still in place. May be called more than once.
pub(crate) fn restore(handler: &Bound<'_, StopOnSignal>) -> PyResult<()> {
    let py = handler.py();
    let module = py.import("signal")?;
    for (signal, previous) in handler.get().take() {
        if module.call_method1("getsignal", (signal,))?.is(handler) {
            module.call_method1("signal", (signal, previous))?;
        }
    }
    Ok(())
}
