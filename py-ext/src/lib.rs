//! The native part of the Python package `rowclaim`: it converts arguments and answers and lets go of the interpreter
//! lock in between. It has no SQL, no retries, no time arithmetic and no defaults of its own.
//!
//! The files in the order a call travels: `engine` and `table` (the classes people hold), `new_job`, `guard`, `mapping`,
//! `values` and `column_values` (arguments become Rust values), `gate` (the only way into the core), `claim`, `job`,
//! `row_claim`, `row`, `lease` and `work` (what is in the caller's hands), `signals` (Ctrl-C and SIGTERM while `work` runs), `results` and `errors`
//! (answers become Python objects). Exceptions, records and the JSON encoding are plain Python in `python/rowclaim/`.
//!
//! The one thing to know: nothing of Python is touched behind the gate except by the wait hook and by handlers of
//! `work`, which attach for themselves; no native lock is held while they do. All classes are frozen and all state is
//! atomic, so the module does not need the interpreter lock for its soundness.

mod claim;
mod column_values;
mod engine;
mod errors;
mod gate;
mod guard;
mod job;
mod lease;
mod mapping;
mod new_job;
mod results;
mod row;
mod row_claim;
mod signals;
mod table;
mod values;
mod work;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rowclaim::ErrorKind;
use std::time::Duration;

/// How long engines may take to write what is pending when they are closed without a limit, and at exit.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

#[pyfunction]
fn close_all(py: Python<'_>) -> PyResult<()> {
    gate::enter(py, || {
        rowclaim::blocking::close_all(CLOSE_LIMIT);
        Ok(())
    })
}

/// Panics behind the gate. Only in builds for tests.
#[cfg(debug_assertions)]
#[pyfunction]
#[allow(clippy::panic)]
fn _panic(py: Python<'_>) -> PyResult<()> {
    gate::enter(py, || panic!("asked for"))
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("ERROR_KINDS", PyTuple::new(py, ErrorKind::ALL.map(ErrorKind::name))?)?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<claim::Claim>()?;
    module.add_class::<job::Job>()?;
    module.add_class::<lease::Lease>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<row_claim::RowClaim>()?;
    module.add_class::<row::Record>()?;
    module.add_class::<row::Row>()?;
    module.add_function(wrap_pyfunction!(engine::connect, module)?)?;
    py.import("collections.abc")?.getattr("Mapping")?.call_method1("register", (py.get_type::<row::Record>(),))?;
    // Past the list of public names, that the stubs repeat.
    #[cfg(debug_assertions)]
    module.setattr("_panic", wrap_pyfunction!(_panic, module)?)?;

    rowclaim::blocking::set_wait_hook(gate::check_signals);
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(close_all, module)?,))?;
    Ok(())
}
