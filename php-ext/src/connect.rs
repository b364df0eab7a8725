//! What an engine is told: the DSN, php.ini and the options, in this order of weight: options, DSN, php.ini.

use crate::arguments::Text;
use crate::exceptions::{exception, refuse};
use crate::ini;
use ext_php_rs::convert::FromZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendHashTable, Zval};
use rowclaim::{Config, ErrorKind};

/// The configuration of an engine.
///
/// # Errors
/// `ConfigException`.
pub fn config(dsn: Option<Text>, options: Option<&ZendHashTable>) -> PhpResult<Config> {
    let dsn = match dsn {
        Some(dsn) => Some(dsn.utf8("dsn")?),
        None => ini::get(ini::DSN),
    };
    let Some(dsn) = dsn else {
        return refuse(ErrorKind::Config, "no DSN: give one to connect, or set rowclaim.dsn in php.ini");
    };
    let mut config = Config::new(&dsn).map_err(|error| exception(&error))?;
    for (name, setting) in ini::OPTIONS {
        if let Some(value) = ini::get(setting)
            && !is_in_dsn(&dsn, name)
        {
            config.set(name, &value).map_err(|error| exception(&error))?;
        }
    }
    let Some(options) = options else { return Ok(config) };
    let mut entries = options.iter();
    while let Some((key, value)) = entries.next_zval() {
        let name = match key.long() {
            Some(number) => number.to_string(),
            None => key.zend_str().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned()).unwrap_or_default(),
        };
        if let Some(value) = option(&name, value)? {
            config.set(&name, &value).map_err(|error| exception(&error))?;
        }
    }
    Ok(config)
}

/// Options in a DSN are given after the question mark; the password comes before it.
fn is_in_dsn(dsn: &str, name: &str) -> bool {
    let query = dsn.split_once('?').map(|(_, query)| query).unwrap_or_default();
    query.split('&').any(|pair| pair.split('=').next() == Some(name))
}

/// The value of an option as the DSN would have it; `None` for null, which is as if it was not given.
fn option(name: &str, value: &Zval) -> PhpResult<Option<String>> {
    let value = value.dereference();
    if value.is_null() {
        return Ok(None);
    }
    if let Some(flag) = value.bool() {
        return Ok(Some(if flag { "1" } else { "0" }.to_owned()));
    }
    if let Some(number) = value.long() {
        return Ok(Some(number.to_string()));
    }
    if let Some(number) = value.double() {
        return Ok(Some(number.to_string()));
    }
    match value.zend_str().and_then(|_| Text::from_zval(value)) {
        Some(text) => text.utf8(name).map(Some),
        None => refuse(ErrorKind::Config, format!("option {name} must be a string, a number or a bool")),
    }
}
