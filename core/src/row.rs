//! Rows of mapped tables as they are asked for and come out.

use crate::bounds::check_limit;
use crate::error::{Error, Result};
use crate::mapping::value_of;
use crate::value::Value;
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::Duration;

/// Conditions on columns, all of which must hold: an equality for one value, any of them for several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters(pub(crate) Vec<(String, Vec<Value>)>);

impl Filters {
    /// No condition.
    pub fn none() -> Self {
        Filters::default()
    }

    /// The same with one more: the column equals the value; `Value::Null` is IS NULL.
    #[must_use]
    pub fn equal(mut self, column: impl Into<String>, value: Value) -> Self {
        self.0.push((column.into(), vec![value]));
        self
    }

    /// The same with one more: the column equals any of the values.
    #[must_use]
    pub fn any(mut self, column: impl Into<String>, values: Vec<Value>) -> Self {
        self.0.push((column.into(), values));
        self
    }

    /// Reads `{"task_id": 42, "type": ["sms", "mail"]}`.
    ///
    /// # Errors
    /// `Invalid`, naming the column.
    pub fn from_json(text: &str) -> Result<Self> {
        let json: Json = serde_json::from_str(text).map_err(|e| Error::invalid(format!("where is not JSON: {e}")))?;
        let Json::Object(entries) = json else { return Err(Error::invalid("where is no object of columns and values")) };
        let read = |(column, json): (&String, &Json)| {
            let values = match json {
                Json::Array(list) => list.iter().map(value_of).collect::<Option<Vec<_>>>(),
                other => value_of(other).map(|value| vec![value]),
            };
            let values = values.ok_or_else(|| Error::invalid(format!("where: {column} cannot be {json}")))?;
            Ok((column.clone(), values))
        };
        entries.iter().map(read).collect::<Result<_>>().map(Filters)
    }

    pub(crate) fn borrowed(&self) -> Vec<(&str, &[Value])> {
        self.0.iter().map(|(column, values)| (column.as_str(), values.as_slice())).collect()
    }
}

/// What a claim on a mapped table asks for.
#[derive(Clone, Debug)]
pub struct RowClaimRequest {
    /// Rows at most, 1 to 10,000.
    pub limit: usize,
    /// Only rows for which all of these hold.
    pub filters: Filters,
    /// Columns to order by, `-` in front for descending; by priority and time when empty. The key always comes last.
    pub order: Vec<String>,
    /// The lease; the mapping's or the engine's default when `None`; at least 1 second.
    pub lease: Option<Duration>,
    /// No renewal goes past this time from the start. Must not be shorter than the lease.
    pub max_run: Option<Duration>,
    /// Only rows whose key leaves the remainder `.0` when divided by `.1`.
    pub partition: Option<(i64, i64)>,
}

impl Default for RowClaimRequest {
    fn default() -> Self {
        RowClaimRequest { limit: 100, filters: Filters::none(), order: Vec::new(), lease: None, max_run: None, partition: None }
    }
}

impl RowClaimRequest {
    /// A claim of up to `limit` rows.
    pub fn new(limit: usize) -> Self {
        RowClaimRequest { limit, ..RowClaimRequest::default() }
    }

    /// The same with one more equality.
    #[must_use]
    pub fn equal(mut self, column: impl Into<String>, value: Value) -> Self {
        self.filters = self.filters.equal(column, value);
        self
    }

    /// The lease of it, when it is checked against the others.
    pub(crate) fn check(&self, default_lease: Duration) -> Result<Duration> {
        check_limit("limit", self.limit)?;
        let lease = self.lease.unwrap_or(default_lease);
        crate::claim::check_lease(lease, self.max_run)?;
        crate::claim::check_partition(self.partition)?;
        Ok(lease)
    }
}

/// The columns of a table's rows, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns(pub(crate) Arc<[String]>);

impl Columns {
    /// Their names.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// A row of a mapped table handed out by a claim, as it stands now that it is claimed.
#[derive(Clone, Debug)]
pub struct ClaimedRow {
    /// Its key.
    pub key: Value,
    /// Attempts so far, this one included; 1 where they are not mapped.
    pub attempts: i64,
    /// Attempts before it is failed, if there is a limit.
    pub max_attempts: Option<i64>,
    /// The fence of this claim of the row; 0 where it is not mapped.
    pub fence: i64,
    pub(crate) columns: Columns,
    pub(crate) values: Vec<Value>,
    /// Its place in the claim.
    pub(crate) position: usize,
}

impl ClaimedRow {
    /// Its columns, in their order.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The value of a column, by name without regard to case; `None` when the rows come without it.
    pub fn get(&self, column: &str) -> Option<&Value> {
        let position = self.columns.0.iter().position(|name| name.eq_ignore_ascii_case(column))?;
        self.values.get(position)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.columns.0.iter().map(String::as_str).zip(&self.values)
    }
}

/// Which rows of a mapped table to list, in the order of their keys.
#[derive(Clone, Debug)]
pub struct RowFilter {
    /// Only rows for which all of these hold.
    pub filters: Filters,
    /// Only rows in this status: a value of the status column.
    pub status: Option<Value>,
    /// Only keys above this one: the last key of the page before.
    pub after: Option<Value>,
    /// Rows at most, 1 to 10,000.
    pub limit: usize,
}

impl Default for RowFilter {
    fn default() -> Self {
        RowFilter { filters: Filters::none(), status: None, after: None, limit: 100 }
    }
}
