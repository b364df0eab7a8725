//! Sets of keys of a mapped table: whole numbers go as runs like the ids of jobs, texts and bytes as lists.

use super::ids::{CHUNK, Ids, pad};
use crate::error::{Error, Result};
use crate::value::Value;

/// Distinct keys in the order of the table's key, as far as it can be known here.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Keys {
    Whole(Ids),
    /// Texts or bytes.
    Listed(Vec<Value>),
}

impl Keys {
    /// # Errors
    /// `Decode` for a key that is no whole number up to 2^63 - 1, text or bytes.
    pub(crate) fn new(keys: impl IntoIterator<Item = Value>) -> Result<Self> {
        let mut whole = Vec::new();
        let mut listed: Vec<Value> = Vec::new();
        for key in keys {
            match key {
                Value::Int(number) => whole.push(number),
                Value::Text(_) | Value::Bytes(_) => listed.push(key),
                _ => return Err(Error::decode("a key is no whole number up to 2^63 - 1, no text and no bytes")),
            }
        }
        if listed.is_empty() {
            return Ok(Keys::Whole(whole.into_iter().collect()));
        }
        if !whole.is_empty() {
            return Err(Error::decode("keys of different types in one claim"));
        }
        // One order for all processes, so that they lock rows in the same one.
        listed.sort_by(|a, b| bytes_of(a).cmp(bytes_of(b)));
        listed.dedup();
        Ok(Keys::Listed(listed))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Keys::Whole(ids) => ids.len(),
            Keys::Listed(keys) => keys.len(),
        }
    }

    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = Value> + '_> {
        match self {
            Keys::Whole(ids) => Box::new(ids.iter().map(Value::Int)),
            Keys::Listed(keys) => Box::new(keys.iter().cloned()),
        }
    }

    /// Parts of at most [`CHUNK`] keys.
    pub(crate) fn chunks(&self) -> Vec<Keys> {
        match self {
            Keys::Whole(ids) => ids.chunks().map(Keys::Whole).collect(),
            Keys::Listed(keys) => keys.chunks(CHUNK).map(|part| Keys::Listed(part.to_vec())).collect(),
        }
    }

    /// That a column is one of the keys, and the values to bind.
    pub(crate) fn condition(&self, column: &str) -> (String, Vec<Value>) {
        match self {
            Keys::Whole(ids) => ids.condition(column),
            Keys::Listed(keys) => {
                let mut keys = keys.clone();
                pad(&mut keys);
                (format!("{column} IN ({})", super::spread("{list}", "{list}", "?", keys.len())), keys)
            }
        }
    }

    /// The stored form: runs of numbers, or a JSON list in ASCII in which bytes are lists of one hexadecimal text.
    pub(crate) fn to_text(&self) -> String {
        let Keys::Listed(keys) = self else {
            let Keys::Whole(ids) = self else { return String::new() };
            return ids.to_text();
        };
        let list = keys.iter().map(|key| match key {
            Value::Bytes(bytes) => serde_json::json!([bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()]),
            other => crate::mapping::json_of(other),
        });
        let json = serde_json::Value::Array(list.collect()).to_string();
        let mut ascii = String::with_capacity(json.len());
        for letter in json.chars() {
            if letter.is_ascii() {
                ascii.push(letter);
            } else {
                let mut units = [0u16; 2];
                for unit in letter.encode_utf16(&mut units) {
                    ascii += &format!("\\u{unit:04x}");
                }
            }
        }
        ascii
    }

    /// Reads the stored form.
    pub(crate) fn from_text(text: &str) -> Result<Self> {
        if !text.starts_with('[') {
            return Ids::from_text(text).map(Keys::Whole);
        }
        let broken = || Error::decode("the claim's job_ids are no list of keys");
        let list: Vec<serde_json::Value> = serde_json::from_str(text).map_err(|_| broken())?;
        let keys = list.iter().map(|key| match key {
            serde_json::Value::String(text) => Ok(Value::Text(text.clone())),
            serde_json::Value::Array(bytes) => {
                let hex = bytes.first().and_then(serde_json::Value::as_str).ok_or_else(broken)?;
                let byte = |at| hex.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(broken);
                (0..hex.len()).step_by(2).map(byte).collect::<Result<_>>().map(Value::Bytes)
            }
            _ => Err(broken()),
        });
        Keys::new(keys.collect::<Result<Vec<_>>>()?)
    }
}

fn bytes_of(key: &Value) -> &[u8] {
    match key {
        Value::Text(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        _ => &[],
    }
}

/// A key as people read it, and as the attempts ledger keeps it: at most 191 characters.
pub(crate) fn shown(key: &Value) -> String {
    let mut text = match key {
        Value::Int(number) => number.to_string(),
        Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        other => other.as_text().unwrap_or_default().to_owned(),
    };
    crate::config::truncate(&mut text, 191);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_stored_form() {
        let text = |text: &str| Value::Text(text.into());
        for keys in [
            vec![Value::Int(3), Value::Int(1), Value::Int(2)],
            vec![text("b"), text("a\"'ä🎉"), text("1-3")],
            vec![Value::Bytes(vec![0, 255, 16]), Value::Bytes(vec![1])],
            vec![],
        ] {
            let keys = Keys::new(keys).unwrap();
            let stored = keys.to_text();
            assert!(stored.is_ascii(), "{stored}");
            assert_eq!(Keys::from_text(&stored).unwrap(), keys);
        }
        for broken in ["[1]", "[[\"0\"]]", "[\"a\"", "[[\"zz\"]]"] {
            assert!(Keys::from_text(broken).is_err(), "{broken}");
        }
        assert!(Keys::new([Value::Null]).is_err());
    }
}
