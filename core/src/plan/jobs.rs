//! Reading jobs and attempts for people and tools.

use crate::error::Result;
use crate::job::{Attempt, JobRow, JobState};
use crate::value::Row;

pub(crate) fn job(mut row: Row) -> Result<JobRow> {
    Ok(JobRow {
        id: row.int(0)?,
        queue: row.text(1)?,
        key: row.opt(2, Row::text)?,
        priority: row.int(3)?,
        state: JobState::parse(&row.text(4)?)?,
        payload: row.take_text(5)?,
        attempts: row.int(6)?,
        max_attempts: row.int(7)?,
        lost: row.int(8)?,
        fence: row.int(9)?,
        ready_at: row.opt(10, Row::time)?,
        created_at: row.time(11)?,
        finished_at: row.opt(12, Row::time)?,
        last_error: row.opt(13, Row::text)?,
        claim_id: row.opt(14, Row::int)?,
    })
}

pub(crate) fn attempt(row: &Row) -> Result<Attempt> {
    Ok(Attempt {
        fence: row.int(0)?,
        outcome: row.text(1)?,
        is_final: row.int(2)? == 1,
        worker: row.text(3)?,
        claimed_at: row.opt(4, Row::time)?,
        ended_at: row.time(5)?,
        error: row.opt(6, Row::text)?,
    })
}
