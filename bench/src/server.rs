//! The server under measurement: tables for a figure, jobs put into them, and what the server says of itself.
//!
//! The one thing to know: before a round the server's purge has caught up, so that no round pays for the one before it.

use crate::Result;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use rowclaim::blocking::Engine;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Bytes of a job's payload.
pub const PAYLOAD: usize = 120;
/// Jobs that share one `ready_at`, as those of one call that creates many.
const TOGETHER: usize = 500;
/// All jobs of a round share it, as those of a send at nine o'clock.
pub const ONE_INSTANT: usize = 1_000_000_000;
/// The kernel's clock ticks a second, as seen in /proc.
const TICKS: f64 = 100.0;

/// A connection beside the measured ones.
pub struct Server {
    runtime: Runtime,
    connection: Conn,
    dsn: String,
    pid: Option<u32>,
    filled: usize,
    /// Jobs of [`Server::fill`] that share one `ready_at`.
    pub together: usize,
}

/// The options of every raw connection to `dsn`: over TCP, as the engine's.
pub fn options(dsn: &str) -> Result<Opts> {
    let base = dsn.split_once('?').map_or(dsn, |(base, _)| base);
    Ok(Opts::from_url(&format!("{base}?prefer_socket=false&client_found_rows=true"))?)
}

/// A runtime of one thread, as the engine's.
pub fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// JSON of [`PAYLOAD`] bytes.
pub fn payload(number: usize) -> String {
    let start = format!("{{\"order_id\":{number},\"note\":\"");
    format!("{start}{}\"}}", "x".repeat(PAYLOAD - start.len() - 2))
}

impl Server {
    /// Connects to the server that `ROWCLAIM_TEST_MARIADB` names.
    pub fn connect() -> Result<Self> {
        let dsn = std::env::var("ROWCLAIM_TEST_MARIADB").map_err(|_| "ROWCLAIM_TEST_MARIADB is not set: run `make bench`")?;
        let runtime = runtime()?;
        let connection = runtime.block_on(Conn::new(options(&dsn)?))?;
        let pid = std::env::var("ROWCLAIM_TEST_MARIADB_PID").ok().and_then(|pid| pid.parse().ok());
        Ok(Server { runtime, connection, dsn, pid, filled: 0, together: TOGETHER })
    }

    /// The DSN with a table prefix and further options.
    pub fn dsn(&self, prefix: &str, options: &str) -> String {
        format!("{}?prefix={prefix}{options}", self.dsn)
    }

    /// The DSN without options.
    pub fn base_dsn(&self) -> &str {
        &self.dsn
    }

    /// Runs a statement.
    pub fn run(&mut self, sql: &str) -> Result<()> {
        Ok(self.runtime.block_on(self.connection.query_drop(sql))?)
    }

    /// One number.
    pub fn number(&mut self, sql: &str) -> Result<i64> {
        let number: Option<i64> = self.runtime.block_on(self.connection.query_first(sql))?;
        number.ok_or_else(|| format!("no answer: {sql}").into())
    }

    /// Name and version.
    pub fn version(&mut self) -> Result<String> {
        let version: Option<String> = self.runtime.block_on(self.connection.query_first("SELECT VERSION()"))?;
        Ok(version.unwrap_or_default())
    }

    /// Fresh tables made by the engine's own migration.
    pub fn make_tables(&mut self, prefix: &str) -> Result<()> {
        self.drop_tables(prefix)?;
        let engine = Engine::connect(&self.dsn(prefix, "&heartbeat=0"))?;
        engine.migrate()?;
        engine.close(Duration::from_secs(5))?;
        Ok(())
    }

    /// Drops what [`Server::make_tables`] made.
    pub fn drop_tables(&mut self, prefix: &str) -> Result<()> {
        self.run(&format!(
            "DROP TABLE IF EXISTS {prefix}jobs, {prefix}claims, {prefix}attempts, {prefix}tables, {prefix}leases, {prefix}schema"
        ))
    }

    /// Empties the tables.
    pub fn empty_tables(&mut self, prefix: &str) -> Result<()> {
        self.run(&format!("TRUNCATE TABLE {prefix}jobs"))?;
        self.run(&format!("TRUNCATE TABLE {prefix}claims"))
    }

    /// Puts `count` keyed jobs into the queue `q`, as `create_many` would.
    pub fn fill(&mut self, prefix: &str, count: usize) -> Result<()> {
        let first = self.filled;
        self.filled += count;
        let (note, together) = ("x".repeat(PAYLOAD), self.together);
        self.run(&format!(
            "INSERT INTO {prefix}jobs \
             (queue, job_key, unique_key, key_life, priority, payload, ready_at, max_attempts, create_token, created_at) \
             SELECT 'q', CONCAT('order:', seq + {first}), CONCAT('order:', seq + {first}), 'forever', 0, \
             CONCAT(LEFT(CONCAT('{{\"order_id\":', seq + {first}, ',\"note\":\"{note}'), {PAYLOAD} - 2), '\"}}'), \
             UTC_TIMESTAMP(6) - INTERVAL 10 SECOND + INTERVAL 1000 * (seq DIV {together}) MICROSECOND, \
             20, REPEAT('t', 16), UTC_TIMESTAMP(6) FROM seq_1_to_{count}"
        ))
    }

    /// Every job of the tables is done and every claim is closed.
    pub fn check_done(&mut self, prefix: &str) -> Result<()> {
        let left = self.number(&format!("SELECT COUNT(*) FROM {prefix}jobs WHERE state <> 'done'"))?;
        let open = self.number(&format!("SELECT COUNT(*) FROM {prefix}claims WHERE state <> 'closed'"))?;
        let twice = self.number(&format!("SELECT COUNT(*) FROM {prefix}jobs WHERE attempts <> 1"))?;
        if left + open + twice > 0 {
            return Err(
                format!("{prefix}: {left} jobs are not done, {twice} were not claimed once, {open} claims are open").into()
            );
        }
        Ok(())
    }

    /// Waits until purge has caught up, 5 seconds at most.
    pub fn settle(&mut self) -> Result<()> {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(5) {
            let status =
                "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Innodb_history_list_length'";
            let length: Option<String> = self.runtime.block_on(self.connection.query_first(status))?;
            if length.and_then(|length| length.parse::<u64>().ok()).is_none_or(|length| length < 50) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Statements the server was sent so far; preparing is not counted.
    pub fn questions(&mut self) -> Result<f64> {
        let status = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Questions'";
        let count: Option<String> = self.runtime.block_on(self.connection.query_first(status))?;
        Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0.0))
    }

    /// Seconds of processor time the server has used.
    pub fn cpu(&self) -> f64 {
        self.pid.map_or(0.0, cpu_of)
    }
}

/// Seconds of processor time a process has used.
pub fn cpu_of(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}
