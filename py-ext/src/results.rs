//! Answers of the core become the records of `rowclaim/_results.py`, made by position.

use crate::mapping::entries;
use crate::values::datetime;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};
use rowclaim::blocking::Summary;
use rowclaim::{
    Attempt, Binding, Count, Created, Finding, JobRow, Migrated, PlannedStatement, Pruned, QueueStats, Recovered, Resolution,
    Stats, TableRecord, Timestamp,
};

static RECORDS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

type Object<'py> = PyResult<Bound<'py, PyAny>>;

fn record<'py>(py: Python<'py>, class: &str, fields: impl PyCallArgs<'py>) -> Object<'py> {
    let records = RECORDS.get_or_try_init(py, || py.import("rowclaim._results").map(Bound::unbind))?;
    records.bind(py).getattr(class)?.call1(fields)
}

fn datetime_or_none(py: Python<'_>, at: Option<Timestamp>) -> PyResult<Option<Bound<'_, PyAny>>> {
    at.map(|at| datetime(py, at)).transpose()
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
    let mut fields: Vec<Bound<'py, PyAny>> = Vec::with_capacity(15);
    let first = (id, queue, key, priority, state.name(), payload, attempts, max_attempts, lost, fence);
    fields.extend(first.into_pyobject(py)?.iter());
    let rest = (
        datetime_or_none(py, row.ready_at)?,
        datetime(py, row.created_at)?,
        datetime_or_none(py, row.finished_at)?,
        &row.last_error,
        row.claim_id,
    );
    fields.extend(rest.into_pyobject(py)?.iter());
    record(py, "JobRow", PyTuple::new(py, fields)?)
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

pub(crate) fn recovered<'py>(py: Python<'py>, answer: &Recovered) -> Object<'py> {
    record(py, "Recovered", (answer.claims, answer.returned, answer.dead, answer.held))
}

pub(crate) fn migrated<'py>(py: Python<'py>, answer: &Migrated) -> Object<'py> {
    record(py, "Migrated", (answer.from, answer.to))
}

pub(crate) fn pruned<'py>(py: Python<'py>, answer: &Pruned) -> Object<'py> {
    record(py, "Pruned", (answer.jobs, answer.claims, answer.attempts))
}

/// What has turned out about a row that was begun.
pub(crate) fn resolution(sent: bool) -> Resolution {
    if sent { Resolution::Sent } else { Resolution::NotSent }
}

fn count<'py>(py: Python<'py>, count: &Count) -> Object<'py> {
    record(py, "Count", (count.rows, count.is_capped))
}

fn queue_stats<'py>(py: Python<'py>, queue: &QueueStats) -> Object<'py> {
    let oldest_due = queue.oldest_due.map(|span| span.as_secs_f64());
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

/// `(sql, values)` for a DB-API cursor; `None` for an unknown parameter style.
pub(crate) fn planned<'py>(
    py: Python<'py>,
    planned: &PlannedStatement,
    paramstyle: &str,
) -> PyResult<Option<(String, Bound<'py, PyList>)>> {
    let sql = match paramstyle {
        "qmark" => planned.sql.clone(),
        "format" => planned.sql.replace('%', "%%").replace('?', "%s"),
        _ => return Ok(None),
    };
    let values = PyList::empty(py);
    for binding in &planned.bindings {
        match binding {
            Binding::Null => values.append(py.None())?,
            Binding::Int(number) => values.append(number)?,
            Binding::Text(text) => values.append(text)?,
        }
    }
    Ok(Some((sql, values)))
}
