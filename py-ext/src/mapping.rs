//! What a caller says about a table becomes the core's mapping, by its JSON form: its entries, their defaults and what
//! is wrong with them are the core's alone. Only `dsn` is looked at here: it says which engine the table belongs to.

use crate::errors::raise;
use crate::values::{given, text, wrong_type};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyMapping};
use rowclaim::Mapping;

static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static DECODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A mapping, and the DSN of the database its table is in when that is not the engine's.
pub(crate) struct Given {
    pub mapping: Mapping,
    pub dsn: Option<String>,
}

/// Reads a mapping given as a whole, by keywords, or both; keywords come last.
pub(crate) fn read(whole: Option<&Bound<'_, PyAny>>, entries: Option<&Bound<'_, PyDict>>, py: Python<'_>) -> PyResult<Given> {
    let all = PyDict::new(py);
    if let Some(whole) = given(whole) {
        let whole = whole.cast::<PyMapping>().map_err(|_| wrong_type("mapping", "a mapping of entries to values", whole))?;
        all.update(whole)?;
    }
    if let Some(entries) = entries {
        all.update(entries.as_mapping())?;
    }
    let dsn = given(all.get_item("dsn")?.as_ref()).map(|dsn| text("dsn", dsn)).transpose()?;
    if all.contains("dsn")? {
        all.del_item("dsn")?;
    }
    let json = ENCODE.import(py, "rowclaim._mapping", "encode")?.call1((all,))?;
    let mapping = Mapping::from_json(&text("mapping", &json)?).map_err(|error| raise(py, &error))?;
    Ok(Given { mapping, dsn })
}

/// The entries of a mapping in its JSON form, as a `dict`.
pub(crate) fn entries<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    DECODE.import(py, "json", "loads")?.call1((json,))
}
