//! A mapping given as a PHP array becomes the core's by its JSON form: its entries, their defaults and what is wrong with
//! them are the core's alone. Only `dsn` is looked at here: it says which engine the table belongs to.

use crate::arguments::Text;
use crate::column_values::name;
use crate::exceptions::{exception, refuse};
use crate::values::to_json;
use ext_php_rs::convert::FromZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendHashTable, Zval};
use rowclaim::{ErrorKind, Mapping};

/// A mapping, and the DSN of the table's own database.
pub struct Given {
    /// Without the DSN.
    pub mapping: Mapping,
    /// `dsn`
    pub dsn: Option<Text>,
}

/// Reads a mapping.
///
/// # Errors
/// `ConfigException`, naming the entry.
pub fn read(entries: &ZendHashTable) -> PhpResult<Given> {
    let mut dsn = None;
    let mut parts = Vec::with_capacity(entries.len());
    let mut entries = entries.iter();
    while let Some((key, value)) = entries.next_zval() {
        let value = value.dereference();
        match name("mapping", &key)?.as_str() {
            "dsn" => dsn = own_dsn(value)?,
            name => parts.push(format!("{}:{}", serde_json::json!(name), json(name, value)?)),
        }
    }
    let mapping = Mapping::from_json(&format!("{{{}}}", parts.join(","))).map_err(|error| exception(&error))?;
    Ok(Given { mapping, dsn })
}

/// The JSON text of an entry. An empty array is an object where one is meant.
fn json(name: &str, value: &Zval) -> PhpResult<String> {
    match value.array() {
        Some(array) if name == "scope" && array.is_empty() => Ok("{}".to_owned()),
        _ => to_json(ErrorKind::Config, &format!("mapping: {name}"), value),
    }
}

fn own_dsn(value: &Zval) -> PhpResult<Option<Text>> {
    if value.is_null() {
        return Ok(None);
    }
    match value.zend_str().and_then(|_| Text::from_zval(value)) {
        Some(dsn) => Ok(Some(dsn)),
        None => refuse(ErrorKind::Config, "mapping: dsn must be a string"),
    }
}
