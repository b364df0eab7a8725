//! Taking rows: lanes in turn, the locking read, the claim's row, the guarded update with its count, the commit.

use super::run::Tries;
use super::{Engine, Shared, lock};
use crate::claim::{ClaimRequest, ClaimState, HeldRows};
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::job::ClaimedJob;
use crate::plan::claim::{self as plan, Lane, NewClaim, Position, Window};
use crate::plan::ids::Ids;
use crate::time::boottime;
use crate::value::Row;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// For how long priorities are remembered and a cursor may skip what lies before it: no row is later than this because of it.
const REMEMBERED: Duration = Duration::from_secs(1);

/// What claims remember between calls.
#[derive(Default)]
pub(crate) struct Lanes {
    priorities: HashMap<String, (Vec<i64>, Instant)>,
    cursors: HashMap<(String, i64), Cursor>,
}

/// Where the last full batch of a lane ended. Claimed entries stay in the index until the server purges
/// them; starting behind them keeps claims fast while a long-running snapshot holds purge up.
#[derive(Clone, Copy)]
struct Cursor {
    last: Position,
    /// Claims have taken so many jobs of its instant.
    of_instant: usize,
    since: Instant,
}

/// Jobs of one instant that are walked over again rather than asking for those behind them, which costs more: as many as one
/// creation gives one instant.
pub(super) const WALKED: usize = crate::plan::create::ROWS;

impl Cursor {
    fn after(self) -> Position {
        if self.of_instant > WALKED { self.last } else { Position { id: 0, ..self.last } }
    }
}

/// The rows a claim was given.
pub struct Claimed<R = ClaimedJob> {
    pub(crate) state: Arc<ClaimState>,
    /// In the order in which they are handed out: jobs by priority, then since when they waited, then id.
    pub jobs: Vec<R>,
}

impl Engine {
    /// Takes up to `limit` jobs; `None` when nothing waits. The lease is renewed in the background from here on.
    ///
    /// # Errors
    /// `Invalid` for a wrong request; `Schema`; `Unavailable`. Contention is retried and then answered with `None`.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<Option<Claimed>> {
        request.check(self.shared.config.lease).map_err(|e| e.during("claim"))?;
        self.sweep_when_due().await;
        self.claim_as(request, &self.new_claim(request), false).await
    }

    pub(super) fn new_claim(&self, request: &ClaimRequest) -> NewClaim {
        NewClaim {
            token: Uuid::new_v4(),
            source: request.queues.join(","),
            worker: self.shared.worker.clone(),
            lease: request.lease.unwrap_or(self.shared.config.lease),
            max_run: request.max_run,
            table_id: None,
            on_lost: request.on_lost,
        }
    }

    /// Takes jobs under a token. With `is_sent`, something was sent under it before and its answer is unknown.
    pub(super) async fn claim_as(&self, request: &ClaimRequest, claim: &NewClaim, is_sent: bool) -> Result<Option<Claimed>> {
        let started = boottime();
        let taken = self
            .run("claim", async |shared, statements, session, tries| {
                if (is_sent || tries.losses > 0)
                    && let Some(found) = find_by_token(statements, session, claim).await?
                {
                    return Ok(Some(found));
                }
                take(shared, statements, session, request, claim, tries).await
            })
            .await;
        let taken = match taken {
            Err(error) if error.kind() == ErrorKind::Contention => None,
            other => other?,
        };
        let Some((id, jobs)) = taken else { return Ok(None) };
        let state = Arc::new(ClaimState::new(id, claim, HeldRows::Jobs, jobs.len(), started));
        if self.shared.config.heartbeat {
            self.shared.background()?.watch(&state);
        }
        Ok(Some(Claimed { state, jobs }))
    }

    /// Looks for expired claims about once a second. Its faults are counted by the log, never the claim's.
    pub(super) async fn sweep_when_due(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        let now = boottime();
        let last = self.shared.swept_at.load(Relaxed);
        let is_due = now - last >= 1_000_000;
        if is_due
            && self.shared.swept_at.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
            && let Err(error) = self.sweep(false).await
        {
            log::debug!("recovery beside a claim: {error}");
        }
    }
}

pub(super) type Taken = Option<(i64, Vec<ClaimedJob>)>;

/// After a lost connection: the claim may have been committed.
async fn find_by_token(statements: &Statements, session: &mut Session, claim: &NewClaim) -> Result<Taken> {
    let rows = session.query(&plan::claim_by_token(statements, claim.token)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let id = row.int(0)?;
    let ids = Ids::from_text(&row.text(1)?)?;
    let jobs = read_claimed(statements, session, id, &ids).await?;
    Ok(Some((id, jobs)))
}

async fn read_claimed(statements: &Statements, session: &mut Session, id: i64, ids: &Ids) -> Result<Vec<ClaimedJob>> {
    let mut jobs = Vec::with_capacity(ids.len());
    for chunk in ids.chunks() {
        let rows = session.query(&plan::claimed(statements, &chunk, id)).await?;
        for row in rows {
            jobs.push(plan::claimed_job(row)?);
        }
    }
    Ok(jobs)
}

pub(super) async fn take(
    shared: &Shared,
    statements: &Statements,
    session: &mut Session,
    request: &ClaimRequest,
    claim: &NewClaim,
    tries: Tries,
) -> Result<Taken> {
    let lanes = lanes(shared, statements, session, request).await?;
    let is_token_update = Shared::is_token_update(statements);
    session.begin().await?;
    let mut jobs: Vec<ClaimedJob> = Vec::new();
    for lane in &lanes {
        if jobs.len() >= request.limit {
            break;
        }
        let wanted = request.limit - jobs.len();
        if is_token_update {
            jobs.extend(elsewhere(statements, session, request, lane, wanted, tries.contention).await?);
        } else {
            jobs.extend(pick_lane(shared, statements, session, request, lane, wanted).await?);
        }
    }
    let (jobs, spent): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.attempts <= job.max_attempts);
    if !spent.is_empty() {
        let (unreadable, spent): (Vec<_>, Vec<_>) = spent.iter().partition(|job| job.max_attempts == plan::UNREADABLE);
        let ids = |jobs: &[&ClaimedJob]| jobs.iter().map(|job| job.id).collect::<Ids>();
        if !spent.is_empty() {
            session.execute(&plan::exhaust(statements, &ids(&spent))).await?;
        }
        if !unreadable.is_empty() {
            log::error!("{} jobs cannot be read and are dead now", unreadable.len());
            session.execute(&plan::bury(statements, &ids(&unreadable))).await?;
        }
    }
    if jobs.is_empty() {
        session.commit().await?;
        return Ok(None);
    }
    let ids: Ids = jobs.iter().map(|job| job.id).collect();
    let id = record_claim(statements, session, claim, ids.len(), ids.to_text()).await?;
    let mut matched = 0;
    for chunk in ids.chunks() {
        matched += session.execute(&plan::mark(statements, &chunk, id)).await?.matched;
    }
    if is_token_update {
        if matched == 0 {
            return Err(Error::new(ErrorKind::Contention, "all candidates went to other workers"));
        }
        // Others took some between the read and the update: what carries the claim is ours.
        let order: HashMap<i64, usize> = jobs.iter().enumerate().map(|(at, job)| (job.id, at)).collect();
        let mut jobs = read_claimed(statements, session, id, &ids).await?;
        jobs.sort_by_key(|job| order.get(&job.id).copied());
        session.commit().await?;
        return Ok(Some((id, jobs)));
    }
    if matched != jobs.len() as u64 {
        return Err(Error::new(ErrorKind::Contention, format!("{matched} of {} locked rows could be claimed", jobs.len())));
    }
    session.commit().await?;
    Ok(Some((id, jobs)))
}

/// Writes the claim's row, inside the caller's transaction; its id.
pub(super) async fn record_claim(
    statements: &Statements,
    session: &mut Session,
    claim: &NewClaim,
    count: usize,
    keys: String,
) -> Result<i64> {
    let inserted =
        session.execute(&plan::insert_claim(statements, claim, count, keys)).await.map_err(|error| match error.kind() {
            // The COMMIT of a lost connection arrived after we had looked for it: look again.
            ErrorKind::Duplicate => Error::new(ErrorKind::Contention, "the claim was committed meanwhile"),
            _ => error,
        });
    Ok(inserted?.last_id)
}

/// The lanes to ask, in order: priority, then the order of the queues in the request.
async fn lanes(shared: &Shared, statements: &Statements, session: &mut Session, request: &ClaimRequest) -> Result<Vec<Lane>> {
    let mut lanes = Vec::new();
    for (order, queue) in request.queues.iter().enumerate() {
        let priorities = match request.priority {
            Some(priority) => vec![i64::from(priority)],
            None => priorities(shared, statements, session, queue).await?,
        };
        lanes.extend(priorities.into_iter().map(|priority| Lane { priority, order, queue: queue.clone() }));
    }
    lanes.sort();
    Ok(lanes)
}

/// The priorities in use in a queue, by a loose index scan, remembered for a second.
pub(super) async fn priorities(shared: &Shared, statements: &Statements, session: &mut Session, queue: &str) -> Result<Vec<i64>> {
    if let Some((known, since)) = lock(&shared.lanes).priorities.get(queue)
        && since.elapsed() < REMEMBERED
    {
        return Ok(known.clone());
    }
    let since = Instant::now();
    let mut found = Vec::new();
    let mut after = i64::from(i16::MIN) - 1;
    while let Some(row) = session.query(&plan::next_priority(statements, queue, after)).await?.first() {
        after = row.int(0)?;
        found.push(after);
    }
    // An empty queue is looked at anew each time: its first job must not wait for the second to pass.
    if !found.is_empty() {
        lock(&shared.lanes).priorities.insert(queue.to_owned(), (found.clone(), since));
    }
    Ok(found)
}

/// Locks the first waiting jobs of a lane, from the cursor on; from the beginning when that comes up short.
async fn pick_lane(
    shared: &Shared,
    statements: &Statements,
    session: &mut Session,
    request: &ClaimRequest,
    lane: &Lane,
    wanted: usize,
) -> Result<Vec<ClaimedJob>> {
    if request.partition.is_some() {
        let found = candidates(statements, session, request, lane, wanted).await?;
        let ids: Ids = found.iter().map(|job| job.id).collect();
        if ids.is_empty() {
            return Ok(found);
        }
        let rows = session.query(&plan::lock_ids(statements, &ids)).await?;
        return in_order(rows, lane);
    }
    let key = (lane.queue.clone(), lane.priority);
    let cursor = lock(&shared.lanes).cursors.get(&key).copied().filter(|cursor| cursor.since.elapsed() < REMEMBERED);
    let after = cursor.map_or(Window::ALL.after, Cursor::after);
    let rows = session.query(&plan::pick(statements, lane, Window { after, ..Window::ALL }, wanted)).await?;
    let mut jobs = in_order(rows, lane)?;
    let is_full = jobs.len() == wanted;
    if !is_full && cursor.is_some() {
        // Own locks are not skipped, so the rows of the boundary's instant are seen twice.
        let twice = jobs.iter().take_while(|job| job.ready_at == after.ready_at).count();
        let before = Window { until: after.ready_at, ..Window::ALL };
        let rows = session.query(&plan::pick(statements, lane, before, wanted - jobs.len() + twice)).await?;
        let mut earlier = in_order(rows, lane)?;
        earlier.retain(|job| jobs.iter().all(|known| known.id != job.id));
        earlier.truncate(wanted - jobs.len());
        earlier.append(&mut jobs);
        jobs = earlier;
    }
    let mut lanes = lock(&shared.lanes);
    match jobs.last() {
        Some(last) if is_full => {
            let since = cursor.map_or_else(Instant::now, |cursor| cursor.since);
            let before = cursor.filter(|cursor| cursor.last.ready_at == last.ready_at).map_or(0, |cursor| cursor.of_instant);
            let of_instant = before + jobs.iter().rev().take_while(|job| job.ready_at == last.ready_at).count();
            let last = Position { ready_at: last.ready_at, id: last.id };
            lanes.cursors.insert(key, Cursor { last, of_instant, since });
        }
        _ => {
            lanes.cursors.remove(&key);
        }
    }
    Ok(jobs)
}

/// Ids of waiting jobs without a lock: for a partition, and where locked rows cannot be stepped over.
async fn candidates(
    statements: &Statements,
    session: &mut Session,
    request: &ClaimRequest,
    lane: &Lane,
    wanted: usize,
) -> Result<Vec<ClaimedJob>> {
    let rows = session.query(&plan::pick_ids(statements, lane, request.partition, wanted)).await?;
    rows.iter().map(|row| plan::stub(row, lane)).collect()
}

/// Candidates in order; after a collision a random stretch of a longer list, so that workers do not queue up behind each other.
async fn elsewhere(
    statements: &Statements,
    session: &mut Session,
    request: &ClaimRequest,
    lane: &Lane,
    wanted: usize,
    collisions: u32,
) -> Result<Vec<ClaimedJob>> {
    let spread = wanted.saturating_mul(1 << collisions.min(4));
    let mut found = candidates(statements, session, request, lane, spread).await?;
    let spare = found.len().saturating_sub(wanted);
    if spare > 0 {
        found.drain(..fastrand::usize(0..=spare));
        found.truncate(wanted);
    }
    Ok(found)
}

fn in_order(rows: Vec<Row>, lane: &Lane) -> Result<Vec<ClaimedJob>> {
    let mut jobs: Vec<ClaimedJob> = rows.into_iter().map(|row| plan::candidate(row, lane)).collect::<Result<_>>()?;
    jobs.sort_by_key(|job| (job.ready_at, job.id));
    Ok(jobs)
}
