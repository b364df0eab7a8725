//! Errors of the core become Python exceptions, and Python exceptions become the text of a failure.
//!
//! The classes are plain Python (`rowclaim/_errors.py`), one for each kind.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use rowclaim::{Error, ErrorKind, Outcome};

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static NOT_SENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static DECODE_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static REJECT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The exception for `error`.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let made = MAKE.import(py, "rowclaim._errors", "make").and_then(|make| {
        let kind = error.kind().name();
        make.call1((kind, error.to_string(), error.is_retryable(), error.operation(), error.server_code()))
    });
    made.map_or_else(|failure| failure, PyErr::from_value)
}

/// An `InvalidError` that names the argument to change.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raise(py, &Error::new(ErrorKind::Invalid, message))
}

/// `Class: message`, as the last line of a traceback has it; text without a UTF-8 form is escaped.
pub(crate) fn describe(py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<String> {
    let class = error.get_type().name()?.to_string();
    let message = match error.str() {
        Ok(text) => readable(&text)?,
        // An exception that cannot say what it is still has a class.
        Err(failure) if failure.is_instance_of::<pyo3::exceptions::PyException>(py) => String::new(),
        Err(failure) => return Err(failure),
    };
    Ok(if message.is_empty() { class } else { format!("{class}: {message}") })
}

/// Whether an exception says that an effect has surely not happened.
pub(crate) fn is_not_sent(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    Ok(error.matches(py, NOT_SENT.import(py, "rowclaim._errors", "NotSent")?)?)
}

/// What an exception says that ends a handler or a block: failed, or failed for good.
pub(crate) fn failure(py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    let text = describe(py, error)?;
    // A payload that cannot be read today cannot be read tomorrow.
    let is_reject = error.is_instance(REJECT.import(py, "rowclaim._errors", "Reject")?)?
        || error.is_instance(DECODE_ERROR.import(py, "rowclaim._errors", "DecodeError")?)?;
    Ok(if is_reject { Outcome::Reject { error: text } } else { Outcome::Fail { error: text, delay: None } })
}

/// The text with lone surrogates written as `\udcxx`.
pub(crate) fn readable(text: &Bound<'_, PyString>) -> PyResult<String> {
    if let Ok(text) = text.to_cow() {
        return Ok(text.into_owned());
    }
    let bytes: Vec<u8> = text.call_method1("encode", ("utf-8", "backslashreplace"))?.extract()?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let logger =
        LOGGER.get_or_try_init(py, || py.import("logging")?.call_method1("getLogger", ("rowclaim",)).map(Bound::unbind))?;
    Ok(logger.bind(py).clone())
}

/// Writes an exception that goes no further, with its traceback, to the logger `rowclaim`.
///
/// A logger that raises must not change what becomes of a job: only what is no `Exception` comes out of it.
pub(crate) fn log(py: Python<'_>, message: &str, error: &PyErr) -> PyResult<()> {
    let written = logger(py).and_then(|logger| {
        let options = PyDict::new(py);
        options.set_item("exc_info", error.value(py))?;
        logger.call_method("warning", (message,), Some(&options))
    });
    match written {
        Err(failure) if !failure.is_instance_of::<pyo3::exceptions::PyException>(py) => Err(failure),
        _ => Ok(()),
    }
}
