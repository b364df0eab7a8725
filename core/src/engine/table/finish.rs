//! Rows of a mapped table leaving a claim. Every write carries key, token and status, and its count is looked at.

use super::claim::hashable;
use super::{execute_each, statements_of};
use crate::claim::{ClaimState, Finish, Outcome};
use crate::dialect::rows::{Back, Rows};
use crate::driver::Session;
use crate::engine::Shared;
use crate::engine::finish::record;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::finish::{Ended, Held, Left, Stands, same_outcome, stored_error};
use crate::plan::keys::{Keys, shown};
use crate::plan::plain;
use crate::plan::table::Table;
use crate::plan::table::layout::Column;
use crate::plan::table::rows;
use crate::time::Backoff;
use crate::value::Value;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// One outcome for some rows of one claim. Answers in the order of `held`.
pub(in crate::engine) async fn write(
    shared: &Shared,
    session: &mut Session,
    claim: &ClaimState,
    table: &Table,
    keys: &[Value],
    held: &[Held],
    outcome: &Outcome,
) -> Result<Vec<Finish>> {
    let step = Step { shared, claim, keys, rows: statements_of(shared, session, table).await? };
    let mut answers: HashMap<i64, Finish> = HashMap::new();
    let mut rest = held.to_vec();
    // Rows that are not ours any more are found out when a write matches fewer; then the others are written alone.
    for _ in 0..5 {
        if rest.is_empty() || step.write(session, &rest, outcome).await? {
            return Ok(held.iter().map(|row| answers.get(&row.id).copied().unwrap_or(Finish::Accepted)).collect());
        }
        let stand = step.explain(session, &rest, outcome).await?;
        rest.retain(|row| !stand.contains_key(&row.id));
        answers.extend(stand);
    }
    Err(Error::new(ErrorKind::Contention, "rows change while they are being finished"))
}

/// The wait after a failed attempt of a row.
pub(super) fn backoff(shared: &Shared, table: &Table) -> Backoff {
    let usual = shared.config.backoff;
    let base = table.mapping.backoff_base.unwrap_or(usual.base);
    Backoff { base, cap: table.mapping.backoff_cap.unwrap_or(usual.cap).max(base), jitter: usual.jitter }
}

struct Step<'a> {
    shared: &'a Shared,
    claim: &'a ClaimState,
    keys: &'a [Value],
    rows: Rows<'a>,
}

impl Step<'_> {
    fn key(&self, row: &Held) -> Value {
        usize::try_from(row.id).ok().and_then(|position| self.keys.get(position)).cloned().unwrap_or(Value::Null)
    }

    fn keys(&self, rows: &[Held]) -> Result<Keys> {
        Keys::new(rows.iter().map(|row| self.key(row)))
    }

    /// True when every row matched; otherwise nothing is durable, except of completions, which stand as they matched.
    async fn write(&self, session: &mut Session, rows: &[Held], outcome: &Outcome) -> Result<bool> {
        match outcome {
            Outcome::Complete => self.complete(session, rows, &[], None).await,
            Outcome::CompleteWith { set, delay } => self.complete(session, rows, set, *delay).await,
            Outcome::Release { delay } => self.release(session, rows, *delay).await,
            Outcome::Fail { error, .. } | Outcome::Reject { error } => self.fail(session, rows, error, outcome).await,
        }
    }

    async fn complete(
        &self,
        session: &mut Session,
        held: &[Held],
        set: &[(String, Value)],
        delay: Option<Duration>,
    ) -> Result<bool> {
        let table = self.rows.table;
        let set: Vec<(Column, Value)> =
            set.iter().map(|(name, value)| Ok((table.column(name)?.clone(), value.clone()))).collect::<Result<_>>()?;
        let keys = self.keys(held)?;
        let write = |chunk: &Keys| Some(self.rows.complete(chunk, self.claim.token, &set, delay));
        // A row that waits again has no token to be known by: the ledger knows it. Everywhere else the row itself does.
        if !(table.recurs() && table.mapping.registry) {
            return Ok(execute_each(session, &keys.chunks(), write).await? == keys.len() as u64);
        }
        session.begin().await?;
        if execute_each(session, &keys.chunks(), write).await? != keys.len() as u64 {
            session.rollback().await?;
            return Ok(false);
        }
        self.record(session, held, "completed", |_| false, None).await?;
        session.commit().await?;
        Ok(true)
    }

    async fn release(&self, session: &mut Session, held: &[Held], delay: Duration) -> Result<bool> {
        let keys = self.keys(held)?;
        // Without a delay the row keeps its time, and so its place in the order.
        let back = Back { delay: Some(delay).filter(|delay| !delay.is_zero()), error: None, uncount: true };
        session.begin().await?;
        if execute_each(session, &keys.chunks(), |chunk| Some(self.rows.put_back(chunk, self.claim.token, &back))).await?
            != keys.len() as u64
        {
            session.rollback().await?;
            return Ok(false);
        }
        self.record(session, held, "released", |_| false, None).await?;
        session.commit().await?;
        Ok(true)
    }

    async fn fail(&self, session: &mut Session, held: &[Held], error: &str, outcome: &Outcome) -> Result<bool> {
        let table = self.rows.table;
        let error = stored_error(error);
        let backoff = backoff(self.shared, table);
        let delay = if let Outcome::Fail { delay, .. } = outcome { *delay } else { None };
        // Without a counter one failure is the end, unless the caller says when to try again.
        let is_final = |row: &Held| match (&table.failed, &table.attempts) {
            (None, _) => false,
            _ if matches!(outcome, Outcome::Reject { .. }) => true,
            (Some(_), Some(_)) => row.attempts >= row.max_attempts,
            (Some(_), None) => delay.is_none(),
        };
        let mut groups: BTreeMap<Option<i64>, Vec<Value>> = BTreeMap::new();
        for row in held {
            groups.entry((!is_final(row)).then_some(row.attempts)).or_default().push(self.key(row));
        }
        session.begin().await?;
        let mut matched = 0;
        for (attempts, keys) in groups {
            let chunks = Keys::new(keys)?.chunks();
            matched += match attempts {
                None => execute_each(session, &chunks, |chunk| self.rows.fail(chunk, self.claim.token, &error)).await?,
                Some(attempts) => {
                    let delay = delay.unwrap_or_else(|| backoff.delay(attempts));
                    let back = Back { delay: Some(delay), error: Some(&error), uncount: false };
                    execute_each(session, &chunks, |chunk| Some(self.rows.put_back(chunk, self.claim.token, &back))).await?
                }
            };
        }
        if matched != held.len() as u64 {
            session.rollback().await?;
            return Ok(false);
        }
        self.record(session, held, "failed", is_final, Some(&error)).await?;
        session.commit().await?;
        Ok(true)
    }

    /// Writes the ledger, where there is one, inside of the transaction.
    async fn record(
        &self,
        session: &mut Session,
        held: &[Held],
        outcome: &'static str,
        is_final: impl Fn(&Held) -> bool,
        error: Option<&str>,
    ) -> Result<()> {
        if !self.rows.table.mapping.registry {
            return Ok(());
        }
        let statements = self.shared.statements(session).await?;
        let ended: Vec<Ended<'_>> = held
            .iter()
            .map(|row| Ended {
                job_id: 0,
                row_key: Some(shown(&self.key(row))),
                fence: row.fence,
                outcome,
                left: Left::dead_if(is_final(row)),
                worker: &self.claim.worker,
                claim_id: self.claim.id,
                error,
            })
            .collect();
        record(statements, session, &ended).await
    }

    /// The answers for rows that the claim does not hold any more; rows it still holds are left out.
    async fn explain(&self, session: &mut Session, held: &[Held], outcome: &Outcome) -> Result<HashMap<i64, Finish>> {
        let table = self.rows.table;
        let by_key: HashMap<Vec<u8>, &Held> = held.iter().map(|row| (hashable(&self.key(row)), row)).collect();
        // Rows that are gone are lost.
        let mut answers: HashMap<i64, Finish> = held.iter().map(|row| (row.id, Finish::Lost)).collect();
        for chunk in self.keys(held)?.chunks() {
            let (_, found) = session.query_typed(&self.rows.inspect(&chunk, self.claim.token)).await?;
            for mut found in found {
                let (key, stands) = rows::stands(table, &mut found, outcome)?;
                let Some(row) = by_key.get(&hashable(&key)) else { continue };
                match stands {
                    Stands::Held => {
                        answers.remove(&row.id);
                    }
                    Stands::Answer(answer) => {
                        answers.insert(row.id, answer);
                    }
                    Stands::PutBack => {
                        let statements = self.shared.statements(session).await?;
                        let values = vec![self.claim.id.into(), shown(&key).into()];
                        let ledger = session.query(&plain(&statements.outcome_of_row, values)).await?;
                        let ledger = ledger.first().map(|row| row.text(0)).transpose()?;
                        answers.insert(row.id, same_outcome(ledger.as_deref(), outcome));
                    }
                }
            }
        }
        Ok(answers)
    }
}
