//! The facade for synchronous callers and the bindings: runtime ownership, fork check, shared engines.
//!
//! An [`Engine`] here is a DSN, resolved at each call to this process's engine for it: one per process, made on
//! first use, shared by all handles. After a fork the parent's engines are leaked, never dropped, and new ones
//! are made. The one thing to know: claims do not cross a fork.

mod claim;
mod effect;
mod job;
mod lease;
mod registry;
mod run;
mod runner;
mod steps;
mod table;
mod throttle;
mod wait;
mod work;

pub use crate::claim::Claimable;
pub use claim::{Claim, Job, Row};
pub use effect::{Effect, OnceCall, OnceStep};
pub use lease::{Lease, Leased};
pub use run::{Run, RunStart, Tick};
pub use runner::{Admission, Admitted, RunnerAnswer, RunnerRequest, Waiting};
pub use table::Table;
pub use wait::set_wait_hook;
pub use work::{Handled, Summary, WorkRequest};

use crate::claim::{ClaimRequest, Resolution};
use crate::config::Config;
use crate::engine::guard::GuardedWrite;
use crate::engine::lease::{LeaseFilter, LeaseRecord, LeaseRequest};
use crate::engine::table::TableRecord;
use crate::engine::{
    ClaimEnd, ClaimFilter, ClaimName, ClaimRecord, DoctorRequest, DoctorTable, Finding, JobFilter, Migrated, PruneRequest,
    Pruned, Recovered, Stats,
};
use crate::error::{Error, Result};
use crate::job::{Attempt, Created, JobRow, NewJob};
use crate::mapping::Mapping;
use crate::plan::create::PlannedStatement;
use registry::Local;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A handle on one database; cheap to clone, usable from any thread, and in a forked child.
#[derive(Clone)]
pub struct Engine {
    config: Arc<Config>,
    is_closed: Arc<AtomicBool>,
}

impl Engine {
    /// Reads a DSN and proves that the server answers. See [`Config::new`] for DSNs.
    ///
    /// # Errors
    /// `Config` for a wrong DSN, password or database; `Unavailable` when nobody answers.
    pub fn connect(dsn: &str) -> Result<Self> {
        Engine::with_config(Config::new(dsn)?)
    }

    /// As [`Engine::connect`], with options changed in code. Equal configurations share one engine in a process.
    ///
    /// # Errors
    /// As [`Engine::connect`].
    pub fn with_config(config: Config) -> Result<Self> {
        let engine = Engine { config: Arc::new(config), is_closed: Arc::default() };
        let local = engine.local()?;
        local.wait(local.engine.server_version()).map_err(|e| e.during("connect"))?;
        Ok(engine)
    }

    fn local(&self) -> Result<Arc<Local>> {
        if self.is_closed.load(Relaxed) {
            return Err(Error::invalid("the engine is closed; connect again"));
        }
        registry::local(&self.config)
    }

    /// Name and version of the server.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn server_version(&self) -> Result<String> {
        let local = self.local()?;
        local.wait(local.engine.server_version())
    }

    /// See [`crate::Engine::migrate`].
    ///
    /// # Errors
    /// As there.
    pub fn migrate(&self) -> Result<Migrated> {
        let local = self.local()?;
        local.wait(local.engine.migrate())
    }

    /// The SQL of the whole schema, for people who apply it with their own tool.
    ///
    /// # Errors
    /// `Config`.
    pub fn schema_sql(&self) -> Result<String> {
        Ok(self.local()?.engine.schema_sql())
    }

    /// See [`crate::Engine::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(&self, job: &NewJob) -> Result<Created> {
        let local = self.local()?;
        local.wait(local.engine.create(job))
    }

    /// See [`crate::Engine::create_many`].
    ///
    /// # Errors
    /// As there.
    pub fn create_many(&self, jobs: &[NewJob]) -> Result<Vec<Created>> {
        let local = self.local()?;
        local.wait(local.engine.create_many(jobs))
    }

    /// See [`crate::Engine::plan_create`].
    ///
    /// # Errors
    /// As there.
    pub fn plan_create(&self, job: &NewJob) -> Result<PlannedStatement> {
        let local = self.local()?;
        local.wait(local.engine.plan_create(job))
    }

    /// Takes up to `limit` jobs. The claim is empty when nothing waits.
    ///
    /// # Errors
    /// As [`crate::Engine::claim`].
    pub fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let local = self.local()?;
        let claimed = local.wait(local.engine.claim(request))?;
        Ok(Claim::new(local, claimed))
    }

    /// Verbs on a user's own table; see [`crate::Engine::table`].
    ///
    /// # Errors
    /// As there.
    pub fn table(&self, name: &str, mapping: &Mapping) -> Result<Table> {
        Table::new(self.clone(), name, mapping)
    }

    /// See [`crate::Engine::tables`].
    ///
    /// # Errors
    /// As there.
    pub fn tables(&self) -> Result<Vec<TableRecord>> {
        let local = self.local()?;
        local.wait(local.engine.tables())
    }

    /// See [`crate::Engine::claims`].
    ///
    /// # Errors
    /// As there.
    pub fn claims(&self, filter: &ClaimFilter) -> Result<Vec<ClaimRecord>> {
        let local = self.local()?;
        local.wait(local.engine.claims(filter))
    }

    /// See [`crate::Engine::claim_record`].
    ///
    /// # Errors
    /// As there.
    pub fn claim_record(&self, name: ClaimName) -> Result<Option<(ClaimRecord, Vec<ClaimEnd>)>> {
        let local = self.local()?;
        local.wait(local.engine.claim_record(name))
    }

    /// See [`crate::Engine::end_claim`].
    ///
    /// # Errors
    /// As there.
    pub fn end_claim(&self, name: ClaimName) -> Result<bool> {
        let local = self.local()?;
        local.wait(local.engine.end_claim(name))
    }

    /// Takes a lease, or says who holds it; waits for its end when asked to, by the database's clock and without spinning.
    ///
    /// # Errors
    /// `Invalid` for a wrong name or time; `Schema`, `Unavailable`; `Interrupted` while waiting.
    pub fn lease(&self, request: &LeaseRequest) -> Result<Leased> {
        lease::acquire(&self.local()?, request)
    }

    /// Leases in the order of their names, those that were given back too.
    ///
    /// # Errors
    /// `Invalid` for a wrong limit; `Schema`, `Unavailable`.
    pub fn leases(&self, filter: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        let local = self.local()?;
        local.wait(local.engine.leases(filter))
    }

    /// See [`crate::Engine::guard`].
    ///
    /// # Errors
    /// As there.
    pub fn guard(&self, write: &GuardedWrite) -> Result<bool> {
        let local = self.local()?;
        local.wait(local.engine.guard(write))
    }

    /// See [`crate::Engine::plan_guard`].
    ///
    /// # Errors
    /// As there.
    pub fn plan_guard(&self, write: &GuardedWrite) -> Result<PlannedStatement> {
        let local = self.local()?;
        local.wait(local.engine.plan_guard(write))
    }

    #[doc(hidden)]
    pub fn sql(&self, text: &str, values: &[crate::Value]) -> Result<Vec<Vec<crate::Value>>> {
        let local = self.local()?;
        local.wait(local.engine.sql(text, values))
    }

    /// See [`crate::Engine::recover`].
    ///
    /// # Errors
    /// As there.
    pub fn recover(&self) -> Result<Recovered> {
        let local = self.local()?;
        local.wait(local.engine.recover())
    }

    /// See [`crate::Engine::job`].
    ///
    /// # Errors
    /// As there.
    pub fn job(&self, id: i64) -> Result<Option<JobRow>> {
        let local = self.local()?;
        local.wait(local.engine.job(id))
    }

    /// See [`crate::Engine::jobs`].
    ///
    /// # Errors
    /// As there.
    pub fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>> {
        let local = self.local()?;
        local.wait(local.engine.jobs(filter))
    }

    /// See [`crate::Engine::attempts`].
    ///
    /// # Errors
    /// As there.
    pub fn attempts(&self, job_id: i64) -> Result<Vec<Attempt>> {
        let local = self.local()?;
        local.wait(local.engine.attempts(job_id))
    }

    /// See [`crate::Engine::retry`].
    ///
    /// # Errors
    /// As there.
    pub fn retry(&self, id: i64, force: bool) -> Result<bool> {
        let local = self.local()?;
        local.wait(local.engine.retry(id, force))
    }

    /// See [`crate::Engine::cancel`].
    ///
    /// # Errors
    /// As there.
    pub fn cancel(&self, id: i64, force: bool) -> Result<bool> {
        let local = self.local()?;
        local.wait(local.engine.cancel(id, force))
    }

    /// See [`crate::Engine::resolve`].
    ///
    /// # Errors
    /// As there.
    pub fn resolve(&self, ids: &[i64], resolution: Resolution) -> Result<Vec<bool>> {
        let local = self.local()?;
        local.wait(local.engine.resolve(ids, resolution))
    }

    /// See [`crate::Engine::prune`].
    ///
    /// # Errors
    /// As there.
    pub fn prune(&self, request: PruneRequest, progress: impl FnMut(&Pruned)) -> Result<Pruned> {
        let local = self.local()?;
        local.wait(local.engine.prune(request, progress))
    }

    /// See [`crate::Engine::stats`].
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self, exact: bool) -> Result<Stats> {
        let local = self.local()?;
        local.wait(local.engine.stats(exact))
    }

    /// See [`crate::Engine::has_due`].
    ///
    /// # Errors
    /// As there.
    pub fn has_due(&self, queues: &[String]) -> Result<bool> {
        let local = self.local()?;
        local.wait(local.engine.has_due(queues))
    }

    /// See [`crate::Engine::doctor`].
    ///
    /// # Errors
    /// As there.
    pub fn doctor(&self, request: &DoctorRequest) -> Result<Vec<Finding>> {
        let local = self.local()?;
        local.wait(local.engine.doctor(request))
    }

    /// Waits until every outcome given to group finish before is written, and finished claims are closed.
    ///
    /// # Errors
    /// `Unavailable` when the database does not take them for a long time; they are still tried.
    pub fn flush(&self) -> Result<()> {
        self.local()?.flush()
    }

    /// Writes what is pending and closes the connections of this process's engine, within `limit`. This handle and its
    /// clones are refused from here on; claims made under the same configuration too. Closing twice is allowed.
    ///
    /// # Errors
    /// `Unavailable` when outcomes could not be written in time; their jobs come back when the lease ends.
    pub fn close(&self, limit: Duration) -> Result<()> {
        if self.is_closed.swap(true, Relaxed) {
            return Ok(());
        }
        match registry::remove(&self.config) {
            Some(local) => local.runtime.block_on(local.engine.close(limit)),
            None => Ok(()),
        }
    }
}

impl From<&Table> for DoctorTable {
    fn from(table: &Table) -> Self {
        DoctorTable::new(table.name(), table.mapping().clone())
    }
}

/// Closes every engine of this process, within `limit` for each. For the end of a process.
pub fn close_all(limit: Duration) {
    for local in registry::remove_all() {
        if let Err(error) = local.runtime.block_on(local.engine.close(limit)) {
            log::warn!("{error}");
        }
    }
}
