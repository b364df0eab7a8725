//! Rows come back from claims whose lease has run out: the claim is marked first, then its rows, in one transaction.
//!
//! Sweepers do not lock each other out beforehand: each takes one claim at a time by a guarded update, and the
//! one that comes second matches nothing.

use super::finish::record;
use super::run::Tries;
use super::{Engine, Shared};
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::finish::{Ended, Held};
use crate::plan::ids::Ids;
use crate::plan::keys::Keys;
use crate::plan::plain;
use crate::time::micros;
use crate::value::Row;
use std::collections::BTreeMap;
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
}

impl AddAssign for Recovered {
    fn add_assign(&mut self, other: Self) {
        self.claims += other.claims;
        self.returned += other.returned;
        self.dead += other.dead;
        self.runs += other.runs;
        self.effects += other.effects;
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
}

impl Expired {
    fn read(row: &Row) -> Result<Self> {
        let token = Uuid::from_slice(&row.bytes(4)?).map_err(|_| Error::decode("a claim's token is not 16 bytes"))?;
        let keys = Keys::from_text(&row.text(1)?)?;
        Ok(Expired { id: row.int(0)?, token, keys, worker: row.text(2)?, table_id: row.opt(3, Row::int)? })
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
        log::warn!("lease of {} expired: {} returned, {} dead", claim.worker, recovered.returned, recovered.dead);
    }
    Ok(recovered)
}

/// The jobs of an expired claim, inside of the transaction that marked it.
async fn put_back(shared: &Shared, statements: &Statements, session: &mut Session, claim: &Expired) -> Result<Recovered> {
    let mut recovered = Recovered::default();
    let Keys::Whole(ids) = &claim.keys else { return Err(Error::decode("a claim of jobs lists no numbers")) };
    let mut held = Vec::new();
    for chunk in ids.chunks() {
        let statement = chunk.statement(&statements.lost_jobs, vec![], vec![claim.id.into()]);
        for row in session.query(&statement).await? {
            held.push(Held { id: row.int(0)?, attempts: row.int(1)?, max_attempts: row.int(2)?, fence: row.int(3)? });
        }
    }
    let (dead, back): (Vec<Held>, Vec<Held>) = held.iter().partition(|job| job.attempts >= job.max_attempts);
    let mut by_attempts: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for job in &back {
        by_attempts.entry(job.attempts).or_default().push(job.id);
    }
    let mut matched = 0;
    for (attempts, ids) in by_attempts {
        let delay = micros(shared.config.backoff.delay(attempts));
        for chunk in ids.into_iter().collect::<Ids>().chunks() {
            let statement = chunk.statement(&statements.lost_back, vec![delay.into()], vec![claim.id.into()]);
            matched += session.execute(&statement).await?.matched;
        }
    }
    for chunk in dead.iter().map(|job| job.id).collect::<Ids>().chunks() {
        let statement = chunk.statement(&statements.lost_dead, vec![], vec![claim.id.into()]);
        matched += session.execute(&statement).await?.matched;
    }
    if matched != held.len() as u64 {
        return Err(Error::new(ErrorKind::Contention, "rows of an expired claim changed under their locks"));
    }
    let ended: Vec<Ended<'_>> = held
        .iter()
        .map(|job| Ended {
            job_id: job.id,
            row_key: None,
            fence: job.fence,
            outcome: "lost",
            is_final: job.attempts >= job.max_attempts,
            worker: &claim.worker,
            claim_id: claim.id,
            error: Some("lease expired"),
        })
        .collect();
    record(statements, session, &ended).await?;
    if !held.is_empty() {
        recovered.claims = 1;
        recovered.returned = back.len() as u64;
        recovered.dead = dead.len() as u64;
    }
    Ok(recovered)
}
