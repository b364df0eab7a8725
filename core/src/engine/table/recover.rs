//! Rows of a mapped table coming back: from our own claims that expired, and from other code that left them held.

use super::finish::backoff;
use super::{MappedTable, execute_each, statements_of};
use crate::dialect::Statements;
use crate::dialect::rows::{Back, Rows};
use crate::driver::Session;
use crate::engine::Shared;
use crate::engine::finish::record;
use crate::engine::recover::{Expired, Recovered};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::finish::Ended;
use crate::plan::keys::{Keys, shown};
use crate::plan::table::Table;
use crate::plan::table::rows::{self, Candidate};
use crate::plan::{plain, spread};
use crate::time::Backoff;
use crate::value::Value;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use uuid::Uuid;

/// Stale rows looked at in one pass.
const ROWS_A_PASS: i64 = 500;

/// The rows of an expired claim, inside of the transaction that marked it.
pub(in crate::engine) async fn put_back(
    shared: &Shared,
    statements: &Statements,
    session: &mut Session,
    claim: &Expired,
    table: &Table,
) -> Result<Recovered> {
    let rows = statements_of(shared, session, table).await?;
    let backoff = backoff(shared, table);
    let mut held = Vec::new();
    for chunk in claim.keys.chunks() {
        let (_, found) = session.query_typed(&rows.still_held(&chunk, claim.token)).await?;
        for mut row in found {
            held.push(rows::candidate(&mut row, 0)?);
        }
    }
    let mut recovered = Recovered::default();
    let mut matched = 0;
    for (attempts, keys) in groups(table, &held) {
        let chunks = Keys::new(keys)?.chunks();
        let count = match attempts {
            None => execute_each(session, &chunks, |chunk| rows.fail(chunk, claim.token, "lease expired")).await?,
            Some(attempts) => {
                let back = Back { delay: lost_delay(table, &backoff, attempts), error: Some("lease expired"), uncount: false };
                execute_each(session, &chunks, |chunk| Some(rows.put_back(chunk, claim.token, &back))).await?
            }
        };
        *(if attempts.is_none() { &mut recovered.dead } else { &mut recovered.returned }) += count;
        matched += count;
    }
    if matched != held.len() as u64 {
        return Err(Error::new(ErrorKind::Contention, "rows of an expired claim changed under their locks"));
    }
    recovered.claims = u64::from(!held.is_empty());
    record_lost(statements, session, table, &held, claim.id, &claim.worker).await?;
    Ok(recovered)
}

/// How long a lost row waits. One that recurs keeps its time: that is the slot it was run for.
fn lost_delay(table: &Table, backoff: &Backoff, attempts: i64) -> Option<Duration> {
    (!table.recurs()).then(|| backoff.delay(attempts))
}

/// Rows by what becomes of them: `None` ends them as failed, otherwise the attempts that set their back-off.
fn groups(table: &Table, held: &[Candidate]) -> BTreeMap<Option<i64>, Vec<Value>> {
    let mut groups: BTreeMap<Option<i64>, Vec<Value>> = BTreeMap::new();
    for row in held {
        groups.entry((!row.is_spent(table)).then_some(row.attempts.max(1))).or_default().push(row.key.clone());
    }
    groups
}

async fn record_lost(
    statements: &Statements,
    session: &mut Session,
    table: &Table,
    held: &[Candidate],
    claim_id: i64,
    worker: &str,
) -> Result<()> {
    let ended: Vec<Ended<'_>> = held
        .iter()
        .map(|row| Ended {
            job_id: 0,
            row_key: Some(shown(&row.key)),
            fence: row.fence,
            outcome: "lost",
            is_final: row.is_spent(table),
            worker,
            claim_id,
            error: Some("lease expired"),
        })
        .collect();
    record(statements, session, &ended).await
}

/// A row that other code, or a claim without a record, has left held.
struct Stale {
    row: Candidate,
    token: Value,
    holder: String,
}

impl MappedTable {
    /// Takes rows back: of every claim of this engine's database whose lease has run out, and of this table those that
    /// other code has held for longer than the mapping's `recover_after`, or past the row's own lease.
    ///
    /// # Errors
    /// `Config`, `Schema`, `Unavailable`. Contention with other sweepers is left to them.
    pub async fn recover(&self) -> Result<Recovered> {
        let mut total = if self.mapped.mapping.registry { self.engine.recover().await? } else { Recovered::default() };
        total += self.recover_stale().await?;
        Ok(total)
    }

    /// Rows that are held for too long by nobody we know.
    pub(super) async fn recover_stale(&self) -> Result<Recovered> {
        let mut total = Recovered::default();
        let mut seen = HashSet::new();
        loop {
            let (found, taken) =
                self.run("recover", async |shared, session, table, _| sweep(shared, session, table, &mut seen).await).await?;
            total += taken;
            if found < ROWS_A_PASS as usize {
                return Ok(total);
            }
        }
    }
}

/// One pass: how many stale rows were found that no pass had seen before, and what became of them.
async fn sweep(shared: &Shared, session: &mut Session, table: &Table, seen: &mut HashSet<Vec<u8>>) -> Result<(usize, Recovered)> {
    let rows = statements_of(shared, session, table).await?;
    let Some(statement) = rows.stale_rows(ROWS_A_PASS) else { return Ok((0, Recovered::default())) };
    let mut stale = Vec::new();
    for mut row in session.query_typed(&statement).await?.1 {
        let holder = row.opt(5, crate::value::Row::text)?.unwrap_or_default();
        let token = row.take(4);
        stale.push(Stale { row: rows::candidate(&mut row, 0)?, token, holder });
    }
    let fresh = stale.iter().filter(|stale| seen.insert(super::claim::hashable(&stale.row.key))).count();
    if table.mapping.registry {
        let ours = open_tokens(shared, session, table, &stale).await?;
        // A claim of ours is taken back by its record and its lease, not by the look of its rows.
        stale.retain(|stale| table.token_form.read(&stale.token).is_none_or(|token| !ours.contains(&token)));
    }
    let mut by_token: BTreeMap<Vec<u8>, Vec<Stale>> = BTreeMap::new();
    for stale in stale {
        let token = if stale.token == Value::Null { Vec::new() } else { super::claim::hashable(&stale.token) };
        by_token.entry(token).or_default().push(stale);
    }
    let mut total = Recovered::default();
    for group in by_token.into_values() {
        total += take(shared, session, &rows, &group).await?;
    }
    Ok((fresh, total))
}

/// The tokens among those of stale rows that name open claims.
async fn open_tokens(shared: &Shared, session: &mut Session, table: &Table, stale: &[Stale]) -> Result<HashSet<Uuid>> {
    let tokens: HashSet<Uuid> = stale.iter().filter_map(|stale| table.token_form.read(&stale.token)).collect();
    if tokens.is_empty() {
        return Ok(tokens);
    }
    let statements = shared.statements(session).await?;
    let sql = spread(&statements.open_tokens, "{list}", "?", tokens.len());
    let values = tokens.iter().map(|token| token.as_bytes().as_slice().into()).collect();
    let rows = session.query(&plain(&sql, values)).await?;
    rows.iter()
        .map(|row| Uuid::from_slice(&row.bytes(0)?).map_err(|_| Error::decode("a claim's token is not 16 bytes")))
        .collect()
}

/// Takes the stale rows of one token, each only while it still carries it and is still old.
async fn take(shared: &Shared, session: &mut Session, rows: &Rows<'_>, stale: &[Stale]) -> Result<Recovered> {
    let Some(first) = stale.first() else { return Ok(Recovered::default()) };
    let table = rows.table;
    let backoff = backoff(shared, table);
    let candidates: Vec<Candidate> = stale.iter().map(|stale| stale.row.clone()).collect();
    let mut recovered = Recovered::default();
    session.begin().await?;
    for (attempts, keys) in groups(table, &candidates) {
        let delay = lost_delay(table, &backoff, attempts.unwrap_or(1));
        let chunks = Keys::new(keys)?.chunks();
        let count =
            execute_each(session, &chunks, |chunk| rows.take_stale(chunk, &first.token, attempts.is_none(), delay)).await?;
        *(if attempts.is_none() { &mut recovered.dead } else { &mut recovered.returned }) += count;
    }
    recovered.claims = u64::from(recovered.returned + recovered.dead > 0);
    if table.mapping.registry && recovered.returned + recovered.dead == candidates.len() as u64 {
        let statements = shared.statements(session).await?;
        let holder = if first.holder.is_empty() { "other code" } else { &first.holder };
        record_lost(statements, session, table, &candidates, 0, holder).await?;
    }
    session.commit().await?;
    if recovered.claims > 0 {
        log::warn!("{}: rows held for too long: {} returned, {} failed", table.name.shown(), recovered.returned, recovered.dead);
    }
    Ok(recovered)
}
