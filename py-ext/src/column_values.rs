//! Values of a user's columns: Python objects become the core's values, and values become Python objects.
//!
//! Nothing is guessed here: what a column takes is the core's to say, by the column's name. What has no form in a
//! database at all is refused by the name of the argument.

use crate::errors::{invalid, raise};
use crate::values::{DATETIME, datetime, given, instant, text, wrong_type};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyMapping, PyString, PyTuple};
use rowclaim::{Error, ErrorKind, Filters, Value};

static DATE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static DECIMAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static ENUM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

const WANTED: &str = "None, bool, int, float, Decimal, str, bytes, datetime, date or an Enum of these";

/// A value for a column.
pub(crate) fn value(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = given.py();
    if given.is_none() {
        return Ok(Value::Null);
    }
    if given.is_instance_of::<PyBool>() {
        return Ok(Value::Int(i64::from(given.is_truthy()?)));
    }
    if given.is_instance_of::<PyInt>() {
        return whole(name, given);
    }
    if given.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(given.extract()?));
    }
    if given.is_instance_of::<PyString>() {
        return text(name, given).map(Value::Text);
    }
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(Value::Bytes(bytes.as_bytes().to_vec()));
    }
    if let Ok(bytes) = given.cast::<PyByteArray>() {
        return Ok(Value::Bytes(bytes.to_vec()));
    }
    if given.is_instance(DECIMAL.import(py, "decimal", "Decimal")?)? {
        return decimal(name, given);
    }
    if given.is_instance(DATETIME.import(py, "datetime", "datetime")?)? {
        // Without a zone it is meant as the column shows it.
        return match given.call_method0("utcoffset")?.is_none() {
            true => Ok(Value::Moment(given.call_method1("isoformat", (" ",))?.extract()?)),
            false => instant(name, given).map(Value::At),
        };
    }
    if given.is_instance(DATE.import(py, "datetime", "date")?)? {
        return Ok(Value::Moment(given.call_method0("isoformat")?.extract()?));
    }
    if given.is_instance(ENUM.import(py, "enum", "Enum")?)? {
        return value(name, &given.getattr("value")?);
    }
    // Numbers of other libraries.
    given.extract::<i64>().map(Value::Int).map_err(|_| wrong_type(name, WANTED, given))
}

/// A whole number of any size: beyond 64 bits digit for digit, as DECIMAL columns can have it.
fn whole(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    match given.extract::<i64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => {}
        other => return other.map(Value::Int),
    }
    if let Ok(number) = given.extract::<u64>() {
        return Ok(Value::UInt(number));
    }
    match given.str() {
        Ok(digits) => Ok(Value::Decimal(digits.extract()?)),
        // Python does not write out numbers of more than some thousand digits.
        Err(error) if error.is_instance_of::<PyValueError>(given.py()) => {
            Err(invalid(given.py(), format!("{name} is out of range")))
        }
        Err(error) => Err(error),
    }
}

fn decimal(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    if !given.call_method0("is_finite")?.is_truthy()? {
        return Err(invalid(given.py(), format!("{name} must be a finite number, not {}", given.str()?)));
    }
    Ok(Value::Decimal(given.call_method1("__format__", ("f",))?.extract()?))
}

fn is_many(given: &Bound<'_, PyAny>) -> bool {
    let is_one = given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyByteArray>()
        || given.cast::<PyMapping>().is_ok();
    !is_one && given.try_iter().is_ok()
}

/// Conditions from a mapping of columns to a value, or to several of which any will do.
pub(crate) fn filters(given: Argument<'_, '_>) -> PyResult<Filters> {
    let mut filters = Filters::none();
    for (column, wanted) in pairs("where", given)? {
        let name = format!("where: {column}");
        filters = if is_many(&wanted) {
            let wanted = wanted.try_iter()?.map(|wanted| value(&name, &wanted?)).collect::<PyResult<_>>()?;
            filters.any(column, wanted)
        } else {
            filters.equal(column, value(&name, &wanted)?)
        };
    }
    Ok(filters)
}

/// Columns and the values they are to have.
pub(crate) fn columns(argument: &str, given: Argument<'_, '_>) -> PyResult<Vec<(String, Value)>> {
    let fit = |(column, given): (String, Bound<'_, PyAny>)| {
        let value = value(&format!("{argument}: {column}"), &given)?;
        Ok((column, value))
    };
    pairs(argument, given)?.into_iter().map(fit).collect()
}

fn pairs<'py>(argument: &str, value: Argument<'_, 'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    let Some(value) = given(value) else { return Ok(Vec::new()) };
    let mapping = value.cast::<PyMapping>().map_err(|_| wrong_type(argument, "a mapping of columns to values", value))?;
    let read = |pair: Bound<'py, PyAny>| {
        let (column, value): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract()?;
        Ok((text(&format!("{argument}: a column"), &column)?, value))
    };
    mapping.items()?.iter().map(read).collect()
}

/// Keys of rows: one, or any iterable of them.
pub(crate) fn keys(given: &Bound<'_, PyAny>) -> PyResult<Vec<Value>> {
    if is_many(given) {
        return given.try_iter()?.map(|key| value("key", &key?)).collect();
    }
    Ok(vec![value("key", given)?])
}

/// The Python object of a column's value.
pub(crate) fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Int(number) => Ok(number.into_pyobject(py)?.into_any()),
        Value::UInt(number) => Ok(number.into_pyobject(py)?.into_any()),
        Value::Float(number) => Ok(number.into_pyobject(py)?.into_any()),
        Value::Decimal(digits) => DECIMAL.import(py, "decimal", "Decimal")?.call1((digits,)),
        Value::Text(text) => Ok(PyString::new(py, text).into_any()),
        Value::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        Value::Moment(text) => moment(py, text),
        Value::At(at) => datetime(py, *at),
        other => {
            let message = format!("a value of a kind this module does not know: {other:?}");
            Err(raise(py, &Error::new(ErrorKind::Decode, message)))
        }
    }
}

/// A `datetime` without a zone, or a `date`; text for what is neither: a time of day, a zero date.
fn moment<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let as_text = || Ok(PyString::new(py, text).into_any());
    let Some((parts, has_time)) = calendar(text) else { return as_text() };
    let class = match has_time {
        true => DATETIME.import(py, "datetime", "datetime")?,
        false => DATE.import(py, "datetime", "date")?,
    };
    match class.call1(PyTuple::new(py, parts)?) {
        Err(error) if error.is_instance_of::<PyValueError>(py) => as_text(),
        other => other,
    }
}

/// The numbers of `2026-11-29` or `2026-11-29 08:30:00.123456`, and whether there is a time.
fn calendar(text: &str) -> Option<(Vec<u32>, bool)> {
    let Some((date, time)) = text.split_once([' ', 'T']) else { return Some((numbers(text, '-', &[4, 2, 2])?, false)) };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = numbers(date, '-', &[4, 2, 2])?;
    parts.extend(numbers(clock, ':', &[2, 2, 2])?);
    parts.extend(numbers(&format!("{fraction:0<6}"), '.', &[6])?);
    Some((parts, true))
}

fn numbers(text: &str, between: char, digits: &[usize]) -> Option<Vec<u32>> {
    let parts: Vec<&str> = text.split(between).collect();
    let is_wide = |(part, digits): (&&str, &usize)| part.len() == *digits && part.bytes().all(|byte| byte.is_ascii_digit());
    if parts.len() != digits.len() || !parts.iter().zip(digits).all(is_wide) {
        return None;
    }
    parts.iter().map(|part| part.parse().ok()).collect()
}
