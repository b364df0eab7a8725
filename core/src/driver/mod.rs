//! I/O and nothing else: sessions that run statements and hand back rows.
//!
//! What the answers mean is the plan's; which codes mean what is the dialect's; retrying is `engine/run.rs`.
//! The one thing to know: a session whose future was dropped half-way is closed, never reused.

mod mysql;
mod sqlite;
mod value;

pub(crate) use value::{Row, Statement, Value};

use crate::config::{Config, Target};
use crate::error::{Error, Result};
use rowclaim_migrations::Flavor;
use std::time::Duration;

/// The way to one database.
pub(crate) enum Driver {
    MySql(Box<mysql::Driver>),
    Sqlite(sqlite::Driver),
}

/// One connection.
pub(crate) enum Session {
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

    /// Opens a session, within the connect timeout.
    pub(crate) async fn open(&self, config: &Config) -> Result<Session> {
        let opening = async {
            Ok(match self {
                Driver::MySql(driver) => Session::MySql(driver.open().await?),
                Driver::Sqlite(driver) => Session::Sqlite(driver.open()?),
            })
        };
        within(config.connect_timeout, "the server did not answer within connect_timeout", opening).await
    }
}

async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::unavailable(what)),
    }
}

impl Session {
    pub(crate) fn info(&self) -> &ServerInfo {
        match self {
            Session::MySql(session) => session.info(),
            Session::Sqlite(session) => session.info(),
        }
    }

    /// Runs a reading statement.
    pub(crate) async fn query(&mut self, statement: &Statement) -> Result<Vec<Row>> {
        match self {
            Session::MySql(session) => session.query(statement).await,
            Session::Sqlite(session) => session.query(statement),
        }
    }

    /// Runs a writing statement.
    pub(crate) async fn execute(&mut self, statement: &Statement) -> Result<Executed> {
        match self {
            Session::MySql(session) => session.execute(statement).await,
            Session::Sqlite(session) => session.execute(statement),
        }
    }

    /// Runs one statement without values over the text protocol (DDL, session settings).
    pub(crate) async fn run_text(&mut self, sql: &str) -> Result<()> {
        match self {
            Session::MySql(session) => session.run_text(sql).await,
            Session::Sqlite(session) => session.run_text(sql),
        }
    }

    /// Opens a transaction that writes. On SQLite it holds the write lock from here on.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        match self {
            Session::MySql(session) => session.run_text("START TRANSACTION").await,
            Session::Sqlite(session) => session.run_text("BEGIN IMMEDIATE"),
        }
    }

    pub(crate) async fn commit(&mut self) -> Result<()> {
        self.run_text("COMMIT").await
    }

    /// Ends a failed transaction. Safe outside of one.
    pub(crate) async fn rollback(&mut self) -> Result<()> {
        match self {
            Session::MySql(session) => session.run_text("ROLLBACK").await,
            Session::Sqlite(session) => session.rollback(),
        }
    }

    /// Says good-bye to the server, within `limit`.
    pub(crate) async fn close(self, limit: Duration) {
        match self {
            Session::MySql(session) => session.close(limit).await,
            Session::Sqlite(session) => session.close(),
        }
    }
}
