//! Rows of a mapped table coming back: from our own claims that expired, and from other code that left them held.

use super::finish::backoff;
use super::{MappedTable, execute_each, statements_of};
use crate::claim::OnLost;
use crate::dialect::Statements;
use crate::dialect::rows::{Back, Gone, Rows};
use crate::driver::Session;
use crate::engine::Shared;
use crate::engine::finish::record;
use crate::engine::recover::{Expired, Fate, Recovered};
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
    let begun = claim.begun(statements, session, |row| row.text(1)).await?;
    let fates: Vec<Fate> = held.iter().map(|row| fate(table, row, begun.as_ref())).collect();
    let mut recovered = Recovered { claims: u64::from(!held.is_empty()), ..Recovered::default() };
    for (fate, keys) in groups(&held, &fates) {
        let back = |delay, uncount| Back { delay, error: Some(fate.error()), uncount };
        let write = |chunk: &Keys| match fate {
            Fate::Dead => rows.fail(chunk, claim.token, fate.error()),
            Fate::Held => rows.hold(chunk, claim.token, fate.error()),
            Fate::Unbegun => Some(rows.put_back(chunk, claim.token, &back(None, true))),
            Fate::Back(attempts) => Some(rows.put_back(chunk, claim.token, &back(lost_delay(table, &backoff, attempts), false))),
        };
        *counter(&mut recovered, fate) += execute_each(session, &Keys::new(keys)?.chunks(), write).await?;
    }
    if recovered.returned + recovered.dead + recovered.held != held.len() as u64 {
        return Err(Error::new(ErrorKind::Contention, "rows of an expired claim changed under their locks"));
    }
    let lost = held.iter().zip(fates).map(|(row, fate)| (row, fate, fate.error()));
    record_lost(statements, session, lost, claim.id, &claim.worker).await?;
    Ok(recovered)
}

/// How long a lost row waits. One that recurs keeps its time: that is the slot it was run for.
fn lost_delay(table: &Table, backoff: &Backoff, attempts: i64) -> Option<Duration> {
    (!table.recurs()).then(|| backoff.delay(attempts))
}

/// `begun` is `None` for a claim that does not hold.
fn fate(table: &Table, row: &Candidate, begun: Option<&HashSet<String>>) -> Fate {
    match begun {
        // The ledger keeps 191 characters of a key: of two that differ behind them, both count as begun.
        Some(begun) if begun.contains(&shown(&row.key)) => Fate::Held,
        Some(_) => Fate::Unbegun,
        None if row.is_spent(table) => Fate::Dead,
        None => Fate::Back(row.attempts.max(1)),
    }
}

/// Keys by what becomes of their rows.
fn groups(rows: &[Candidate], fates: &[Fate]) -> BTreeMap<Fate, Vec<Value>> {
    let mut groups: BTreeMap<Fate, Vec<Value>> = BTreeMap::new();
    for (row, fate) in rows.iter().zip(fates) {
        groups.entry(*fate).or_default().push(row.key.clone());
    }
    groups
}

fn counter(recovered: &mut Recovered, fate: Fate) -> &mut u64 {
    match fate {
        Fate::Back(_) | Fate::Unbegun => &mut recovered.returned,
        Fate::Dead => &mut recovered.dead,
        Fate::Held => &mut recovered.held,
    }
}

async fn record_lost<'a>(
    statements: &Statements,
    session: &mut Session,
    lost: impl Iterator<Item = (&'a Candidate, Fate, &'a str)>,
    claim_id: i64,
    worker: &str,
) -> Result<()> {
    let ended: Vec<Ended<'_>> = lost
        .map(|(row, fate, error)| Ended {
            job_id: 0,
            row_key: Some(shown(&row.key)),
            fence: row.fence,
            outcome: "lost",
            left: fate.left(),
            worker,
            claim_id,
            error: Some(error),
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
    // Where a send must not be made twice, nobody knows whether other code had begun it.
    let is_held = table.mapping.on_lost == OnLost::Hold;
    let fates: Vec<Fate> = candidates.iter().map(|row| if is_held { Fate::Held } else { fate(table, row, None) }).collect();
    let error = if is_held { "lease expired, unknown whether it was started" } else { "lease expired" };
    let mut recovered = Recovered::default();
    session.begin().await?;
    for (fate, keys) in groups(&candidates, &fates) {
        let gone = match fate {
            Fate::Back(attempts) => Gone::Back(lost_delay(table, &backoff, attempts)),
            Fate::Unbegun => Gone::Back(None),
            Fate::Dead => Gone::Failed,
            Fate::Held => Gone::Held,
        };
        let write = |chunk: &Keys| rows.take_stale(chunk, &first.token, gone, error);
        *counter(&mut recovered, fate) += execute_each(session, &Keys::new(keys)?.chunks(), write).await?;
    }
    let taken = recovered.returned + recovered.dead + recovered.held;
    recovered.claims = u64::from(taken > 0);
    if table.mapping.registry && taken == candidates.len() as u64 {
        let statements = shared.statements(session).await?;
        let holder = if first.holder.is_empty() { "other code" } else { &first.holder };
        let lost = candidates.iter().zip(fates).map(|(row, fate)| (row, fate, error));
        record_lost(statements, session, lost, 0, holder).await?;
    }
    session.commit().await?;
    if recovered.claims > 0 {
        let Recovered { returned, dead, held, .. } = recovered;
        log::warn!("{}: rows held for too long: {returned} returned, {dead} failed, {held} held", table.name.shown());
    }
    Ok(recovered)
}
