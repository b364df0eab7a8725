//! Values in and out of statements, without loss and without guessing.

use crate::error::{Error, Result};
use crate::time::Timestamp;

/// A value of a column: bound, or read.
///
/// What is bound to a column of a mapped table is first converted to the column's type, or refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// NULL.
    Null,
    /// A whole number.
    Int(i64),
    /// A whole number above 2^63 - 1, of a column without sign.
    UInt(u64),
    /// A binary fraction.
    Float(f64),
    /// A decimal fraction, digit for digit.
    Decimal(String),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A date, a time or both, as it is stored: in the column's own zone.
    Moment(String),
    /// An instant.
    At(Timestamp),
}

impl Value {
    /// The text of a text, a decimal fraction or a moment.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) | Value::Decimal(text) | Value::Moment(text) => Some(text),
            _ => None,
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}
impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}
impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Self {
        Value::At(at)
    }
}
impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value::Bytes(bytes.to_vec())
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// A whole statement and its values in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statement {
    pub sql: String,
    pub values: Vec<Value>,
}

/// One row that was read; columns by position.
#[derive(Clone, Debug)]
pub(crate) struct Row(pub Vec<Value>);

impl Row {
    fn at(&self, column: usize) -> Result<&Value> {
        self.0.get(column).ok_or_else(|| Error::decode(format!("column {column} is missing")))
    }

    pub(crate) fn int(&self, column: usize) -> Result<i64> {
        match self.at(column)? {
            Value::Int(number) => Ok(*number),
            _ => Err(Error::decode(format!("column {column} is not a whole number"))),
        }
    }

    pub(crate) fn text(&self, column: usize) -> Result<String> {
        match self.at(column)? {
            Value::Text(text) | Value::Moment(text) | Value::Decimal(text) => Ok(text.clone()),
            Value::Bytes(bytes) => {
                String::from_utf8(bytes.clone()).map_err(|_| Error::decode(format!("column {column} is not UTF-8")))
            }
            _ => Err(Error::decode(format!("column {column} is not text"))),
        }
    }

    /// As [`Row::text`], without a copy; the column is NULL afterwards.
    pub(crate) fn take_text(&mut self, column: usize) -> Result<String> {
        match self.0.get_mut(column).map(|v| std::mem::replace(v, Value::Null)) {
            Some(Value::Text(text)) => Ok(text),
            Some(Value::Bytes(bytes)) => {
                String::from_utf8(bytes).map_err(|_| Error::decode(format!("column {column} is not UTF-8")))
            }
            _ => Err(Error::decode(format!("column {column} is not text"))),
        }
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<Vec<u8>> {
        match self.at(column)? {
            Value::Bytes(bytes) => Ok(bytes.clone()),
            Value::Text(text) => Ok(text.clone().into_bytes()),
            _ => Err(Error::decode(format!("column {column} is not bytes"))),
        }
    }

    /// The value itself; the column is NULL afterwards.
    pub(crate) fn take(&mut self, column: usize) -> Value {
        self.0.get_mut(column).map_or(Value::Null, |value| std::mem::replace(value, Value::Null))
    }

    pub(crate) fn time(&self, column: usize) -> Result<Timestamp> {
        match self.at(column)? {
            Value::At(at) => Ok(*at),
            Value::Int(micros) => Ok(Timestamp(*micros)),
            _ => Err(Error::decode(format!("column {column} is not an instant"))),
        }
    }

    pub(crate) fn is_null(&self, column: usize) -> bool {
        matches!(self.0.get(column), None | Some(Value::Null))
    }

    pub(crate) fn opt<T>(&self, column: usize, get: impl Fn(&Row, usize) -> Result<T>) -> Result<Option<T>> {
        if self.is_null(column) { Ok(None) } else { get(self, column).map(Some) }
    }
}
