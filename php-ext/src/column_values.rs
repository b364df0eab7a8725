//! Values of a user's columns: PHP's become the core's, and the core's become PHP's.
//!
//! Nothing is guessed here: what a column takes is the core's to say, by the column's name. The one thing to know: a
//! string is text when it is UTF-8 and bytes when it is not, and comes out byte for byte either way.

use crate::arguments::{Seconds, Text, date_time, typed};
use crate::exceptions::refuse;
use crate::rows::Array;
use crate::values::read_property;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendHashTable, ZendStr, Zval};
use ext_php_rs::zend::ClassEntry;
use rowclaim::{ClaimedRow, ErrorKind, Filters, Outcome, Value};

const EXPECTED: &str = "string|int|float|bool|DateTimeInterface|BackedEnum|null";

/// A value for a column; `name` is what messages call it.
///
/// # Errors
/// `TypeError`; `InvalidException` for an instant that is too far away.
pub fn value(name: &str, given: &Zval) -> PhpResult<Value> {
    let given = given.dereference();
    if given.is_null() {
        return Ok(Value::Null);
    }
    if let Some(flag) = given.bool() {
        return Ok(Value::Int(i64::from(flag)));
    }
    if let Some(number) = given.long() {
        return Ok(Value::Int(number));
    }
    if let Some(number) = given.double() {
        return Ok(Value::Float(number));
    }
    if let Some(object) = given.object() {
        let is = |class: &str| ClassEntry::try_find(class).is_some_and(|class| object.instance_of(class));
        if is("DateTimeInterface") {
            return date_time(name, given).map(Value::At);
        }
        if is("BackedEnum") {
            return value(name, &read_property(object, "value")?);
        }
    }
    Ok(match typed::<Text>(name, EXPECTED, given)?.into_utf8() {
        Ok(text) => Value::Text(text),
        Err(bytes) => Value::Bytes(bytes),
    })
}

/// The PHP value of a column's value.
///
/// # Errors
/// `DecodeException` for a value of a kind that this extension does not know.
pub fn zval(value: &Value) -> PhpResult<Zval> {
    let mut out = Zval::null();
    let mut text = |bytes: &[u8]| out.set_zend_string(ZendStr::new(bytes, false));
    match value {
        Value::Null => {}
        Value::Int(number) => out.set_long(*number),
        // PHP has no whole numbers of this size, and a float would lose digits.
        Value::UInt(number) => text(number.to_string().as_bytes()),
        Value::Float(number) => out.set_double(*number),
        Value::Decimal(digits) => text(digits.as_bytes()),
        Value::Text(string) | Value::Moment(string) => text(string.as_bytes()),
        Value::Bytes(bytes) => text(bytes),
        Value::At(at) => out.set_double(at.as_unix_seconds()),
        _ => return refuse(ErrorKind::Decode, "a column has a value of a kind that this extension does not know"),
    }
    Ok(out)
}

/// Columns and values of a row, in order.
///
/// # Errors
/// As [`zval`].
pub fn array(row: &ClaimedRow) -> PhpResult<Array> {
    let mut out = ZendHashTable::new();
    for (column, value) in row.iter() {
        out.insert(column, zval(value)?)?;
    }
    Ok(out)
}

/// Conditions of `['task_id' => 42, 'type' => ['sms', 'mail'], 'deleted_at' => null]`.
///
/// # Errors
/// As [`value`]; `InvalidException` for a column that is not UTF-8.
pub fn filters(given: Option<&ZendHashTable>) -> PhpResult<Filters> {
    let mut filters = Filters::none();
    for (column, wanted) in columns("where", given)? {
        let name = format!("where: {column}");
        filters = match wanted.dereference().array() {
            Some(list) => filters.any(column, values(&name, list)?),
            None => filters.equal(column, value(&name, wanted)?),
        };
    }
    Ok(filters)
}

/// Keys of rows.
///
/// # Errors
/// As [`value`].
pub fn keys(list: &ZendHashTable) -> PhpResult<Vec<Value>> {
    values("keys", list)
}

fn values(name: &str, list: &ZendHashTable) -> PhpResult<Vec<Value>> {
    let mut values = Vec::with_capacity(list.len());
    let mut entries = list.iter();
    while let Some((_, given)) = entries.next_zval() {
        values.push(value(name, given)?);
    }
    Ok(values)
}

/// Names and values of an array.
fn columns<'a>(argument: &str, given: Option<&'a ZendHashTable>) -> PhpResult<Vec<(String, &'a Zval)>> {
    let mut columns = Vec::new();
    let Some(given) = given else { return Ok(columns) };
    let mut entries = given.iter();
    while let Some((key, value)) = entries.next_zval() {
        columns.push((name(argument, &key)?, value));
    }
    Ok(columns)
}

/// Columns and the values they are to have; `argument` is what messages call the array.
///
/// # Errors
/// As [`value`].
pub fn written(argument: &str, given: &ZendHashTable) -> PhpResult<Vec<(String, Value)>> {
    let fit = |(column, given): (String, &Zval)| value(&format!("{argument}: {column}"), given).map(|value| (column, value));
    columns(argument, Some(given))?.into_iter().map(fit).collect()
}

/// The name in the key of an array's entry.
///
/// # Errors
/// `InvalidException` when it is not UTF-8.
pub fn name(argument: &str, key: &Zval) -> PhpResult<String> {
    match key.long() {
        Some(number) => Ok(number.to_string()),
        None => typed::<Text>(argument, "array by name", key)?.utf8(&format!("{argument}: a name")),
    }
}

/// `'-priority'` or `['-priority', 'id']`.
///
/// # Errors
/// `TypeError`, `InvalidException`.
pub fn order(given: Option<&Zval>) -> PhpResult<Vec<String>> {
    names("order", given)
}

/// One name or several.
///
/// # Errors
/// `InvalidException` for what is no text.
pub fn names(argument: &'static str, given: Option<&Zval>) -> PhpResult<Vec<String>> {
    let Some(given) = given.map(Zval::dereference).filter(|given| !given.is_null()) else { return Ok(Vec::new()) };
    let Some(list) = given.array() else {
        return Ok(vec![typed::<Text>(argument, "string|array|null", given)?.utf8(argument)?]);
    };
    let mut names = Vec::with_capacity(list.len());
    let mut entries = list.iter();
    while let Some((_, name)) = entries.next_zval() {
        names.push(typed::<Text>(argument, "array of strings", name)?.utf8(argument)?);
    }
    Ok(names)
}

/// The outcome of a completion.
///
/// # Errors
/// As [`value`].
pub fn completion(set: Option<&ZendHashTable>, delay: Option<Seconds>) -> PhpResult<Outcome> {
    let delay = delay.map(|delay| delay.span("delay")).transpose()?;
    let set = set.map(|set| written("set", set)).transpose()?.unwrap_or_default();
    if set.is_empty() && delay.is_none() {
        return Ok(Outcome::Complete);
    }
    Ok(Outcome::CompleteWith { set, delay })
}
