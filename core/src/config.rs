//! What an engine is told: the DSN, its options, and the defaults of the verbs.
//!
//! The one thing to know: every option can be given in the DSN's query; an unknown one is refused by name.

use crate::error::{Error, Result};
use crate::ident::Prefix;
use crate::time::{Backoff, span_from_seconds};
use percent_encoding::percent_decode_str;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// Where the database is.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    MySql(MySqlTarget),
    /// A file; `None` is a database in memory, private to the engine.
    Sqlite(Option<PathBuf>),
}

/// A MySQL or MariaDB server. Its `Debug` leaves the password out.
#[derive(Clone)]
pub(crate) struct MySqlTarget {
    pub host: String,
    pub port: u16,
    pub socket: Option<String>,
    pub user: String,
    pub password: Option<String>,
    pub database: String,
    pub tls: Tls,
}

impl std::fmt::Debug for MySqlTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}:{}/{}", self.user, self.host, self.port, self.database)
    }
}

/// TLS towards the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    pub mode: TlsMode,
    /// PEM file of the authority to trust instead of the built-in ones.
    pub ca: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TlsMode {
    /// Plain.
    #[default]
    Off,
    /// Encrypted and the certificate checked.
    Verify,
    /// Encrypted; any certificate is accepted.
    Insecure,
}

/// How a claim is made. Found out by asking the server; forced by `shape=` in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimShape {
    /// A locking read that steps over locked rows (MySQL ≥ 8.0.1, MariaDB ≥ 10.6).
    SkipLocked,
    /// A plain read of candidates, then a guarded update of them (older servers).
    TokenUpdate,
    /// The transaction has the whole database to itself (SQLite).
    Exclusive,
}

impl ClaimShape {
    fn parse(text: &str) -> Result<Self> {
        match text {
            "skip_locked" => Ok(ClaimShape::SkipLocked),
            "token_update" => Ok(ClaimShape::TokenUpdate),
            "exclusive" => Ok(ClaimShape::Exclusive),
            _ => Err(Error::config("shape must be skip_locked, token_update or exclusive")),
        }
    }
}

/// Everything an engine needs to know: a DSN, and options given in it or by [`Config::set`].
///
/// Equal DSNs and options share one engine in a process.
#[derive(Clone)]
pub struct Config {
    pub(crate) target: Target,
    pub(crate) identity: String,
    /// Prefix of the tables. Option `prefix`; default `rowclaim_`.
    pub(crate) prefix: Prefix,
    /// Foreground connections at most; the background thread has one more. Option `pool`; default 1.
    pub(crate) pool: usize,
    /// Longest wait for a connection. Option `connect_timeout` in seconds; default 5.
    pub(crate) connect_timeout: Duration,
    /// Longest wait for one statement's answer. Option `statement_timeout` in seconds; default 60.
    pub(crate) statement_timeout: Duration,
    /// Longest wait for a row lock. Option `lock_timeout` in whole seconds; default 5.
    pub(crate) lock_timeout: Duration,
    /// Lease of a claim that names none. Option `lease` in seconds; default 60.
    pub(crate) lease: Duration,
    /// Attempts of a job that names none. Option `max_attempts`; default 20.
    pub(crate) max_attempts: i64,
    /// Wait after failures. Options `backoff_base`, `backoff_cap` in seconds, `jitter` 0 or 1; default 1, 3600, 0.
    pub(crate) backoff: Backoff,
    /// Who claims, for people who read the tables; never compared. Option `worker`; default `host:pid`.
    pub(crate) worker: Option<String>,
    /// Renew leases in the background. Option `heartbeat` 0 or 1; default 1.
    pub(crate) heartbeat: bool,
    /// Make or upgrade the tables when they are first used. Option `migrate` auto or never; default auto for SQLite only.
    pub(crate) migrate: bool,
    /// Force a claim shape. Option `shape`; for tests.
    pub(crate) shape: Option<ClaimShape>,
    /// SQLite: wait for the disk at each commit. Option `synchronous` full or normal; default full.
    pub(crate) sqlite_full_sync: bool,
    /// Faults a test has ordered.
    #[cfg(feature = "faults")]
    pub faults: crate::faults::Faults,
}

/// Without the password: only where the database is, and the prefix.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("target", &self.target).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Config {
    /// Reads a DSN: `mysql://user:password@host:port/database?option=value`, `mariadb://…`,
    /// `sqlite:///absolute/path`, `sqlite:relative/path` or `sqlite::memory:`.
    ///
    /// # Errors
    /// `Config`, naming the part that is wrong; never with the password in it.
    pub fn new(dsn: &str) -> Result<Self> {
        let (target, options) =
            if let Some(rest) = dsn.strip_prefix("sqlite:") { parse_sqlite(rest)? } else { parse_mysql(dsn)? };
        let is_sqlite = matches!(target, Target::Sqlite(_));
        let mut config = Config {
            target,
            identity: dsn.to_owned(),
            prefix: Prefix::default(),
            pool: 1,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(60),
            lock_timeout: Duration::from_secs(5),
            lease: Duration::from_secs(60),
            max_attempts: 20,
            backoff: Backoff::default(),
            worker: None,
            heartbeat: true,
            migrate: is_sqlite,
            shape: None,
            sqlite_full_sync: true,
            #[cfg(feature = "faults")]
            faults: crate::faults::Faults::default(),
        };
        for (name, value) in options {
            config.set(&name, &value)?;
        }
        config.check()?;
        Ok(config)
    }

    /// Sets one option as the DSN's query would.
    ///
    /// # Errors
    /// `Config` when the option is unknown or its value is wrong.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "prefix" => self.prefix = Prefix::new(value)?,
            "pool" => self.pool = number(name, value, 1, 1_000)? as usize,
            "connect_timeout" => self.connect_timeout = seconds(name, value)?,
            "statement_timeout" => self.statement_timeout = seconds(name, value)?,
            "lock_timeout" => {
                self.lock_timeout = Duration::from_secs(number(name, value, 1, 3600)? as u64);
            }
            "lease" => self.lease = seconds(name, value)?,
            "max_attempts" => self.max_attempts = number(name, value, 1, i64::from(i32::MAX))?,
            "backoff_base" => self.backoff.base = seconds(name, value)?,
            "backoff_cap" => self.backoff.cap = seconds(name, value)?,
            "jitter" => self.backoff.jitter = switch(name, value)?,
            "worker" => self.worker = Some(value.to_owned()),
            "heartbeat" => self.heartbeat = switch(name, value)?,
            "migrate" => {
                self.migrate = match value {
                    "auto" => true,
                    "never" => false,
                    _ => return Err(Error::config("migrate must be auto or never")),
                };
            }
            "shape" => self.shape = Some(ClaimShape::parse(value)?),
            "synchronous" => {
                self.sqlite_full_sync = match value {
                    "full" => true,
                    "normal" => false,
                    _ => return Err(Error::config("synchronous must be full or normal")),
                };
            }
            _ => return self.set_mysql(name, value),
        }
        self.identity = format!("{}\u{0}{name}={value}", self.identity);
        Ok(())
    }

    fn set_mysql(&mut self, name: &str, value: &str) -> Result<()> {
        let unknown = || Error::config(format!("unknown option {name}; see the README for the options of a DSN"));
        let Target::MySql(target) = &mut self.target else { return Err(unknown()) };
        match name {
            "socket" => target.socket = Some(value.to_owned()),
            "tls" => {
                target.tls.mode = match value {
                    "off" => TlsMode::Off,
                    "verify" => TlsMode::Verify,
                    "insecure" => TlsMode::Insecure,
                    _ => return Err(Error::config("tls must be off, verify or insecure")),
                };
            }
            "tls_ca" => {
                target.tls.ca = Some(PathBuf::from(value));
                if target.tls.mode == TlsMode::Off {
                    target.tls.mode = TlsMode::Verify;
                }
            }
            _ => return Err(unknown()),
        }
        self.identity = format!("{}\u{0}{name}={value}", self.identity);
        Ok(())
    }

    /// # Errors
    /// `Config` when the values do not fit together.
    pub(crate) fn check(&self) -> Result<()> {
        if self.lease < Duration::from_secs(1) {
            return Err(Error::config("lease must be at least 1 second"));
        }
        if self.backoff.cap < self.backoff.base {
            return Err(Error::config("backoff_cap must not be smaller than backoff_base"));
        }
        Ok(())
    }

    /// The worker's name as it is written to the tables.
    pub(crate) fn worker_name(&self) -> String {
        let mut name = match &self.worker {
            Some(name) => name.clone(),
            None => format!("{}:{}", host_name(), std::process::id()),
        };
        truncate(&mut name, 191);
        name
    }
}

/// Cuts `text` to at most `limit` characters (not bytes: columns count characters).
pub(crate) fn truncate(text: &mut String, limit: usize) {
    if let Some((at, _)) = text.char_indices().nth(limit) {
        text.truncate(at);
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_else(|_| "localhost".to_owned())
}

fn number(name: &str, value: &str, min: i64, max: i64) -> Result<i64> {
    value
        .parse()
        .ok()
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| Error::config(format!("{name} must be a whole number from {min} to {max}")))
}

fn seconds(name: &str, value: &str) -> Result<Duration> {
    let parsed = value.parse::<f64>().ok().and_then(|s| span_from_seconds(name, s).ok());
    parsed.ok_or_else(|| Error::config(format!("{name} must be a number of seconds")))
}

fn switch(name: &str, value: &str) -> Result<bool> {
    match value {
        "1" | "true" | "on" => Ok(true),
        "0" | "false" | "off" => Ok(false),
        _ => Err(Error::config(format!("{name} must be 0 or 1"))),
    }
}

type Options = Vec<(String, String)>;

fn parse_sqlite(rest: &str) -> Result<(Target, Options)> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let options = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    if path == ":memory:" {
        return Ok((Target::Sqlite(None), options));
    }
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = percent_decode_str(path).decode_utf8().map_err(|_| Error::config("the path of the sqlite DSN is not UTF-8"))?;
    if path.is_empty() || path.ends_with('/') {
        return Err(Error::config(
            "sqlite DSN without a file: write sqlite:///absolute/path, sqlite:relative/path or sqlite::memory:",
        ));
    }
    Ok((Target::Sqlite(Some(PathBuf::from(path.as_ref()))), options))
}

fn parse_mysql(dsn: &str) -> Result<(Target, Options)> {
    let hint = "a DSN starts with mysql://, mariadb:// or sqlite:";
    let url = Url::parse(dsn).map_err(|e| Error::config(format!("DSN: {e}; {hint}")))?;
    if !matches!(url.scheme(), "mysql" | "mariadb") {
        return Err(Error::config(format!("DSN scheme {} is unknown; {hint}", url.scheme())));
    }
    let decode = |text: &str, part: &str| {
        percent_decode_str(text)
            .decode_utf8()
            .map(std::borrow::Cow::into_owned)
            .map_err(|_| Error::config(format!("the {part} in the DSN is not UTF-8")))
    };
    let database = decode(url.path().trim_start_matches('/'), "database")?;
    if database.is_empty() || database.contains('/') {
        return Err(Error::config("the DSN names no database: write mysql://user@host/database"));
    }
    let user = decode(url.username(), "user")?;
    let target = MySqlTarget {
        host: url.host_str().unwrap_or("127.0.0.1").trim_matches(['[', ']']).to_owned(),
        port: url.port().unwrap_or(3306),
        socket: None,
        user: if user.is_empty() { "root".to_owned() } else { user },
        password: url.password().map(|p| decode(p, "password")).transpose()?,
        database,
        tls: Tls::default(),
    };
    Ok((Target::MySql(target), url.query_pairs().into_owned().collect()))
}
