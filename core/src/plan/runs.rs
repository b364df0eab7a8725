//! Reading runs and schedules.

use crate::error::{Error, Result};
use crate::runs::{Missed, RunRecord, RunState, ScheduleRecord, ScheduleRequest, SkipReason};
use crate::time::{Timestamp, micros};
use crate::value::{Row, Value};
use std::time::Duration;
use uuid::Uuid;

fn stored<T>(word: Result<T>) -> Result<T> {
    word.map_err(|e| Error::decode(e.message()))
}

fn span(row: &Row, column: usize) -> Result<Duration> {
    Ok(Duration::from_micros(u64::try_from(row.int(column)?).unwrap_or(0)))
}

pub(crate) fn run(row: &Row) -> Result<RunRecord> {
    Ok(RunRecord {
        id: row.int(0)?,
        task: row.text(1)?,
        slot: row.time(2)?,
        rerun: row.int(3)?,
        is_manual: row.int(4)? != 0,
        state: stored(RunState::parse(&row.text(5)?))?,
        reason: row.opt(6, |row, column| stored(SkipReason::parse(&row.text(column)?)))?,
        slots: row.int(7)?,
        fence: row.opt(9, Row::int)?,
        worker: row.text(10)?,
        started_at: row.time(11)?,
        finished_at: row.opt(12, Row::time)?,
        error: row.opt(13, Row::text)?,
    })
}

/// The token of a run that was read by [`run`]'s statements.
pub(crate) fn token(row: &Row) -> Result<Option<Uuid>> {
    Ok(row.opt(8, Row::bytes)?.and_then(|bytes| Uuid::from_slice(&bytes).ok()))
}

/// A schedule, and the clock of the database when it was read. The next slot and the last run are not filled in.
pub(crate) fn schedule(row: &Row) -> Result<(ScheduleRecord, Timestamp)> {
    let request = ScheduleRequest {
        task: row.text(0)?,
        cron: row.text(1)?,
        zone: row.text(2)?,
        missed: stored(Missed::parse(&row.text(3)?))?,
        cap: u32::try_from(row.int(4)?).unwrap_or(1),
        catch_up_for: row.opt(5, span)?,
        grace: span(row, 6)?,
        lease: span(row, 7)?,
        max_run: row.opt(8, span)?,
    };
    let record = ScheduleRecord {
        request,
        accounted_until: row.time(9)?,
        paused_at: row.opt(10, Row::time)?,
        asked_at: row.opt(11, Row::time)?,
        next_at: None,
        last: None,
    };
    Ok((record, row.time(12)?))
}

/// The columns of a schedule in the order of the statements that write it, with its name last.
pub(crate) fn schedule_values(request: &ScheduleRequest) -> Vec<Value> {
    vec![
        request.cron.as_str().into(),
        request.zone.as_str().into(),
        request.missed.name().into(),
        i64::from(request.cap).into(),
        request.catch_up_for.map(micros).into(),
        micros(request.grace).into(),
        micros(request.lease).into(),
        request.max_run.map(micros).into(),
        request.task.as_str().into(),
    ]
}
