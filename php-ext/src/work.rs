//! The loop most users want, with a PHP callable for each queue, or one for the rows of a mapped table.

use crate::arguments::{Flag, Int, Seconds, Text};
use crate::exceptions::{invalid, pending};
use crate::handlers::{Handler, Handlers, handler_of};
use crate::held::Started;
use crate::job::Job;
use crate::process::{Called, Drain, call, gate};
use crate::row::Row;
use crate::thrown::Thrown;
use ext_php_rs::convert::IntoZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendHashTable, Zval};
use ext_php_rs::zend::ExecutorGlobals;
use rowclaim::blocking::{Engine, Handled, Summary, Table, Waiting, WorkRequest};
use rowclaim::{ClaimRequest, OnLost, Outcome, RowClaimRequest};
use std::sync::Arc;
use std::time::Duration;

/// What a caller says about a `work`.
pub struct WorkArguments {
    /// `batch`
    pub batch: Option<Int>,
    /// `maxSeconds`
    pub max_seconds: Option<Seconds>,
    /// `maxJobs`
    pub max_jobs: Option<Int>,
    /// `untilEmpty`
    pub until_empty: Flag,
    /// `lease`
    pub lease: Option<Seconds>,
    /// `maxRun`
    pub max_run: Option<Seconds>,
    /// `maxIdle`
    pub max_idle: Option<Seconds>,
    /// `finish`
    pub finish: Option<Text>,
}

impl WorkArguments {
    fn lease(&self) -> PhpResult<(Option<Duration>, Option<Duration>)> {
        let lease = self.lease.map(|lease| lease.span("lease")).transpose()?;
        Ok((lease, self.max_run.map(|span| span.span("maxRun")).transpose()?))
    }

    fn request<C>(self, claim: C) -> PhpResult<WorkRequest<C>> {
        let mut request = WorkRequest::new(claim);
        request.max_time = self.max_seconds.map(|span| span.span("maxSeconds")).transpose()?;
        if let Some(jobs) = self.max_jobs {
            request.max_jobs = Some(jobs.size("maxJobs")? as u64);
        }
        request.until_empty = self.until_empty.0;
        if let Some(idle) = self.max_idle {
            request.max_idle = idle.span("maxIdle")?;
        }
        if let Some(finish) = self.finish {
            request.finish_each = match finish.utf8("finish")?.as_str() {
                "each" => true,
                "group" => false,
                other => return invalid(format!("finish must be each or group, not {other}")),
            };
        }
        request.stop = Arc::clone(Drain::stop());
        Ok(request)
    }
}

/// Work that is described and may be done, once or again and again.
pub enum Work {
    /// On jobs.
    Jobs { engine: Engine, handlers: Handlers, request: WorkRequest },
    /// On the rows of a mapped table.
    Rows { table: Table, handler: Handler, request: WorkRequest<RowClaimRequest> },
}

impl Work {
    /// A handler for the jobs of each queue.
    ///
    /// # Errors
    /// `InvalidException` for handlers that cannot be called, and for arguments.
    pub fn on_jobs(engine: &Engine, handlers: &ZendHashTable, on_lost: OnLost, arguments: WorkArguments) -> PhpResult<Self> {
        let handlers = Handlers::read("queue", handlers)?;
        let mut claim = ClaimRequest::new("").on_lost(on_lost);
        claim.queues = handlers.names().to_vec();
        if let Some(batch) = arguments.batch {
            claim.limit = batch.size("batch")?;
        }
        (claim.lease, claim.max_run) = arguments.lease()?;
        Ok(Work::Jobs { engine: engine.clone(), handlers, request: arguments.request(claim)? })
    }

    /// One handler for the rows of a table.
    ///
    /// # Errors
    /// As [`Work::on_jobs`].
    pub fn on_rows(table: &Table, handler: &Zval, mut claim: RowClaimRequest, arguments: WorkArguments) -> PhpResult<Self> {
        let handler = handler_of("the handler", handler)?;
        if let Some(batch) = arguments.batch {
            claim.limit = batch.size("batch")?;
        }
        (claim.lease, claim.max_run) = arguments.lease()?;
        Ok(Work::Rows { table: table.clone(), handler, request: arguments.request(claim)? })
    }

    /// The engine it is done through.
    pub fn engine(&self) -> &Engine {
        match self {
            Work::Jobs { engine, .. } => engine,
            Work::Rows { table, .. } => table.engine(),
        }
    }

    /// How long it may take.
    pub fn max_time(&self) -> Option<Duration> {
        match self {
            Work::Jobs { request, .. } => request.max_time,
            Work::Rows { request, .. } => request.max_time,
        }
    }

    /// Where more of it may wait.
    pub fn waiting(&self) -> Waiting<'_> {
        match self {
            Work::Jobs { handlers, .. } => Waiting::Queues(handlers.names()),
            Work::Rows { table, request, .. } => Waiting::Table(table, &request.claim.filters),
        }
    }

    /// Calls the handler for each job or row until the time, their number or the work is over, or SIGTERM or SIGINT comes.
    /// For use behind the gate, while a [`Drain`] lives.
    ///
    /// # Errors
    /// As the core's `work`.
    pub fn run(&self) -> rowclaim::Result<Summary> {
        match self {
            Work::Jobs { engine, handlers, request } => engine.work(request, |job| match handlers.get(&job.queue) {
                Some(handler) => handle(handler, Job::new(Started::alone(job.clone())).into_zval(false)),
                None => Handled::As(Outcome::Release { delay: Duration::ZERO }),
            }),
            Work::Rows { table, handler, request } => {
                table.work(request, |row| handle(handler, Row::new(Started::alone(row.clone())).into_zval(false)))
            }
        }
    }
}

/// Does the work.
///
/// # Errors
/// As the core's `work`; what a signal handler throws.
pub fn work(work: &Work) -> PhpResult<Summary> {
    let drain = Drain::begin();
    let summary = gate(|| {
        let summary = work.run();
        drop(drain);
        summary
    });
    if ExecutorGlobals::has_exception() { Err(pending()) } else { summary }
}

/// Calls a handler with a job or row; what becomes of that.
fn handle(handler: &Handler, argument: ext_php_rs::error::Result<Zval>) -> Handled {
    let Ok(argument) = argument else { return Handled::BrokenOff };
    match call(handler, vec![&argument]) {
        Called::Returned(()) => Handled::As(Outcome::Complete),
        Called::Left => Handled::BrokenOff,
        Called::Threw => {
            let thrown = Thrown::take();
            let error = thrown.as_ref().map(Thrown::text).unwrap_or_default();
            let is_reject = thrown.as_ref().is_some_and(Thrown::is_reject);
            drop(thrown);
            let outcome = if is_reject { Outcome::Reject { error } } else { Outcome::Fail { error, delay: None } };
            // A destructor of what the exception held threw in turn: that one is the caller's.
            if ExecutorGlobals::has_exception() { Handled::Last(outcome) } else { Handled::As(outcome) }
        }
    }
}
