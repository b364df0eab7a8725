//! `Rowclaim\Effect` and `Rowclaim\EffectRecord`: an effect in its sender's hands, and one as it stands in the ledger.

use crate::values::from_json;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::Zval;
use rowclaim::Timestamp;
use std::cell::OnceCell;

/// The PHP value of a stored response, decoded when it is first asked for; null for none.
///
/// # Errors
/// `DecodeException` with `refusal`.
pub fn decoded(value: &OnceCell<Zval>, refusal: &str, json: Option<&str>) -> PhpResult<Zval> {
    if let Some(value) = value.get() {
        return Ok(value.shallow_clone());
    }
    let read = json.map_or_else(|| Ok(Zval::null()), |json| from_json(refusal, json))?;
    Ok(value.get_or_init(|| read).shallow_clone())
}

/// An effect that is being sent, or asked about.
#[php_class]
#[php(name = "Rowclaim\\Effect", flags = crate::CLASS)]
pub struct Effect(pub rowclaim::blocking::Effect);

#[php_impl]
impl Effect {
    /// Its key, for the provider.
    #[php(getter)]
    pub fn get_key(&self) -> String {
        self.0.key().to_owned()
    }

    /// Which try this is, from 1.
    #[php(getter)]
    pub fn get_attempts(&self) -> i64 {
        self.0.attempts()
    }

    /// For how many seconds the ledger surely holds it for this sender.
    #[php(getter)]
    pub fn get_valid_for(&self) -> f64 {
        self.0.valid_for().as_secs_f64()
    }
}

/// An effect as it stands in the ledger.
#[php_class]
#[php(name = "Rowclaim\\EffectRecord", flags = crate::CLASS)]
pub struct EffectRecord {
    inner: rowclaim::EffectRecord,
    response: OnceCell<Zval>,
}

impl EffectRecord {
    /// A record for PHP code.
    pub fn new(inner: rowclaim::EffectRecord) -> Self {
        EffectRecord { inner, response: OnceCell::new() }
    }
}

#[php_impl]
impl EffectRecord {
    /// Its number in the ledger.
    #[php(getter)]
    pub fn get_id(&self) -> i64 {
        self.inner.id
    }

    /// Its key.
    #[php(getter)]
    pub fn get_key(&self) -> String {
        self.inner.key.clone()
    }

    /// Where it stands.
    #[php(getter)]
    pub fn get_state(&self) -> String {
        self.inner.state.name().to_owned()
    }

    /// How often it was begun.
    #[php(getter)]
    pub fn get_attempts(&self) -> i64 {
        self.inner.attempts
    }

    /// Who sends or last sent it.
    #[php(getter)]
    pub fn get_holder(&self) -> String {
        self.inner.holder.clone()
    }

    /// The response, decoded once; null before it has succeeded. Throws `DecodeException`.
    #[php(getter)]
    pub fn get_response(&self) -> PhpResult<Zval> {
        decoded(&self.response, "the response cannot be read by PHP", self.inner.response.as_deref())
    }

    /// What went wrong last.
    #[php(getter)]
    pub fn get_error(&self) -> Option<String> {
        self.inner.error.clone()
    }

    /// When its sender counts as lost, in seconds since 1970.
    #[php(getter)]
    pub fn get_lease_until(&self) -> f64 {
        self.inner.lease_until.as_unix_seconds()
    }

    /// When it was first begun.
    #[php(getter)]
    pub fn get_created_at(&self) -> f64 {
        self.inner.created_at.as_unix_seconds()
    }

    /// When it was last begun.
    #[php(getter)]
    pub fn get_started_at(&self) -> f64 {
        self.inner.started_at.as_unix_seconds()
    }

    /// When it ended.
    #[php(getter)]
    pub fn get_finished_at(&self) -> Option<f64> {
        self.inner.finished_at.map(Timestamp::as_unix_seconds)
    }
}
