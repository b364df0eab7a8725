//! `Rowclaim\Json`: JSON text that is stored as it is.

use crate::arguments::Text;
use crate::exceptions::invalid;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;

/// JSON text that becomes a payload, or a part of one, byte for byte.
#[php_class]
#[php(name = "Rowclaim\\Json", flags = crate::CLASS)]
pub struct Json {
    /// One JSON document.
    pub text: String,
}

#[php_impl]
impl Json {
    /// Takes one JSON document. Throws `InvalidException` for anything else.
    pub fn __construct(text: Text) -> PhpResult<Self> {
        let text = text.utf8("text")?;
        if let Err(error) = serde_json::from_str::<&serde_json::value::RawValue>(&text) {
            return invalid(format!("text is not JSON: {error}"));
        }
        Ok(Json { text })
    }

    /// The text.
    #[php(getter)]
    pub fn get_text(&self) -> String {
        self.text.clone()
    }

    /// The text.
    #[php(name = "__toString")]
    pub fn to_text(&self) -> String {
        self.text.clone()
    }
}
