//! The floor: the statements of a claim and its finish, sent by hand over the same driver. No retries, no lanes, no
//! decoding beyond the ids and the position; what it cannot do is the price of nothing.
//!
//! The texts are those of the core's `dialect/mysql.rs`; `statements_per_batch` of the report shows whether both sides
//! still send the same number.

use crate::Result;
use crate::server::{options, runtime};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Params, Row, Value};
use rowclaim::NewJob;
use tokio::runtime::Runtime;

/// Claims closed by one statement, as the engine's background thread does.
const CLOSED_TOGETHER: usize = 50;
/// Rows of one INSERT, as the engine's.
pub const INSERTED_TOGETHER: usize = 500;

pub struct Floor {
    runtime: Runtime,
    session: Session,
}

struct Session {
    connection: Conn,
    jobs: String,
    claims: String,
    /// Where the last full batch ended.
    from: Value,
    closing: Vec<i64>,
    tokens: u128,
}

const BEGINNING: Value = Value::Date(1000, 1, 1, 0, 0, 0, 0);
const END: Value = Value::Date(9999, 12, 31, 23, 59, 59, 999_999);

impl Floor {
    /// Connects as the engine does and works on the tables of a prefix.
    pub fn connect(dsn: &str, prefix: &str) -> Result<Self> {
        let runtime = runtime()?;
        let setup = vec![
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            "SET NAMES utf8mb4, time_zone = '+00:00', autocommit = 1, \
             sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'"
                .to_owned(),
        ];
        let options = OptsBuilder::from_opts(options(dsn)?).stmt_cache_size(256).setup(setup);
        let connection = runtime.block_on(Conn::new(options))?;
        let session = Session {
            connection,
            jobs: format!("{prefix}jobs"),
            claims: format!("{prefix}claims"),
            from: BEGINNING,
            closing: Vec::new(),
            tokens: u128::from(std::process::id()) << 64,
        };
        Ok(Floor { runtime, session })
    }

    /// Claims and completes batches until nothing waits; how many jobs.
    pub fn work_off(&mut self, batch: usize) -> Result<usize> {
        let session = &mut self.session;
        self.runtime.block_on(async {
            let mut jobs = 0;
            loop {
                let done = session.batch(batch).await?;
                jobs += done;
                if session.closing.len() >= CLOSED_TOGETHER || (done == 0 && !session.closing.is_empty()) {
                    session.close().await?;
                }
                if done == 0 {
                    return Ok(jobs);
                }
            }
        })
    }

    /// Inserts jobs without looking for their keys first.
    pub fn create(&mut self, jobs: &[NewJob]) -> Result<()> {
        let session = &mut self.session;
        self.runtime.block_on(async {
            for part in jobs.chunks(INSERTED_TOGETHER) {
                session.insert(part).await?;
            }
            Ok(())
        })
    }
}

impl Session {
    async fn batch(&mut self, batch: usize) -> Result<usize> {
        self.connection.query_drop("START TRANSACTION").await?;
        let mut rows = self.pick(batch).await?;
        if rows.is_empty() && self.from != BEGINNING {
            self.from = BEGINNING;
            rows = self.pick(batch).await?;
        }
        let Some(last) = rows.last() else {
            self.connection.query_drop("COMMIT").await?;
            return Ok(0);
        };
        self.from = if rows.len() == batch { last.as_ref(1).cloned().unwrap_or(BEGINNING) } else { BEGINNING };
        let mut ids: Vec<i64> = rows.iter().filter_map(|row| row.get(0)).collect();
        ids.sort_unstable();
        let claim = self.insert_claim(&ids).await?;
        let (condition, places) = runs(&ids);
        let mark = format!(
            "UPDATE {} SET state = 'claimed', ready_at = NULL, claim_id = ?, attempts = attempts + 1, \
             fence = fence + 1, unique_key = IF(key_life = 'until_claimed', NULL, unique_key) \
             WHERE {condition} AND state = 'ready' AND ready_at <= UTC_TIMESTAMP(6)",
            self.jobs
        );
        let values = std::iter::once(Value::Int(claim)).chain(places.iter().cloned()).collect();
        self.update(mark, values, ids.len()).await?;
        self.connection.query_drop("COMMIT").await?;
        let complete = format!(
            "UPDATE {} SET state = 'done', finished_at = UTC_TIMESTAMP(6), \
             unique_key = IF(key_life = 'active', NULL, unique_key) \
             WHERE {condition} AND claim_id = ? AND state = 'claimed'",
            self.jobs
        );
        let values = places.into_iter().chain(std::iter::once(Value::Int(claim))).collect();
        self.update(complete, values, ids.len()).await?;
        self.closing.push(claim);
        Ok(ids.len())
    }

    async fn pick(&mut self, batch: usize) -> Result<Vec<Row>> {
        let pick = format!(
            "SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at \
             FROM {} FORCE INDEX (pick) \
             WHERE queue = ? AND priority = ? AND ready_at BETWEEN ? AND LEAST(?, UTC_TIMESTAMP(6)) \
             ORDER BY ready_at, id LIMIT ? FOR UPDATE SKIP LOCKED",
            self.jobs
        );
        Ok(self.connection.exec(pick, ("q", 0, self.from.clone(), END, batch)).await?)
    }

    async fn insert_claim(&mut self, ids: &[i64]) -> Result<i64> {
        let insert = format!(
            "INSERT INTO {} (token, source, worker, claimed_at, lease_for, lease_until, max_until, job_count, job_ids) \
             VALUES (?, ?, ?, UTC_TIMESTAMP(6), ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, \
             UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, ?)",
            self.claims
        );
        self.tokens += 1;
        let token = self.tokens.to_be_bytes().to_vec();
        let lease = 60_000_000i64;
        let runs = ids.chunk_by(|one, next| one + 1 == *next);
        let runs: Vec<String> = runs.filter_map(|run| Some(format!("{}-{}", run.first()?, run.last()?))).collect();
        let values = (token, "q", "floor:1", lease, lease, Value::NULL, ids.len(), runs.join(","));
        self.connection.exec_drop(insert, values).await?;
        Ok(i64::try_from(self.connection.last_insert_id().unwrap_or(0))?)
    }

    async fn update(&mut self, sql: String, values: Vec<Value>, expected: usize) -> Result<()> {
        self.connection.exec_drop(sql, Params::Positional(values)).await?;
        let matched = self.connection.affected_rows();
        if matched != expected as u64 {
            return Err(format!("the floor matched {matched} rows instead of {expected}").into());
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        let mut closing = std::mem::take(&mut self.closing);
        closing.sort_unstable();
        let (condition, places) = runs(&closing);
        let close = format!(
            "UPDATE {} SET state = 'closed', closed_at = UTC_TIMESTAMP(6) WHERE {condition} AND state = 'open'",
            self.claims
        );
        self.update(close, places, closing.len()).await
    }

    async fn insert(&mut self, jobs: &[NewJob]) -> Result<()> {
        let row = "(?,?,?,?,UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,?,?,\
                   COALESCE(?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND),?,?,UTC_TIMESTAMP(6))";
        let insert = format!(
            "INSERT INTO {} (queue, job_key, unique_key, key_life, unique_until, priority, payload, ready_at, \
             max_attempts, create_token, created_at) VALUES {}",
            self.jobs,
            vec![row; jobs.len()].join(",")
        );
        self.tokens += 1;
        let token = Value::from(self.tokens.to_be_bytes().as_slice());
        let mut values: Vec<Value> = Vec::with_capacity(jobs.len() * 11);
        for job in jobs {
            let key = Value::from(job.key.as_deref());
            let (queue, payload) = (job.queue.as_str().into(), job.payload.as_str().into());
            let (none, zero) = (Value::NULL, Value::Int(0));
            let token = token.clone();
            values.extend([queue, key.clone(), key, "forever".into(), none.clone(), zero.clone(), payload, none, zero]);
            values.extend([Value::Int(20), token]);
        }
        self.connection.exec_drop(insert, Params::Positional(values)).await?;
        Ok(())
    }
}

/// A condition over sorted ids as the engine writes it: runs of three and more as ranges, the number of places a power of two.
fn runs(ids: &[i64]) -> (String, Vec<Value>) {
    let mut long: Vec<(i64, i64)> = Vec::new();
    let mut single: Vec<i64> = Vec::new();
    for run in ids.chunk_by(|one, next| one + 1 == *next) {
        match run {
            [first, _, .., last] => long.push((*first, *last)),
            _ => single.extend(run),
        }
    }
    if let Some(&last) = long.last() {
        long.resize(long.len().next_power_of_two(), last);
    }
    if let Some(&last) = single.last() {
        single.resize(single.len().next_power_of_two(), last);
    }
    let mut parts = vec!["id BETWEEN ? AND ?".to_owned(); long.len()];
    if !single.is_empty() {
        parts.push(format!("id IN ({})", vec!["?"; single.len()].join(",")));
    }
    let values = long.into_iter().flat_map(|(first, last)| [first, last]).chain(single).map(Value::Int).collect();
    (format!("({})", parts.join(" OR ")), values)
}
