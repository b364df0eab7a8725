//! `Rowclaim\Engine`: a handle on one database.
//!
//! Arguments become Rust values, then [`gate`] does the rest. What the caller leaves out stays at the core's default.
//! The names of parameters are PHP's, for named arguments.
#![allow(non_snake_case)]

use crate::arguments::{Flag, Int, Seconds, Text, ids, on_lost, partition, queues, resolution, slot};
use crate::claim::Claim;
use crate::connect;
use crate::create::{JobArguments, new_job, new_jobs};
use crate::created::Created;
use crate::effect::EffectRecord;
use crate::exceptions::exception;
use crate::guard::GuardArguments;
use crate::handlers::{Handlers, handler_of};
use crate::held::{Batch, answers};
use crate::lease::{Lease, LeaseRecord};
use crate::mapping::{self, Given};
use crate::once::{OnceArguments, once};
use crate::process::{CLOSE_LIMIT, gate};
use crate::receipt::Receipt;
use crate::rows::{self, Array};
use crate::run::{RunRecord, run_due, run_slot};
use crate::runner::Runner;
use crate::schedule::{ScheduleArguments, ScheduleRecord};
use crate::summary::Summary;
use crate::table::Table;
use crate::values::to_json;
use crate::work::{Work, WorkArguments, work};
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::{Iterable, ZendHashTable, Zval};
use rowclaim::{
    ClaimRequest, ClaimedJob, DoctorRequest, EffectFilter, EffectState, ErrorKind, GuardedWrite, JobFilter, JobState,
    LeaseFilter, OnLost, PruneRequest, RunFilter, RunRequest, RunState, ScheduleFilter, ThrottleRequest,
};
use std::time::Duration;

/// A handle on one database; the connections behind it are this process's, made on first use and shared.
#[php_class]
#[php(name = "Rowclaim\\Engine", flags = crate::CLASS)]
pub struct Engine {
    inner: rowclaim::blocking::Engine,
}

#[php_impl]
#[allow(clippy::too_many_arguments)]
impl Engine {
    /// Connects and proves that the server answers. Throws `ConfigException`, `UnavailableException`.
    pub fn connect(dsn: Option<Text>, options: Option<&ZendHashTable>) -> PhpResult<Engine> {
        let config = connect::config(dsn, options)?;
        Ok(Engine { inner: gate(|| rowclaim::blocking::Engine::with_config(config))? })
    }

    /// Creates a job; with a key, only once. Throws `InvalidException`, `SchemaException`, `UnavailableException`.
    #[php(optional = "key")]
    pub fn create(
        &self,
        queue: Text,
        payload: &Zval,
        key: Option<Text>,
        unique: Option<&Zval>,
        delay: Option<Seconds>,
        runAt: Option<&Zval>,
        priority: Option<Int>,
        maxAttempts: Option<Int>,
    ) -> PhpResult<Created> {
        let arguments = JobArguments { key, unique, delay, run_at: runAt, priority, max_attempts: maxAttempts };
        let job = new_job(&queue.utf8("queue")?, payload, arguments)?;
        gate(|| self.inner.create(&job)).map(Created)
    }

    /// Creates many jobs, one answer each, in order. Throws as `create`.
    pub fn create_many(&self, queue: Text, jobs: Iterable) -> PhpResult<Vec<Created>> {
        let jobs = new_jobs(&queue.utf8("queue")?, jobs)?;
        let answers = gate(|| self.inner.create_many(&jobs))?;
        Ok(answers.into_iter().map(Created).collect())
    }

    /// SQL and values that create a job on a connection the application has open. Throws `UnsupportedException` for a key with a time.
    #[php(optional = "key")]
    pub fn plan_create(
        &self,
        queue: Text,
        payload: &Zval,
        key: Option<Text>,
        unique: Option<&Zval>,
        delay: Option<Seconds>,
        priority: Option<Int>,
        maxAttempts: Option<Int>,
    ) -> PhpResult<Array> {
        let arguments = JobArguments { key, unique, delay, run_at: None, priority, max_attempts: maxAttempts };
        let job = new_job(&queue.utf8("queue")?, payload, arguments)?;
        Ok(rows::planned(gate(|| self.inner.plan_create(&job))?)?)
    }

    /// Takes up to `limit` jobs. Throws `InvalidException`, `SchemaException`, `UnavailableException`.
    #[php(name = "claim")]
    pub fn claim_jobs(
        &self,
        queues: &Zval,
        limit: Option<Int>,
        lease: Option<Seconds>,
        maxRun: Option<Seconds>,
        priority: Option<Int>,
        partition: Option<&ZendHashTable>,
        onLost: Option<Text>,
    ) -> PhpResult<Claim> {
        let mut request = ClaimRequest::new("");
        request.queues = self::queues(queues)?;
        if let Some(limit) = limit {
            request.limit = limit.size("limit")?;
        }
        request.lease = lease.map(|lease| lease.span("lease")).transpose()?;
        request.max_run = maxRun.map(|span| span.span("maxRun")).transpose()?;
        request.priority = priority.map(Int::priority).transpose()?;
        request.partition = partition.map(self::partition).transpose()?;
        request.on_lost = on_lost(onLost)?;
        gate(|| self.inner.claim(&request)).map(|claim| Claim(Batch::new(claim)))
    }

    /// Calls the handler of a job's queue for each job until a limit or a signal. Throws as the core's `work`.
    #[php(optional = "batch", defaults(untilEmpty = false))]
    pub fn work(
        &self,
        handlers: &ZendHashTable,
        batch: Option<Int>,
        maxSeconds: Option<Seconds>,
        maxJobs: Option<Int>,
        untilEmpty: Flag,
        lease: Option<Seconds>,
        maxRun: Option<Seconds>,
        maxIdle: Option<Seconds>,
        finish: Option<Text>,
        onLost: Option<Text>,
    ) -> PhpResult<Summary> {
        let arguments = WorkArguments {
            batch,
            max_seconds: maxSeconds,
            max_jobs: maxJobs,
            until_empty: untilEmpty,
            lease,
            max_run: maxRun,
            max_idle: maxIdle,
            finish,
        };
        work(&Work::on_jobs(&self.inner, handlers, on_lost(onLost)?, arguments)?).map(Summary)
    }

    /// Work on jobs behind an HTTP request or a crontab. Throws `InvalidException`.
    #[php(optional = "token")]
    pub fn runner(
        &self,
        handlers: &ZendHashTable,
        token: Option<Text>,
        name: Option<Text>,
        batch: Option<Int>,
        maxSeconds: Option<Seconds>,
        maxJobs: Option<Int>,
        lease: Option<Seconds>,
        maxRun: Option<Seconds>,
        finish: Option<Text>,
    ) -> PhpResult<Runner> {
        let arguments = WorkArguments {
            batch,
            max_seconds: maxSeconds,
            max_jobs: maxJobs,
            until_empty: Flag(true),
            lease,
            max_run: maxRun,
            max_idle: None,
            finish,
        };
        Runner::new(token, name, Work::on_jobs(&self.inner, handlers, OnLost::default(), arguments)?)
    }

    /// Has an effect happen once. Throws what `send` and `ask` throw; `InvalidException`, also for another request under the
    /// same key; `BusyException`, `UnknownException`, `LostException`, `UnavailableException`.
    #[php(optional = "ask")]
    pub fn once(
        &self,
        key: Text,
        request: &Zval,
        send: &Zval,
        ask: Option<&Zval>,
        onUnknown: Option<Text>,
        lease: Option<Seconds>,
        wait: Option<Seconds>,
        completes: Option<&Zval>,
    ) -> PhpResult<Receipt> {
        let arguments = OnceArguments { key, request, send, ask, on_unknown: onUnknown, lease, wait };
        once(&self.inner, arguments, completes)
    }

    /// An effect as it stands in the ledger, or null. Throws `InvalidException`.
    pub fn effect(&self, key: Text) -> PhpResult<Option<EffectRecord>> {
        let key = key.utf8("key")?;
        Ok(gate(|| self.inner.effect(&key))?.map(EffectRecord::new))
    }

    /// Effects, newest first. Throws `InvalidException` for a wrong state or limit.
    pub fn effects(&self, state: Option<Text>, before: Option<Int>, limit: Option<Int>) -> PhpResult<Vec<EffectRecord>> {
        let mut filter = EffectFilter { before: before.map(|id| id.0), ..EffectFilter::default() };
        if let Some(state) = state {
            filter.state = Some(EffectState::parse(&state.utf8("state")?).map_err(|error| exception(&error))?);
        }
        if let Some(limit) = limit {
            filter.limit = limit.size("limit")?;
        }
        Ok(gate(|| self.inner.effects(&filter))?.into_iter().map(EffectRecord::new).collect())
    }

    /// A person's word on an effect of which nobody knows whether it has happened; false when it does not stand so any more.
    /// Throws `NotFoundException`, `InvalidException`.
    pub fn resolve_effect(&self, key: Text, happened: Flag, response: Option<&Zval>) -> PhpResult<bool> {
        let key = key.utf8("key")?;
        let response = response.filter(|response| !response.dereference().is_null());
        let response = response.map(|response| to_json(ErrorKind::Invalid, "response", response)).transpose()?;
        gate(|| self.inner.resolve_effect(&key, happened.0, response.as_deref()))
    }

    /// Runs a planned time of a task once. Throws what `run` throws; `InvalidException`.
    #[php(optional = "lease", defaults(manual = false))]
    pub fn run_slot(
        &self,
        task: Text,
        slot: &Zval,
        run: &Zval,
        lease: Option<Seconds>,
        maxRun: Option<Seconds>,
        manual: Flag,
    ) -> PhpResult<RunRecord> {
        let mut request = RunRequest::new(task.utf8("task")?, self::slot("slot", slot)?);
        if let Some(lease) = lease {
            request.lease = lease.span("lease")?;
        }
        request.max_run = maxRun.map(|span| span.span("maxRun")).transpose()?;
        request.is_manual = manual.0;
        run_slot(&self.inner, &request, &handler_of("run", run)?)
    }

    /// The history of runs, newest first. Throws `InvalidException` for a wrong state or limit.
    pub fn runs(
        &self,
        task: Option<Text>,
        state: Option<Text>,
        before: Option<Int>,
        limit: Option<Int>,
    ) -> PhpResult<Vec<RunRecord>> {
        let mut filter = RunFilter { before: before.map(|id| id.0), ..RunFilter::default() };
        filter.task = task.map(|task| task.utf8("task")).transpose()?;
        if let Some(state) = state {
            filter.state = Some(RunState::parse(&state.utf8("state")?).map_err(|error| exception(&error))?);
        }
        if let Some(limit) = limit {
            filter.limit = limit.size("limit")?;
        }
        Ok(gate(|| self.inner.runs(&filter))?.into_iter().map(RunRecord).collect())
    }

    /// Records a schedule, or changes it. Throws `InvalidException`, naming the option.
    #[php(optional = "missed")]
    pub fn schedule(
        &self,
        task: Text,
        cron: Text,
        zone: Text,
        missed: Option<Text>,
        cap: Option<Int>,
        catchUp: Option<Seconds>,
        grace: Option<Seconds>,
        lease: Option<Seconds>,
        maxRun: Option<Seconds>,
    ) -> PhpResult<ScheduleRecord> {
        let arguments = ScheduleArguments { task, cron, zone, missed, cap, catch_up: catchUp, grace, lease, max_run: maxRun };
        let request = arguments.request()?;
        gate(|| self.inner.schedule(&request)).map(ScheduleRecord)
    }

    /// Runs what is due, one pass. Throws `NotFoundException` for a task without a schedule.
    pub fn run_due(&self, handlers: &ZendHashTable, maxSeconds: Option<Seconds>) -> PhpResult<Vec<RunRecord>> {
        let max_time = maxSeconds.map(|span| span.span("maxSeconds")).transpose()?;
        run_due(&self.inner, &Handlers::read("task", handlers)?, max_time)
    }

    /// Schedules in the order of their names. Throws `InvalidException` for a wrong limit.
    pub fn schedules(&self, limit: Option<Int>) -> PhpResult<Vec<ScheduleRecord>> {
        let mut filter = ScheduleFilter::default();
        if let Some(limit) = limit {
            filter.limit = limit.size("limit")?;
        }
        Ok(gate(|| self.inner.schedules(&filter))?.into_iter().map(ScheduleRecord).collect())
    }

    /// Deletes a schedule; false when there was none.
    pub fn unschedule(&self, task: Text) -> PhpResult<bool> {
        let task = task.utf8("task")?;
        gate(|| self.inner.unschedule(&task))
    }

    /// Stops a schedule; false when it is paused already. Throws `NotFoundException`.
    pub fn pause_schedule(&self, task: Text) -> PhpResult<bool> {
        let task = task.utf8("task")?;
        gate(|| self.inner.pause_schedule(&task))
    }

    /// Starts a paused schedule again; false when it was not paused. Throws `NotFoundException`.
    pub fn resume_schedule(&self, task: Text) -> PhpResult<bool> {
        let task = task.utf8("task")?;
        gate(|| self.inner.resume_schedule(&task))
    }

    /// Has the next pass run a task at once. Throws `NotFoundException`.
    pub fn ask_run(&self, task: Text) -> PhpResult<()> {
        let task = task.utf8("task")?;
        gate(|| self.inner.ask_run(&task))
    }

    /// The user's table `name` by a mapping, checked at once. Throws `ConfigException`, naming the entry and the column,
    /// `SchemaException`, `UnavailableException`.
    pub fn table(&self, name: Text, mapping: &ZendHashTable) -> PhpResult<Table> {
        let name = name.utf8("name")?;
        let Given { mapping, dsn } = mapping::read(mapping)?;
        let engine = match dsn {
            Some(dsn) => {
                let config = connect::config(Some(dsn), None)?;
                gate(|| rowclaim::blocking::Engine::with_config(config))?
            }
            None => self.inner.clone(),
        };
        gate(|| engine.table(&name, &mapping)).map(Table::new)
    }

    /// The mappings that claims were made by.
    pub fn tables(&self) -> PhpResult<Array> {
        rows::tables(gate(|| self.inner.tables())?)
    }

    /// Takes a lease, waiting up to `wait` seconds for another holder to go; null when somebody else holds it. Throws
    /// `InvalidException`, `SchemaException`, `UnavailableException`.
    pub fn lease(&self, name: Text, r#for: Seconds, wait: Option<Seconds>) -> PhpResult<Option<Lease>> {
        Lease::take(&self.inner, name, r#for, wait)
    }

    /// Leases in the order of their names. Throws `InvalidException` for a wrong limit.
    pub fn leases(&self, limit: Option<Int>) -> PhpResult<Vec<LeaseRecord>> {
        let mut filter = LeaseFilter::default();
        if let Some(limit) = limit {
            filter.limit = limit.size("limit")?;
        }
        Ok(gate(|| self.inner.leases(&filter))?.into_iter().map(LeaseRecord).collect())
    }

    /// Waits until the next one of a limit that all workers share may go; false at once when that is longer than `wait` seconds.
    /// Throws `InvalidException`.
    pub fn throttle(&self, name: Text, limit: Int, per: Option<Seconds>, wait: Option<Seconds>) -> PhpResult<bool> {
        let mut request = ThrottleRequest::new(name.utf8("name")?, limit.0);
        if let Some(per) = per {
            request.per = per.span("per")?;
        }
        if let Some(wait) = wait {
            request.wait = wait.span("wait")?;
        }
        gate(|| self.inner.throttle(&request))
    }

    /// Makes a fenced write on any table; false when a newer fence has written before. Throws `InvalidException`, naming the
    /// column, `SchemaException`, `DuplicateException`, `UnavailableException`.
    pub fn guard(&self, table: Text, key: &ZendHashTable, set: &ZendHashTable, fenceColumn: Text, fence: Int) -> PhpResult<bool> {
        let arguments = GuardArguments { table, key, set, fence_column: fenceColumn };
        let write = GuardedWrite { fence: fence.0, ..arguments.write()? };
        gate(|| self.inner.guard(&write))
    }

    /// SQL and values of a fenced UPDATE for a connection the application has open. Throws as `guard`,
    /// `UnsupportedException` for bytes.
    pub fn plan_guard(
        &self,
        table: Text,
        key: &ZendHashTable,
        set: &ZendHashTable,
        fenceColumn: Text,
        fence: Int,
    ) -> PhpResult<Array> {
        let arguments = GuardArguments { table, key, set, fence_column: fenceColumn };
        let write = GuardedWrite { fence: fence.0, ..arguments.write()? };
        Ok(rows::planned(gate(|| self.inner.plan_guard(&write))?)?)
    }

    /// Looks at the server and Rowclaim's tables for what is wrong, or will be; changes nothing.
    pub fn doctor(&self) -> PhpResult<Array> {
        Ok(rows::list(gate(|| self.inner.doctor(&DoctorRequest::default()))?, rows::finding)?)
    }

    /// Takes the jobs of expired claims back now.
    pub fn recover(&self) -> PhpResult<Array> {
        Ok(rows::recovered(gate(|| self.inner.recover())?)?)
    }

    /// A job as it stands in the table, or null.
    pub fn job(&self, id: Int) -> PhpResult<Option<Array>> {
        Ok(gate(|| self.inner.job(id.0))?.map(rows::job).transpose()?)
    }

    /// Jobs as they stand in the table, newest first. Throws `InvalidException` for a wrong state or limit.
    pub fn jobs(&self, queue: Option<Text>, state: Option<Text>, before: Option<Int>, limit: Option<Int>) -> PhpResult<Array> {
        let mut filter = JobFilter { before: before.map(|id| id.0), ..JobFilter::default() };
        filter.queue = queue.map(|queue| queue.utf8("queue")).transpose()?;
        if let Some(state) = state {
            filter.state = Some(JobState::parse(&state.utf8("state")?).map_err(|error| exception(&error))?);
        }
        if let Some(limit) = limit {
            filter.limit = limit.size("limit")?;
        }
        Ok(rows::list(gate(|| self.inner.jobs(&filter))?, rows::job)?)
    }

    /// Attempts of a job that did not succeed.
    pub fn attempts(&self, id: Int) -> PhpResult<Array> {
        Ok(rows::list(gate(|| self.inner.attempts(id.0))?, rows::attempt)?)
    }

    /// Puts a dead job back. Throws `NotFoundException`, `DuplicateException`.
    #[php(defaults(force = false))]
    pub fn retry(&self, id: Int, force: Flag) -> PhpResult<bool> {
        gate(|| self.inner.retry(id.0, force.0))
    }

    /// Says of held jobs whether they were sent.
    pub fn resolve(&self, ids: &ZendHashTable, sent: Flag) -> PhpResult<Array> {
        let ids = self::ids(ids)?;
        Ok(answers::<ClaimedJob>(&ids, gate(|| self.inner.resolve(&ids, resolution(sent)))?)?)
    }

    /// Takes a waiting, dead or held job out. Throws `NotFoundException`.
    #[php(defaults(force = false))]
    pub fn cancel(&self, id: Int, force: Flag) -> PhpResult<bool> {
        gate(|| self.inner.cancel(id.0, force.0))
    }

    /// Deletes what ended longer ago than `olderThan` seconds. Throws `InvalidException` for a wrong batch.
    pub fn prune(&self, olderThan: Seconds, batch: Option<Int>) -> PhpResult<Array> {
        let mut request = PruneRequest::new(olderThan.span("olderThan")?);
        if let Some(batch) = batch {
            request.batch = batch.size("batch")?;
        }
        Ok(rows::pruned(gate(|| self.inner.prune(request, |_| ()))?)?)
    }

    /// What waits, runs and is dead, by queue; `exact` scans the table.
    #[php(defaults(exact = false))]
    pub fn stats(&self, exact: Flag) -> PhpResult<Array> {
        Ok(rows::stats(gate(|| self.inner.stats(exact.0))?)?)
    }

    /// Brings the tables to the newest version. Throws `SchemaException` when they are newer than this code.
    pub fn migrate(&self) -> PhpResult<Array> {
        Ok(rows::migrated(gate(|| self.inner.migrate())?)?)
    }

    /// The SQL of the whole schema.
    pub fn schema_sql(&self) -> PhpResult<String> {
        gate(|| self.inner.schema_sql())
    }

    /// Waits until every outcome given to group finish before is written. Throws `UnavailableException`.
    pub fn flush(&self) -> PhpResult<()> {
        gate(|| self.inner.flush())
    }

    /// Writes what is pending and closes the connections within `limit` seconds. Throws `UnavailableException`.
    pub fn close(&self, limit: Option<Seconds>) -> PhpResult<()> {
        let limit: Option<Duration> = limit.map(|limit| limit.span("limit")).transpose()?;
        gate(|| self.inner.close(limit.unwrap_or(CLOSE_LIMIT)))
    }

    /// Name and version of the server.
    pub fn server_version(&self) -> PhpResult<String> {
        gate(|| self.inner.server_version())
    }
}
