//! Rows come back from claims whose lease has run out: the claim is marked first, then its rows, in one transaction.
//!
//! Sweepers do not lock each other out beforehand: each takes one claim at a time by a guarded update, and the
//! one that comes second matches nothing.

use super::finish::record;
use super::run::Tries;
use super::{Engine, Shared};
use crate::claim::OnLost;
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::finish::{Ended, Held, Left};
use crate::plan::ids::Ids;
use crate::plan::keys::Keys;
use crate::plan::plain;
use crate::time::micros;
use crate::value::Row;
use std::collections::{BTreeMap, HashSet};
use std::ops::AddAssign;
use uuid::Uuid;

/// Claims looked at in one pass.
const CLAIMS_A_PASS: i64 = 20;

/// What a recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Claims that had expired with rows in them.
    pub claims: u64,
    /// Rows put back for another attempt.
    pub returned: u64,
    /// Rows that had no attempt left and are dead now.
    pub dead: u64,
    /// Runs whose lease was over: they are lost.
    pub runs: u64,
    /// Effects whose sender was gone: nobody knows whether they have happened.
    pub effects: u64,
    /// Rows of claims that hold which were begun: they wait for a person now.
    pub held: u64,
}

impl AddAssign for Recovered {
    fn add_assign(&mut self, other: Self) {
        self.claims += other.claims;
        self.returned += other.returned;
        self.dead += other.dead;
        self.runs += other.runs;
        self.effects += other.effects;
        self.held += other.held;
    }
}

/// An expired claim before it is taken.
pub(super) struct Expired {
    pub id: i64,
    pub token: Uuid,
    pub keys: Keys,
    pub worker: String,
    /// The record of its mapped table; `None` for jobs.
    table_id: Option<i64>,
    pub on_lost: OnLost,
}

impl Expired {
    fn read(row: &Row) -> Result<Self> {
        let token = Uuid::from_slice(&row.bytes(4)?).map_err(|_| Error::decode("a claim's token is not 16 bytes"))?;
        let keys = Keys::from_text(&row.text(1)?)?;
        let on_lost = OnLost::parse(&row.text(5)?)?;
        Ok(Expired { id: row.int(0)?, token, keys, worker: row.text(2)?, table_id: row.opt(3, Row::int)?, on_lost })
    }

    /// Which of its rows were begun, by `read`; `None` where that changes nothing. Only after the claim was marked expired:
    /// none is begun from then on.
    pub(super) async fn begun<T: std::hash::Hash + Eq>(
        &self,
        statements: &Statements,
        session: &mut Session,
        read: impl Fn(&Row) -> Result<T>,
    ) -> Result<Option<HashSet<T>>> {
        if self.on_lost == OnLost::Retry {
            return Ok(None);
        }
        let rows = session.query(&plain(&statements.started, vec![self.id.into()])).await?;
        rows.iter().map(read).collect::<Result<_>>().map(Some)
    }
}

impl Engine {
    /// Takes rows back from every claim whose lease has run out, and marks runs and effects whose process is gone.
    ///
    /// # Errors
    /// `Schema`, `Unavailable`. Contention with other sweepers is left to them.
    pub async fn recover(&self) -> Result<Recovered> {
        let mut total = self.sweep(true).await?;
        (total.runs, total.effects) = self
            .run("recover", async |_, statements, session, _| {
                let runs = super::runs::lose_all(statements, session).await?;
                Ok((runs, super::effect::lapse_all(statements, session).await?))
            })
            .await?;
        Ok(total)
    }

    /// As [`Engine::recover`]; without `is_patient`, one pass that leaves claims which others have locked for next time.
    pub(super) async fn sweep(&self, is_patient: bool) -> Result<Recovered> {
        let mut total = Recovered::default();
        loop {
            let mut found: Vec<Expired> = self
                .run("recover", async |_, statements, session, _| {
                    let rows = session.query(&plain(&statements.expired, vec![CLAIMS_A_PASS.into()])).await?;
                    rows.iter().map(Expired::read).collect()
                })
                .await?;
            let seen = found.len();
            let mut is_stuck = false;
            // Sweepers that start together go different ways.
            fastrand::shuffle(&mut found);
            for claim in &found {
                let step = async |shared: &Shared, statements: &Statements, session: &mut Session, _: Tries| match expire(
                    shared, statements, session, claim,
                )
                .await
                {
                    Err(error) if error.kind() == ErrorKind::Contention && !is_patient => {
                        session.rollback().await?;
                        Ok(Recovered::default())
                    }
                    other => other,
                };
                match self.run("recover", step).await {
                    Ok(recovered) => total += recovered,
                    Err(error) if error.kind() == ErrorKind::Contention => {
                        log::warn!("recover: the rows of claim {} are locked by others", claim.id);
                        is_stuck = true;
                    }
                    Err(error) => return Err(error),
                }
            }
            if seen < CLAIMS_A_PASS as usize || is_stuck || !is_patient {
                return Ok(total);
            }
        }
    }
}

/// Takes one expired claim and puts its jobs or rows back, in one transaction.
async fn expire(shared: &Shared, statements: &Statements, session: &mut Session, claim: &Expired) -> Result<Recovered> {
    // Looked up before the claim is locked; a mapping that does not fit its table any more leaves the claim for later.
    let table = match claim.table_id {
        None => None,
        Some(id) => match super::table::of_record(shared, statements, session, id).await {
            Ok(table) => Some(table),
            Err(error) if matches!(error.kind(), ErrorKind::Config | ErrorKind::Schema) => {
                log::error!("recover: claim {} of {} cannot be taken back: {error}", claim.id, claim.worker);
                session.execute(&plain(&statements.postpone, vec![claim.id.into()])).await?;
                return Ok(Recovered::default());
            }
            Err(error) => return Err(error),
        },
    };
    session.begin().await?;
    if session.execute(&plain(&statements.expire, vec![claim.id.into()])).await?.matched == 0 {
        session.rollback().await?;
        return Ok(Recovered::default());
    }
    let recovered = match &table {
        Some(table) => super::table::recover::put_back(shared, statements, session, claim, table).await?,
        None => put_back(shared, statements, session, claim).await?,
    };
    session.commit().await?;
    if recovered.claims > 0 {
        let Recovered { returned, dead, held, .. } = recovered;
        log::warn!("lease of {} expired: {returned} returned, {dead} dead, {held} held", claim.worker);
    }
    Ok(recovered)
}

/// The jobs of an expired claim, inside of the transaction that marked it.
async fn put_back(shared: &Shared, statements: &Statements, session: &mut Session, claim: &Expired) -> Result<Recovered> {
    let Keys::Whole(ids) = &claim.keys else { return Err(Error::decode("a claim of jobs lists no numbers")) };
    let mut lost = Vec::new();
    for chunk in ids.chunks() {
        let statement = chunk.statement(&statements.lost_jobs, vec![], vec![claim.id.into()]);
        for row in session.query(&statement).await? {
            lost.push(Held { id: row.int(0)?, attempts: row.int(1)?, max_attempts: row.int(2)?, fence: row.int(3)? });
        }
    }
    let begun = claim.begun(statements, session, |row| row.int(0)).await?;
    let fates: Vec<Fate> = lost.iter().map(|job| Fate::of(job, begun.as_ref())).collect();
    let mut groups: BTreeMap<Fate, Vec<i64>> = BTreeMap::new();
    for (job, fate) in lost.iter().zip(&fates) {
        groups.entry(*fate).or_default().push(job.id);
    }
    let mut recovered = Recovered { claims: u64::from(!lost.is_empty()), ..Recovered::default() };
    for (fate, ids) in groups {
        let (sql, values) = match fate {
            Fate::Back(attempts) => (&statements.lost_back, vec![micros(shared.config.backoff.delay(attempts)).into()]),
            Fate::Unbegun => (&statements.lost_unbegun, vec![]),
            Fate::Dead => (&statements.lost_dead, vec![]),
            Fate::Held => (&statements.lost_held, vec![]),
        };
        let counter = match fate {
            Fate::Back(_) | Fate::Unbegun => &mut recovered.returned,
            Fate::Dead => &mut recovered.dead,
            Fate::Held => &mut recovered.held,
        };
        for chunk in ids.into_iter().collect::<Ids>().chunks() {
            *counter += session.execute(&chunk.statement(sql, values.clone(), vec![claim.id.into()])).await?.matched;
        }
    }
    if recovered.returned + recovered.dead + recovered.held != lost.len() as u64 {
        return Err(Error::new(ErrorKind::Contention, "rows of an expired claim changed under their locks"));
    }
    let ended: Vec<Ended<'_>> = lost
        .iter()
        .zip(&fates)
        .map(|(job, fate)| Ended {
            job_id: job.id,
            row_key: None,
            fence: job.fence,
            outcome: "lost",
            left: fate.left(),
            worker: &claim.worker,
            claim_id: claim.id,
            error: Some(fate.error()),
        })
        .collect();
    record(statements, session, &ended).await?;
    Ok(recovered)
}

/// What becomes of a row whose lease ran out. Rows of one fate are written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// Another attempt, after the back-off of so many.
    Back(i64),
    /// Another attempt at once: this one was not begun, and is not counted.
    Unbegun,
    /// No attempt is left.
    Dead,
    /// It was begun, in a claim that holds: a person is asked.
    Held,
}

impl Fate {
    /// `begun` is `None` for a claim that does not hold.
    fn of(job: &Held, begun: Option<&HashSet<i64>>) -> Self {
        match begun {
            Some(begun) if begun.contains(&job.id) => Fate::Held,
            Some(_) => Fate::Unbegun,
            None if job.attempts >= job.max_attempts => Fate::Dead,
            None => Fate::Back(job.attempts),
        }
    }

    pub(super) fn left(self) -> Left {
        match self {
            Fate::Back(_) | Fate::Unbegun => Left::Open,
            Fate::Dead => Left::Dead,
            Fate::Held => Left::Held,
        }
    }

    /// What the row and the ledger say; the same text is in the statements of jobs.
    pub(super) fn error(self) -> &'static str {
        match self {
            Fate::Held => "lease expired after it was started",
            _ => "lease expired",
        }
    }
}
