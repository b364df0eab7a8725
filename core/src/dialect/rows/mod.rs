//! The statements on mapped tables: the text for one mapping, with the values it binds.
//!
//! The texts depend on which columns are mapped, so each is put together from whole clauses, text and values side by
//! side. Names are quoted by `Flavor::quote`; values are bound; the only numbers in the text are those of the zone.
//!
//! Locks: every write goes by key with token or status in its condition and its row count is looked at. Reads take no
//! locks except `pick`, `lock`, `still_held` and `aside_of`, which lock the rows they return.

mod catalog;
mod claim;
mod doctor;
mod finish;
mod list;
mod recover;

pub(crate) use catalog::{catalog, clock};
pub(crate) use doctor::{SAMPLE, Window};

use crate::config::ClaimShape;
use crate::mapping::{MaxAttempts, Unit};
use crate::plan::keys::Keys;
use crate::plan::table::Table;
use crate::plan::table::access::Condition;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// No time is mapped.
    All,
    /// Without a time: at once.
    Untimed,
    /// With a time that has come.
    Due,
}

/// Where a row stands in the order of its lane.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    /// The value of the column that the lane is ordered by.
    pub leading: Value,
    pub key: Value,
}

/// A bound on the rows of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound<'a> {
    /// From all rows on that share the position's leading value.
    From(&'a Position),
    /// Behind the position itself: thousands of rows can share one instant.
    After(&'a Position),
    /// Up to all rows that share the position's leading value.
    Until(&'a Position),
}

/// How a row is put back to `pending`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back<'a> {
    /// Not handed out before this has gone by; `None` leaves the time as it is.
    pub delay: Option<Duration>,
    pub error: Option<&'a str>,
    /// The attempt is not counted.
    pub uncount: bool,
}

/// What becomes of a row that was held for too long by nobody we know.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gone {
    /// Waits again; with a time, after it.
    Back(Option<Duration>),
    /// Out of attempts.
    Failed,
    /// Waits for a person.
    Held,
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
                "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + ?".to_owned()
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
        // A zero date is what a lenient server made of a date it could not keep: never due. The bound is the second of
        // January since MySQL takes the first, in a zone where it is no TIMESTAMP, for a zero date itself.
        let from = match (self.flavor(), &column.kind) {
            (Flavor::MySql, Kind::DateTime { .. } | Kind::Timestamp { .. }) => format!("{name} > '1970-01-02 00:00:00' AND "),
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
        let max = or(&self.table.max_attempts, self.stated_limit().to_string());
        format!(
            "{}, {}, {max}, {}",
            self.q(&self.table.key),
            or(&self.table.attempts, "0".into()),
            or(&self.table.fence, "0".into())
        )
    }

    /// The limit that the mapping states itself.
    fn stated_limit(&self) -> i64 {
        match &self.table.mapping.max_attempts {
            Some(MaxAttempts::Number(number)) => *number,
            _ => i64::MAX,
        }
    }

    /// By key, with token and status: nobody but the owner matches.
    fn held(&self, sql: &mut Sql, keys: &Keys, token: Uuid) {
        sql.push(" WHERE ").then(keys.condition(&self.q(&self.table.key)));
        self.equal(sql, &self.table.token, &self.table.token_form.value(token));
        self.equal(sql, &self.table.status, &self.table.processing);
    }

    /// Nobody holds the row any more.
    fn free(&self, sql: &mut Sql) {
        let table = self.table;
        self.free_token(sql);
        for column in [&table.claimed_at, &table.lease_until, &table.locked_by] {
            self.clear(sql, column.as_ref());
        }
    }

    fn back(&self, back: &Back<'_>) -> Sql {
        let table = self.table;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?", self.name(), self.q(&table.status)));
        sql.bind(table.pending.clone());
        self.free(&mut sql);
        if let Some(delay) = back.delay {
            self.set_clock(&mut sql, table.available_at.as_ref(), delay);
        }
        self.set_error(&mut sql, back.error);
        if let Some(column) = table.attempts.as_ref().filter(|_| back.uncount) {
            let name = self.q(column);
            sql.push(&format!(", {name} = CASE WHEN {name} > 0 THEN {name} - 1 ELSE 0 END"));
        }
        sql
    }

    fn free_token(&self, sql: &mut Sql) {
        let table = self.table;
        match &table.token_free {
            Value::Null => sql.push(&format!(", {} = NULL", self.q(&table.token))),
            _ => sql.push(&format!(", {} = ''", self.q(&table.token))),
        };
    }

    /// Aside for a person: nobody's any more, and nobody's to take. When it was claimed stays to be seen.
    fn aside(&self, error: &str) -> Option<Sql> {
        let table = self.table;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?", self.name(), self.q(&table.status)));
        sql.bind(table.held.clone()?);
        self.free_token(&mut sql);
        self.set_error(&mut sql, Some(error));
        self.clear(&mut sql, table.lease_until.as_ref());
        self.clear(&mut sql, table.locked_by.as_ref());
        Some(sql)
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
}

/// A text as a column can keep it: cut to its characters, and without those its character set lacks.
fn fitting(text: &str, column: &Column) -> String {
    let Kind::Text { chars, in_bytes, charset } = &column.kind else { return text.to_owned() };
    let limit = usize::try_from(*chars).unwrap_or(usize::MAX);
    let widest = match charset.as_str() {
        "utf8mb3" | "utf8" | "ucs2" => '\u{ffff}',
        "latin1" => '\u{ff}',
        "ascii" => '\u{7f}',
        _ => char::MAX,
    };
    let kept = |letter: char| if letter == '\0' || letter > widest { '?' } else { letter };
    let mut length = 0;
    let fits = |letter: &char| {
        length += if *in_bytes { letter.len_utf8() } else { 1 };
        length <= limit
    };
    text.chars().map(kept).take_while(fits).collect()
}
