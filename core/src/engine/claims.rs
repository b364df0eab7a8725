//! Looking at claims: which rows one took, who, when, and how each of them ended. Provable by the token.

use super::{Engine, Shared, table};
use crate::bounds::check_limit;
use crate::claim::OnLost;
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::ids::Ids;
use crate::plan::keys::{Keys, shown};
use crate::plan::{finish, plain};
use crate::time::Timestamp;
use crate::value::{Row, Value};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// A claim as it is recorded.
#[derive(Clone, Debug)]
pub struct ClaimRecord {
    /// Its id.
    pub id: i64,
    /// Its token.
    pub token: Uuid,
    /// The queues asked, or the mapped table.
    pub source: String,
    /// Who made it, for people.
    pub worker: String,
    /// When it was made.
    pub claimed_at: Timestamp,
    /// Until when it is valid, or was.
    pub lease_until: Timestamp,
    /// No renewal goes past it.
    pub max_until: Option<Timestamp>,
    /// `open`, `closed` (every row was finished) or `expired` (its rows were taken back).
    pub state: String,
    /// When it was closed or expired.
    pub closed_at: Option<Timestamp>,
    /// How many rows it took.
    pub count: u64,
    /// The record of the mapping; `None` for jobs.
    pub table_id: Option<i64>,
    /// What becomes of rows that were begun when the lease runs out.
    pub on_lost: OnLost,
}

/// Which claims to list, newest first.
#[derive(Clone, Debug)]
pub struct ClaimFilter {
    /// Only in this state: `open`, `closed` or `expired`.
    pub state: Option<String>,
    /// Only of this source: the queues as they were asked, joined by commas, or the mapped table.
    pub source: Option<String>,
    /// Only ids below this one: the last id of the page before.
    pub before: Option<i64>,
    /// Claims at most, 1 to 10,000.
    pub limit: usize,
}

impl Default for ClaimFilter {
    fn default() -> Self {
        ClaimFilter { state: None, source: None, before: None, limit: 100 }
    }
}

/// A claim by its id or by its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimName {
    /// Its id.
    Id(i64),
    /// Its token.
    Token(Uuid),
}

/// How a row of a claim ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimEnd {
    /// The job's id, or the row's key.
    pub key: String,
    /// `held`, `completed`, `failed`, `released`, `lost` (the lease ran out), `cancelled`, or `unknown` when neither the row
    /// nor the ledger says it: the row was deleted or changed by hand, or its history is pruned.
    pub end: &'static str,
    /// The row is failed for good, or dead.
    pub is_final: bool,
    /// When it ended, where that is recorded.
    pub ended_at: Option<Timestamp>,
    /// What went wrong.
    pub error: Option<String>,
}

const HELD: &str = "held";

impl Engine {
    /// Claims, newest first.
    ///
    /// # Errors
    /// `Invalid` for a wrong limit or state; `Schema`, `Unavailable`.
    pub async fn claims(&self, filter: &ClaimFilter) -> Result<Vec<ClaimRecord>> {
        let limit: Value = check_limit("limit", filter.limit).map_err(|e| e.during("claims"))?.into();
        if let Some(state) = filter.state.as_deref().filter(|state| !["open", "closed", "expired"].contains(state)) {
            return Err(Error::invalid(format!("state {state} is none of open, closed, expired")).during("claims"));
        }
        let (state, source): (Value, Value) = (filter.state.clone().into(), filter.source.clone().into());
        let before = Value::Int(filter.before.unwrap_or(i64::MAX));
        let values = vec![before, state.clone(), state, source.clone(), source, limit];
        self.run("claims", async |_, statements, session, _| {
            let rows = session.query(&plain(&statements.list_claims, values.clone())).await?;
            rows.iter().map(|row| Ok(read(row)?.0)).collect()
        })
        .await
    }

    /// One claim and how each of its rows ended; `None` when there is none, or it was pruned.
    ///
    /// # Errors
    /// `Config` when its mapped table has changed so that the mapping does not fit; `Schema`, `Unavailable`.
    pub async fn claim_record(&self, name: ClaimName) -> Result<Option<(ClaimRecord, Vec<ClaimEnd>)>> {
        self.run("claim_record", async |shared, statements, session, _| {
            let Some((record, keys)) = find(statements, session, name).await? else { return Ok(None) };
            let ends = ends(shared, statements, session, &record, &keys).await?;
            Ok(Some((record, ends)))
        })
        .await
    }

    /// Ends a claim now, for a person who knows that its owner is gone: its lease is over, and the rows it holds are taken
    /// back as by recovery. The owner's writes are refused from then on. False when it is not open any more.
    ///
    /// # Errors
    /// `NotFound`; `Schema`, `Unavailable`.
    pub async fn end_claim(&self, name: ClaimName) -> Result<bool> {
        let found = self
            .run("end_claim", async |_, statements, session, _| {
                let Some((record, _)) = find(statements, session, name).await? else { return Ok(None) };
                Ok(Some(session.execute(&plain(&statements.end_claim, vec![record.id.into()])).await?.matched == 1))
            })
            .await?;
        let is_ended = found.ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no such claim").during("end_claim"))?;
        self.recover().await?;
        Ok(is_ended)
    }
}

fn read(row: &Row) -> Result<(ClaimRecord, Keys)> {
    let token = Uuid::from_slice(&row.bytes(1)?).map_err(|_| Error::decode("a claim's token is not 16 bytes"))?;
    let record = ClaimRecord {
        id: row.int(0)?,
        token,
        source: row.text(2)?,
        worker: row.text(3)?,
        claimed_at: row.time(4)?,
        lease_until: row.time(5)?,
        max_until: row.opt(6, Row::time)?,
        state: row.text(7)?,
        closed_at: row.opt(8, Row::time)?,
        count: u64::try_from(row.int(9)?).unwrap_or(0),
        table_id: row.opt(11, Row::int)?,
        on_lost: OnLost::parse(&row.text(12)?)?,
    };
    Ok((record, Keys::from_text(&row.text(10)?)?))
}

async fn find(statements: &Statements, session: &mut Session, name: ClaimName) -> Result<Option<(ClaimRecord, Keys)>> {
    let values = match name {
        ClaimName::Id(id) => vec![id.into(), Value::Null],
        ClaimName::Token(token) => vec![Value::Null, token.as_bytes().as_slice().into()],
    };
    session.query(&plain(&statements.claim, values)).await?.first().map(read).transpose()
}

/// How each row ended: what the row itself says first, then the ledger.
async fn ends(
    shared: &Shared,
    statements: &Statements,
    session: &mut Session,
    record: &ClaimRecord,
    keys: &Keys,
) -> Result<Vec<ClaimEnd>> {
    let mut ends: BTreeMap<String, ClaimEnd> = BTreeMap::new();
    let ledger = plain(&statements.attempts_of_claim, vec![record.id.into(), Value::Int(100_000)]);
    for row in session.query(&ledger).await? {
        let key = match row.opt(1, Row::text)? {
            Some(key) => key,
            None => row.int(0)?.to_string(),
        };
        let end = ClaimEnd {
            key: key.clone(),
            end: finish::ended_as(&row.text(3)?),
            is_final: row.int(4)? == 1,
            ended_at: Some(row.time(5)?),
            error: row.opt(6, Row::text)?,
        };
        ends.insert(key, end);
    }
    let stand: HashMap<String, &'static str> = match record.table_id {
        Some(id) => table::ends(shared, statements, session, id, record.token, keys).await?,
        None => match keys {
            Keys::Whole(ids) => job_ends(statements, session, record.id, ids).await?,
            Keys::Listed(_) => HashMap::new(),
        },
    };
    let end_of = |key: String| match (stand.get(&key), ends.get(&key)) {
        // Held again after it was put back is another claim's; held under this one is this one's.
        (Some(end), known) if *end == HELD || known.is_none() => {
            ClaimEnd { key, end, is_final: *end == "failed", ended_at: None, error: None }
        }
        (_, Some(known)) => known.clone(),
        (_, None) => ClaimEnd { key, end: "unknown", is_final: false, ended_at: None, error: None },
    };
    Ok(keys.iter().map(|key| end_of(shown(&key))).collect())
}

async fn job_ends(
    statements: &Statements,
    session: &mut Session,
    claim_id: i64,
    ids: &Ids,
) -> Result<HashMap<String, &'static str>> {
    let mut found = HashMap::new();
    for chunk in ids.chunks() {
        for row in session.query(&finish::inspect(statements, &chunk)).await? {
            if row.opt(2, Row::int)? == Some(claim_id)
                && let Some(end) = finish::job_end(&row.text(1)?)
            {
                found.insert(row.int(0)?.to_string(), end);
            }
        }
    }
    Ok(found)
}
