//! The statements on mapped tables: the text for one mapping, with the values it binds.
//!
//! The texts depend on which columns are mapped, so each is put together from whole clauses, text and values side by
//! side. Names are quoted by `Flavor::quote`; values are bound; the only numbers in the text are those of the zone.
//!
//! Locks: every write goes by key with token or status in its condition and its row count is looked at. Reads take no
//! locks except `pick` and `lock`, which lock the rows they return.

use crate::config::ClaimShape;
use crate::mapping::{MaxAttempts, Unit};
use crate::plan::keys::Keys;
use crate::plan::table::Table;
use crate::plan::table::access::{Access, Condition, Search};
use crate::plan::table::layout::{Column, Kind, unit_micros};
use crate::time::micros;
use crate::value::{Statement, Value};
use rowclaim_migrations::Flavor;
use std::time::Duration;
use uuid::Uuid;

/// Text and values that grow together.
#[derive(Clone, Debug, Default)]
struct Sql {
    text: String,
    values: Vec<Value>,
}

impl Sql {
    fn new(text: impl Into<String>) -> Self {
        Sql { text: text.into(), values: Vec::new() }
    }

    fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        self
    }

    fn then(&mut self, (text, values): (String, Vec<Value>)) -> &mut Self {
        self.text.push_str(&text);
        self.values.extend(values);
        self
    }

    fn end(self) -> Statement {
        Statement { sql: self.text, values: self.values }
    }
}

/// Which of the waiting rows one `pick` asks for, where the time can be NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// No time is mapped.
    All,
    /// Without a time: at once.
    Untimed,
    /// With a time that has come.
    Due,
}

/// How a row is put back to `pending`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back<'a> {
    /// Not handed out before this has gone by.
    pub delay: Duration,
    pub error: Option<&'a str>,
    /// The attempt is not counted.
    pub uncount: bool,
}

/// Renders the statements of one table at one offset of its zone.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub table: &'a Table,
    pub shape: ClaimShape,
    /// Seconds from UTC of DATETIME columns.
    pub offset: i32,
}

impl Rows<'_> {
    fn flavor(&self) -> Flavor {
        self.table.flavor
    }

    fn q(&self, column: &Column) -> String {
        self.flavor().quote(&column.name)
    }

    fn name(&self) -> String {
        self.table.name.quoted(self.flavor())
    }

    /// The database's clock in the column's own form, `?` units later.
    fn clock(&self, column: &Column) -> String {
        let shift = if matches!(column.kind, Kind::DateTime { .. }) { self.offset } else { 0 };
        match (self.flavor(), &column.kind) {
            // Cut to the column's digits: rounded up it would lie in the future.
            (Flavor::MySql, Kind::DateTime { digits } | Kind::Timestamp { digits }) => {
                format!("UTC_TIMESTAMP({digits}) + INTERVAL {shift} SECOND + INTERVAL ? MICROSECOND")
            }
            (Flavor::MySql, _) if self.table.mapping.unit == Unit::Milliseconds => {
                "CAST(UNIX_TIMESTAMP(3) * 1000 AS SIGNED) + ?".to_owned()
            }
            (Flavor::MySql, _) => "CAST(UNIX_TIMESTAMP() AS SIGNED) + ?".to_owned(),
            (Flavor::Sqlite, Kind::DateTime { .. } | Kind::Timestamp { .. }) => {
                format!("strftime('%Y-%m-%d %H:%M:%S', 'now', '{shift} seconds', (? / 1000000) || ' seconds')")
            }
            (Flavor::Sqlite, _) if self.table.mapping.unit == Unit::Milliseconds => {
                format!("({}) / 1000 + ?", super::sqlite::NOW)
            }
            (Flavor::Sqlite, _) => "CAST(strftime('%s', 'now') AS INTEGER) + ?".to_owned(),
        }
    }

    /// A span in the unit of `clock`, in whole steps of the column, rounded away from now.
    fn span(&self, column: &Column, span: i64) -> Value {
        let (step, unit) = match (&column.kind, self.flavor()) {
            (Kind::DateTime { digits } | Kind::Timestamp { digits }, Flavor::MySql) => {
                (10_i64.pow(6 - u32::from((*digits).min(6))), 1)
            }
            (Kind::DateTime { .. } | Kind::Timestamp { .. }, Flavor::Sqlite) => (1_000_000, 1),
            _ => (unit_micros(self.table.mapping.unit), unit_micros(self.table.mapping.unit)),
        };
        let steps = if span >= 0 { span.saturating_add(step - 1) / step } else { span.saturating_sub(step - 1) / step };
        Value::Int(steps.saturating_mul(step) / unit)
    }

    /// `column = the clock + span`.
    fn set_clock(&self, sql: &mut Sql, column: Option<&Column>, span: Duration) {
        if let Some(column) = column {
            sql.push(&format!(", {} = {}", self.q(column), self.clock(column))).bind(self.span(column, micros(span)));
        }
    }

    /// `column = nothing`: NULL, or the empty value where the column takes none. Times that take no NULL stay.
    fn clear(&self, sql: &mut Sql, column: Option<&Column>) {
        let Some(column) = column else { return };
        let empty = match (&column.kind, column.is_nullable) {
            (_, true) => "NULL",
            (Kind::Text { .. }, false) => "''",
            (Kind::Int { .. }, false) => "0",
            _ => return,
        };
        sql.push(&format!(", {} = {empty}", self.q(column)));
    }

    fn set_error(&self, sql: &mut Sql, error: Option<&str>) {
        if let (Some(column), Some(error)) = (&self.table.error, error) {
            sql.push(&format!(", {} = ?", self.q(column))).bind(fitting(error, column));
        }
    }

    /// The rows that are ever touched.
    fn scope(&self, sql: &mut Sql) {
        for (column, value) in &self.table.scope {
            self.equal(sql, column, value);
        }
    }

    fn equal(&self, sql: &mut Sql, column: &Column, value: &Value) {
        match value {
            Value::Null => sql.push(&format!(" AND {} IS NULL", self.q(column))),
            value => sql.push(&format!(" AND {} = ?", self.q(column))).bind(value.clone()),
        };
    }

    fn conditions(&self, sql: &mut Sql, conditions: &[Condition]) {
        for condition in conditions {
            match condition.values.as_slice() {
                [value] => self.equal(sql, &condition.column, value),
                values => {
                    let mut listed: Vec<Value> = values.iter().filter(|value| **value != Value::Null).cloned().collect();
                    let or_null = if listed.len() < values.len() {
                        format!(" OR {} IS NULL", self.q(&condition.column))
                    } else {
                        String::new()
                    };
                    crate::plan::ids::pad(&mut listed);
                    let places = crate::plan::spread("{list}", "{list}", "?", listed.len());
                    sql.push(&format!(" AND ({} IN ({places}){or_null})", self.q(&condition.column)));
                    sql.values.extend(listed);
                }
            }
        }
    }

    fn due(&self, sql: &mut Sql, lane: Lane) {
        let Some(column) = &self.table.available_at else { return };
        let name = self.q(column);
        // A zero date is what a lenient server made of a date it could not keep: never due.
        let from = match (self.flavor(), &column.kind) {
            (Flavor::MySql, Kind::DateTime { .. } | Kind::Timestamp { .. }) => format!("{name} > '1970-01-01 00:00:00' AND "),
            _ => String::new(),
        };
        let has_come = format!("{from}{name} <= {}", self.clock(column));
        match lane {
            Lane::Untimed => sql.push(&format!(" AND {name} IS NULL")),
            Lane::All if column.is_nullable => sql.push(&format!(" AND ({name} IS NULL OR {has_come})")).bind(0_i64),
            _ => sql.push(&format!(" AND {has_come}")).bind(0_i64),
        };
    }

    /// Attempts, most attempts and fence of a row, 1, no end and 0 where they are not mapped.
    fn control(&self) -> String {
        let or = |column: &Option<Column>, other: String| column.as_ref().map_or(other, |column| self.q(column));
        let max = match &self.table.mapping.max_attempts {
            Some(MaxAttempts::Number(number)) => number.to_string(),
            _ => or(&self.table.max_attempts, i64::MAX.to_string()),
        };
        format!(
            "{}, {}, {max}, {}",
            self.q(&self.table.key),
            or(&self.table.attempts, "0".into()),
            or(&self.table.fence, "0".into())
        )
    }

    fn order_by(&self, search: &Search) -> String {
        let mut order: Vec<String> = search
            .order
            .iter()
            .map(|order| format!("{}{}", self.q(&order.column), if order.is_descending { " DESC" } else { "" }))
            .collect();
        order.push(self.q(&self.table.key));
        format!(" ORDER BY {} LIMIT ?", order.join(", "))
    }

    fn search(&self, lane: Lane, search: &Search, by_free_token: bool) -> Sql {
        let mut sql = Sql::new(format!(" WHERE {} = ?", self.q(&self.table.status)));
        sql.bind(self.table.pending.clone());
        if by_free_token {
            self.equal(&mut sql, &self.table.token, &self.table.token_free);
        }
        self.scope(&mut sql);
        self.conditions(&mut sql, &search.conditions);
        self.due(&mut sql, lane);
        if let Some((k, n)) = search.partition {
            let rest = match self.flavor() {
                Flavor::MySql => format!(" AND MOD({}, ?) = ?", self.q(&self.table.key)),
                Flavor::Sqlite => format!(" AND {} % ? = ?", self.q(&self.table.key)),
            };
            sql.push(&rest).bind(n).bind(k);
        }
        sql
    }

    /// The lanes of an index read, in the order of the rows.
    pub(crate) fn lanes(&self) -> &'static [Lane] {
        match &self.table.available_at {
            None => &[Lane::All],
            Some(column) if column.is_nullable => &[Lane::Untimed, Lane::Due],
            Some(_) => &[Lane::Due],
        }
    }

    /// Locks the first waiting rows by an index that holds them in order: n entries and n rows until COMMIT; rows others
    /// hold are stepped over.
    pub(crate) fn pick(&self, search: &Search, index: &str, by_free_token: bool, lane: Lane, limit: usize) -> Statement {
        let index = self.flavor().quote(index);
        let (hint, lock) = match self.flavor() {
            Flavor::MySql => (format!(" FORCE INDEX ({index})"), " FOR UPDATE SKIP LOCKED"),
            Flavor::Sqlite => (format!(" INDEXED BY {index}"), ""),
        };
        let mut sql = Sql::new(format!("SELECT {} FROM {}{hint}", self.control(), self.name()));
        let found = self.search(lane, search, by_free_token);
        sql.then((found.text, found.values)).push(&self.order_by(search)).bind(limit as i64);
        sql.push(lock);
        sql.end()
    }

    /// Reads the first waiting rows without locks; whoever locks them tests again.
    pub(crate) fn candidates(&self, search: &Search, limit: usize) -> Statement {
        let mut sql = Sql::new(format!("SELECT {} FROM {}", self.control(), self.name()));
        let found = self.search(Lane::All, search, false);
        sql.then((found.text, found.values)).push(&self.order_by(search)).bind(limit as i64);
        sql.end()
    }

    /// Locks candidates by key that still wait; rows others hold are stepped over.
    pub(crate) fn lock(&self, search: &Search, keys: &Keys) -> Statement {
        let mut sql = Sql::new(format!("SELECT {} FROM {}", self.control(), self.name()));
        self.waiting(&mut sql, search, keys);
        sql.push(&format!(" ORDER BY {}", self.q(&self.table.key)));
        sql.push(match self.shape {
            ClaimShape::SkipLocked => " FOR UPDATE SKIP LOCKED",
            ClaimShape::TokenUpdate => " FOR UPDATE",
            ClaimShape::Exclusive => "",
        });
        sql.end()
    }

    /// By key, with everything that makes a row one that waits.
    fn waiting(&self, sql: &mut Sql, search: &Search, keys: &Keys) {
        sql.push(" WHERE ").then(keys.condition(&self.q(&self.table.key)));
        self.equal(sql, &self.table.status, &self.table.pending);
        self.scope(sql);
        self.conditions(sql, &search.conditions);
        self.due(sql, Lane::All);
    }

    /// Hands rows to a claim: by key, with the state in the condition, so a stale candidate changes nothing.
    pub(crate) fn mark(&self, search: &Search, keys: &Keys, token: Uuid, worker: &str, lease: Duration) -> Statement {
        let table = self.table;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?, {} = ?", self.name(), self.q(&table.status), self.q(&table.token)));
        sql.bind(table.processing.clone()).bind(table.token_form.value(token));
        self.set_clock(&mut sql, table.claimed_at.as_ref(), Duration::ZERO);
        self.set_clock(&mut sql, table.lease_until.as_ref(), lease);
        if let Some(column) = &table.locked_by {
            sql.push(&format!(", {} = ?", self.q(column))).bind(fitting(worker, column));
        }
        if let Some(column) = &table.attempts {
            let name = self.q(column);
            sql.push(&format!(", {name} = CASE WHEN {name} < ? THEN {name} + 1 ELSE {name} END"));
            sql.bind(table.attempts_column_max());
        }
        if let Some(column) = &table.fence {
            sql.push(&format!(", {0} = {0} + 1", self.q(column)));
        }
        self.waiting(&mut sql, search, keys);
        sql.end()
    }

    /// Ends waiting rows that have no attempt left.
    pub(crate) fn exhaust(&self, keys: &Keys, error: &str) -> Option<Statement> {
        let table = self.table;
        let failed = table.failed.clone()?;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?", self.name(), self.q(&table.status)));
        sql.bind(failed);
        self.set_error(&mut sql, Some(error));
        self.set_clock(&mut sql, table.finished_at.as_ref(), Duration::ZERO);
        sql.push(" WHERE ").then(keys.condition(&self.q(&table.key)));
        self.equal(&mut sql, &table.status, &table.pending);
        self.scope(&mut sql);
        Some(sql.end())
    }

    /// The rows a claim holds, in no order: the columns asked for, then key, attempts, most attempts, fence.
    pub(crate) fn claimed(&self, keys: &Keys, token: Uuid) -> Statement {
        let columns: Vec<String> = self.table.columns.iter().map(|column| self.q(column)).collect();
        let mut sql = Sql::new(format!("SELECT {}, {} FROM {}", columns.join(", "), self.control(), self.name()));
        self.held(&mut sql, keys, token);
        sql.end()
    }

    /// By key, with token and status: nobody but the owner matches.
    fn held(&self, sql: &mut Sql, keys: &Keys, token: Uuid) {
        sql.push(" WHERE ").then(keys.condition(&self.q(&self.table.key)));
        self.equal(sql, &self.table.token, &self.table.token_form.value(token));
        self.equal(sql, &self.table.status, &self.table.processing);
    }

    /// Done, and what else the caller sets in the same row. Of rows that recur the next time is set, `delay` from now
    /// unless the caller sets it.
    pub(crate) fn complete(&self, keys: &Keys, token: Uuid, set: &[(Column, Value)], delay: Option<Duration>) -> Statement {
        let table = self.table;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?", self.name(), self.q(&table.status)));
        sql.bind(table.done.clone());
        let is_set = |column: Option<&Column>| column.is_some_and(|column| set.iter().any(|(other, _)| other == column));
        if table.recurs() {
            self.free(&mut sql);
            if !is_set(table.available_at.as_ref()) {
                self.set_clock(&mut sql, table.available_at.as_ref(), delay.unwrap_or_default());
            }
            if let Some(column) = table.attempts.as_ref().filter(|column| !is_set(Some(column))) {
                sql.push(&format!(", {} = 0", self.q(column)));
            }
        } else {
            self.clear(&mut sql, table.lease_until.as_ref());
            self.clear(&mut sql, table.locked_by.as_ref());
        }
        if !is_set(table.finished_at.as_ref()) {
            self.set_clock(&mut sql, table.finished_at.as_ref(), Duration::ZERO);
        }
        for (column, value) in set {
            sql.push(&format!(", {} = ?", self.q(column))).bind(value.clone());
        }
        self.held(&mut sql, keys, token);
        sql.end()
    }

    /// Nobody holds the row any more.
    fn free(&self, sql: &mut Sql) {
        let table = self.table;
        match &table.token_free {
            Value::Null => sql.push(&format!(", {} = NULL", self.q(&table.token))),
            _ => sql.push(&format!(", {} = ''", self.q(&table.token))),
        };
        for column in [&table.claimed_at, &table.lease_until, &table.locked_by] {
            self.clear(sql, column.as_ref());
        }
    }

    fn back(&self, back: &Back<'_>) -> Sql {
        let table = self.table;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?", self.name(), self.q(&table.status)));
        sql.bind(table.pending.clone());
        self.free(&mut sql);
        self.set_clock(&mut sql, table.available_at.as_ref(), back.delay);
        self.set_error(&mut sql, back.error);
        if let Some(column) = table.attempts.as_ref().filter(|_| back.uncount) {
            let name = self.q(column);
            sql.push(&format!(", {name} = CASE WHEN {name} > 0 THEN {name} - 1 ELSE 0 END"));
        }
        sql
    }

    /// Puts held rows back: after a failure, a release, or a lease that ran out.
    pub(crate) fn put_back(&self, keys: &Keys, token: Uuid, back: &Back<'_>) -> Statement {
        let mut sql = self.back(back);
        self.held(&mut sql, keys, token);
        sql.end()
    }

    fn end(&self, error: &str) -> Option<Sql> {
        let table = self.table;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?", self.name(), self.q(&table.status)));
        sql.bind(table.failed.clone()?);
        self.set_error(&mut sql, Some(error));
        self.set_clock(&mut sql, table.finished_at.as_ref(), Duration::ZERO);
        self.clear(&mut sql, table.lease_until.as_ref());
        self.clear(&mut sql, table.locked_by.as_ref());
        Some(sql)
    }

    /// Ends held rows as failed; `None` where the mapping has no such status.
    pub(crate) fn fail(&self, keys: &Keys, token: Uuid, error: &str) -> Option<Statement> {
        let mut sql = self.end(error)?;
        self.held(&mut sql, keys, token);
        Some(sql.end())
    }

    /// Writes a longer lease, or a fresh sign of life, into held rows; `None` where others go by neither.
    pub(crate) fn touch(&self, keys: &Keys, token: Uuid, lease: Duration) -> Option<Statement> {
        let table = self.table;
        let (column, span) = match (&table.lease_until, &table.claimed_at) {
            (Some(column), _) => (column, lease),
            (None, Some(column)) if table.mapping.recover_after.is_some() => (column, Duration::ZERO),
            _ => return None,
        };
        let mut sql = Sql::new(format!("UPDATE {} SET {} = {}", self.name(), self.q(column), self.clock(column)));
        sql.bind(self.span(column, micros(span)));
        self.held(&mut sql, keys, token);
        Some(sql.end())
    }

    /// Which of the keys are held by the token.
    pub(crate) fn still_held(&self, keys: &Keys, token: Uuid) -> Statement {
        let mut sql = Sql::new(format!("SELECT {} FROM {}", self.control(), self.name()));
        self.held(&mut sql, keys, token);
        sql.push(&format!(" ORDER BY {}", self.q(&self.table.key)));
        sql.push(if self.shape == ClaimShape::Exclusive { "" } else { " FOR UPDATE" });
        sql.end()
    }

    /// Where rows stand: key, is processing, done, failed, pending, carries the token, token is free.
    pub(crate) fn inspect(&self, keys: &Keys, token: Uuid) -> Statement {
        let table = self.table;
        let (status, column) = (self.q(&table.status), self.q(&table.token));
        let mut sql =
            Sql::new(format!("SELECT {}, {status} = ?, {status} = ?, {status} = ?, {status} = ?, ", self.q(&table.key)));
        sql.bind(table.processing.clone()).bind(table.done.clone());
        sql.bind(table.failed.clone().unwrap_or(Value::Null)).bind(table.pending.clone());
        sql.push(&format!("{column} = ?, ")).bind(table.token_form.value(token));
        sql.push(&match &table.token_free {
            Value::Null => format!("{column} IS NULL"),
            _ => format!("{column} = ''"),
        });
        sql.push(&format!(" FROM {} WHERE ", self.name())).then(keys.condition(&self.q(&table.key)));
        sql.end()
    }

    /// That a held row is old enough to be nobody's: past its lease, or claimed before `recover_after`, or claimed at no
    /// known time. `None` where the mapping cannot tell.
    fn stale(&self) -> Option<(String, Vec<Value>)> {
        let table = self.table;
        let zero = |column: &Column| match (self.flavor(), &column.kind) {
            (Flavor::MySql, Kind::DateTime { .. } | Kind::Timestamp { .. }) => {
                format!("{0} IS NULL OR {0} <= '1970-01-01 00:00:00' OR ", self.q(column))
            }
            _ => format!("{0} IS NULL OR {0} = 0 OR ", self.q(column)),
        };
        let (column, age) = match (&table.lease_until, &table.claimed_at, table.mapping.recover_after) {
            (Some(column), _, after) => (column, after.unwrap_or_default()),
            (None, Some(column), Some(after)) => (column, after),
            _ => return None,
        };
        let text = format!(" AND ({}{} < {})", zero(column), self.q(column), self.clock(column));
        Some((text, vec![self.span(column, micros(age).saturating_neg())]))
    }

    /// Rows that are held for too long: key, attempts, most attempts, fence, token, holder.
    pub(crate) fn stale_rows(&self, limit: i64) -> Option<Statement> {
        let table = self.table;
        let holder = table.locked_by.as_ref().map_or("NULL".to_owned(), |column| self.q(column));
        let mut sql = Sql::new(format!("SELECT {}, {}, {holder} FROM {}", self.control(), self.q(&table.token), self.name()));
        sql.push(&format!(" WHERE {} = ?", self.q(&table.status))).bind(table.processing.clone());
        self.scope(&mut sql);
        sql.then(self.stale()?);
        sql.push(&format!(" ORDER BY {} LIMIT ?", self.q(&table.key))).bind(limit);
        Some(sql.end())
    }

    /// Takes stale rows of one token back, or ends them as failed: by key, with the token that was seen and the age tested
    /// again, so that a row that was claimed anew meanwhile does not match.
    pub(crate) fn take_stale(&self, keys: &Keys, token: &Value, end: bool, delay: Duration) -> Option<Statement> {
        let table = self.table;
        let error = "lease expired";
        let mut sql = if end { self.end(error)? } else { self.back(&Back { delay, error: Some(error), uncount: false }) };
        sql.push(" WHERE ").then(keys.condition(&self.q(&table.key)));
        self.equal(&mut sql, &table.token, token);
        self.equal(&mut sql, &table.status, &table.processing);
        self.scope(&mut sql);
        sql.then(self.stale()?);
        Some(sql.end())
    }

    /// Whether any row waits or is held: two index look-ups that stop at the first row.
    pub(crate) fn remaining(&self, conditions: &[Condition]) -> Statement {
        let mut sql = Sql::new("SELECT ");
        for (position, status) in [&self.table.pending, &self.table.processing].into_iter().enumerate() {
            let or = if position == 0 { "" } else { " OR " };
            sql.push(&format!("{or}EXISTS (SELECT 1 FROM {} WHERE {} = ?", self.name(), self.q(&self.table.status)));
            sql.bind(status.clone());
            self.scope(&mut sql);
            self.conditions(&mut sql, conditions);
            sql.push(")");
        }
        sql.end()
    }

    /// Rows in the order of their keys: the columns asked for, then key, attempts, most attempts, fence.
    pub(crate) fn list(&self, conditions: &[Condition], status: Option<&Value>, after: Option<&Value>, limit: i64) -> Statement {
        let columns: Vec<String> = self.table.columns.iter().map(|column| self.q(column)).collect();
        let mut sql = Sql::new(format!("SELECT {}, {} FROM {} WHERE 1 = 1", columns.join(", "), self.control(), self.name()));
        if let Some(status) = status {
            self.equal(&mut sql, &self.table.status, status);
        }
        self.scope(&mut sql);
        self.conditions(&mut sql, conditions);
        if let Some(after) = after {
            sql.push(&format!(" AND {} > ?", self.q(&self.table.key))).bind(after.clone());
        }
        sql.push(&format!(" ORDER BY {} LIMIT ?", self.q(&self.table.key))).bind(limit);
        sql.end()
    }

    /// Puts failed rows back with all their attempts, or takes held ones away from their owners: by key and status.
    pub(crate) fn retry(&self, keys: &Keys, from: &Value) -> Statement {
        let table = self.table;
        let mut sql = self.back(&Back { delay: Duration::ZERO, error: None, uncount: false });
        if let Some(column) = table.attempts.as_ref().filter(|_| table.failed.as_ref() == Some(from)) {
            sql.push(&format!(", {} = 0", self.q(column)));
        }
        self.clear(&mut sql, table.finished_at.as_ref());
        sql.push(" WHERE ").then(keys.condition(&self.q(&table.key)));
        self.equal(&mut sql, &table.status, from);
        self.scope(&mut sql);
        sql.end()
    }
}

/// A text as a column can keep it: cut to its characters, and without those its character set lacks.
fn fitting(text: &str, column: &Column) -> String {
    let Kind::Text { chars, charset } = &column.kind else { return text.to_owned() };
    let limit = usize::try_from(*chars).unwrap_or(usize::MAX);
    let widest = match charset.as_str() {
        "utf8mb3" | "utf8" | "ucs2" => '\u{ffff}',
        "latin1" => '\u{ff}',
        "ascii" => '\u{7f}',
        _ => char::MAX,
    };
    let kept = |letter: char| if letter == '\0' || letter > widest { '?' } else { letter };
    text.chars().map(kept).take(limit).collect()
}

/// The database's clock and nothing else, by which the offset of a zone is found.
pub(crate) fn clock(flavor: Flavor) -> Statement {
    Statement { sql: format!("SELECT {}", super::clock(flavor)), values: vec![] }
}

/// What a table is made of, one statement an answer: engine and kind, columns, indexes.
pub(crate) struct Catalog {
    pub table: Statement,
    pub columns: Statement,
    pub indexes: Statement,
}

/// Reads the description of a table; no locks.
pub(crate) fn catalog(flavor: Flavor, schema: Option<&str>, name: &str, quoted: &str) -> Catalog {
    let plain = |sql: &str, values: Vec<Value>| Statement { sql: sql.to_owned(), values };
    let named = || vec![Value::from(schema), Value::from(name)];
    match flavor {
        Flavor::MySql => Catalog {
            table: plain(
                "SELECT COALESCE(ENGINE, ''), TABLE_TYPE FROM information_schema.TABLES \
                 WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?",
                named(),
            ),
            columns: plain(
                "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_MAXIMUM_LENGTH, CHARACTER_SET_NAME, \
                 DATETIME_PRECISION FROM information_schema.COLUMNS \
                 WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION",
                named(),
            ),
            // Says of an index, other than information_schema on both servers, whether it may be used.
            indexes: plain(&format!("SHOW INDEX FROM {quoted}"), vec![]),
        },
        Flavor::Sqlite => Catalog {
            table: plain("SELECT '', type FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?", vec![name.into()]),
            columns: plain("SELECT name, type, \"notnull\" = 0, pk FROM pragma_table_xinfo(?) ORDER BY cid", vec![name.into()]),
            indexes: plain(
                "SELECT l.name, l.\"unique\", x.name, x.\"desc\", l.partial FROM pragma_index_list(?) l, pragma_index_xinfo(l.name) x \
                 WHERE x.key = 1 ORDER BY l.seq, x.seqno",
                vec![name.into()],
            ),
        },
    }
}

impl Rows<'_> {
    /// The statements of a claim by this search, for EXPLAIN.
    pub(crate) fn finding(&self, search: &Search, limit: usize) -> Vec<Statement> {
        match &search.access {
            Access::Candidates => vec![self.candidates(search, limit)],
            Access::Index { name, by_free_token } => {
                self.lanes().iter().map(|lane| self.pick(search, name, *by_free_token, *lane, limit)).collect()
            }
        }
    }
}
