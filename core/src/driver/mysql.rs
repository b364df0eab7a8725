//! MySQL and MariaDB through mysql_async.

use super::{Executed, ServerInfo, within};
use crate::config::{Config, MySqlTarget, TlsMode};
use crate::dialect::codes;
use crate::error::{Error, Result};
use crate::time::Timestamp;
use crate::value::{Row, Statement, Value};
use jiff::civil::DateTime;
use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, Opts, OptsBuilder, Params, SslOpts};
use std::time::Duration;

pub(crate) struct Driver {
    opts: Opts,
    /// Where the server is, for messages.
    address: String,
    statement_timeout: Duration,
}

pub(crate) struct Session {
    connection: Conn,
    info: ServerInfo,
    statement_timeout: Duration,
}

impl Driver {
    pub(super) fn new(target: &MySqlTarget, config: &Config) -> Result<Self> {
        // Zone, mode, character set and isolation are ours on our own connections, whatever the server's
        // defaults are. READ COMMITTED: gap locks would make producers wait for claims.
        let setup = vec![
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            "SET NAMES utf8mb4, time_zone = '+00:00', autocommit = 1, \
             sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'"
                .to_owned(),
        ];
        let opts = OptsBuilder::default()
            .ip_or_hostname(target.host.clone())
            .tcp_port(target.port)
            .socket(target.socket.clone())
            .prefer_socket(false)
            .user(Some(target.user.clone()))
            .pass(target.password.clone())
            .db_name(Some(target.database.clone()))
            .ssl_opts(tls(target))
            .tcp_keepalive(Some(Duration::from_secs(60)))
            .stmt_cache_size(256)
            .client_found_rows(true)
            .max_allowed_packet(Some(1 << 30))
            .wait_timeout(Some(28_800))
            .setup(setup);
        let address = target.socket.clone().unwrap_or_else(|| format!("{}:{}", target.host, target.port));
        Ok(Driver { opts: opts.into(), address, statement_timeout: config.statement_timeout })
    }

    pub(super) async fn open(&self, lock_timeout: Duration) -> Result<Session> {
        let unreachable = |error: mysql_async::Error| codes::unreachable(error, &self.address);
        let mut connection = Conn::new(self.opts.clone()).await.map_err(unreachable)?;
        let seconds = lock_timeout.as_secs().max(1);
        connection.query_drop(format!("SET innodb_lock_wait_timeout = {seconds}")).await.map_err(codes::mysql)?;
        let answer: Option<(Vec<u8>, u64)> =
            connection.query_first("SELECT VERSION(), @@max_allowed_packet").await.map_err(codes::mysql)?;
        let (version, max_packet) = answer.ok_or_else(|| Error::decode("the server did not name its version"))?;
        let info = ServerInfo {
            version: String::from_utf8_lossy(&version).into_owned(),
            max_packet: usize::try_from(max_packet).unwrap_or(usize::MAX),
        };
        Ok(Session { connection, info, statement_timeout: self.statement_timeout })
    }
}

fn tls(target: &MySqlTarget) -> Option<SslOpts> {
    if target.tls.mode == TlsMode::Off {
        return None;
    }
    let mut opts = SslOpts::default();
    if let Some(ca) = &target.tls.ca {
        opts = opts.with_root_certs(vec![ca.clone().into()]);
    }
    Some(opts.with_danger_accept_invalid_certs(target.tls.mode == TlsMode::Insecure))
}

fn bind(value: &Value) -> mysql_async::Value {
    match value {
        Value::Null => mysql_async::Value::NULL,
        Value::Int(number) => mysql_async::Value::Int(*number),
        Value::UInt(number) => mysql_async::Value::UInt(*number),
        Value::Float(number) => mysql_async::Value::Double(*number),
        Value::Text(text) | Value::Decimal(text) | Value::Moment(text) => mysql_async::Value::Bytes(text.as_bytes().to_vec()),
        Value::Bytes(bytes) => mysql_async::Value::Bytes(bytes.clone()),
        Value::At(at) => date_time(*at),
    }
}

/// The calendar form of an instant. Instants are checked to lie in the years 1000 to 9999 when they come in.
fn date_time(at: Timestamp) -> mysql_async::Value {
    let micros = |t: DateTime| u32::try_from(t.subsec_nanosecond() / 1_000).unwrap_or(0);
    let small = |number: i8| number.unsigned_abs();
    at.civil(0).map_or(mysql_async::Value::NULL, |t| {
        let year = u16::try_from(t.year()).unwrap_or(0);
        mysql_async::Value::Date(
            year,
            small(t.month()),
            small(t.day()),
            small(t.hour()),
            small(t.minute()),
            small(t.second()),
            micros(t),
        )
    })
}

fn read(value: mysql_async::Value, column: usize) -> Result<Value> {
    use mysql_async::Value as V;
    Ok(match value {
        V::NULL => Value::Null,
        V::Bytes(bytes) => Value::Bytes(bytes),
        V::Int(number) => Value::Int(number),
        V::UInt(number) => {
            Value::Int(i64::try_from(number).map_err(|_| Error::decode(format!("column {column} is over 63 bits")))?)
        }
        V::Date(year, month, day, hour, minute, second, micro) => {
            let broken = |_| Error::decode(format!("column {column} is not a date"));
            let part = |number: u8| i8::try_from(number).unwrap_or(-1);
            let nanos = i32::try_from(micro).unwrap_or(0) * 1_000;
            let year = i16::try_from(year).unwrap_or(-1);
            let read = DateTime::new(year, part(month), part(day), part(hour), part(minute), part(second), nanos);
            Value::At(Timestamp::of_civil(read.map_err(broken)?, 0))
        }
        V::Float(_) | V::Double(_) | V::Time(..) => {
            return Err(Error::decode(format!("column {column} has a type that is not used here")));
        }
    })
}

fn params(statement: &Statement) -> Params {
    if statement.values.is_empty() { Params::Empty } else { Params::Positional(statement.values.iter().map(bind).collect()) }
}

/// A value of a user's table, by its column's type: text is told from bytes, moments stay as they are stored.
fn read_typed(value: mysql_async::Value, column: &Column) -> Result<Value> {
    use mysql_async::Value as V;
    use mysql_async::consts::ColumnType as T;
    /// The character set of bytes.
    const BINARY: u16 = 63;
    let kind = column.column_type();
    let broken = || Error::decode(format!("column {} holds what it cannot hold", column.name_str()));
    let is_bytes = column.character_set() == BINARY
        && matches!(kind, T::MYSQL_TYPE_BLOB | T::MYSQL_TYPE_TINY_BLOB | T::MYSQL_TYPE_MEDIUM_BLOB | T::MYSQL_TYPE_LONG_BLOB)
        || column.character_set() == BINARY
            && matches!(kind, T::MYSQL_TYPE_STRING | T::MYSQL_TYPE_VAR_STRING | T::MYSQL_TYPE_VARCHAR)
        || matches!(kind, T::MYSQL_TYPE_BIT | T::MYSQL_TYPE_GEOMETRY);
    Ok(match value {
        V::NULL => Value::Null,
        V::Bytes(bytes) if is_bytes => Value::Bytes(bytes),
        V::Bytes(bytes) => {
            let text = String::from_utf8(bytes).map_err(|_| broken())?;
            match kind {
                T::MYSQL_TYPE_NEWDECIMAL | T::MYSQL_TYPE_DECIMAL => Value::Decimal(text),
                _ => Value::Text(text),
            }
        }
        V::Int(number) => Value::Int(number),
        V::UInt(number) => i64::try_from(number).map_or(Value::UInt(number), Value::Int),
        // By its shortest text: 0.1 of a FLOAT stays 0.1.
        V::Float(number) => Value::Float(number.to_string().parse().map_err(|_| broken())?),
        V::Double(number) => Value::Float(number),
        V::Date(year, month, day, hour, minute, second, micro) => {
            let mut text = format!("{year:04}-{month:02}-{day:02}");
            if kind != T::MYSQL_TYPE_DATE {
                text += &format!(" {hour:02}:{minute:02}:{second:02}");
                text += &fraction(micro, column.decimals());
            }
            Value::Moment(text)
        }
        V::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let sign = if is_negative { "-" } else { "" };
            let hours = days * 24 + u32::from(hours);
            Value::Moment(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{}", fraction(micros, column.decimals())))
        }
    })
}

/// As many digits as the column has.
fn fraction(micros: u32, decimals: u8) -> String {
    match usize::from(decimals).min(6) {
        0 => String::new(),
        digits => format!(".{micros:06}").chars().take(digits + 1).collect(),
    }
}

const LATE: &str = "the server did not answer within statement_timeout";

impl Session {
    pub(super) fn info(&self) -> &ServerInfo {
        &self.info
    }

    pub(super) async fn query(&mut self, statement: &Statement) -> Result<Vec<Row>> {
        let work = async {
            let rows: Vec<mysql_async::Row> =
                self.connection.exec(statement.sql.as_str(), params(statement)).await.map_err(codes::mysql)?;
            rows.into_iter()
                .map(|row| {
                    let values = row.unwrap_raw().into_iter().enumerate();
                    let values = values.map(|(column, value)| read(value.unwrap_or(mysql_async::Value::NULL), column));
                    values.collect::<Result<_>>().map(Row)
                })
                .collect()
        };
        within(self.statement_timeout, LATE, work).await
    }

    pub(super) async fn query_typed(&mut self, statement: &Statement) -> Result<(Vec<String>, Vec<Row>)> {
        let work = async {
            let answer = self.connection.exec_iter(statement.sql.as_str(), params(statement)).await.map_err(codes::mysql)?;
            let columns = answer.columns();
            let rows: Vec<mysql_async::Row> = answer.collect_and_drop().await.map_err(codes::mysql)?;
            let columns = columns.as_deref().unwrap_or_default();
            let names = columns.iter().map(|column| column.name_str().into_owned()).collect();
            let read_row = |row: mysql_async::Row| {
                let values = row.unwrap_raw().into_iter().zip(columns);
                let values = values.map(|(value, column)| read_typed(value.unwrap_or(mysql_async::Value::NULL), column));
                values.collect::<Result<_>>().map(Row)
            };
            Ok((names, rows.into_iter().map(read_row).collect::<Result<_>>()?))
        };
        within(self.statement_timeout, LATE, work).await
    }

    pub(super) async fn execute(&mut self, statement: &Statement) -> Result<Executed> {
        let work = async {
            self.connection.exec_drop(statement.sql.as_str(), params(statement)).await.map_err(codes::mysql)?;
            let last_id = self.connection.last_insert_id().unwrap_or(0);
            Ok(Executed { matched: self.connection.affected_rows(), last_id: i64::try_from(last_id).unwrap_or(0) })
        };
        within(self.statement_timeout, LATE, work).await
    }

    pub(super) async fn run_text(&mut self, sql: &str) -> Result<()> {
        let work = async { self.connection.query_drop(sql).await.map_err(codes::mysql) };
        within(self.statement_timeout, LATE, work).await
    }

    pub(super) async fn close(self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.connection.disconnect()).await;
    }
}
