//! How long names may be and how many rows one call may ask for.

use crate::error::{Error, Result};

/// The longest business key, and the longest name of a lease, an effect or a limit, in bytes.
pub const MAX_KEY: usize = 191;
/// The longest queue name, in bytes.
pub const MAX_QUEUE: usize = 64;
/// The longest name of a task, in bytes: its lease is called `run:` and the name.
pub const MAX_TASK: usize = 187;
/// Rows that one call takes, lists or deletes at most.
pub const MAX_LIMIT: usize = 10_000;

pub(crate) fn check_length(what: &str, text: &str, max: usize) -> Result<()> {
    if text.is_empty() || text.len() > max {
        return Err(Error::invalid(format!("{what} must have 1 to {max} bytes, not {}", text.len())));
    }
    Ok(())
}

pub(crate) fn check_queue(queue: &str) -> Result<()> {
    check_length("queue", queue, MAX_QUEUE)
}

pub(crate) fn check_task(task: &str) -> Result<()> {
    check_length("the task's name", task, MAX_TASK)
}

pub(crate) fn check_effect_key(key: &str) -> Result<()> {
    check_length("the effect's key", key, MAX_KEY)
}

/// `limit` as the database wants it.
pub(crate) fn check_limit(what: &str, limit: usize) -> Result<i64> {
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Error::invalid(format!("{what} must be from 1 to {MAX_LIMIT}, not {limit}")));
    }
    Ok(limit as i64)
}
