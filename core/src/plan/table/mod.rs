//! A mapping checked against its table: what every verb on a mapped table goes by.
//!
//! The one thing to know: a [`Table`] exists only when the mapping fits; what does not fit is refused here, with the DDL
//! that mends it.

pub(crate) mod access;
mod held;
pub(crate) mod layout;
pub(crate) mod rows;

use crate::error::{Error, ErrorKind, Result};
use crate::mapping::{Mapping, MaxAttempts};
use crate::time::{Timestamp, Zone};
use crate::value::Value;
use layout::{Column, Kind, Layout};
use rowclaim_migrations::Flavor;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// For how long the offset of a zone is taken as it was.
const OFFSET_KEPT: Duration = Duration::from_secs(30);

/// A table's name, quoted, and as it was given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TableName {
    pub schema: Option<String>,
    pub table: String,
}

impl TableName {
    /// `table` or `database.table`.
    ///
    /// # Errors
    /// `Config` when a part is empty, over 64 characters, or holds what no name may.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (schema, table) = match text.split_once('.') {
            Some((schema, table)) => (Some(schema), table),
            None => (None, text),
        };
        for part in schema.into_iter().chain([table]) {
            check_name("table", part)?;
        }
        Ok(TableName { schema: schema.map(str::to_owned), table: table.to_owned() })
    }

    pub(crate) fn quoted(&self, flavor: Flavor) -> String {
        let table = flavor.quote(&self.table);
        self.schema.as_ref().map_or(table.clone(), |schema| format!("{}.{table}", flavor.quote(schema)))
    }

    pub(crate) fn shown(&self) -> String {
        self.schema.as_ref().map_or(self.table.clone(), |schema| format!("{schema}.{}", self.table))
    }
}

fn check_name(what: &str, name: &str) -> Result<()> {
    let is_name = !name.is_empty() && name.chars().count() <= 64 && !name.chars().any(|c| c.is_control() || c == '.');
    if is_name {
        Ok(())
    } else {
        Err(Error::config(format!("{what} {name:?} is no name: 1 to 64 characters without control characters")))
    }
}

/// How a token is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenForm {
    /// 36 characters.
    Hyphenated,
    /// 32 characters.
    Simple,
    /// 16 bytes.
    Raw,
}

impl TokenForm {
    pub(crate) fn value(self, token: Uuid) -> Value {
        match self {
            TokenForm::Hyphenated => Value::Text(token.hyphenated().to_string()),
            TokenForm::Simple => Value::Text(token.simple().to_string()),
            TokenForm::Raw => Value::Bytes(token.as_bytes().to_vec()),
        }
    }

    /// The token a column holds, if it is one of ours.
    pub(crate) fn read(self, value: &Value) -> Option<Uuid> {
        match (self, value) {
            (TokenForm::Raw, Value::Bytes(bytes)) => Uuid::from_slice(bytes).ok(),
            (_, Value::Bytes(bytes)) => Uuid::try_parse_ascii(bytes).ok(),
            (_, value) => Uuid::try_parse(value.as_text()?).ok(),
        }
    }
}

/// A mapping that fits its table.
#[derive(Debug)]
pub(crate) struct Table {
    pub name: TableName,
    pub flavor: Flavor,
    pub mapping: Mapping,
    pub layout: Layout,
    pub key: Column,
    /// The key is the clustered primary key: every index ends with it.
    pub key_is_primary: bool,
    pub status: Column,
    pub pending: Value,
    pub processing: Value,
    pub done: Value,
    pub failed: Option<Value>,
    pub held: Option<Value>,
    pub token: Column,
    pub token_form: TokenForm,
    /// What the token column holds in a row nobody holds.
    pub token_free: Value,
    pub claimed_at: Option<Column>,
    pub lease_until: Option<Column>,
    pub locked_by: Option<Column>,
    pub attempts: Option<Column>,
    pub max_attempts: Option<Column>,
    pub available_at: Option<Column>,
    pub error: Option<Column>,
    pub finished_at: Option<Column>,
    pub priority: Option<Column>,
    pub fence: Option<Column>,
    pub scope: Vec<(Column, Value)>,
    /// The columns that rows come with.
    pub columns: Vec<Column>,
    pub zone: Option<Zone>,
    /// Seconds from UTC, and since when they are known, for a zone that changes.
    offset: Mutex<Option<(i32, Instant)>>,
}

impl Table {
    /// Checks `mapping` against the table.
    ///
    /// # Errors
    /// `Schema` without the table; `Config`, naming the entry and the column, for everything that does not fit.
    pub(crate) fn bind(name: TableName, flavor: Flavor, mapping: Mapping, layout: Layout) -> Result<Self> {
        let shown = name.shown();
        let binder = Binder { shown: &shown, quoted: name.quoted(flavor), layout: &layout };
        if layout.columns.is_empty() {
            return Err(Error::new(ErrorKind::Schema, format!("there is no table {shown}")));
        }
        if layout.is_view {
            return Err(Error::config(format!("{shown} is a view; map the table behind it")));
        }
        if !layout.engine.is_empty() && !layout.engine.eq_ignore_ascii_case("innodb") {
            let mend = format!("ALTER TABLE {} ENGINE=InnoDB", binder.quoted);
            return Err(Error::config(format!(
                "{shown} is {}, which has no row locks and no transactions; {mend}",
                layout.engine
            )));
        }
        let key = binder.key(mapping.key.as_deref())?;
        let zone = mapping.zone.as_deref().map(Zone::parse).transpose()?;
        let status = binder.column("status", &mapping.status)?;
        let value = |role: &str, value: &Value| match value {
            Value::Null => Err(Error::config(format!("{role} cannot be NULL"))),
            _ => status.fit(value, None, mapping.unit).map_err(|e| Error::config(format!("{role}: {}", e.message()))),
        };
        let (pending, processing, done) =
            (value("pending", &mapping.pending)?, value("processing", &mapping.processing)?, value("done", &mapping.done)?);
        let failed = mapping.failed.as_ref().map(|failed| value("failed", failed)).transpose()?;
        let held = mapping.held.as_ref().map(|held| value("held", held)).transpose()?;
        let token = binder.column("token", &mapping.token)?;
        let (token_form, token_free) = binder.token(&token)?;
        let number = |role: &str, column: &Option<String>| binder.typed(role, column, "a whole number", is_int);
        let text = |role: &str, column: &Option<String>| binder.typed(role, column, "text", is_text);
        let time = |role: &str, column: &Option<String>| binder.time(role, column, zone.as_ref());
        let max_column = match &mapping.max_attempts {
            Some(MaxAttempts::Column(column)) => Some(column.clone()),
            _ => None,
        };
        let mut scope = Vec::with_capacity(mapping.scope.len());
        for (column, value) in &mapping.scope {
            let column = binder.column("scope", column)?;
            let value =
                column.fit(value, zone.as_ref(), mapping.unit).map_err(|e| Error::config(format!("scope: {}", e.message())))?;
            scope.push((column, value));
        }
        let columns = match &mapping.columns {
            Some(names) => names.iter().map(|name| binder.column("columns", name)).collect::<Result<_>>()?,
            None => layout.columns.clone(),
        };
        let table = Table {
            key_is_primary: layout.primary == [key.name.clone()],
            claimed_at: time("claimed_at", &mapping.claimed_at)?,
            lease_until: time("lease_until", &mapping.lease_until)?,
            locked_by: text("locked_by", &mapping.locked_by)?,
            attempts: number("attempts", &mapping.attempts)?,
            max_attempts: number("max_attempts", &max_column)?,
            available_at: time("available_at", &mapping.available_at)?,
            error: text("error", &mapping.error)?,
            finished_at: time("finished_at", &mapping.finished_at)?,
            priority: number("priority", &mapping.priority)?,
            fence: number("fence", &mapping.fence)?,
            name,
            flavor,
            key,
            status,
            pending,
            processing,
            done,
            failed,
            held,
            token,
            token_form,
            token_free,
            scope,
            columns,
            zone,
            offset: Mutex::default(),
            mapping,
            layout,
        };
        table.check()?;
        Ok(table)
    }

    /// What must hold between the entries.
    fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::config(format!("{}: {text}", self.name.shown())));
        if self.processing == self.pending || self.processing == self.done {
            return refuse("processing must differ from pending and done".to_owned());
        }
        if self.failed.as_ref().is_some_and(|failed| [&self.pending, &self.processing, &self.done].contains(&failed)) {
            return refuse("failed must differ from pending, processing and done".to_owned());
        }
        self.check_held()?;
        if self.mapping.max_attempts.is_some() && (self.attempts.is_none() || self.failed.is_none()) {
            return refuse("max_attempts needs attempts, which counts them, and failed, where such rows go".to_owned());
        }
        if self.recurs() && self.available_at.is_none() {
            return refuse("rows that recur (done is pending) need available_at, their next time".to_owned());
        }
        if self.mapping.recover_after.is_some() && self.claimed_at.is_none() && self.lease_until.is_none() {
            return refuse("recover_after needs claimed_at or lease_until, by which rows are known to be old".to_owned());
        }
        if !self.mapping.registry
            && self.lease_until.is_none()
            && (self.claimed_at.is_none() || self.mapping.recover_after.is_none())
        {
            return refuse(
                "registry off needs lease_until, or claimed_at with recover_after: the lease is in the row then".to_owned(),
            );
        }
        if let Some(claimed_at) = self.claimed_at.as_ref().filter(|_| !self.mapping.registry && self.lease_until.is_none())
            && let (Some(after), Some(lease)) = (self.mapping.recover_after, self.mapping.lease)
            && lease > after
        {
            return refuse(format!("lease must not be longer than recover_after, since {} is all others see", claimed_at.name));
        }
        let mut roles: Vec<(&str, &str)> =
            self.mapping.optional_columns().into_iter().filter_map(|(role, c)| c.map(|c| (role, c))).collect();
        roles.extend([("key", self.key.name.as_str()), ("status", &self.status.name), ("token", &self.token.name)]);
        // The holder's name may be the token: what such a column showed before was a name nobody could rely on.
        roles.sort_by_key(|(_, column)| column.to_lowercase());
        for pair in roles.windows(2) {
            if let [(a, column), (b, other)] = pair
                && column.eq_ignore_ascii_case(other)
            {
                return refuse(format!("column {column} cannot be both {a} and {b}"));
            }
        }
        Ok(())
    }

    /// Done rows wait again.
    pub(crate) fn recurs(&self) -> bool {
        self.done == self.pending
    }

    /// Seconds from UTC of DATETIME columns, where that need not be asked for.
    pub(crate) fn known_offset(&self) -> Option<i32> {
        let Some(zone) = &self.zone else { return Some(0) };
        let known = *self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        zone.fixed_offset().or_else(|| known.filter(|(_, since)| since.elapsed() < OFFSET_KEPT).map(|(offset, _)| offset))
    }

    /// The same at the database's `now`, known from here on for a while.
    pub(crate) fn know_offset(&self, now: Timestamp) -> i32 {
        let offset = self.zone.as_ref().map_or(0, |zone| zone.offset_at(now));
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner) = Some((offset, Instant::now()));
        offset
    }

    /// The most attempts a row can have counted.
    pub(crate) fn attempts_column_max(&self) -> i64 {
        match self.attempts.as_ref().map(|column| &column.kind) {
            Some(Kind::Int { max, .. }) => i64::try_from(*max).unwrap_or(i64::MAX),
            _ => i64::MAX,
        }
    }

    /// A column by name, for filters and for what a completion sets.
    ///
    /// # Errors
    /// `Invalid`, naming the columns there are.
    pub(crate) fn column(&self, name: &str) -> Result<&Column> {
        self.layout.column(name).ok_or_else(|| Error::invalid(missing(&self.name.shown(), name, &self.layout)))
    }

    /// `value` as `column` takes it.
    pub(crate) fn fit(&self, column: &Column, value: &Value) -> Result<Value> {
        column.fit(value, self.zone.as_ref(), self.mapping.unit)
    }
}

fn is_int(kind: &Kind) -> bool {
    matches!(kind, Kind::Int { .. })
}

fn is_text(kind: &Kind) -> bool {
    matches!(kind, Kind::Text { .. })
}

fn missing(table: &str, column: &str, layout: &Layout) -> String {
    let names: Vec<&str> = layout.columns.iter().map(|column| column.name.as_str()).collect();
    format!("table {table} has no column {column:?}; it has {}", names.join(", "))
}

struct Binder<'a> {
    shown: &'a str,
    quoted: String,
    layout: &'a Layout,
}

impl Binder<'_> {
    fn column(&self, role: &str, name: &str) -> Result<Column> {
        check_name(role, name)?;
        let found = self.layout.column(name).cloned();
        found.ok_or_else(|| Error::config(format!("{role}: {}", missing(self.shown, name, self.layout))))
    }

    fn typed(&self, role: &str, name: &Option<String>, what: &str, fits: impl Fn(&Kind) -> bool) -> Result<Option<Column>> {
        let Some(name) = name else { return Ok(None) };
        let column = self.column(role, name)?;
        if !fits(&column.kind) {
            return Err(Error::config(format!("{role}: column {name} of {} must be {what}", self.shown)));
        }
        Ok(Some(column))
    }

    fn time(&self, role: &str, name: &Option<String>, zone: Option<&Zone>) -> Result<Option<Column>> {
        let is_time = |kind: &Kind| matches!(kind, Kind::DateTime { .. } | Kind::Timestamp { .. } | Kind::Int { .. });
        let column = self.typed(role, name, "DATETIME, TIMESTAMP or a whole number of seconds or milliseconds", is_time)?;
        if let Some(column) = column.as_ref().filter(|column| matches!(column.kind, Kind::DateTime { .. }) && zone.is_none()) {
            return Err(Error::config(format!(
                "{role}: column {} of {} knows no zone; say it, for instance zone +08:00 or UTC",
                column.name, self.shown
            )));
        }
        Ok(column)
    }

    fn key(&self, name: Option<&str>) -> Result<Column> {
        let hint = "map another column by key that is unique and not NULL";
        let name = match (name, self.layout.primary.as_slice()) {
            (Some(name), _) => name.to_owned(),
            (None, [column]) => column.clone(),
            (None, []) => return Err(Error::config(format!("{} has no primary key; {hint}", self.shown))),
            (None, columns) => {
                let columns = columns.join(", ");
                return Err(Error::config(format!(
                    "the primary key of {} is ({columns}), more than one column; {hint}",
                    self.shown
                )));
            }
        };
        let column = self.column("key", &name)?;
        let is_unique = self.layout.primary == [column.name.clone()]
            || self
                .layout
                .indexes
                .iter()
                .any(|index| index.is_unique && index.is_whole && index.columns == [column.name.clone()]);
        if !is_unique || column.is_nullable {
            return Err(Error::config(format!("key: column {name} of {} is not unique and NOT NULL; {hint}", self.shown)));
        }
        if !matches!(column.kind, Kind::Int { .. } | Kind::Text { .. } | Kind::Bytes { .. }) {
            return Err(Error::config(format!("key: column {name} of {} is no whole number, text or bytes", self.shown)));
        }
        Ok(column)
    }

    fn token(&self, column: &Column) -> Result<(TokenForm, Value)> {
        let mend = format!("ALTER TABLE {} MODIFY {} VARCHAR(36) NULL", self.quoted, column.name);
        let form = match &column.kind {
            Kind::Text { chars: 36.., .. } => TokenForm::Hyphenated,
            Kind::Text { chars: 32..=35, .. } => TokenForm::Simple,
            Kind::Bytes { length: 16, .. } | Kind::Bytes { length: 16.., is_fixed: false } => TokenForm::Raw,
            Kind::Text { chars, .. } => {
                return Err(Error::config(format!(
                    "token: column {} of {} holds {chars} characters, and a token has 32; {mend}",
                    column.name, self.shown
                )));
            }
            _ => {
                return Err(Error::config(format!(
                    "token: column {} of {} must be text of at least 32 characters, or 16 bytes; {mend}",
                    column.name, self.shown
                )));
            }
        };
        let free = match (column.is_nullable, form) {
            (true, _) => Value::Null,
            (false, TokenForm::Raw) => Value::Bytes(Vec::new()),
            (false, _) => Value::Text(String::new()),
        };
        if form == TokenForm::Raw && !column.is_nullable && matches!(column.kind, Kind::Bytes { is_fixed: true, .. }) {
            return Err(Error::config(format!("token: column {} of {} must allow NULL; {mend}", column.name, self.shown)));
        }
        Ok((form, free))
    }
}
