//! The class people hold: each verb converts its arguments, goes through the gate, and converts the answer.
//!
//! The verbs on effects, runs, schedules and runners are in files of their own. It holds only the core's facade, which finds this process's own engine at each call: an `Engine` survives a fork.

use crate::claim::Claim;
use crate::errors::{invalid, log, raise};
use crate::gate::enter;
use crate::guard::Write;
use crate::lease::Lease;
use crate::new_job::{self, new_job, new_jobs};
use crate::table::Table;
use crate::values::{given, option, partition, span, text, whole};
use crate::work::{Handlers, Options, work};
use crate::{CLOSE_LIMIT, mapping, results};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping};
use rowclaim::blocking::{self, Leased};
use rowclaim::{
    ClaimRequest, Config, DoctorRequest, GuardedWrite, JobFilter, JobState, LeaseFilter, LeaseRequest, OnLost, PruneRequest,
    ThrottleRequest,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// Connects to the database of ``dsn`` and proves that it answers.
///
/// ``mysql://user:password@host:port/database``, ``mariadb://…``, ``sqlite:///absolute/path``, ``sqlite:relative/path``
/// or ``sqlite::memory:``; options in its query or by name: ``prefix``, ``lease``, ``max_attempts``, ``heartbeat`` and
/// others. Equal arguments share one engine within a process.
///
/// Raises ConfigError for a wrong DSN, option, password or database, UnavailableError when nobody answers.
#[pyfunction]
#[pyo3(signature = (dsn, **options))]
pub(crate) fn connect(py: Python<'_>, dsn: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Engine> {
    let refused = |error| raise(py, &error);
    let mut config = Config::new(&text("dsn", dsn)?).map_err(refused)?;
    // In the order of their names: equal options are one engine, in whatever order they were written.
    let mut named = BTreeMap::new();
    for (name, value) in options.into_iter().flat_map(|options| options.iter()) {
        if !value.is_none() {
            let name = text("option", &name)?;
            named.insert(name.clone(), option(&name, &value)?);
        }
    }
    for (name, value) in &named {
        config.set(name, value).map_err(refused)?;
    }
    let inner = enter(py, || blocking::Engine::with_config(config))?;
    Ok(Engine { inner, is_closed: AtomicBool::new(false) })
}

/// A handle on one database, made by ``rowclaim.connect``. Usable from any thread, and in a forked child.
///
/// Durations are seconds or ``timedelta``; a parameter that is None takes the engine's default. Every verb may raise
/// SchemaError (tables missing: ``migrate()``), UnavailableError, and InvalidError for arguments and after ``close``.
#[pyclass(module = "rowclaim", frozen)]
pub(crate) struct Engine {
    inner: blocking::Engine,
    is_closed: AtomicBool,
}

impl Engine {
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<&blocking::Engine> {
        if self.is_closed.load(Relaxed) {
            return Err(invalid(py, "the engine is closed"));
        }
        Ok(&self.inner)
    }

    fn shut(&self, py: Python<'_>, limit: std::time::Duration) -> PyResult<()> {
        if self.is_closed.swap(true, Relaxed) {
            return Ok(());
        }
        enter(py, || self.inner.close(limit))
    }
}

#[pymethods]
impl Engine {
    /// Creates a job, or finds the one with the same queue and key.
    ///
    /// ``payload`` is anything ``json.dumps`` takes, or ``rowclaim.Json`` text, which is kept byte for byte. ``key``: 1 to
    /// 191 bytes; ``unique``, how long it keeps others out: ``"forever"``, ``"active"``, ``"until_claimed"`` or a
    /// duration. The first attempt comes after ``delay`` or at ``run_at`` (aware datetime, or seconds since 1970).
    /// Smaller ``priority`` runs first (-32,768 to 32,767). After ``max_attempts`` failures the job is dead.
    #[pyo3(signature = (queue, payload, *, key=None, unique=None, delay=None, run_at=None, priority=None, max_attempts=None))]
    #[allow(clippy::too_many_arguments)]
    fn create<'py>(
        &self,
        py: Python<'py>,
        queue: &Bound<'py, PyAny>,
        payload: &Bound<'py, PyAny>,
        key: Argument<'_, 'py>,
        unique: Argument<'_, 'py>,
        delay: Argument<'_, 'py>,
        run_at: Argument<'_, 'py>,
        priority: Argument<'_, 'py>,
        max_attempts: Argument<'_, 'py>,
    ) -> Object<'py> {
        let engine = self.open(py)?;
        let options = new_job::Options { key, unique, delay, run_at, priority, max_attempts };
        let job = new_job(&text("queue", queue)?, payload, &options)?;
        results::created(py, &enter(py, || engine.create(&job))?)
    }

    /// Creates many jobs; one answer a job, in order. Each is a mapping with ``payload`` and the options of ``create``.
    fn create_many<'py>(
        &self,
        py: Python<'py>,
        queue: &Bound<'py, PyAny>,
        jobs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let jobs = new_jobs(&text("queue", queue)?, jobs)?;
        let answers = enter(py, || engine.create_many(&jobs))?;
        results::list(py, &answers, results::created)
    }

    /// The SQL and values that create a job on the application's own connection, in its own transaction.
    ///
    /// ``paramstyle``: ``"qmark"`` (sqlite3) or ``"format"`` (PyMySQL, mysqlclient). The other arguments are those of
    /// ``create``. Raises UnsupportedError for a ``unique`` that is a duration.
    #[pyo3(signature = (queue, payload, *, key=None, unique=None, delay=None, priority=None, max_attempts=None, paramstyle="qmark"))]
    #[allow(clippy::too_many_arguments)]
    fn plan_create<'py>(
        &self,
        py: Python<'py>,
        queue: &Bound<'py, PyAny>,
        payload: &Bound<'py, PyAny>,
        key: Argument<'_, 'py>,
        unique: Argument<'_, 'py>,
        delay: Argument<'_, 'py>,
        priority: Argument<'_, 'py>,
        max_attempts: Argument<'_, 'py>,
        paramstyle: &str,
    ) -> PyResult<(String, Bound<'py, PyList>)> {
        let engine = self.open(py)?;
        let options = new_job::Options { key, unique, delay, run_at: None, priority, max_attempts };
        let job = new_job(&text("queue", queue)?, payload, &options)?;
        let planned = enter(py, || engine.plan_create(&job))?;
        results::planned(py, &planned, paramstyle)
    }

    /// Takes up to ``limit`` jobs (1 to 10,000) of one queue or several. The claim is empty when nothing waits.
    ///
    /// ``lease``: from 1 second; renewed in the background, not past ``max_run`` from the start. ``priority``: only jobs
    /// of that priority. ``partition``: ``(k, n)``, only jobs whose id leaves the remainder k when divided by n.
    ///
    /// ``on_lost``: ``"retry"`` (at least once, the default): a job whose lease runs out is done again. ``"hold"`` (at most
    /// once): one that was begun by then waits in state ``held`` for ``resolve``, and handing a job out costs a write.
    #[pyo3(signature = (queues, *, limit=None, lease=None, max_run=None, priority=None, partition=None, on_lost=None))]
    #[allow(clippy::too_many_arguments)]
    fn claim(
        &self,
        py: Python<'_>,
        queues: &Bound<'_, PyAny>,
        limit: Argument<'_, '_>,
        lease: Argument<'_, '_>,
        max_run: Argument<'_, '_>,
        priority: Argument<'_, '_>,
        partition: Argument<'_, '_>,
        on_lost: Option<&str>,
    ) -> PyResult<Claim> {
        let engine = self.open(py)?;
        let mut request = claim_request(crate::values::queues(queues)?, limit, lease, max_run)?;
        if let Some(priority) = given(priority) {
            request.priority = Some(whole("priority", priority)?);
        }
        if let Some(value) = given(partition) {
            request.partition = Some(self::partition(value)?);
        }
        request.on_lost = self::on_lost(py, on_lost)?;
        enter(py, || engine.claim(&request)).map(Claim::new)
    }

    /// Claims batches and calls ``handlers[queue](job)`` for each job until told to stop.
    ///
    /// A handler that returns completes its job, one that raises fails it (the exception goes to the logger
    /// ``rowclaim``); it may also finish the job itself. ``batch``: jobs a claim. Stops after ``max_seconds`` or
    /// ``max_jobs``, when nothing waits with ``until_empty``, and, in the main thread, on SIGTERM or SIGINT after the job
    /// in hand; a second signal does what it did before. ``max_idle``: longest pause when nothing waits. ``finish``:
    /// ``"each"`` writes every outcome before the next job, ``"group"`` writes them together in the background; all are
    /// written when it returns. What was not started is released.
    ///
    /// KeyboardInterrupt and SystemExit from a handler release the job, end the work and are raised. ``on_lost`` as for
    /// ``claim``: with ``"hold"`` such a job is not released but held, and ``finish="each"`` leaves fewer that are done but
    /// held; an exception still fails the job, and it is tried again.
    #[pyo3(signature = (handlers, *, batch=None, max_seconds=None, max_jobs=None, until_empty=false, lease=None, max_run=None, max_idle=None, finish=None, on_lost=None))]
    #[allow(clippy::too_many_arguments)]
    fn work<'py>(
        &self,
        py: Python<'py>,
        handlers: &Bound<'py, PyMapping>,
        batch: Argument<'_, 'py>,
        max_seconds: Argument<'_, 'py>,
        max_jobs: Argument<'_, 'py>,
        until_empty: bool,
        lease: Argument<'_, 'py>,
        max_run: Argument<'_, 'py>,
        max_idle: Argument<'_, 'py>,
        finish: Option<&str>,
        on_lost: Option<&str>,
    ) -> Object<'py> {
        let engine = self.open(py)?;
        let handlers = Handlers::new(handlers, "queue")?;
        let options = Options { max_seconds, max_jobs, until_empty, max_idle, finish };
        let mut claim = claim_request(handlers.names.clone(), batch, lease, max_run)?;
        claim.on_lost = self::on_lost(py, on_lost)?;
        let request = options.request(py, claim)?;
        work(py, engine, &request, &handlers)?.answer(py)
    }

    /// Verbs on a table that is there already, by a mapping that says what its columns mean.
    ///
    /// ``name``: ``table`` or ``database.table``. The entries are those of ``rowclaim.TableMapping``, in a mapping, by
    /// keyword, or both; spans are seconds or ``timedelta``. With ``dsn`` among them the table is in that database, under
    /// an engine of its own, which is closed at exit. The table is looked at once, now.
    ///
    /// Raises ConfigError, naming the entry and the column, for what does not fit, with the SQL that mends it, and
    /// SchemaError when the table is not there.
    #[pyo3(signature = (name, mapping=None, **entries))]
    fn table(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        mapping: Argument<'_, '_>,
        entries: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Table> {
        let engine = self.open(py)?;
        let name = text("name", name)?;
        let mapping::Given { mapping, dsn } = mapping::read(mapping, entries, py)?;
        let table = enter(py, || match &dsn {
            Some(dsn) => blocking::Engine::connect(dsn)?.table(&name, &mapping),
            None => engine.table(&name, &mapping),
        })?;
        Ok(Table::new(table))
    }

    /// The mappings that claims were made by, in the order of the tables' names.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let records = enter(py, || engine.tables())?;
        results::list(py, &records, results::table_record)
    }

    /// Takes the lease ``name``, or gives None when somebody else holds it; ``leases`` tells who.
    ///
    /// One holder at a time, by the database's clock. ``name``: 1 to 191 bytes, compared byte for byte. ``lease``: how long
    /// it is held without a renewal, from 1 second; it is renewed in the background until it is released or the object is
    /// gone. ``wait``: for so long another holder may take to go.
    #[pyo3(signature = (name, lease, *, wait=None))]
    fn lease(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        lease: &Bound<'_, PyAny>,
        wait: Argument<'_, '_>,
    ) -> PyResult<Option<Lease>> {
        let engine = self.open(py)?;
        let mut request = LeaseRequest::new(text("name", name)?, span("lease", lease)?);
        if let Some(wait) = given(wait) {
            request.wait = span("wait", wait)?;
        }
        Ok(match enter(py, || engine.lease(&request))? {
            Leased::Acquired(lease) => Some(Lease::new(lease)),
            Leased::Busy(_) => None,
        })
    }

    /// Leases in the order of their names, those that were given back too. ``limit``: 1 to 10,000.
    #[pyo3(signature = (*, limit=None))]
    fn leases<'py>(&self, py: Python<'py>, limit: Argument<'_, 'py>) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let mut filter = LeaseFilter::default();
        if let Some(limit) = given(limit) {
            filter.limit = whole("limit", limit)?;
        }
        let leases = enter(py, || engine.leases(&filter))?;
        results::list(py, &leases, results::lease)
    }

    /// Waits until the next one of a limit may go: at most ``limit`` of that name in any ``per``, of all workers together.
    ///
    /// ``name``: 1 to 191 bytes; ``limit``: 1 to 1,000,000; ``per``: 1 millisecond to 1 day, a second when None. Places come one
    /// behind the other at equal distances, by the database's clock, without bursts. A place that is not used is lost.
    ///
    /// False at once, and no place is taken, when the next one is farther away than ``wait`` (a minute when None).
    #[pyo3(signature = (name, limit, *, per=None, wait=None))]
    fn throttle(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        limit: &Bound<'_, PyAny>,
        per: Argument<'_, '_>,
        wait: Argument<'_, '_>,
    ) -> PyResult<bool> {
        let engine = self.open(py)?;
        let mut request = ThrottleRequest::new(text("name", name)?, whole("limit", limit)?);
        if let Some(per) = given(per) {
            request.per = span("per", per)?;
        }
        if let Some(wait) = given(wait) {
            request.wait = span("wait", wait)?;
        }
        enter(py, || engine.throttle(&request))
    }

    /// Makes a fenced write on any table: the row of ``key`` gets ``set`` and ``fence``, unless its fence is newer.
    ///
    /// ``table``: ``table`` or ``database.table``. ``key``: the columns of its primary key or of a unique one, and their
    /// values; a row that is not there is created. ``fence_column``: the whole-number column that keeps the fence; NULL is
    /// older than any. The fence that is stored is accepted: it is the same holder's. Values are converted as for
    /// ``Table``. ``guard`` of a ``Lease``, ``Job`` or ``Row`` brings its fence along.
    ///
    /// False when a newer fence has written: nothing was changed then. Raises InvalidError, naming the column, for what does
    /// not fit and for a key that is not unique, SchemaError without the table, DuplicateError when a new row violates
    /// another unique key.
    fn guard(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        set: &Bound<'_, PyAny>,
        fence_column: &Bound<'_, PyAny>,
        fence: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let engine = self.open(py)?;
        let fence = whole("fence", fence)?;
        let write = GuardedWrite { fence, ..Write { table, key, set, fence_column }.read()? };
        enter(py, || engine.guard(&write))
    }

    /// The UPDATE of ``guard`` as SQL and values for the application's own connection, in its own transaction.
    ///
    /// It creates no row. It was accepted when it matched a row; a connection that counts only changed rows (PyMySQL without
    /// ``client_flag=CLIENT.FOUND_ROWS``) answers 0 for a repeat with the same values. ``paramstyle``: ``"qmark"`` (sqlite3)
    /// or ``"format"`` (PyMySQL, mysqlclient). Raises as ``guard``, and UnsupportedError for ``bytes``.
    #[pyo3(signature = (table, key, set, fence_column, fence, *, paramstyle="qmark"))]
    #[allow(clippy::too_many_arguments)]
    fn plan_guard<'py>(
        &self,
        py: Python<'py>,
        table: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        set: &Bound<'py, PyAny>,
        fence_column: &Bound<'py, PyAny>,
        fence: &Bound<'py, PyAny>,
        paramstyle: &str,
    ) -> PyResult<(String, Bound<'py, PyList>)> {
        let engine = self.open(py)?;
        let fence = whole("fence", fence)?;
        let write = GuardedWrite { fence, ..Write { table, key, set, fence_column }.read()? };
        let planned = enter(py, || engine.plan_guard(&write))?;
        results::planned(py, &planned, paramstyle)
    }

    /// Looks at the server and Rowclaim's tables for what is wrong, or will be; changes nothing. A right the account lacks
    /// is never an error.
    fn doctor<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let found = enter(py, || engine.doctor(&DoctorRequest::default()))?;
        results::list(py, &found, results::finding)
    }

    /// Takes jobs back from claims whose lease has run out. Claims do this by themselves now and then.
    fn recover<'py>(&self, py: Python<'py>) -> Object<'py> {
        let engine = self.open(py)?;
        results::recovered(py, &enter(py, || engine.recover())?)
    }

    /// A job as it stands in the table, or None.
    fn job<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let engine = self.open(py)?;
        let id = whole("id", id)?;
        enter(py, || engine.job(id))?.map(|row| results::job_row(py, &row)).transpose()
    }

    /// Jobs as they stand in the table, newest first.
    ///
    /// ``state``: ready, claimed, done, dead, cancelled or held. ``before``: only smaller ids, for the next page. ``limit``:
    /// 1 to 10,000.
    #[pyo3(signature = (*, queue=None, state=None, before=None, limit=None))]
    fn jobs<'py>(
        &self,
        py: Python<'py>,
        queue: Argument<'_, 'py>,
        state: Argument<'_, 'py>,
        before: Argument<'_, 'py>,
        limit: Argument<'_, 'py>,
    ) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let mut filter = JobFilter::default();
        if let Some(queue) = given(queue) {
            filter.queue = Some(text("queue", queue)?);
        }
        if let Some(state) = given(state) {
            filter.state = Some(JobState::parse(&text("state", state)?).map_err(|error| raise(py, &error))?);
        }
        if let Some(before) = given(before) {
            filter.before = Some(whole("before", before)?);
        }
        if let Some(limit) = given(limit) {
            filter.limit = whole("limit", limit)?;
        }
        let rows = enter(py, || engine.jobs(&filter))?;
        results::list(py, &rows, results::job_row)
    }

    /// The attempts of a job that did not succeed, oldest first.
    fn attempts<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let id = whole("id", id)?;
        let attempts = enter(py, || engine.attempts(id))?;
        results::list(py, &attempts, results::attempt)
    }

    /// Puts a dead job back with all its attempts; with ``force`` also a claimed one, whose owner is lost then.
    ///
    /// False when it does not stand so any more. A job in state ``held`` is never put back by it: see ``resolve``. Raises
    /// NotFoundError, and DuplicateError when a newer job holds its key.
    #[pyo3(signature = (id, *, force=false))]
    fn retry(&self, py: Python<'_>, id: &Bound<'_, PyAny>, force: bool) -> PyResult<bool> {
        let engine = self.open(py)?;
        let id = whole("id", id)?;
        enter(py, || engine.retry(id, force))
    }

    /// Says of held jobs, which were begun when their lease ran out, whether they were ``sent``: those that were are done, the
    /// others are handed out again, and the attempt is not counted.
    ///
    /// Gives for each id True, or False when the job is not held, or not any more.
    #[pyo3(signature = (ids, sent))]
    fn resolve<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>, sent: bool) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.open(py)?;
        let ids = crate::values::ids(ids)?;
        let answers = enter(py, || engine.resolve(&ids, results::resolution(sent)))?;
        let by_id = PyDict::new(py);
        for (id, answer) in ids.iter().zip(answers) {
            by_id.set_item(id, answer)?;
        }
        Ok(by_id)
    }

    /// Takes a waiting, dead or held job out; with ``force`` also a claimed one, whose owner is lost then.
    ///
    /// False when it does not stand so any more. Raises NotFoundError.
    #[pyo3(signature = (id, *, force=false))]
    fn cancel(&self, py: Python<'_>, id: &Bound<'_, PyAny>, force: bool) -> PyResult<bool> {
        let engine = self.open(py)?;
        let id = whole("id", id)?;
        enter(py, || engine.cancel(id, force))
    }

    /// Deletes jobs, claims and attempts that ended longer ago than ``older_than``, ``batch`` rows a step.
    #[pyo3(signature = (older_than, *, batch=None))]
    fn prune<'py>(&self, py: Python<'py>, older_than: &Bound<'py, PyAny>, batch: Argument<'_, 'py>) -> Object<'py> {
        let engine = self.open(py)?;
        let mut request = PruneRequest::new(span("older_than", older_than)?);
        if let Some(batch) = given(batch) {
            request.batch = whole("batch", batch)?;
        }
        results::pruned(py, &enter(py, || engine.prune(request, |_| {}))?)
    }

    /// What waits, runs and is dead, by queue. ``exact`` adds a count of every state, which scans the table.
    #[pyo3(signature = (*, exact=false))]
    fn stats<'py>(&self, py: Python<'py>, exact: bool) -> Object<'py> {
        let engine = self.open(py)?;
        results::stats(py, &enter(py, || engine.stats(exact))?)
    }

    /// Makes the tables or brings them to the newest version. May run in several processes at once.
    ///
    /// Raises SchemaError when they are newer than this code, ConfigError without the rights.
    fn migrate<'py>(&self, py: Python<'py>) -> Object<'py> {
        let engine = self.open(py)?;
        results::migrated(py, &enter(py, || engine.migrate())?)
    }

    /// The SQL of the whole schema, for people who apply it with their own tool.
    fn schema_sql(&self, py: Python<'_>) -> PyResult<String> {
        let engine = self.open(py)?;
        enter(py, || engine.schema_sql())
    }

    /// Waits until every outcome given to the background is written.
    ///
    /// Raises UnavailableError when the database does not take them for a long time; they are still tried.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.open(py)?;
        enter(py, || engine.flush())
    }

    /// Writes what is pending and closes the connections, within ``limit`` (2 seconds when None). May be repeated.
    ///
    /// Raises UnavailableError when outcomes could not be written in time; their jobs come back when the lease ends.
    #[pyo3(signature = (limit=None))]
    fn close(&self, py: Python<'_>, limit: Argument<'_, '_>) -> PyResult<()> {
        let limit = given(limit).map(|limit| span("limit", limit)).transpose()?;
        self.shut(py, limit.unwrap_or(CLOSE_LIMIT))
    }

    /// Name and version of the server.
    #[getter]
    fn server_version(&self, py: Python<'_>) -> PyResult<String> {
        let engine = self.open(py)?;
        enter(py, || engine.server_version())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, raised, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Argument<'_, '_>,
        raised: Argument<'_, '_>,
        traceback: Argument<'_, '_>,
    ) -> PyResult<()> {
        let _ = (kind, traceback);
        match self.shut(py, CLOSE_LIMIT) {
            // The block's own exception matters more.
            Err(failure) if raised.is_some() => log(py, "the engine could not be closed", &failure),
            other => other,
        }
    }
}

fn on_lost(py: Python<'_>, word: Option<&str>) -> PyResult<OnLost> {
    word.map_or(Ok(OnLost::default()), |word| OnLost::parse(word).map_err(|error| raise(py, &error)))
}

pub(crate) fn claim_request(
    queues: Vec<String>,
    limit: Argument<'_, '_>,
    lease: Argument<'_, '_>,
    max_run: Argument<'_, '_>,
) -> PyResult<ClaimRequest> {
    let mut request = ClaimRequest::new("");
    request.queues = queues;
    if let Some(limit) = given(limit) {
        request.limit = whole("limit", limit)?;
    }
    if let Some(lease) = given(lease) {
        request.lease = Some(span("lease", lease)?);
    }
    if let Some(max_run) = given(max_run) {
        request.max_run = Some(span("max_run", max_run)?);
    }
    Ok(request)
}
