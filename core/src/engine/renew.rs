//! Extending leases: one statement for any number of claims, and which of them are lost.

use super::lease::{self, LeaseState};
use super::{Engine, Shared};
use crate::claim::{ClaimState, HeldRows};
use crate::driver::Session;
use crate::error::Result;
use crate::plan::ids::Ids;
use crate::time::boottime;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Engine {
    /// Renews one claim now. `false` when it cannot be: recovered by somebody, past its `max_run`, or closed.
    ///
    /// # Errors
    /// `Unavailable`; the claim stays valid until its last known time.
    pub(crate) async fn renew(&self, claim: &Arc<ClaimState>) -> Result<bool> {
        let alive = self
            .run_without_tables("renew", async |shared, session, _| extend(shared, session, std::slice::from_ref(claim)).await)
            .await?;
        Ok(alive.contains(&claim.id))
    }
}

/// Renews open claims; answers with those that could be, and marks the others as lost unless they have nothing left to lose.
///
/// # Errors
/// Of the claims themselves at once; of one claim's own table only when the other claims are renewed.
pub(crate) async fn extend(shared: &Shared, session: &mut Session, claims: &[Arc<ClaimState>]) -> Result<HashSet<i64>> {
    let started = boottime();
    let ids: Ids = claims.iter().map(|claim| claim.id).filter(|id| *id >= 0).collect();
    let mut alive = if ids.is_empty() { HashSet::new() } else { extend_records(shared, session, &ids).await? };
    let mut failed = None;
    for claim in claims {
        if let HeldRows::Rows { table, keys } = &claim.held
            && (claim.id < 0 || alive.contains(&claim.id))
        {
            let is_held = match super::table::renew::touch(shared, session, claim, table, keys).await {
                Err(error) if error.is_permanent() => {
                    session.rollback().await?;
                    failed.get_or_insert(error);
                    continue;
                }
                other => other?,
            };
            if claim.id < 0 && is_held {
                alive.insert(claim.id);
            }
        }
        if alive.contains(&claim.id) {
            claim.renewed(started);
        } else if claim.writing.load(Relaxed) == 0 && !claim.is_finished() {
            // While an outcome is on its way, that no row is held any more tells nothing: its answer will.
            claim.set_lost();
        }
    }
    failed.map_or(Ok(alive), Err)
}

/// Renews claims by their rows in the claims table: one statement for all of them.
async fn extend_records(shared: &Shared, session: &mut Session, ids: &Ids) -> Result<HashSet<i64>> {
    let statements = shared.statements(session).await?;
    let mut matched = 0;
    for chunk in ids.chunks() {
        matched += session.execute(&chunk.statement(&statements.renew, vec![], vec![])).await?.matched;
    }
    if matched == ids.len() as u64 {
        return Ok(ids.iter().collect());
    }
    let mut alive = HashSet::new();
    for chunk in ids.chunks() {
        for row in session.query(&chunk.statement(&statements.renewable, vec![], vec![])).await? {
            alive.insert(row.int(0)?);
        }
    }
    Ok(alive)
}

/// Logs an error that no other try will mend; what it left open is undone.
pub(crate) async fn unless_permanent(session: &mut Session, done: Result<()>) -> Result<()> {
    match done {
        Err(error) if error.is_permanent() => {
            log::error!("background: {error}");
            session.rollback().await
        }
        other => other,
    }
}

impl Shared {
    /// The heartbeat's step on its own session. A claim or lease that can never be renewed (its table is gone) does not
    /// keep the others from it.
    pub(crate) async fn beat(
        &self,
        session: &mut Session,
        claims: &[Arc<ClaimState>],
        leases: impl Iterator<Item = &Arc<LeaseState>>,
    ) -> Result<()> {
        if !claims.is_empty() {
            let extended = extend(self, session, claims).await;
            unless_permanent(session, extended.map(drop)).await?;
        }
        for lease in leases {
            let extended = lease::extend(self, session, lease).await;
            unless_permanent(session, extended.map(drop)).await?;
        }
        Ok(())
    }

    /// Closes claims whose rows are all finished. Claims without a record have nothing to close.
    pub(crate) async fn close_claims(&self, session: &mut Session, ids: &Ids) -> Result<()> {
        let ids: Ids = ids.iter().filter(|id| *id >= 0).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let statements = self.statements(session).await?;
        for chunk in ids.chunks() {
            session.execute(&chunk.statement(&statements.close_claims, vec![], vec![])).await?;
        }
        Ok(())
    }
}
