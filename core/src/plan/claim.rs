//! The statements of a claim and what they answer.

use super::ids::Ids;
use super::plain;
use crate::claim::OnLost;
use crate::dialect::Statements;
use crate::error::Result;
use crate::job::ClaimedJob;
use crate::time::{Timestamp, micros};
use crate::value::{Row, Statement, Value};
use std::time::Duration;
use uuid::Uuid;

/// One (queue, priority): what one locking read asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lane {
    pub priority: i64,
    /// Position of the queue in the request: the second part of the order.
    pub order: usize,
    pub queue: String,
}

/// Where a job stands in the order of a lane. Id 0 stands before all jobs of its instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub ready_at: Timestamp,
    pub id: i64,
}

/// What one read looks at: from behind a position to the end of an instant. Both are needed, see the statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub after: Position,
    pub until: Timestamp,
}

impl Window {
    pub(crate) const ALL: Window = Window { after: Position { ready_at: Timestamp::BEGINNING, id: 0 }, until: Timestamp::END };
}

/// What is written to the claims table.
pub(crate) struct NewClaim {
    pub token: Uuid,
    pub source: String,
    pub worker: String,
    pub lease: Duration,
    pub max_run: Option<Duration>,
    /// The mapping's record; `None` for jobs.
    pub table_id: Option<i64>,
    pub on_lost: OnLost,
}

pub(crate) fn next_queue(statements: &Statements, after: &str) -> Statement {
    plain(&statements.next_queue, vec![after.into()])
}

pub(crate) fn next_priority(statements: &Statements, queue: &str, after: i64) -> Statement {
    plain(&statements.next_priority, vec![queue.into(), after.into()])
}

pub(crate) fn pick(statements: &Statements, lane: &Lane, window: Window, limit: usize) -> Statement {
    let Position { ready_at, id } = window.after;
    let mut values: Vec<Value> = vec![lane.queue.as_str().into(), lane.priority.into(), ready_at.into()];
    let text = match id {
        0 => &statements.pick,
        _ => {
            values.extend([id.into(), ready_at.into()]);
            &statements.pick_after
        }
    };
    values.extend([window.until.into(), Value::Int(limit as i64)]);
    plain(text, values)
}

pub(crate) fn pick_ids(statements: &Statements, lane: &Lane, partition: Option<(i64, i64)>, limit: usize) -> Statement {
    let (k, n) = partition.unwrap_or((0, 1));
    let values = vec![lane.queue.as_str().into(), lane.priority.into(), n.into(), k.into(), Value::Int(limit as i64)];
    plain(&statements.pick_ids, values)
}

pub(crate) fn lock_ids(statements: &Statements, ids: &Ids) -> Statement {
    ids.statement(&statements.lock_ids, vec![], vec![])
}

/// The record of a claim; `keys` in their stored form.
pub(crate) fn insert_claim(statements: &Statements, claim: &NewClaim, count: usize, keys: String) -> Statement {
    // As much of the names as the column takes, cut between two characters.
    let end = (0..=claim.source.len().min(255)).rev().find(|end| claim.source.is_char_boundary(*end));
    let source = claim.source.get(..end.unwrap_or(0)).unwrap_or_default();
    let values = vec![
        claim.token.as_bytes().as_slice().into(),
        source.into(),
        claim.worker.as_str().into(),
        micros(claim.lease).into(),
        micros(claim.lease).into(),
        claim.max_run.map(micros).into(),
        Value::Int(count as i64),
        keys.into(),
        claim.table_id.into(),
        claim.on_lost.name().into(),
    ];
    plain(&statements.insert_claim, values)
}

pub(crate) fn mark(statements: &Statements, ids: &Ids, claim_id: i64) -> Statement {
    ids.statement(&statements.mark, vec![claim_id.into()], vec![])
}

pub(crate) fn bury(statements: &Statements, ids: &Ids) -> Statement {
    ids.statement(&statements.bury, vec![], vec![])
}

/// That a job, or a row of a mapped table by its key, is about to be handed out.
pub(crate) fn start(statements: &Statements, claim_id: i64, job_id: i64, row_key: Option<String>, fence: i64) -> Statement {
    plain(&statements.start, vec![job_id.into(), fence.into(), row_key.into(), claim_id.into()])
}

pub(crate) fn exhaust(statements: &Statements, ids: &Ids) -> Statement {
    ids.statement(&statements.exhaust, vec![], vec![])
}

pub(crate) fn claim_by_token(statements: &Statements, token: Uuid) -> Statement {
    plain(&statements.claim_by_token, vec![token.as_bytes().as_slice().into()])
}

pub(crate) fn claimed(statements: &Statements, ids: &Ids, claim_id: i64) -> Statement {
    ids.statement(&statements.claimed, vec![], vec![claim_id.into()])
}

/// The most attempts of a job that cannot be read: it is ended, and does not keep the others.
pub(crate) const UNREADABLE: i64 = -1;

/// A row of `pick` or `lock_ids`, with attempts and fence as `mark` will leave them.
pub(crate) fn candidate(mut row: Row, lane: &Lane) -> Result<ClaimedJob> {
    let (key, payload) = (row.opt(2, Row::text), row.take_text(3));
    if key.is_err() || payload.is_err() {
        let job = stub(&Row(vec![row.take(0), row.take(1), Value::Int(0), Value::Int(UNREADABLE)]), lane)?;
        return Ok(job);
    }
    Ok(ClaimedJob {
        id: row.int(0)?,
        queue: lane.queue.clone(),
        priority: lane.priority,
        ready_at: row.time(1)?,
        key: key?,
        payload: payload?,
        attempts: row.int(4)? + 1,
        max_attempts: row.int(5)?,
        fence: row.int(6)? + 1,
        lost: row.int(7)?,
        created_at: row.time(8)?,
    })
}

/// A row of `claimed`: attempts and fence are raised already.
pub(crate) fn claimed_job(mut row: Row) -> Result<ClaimedJob> {
    Ok(ClaimedJob {
        id: row.int(0)?,
        ready_at: Timestamp::BEGINNING,
        key: row.opt(2, Row::text)?,
        payload: row.take_text(3)?,
        attempts: row.int(4)?,
        max_attempts: row.int(5)?,
        fence: row.int(6)?,
        lost: row.int(7)?,
        created_at: row.time(8)?,
        queue: row.text(9)?,
        priority: row.int(10)?,
    })
}

/// A row of `pick_ids`: what is needed to choose; the rest is read when the row is ours.
pub(crate) fn stub(row: &Row, lane: &Lane) -> Result<ClaimedJob> {
    Ok(ClaimedJob {
        id: row.int(0)?,
        ready_at: row.time(1)?,
        attempts: row.int(2)? + 1,
        max_attempts: row.int(3)?,
        queue: lane.queue.clone(),
        priority: lane.priority,
        key: None,
        payload: String::new(),
        fence: 0,
        lost: 0,
        created_at: Timestamp::BEGINNING,
    })
}
