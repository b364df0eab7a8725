//! Extending leases: one statement for any number of claims, and which of them are lost.

use super::{Engine, Shared};
use crate::claim::ClaimState;
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::Result;
use crate::plan::ids::Ids;
use crate::time::boottime;
use std::collections::HashSet;
use std::sync::Arc;

impl Engine {
    /// Renews one claim now. `false` when it cannot be: recovered by somebody, past its `max_run`, or closed.
    ///
    /// # Errors
    /// `Unavailable`; the claim stays valid until its last known time.
    pub(crate) async fn renew(&self, claim: &Arc<ClaimState>) -> Result<bool> {
        let alive = self
            .run("renew", async |_, statements, session, _| extend(statements, session, std::slice::from_ref(claim)).await)
            .await?;
        Ok(alive.contains(&claim.id))
    }
}

/// Renews open claims; answers with those that could be, and marks the others as lost unless they have nothing left to lose.
pub(crate) async fn extend(statements: &Statements, session: &mut Session, claims: &[Arc<ClaimState>]) -> Result<HashSet<i64>> {
    let started = boottime();
    let ids: Ids = claims.iter().map(|claim| claim.id).collect();
    let mut matched = 0;
    for chunk in ids.chunks() {
        matched += session.execute(&chunk.statement(&statements.renew, vec![], vec![])).await?.matched;
    }
    let mut alive: HashSet<i64> = ids.iter().collect();
    if matched != ids.len() as u64 {
        alive.clear();
        for chunk in ids.chunks() {
            for row in session.query(&chunk.statement(&statements.renewable, vec![], vec![])).await? {
                alive.insert(row.int(0)?);
            }
        }
    }
    for claim in claims {
        if alive.contains(&claim.id) {
            claim.renewed(started);
        } else if !claim.is_finished() {
            claim.set_lost();
        }
    }
    Ok(alive)
}

impl Shared {
    /// The heartbeat's step on its own session.
    pub(crate) async fn beat(&self, session: &mut Session, claims: &[Arc<ClaimState>]) -> Result<()> {
        let statements = self.statements().await?;
        extend(statements, session, claims).await.map(drop)
    }

    /// Closes claims whose rows are all finished.
    pub(crate) async fn close_claims(&self, session: &mut Session, ids: &Ids) -> Result<()> {
        let statements = self.statements().await?;
        for chunk in ids.chunks() {
            session.execute(&chunk.statement(&statements.close_claims, vec![], vec![])).await?;
        }
        Ok(())
    }
}
