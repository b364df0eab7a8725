//! Arguments become Rust values: text, whole numbers, spans, instants. The limits are the core's; what has no Rust form
//! at all is refused here, by the argument's name.

use crate::errors::invalid;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple};
use rowclaim::{Timestamp, span_from_seconds};
use std::borrow::Cow;
use std::time::Duration;

static TIMEDELTA: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
pub(crate) static DATETIME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static UUID: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The argument, unless it is missing or `None`.
pub(crate) fn given<'a, 'py>(value: Option<&'a Bound<'py, PyAny>>) -> Option<&'a Bound<'py, PyAny>> {
    value.filter(|value| !value.is_none())
}

pub(crate) fn wrong_type(name: &str, wanted: &str, value: &Bound<'_, PyAny>) -> PyErr {
    match value.get_type().name() {
        Ok(class) => PyTypeError::new_err(format!("{name} must be {wanted}, not {class}")),
        Err(error) => error,
    }
}

/// Text for the database: UTF-8.
pub(crate) fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = value.cast::<PyString>().map_err(|_| wrong_type(name, "str", value))?;
    let refused = |_| invalid(value.py(), format!("{name} holds a lone surrogate, which has no UTF-8 form"));
    text.to_cow().map(Cow::into_owned).map_err(refused)
}

/// What `extract` found; `None` when the value is no number at all, a flag included.
fn number<T>(name: &str, value: &Bound<'_, PyAny>, found: PyResult<T>) -> PyResult<Option<T>> {
    match found {
        _ if value.is_instance_of::<PyBool>() => Ok(None),
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => Ok(None),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Err(out_of_range(name, value)),
        Err(error) => Err(error),
    }
}

fn out_of_range(name: &str, value: &Bound<'_, PyAny>) -> PyErr {
    invalid(value.py(), format!("{name} is out of range"))
}

/// A whole number of a narrower type: an `int`, or what Python takes as an index.
pub(crate) fn whole<T: TryFrom<i64>>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<T> {
    let found = number(name, value, value.extract::<i64>())?.ok_or_else(|| wrong_type(name, "int", value))?;
    T::try_from(found).map_err(|_| out_of_range(name, value))
}

fn seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    number(name, value, value.extract())
}

/// A span: seconds or a `timedelta`.
pub(crate) fn span(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = value.py();
    let number = match seconds(name, value)? {
        Some(number) => number,
        None if value.is_instance(TIMEDELTA.import(py, "datetime", "timedelta")?)? => {
            value.call_method0("total_seconds")?.extract()?
        }
        None => return Err(wrong_type(name, "seconds (int or float) or timedelta", value)),
    };
    span_from_seconds(name, number).map_err(|error| crate::errors::raise(py, &error))
}

/// An instant: an aware `datetime` or seconds since 1970.
pub(crate) fn instant(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Timestamp> {
    let py = value.py();
    if let Some(number) = seconds(name, value)? {
        return Timestamp::from_unix_seconds(number).map_err(|error| crate::errors::raise(py, &error));
    }
    if !value.is_instance(DATETIME.import(py, "datetime", "datetime")?)? {
        return Err(wrong_type(name, "an aware datetime or seconds since 1970", value));
    }
    if value.call_method0("utcoffset")?.is_none() {
        return Err(invalid(py, format!("{name} is a datetime without a zone: use datetime.now(timezone.utc) or .astimezone()")));
    }
    let microsecond = TIMEDELTA.import(py, "datetime", "timedelta")?.call1((0, 0, 1))?;
    Ok(Timestamp(value.sub(epoch(py)?)?.floor_div(microsecond)?.extract()?))
}

/// A planned time: as [`instant`], or text as in RFC 3339, with its zone.
pub(crate) fn slot(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Timestamp> {
    if value.is_instance_of::<PyString>() {
        return Timestamp::from_rfc3339(name, &text(name, value)?).map_err(|error| crate::errors::raise(value.py(), &error));
    }
    instant(name, value)
}

fn epoch(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    let made = EPOCH.get_or_try_init(py, || {
        let utc = py.import("datetime")?.getattr("timezone")?.getattr("utc")?;
        let epoch = DATETIME.import(py, "datetime", "datetime")?.call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
        PyResult::Ok(epoch.unbind())
    })?;
    Ok(made.bind(py))
}

/// An aware `datetime` in UTC.
pub(crate) fn datetime(py: Python<'_>, at: Timestamp) -> PyResult<Bound<'_, PyAny>> {
    let since = TIMEDELTA.import(py, "datetime", "timedelta")?.call1((0, 0, at.0))?;
    epoch(py)?.add(since)
}

/// A `uuid.UUID`.
pub(crate) fn uuid(py: Python<'_>, number: u128) -> PyResult<Bound<'_, PyAny>> {
    let none = py.None();
    UUID.import(py, "uuid", "UUID")?.call1((&none, &none, &none, &none, number))
}

/// Job ids from any iterable of whole numbers.
pub(crate) fn ids(value: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    value.try_iter()?.map(|id| whole("id", &id?)).collect()
}

/// Queue names: one text or a sequence of them.
pub(crate) fn queues(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if value.is_instance_of::<PyString>() {
        return Ok(vec![text("queue", value)?]);
    }
    value.try_iter()?.map(|queue| text("queue", &queue?)).collect()
}

/// `(k, n)`.
pub(crate) fn partition(value: &Bound<'_, PyAny>) -> PyResult<(i64, i64)> {
    let pair = value.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let pair = pair.ok_or_else(|| wrong_type("partition", "a tuple (k, n)", value))?;
    Ok((whole("partition", &pair.get_item(0)?)?, whole("partition", &pair.get_item(1)?)?))
}

/// The value of a DSN option as the DSN would write it.
pub(crate) fn option(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_instance_of::<PyBool>() {
        return Ok(if value.is_truthy()? { "1" } else { "0" }.to_owned());
    }
    if value.is_instance(TIMEDELTA.import(value.py(), "datetime", "timedelta")?)? {
        return Ok(value.call_method0("total_seconds")?.str()?.to_string());
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        return Ok(value.str()?.to_string());
    }
    text(name, value)
}
