//! The loop most users want, with a PHP callable for each queue, or one for the rows of a mapped table.

use crate::arguments::{Flag, Int, Seconds, Text, throwable_text};
use crate::exceptions::{invalid, pending};
use crate::held::Started;
use crate::job::Job;
use crate::process::{Called, Drain, call, gate};
use crate::row::Row;
use ext_php_rs::convert::IntoZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendCallable, ZendHashTable, Zval};
use ext_php_rs::zend::ExecutorGlobals;
use rowclaim::blocking::{Engine, Handled, Summary, Table, WorkRequest};
use rowclaim::{ClaimRequest, OnLost, Outcome, RowClaimRequest};
use std::collections::HashMap;
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

/// Calls the handler of a job's queue for each job, until the time, the number of jobs or the work is over, or SIGTERM or
/// SIGINT comes.
///
/// # Errors
/// As the core's `work`; `InvalidException` for handlers that cannot be called; what a signal handler throws.
pub fn work(engine: &Engine, handlers: &ZendHashTable, on_lost: OnLost, arguments: WorkArguments) -> PhpResult<Summary> {
    let mut queues = Vec::with_capacity(handlers.len());
    let mut callables = HashMap::with_capacity(handlers.len());
    let mut entries = handlers.iter();
    while let Some((key, handler)) = entries.next_zval() {
        let queue = match key.long() {
            Some(number) => number.to_string(),
            None => crate::arguments::typed::<Text>("handlers", "array of callables by queue", &key)?.utf8("handlers")?,
        };
        let Ok(callable) = ZendCallable::new_owned(handler.dereference().shallow_clone()) else {
            return invalid(format!("the handler of queue {queue} cannot be called"));
        };
        callables.insert(queue.clone(), callable);
        queues.push(queue);
    }
    let mut claim = ClaimRequest::new("").on_lost(on_lost);
    claim.queues = queues;
    if let Some(batch) = arguments.batch {
        claim.limit = batch.size("batch")?;
    }
    (claim.lease, claim.max_run) = arguments.lease()?;
    let request = arguments.request(claim)?;
    let drain = Drain::begin();
    let summary = gate(|| {
        let summary = engine.work(&request, |job| match callables.get(&job.queue) {
            Some(handler) => handle(handler, Job::new(Started::alone(job.clone())).into_zval(false)),
            None => Handled::As(Outcome::Release { delay: Duration::ZERO }),
        });
        drop(drain);
        summary
    });
    if ExecutorGlobals::has_exception() { Err(pending()) } else { summary }
}

/// As [`work`], with one handler for the rows of a mapped table.
///
/// # Errors
/// As there.
pub fn work_rows(table: &Table, handler: &Zval, mut claim: RowClaimRequest, arguments: WorkArguments) -> PhpResult<Summary> {
    let Ok(handler) = ZendCallable::new_owned(handler.dereference().shallow_clone()) else {
        return invalid("the handler cannot be called");
    };
    if let Some(batch) = arguments.batch {
        claim.limit = batch.size("batch")?;
    }
    (claim.lease, claim.max_run) = arguments.lease()?;
    let request = arguments.request(claim)?;
    let drain = Drain::begin();
    let summary = gate(|| {
        let summary = table.work(&request, |row| handle(&handler, Row::new(Started::alone(row.clone())).into_zval(false)));
        drop(drain);
        summary
    });
    if ExecutorGlobals::has_exception() { Err(pending()) } else { summary }
}

/// Calls a handler with a job or row; what becomes of that.
fn handle(handler: &ZendCallable, argument: ext_php_rs::error::Result<Zval>) -> Handled {
    let Ok(argument) = argument else { return Handled::BrokenOff };
    match call(handler, vec![&argument]) {
        Called::Returned => Handled::As(Outcome::Complete),
        Called::Left => Handled::BrokenOff,
        Called::Threw => {
            let thrown = ExecutorGlobals::take_exception();
            let error = thrown.as_ref().map(|thrown| throwable_text(thrown)).unwrap_or_default();
            drop(thrown);
            let outcome = Outcome::Fail { error, delay: None };
            // A destructor of what the exception held threw in turn: that one is the caller's.
            if ExecutorGlobals::has_exception() { Handled::Last(outcome) } else { Handled::As(outcome) }
        }
    }
}
