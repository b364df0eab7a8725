//! Answers of the core as PHP arrays.

use crate::values::from_json;
use ext_php_rs::boxed::ZBox;
use ext_php_rs::error::Result;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendHashTable, Zval};
use rowclaim::{
    Attempt, Binding, Count, Finding, JobRow, Migrated, PlannedStatement, Pruned, QueueStats, Recovered, Stats, TableRecord,
    Timestamp,
};

/// An array of PHP.
pub type Array = ZBox<ZendHashTable>;

fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds(at: Option<Timestamp>) -> Option<f64> {
    at.map(Timestamp::as_unix_seconds)
}

/// A list.
///
/// # Errors
/// When PHP refuses a value.
pub fn list<T>(rows: impl IntoIterator<Item = T>, table: impl Fn(T) -> Result<Array>) -> Result<Array> {
    let mut out = ZendHashTable::new();
    for row in rows {
        out.push(table(row)?)?;
    }
    Ok(out)
}

/// A job as it stands in the table.
///
/// # Errors
/// When PHP refuses a value.
pub fn job(row: JobRow) -> Result<Array> {
    let mut out = ZendHashTable::with_capacity(16);
    out.insert("id", row.id)?;
    out.insert("queue", row.queue)?;
    out.insert("key", row.key)?;
    out.insert("priority", row.priority)?;
    out.insert("state", row.state.name())?;
    out.insert("payload", row.payload)?;
    out.insert("attempts", row.attempts)?;
    out.insert("maxAttempts", row.max_attempts)?;
    out.insert("lost", row.lost)?;
    out.insert("fence", row.fence)?;
    out.insert("readyAt", seconds(row.ready_at))?;
    out.insert("createdAt", row.created_at.as_unix_seconds())?;
    out.insert("finishedAt", seconds(row.finished_at))?;
    out.insert("lastError", row.last_error)?;
    out.insert("claimId", row.claim_id)?;
    Ok(out)
}

/// The mappings in the registry.
///
/// # Errors
/// `DecodeException` for one that PHP cannot read.
pub fn tables(records: Vec<TableRecord>) -> PhpResult<Array> {
    let mut out = ZendHashTable::new();
    for record in records {
        let mut table = ZendHashTable::with_capacity(4);
        table.insert("id", record.id)?;
        table.insert("name", record.name)?;
        table.insert("mapping", from_json("the mapping cannot be read by PHP", &record.mapping)?)?;
        table.insert("createdAt", record.created_at.as_unix_seconds())?;
        out.push(table)?;
    }
    Ok(out)
}

/// What the doctor found.
///
/// # Errors
/// When PHP refuses a value.
pub fn finding(found: Finding) -> Result<Array> {
    let mut out = ZendHashTable::with_capacity(6);
    out.insert("severity", found.severity.name())?;
    out.insert("code", found.code)?;
    out.insert("subject", found.subject)?;
    out.insert("message", found.message)?;
    out.insert("consequence", found.consequence)?;
    out.insert("fix", found.fix)?;
    Ok(out)
}

/// An attempt that did not succeed.
///
/// # Errors
/// When PHP refuses a value.
pub fn attempt(row: Attempt) -> Result<Array> {
    let mut out = ZendHashTable::with_capacity(8);
    out.insert("fence", row.fence)?;
    out.insert("outcome", row.outcome)?;
    out.insert("final", row.is_final)?;
    out.insert("worker", row.worker)?;
    out.insert("claimedAt", seconds(row.claimed_at))?;
    out.insert("endedAt", row.ended_at.as_unix_seconds())?;
    out.insert("error", row.error)?;
    Ok(out)
}

/// What a recovery took back.
///
/// # Errors
/// When PHP refuses a value.
pub fn recovered(answer: Recovered) -> Result<Array> {
    counts(&[("claims", answer.claims), ("returned", answer.returned), ("dead", answer.dead), ("held", answer.held)])
}

/// What a pruning deleted.
///
/// # Errors
/// When PHP refuses a value.
pub fn pruned(answer: Pruned) -> Result<Array> {
    counts(&[("jobs", answer.jobs), ("claims", answer.claims), ("attempts", answer.attempts)])
}

/// The versions before and after a migration.
///
/// # Errors
/// When PHP refuses a value.
pub fn migrated(answer: Migrated) -> Result<Array> {
    let mut out = ZendHashTable::with_capacity(2);
    out.insert("from", answer.from)?;
    out.insert("to", answer.to)?;
    Ok(out)
}

fn counts(counts: &[(&str, u64)]) -> Result<Array> {
    let mut out = ZendHashTable::new();
    for (name, count) in counts {
        out.insert(*name, int(*count))?;
    }
    Ok(out)
}

/// `[string $sql, array $bindings]`.
///
/// # Errors
/// When PHP refuses a value.
pub fn planned(statement: PlannedStatement) -> Result<Array> {
    let mut bindings = ZendHashTable::new();
    for binding in statement.bindings {
        match binding {
            Binding::Null => bindings.push(Zval::null())?,
            Binding::Int(number) => bindings.push(number)?,
            Binding::Text(text) => bindings.push(text)?,
        }
    }
    let mut out = ZendHashTable::with_capacity(2);
    out.push(statement.sql)?;
    out.push(bindings)?;
    Ok(out)
}

/// What waits, runs and is dead, by queue.
///
/// # Errors
/// When PHP refuses a value.
pub fn stats(stats: Stats) -> Result<Array> {
    let mut queues = ZendHashTable::new();
    for queue in stats.queues {
        queues.insert(queue.queue.clone(), queue_stats(queue)?)?;
    }
    let mut out = ZendHashTable::with_capacity(4);
    out.insert("queues", queues)?;
    out.insert("openClaims", int(stats.open_claims))?;
    out.insert("expiredClaims", int(stats.expired_claims))?;
    Ok(out)
}

fn count(out: &mut Array, name: &str, count: Count, is_capped: &mut bool) -> Result<()> {
    *is_capped |= count.is_capped;
    out.insert(name, int(count.rows))
}

fn queue_stats(queue: QueueStats) -> Result<Array> {
    let mut out = ZendHashTable::with_capacity(8);
    let mut is_capped = false;
    count(&mut out, "due", queue.due, &mut is_capped)?;
    count(&mut out, "delayed", queue.delayed, &mut is_capped)?;
    out.insert("claimed", int(queue.claimed))?;
    count(&mut out, "dead", queue.dead, &mut is_capped)?;
    count(&mut out, "held", queue.held, &mut is_capped)?;
    out.insert("capped", is_capped)?;
    out.insert("oldestDue", queue.oldest_due.map(|span| span.as_secs_f64()))?;
    if let Some(states) = queue.exact {
        let mut exact = ZendHashTable::new();
        for (state, rows) in states {
            exact.insert(state, int(rows))?;
        }
        out.insert("exact", exact)?;
    }
    Ok(out)
}
