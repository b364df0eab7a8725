//! Values in and out of statements, without loss and without guessing.

use crate::error::{Error, Result};
use crate::time::Timestamp;

/// A bound value, or one that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    At(Timestamp),
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
            Value::Text(text) => Ok(text.clone()),
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
