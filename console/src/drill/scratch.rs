//! The drill's own tables, under a prefix that was drawn by lot: made before, dropped after.
//!
//! `holding`: who surely held what, and from when to when, on the database's clock. `guarded`: rows that only the newest
//! holder may write. The one thing to know: a time is written to `holding` only when the lease was still surely valid after
//! the database had answered with it, so that a process that was stopped in between writes nothing wrong.

use super::history::Interval;
use crate::connect;
use crate::fault::Fault;
use crate::progress;
use rowclaim::blocking::Engine;
use rowclaim::{Config, GuardedWrite, Value};
use std::time::Duration;

/// Where the drill takes place.
pub struct Scratch {
    pub engine: Engine,
    /// With the prefix in it.
    pub dsn: String,
    prefix: String,
    is_sqlite: bool,
    /// The console's, which drops them.
    is_own: bool,
}

/// What a write says that the newest holder makes, and what one says that came too late.
pub const IN_TIME: &str = "in time";
pub const LATE: &str = "late";

impl Scratch {
    /// Makes the tables under a new prefix.
    pub fn make(dsn: &str) -> Result<Self, Fault> {
        let prefix = format!("drill_{}_", &uuid::Uuid::new_v4().simple().to_string().get(..8).unwrap_or("x"));
        let dsn = connect::with_options(dsn, &[("prefix", &prefix)]);
        let scratch = Scratch::open(Engine::connect(&dsn)?, dsn, prefix, true)?;
        scratch.fill()?;
        Ok(scratch)
    }

    /// The tables that the console has made, in a worker. `config` has the options of this process.
    pub fn join(config: Config, dsn: String, prefix: String) -> Result<Self, Fault> {
        Scratch::open(Engine::with_config(config)?, dsn, prefix, false)
    }

    fn open(engine: Engine, dsn: String, prefix: String, is_own: bool) -> Result<Self, Fault> {
        let is_sqlite = engine.server_version()?.starts_with("SQLite");
        Ok(Scratch { engine, dsn, prefix, is_sqlite, is_own })
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn fill(&self) -> Result<(), Fault> {
        self.engine.migrate()?;
        let (text, end) = match self.is_sqlite {
            true => ("TEXT", ""),
            false => ("VARCHAR(64)", " ENGINE=InnoDB"),
        };
        let holding = "fence BIGINT NOT NULL, since BIGINT NOT NULL, til BIGINT NOT NULL, PRIMARY KEY (name, fence)";
        let guarded = "note VARCHAR(16) NOT NULL, fence BIGINT NOT NULL, PRIMARY KEY (name)";
        for (table, columns) in [("holding", holding), ("guarded", guarded)] {
            let sql = format!("CREATE TABLE IF NOT EXISTS {}{table} (name {text} NOT NULL, {columns}){end}", self.prefix);
            self.engine.sql(&sql, &[])?;
        }
        Ok(())
    }

    /// Drops every table of the prefix, also those of a version of the schema that this file has never heard of.
    fn drop_tables(&self) -> Result<(), Fault> {
        let sql = match self.is_sqlite {
            true => "SELECT name FROM sqlite_master WHERE type = 'table'",
            false => "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()",
        };
        for row in self.engine.sql(sql, &[])? {
            let Some(name) = row.first().and_then(Value::as_text).filter(|name| name.starts_with(&self.prefix)) else { continue };
            self.engine.sql(&format!("DROP TABLE IF EXISTS {name}"), &[])?;
        }
        Ok(())
    }

    /// Now, on the database's clock, in microseconds since 1970.
    pub fn now(&self) -> Result<i64, Fault> {
        let sql = match self.is_sqlite {
            // As the engine reads it there.
            true => "SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000",
            false => "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
        };
        let rows = self.engine.sql(sql, &[])?;
        rows.first().and_then(|row| int(row, 0)).ok_or_else(|| Fault::unexpected("the database does not know the time"))
    }

    /// Writes down that a holder surely holds now. `valid_for` is asked after the database has said when that is.
    pub fn observe(&self, name: &str, fence: i64, valid_for: impl Fn() -> Duration) -> Result<bool, Fault> {
        let now = self.now()?;
        if valid_for().is_zero() {
            return Ok(false);
        }
        self.hold(name, fence, now)?;
        Ok(true)
    }

    /// Writes down that a holder held at a time.
    pub fn hold(&self, name: &str, fence: i64, at: i64) -> Result<(), Fault> {
        let prefix = &self.prefix;
        let sql = match self.is_sqlite {
            true => format!(
                "INSERT INTO {prefix}holding (name, fence, since, til) VALUES (?1, ?2, ?3, ?3) \
                 ON CONFLICT (name, fence) DO UPDATE SET til = max(til, ?3)"
            ),
            false => format!(
                "INSERT INTO {prefix}holding (name, fence, since, til) VALUES (?, ?, ?, ?) \
                 ON DUPLICATE KEY UPDATE til = GREATEST(til, ?)"
            ),
        };
        let mut values = vec![name.into(), fence.into(), at.into()];
        if !self.is_sqlite {
            values.extend([at.into(), at.into()]);
        }
        self.engine.sql(&sql, &values)?;
        Ok(())
    }

    /// Who held what.
    pub fn history(&self) -> Result<Vec<(String, Interval)>, Fault> {
        let rows = self.engine.sql(&format!("SELECT name, fence, since, til FROM {}holding", self.prefix), &[])?;
        let read = |row: &Vec<Value>| {
            let name = row.first().and_then(Value::as_text)?.to_owned();
            Some((name, Interval { fence: int(row, 1)?, since: int(row, 2)?, until: int(row, 3)? }))
        };
        Ok(rows.iter().filter_map(read).collect())
    }

    /// A fenced write to the row of a name; false when a newer fence has written before.
    pub fn guard(&self, name: &str, fence: i64, note: &str) -> Result<bool, Fault> {
        Ok(self.engine.guard(&GuardedWrite {
            table: format!("{}guarded", self.prefix),
            key: vec![("name".to_owned(), name.into())],
            set: vec![("note".to_owned(), note.into())],
            fence_column: "fence".to_owned(),
            fence,
        })?)
    }

    /// The same write without a guard: for proof that a check can fail.
    pub fn write_unguarded(&self, name: &str, note: &str) -> Result<(), Fault> {
        let sql = format!("UPDATE {}guarded SET note = ? WHERE name = ?", self.prefix);
        self.engine.sql(&sql, &[note.into(), name.into()])?;
        Ok(())
    }

    /// What the row of a name says: its note and its fence.
    pub fn guarded(&self, name: &str) -> Result<Option<(String, i64)>, Fault> {
        let rows = self.engine.sql(&format!("SELECT note, fence FROM {}guarded WHERE name = ?", self.prefix), &[name.into()])?;
        Ok(rows.first().and_then(|row| Some((row.first()?.as_text()?.to_owned(), int(row, 1)?))))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_own
            && let Err(fault) = self.drop_tables()
        {
            progress::say(&format!("the tables {}* could not be dropped", self.prefix));
            fault.report();
        }
    }
}

fn int(row: &[Value], column: usize) -> Option<i64> {
    match row.get(column)? {
        Value::Int(number) => Some(*number),
        Value::UInt(number) => i64::try_from(*number).ok(),
        Value::Decimal(text) | Value::Text(text) => text.parse().ok(),
        _ => None,
    }
}
