//! SQLite through rusqlite: a file in WAL mode, or a database in memory that two connections share.

use super::{Executed, ServerInfo};
use crate::config::Config;
use crate::dialect::codes;
use crate::error::{Error, Result};
use crate::time::Timestamp;
use crate::value::{Row, Statement, Value};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql};
use std::cell::Cell;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A database with more than this many bytes in one value is refused by SQLite's own default.
const MAX_VALUE: usize = 1_000_000_000;

pub(crate) struct Driver {
    location: String,
    is_memory: bool,
    full_sync: bool,
    /// Keeps a database in memory alive between sessions.
    anchor: Mutex<Option<Connection>>,
}

pub(crate) struct Session {
    connection: Connection,
    info: ServerInfo,
}

impl Driver {
    pub(super) fn new(path: Option<&Path>, config: &Config) -> Result<Self> {
        let location = match path {
            Some(path) => {
                path.to_str().map(str::to_owned).ok_or_else(|| Error::config("the path of the sqlite DSN is not UTF-8"))?
            }
            // A name that starts with a slash is shared by all connections of this process that ask for it.
            None => format!("file:/rowclaim-{}?vfs=memdb", uuid::Uuid::new_v4().simple()),
        };
        Ok(Driver { location, is_memory: path.is_none(), full_sync: config.sqlite_full_sync, anchor: Mutex::new(None) })
    }

    fn connect(&self) -> Result<Connection> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if self.is_memory {
            flags |= OpenFlags::SQLITE_OPEN_URI;
        }
        Connection::open_with_flags(&self.location, flags).map_err(|e| {
            let hint = if self.location.starts_with('/') {
                "; sqlite:///x is an absolute path, a relative one is written sqlite:x"
            } else {
                ""
            };
            Error::config(format!("cannot open the SQLite file {}: {e}{hint}", self.location))
        })
    }

    pub(super) fn open(&self) -> Result<Session> {
        if self.is_memory {
            let mut anchor = self.anchor.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if anchor.is_none() {
                *anchor = Some(self.connect()?);
            }
        }
        let connection = self.connect()?;
        // A quoted name that is no column must be an error, not a text.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false).map_err(codes::sqlite)?;
        connection.set_prepared_statement_cache_capacity(128);
        connection.busy_handler(Some(draw_a_wait)).map_err(codes::sqlite)?;
        let mode = if self.is_memory { "MEMORY" } else { "WAL" };
        let sync = if self.full_sync { "FULL" } else { "NORMAL" };
        connection.execute_batch(&format!("PRAGMA journal_mode={mode}; PRAGMA synchronous={sync};")).map_err(codes::sqlite)?;
        let info = ServerInfo { version: format!("SQLite {}", rusqlite::version()), max_packet: MAX_VALUE };
        Ok(Session { connection, info })
    }
}

/// One call waits this long for the write lock; the engine's retries wait on.
const LOCK_WAIT: Duration = Duration::from_secs(1);

thread_local! {
    static WAITING_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// SQLite's own busy handler sleeps up to 100 ms and starves writers; this one draws short waits by lot.
fn draw_a_wait(tries: i32) -> bool {
    let since = WAITING_SINCE.get().filter(|_| tries > 0).unwrap_or_else(Instant::now);
    WAITING_SINCE.set(Some(since));
    if since.elapsed() >= LOCK_WAIT {
        return false;
    }
    let longest = if tries < 10 { 1_000 } else { 5_000 };
    std::thread::sleep(Duration::from_micros(fastrand::u64(100..longest)));
    true
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::At(Timestamp(micros)) => ValueRef::Integer(*micros),
            Value::UInt(number) => return Ok(ToSqlOutput::from(number.to_string())),
            Value::Float(number) => ValueRef::Real(*number),
            Value::Text(text) | Value::Decimal(text) | Value::Moment(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl Session {
    pub(super) fn info(&self) -> &ServerInfo {
        &self.info
    }

    pub(super) fn query(&mut self, statement: &Statement) -> Result<Vec<Row>> {
        let mut prepared = self.connection.prepare_cached(&statement.sql).map_err(codes::sqlite)?;
        let columns = prepared.column_count();
        let mut rows = prepared.query(rusqlite::params_from_iter(&statement.values)).map_err(codes::sqlite)?;
        let mut answer = Vec::new();
        while let Some(row) = rows.next().map_err(codes::sqlite)? {
            let mut values = Vec::with_capacity(columns);
            for column in 0..columns {
                values.push(match row.get_ref(column).map_err(codes::sqlite)? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(number) => Value::Int(number),
                    ValueRef::Text(text) => Value::Bytes(text.to_vec()),
                    ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
                    ValueRef::Real(_) => return Err(Error::decode(format!("column {column} is a broken number"))),
                });
            }
            answer.push(Row(values));
        }
        Ok(answer)
    }

    pub(super) fn query_typed(&mut self, statement: &Statement) -> Result<(Vec<String>, Vec<Row>)> {
        let mut prepared = self.connection.prepare_cached(&statement.sql).map_err(codes::sqlite)?;
        let names: Vec<String> = prepared.column_names().into_iter().map(str::to_owned).collect();
        let mut rows = prepared.query(rusqlite::params_from_iter(&statement.values)).map_err(codes::sqlite)?;
        let mut answer = Vec::new();
        while let Some(row) = rows.next().map_err(codes::sqlite)? {
            let mut values = Vec::with_capacity(names.len());
            for column in 0..names.len() {
                values.push(match row.get_ref(column).map_err(codes::sqlite)? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(number) => Value::Int(number),
                    ValueRef::Real(number) => Value::Float(number),
                    // SQLite keeps bytes that are no text in a text column.
                    ValueRef::Text(text) => {
                        String::from_utf8(text.to_vec()).map_or_else(|_| Value::Bytes(text.to_vec()), Value::Text)
                    }
                    ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
                });
            }
            answer.push(Row(values));
        }
        drop(rows);
        Ok((names, answer))
    }

    pub(super) fn execute(&mut self, statement: &Statement) -> Result<Executed> {
        let mut prepared = self.connection.prepare_cached(&statement.sql).map_err(codes::sqlite)?;
        let matched = prepared.execute(rusqlite::params_from_iter(&statement.values)).map_err(codes::sqlite)?;
        drop(prepared);
        Ok(Executed { matched: matched as u64, last_id: self.connection.last_insert_rowid() })
    }

    pub(super) fn run_text(&mut self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(codes::sqlite)
    }

    pub(super) fn rollback(&mut self) -> Result<()> {
        if self.connection.is_autocommit() { Ok(()) } else { self.run_text("ROLLBACK") }
    }

    pub(super) fn close(self) {
        if let Err((_, error)) = self.connection.close() {
            log::debug!("closing the SQLite connection: {error}");
        }
    }
}
