//! `Rowclaim\Receipt`: that an effect has happened.

use crate::effect::decoded;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::Zval;
use std::cell::OnceCell;

/// That an effect has happened.
#[php_class]
#[php(name = "Rowclaim\\Receipt", flags = crate::CLASS)]
pub struct Receipt {
    inner: rowclaim::Receipt,
    response: OnceCell<Zval>,
}

impl Receipt {
    /// A receipt for PHP code.
    pub fn new(inner: rowclaim::Receipt) -> Self {
        Receipt { inner, response: OnceCell::new() }
    }
}

#[php_impl]
impl Receipt {
    /// The effect's key.
    #[php(getter)]
    pub fn get_key(&self) -> String {
        self.inner.key.clone()
    }

    /// The provider's response, decoded once. Throws `DecodeException`.
    #[php(getter)]
    pub fn get_response(&self) -> PhpResult<Zval> {
        let refusal = "the response cannot be read by PHP; rawResponse has its text";
        decoded(&self.response, refusal, self.inner.response.as_deref())
    }

    /// The response as JSON text, or null when an earlier one was too large to be kept.
    #[php(getter)]
    pub fn get_raw_response(&self) -> Option<String> {
        self.inner.response.clone()
    }

    /// How often it was begun.
    #[php(getter)]
    pub fn get_attempts(&self) -> i64 {
        self.inner.attempts
    }

    /// This call has sent it.
    #[php(getter)]
    pub fn get_fresh(&self) -> bool {
        self.inner.is_fresh
    }

    /// Whether the job it completes was still ours; null without a job.
    #[php(getter)]
    pub fn get_completed(&self) -> Option<bool> {
        self.inner.is_completed
    }
}
