//! The one place where an identifier gets into SQL.
//!
//! Own tables need a prefix only; `rowclaim_migrations::Names` quotes what is built from it.

use crate::error::{Error, Result};

/// A table prefix: at most 32 letters, digits and underscores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prefix(String);

impl Prefix {
    /// Checks `text`.
    ///
    /// # Errors
    /// `Config` when it is longer than 32 or holds anything but letters, digits and underscores.
    pub fn new(text: &str) -> Result<Self> {
        let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if text.len() > 32 || !is_plain {
            return Err(Error::config("prefix must be at most 32 letters, digits or underscores"));
        }
        Ok(Prefix(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Prefix("rowclaim_".to_owned())
    }
}
