//! Effects: what is done to the outside world, written down before and after, so that it is not done twice blindly.

use crate::bounds::check_effect_key;
use crate::error::{Error, ErrorKind, Result};
use crate::time::Timestamp;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The longest response that is kept, in bytes.
pub const MAX_RESPONSE: usize = 1 << 20;

/// What is done about an effect of which nobody knows whether it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnknown {
    /// A person decides ([`crate::Engine::resolve_effect`]): at most once.
    #[default]
    Hold,
    /// The provider is asked first.
    Ask,
    /// It is sent again under the same key: for a provider that knows the key and does a thing once.
    Retry,
}

impl OnUnknown {
    /// The policy of a name: `hold`, `ask` or `retry`.
    ///
    /// # Errors
    /// `Invalid` for any other word.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "hold" => Ok(OnUnknown::Hold),
            "ask" => Ok(OnUnknown::Ask),
            "retry" => Ok(OnUnknown::Retry),
            _ => Err(Error::invalid(format!("on_unknown must be hold, ask or retry, not {name}"))),
        }
    }
}

/// An effect that is to happen once.
#[derive(Clone, Debug)]
pub struct OnceRequest {
    /// 1 to 191 bytes: the same key is the same effect, byte for byte. Also the key for the provider.
    pub key: String,
    /// JSON text of what is asked of the provider; only its digest is kept. Order of members and blanks do not count.
    pub request: String,
    /// What is done when an earlier sender was lost between the provider's answer and its record.
    pub on_unknown: OnUnknown,
    /// A sender that is silent for longer is taken for lost; at least 1 second. Renewed in the background.
    pub lease: Duration,
    /// Wait so long for another sender of the same key.
    pub wait: Duration,
}

impl OnceRequest {
    /// An effect held for a person when it is unknown; a lease of 60 seconds; no waiting.
    pub fn new(key: impl Into<String>, request: impl Into<String>) -> Self {
        OnceRequest {
            key: key.into(),
            request: request.into(),
            on_unknown: OnUnknown::Hold,
            lease: Duration::from_secs(60),
            wait: Duration::ZERO,
        }
    }

    pub(crate) fn check(&self) -> Result<[u8; 32]> {
        check_effect_key(&self.key)?;
        crate::claim::check_lease(self.lease, None)?;
        let request: serde_json::Value =
            serde_json::from_str(&self.request).map_err(|e| Error::invalid(format!("the request is not JSON: {e}")))?;
        Ok(Sha256::digest(sorted(request).to_string().as_bytes()).into())
    }
}

/// The same value with the members of every object in order, so that PHP and Python ask for the same thing.
fn sorted(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().collect())
        }
        // 10.0 and 10 are the same number; not every language keeps them apart.
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => Value::from(float as i64),
            _ => Value::Number(number),
        },
        other => other,
    }
}

/// What a try to send came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The provider has done it; its response as JSON text. Over 1 MB it is not kept, only that it succeeded.
    Succeeded(String),
    /// It surely has not happened: it may be sent again.
    Failed(String),
    /// Nobody knows: a time-out, an exception in the middle.
    Unknown(String),
}

impl Sent {
    pub(crate) fn state(&self) -> EffectState {
        match self {
            Sent::Succeeded(_) => EffectState::Succeeded,
            Sent::Failed(_) => EffectState::Failed,
            Sent::Unknown(_) => EffectState::Unknown,
        }
    }
}

/// Where an effect stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectState {
    /// It has not happened and waits for its next try.
    Pending,
    /// Somebody is sending it now.
    Sending,
    /// It has happened; the response is kept.
    Succeeded,
    /// The last try has surely not happened; it may be tried again.
    Failed,
    /// Its sender was lost, or does not know: see [`OnUnknown`].
    Unknown,
}

impl EffectState {
    /// Every state.
    pub const ALL: [EffectState; 5] =
        [EffectState::Pending, EffectState::Sending, EffectState::Succeeded, EffectState::Failed, EffectState::Unknown];

    /// Its name, the same in SQL and in every language.
    pub fn name(self) -> &'static str {
        match self {
            EffectState::Pending => "pending",
            EffectState::Sending => "sending",
            EffectState::Succeeded => "succeeded",
            EffectState::Failed => "failed",
            EffectState::Unknown => "unknown",
        }
    }

    /// The state of a name.
    ///
    /// # Errors
    /// `Invalid` for any other word.
    pub fn parse(name: &str) -> Result<Self> {
        EffectState::ALL
            .into_iter()
            .find(|state| state.name() == name)
            .ok_or_else(|| Error::invalid(format!("state {name} is none of pending, sending, succeeded, failed, unknown")))
    }
}

/// An effect as it stands in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectRecord {
    /// Its number in the ledger.
    pub id: i64,
    /// Its key.
    pub key: String,
    /// Where it stands. A sender whose lease is over counts as `Unknown`.
    pub state: EffectState,
    /// How often it was begun.
    pub attempts: i64,
    /// Who sends or last sent it, for people.
    pub holder: String,
    /// The response as JSON text, once it has succeeded and unless it was too large.
    pub response: Option<String>,
    /// What went wrong last.
    pub error: Option<String>,
    /// While it is being sent: when its sender counts as lost.
    pub lease_until: Timestamp,
    /// When it was first begun.
    pub created_at: Timestamp,
    /// When it was last begun.
    pub started_at: Timestamp,
    /// When it ended; `None` while it is being sent.
    pub finished_at: Option<Timestamp>,
}

/// That an effect has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The effect's key.
    pub key: String,
    /// The provider's response as JSON text; `None` when an earlier one was too large to be kept.
    pub response: Option<String>,
    /// How often it was begun.
    pub attempts: i64,
    /// This call has sent it; otherwise it had happened before.
    pub is_fresh: bool,
    /// For an effect that completes a job: whether the job was still ours. `None` without a job.
    pub is_completed: Option<bool>,
}

/// The answer to [`crate::blocking::Engine::once`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once {
    /// It has happened, now or before.
    Done(Receipt),
    /// It surely has not happened; a later call may try again.
    Failed(EffectRecord),
    /// Another process is sending it right now.
    Busy(EffectRecord),
    /// Nobody knows whether it happened: a person decides, or the provider must be asked again.
    Unknown(EffectRecord),
}

impl Once {
    /// The receipt, or an error that says why there is none: for callers that go on only when it has happened.
    ///
    /// # Errors
    /// `Busy` while another process sends it, `Unknown` while nobody knows, `Unavailable` when it has failed and may be tried
    /// again.
    pub fn receipt(self) -> Result<Receipt> {
        let why = |record: &EffectRecord| record.error.clone().unwrap_or_else(|| "no reason is known".to_owned());
        let (kind, message) = match self {
            Once::Done(receipt) => return Ok(receipt),
            Once::Failed(record) => (ErrorKind::Unavailable, format!("effect {} was not sent: {}", record.key, why(&record))),
            Once::Busy(record) => (ErrorKind::Busy, format!("effect {} is being sent by {}", record.key, record.holder)),
            Once::Unknown(record) => (
                ErrorKind::Unknown,
                format!("nobody knows whether effect {} has happened ({}); resolve it", record.key, why(&record)),
            ),
        };
        Err(Error::new(kind, message).during("once"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_of_what_is_asked_not_of_how_it_is_written() {
        let digest = |request: &str| OnceRequest::new("k", request).check().unwrap();
        assert_eq!(
            digest(r#"{"a":1,"b":[1.0,{"x":"é","y":null}]}"#),
            digest("{ \"b\" : [1, {\"y\":null,\"x\":\"\\u00e9\"}],\"a\":1}")
        );
        for other in [r#"{"a":1}"#, r#"{"a":"1"}"#, r#"{"a":2}"#, "[1]", "1", "null"] {
            let rest = [r#"{"a":1}"#, r#"{"a":"1"}"#, r#"{"a":2}"#, "[1]", "1", "null"].into_iter().filter(|text| *text != other);
            rest.for_each(|text| assert_ne!(digest(text), digest(other)));
        }
        assert!(OnceRequest::new("k", "{").check().is_err());
    }
}
