//! What a user says about a table of theirs: which column is the key, the status, the token, and so on.
//!
//! A [`Mapping`] is words only; whether they fit the table is found out by `plan/table.rs` against the table itself.
//! Its JSON form is the same in every language, in the console's configuration file and in the registry of mapped tables.

use crate::claim::OnLost;
use crate::error::{Error, Result};
use crate::time::span_from_seconds;
use crate::value::Value;
use serde_json::{Map, Value as Json, json};
use std::time::Duration;

/// The unit of whole-number time columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Seconds since 1970 (UTC).
    #[default]
    Seconds,
    /// Milliseconds since 1970 (UTC).
    Milliseconds,
}

/// The most attempts of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum MaxAttempts {
    /// The same for every row.
    Number(i64),
    /// The row's own column says it.
    Column(String),
}

/// A mapping of one table. Columns are named as the table names them.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// The primary key, or a unique column; the primary key when `None`. `key`.
    pub key: Option<String>,
    /// Says where a row stands. `status`.
    pub status: String,
    /// The status of a row that waits. `pending`.
    pub pending: Value,
    /// The status of a row that is held. `processing`.
    pub processing: Value,
    /// The status of a row that is done; the same as `pending` for rows that recur. `done`.
    pub done: Value,
    /// The status of a row that is out of attempts. Without it a failed row goes back to `pending`. `failed`.
    pub failed: Option<Value>,
    /// The status of a row that was begun and waits for a person; `on_lost` hold needs it. `held`.
    pub held: Option<Value>,
    /// What becomes of rows that were begun when their claim's lease runs out. `on_lost`: retry or hold.
    pub on_lost: OnLost,
    /// Names the claim that holds the row: at least 32 characters, or 16 bytes. `token`.
    pub token: String,
    /// When the row was claimed. `claimed_at`.
    pub claimed_at: Option<String>,
    /// Until when the row is held. `lease_until`.
    pub lease_until: Option<String>,
    /// Who holds the row, for people. `locked_by`.
    pub locked_by: Option<String>,
    /// Attempts so far, counted when the row is claimed. `attempts`.
    pub attempts: Option<String>,
    /// Attempts before the row is failed; no limit when `None`. A column or a number. `max_attempts`.
    pub max_attempts: Option<MaxAttempts>,
    /// The row is not handed out before; NULL is at once. `available_at`.
    pub available_at: Option<String>,
    /// What went wrong last. `error`.
    pub error: Option<String>,
    /// When the row was done or failed. `finished_at`.
    pub finished_at: Option<String>,
    /// Smaller is handed out first. `priority`.
    pub priority: Option<String>,
    /// A number that is raised with every claim of the row. `fence`.
    pub fence: Option<String>,
    /// Only rows with these values are ever touched. `scope`.
    pub scope: Vec<(String, Value)>,
    /// Columns that rows come with; all when `None`. `columns`.
    pub columns: Option<Vec<String>>,
    /// The zone of DATETIME columns: `UTC`, an offset such as `+08:00`, or a name such as `Asia/Shanghai`. `zone`.
    pub zone: Option<String>,
    /// The unit of whole-number time columns. `unit`.
    pub unit: Unit,
    /// Rows that other code left in `processing` come back after this time. `recover_after`, in seconds.
    pub recover_after: Option<Duration>,
    /// The wait after the first failed attempt; the engine's when `None`. `backoff_base`, in seconds.
    pub backoff_base: Option<Duration>,
    /// The longest wait; the engine's when `None`. `backoff_cap`, in seconds.
    pub backoff_cap: Option<Duration>,
    /// The lease of claims that name none; the engine's when `None`. `lease`, in seconds.
    pub lease: Option<Duration>,
    /// Claims are recorded in Rowclaim's own tables. Without, the lease is in the row. `registry`: on or off.
    pub registry: bool,
}

impl Mapping {
    /// A mapping with only what every mapping has.
    pub fn new(status: impl Into<String>, token: impl Into<String>, pending: Value, processing: Value, done: Value) -> Self {
        Mapping {
            key: None,
            status: status.into(),
            pending,
            processing,
            done,
            failed: None,
            held: None,
            on_lost: OnLost::Retry,
            token: token.into(),
            claimed_at: None,
            lease_until: None,
            locked_by: None,
            attempts: None,
            max_attempts: None,
            available_at: None,
            error: None,
            finished_at: None,
            priority: None,
            fence: None,
            scope: Vec::new(),
            columns: None,
            zone: None,
            unit: Unit::Seconds,
            recover_after: None,
            backoff_base: None,
            backoff_cap: None,
            lease: None,
            registry: true,
        }
    }

    /// Reads the JSON form: an object with the names above, for instance
    /// `{"status": "status", "pending": 0, "processing": 1, "done": 2, "token": "cron_token"}`.
    ///
    /// # Errors
    /// `Config`, naming the entry that is missing, unknown or wrong.
    pub fn from_json(text: &str) -> Result<Self> {
        let json: Json = serde_json::from_str(text).map_err(|e| Error::config(format!("the mapping is not JSON: {e}")))?;
        let Json::Object(entries) = json else { return Err(Error::config("the mapping is no object")) };
        let mut entries = Entries(entries);
        let mapping = Mapping {
            status: entries.required("status", text_of)?,
            pending: entries.required("pending", value_of)?,
            processing: entries.required("processing", value_of)?,
            done: entries.required("done", value_of)?,
            token: entries.required("token", text_of)?,
            key: entries.optional("key", text_of)?,
            failed: entries.optional("failed", value_of)?,
            held: entries.optional("held", value_of)?,
            on_lost: entries.optional("on_lost", |json| OnLost::parse(json.as_str()?).ok())?.unwrap_or_default(),
            claimed_at: entries.optional("claimed_at", text_of)?,
            lease_until: entries.optional("lease_until", text_of)?,
            locked_by: entries.optional("locked_by", text_of)?,
            attempts: entries.optional("attempts", text_of)?,
            max_attempts: entries.optional("max_attempts", max_attempts_of)?,
            available_at: entries.optional("available_at", text_of)?,
            error: entries.optional("error", text_of)?,
            finished_at: entries.optional("finished_at", text_of)?,
            priority: entries.optional("priority", text_of)?,
            fence: entries.optional("fence", text_of)?,
            scope: entries.optional("scope", scope_of)?.unwrap_or_default(),
            columns: entries.optional("columns", texts_of)?,
            zone: entries.optional("zone", text_of)?,
            unit: entries.optional("unit", unit_of)?.unwrap_or_default(),
            recover_after: entries.optional("recover_after", span_of)?,
            backoff_base: entries.optional("backoff_base", span_of)?,
            backoff_cap: entries.optional("backoff_cap", span_of)?,
            lease: entries.optional("lease", span_of)?,
            registry: entries.optional("registry", switch_of)?.unwrap_or(true),
        };
        match entries.0.keys().next() {
            Some(unknown) => Err(Error::config(format!("mapping: {unknown} is unknown; see the README for its entries"))),
            None => Ok(mapping),
        }
    }

    /// The JSON form, with only what differs from the defaults; the same mapping gives the same text.
    pub fn to_json(&self) -> String {
        let mut json = Map::new();
        let mut put = |name: &str, value: Option<Json>| {
            if let Some(value) = value {
                json.insert(name.to_owned(), value);
            }
        };
        let seconds = |span: Option<Duration>| span.map(|span| json!(span.as_secs_f64()));
        put("key", self.key.clone().map(Json::from));
        put("status", Some(json!(self.status)));
        put("pending", Some(json_of(&self.pending)));
        put("processing", Some(json_of(&self.processing)));
        put("done", Some(json_of(&self.done)));
        put("failed", self.failed.as_ref().map(json_of));
        put("held", self.held.as_ref().map(json_of));
        put("on_lost", (self.on_lost == OnLost::Hold).then(|| json!("hold")));
        put("token", Some(json!(self.token)));
        for (name, column) in self.optional_columns() {
            put(name, column.map(Json::from));
        }
        put(
            "max_attempts",
            self.max_attempts.as_ref().map(|max| match max {
                MaxAttempts::Number(number) => json!(number),
                MaxAttempts::Column(column) => json!(column),
            }),
        );
        let scope: Map<String, Json> = self.scope.iter().map(|(column, value)| (column.clone(), json_of(value))).collect();
        put("scope", (!scope.is_empty()).then_some(Json::Object(scope)));
        put("columns", self.columns.as_ref().map(|columns| json!(columns)));
        put("zone", self.zone.clone().map(Json::from));
        put("unit", (self.unit == Unit::Milliseconds).then(|| json!("milliseconds")));
        put("recover_after", seconds(self.recover_after));
        put("backoff_base", seconds(self.backoff_base));
        put("backoff_cap", seconds(self.backoff_cap));
        put("lease", seconds(self.lease));
        put("registry", (!self.registry).then(|| json!("off")));
        Json::Object(json).to_string()
    }

    /// The optional roles a column can have, by name.
    pub(crate) fn optional_columns(&self) -> [(&'static str, Option<&str>); 9] {
        [
            ("claimed_at", self.claimed_at.as_deref()),
            ("lease_until", self.lease_until.as_deref()),
            ("locked_by", self.locked_by.as_deref()),
            ("attempts", self.attempts.as_deref()),
            ("available_at", self.available_at.as_deref()),
            ("error", self.error.as_deref()),
            ("finished_at", self.finished_at.as_deref()),
            ("priority", self.priority.as_deref()),
            ("fence", self.fence.as_deref()),
        ]
    }
}

/// The entries of an object that were not looked at yet.
struct Entries(Map<String, Json>);

impl Entries {
    fn optional<T>(&mut self, name: &str, read: impl Fn(&Json) -> Option<T>) -> Result<Option<T>> {
        match self.0.remove(name) {
            None => Ok(None),
            // Only scopes and statuses can be NULL, and a NULL status would never be found by an equality.
            Some(Json::Null) => Ok(None),
            Some(json) => {
                let value = read(&json);
                value.map(Some).ok_or_else(|| Error::config(format!("mapping: {name} cannot be {json}")))
            }
        }
    }

    fn required<T>(&mut self, name: &str, read: impl Fn(&Json) -> Option<T>) -> Result<T> {
        self.optional(name, read)?.ok_or_else(|| Error::config(format!("mapping: {name} is missing")))
    }
}

fn text_of(json: &Json) -> Option<String> {
    json.as_str().map(str::to_owned)
}

fn texts_of(json: &Json) -> Option<Vec<String>> {
    let list = json.as_array().filter(|list| !list.is_empty())?;
    list.iter().map(text_of).collect()
}

pub(crate) fn value_of(json: &Json) -> Option<Value> {
    match json {
        Json::Null => Some(Value::Null),
        Json::Bool(is_so) => Some(Value::Int(i64::from(*is_so))),
        Json::Number(number) => {
            let whole = number.as_i64().map(Value::Int).or_else(|| number.as_u64().map(Value::UInt));
            whole.or_else(|| number.as_f64().map(Value::Float))
        }
        Json::String(text) => Some(Value::Text(text.clone())),
        _ => None,
    }
}

/// Numbers and NULL as they are, everything else as text.
pub(crate) fn json_of(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int(number) => json!(number),
        Value::UInt(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Decimal(text) | Value::Text(text) | Value::Moment(text) => json!(text),
        Value::Bytes(bytes) => json!(String::from_utf8_lossy(bytes)),
        Value::At(at) => json!(at.as_unix_seconds()),
    }
}

fn scope_of(json: &Json) -> Option<Vec<(String, Value)>> {
    json.as_object()?.iter().map(|(column, value)| value_of(value).map(|value| (column.clone(), value))).collect()
}

fn max_attempts_of(json: &Json) -> Option<MaxAttempts> {
    let number = json.as_i64().filter(|number| *number >= 1).map(MaxAttempts::Number);
    number.or_else(|| text_of(json).map(MaxAttempts::Column))
}

fn unit_of(json: &Json) -> Option<Unit> {
    match json.as_str()? {
        "seconds" => Some(Unit::Seconds),
        "milliseconds" => Some(Unit::Milliseconds),
        _ => None,
    }
}

fn span_of(json: &Json) -> Option<Duration> {
    span_from_seconds("", json.as_f64()?).ok()
}

fn switch_of(json: &Json) -> Option<bool> {
    match json {
        Json::Bool(is_on) => Some(*is_on),
        Json::String(text) if text == "on" => Some(true),
        Json::String(text) if text == "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = r#"{"key":"id","status":"status","pending":0,"processing":1,"done":2,"failed":3,"token":"cron_token",
        "claimed_at":"send_at","max_attempts":3,"scope":{"task_id":42},"zone":"+08:00","recover_after":600,"registry":"off"}"#;

    #[test]
    fn the_json_form_is_read_back_as_the_same_mapping() {
        let mapping = Mapping::from_json(TARGETS).unwrap();
        assert_eq!(mapping.failed, Some(Value::Int(3)));
        assert_eq!(mapping.scope, [("task_id".to_owned(), Value::Int(42))]);
        assert!(!mapping.registry);
        assert_eq!(Mapping::from_json(&mapping.to_json()).unwrap(), mapping);
        let holding = Mapping { on_lost: OnLost::Hold, held: Some(Value::Int(4)), ..mapping };
        assert_eq!(Mapping::from_json(&holding.to_json()).unwrap(), holding);
    }

    #[test]
    fn wrong_entries_are_named() {
        for (from, to, named) in [
            ("\"token\":\"cron_token\",", "", "token is missing"),
            ("\"pending\":0", "\"pending\":[0]", "pending cannot be [0]"),
            ("\"recover_after\":600", "\"recover_after\":-1", "recover_after cannot be -1"),
            ("\"registry\":\"off\"", "\"registry\":\"maybe\"", "registry cannot be \"maybe\""),
            ("\"registry\":\"off\"", "\"on_lost\":\"keep\"", "on_lost cannot be \"keep\""),
            ("\"zone\"", "\"tz\"", "tz is unknown"),
            ("\"max_attempts\":3", "\"max_attempts\":0", "max_attempts cannot be 0"),
        ] {
            let error = Mapping::from_json(&TARGETS.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        for broken in ["", "[]", "3", "{\"status\":"] {
            assert!(Mapping::from_json(broken).is_err(), "{broken}");
        }
    }
}
