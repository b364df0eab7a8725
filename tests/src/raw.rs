//! Plain SQL beside the engine, on a connection of its own with the server's defaults.

use mysql_async::prelude::Queryable;
use rowclaim_migrations::{Flavor, Names};
use tokio::runtime::Runtime;

/// Rows as text, NULL as `None`.
pub type Rows = Vec<Vec<Option<String>>>;

/// The engine's own tables, without the prefix.
pub const OWN_TABLES: [&str; 10] =
    ["jobs", "claims", "attempts", "tables", "leases", "effects", "runs", "schedules", "limits", "schema"];

pub struct Raw {
    names: Names,
    connection: Connection,
}

enum Connection {
    MySql { runtime: Runtime, connection: Box<mysql_async::Conn> },
    Sqlite(rusqlite::Connection),
}

impl Raw {
    pub fn open(dsn: &str, prefix: &str) -> Raw {
        let (base, _) = dsn.split_once('?').unwrap_or((dsn, ""));
        if let Some(path) = base.strip_prefix("sqlite://") {
            let connection = rusqlite::Connection::open(path).unwrap();
            connection.busy_timeout(std::time::Duration::from_secs(20)).unwrap();
            return Raw { names: Names::new(Flavor::Sqlite, prefix), connection: Connection::Sqlite(connection) };
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opts = mysql_async::Opts::from_url(&format!("{base}?prefer_socket=false")).unwrap();
        let connection = Box::new(runtime.block_on(mysql_async::Conn::new(opts)).unwrap());
        Raw { names: Names::new(Flavor::MySql, prefix), connection: Connection::MySql { runtime, connection } }
    }

    /// Runs statements without answers, separated by a semicolon at a line's end.
    pub fn run(&mut self, sql: &str) {
        self.try_run(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
    }

    pub fn try_run(&mut self, sql: &str) -> Result<(), String> {
        let sql = self.names.fill(sql);
        match &mut self.connection {
            Connection::MySql { runtime, connection } => {
                runtime.block_on(connection.query_drop(&sql)).map_err(|error| error.to_string())
            }
            Connection::Sqlite(connection) => connection.execute_batch(&sql).map_err(|error| error.to_string()),
        }
    }

    pub fn rows(&mut self, sql: &str) -> Rows {
        self.try_rows(sql).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Raw::rows`]; the server's refusal as text.
    pub fn try_rows(&mut self, sql: &str) -> Result<Rows, String> {
        let sql = self.names.fill(sql);
        match &mut self.connection {
            Connection::MySql { runtime, connection } => {
                let rows: Vec<mysql_async::Row> =
                    runtime.block_on(connection.query(&sql)).map_err(|error| format!("{error}: {sql}"))?;
                let text = |value: mysql_async::Value| match value {
                    mysql_async::Value::NULL => None,
                    mysql_async::Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                    other => Some(other.as_sql(true)),
                };
                Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
            }
            Connection::Sqlite(connection) => {
                let mut statement = connection.prepare(&sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
                let columns = statement.column_count();
                let mut rows = statement.query([]).unwrap();
                let mut answer = Vec::new();
                while let Some(row) = rows.next().unwrap() {
                    let text = |column| match row.get_ref(column).unwrap() {
                        rusqlite::types::ValueRef::Null => None,
                        rusqlite::types::ValueRef::Integer(number) => Some(number.to_string()),
                        rusqlite::types::ValueRef::Real(number) => Some(number.to_string()),
                        rusqlite::types::ValueRef::Text(bytes) | rusqlite::types::ValueRef::Blob(bytes) => {
                            Some(String::from_utf8_lossy(bytes).into_owned())
                        }
                    };
                    answer.push((0..columns).map(text).collect());
                }
                Ok(answer)
            }
        }
    }

    /// All own tables, on any database.
    pub fn drop_own_tables(&mut self) {
        for table in OWN_TABLES {
            self.run(&format!("DROP TABLE IF EXISTS {{{table}}}"));
        }
    }

    /// The server's id of this connection.
    pub fn connection_id(&self) -> u32 {
        match &self.connection {
            Connection::MySql { connection, .. } => connection.id(),
            Connection::Sqlite(_) => 0,
        }
    }
}
