//! The public verbs, one file each, asynchronous. [`crate::blocking`] is the same for synchronous callers.
//!
//! An engine belongs to the process that made it: after a fork it refuses, and `blocking` makes a new one.
//! The one thing to know: only `run.rs` retries.

pub(crate) mod ahead;
mod claim;
pub(crate) mod claims;
mod create;
mod doctor;
pub(crate) mod effect;
mod finish;
pub(crate) mod group;
pub(crate) mod guard;
mod jobs;
pub(crate) mod lease;
mod migrate;
mod prune;
mod recover;
pub(crate) mod renew;
mod resolve;
mod run;
pub(crate) mod runs;
pub(crate) mod schedule;
mod sql;
mod start;
mod stats;
pub(crate) mod table;
pub(crate) mod throttle;

pub use claim::Claimed;
pub use claims::{ClaimEnd, ClaimFilter, ClaimName, ClaimRecord};
pub use doctor::{DoctorRequest, DoctorTable, Finding, Severity};
pub use jobs::JobFilter;
pub use migrate::Migrated;
pub use prune::{PruneRequest, Pruned};
pub use recover::Recovered;
pub use runs::RunFilter;
pub use stats::{Count, QueueStats, Stats};

use crate::background::Background;
use crate::config::{ClaimShape, Config};
use crate::dialect::Statements;
use crate::driver::{Driver, Session};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::table::TableName;
use crate::plan::table::layout::Layout;
use claim::Lanes;
use rowclaim_migrations::{Flavor, Names};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};

/// A handle on one database; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// What the clones of an engine and its background thread have in common.
pub(crate) struct Shared {
    pub config: Config,
    pub driver: Driver,
    pub names: Names,
    pub worker: String,
    idle: Mutex<Vec<Session>>,
    permits: Semaphore,
    statements: OnceCell<Statements>,
    shape: OnceCell<ClaimShape>,
    /// Mapped tables in use, by name and mapping.
    pub(crate) tables: Mutex<HashMap<String, Arc<table::Mapped>>>,
    /// Tables that fenced writes went to.
    layouts: Mutex<HashMap<TableName, Arc<Layout>>>,
    pub(crate) lanes: Mutex<Lanes>,
    /// On CLOCK_BOOTTIME: when expired claims were last looked for.
    pub(crate) swept_at: AtomicI64,
    pub(crate) background: OnceLock<Background>,
    closed: AtomicBool,
    pid: u32,
}

/// Locks in spite of a panic elsewhere: what is guarded here stays valid at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Makes an engine without contacting the server; [`Engine::connect`] does both.
    ///
    /// # Errors
    /// `Config`.
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        let driver = Driver::new(&config)?;
        let names = Names::new(driver.flavor(), config.prefix.as_str());
        let shared = Shared {
            worker: config.worker_name(),
            permits: Semaphore::new(config.pool),
            driver,
            names,
            config,
            idle: Mutex::new(Vec::new()),
            statements: OnceCell::new(),
            shape: OnceCell::new(),
            tables: Mutex::default(),
            layouts: Mutex::default(),
            lanes: Mutex::default(),
            swept_at: AtomicI64::new(0),
            background: OnceLock::new(),
            closed: AtomicBool::new(false),
            pid: std::process::id(),
        };
        Ok(Engine { shared: Arc::new(shared) })
    }

    /// Makes an engine and proves that the server answers.
    ///
    /// # Errors
    /// `Config` for a wrong DSN, password or database; `Unavailable` when nobody answers.
    pub async fn connect(config: Config) -> Result<Self> {
        let engine = Engine::new(config)?;
        engine.shared.greet().await.map_err(|e| e.during("connect"))?;
        Ok(engine)
    }

    /// Name and version of the server.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn server_version(&self) -> Result<String> {
        let session = self.shared.session().await?;
        let version = session.info().version.clone();
        self.shared.give_back(session);
        Ok(version)
    }

    /// Writes what is pending, renews no more, and closes the connections, within `limit`.
    ///
    /// # Errors
    /// `Unavailable` when outcomes could not be written in time; their rows come back when the lease ends.
    pub async fn close(&self, limit: Duration) -> Result<()> {
        self.shared.check_process()?;
        let written = match self.shared.background.get() {
            Some(background) => background.stop(limit),
            None => Ok(()),
        };
        self.shared.closed.store(true, Ordering::Release);
        let sessions = std::mem::take(&mut *lock(&self.shared.idle));
        for session in sessions {
            session.close(limit).await;
        }
        written
    }
}

impl Shared {
    /// # Errors
    /// `Invalid` after a fork and after close.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.pid != std::process::id() {
            return Err(Error::invalid("this engine or claim was made before a fork; make a new one in the child"));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::invalid("the engine is closed"));
        }
        Ok(())
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.pid != std::process::id()
    }

    pub(crate) fn flavor(&self) -> Flavor {
        self.driver.flavor()
    }

    async fn greet(&self) -> Result<()> {
        let session = self.session().await?;
        self.give_back(session);
        Ok(())
    }

    /// A session of the pool. It is closed, not given back, when the caller drops it.
    async fn session(&self) -> Result<Session> {
        self.check_process()?;
        let idle = lock(&self.idle).pop();
        match idle {
            Some(session) => Ok(session),
            None => self.driver.open(&self.config, self.config.lock_timeout).await,
        }
    }

    fn give_back(&self, session: Session) {
        let mut idle = lock(&self.idle);
        if idle.len() < self.config.pool {
            idle.push(session);
        }
    }

    /// The statements, made when the tables were first seen to be there.
    pub(crate) async fn statements(&self, session: &mut Session) -> Result<&Statements> {
        self.statements
            .get_or_try_init(|| async {
                if self.config.migrate {
                    migrate::apply(self, session).await?;
                }
                migrate::check_version(self, session).await?;
                let shape = self.shape(session).await?;
                log::debug!("{}: claims by {shape:?}", session.info().version);
                Ok(Statements::new(self.flavor(), shape, &self.names))
            })
            .await
    }

    /// How rows are claimed on this server, found out once.
    pub(crate) async fn shape(&self, session: &mut Session) -> Result<ClaimShape> {
        self.shape.get_or_try_init(|| self.find_shape(session)).await.copied()
    }

    async fn find_shape(&self, session: &mut Session) -> Result<ClaimShape> {
        if self.flavor() == Flavor::Sqlite {
            return Ok(ClaimShape::Exclusive);
        }
        if let Some(shape) = self.config.shape {
            return Ok(shape);
        }
        let probe = &Statements::new(self.flavor(), ClaimShape::SkipLocked, &self.names).probe_skip_locked;
        match session.query(&crate::plan::plain(probe, vec![])).await {
            Ok(_) => Ok(ClaimShape::SkipLocked),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(ClaimShape::TokenUpdate),
            Err(error) => Err(error),
        }
    }

    /// The claim shape in use; only after [`Shared::statements`].
    pub(crate) fn is_token_update(statements: &Statements) -> bool {
        // The locking read tells the shapes apart without a second field that could disagree.
        statements.pick.ends_with("FOR UPDATE")
    }

    /// The background thread, started on first use.
    pub(crate) fn background(self: &Arc<Self>) -> Result<&Background> {
        if let Some(background) = self.background.get() {
            return Ok(background);
        }
        let started = Background::start(self)?;
        if let Err(second) = self.background.set(started) {
            let _ = second.stop(Duration::ZERO);
        }
        self.background.get().ok_or_else(|| Error::new(ErrorKind::Unexpected, "the background thread did not start"))
    }
}
