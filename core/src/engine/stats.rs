//! Counts without scanning: capped counts over index ranges, open claims, and the attempts ledger.

use super::claim::priorities;
use super::{Engine, Shared};
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::Result;
use crate::plan::claim::next_queue;
use crate::plan::ids::Ids;
use crate::plan::plain;
use crate::value::{Row, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// No count goes further than this.
const CAP: i64 = 10_000;

/// A count that stops at 10,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Rows counted.
    pub rows: u64,
    /// True when there are more than were counted.
    pub is_capped: bool,
}

impl Count {
    fn add(&mut self, rows: i64) {
        self.is_capped |= rows > CAP;
        self.rows += u64::try_from(rows.min(CAP)).unwrap_or(0);
    }
}

/// One queue.
#[derive(Clone, Debug, Default)]
pub struct QueueStats {
    /// Its name.
    pub queue: String,
    /// Jobs that could be claimed now; capped in each priority.
    pub due: Count,
    /// Jobs that wait for their time; capped in each priority.
    pub delayed: Count,
    /// Jobs in open claims.
    pub claimed: u64,
    /// Jobs out of attempts, that wait for a person.
    pub dead: Count,
    /// Jobs that were begun when their lease ran out, and wait for a person.
    pub held: Count,
    /// For how long the first due job has been waiting.
    pub oldest_due: Option<Duration>,
    /// All jobs by state; only when asked for, since it scans the table.
    pub exact: Option<BTreeMap<String, u64>>,
}

/// All queues.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// In the order of their names.
    pub queues: Vec<QueueStats>,
    /// Open claims, 1,000 at most.
    pub open_claims: u64,
    /// Open claims whose lease has run out.
    pub expired_claims: u64,
}

impl Engine {
    /// What waits, runs and is dead, by queue. `exact` adds a count of every state, which scans the table.
    ///
    /// # Errors
    /// `Schema`, `Unavailable`.
    pub async fn stats(&self, exact: bool) -> Result<Stats> {
        self.run("stats", async |shared, statements, session, _| gather(shared, statements, session, exact).await).await
    }
}

impl Engine {
    /// Whether a job of any of the queues is due now. Reads one index entry a queue and priority.
    ///
    /// # Errors
    /// `Schema`, `Unavailable`.
    pub async fn has_due(&self, queues: &[String]) -> Result<bool> {
        self.run("stats", async |shared, statements, session, _| {
            for queue in queues {
                for priority in priorities(shared, statements, session, queue).await? {
                    let values = vec![queue.as_str().into(), Value::Int(priority), Value::Int(1)];
                    if one(&session.query(&plain(&statements.count_due, values)).await?)? > 0 {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        })
        .await
    }
}

async fn gather(shared: &Shared, statements: &Statements, session: &mut Session, exact: bool) -> Result<Stats> {
    let mut stats = Stats::default();
    let mut after = String::new();
    while let Some(row) = session.query(&next_queue(statements, &after)).await?.first() {
        after = row.text(0)?;
        stats.queues.push(queue_stats(shared, statements, session, &after).await?);
    }
    for row in session.query(&plain(&statements.open_claims, vec![Value::Int(1_000)])).await? {
        stats.open_claims += 1;
        stats.expired_claims += u64::from(row.int(4)? < 0);
        if !row.is_null(3) {
            // Of a mapped table: no queue's.
            continue;
        }
        let id = row.int(0)?;
        let mut claimed = 0;
        for chunk in Ids::from_text(&row.text(1)?)?.chunks() {
            let statement = chunk.statement(&statements.count_claimed, vec![], vec![id.into()]);
            claimed += one(&session.query(&statement).await?)?;
        }
        // A claim over several queues is counted with its first one.
        let source = row.text(2)?;
        let queue = source.split(',').next().unwrap_or_default().to_owned();
        let found = stats.queues.iter_mut().find(|q| q.queue == queue);
        if let Some(found) = found {
            found.claimed += u64::try_from(claimed).unwrap_or(0);
        }
    }
    if exact {
        for row in session.query(&plain(&statements.count_exact, vec![])).await? {
            let (queue, state) = (row.text(0)?, row.text(1)?);
            if let Some(found) = stats.queues.iter_mut().find(|q| q.queue == queue) {
                found.exact.get_or_insert_default().insert(state, u64::try_from(row.int(2)?).unwrap_or(0));
            }
        }
    }
    Ok(stats)
}

async fn queue_stats(shared: &Shared, statements: &Statements, session: &mut Session, queue: &str) -> Result<QueueStats> {
    let mut stats = QueueStats { queue: queue.to_owned(), ..QueueStats::default() };
    for priority in priorities(shared, statements, session, queue).await? {
        let lane = [Value::from(queue), Value::Int(priority)];
        let capped = [lane.as_slice(), &[Value::Int(CAP + 1)]].concat();
        stats.due.add(one(&session.query(&plain(&statements.count_due, capped.clone())).await?)?);
        stats.delayed.add(one(&session.query(&plain(&statements.count_delayed, capped)).await?)?);
        if let Some(row) = session.query(&plain(&statements.oldest_due, lane.to_vec())).await?.first() {
            let waited = Duration::from_micros(u64::try_from(row.int(0)?).unwrap_or(0));
            stats.oldest_due = stats.oldest_due.max(Some(waited));
        }
    }
    let values = vec![queue.into(), Value::Int(CAP + 1)];
    stats.dead.add(one(&session.query(&plain(&statements.count_dead, values.clone())).await?)?);
    stats.held.add(one(&session.query(&plain(&statements.count_held, values)).await?)?);
    Ok(stats)
}

fn one(rows: &[Row]) -> Result<i64> {
    rows.first().map_or(Ok(0), |row| row.int(0))
}
