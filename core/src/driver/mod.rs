//! I/O and nothing else: sessions that run statements and hand back rows.
//!
//! What the answers mean is the plan's; which codes mean what is the dialect's; retrying is `engine/run.rs`.
//! The one thing to know: a session whose future was dropped half-way is closed, never reused.

mod mysql;
mod sqlite;

use crate::config::{Config, Target};
use crate::error::{Error, Result};
use crate::value::{Row, Statement};
use rowclaim_migrations::Flavor;
use std::time::Duration;

/// The way to one database.
pub(crate) enum Driver {
    MySql(Box<mysql::Driver>),
    Sqlite(sqlite::Driver),
}

/// One connection.
pub(crate) struct Session {
    connection: Connection,
    #[cfg(feature = "faults")]
    faults: crate::faults::Faults,
}

enum Connection {
    MySql(mysql::Session),
    Sqlite(sqlite::Session),
}

/// What a writing statement did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executed {
    /// Rows that matched the condition (not only those that changed).
    pub matched: u64,
    /// The first id an INSERT made.
    pub last_id: i64,
}

/// What the server said of itself when the session was opened.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    /// Name and version, for people.
    pub version: String,
    /// The largest statement the server takes, in bytes.
    pub max_packet: usize,
}

impl Driver {
    pub(crate) fn new(config: &Config) -> Result<Self> {
        Ok(match &config.target {
            Target::MySql(target) => Driver::MySql(Box::new(mysql::Driver::new(target, config)?)),
            Target::Sqlite(path) => Driver::Sqlite(sqlite::Driver::new(path.as_deref(), config)?),
        })
    }

    pub(crate) fn flavor(&self) -> Flavor {
        match self {
            Driver::MySql(_) => Flavor::MySql,
            Driver::Sqlite(_) => Flavor::Sqlite,
        }
    }

    /// Opens a session, within the connect timeout; it waits `lock_timeout` for a row lock.
    pub(crate) async fn open(&self, config: &Config, lock_timeout: Duration) -> Result<Session> {
        let opening = async {
            let connection = match self {
                Driver::MySql(driver) => Connection::MySql(driver.open(lock_timeout).await?),
                Driver::Sqlite(driver) => Connection::Sqlite(driver.open()?),
            };
            Ok(Session {
                connection,
                #[cfg(feature = "faults")]
                faults: config.faults.clone(),
            })
        };
        within(config.connect_timeout, "cannot reach the server: no answer within connect_timeout", opening).await
    }
}

async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::unavailable(what)),
    }
}

/// Runs a call on a connection, with the faults a test has ordered.
macro_rules! call {
    ($session:ident, $sql:expr, $mysql:expr, $sqlite:expr) => {{
        #[cfg(feature = "faults")]
        let is_lost_after = $session.faults.before($sql)?;
        let answer = match &mut $session.connection {
            Connection::MySql(connection) => $mysql(connection).await,
            Connection::Sqlite(connection) => $sqlite(connection),
        };
        #[cfg(feature = "faults")]
        if is_lost_after {
            answer?;
            return Err(crate::faults::lost());
        }
        answer
    }};
}

impl Session {
    pub(crate) fn info(&self) -> &ServerInfo {
        match &self.connection {
            Connection::MySql(connection) => connection.info(),
            Connection::Sqlite(connection) => connection.info(),
        }
    }

    /// Runs a reading statement.
    pub(crate) async fn query(&mut self, statement: &Statement) -> Result<Vec<Row>> {
        call!(self, &statement.sql, async |c: &mut mysql::Session| c.query(statement).await, |c: &mut sqlite::Session| c
            .query(statement))
    }

    /// Runs a reading statement on a user's table: the names of its columns, and values by their types.
    pub(crate) async fn query_typed(&mut self, statement: &Statement) -> Result<(Vec<String>, Vec<Row>)> {
        call!(self, &statement.sql, async |c: &mut mysql::Session| c.query_typed(statement).await, |c: &mut sqlite::Session| c
            .query_typed(statement))
    }

    /// Runs a writing statement.
    pub(crate) async fn execute(&mut self, statement: &Statement) -> Result<Executed> {
        call!(self, &statement.sql, async |c: &mut mysql::Session| c.execute(statement).await, |c: &mut sqlite::Session| c
            .execute(statement))
    }

    /// Runs one statement without values over the text protocol (DDL, transactions).
    pub(crate) async fn run_text(&mut self, sql: &str) -> Result<()> {
        call!(self, sql, async |c: &mut mysql::Session| c.run_text(sql).await, |c: &mut sqlite::Session| c.run_text(sql))
    }

    /// Opens a transaction that writes. On SQLite it holds the write lock from here on.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        match self.connection {
            Connection::MySql(_) => self.run_text("START TRANSACTION").await,
            Connection::Sqlite(_) => self.run_text("BEGIN IMMEDIATE").await,
        }
    }

    pub(crate) async fn commit(&mut self) -> Result<()> {
        self.run_text("COMMIT").await
    }

    /// Ends a failed transaction. Safe outside of one.
    pub(crate) async fn rollback(&mut self) -> Result<()> {
        match &mut self.connection {
            Connection::MySql(connection) => connection.run_text("ROLLBACK").await,
            Connection::Sqlite(connection) => connection.rollback(),
        }
    }

    /// Says good-bye to the server, within `limit`.
    pub(crate) async fn close(self, limit: Duration) {
        match self.connection {
            Connection::MySql(connection) => connection.close(limit).await,
            Connection::Sqlite(connection) => connection.close(),
        }
    }
}
