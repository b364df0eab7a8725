//! What the suites share: the databases of the environment, an engine with its own tables per test, and raw SQL
//! beside the engine to put rows in any state and to look at them.
//!
//! SQLite is always there. MariaDB and MySQL are named by `ROWCLAIM_TEST_MARIADB` and `ROWCLAIM_TEST_MYSQL`
//! (`make test` starts them); one that is missing fails loudly unless `ROWCLAIM_TEST_SKIP` names it.

pub mod raw;
pub mod records;
pub mod stories;
pub mod tables;

use raw::Raw;
use rowclaim::blocking::Engine;
use rowclaim::faults::Fault;
use rowclaim::{ClaimRequest, Config, NewJob};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A kind of database under test. The second MariaDB is one that is told to have no SKIP LOCKED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    MariaDb,
    MariaDbTokenUpdate,
    MySql,
}

impl Kind {
    pub const SERVERS: [Kind; 2] = [Kind::MariaDb, Kind::MySql];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Sqlite => "sqlite",
            Kind::MariaDb => "mariadb",
            Kind::MariaDbTokenUpdate => "mariadb_token_update",
            Kind::MySql => "mysql",
        }
    }

    /// The DSN of the environment, or `None` when the environment says that this kind is skipped.
    pub fn dsn(self) -> Option<String> {
        let (variable, family) = match self {
            Kind::Sqlite => return Some(String::new()),
            Kind::MariaDb | Kind::MariaDbTokenUpdate => ("ROWCLAIM_TEST_MARIADB", "mariadb"),
            Kind::MySql => ("ROWCLAIM_TEST_MYSQL", "mysql"),
        };
        if let Ok(dsn) = std::env::var(variable) {
            return Some(dsn);
        }
        let skipped = std::env::var("ROWCLAIM_TEST_SKIP").unwrap_or_default();
        assert!(
            skipped.split(',').any(|name| name == family),
            "{variable} is not set: run the tests by `make test`, which starts the servers"
        );
        eprintln!("SKIP {}: ROWCLAIM_TEST_SKIP names it", self.name());
        None
    }
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// One test's database: its own tables, an engine on them, and raw SQL beside it.
pub struct Db {
    pub kind: Kind,
    pub engine: Engine,
    pub faults: rowclaim::faults::Faults,
    pub prefix: String,
    /// DSN with the prefix and the options of the test.
    pub dsn: String,
    folder: Option<PathBuf>,
    /// The second engines, closed with the test: a process keeps its engines' connections otherwise.
    others: Mutex<Vec<Engine>>,
}

impl Db {
    /// Fresh tables on `kind` with DSN options; `None` when the environment skips this kind.
    pub fn new(kind: Kind, options: &str) -> Option<Db> {
        let base = kind.dsn()?;
        let prefix = format!("t{}_{}_", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let mut folder = None;
        let base = match kind {
            Kind::Sqlite => {
                let path = std::env::temp_dir().join(format!("rowclaim-test-{prefix}"));
                std::fs::create_dir_all(&path).unwrap();
                let dsn = format!("sqlite://{}/jobs.db", path.display());
                folder = Some(path);
                dsn
            }
            _ => base,
        };
        let shape = if kind == Kind::MariaDbTokenUpdate { "&shape=token_update" } else { "" };
        let more = if options.is_empty() { String::new() } else { format!("&{options}") };
        let dsn = format!("{base}?prefix={prefix}{shape}{more}");
        let (engine, faults) = connect(&dsn);
        engine.migrate().unwrap();
        Some(Db { kind, engine, faults, prefix, dsn, folder, others: Mutex::default() })
    }

    /// A second engine in this process, as another process would have it.
    pub fn another(&self, options: &str) -> Engine {
        let number = NEXT.fetch_add(1, Relaxed);
        let engine = connect(&format!("{}&worker=other{number}&{options}", self.dsn)).0;
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(engine.clone());
        engine
    }

    /// Raw SQL on the same database; `{jobs}`, `{claims}`, `{attempts}` are filled in.
    pub fn raw(&self) -> Raw {
        Raw::open(&self.dsn, &self.prefix)
    }

    /// One number.
    pub fn number(&self, sql: &str) -> i64 {
        self.raw().rows(sql)[0][0].as_deref().unwrap().parse().unwrap()
    }

    pub fn is_sqlite(&self) -> bool {
        self.kind == Kind::Sqlite
    }

    /// Creates `count` jobs without keys; payload is the number.
    pub fn fill(&self, queue: &str, count: usize) -> Vec<i64> {
        let jobs: Vec<NewJob> = (0..count).map(|n| NewJob::new(queue, n.to_string())).collect();
        self.engine.create_many(&jobs).unwrap().into_iter().map(|created| created.id).collect()
    }

    pub fn claim(&self, limit: usize) -> rowclaim::blocking::Claim {
        self.engine.claim(&ClaimRequest::new("q").limit(limit)).unwrap()
    }

    /// The next claim of the test's engine stays open for a second and a half: its rows are locked, and it has not committed.
    /// Begins it by `claim`, and does something else meanwhile, for which nobody should have to wait.
    pub fn while_a_claim_is_open<C: Send, R>(&self, claim: impl FnOnce() -> C + Send, meanwhile: impl FnOnce() -> R) -> (C, R) {
        let quote = if self.is_sqlite() { '"' } else { '`' };
        let texts = [format!("INSERT INTO {quote}{}claims", self.prefix), format!("UPDATE {quote}"), "COMMIT".to_owned()];
        for text in &texts {
            self.faults.order(text, Fault::Pause, 0, 1);
        }
        std::thread::scope(|scope| {
            let claiming = scope.spawn(claim);
            wait_until("the claim is open", || self.faults.left() < 3);
            let answer = meanwhile();
            (claiming.join().unwrap(), answer)
        })
    }

    /// Makes the leases of all open claims run out now.
    pub fn expire(&self) {
        let past = if self.is_sqlite() { "0" } else { "'2000-01-01'" };
        self.raw().run(&format!("UPDATE {{claims}} SET lease_until = {past} WHERE state = 'open'"));
    }

    /// Makes the leases of all open claims end so many seconds from now; negative is ago.
    pub fn leases_end_in(&self, seconds: i64) {
        let until = match self.is_sqlite() {
            true => format!("{} + {seconds} * 1000000", Db::SQLITE_CLOCK),
            false => format!("UTC_TIMESTAMP(6) + INTERVAL {seconds} SECOND"),
        };
        self.raw().run(&format!("UPDATE {{claims}} SET lease_until = {until} WHERE state = 'open'"));
    }

    const SQLITE_CLOCK: &str = "CAST((julianday('now') - 2440587.5) * 86400.0 * 1000 AS INTEGER) * 1000";

    /// The database's clock in microseconds since 1970.
    pub fn clock(&self) -> i64 {
        let now = if self.is_sqlite() { Db::SQLITE_CLOCK } else { "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)" };
        self.number(&format!("SELECT {now}"))
    }

    /// The tables as text, for the message of a failing test.
    pub fn dump(&self) -> String {
        let mut raw = self.raw();
        let mut text = String::new();
        for table in ["jobs", "claims", "attempts"] {
            text += &format!("{table}:\n");
            for row in raw.rows(&format!("SELECT * FROM {{{table}}} ORDER BY id LIMIT 20")) {
                text += &format!("  {row:?}\n");
            }
        }
        text
    }
}

fn connect(dsn: &str) -> (Engine, rowclaim::faults::Faults) {
    let config = Config::new(dsn).unwrap();
    let faults = config.faults.clone();
    (Engine::with_config(config).unwrap(), faults)
}

impl Drop for Db {
    fn drop(&mut self) {
        let others = std::mem::take(&mut *self.others.lock().unwrap_or_else(PoisonError::into_inner));
        for engine in others.iter().chain([&self.engine]) {
            let _ = engine.close(Duration::from_secs(2));
        }
        if std::thread::panicking() {
            eprintln!("{}", self.dump());
            return;
        }
        match &self.folder {
            Some(folder) => drop(std::fs::remove_dir_all(folder)),
            None => self.raw().drop_own_tables(),
        }
    }
}

/// Waits for a condition, 20 seconds at most.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(20), "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One test function for each kind of database; the body gets a fresh [`Db`].
///
/// `every_database! { fn name(db) { … } }`, with DSN options `fn name("heartbeat=0", db) { … }`.
#[macro_export]
macro_rules! every_database {
    ($($(#[$meta:meta])* fn $name:ident($($options:literal,)? $db:ident) $body:block)*) => {
        $(
            $(#[$meta])*
            mod $name {
                #[allow(unused_imports)]
                use super::*;
                fn story($db: &$crate::Db) $body
                fn on(kind: $crate::Kind) {
                    let options = concat!($($options)?);
                    if let Some(db) = $crate::Db::new(kind, options) {
                        story(&db);
                    }
                }
                #[test]
                fn sqlite() { on($crate::Kind::Sqlite) }
                #[test]
                fn mariadb() { on($crate::Kind::MariaDb) }
                #[test]
                fn mariadb_token_update() { on($crate::Kind::MariaDbTokenUpdate) }
                #[test]
                fn mysql() { on($crate::Kind::MySql) }
            }
        )*
    };
}
