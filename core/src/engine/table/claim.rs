//! Taking rows of a mapped table: find, lock, hand to the claim by a guarded update, read back by the token.

use super::{MappedTable, execute_each, is_token_update, statements_of};
use crate::claim::{ClaimState, HeldRows};
use crate::dialect::rows::{Bound, Lane, Position, Rows};
use crate::driver::Session;
use crate::engine::claim::{Claimed, WALKED, record_claim};
use crate::engine::{Shared, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::claim::{self as plan, NewClaim};
use crate::plan::keys::Keys;
use crate::plan::table::Table;
use crate::plan::table::access::{Access, Search};
use crate::plan::table::rows::{self, Candidate};
use crate::row::{ClaimedRow, RowClaimRequest};
use crate::time::boottime;
use crate::value::{Statement, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// After a collision, claims spread over more candidates for so long, in microseconds.
const CROWDED: i64 = 2_000_000;

/// For how long a cursor may skip what lies before it: no row is later than this because of it.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Cursors kept for one table: one for each set of conditions.
const MOST_CURSORS: usize = 1_000;

/// Where the last full batch of a lane ended. Entries of claimed rows stay in the index until the server purges them;
/// starting behind them keeps claims fast.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    last: Position,
    /// Claims have taken so many rows of its instant.
    of_instant: usize,
    since: Instant,
}

impl Cursor {
    fn bound(&self) -> Bound<'_> {
        if self.of_instant > WALKED { Bound::After(&self.last) } else { Bound::From(&self.last) }
    }
}

/// Ids of claims that have no record; unique in this process.
static UNRECORDED: AtomicI64 = AtomicI64::new(-1);

impl MappedTable {
    /// Takes up to `limit` rows; `None` when nothing waits. The lease is renewed in the background from here on.
    ///
    /// # Errors
    /// `Invalid` for a wrong request; `Config`, `Schema`; `Unavailable`. Contention is retried and then answered with `None`.
    pub async fn claim(&self, request: &RowClaimRequest) -> Result<Option<Claimed<ClaimedRow>>> {
        let lease = request.check(self.default_lease()).map_err(|e| e.during("claim"))?;
        self.check_lease(lease).map_err(|e| e.during("claim"))?;
        self.sweep_when_due().await;
        let mut claim = NewClaim {
            token: Uuid::new_v4(),
            source: self.name(),
            worker: self.engine.shared.worker.clone(),
            lease,
            max_run: request.max_run,
            table_id: None,
            on_lost: self.mapped.mapping.on_lost,
        };
        // Whatever was last written under the token, for the look after a lost connection.
        let mut sent: Option<Vec<Value>> = None;
        let started = boottime();
        let taken = self
            .run("claim", async |shared, session, table, tries| {
                let rows = statements_of(shared, session, table).await?;
                let step = Step { table: self, request, rows };
                if tries.losses > 0
                    && let Some(keys) = &sent
                    && let Some(found) = step.find(shared, session, &claim, keys).await?
                {
                    return Ok(Some((found.0, found.1, Arc::clone(table))));
                }
                let taken = step.take(shared, session, &mut claim, &mut sent, tries.contention).await?;
                Ok(taken.map(|(id, rows)| (id, rows, Arc::clone(table))))
            })
            .await;
        let taken = match taken {
            Err(error) if error.kind() == ErrorKind::Contention => None,
            other => other?,
        };
        let Some((id, mut jobs, table)) = taken else { return Ok(None) };
        for (position, row) in jobs.iter_mut().enumerate() {
            row.position = position;
        }
        let keys = jobs.iter().map(|row| row.key.clone()).collect();
        let state = Arc::new(ClaimState::new(id, &claim, HeldRows::Rows { table, keys }, jobs.len(), started));
        if self.engine.shared.config.heartbeat {
            self.engine.shared.background()?.watch(&state);
        }
        Ok(Some(Claimed { state, jobs }))
    }

    /// Without a registry others go by the row alone: a lease longer than what they wait for would be no lease.
    fn check_lease(&self, lease: Duration) -> Result<()> {
        let mapping = &self.mapped.mapping;
        match mapping.recover_after {
            Some(after) if !mapping.registry && mapping.lease_until.is_none() && lease > after => {
                Err(Error::invalid("lease must not be longer than the mapping's recover_after without a registry"))
            }
            _ => Ok(()),
        }
    }
}

/// The rows a claim was given, and the id of its record.
type Taken = Option<(i64, Vec<ClaimedRow>)>;

/// One try of a claim.
struct Step<'a> {
    table: &'a MappedTable,
    request: &'a RowClaimRequest,
    rows: Rows<'a>,
}

impl Step<'_> {
    fn bound(&self) -> &Table {
        self.rows.table
    }

    async fn take(
        &self,
        shared: &Shared,
        session: &mut Session,
        claim: &mut NewClaim,
        sent: &mut Option<Vec<Value>>,
        collisions: u32,
    ) -> Result<Taken> {
        let filters = self.request.filters.borrowed();
        let search = Search::new(self.bound(), &filters, &self.request.order, self.request.partition)?;
        if self.bound().mapping.registry && claim.table_id.is_none() {
            let statements = shared.statements(session).await?;
            claim.table_id = Some(self.table.mapped.record(statements, session).await?);
        }
        session.begin().await?;
        let found = self.find_waiting(session, &search, collisions).await?;
        let (spent, found): (Vec<_>, Vec<_>) = found.into_iter().partition(|candidate| candidate.is_spent(self.bound()));
        self.exhaust(session, &spent).await?;
        if found.is_empty() {
            session.commit().await?;
            return Ok(None);
        }
        let in_order: Vec<Value> = found.into_iter().map(|candidate| candidate.key).collect();
        let keys = Keys::new(in_order.iter().cloned())?;
        *sent = Some(in_order.clone());
        let id = match claim.table_id {
            Some(_) => {
                let statements = shared.statements(session).await?;
                record_claim(statements, session, claim, keys.len(), keys.to_text()).await?
            }
            None => UNRECORDED.fetch_sub(1, Relaxed),
        };
        let mark = |chunk: &Keys| Some(self.rows.mark(&search, chunk, claim.token, &claim.worker, claim.lease));
        let matched = execute_each(session, &keys.chunks(), mark).await?;
        if matched == 0 || (matched != keys.len() as u64 && !is_token_update(&self.rows)) {
            self.table.mapped.crowded_at.store(boottime(), Relaxed);
            return Err(Error::new(ErrorKind::Contention, format!("{matched} of {} rows could be claimed", keys.len())));
        }
        // Read by the token alone: what carries it is ours, and nothing else is.
        let rows = self.read(session, &keys, &in_order, claim.token).await?;
        if rows.len() as u64 != matched {
            return Err(Error::new(ErrorKind::Contention, "a claimed row cannot be read back"));
        }
        session.commit().await?;
        Ok(Some((id, rows)))
    }

    /// After a lost connection: the claim may have been committed.
    async fn find(&self, shared: &Shared, session: &mut Session, claim: &NewClaim, in_order: &[Value]) -> Result<Taken> {
        let id = match claim.table_id {
            None => UNRECORDED.fetch_sub(1, Relaxed),
            Some(_) => {
                let statements = shared.statements(session).await?;
                let rows = session.query(&plan::claim_by_token(statements, claim.token)).await?;
                let Some(row) = rows.first() else { return Ok(None) };
                row.int(0)?
            }
        };
        let rows = self.read(session, &Keys::new(in_order.iter().cloned())?, in_order, claim.token).await?;
        Ok((!rows.is_empty()).then_some((id, rows)))
    }

    /// The rows of a token among `keys`, in the order of `in_order`.
    async fn read(&self, session: &mut Session, keys: &Keys, in_order: &[Value], token: Uuid) -> Result<Vec<ClaimedRow>> {
        let columns = rows::columns(self.bound());
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks() {
            let (_, read) = session.query_typed(&self.rows.claimed(&chunk, token)).await?;
            for row in read {
                found.push(rows::claimed(self.bound(), &columns, row)?);
            }
        }
        let order: HashMap<Vec<u8>, usize> = in_order.iter().enumerate().map(|(at, key)| (hashable(key), at)).collect();
        found.sort_by_key(|row| order.get(&hashable(&row.key)).copied());
        Ok(found)
    }

    async fn exhaust(&self, session: &mut Session, spent: &[Candidate]) -> Result<()> {
        for ending in ["no attempts left", "attempt counter full"] {
            let keys =
                Keys::new(spent.iter().filter(|candidate| candidate.ending() == ending).map(|candidate| candidate.key.clone()))?;
            execute_each(session, &keys.chunks(), |chunk| self.rows.exhaust(chunk, ending)).await?;
        }
        Ok(())
    }

    /// Waiting rows in order; locked, unless the shape is token_update.
    async fn find_waiting(&self, session: &mut Session, search: &Search, collisions: u32) -> Result<Vec<Candidate>> {
        let limit = self.request.limit;
        let Access::Index { name, by_free_token } = &search.access else {
            return self.find_candidates(session, search, collisions).await;
        };
        if is_token_update(&self.rows) {
            return self.find_candidates(session, search, collisions).await;
        }
        let mut found = Vec::new();
        for lane in self.rows.lanes() {
            if found.len() < limit {
                found.extend(self.pick_lane(session, search, (name, *by_free_token), *lane, limit - found.len()).await?);
            }
        }
        if found.is_empty() && *by_free_token {
            // Rows that were put back by hand and still carry an old token.
            return self.find_candidates(session, search, collisions).await;
        }
        Ok(found)
    }

    /// Locks the first waiting rows of a lane, from the cursor on; from the beginning when that comes up short.
    async fn pick_lane(
        &self,
        session: &mut Session,
        search: &Search,
        (index, by_free_token): (&str, bool),
        lane: Lane,
        wanted: usize,
    ) -> Result<Vec<Candidate>> {
        let pick = |bound: Option<Bound<'_>>| self.rows.pick(search, index, by_free_token, lane, bound, wanted);
        // An order of the caller's own is another one than the cursor's.
        if !self.request.order.is_empty() || self.bound().priority.is_some() {
            return Ok(picked(session, &pick(None)).await?.0);
        }
        let cursors = &self.table.mapped.cursors;
        let key = (lane, format!("{:?}", search.conditions));
        let cursor = lock(cursors).get(&key).cloned().filter(|cursor| cursor.since.elapsed() < REMEMBERED);
        let (mut found, last) = picked(session, &pick(cursor.as_ref().map(Cursor::bound))).await?;
        let is_full = found.len() == wanted;
        if let Some(cursor) = cursor.as_ref().filter(|_| !is_full) {
            // Own locks are not skipped, so rows of the boundary's instant can be seen twice.
            let (mut earlier, _) = picked(session, &pick(Some(Bound::Until(&cursor.last)))).await?;
            let known: HashSet<Vec<u8>> = found.iter().map(|candidate| hashable(&candidate.key)).collect();
            earlier.retain(|candidate| !known.contains(&hashable(&candidate.key)));
            earlier.append(&mut found);
            earlier.truncate(wanted);
            found = earlier;
        }
        let mut cursors = lock(cursors);
        match last.filter(|_| is_full) {
            Some((last, count)) if cursors.len() < MOST_CURSORS => {
                let since = cursor.as_ref().map_or_else(Instant::now, |cursor| cursor.since);
                let before = cursor.filter(|cursor| cursor.last.leading == last.leading).map_or(0, |cursor| cursor.of_instant);
                cursors.insert(key, Cursor { last, of_instant: before + count, since });
            }
            Some(_) => cursors.clear(),
            None => {
                cursors.remove(&key);
            }
        }
        Ok(found)
    }

    /// Candidates without locks, then locked by key. Where others are met at the same rows, a random stretch of a longer
    /// list, so that workers do not all run after the first rows.
    async fn find_candidates(&self, session: &mut Session, search: &Search, collisions: u32) -> Result<Vec<Candidate>> {
        let limit = self.request.limit;
        let mut doublings = collisions;
        if boottime() - self.table.mapped.crowded_at.load(Relaxed) < CROWDED {
            doublings = doublings.max(2);
        }
        loop {
            let spread = limit.saturating_mul(1 << doublings.min(5));
            let mut found = candidates(session, &self.rows.candidates(search, spread)).await?;
            let spare = found.len().saturating_sub(limit);
            let seen = found.len();
            if spare > 0 {
                found.drain(..fastrand::usize(0..=spare));
                found.truncate(limit);
            }
            if found.is_empty() || is_token_update(&self.rows) {
                return Ok(found);
            }
            let keys = Keys::new(found.iter().map(|candidate| candidate.key.clone()))?;
            let mut locked = HashMap::new();
            for chunk in keys.chunks() {
                for candidate in candidates(session, &self.rows.lock(search, &chunk)).await? {
                    locked.insert(hashable(&candidate.key), candidate);
                }
            }
            if locked.len() < found.len() {
                self.table.mapped.crowded_at.store(boottime(), Relaxed);
            }
            // As they stand under the lock, in the order of the first read.
            let found: Vec<Candidate> = found.iter().filter_map(|candidate| locked.remove(&hashable(&candidate.key))).collect();
            if !found.is_empty() || doublings >= 5 || seen < spread && doublings > 0 {
                return Ok(found);
            }
            doublings += 1;
        }
    }
}

/// What a `pick` found; where the last of it stands in the order, and how many share that instant.
async fn picked(session: &mut Session, statement: &Statement) -> Result<(Vec<Candidate>, Option<(Position, usize)>)> {
    let (_, rows) = session.query_typed(statement).await?;
    let (mut leading, mut count) = (None, 0);
    let mut found = Vec::with_capacity(rows.len());
    for mut row in rows {
        let next = Some(row.take(4));
        count = if next == leading { count + 1 } else { 1 };
        leading = next;
        found.push(rows::candidate(&mut row, 0)?);
    }
    let last = leading.zip(found.last()).map(|(leading, last)| (Position { leading, key: last.key.clone() }, count));
    Ok((found, last))
}

async fn candidates(session: &mut Session, statement: &Statement) -> Result<Vec<Candidate>> {
    let (_, found) = session.query_typed(statement).await?;
    found.into_iter().map(|mut row| rows::candidate(&mut row, 0)).collect()
}

/// A key by which rows of one table are told apart.
pub(super) fn hashable(key: &Value) -> Vec<u8> {
    match key {
        Value::Int(number) => number.to_be_bytes().to_vec(),
        Value::Bytes(bytes) => bytes.clone(),
        other => other.as_text().unwrap_or_default().as_bytes().to_vec(),
    }
}

impl MappedTable {
    /// Looks for expired claims and for stale rows of other code every now and then. Its faults are never the claim's.
    async fn sweep_when_due(&self) {
        const STALE_EVERY: i64 = 5_000_000;
        if self.mapped.mapping.registry {
            self.engine.sweep_when_due().await;
        }
        let now = boottime();
        let last = self.mapped.swept_at.load(Relaxed);
        if now - last >= STALE_EVERY
            && self.mapped.swept_at.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
            && let Err(error) = self.recover_stale().await
        {
            log::debug!("recovery beside a claim: {error}");
        }
    }
}
