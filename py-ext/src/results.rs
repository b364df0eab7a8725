//! Answers of the core become the records of `rowclaim/_results.py`, made by position.

use crate::errors::invalid;
use crate::mapping::entries;
use crate::values::datetime;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};
use rowclaim::blocking::{RunnerAnswer, Summary};
use rowclaim::{
    Attempt, Binding, Count, Created, EffectRecord, Finding, JobRow, LeaseRecord, Migrated, PlannedStatement, Pruned, QueueStats,
    Receipt, Recovered, Resolution, RunRecord, ScheduleRecord, Stats, TableRecord, Timestamp,
};
use std::time::Duration;

static RECORDS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

type Object<'py> = PyResult<Bound<'py, PyAny>>;

fn record<'py>(py: Python<'py>, class: &str, fields: impl PyCallArgs<'py>) -> Object<'py> {
    let records = RECORDS.get_or_try_init(py, || py.import("rowclaim._results").map(Bound::unbind))?;
    records.bind(py).getattr(class)?.call1(fields)
}

fn datetime_or_none(py: Python<'_>, at: Option<Timestamp>) -> PyResult<Option<Bound<'_, PyAny>>> {
    at.map(|at| datetime(py, at)).transpose()
}

/// The fields of a record with more of them than a Rust tuple may have.
fn joined<'py>(py: Python<'py>, first: &Bound<'py, PyTuple>, rest: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, first.iter().chain(rest.iter()).collect::<Vec<_>>())
}

fn seconds(span: Option<Duration>) -> Option<f64> {
    span.map(|span| span.as_secs_f64())
}

/// A list of records.
pub(crate) fn list<'py, T>(
    py: Python<'py>,
    rows: &[T],
    one: impl Fn(Python<'py>, &T) -> Object<'py>,
) -> PyResult<Bound<'py, PyList>> {
    let made = PyList::empty(py);
    for row in rows {
        made.append(one(py, row)?)?;
    }
    Ok(made)
}

pub(crate) fn finding<'py>(py: Python<'py>, found: &Finding) -> Object<'py> {
    let Finding { severity, code, subject, message, consequence, fix } = found;
    record(py, "Finding", (severity.name(), *code, subject, message, consequence, fix))
}

pub(crate) fn created<'py>(py: Python<'py>, answer: &Created) -> Object<'py> {
    record(py, "Created", (answer.id, answer.exists, answer.state.name()))
}

pub(crate) fn job_row<'py>(py: Python<'py>, row: &JobRow) -> Object<'py> {
    let JobRow { id, queue, key, priority, state, payload, attempts, max_attempts, lost, fence, .. } = row;
    let first = (id, queue, key, priority, state.name(), payload, attempts, max_attempts, lost, fence);
    let rest = (
        datetime_or_none(py, row.ready_at)?,
        datetime(py, row.created_at)?,
        datetime_or_none(py, row.finished_at)?,
        &row.last_error,
        row.claim_id,
    );
    record(py, "JobRow", joined(py, &first.into_pyobject(py)?, &rest.into_pyobject(py)?)?)
}

pub(crate) fn attempt<'py>(py: Python<'py>, attempt: &Attempt) -> Object<'py> {
    let claimed_at = datetime_or_none(py, attempt.claimed_at)?;
    let ended_at = datetime(py, attempt.ended_at)?;
    let Attempt { fence, outcome, is_final, worker, error, .. } = attempt;
    record(py, "Attempt", (fence, outcome, is_final, worker, claimed_at, ended_at, error))
}

pub(crate) fn summary<'py>(py: Python<'py>, summary: &Summary, stopped_by: Option<i32>) -> Object<'py> {
    let Summary { claimed, completed, failed, released, lost, seconds, stopped } = *summary;
    record(py, "Summary", (claimed, completed, failed, released, lost, seconds, stopped, stopped_by))
}

pub(crate) fn table_record<'py>(py: Python<'py>, table: &TableRecord) -> Object<'py> {
    let mapping = entries(py, &table.mapping)?;
    record(py, "TableRecord", (table.id, &table.name, mapping, datetime(py, table.created_at)?))
}

pub(crate) fn receipt<'py>(py: Python<'py>, receipt: &Receipt) -> Object<'py> {
    let Receipt { key, response, attempts, is_fresh, is_completed } = receipt;
    record(py, "Receipt", (key, response, attempts, is_fresh, is_completed))
}

pub(crate) fn effect<'py>(py: Python<'py>, effect: &EffectRecord) -> Object<'py> {
    let EffectRecord { id, key, state, attempts, holder, response, error, .. } = effect;
    let first = (id, key, state.name(), attempts, holder, response, error);
    let rest = (
        datetime(py, effect.lease_until)?,
        datetime(py, effect.created_at)?,
        datetime(py, effect.started_at)?,
        datetime_or_none(py, effect.finished_at)?,
    );
    record(py, "EffectRecord", joined(py, &first.into_pyobject(py)?, &rest.into_pyobject(py)?)?)
}

pub(crate) fn run<'py>(py: Python<'py>, run: &RunRecord) -> Object<'py> {
    let RunRecord { id, task, rerun, is_manual, state, slots, fence, worker, error, .. } = run;
    let reason = run.reason.map(rowclaim::SkipReason::name);
    let first = (id, task, datetime(py, run.slot)?, rerun, is_manual, state.name(), reason, slots, fence, worker);
    let started_at = datetime(py, run.started_at)?;
    let rest = (started_at, datetime_or_none(py, run.finished_at)?, seconds(run.duration()), error);
    record(py, "RunRecord", joined(py, &first.into_pyobject(py)?, &rest.into_pyobject(py)?)?)
}

pub(crate) fn schedule<'py>(py: Python<'py>, schedule: &ScheduleRecord) -> Object<'py> {
    let request = &schedule.request;
    let first = (
        &request.task,
        &request.cron,
        &request.zone,
        request.missed.name(),
        request.cap,
        seconds(request.catch_up_for),
        request.grace.as_secs_f64(),
        request.lease.as_secs_f64(),
        seconds(request.max_run),
    );
    let rest = (
        datetime(py, schedule.accounted_until)?,
        datetime_or_none(py, schedule.paused_at)?,
        datetime_or_none(py, schedule.asked_at)?,
        datetime_or_none(py, schedule.next_at)?,
        schedule.last.as_ref().map(|last| run(py, last)).transpose()?,
    );
    record(py, "ScheduleRecord", joined(py, &first.into_pyobject(py)?, &rest.into_pyobject(py)?)?)
}

pub(crate) fn runner_answer<'py>(py: Python<'py>, answer: &RunnerAnswer) -> Object<'py> {
    record(py, "RunnerAnswer", (answer.status, &answer.body))
}

pub(crate) fn lease<'py>(py: Python<'py>, lease: &LeaseRecord) -> Object<'py> {
    let LeaseRecord { name, holder, fence, is_held, .. } = lease;
    let (acquired_at, lease_until) = (datetime(py, lease.acquired_at)?, datetime(py, lease.lease_until)?);
    record(py, "LeaseRecord", (name, holder, fence, acquired_at, lease_until, is_held))
}

pub(crate) fn recovered<'py>(py: Python<'py>, answer: &Recovered) -> Object<'py> {
    record(py, "Recovered", (answer.claims, answer.returned, answer.dead, answer.held, answer.runs, answer.effects))
}

pub(crate) fn migrated<'py>(py: Python<'py>, answer: &Migrated) -> Object<'py> {
    record(py, "Migrated", (answer.from, answer.to))
}

pub(crate) fn pruned<'py>(py: Python<'py>, answer: &Pruned) -> Object<'py> {
    record(py, "Pruned", (answer.jobs, answer.claims, answer.attempts, answer.effects, answer.runs))
}

/// What has turned out about a row that was begun.
pub(crate) fn resolution(sent: bool) -> Resolution {
    if sent { Resolution::Sent } else { Resolution::NotSent }
}

fn count<'py>(py: Python<'py>, count: &Count) -> Object<'py> {
    record(py, "Count", (count.rows, count.is_capped))
}

fn queue_stats<'py>(py: Python<'py>, queue: &QueueStats) -> Object<'py> {
    let oldest_due = seconds(queue.oldest_due);
    let fields = (
        &queue.queue,
        count(py, &queue.due)?,
        count(py, &queue.delayed)?,
        queue.claimed,
        count(py, &queue.dead)?,
        count(py, &queue.held)?,
        oldest_due,
        queue.exact.clone(),
    );
    record(py, "QueueStats", fields)
}

pub(crate) fn stats<'py>(py: Python<'py>, stats: &Stats) -> Object<'py> {
    record(py, "Stats", (list(py, &stats.queues, queue_stats)?, stats.open_claims, stats.expired_claims))
}

/// `(sql, values)` for a DB-API cursor.
pub(crate) fn planned<'py>(
    py: Python<'py>,
    planned: &PlannedStatement,
    paramstyle: &str,
) -> PyResult<(String, Bound<'py, PyList>)> {
    let sql = match paramstyle {
        "qmark" => planned.sql.clone(),
        "format" => format_style(&planned.sql),
        other => return Err(invalid(py, format!("paramstyle must be qmark or format, not {other}"))),
    };
    let values = PyList::empty(py);
    for binding in &planned.bindings {
        match binding {
            Binding::Null => values.append(py.None())?,
            Binding::Int(number) => values.append(number)?,
            Binding::Text(text) => values.append(text)?,
        }
    }
    Ok((sql, values))
}

/// The same with `%s` for its places; a question mark in a quoted name is none.
fn format_style(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 16);
    let mut quote = None;
    for c in sql.chars() {
        match (c, quote) {
            ('?', None) => out.push_str("%s"),
            ('%', _) => out.push_str("%%"),
            _ => out.push(c),
        }
        quote = match (c, quote) {
            ('`' | '"' | '\'', None) => Some(c),
            (c, Some(open)) if c == open => None,
            (_, quote) => quote,
        };
    }
    out
}
