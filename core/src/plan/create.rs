//! The statements that create jobs.

use super::{plain, spread};
use crate::dialect::Statements;
use crate::error::Result;
use crate::job::{Created, JobState, NewJob, Unique};
use crate::time::micros;
use crate::value::{Row, Statement, Value};
use uuid::Uuid;

/// Jobs at most in one INSERT.
pub(crate) const ROWS: usize = 500;

/// A statement for a connection the application has open: text and bound values in order.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStatement {
    /// SQL with `?` places.
    pub sql: String,
    /// The values of the places.
    pub bindings: Vec<Binding>,
}

/// A bound value of a [`PlannedStatement`].
#[derive(Clone, Debug, PartialEq)]
pub enum Binding {
    /// NULL.
    Null,
    /// A whole number.
    Int(i64),
    /// Text, UTF-8.
    Text(String),
}

pub(crate) fn look(statements: &Statements, queue: &str, keys: &[&str]) -> Statement {
    // Padded, so that few distinct statements are prepared.
    let places = keys.len().next_power_of_two();
    let mut values: Vec<Value> = vec![queue.into()];
    values.extend(keys.iter().map(|key| Value::from(*key)));
    if let Some(last) = keys.last() {
        values.extend(std::iter::repeat_n(Value::from(*last), places - keys.len()));
    }
    Statement { sql: spread(&statements.look, "{list}", "?", places), values }
}

/// A row of `look`: who holds the key, and whether its time is over.
pub(crate) struct Holder {
    pub key: String,
    pub answer: Created,
    pub is_over: bool,
}

pub(crate) fn holder(row: &Row) -> Result<Holder> {
    let state = JobState::parse(&row.text(2)?)?;
    Ok(Holder { key: row.text(0)?, answer: Created { id: row.int(1)?, exists: true, state }, is_over: row.int(3)? != 0 })
}

pub(crate) fn insert(statements: &Statements, jobs: &[&NewJob], default_attempts: i64, token: Uuid) -> Statement {
    let mut values = Vec::with_capacity(jobs.len() * 10);
    for job in jobs {
        let timed = match job.unique {
            Unique::For(time) => Some(micros(time)),
            _ => None,
        };
        values.extend([
            job.queue.as_str().into(),
            job.key.as_deref().into(),
            job.key.as_deref().into(),
            job.unique.name().into(),
            timed.into(),
            Value::Int(i64::from(job.priority)),
            job.payload.as_str().into(),
            job.run_at.into(),
            micros(job.delay).into(),
            job.max_attempts.unwrap_or(default_attempts).into(),
            token.as_bytes().as_slice().into(),
        ]);
    }
    Statement { sql: spread(&statements.insert_jobs, "{rows}", &statements.insert_jobs_row, jobs.len()), values }
}

pub(crate) fn made_in_row(statements: &Statements, first_id: i64, token: Uuid, count: usize) -> Statement {
    let last_id = first_id + count as i64 - 1;
    plain(&statements.made_in_row, vec![first_id.into(), last_id.into(), token.as_bytes().as_slice().into()])
}

pub(crate) fn made(statements: &Statements, first_id: i64, token: Uuid, count: usize) -> Statement {
    plain(&statements.made, vec![first_id.into(), token.as_bytes().as_slice().into(), Value::Int(count as i64)])
}

pub(crate) fn made_before_loss(statements: &Statements, token: Uuid) -> Statement {
    plain(&statements.made_before_loss, vec![token.as_bytes().as_slice().into()])
}

pub(crate) fn planned(statements: &Statements, job: &NewJob, default_attempts: i64) -> PlannedStatement {
    let text = |text: Option<&str>| text.map_or(Binding::Null, |t| Binding::Text(t.to_owned()));
    PlannedStatement {
        sql: statements.plan_create.clone(),
        bindings: vec![
            text(Some(&job.queue)),
            text(job.key.as_deref()),
            text(job.key.as_deref()),
            text(Some(job.unique.name())),
            Binding::Int(i64::from(job.priority)),
            text(Some(&job.payload)),
            Binding::Int(micros(job.delay)),
            Binding::Int(job.max_attempts.unwrap_or(default_attempts)),
        ],
    }
}
