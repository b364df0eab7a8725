//! Deleting what is finished and old, in small steps along the primary key.

use super::Engine;
use crate::bounds::check_limit;
use crate::error::Result;
use crate::plan::ids::Ids;
use crate::plan::plain;
use crate::time::micros;
use crate::value::Value;
use std::time::Duration;

/// What may go.
#[derive(Clone, Copy, Debug)]
pub struct PruneRequest {
    /// Only what ended longer ago than this.
    pub older_than: Duration,
    /// Rows in one DELETE, 1 to 10,000.
    pub batch: usize,
    /// A pause between two steps, so that workers are not held up.
    pub pause: Duration,
}

impl PruneRequest {
    /// Everything that ended longer ago than `older_than`, 1,000 rows a step.
    pub fn new(older_than: Duration) -> Self {
        PruneRequest { older_than, batch: 1_000, pause: Duration::from_millis(1) }
    }
}

/// Rows deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Jobs that were done, dead or cancelled. Their keys are free again, `forever` ones too.
    pub jobs: u64,
    /// Claims that were closed or expired.
    pub claims: u64,
    /// Attempts of jobs that are gone.
    pub attempts: u64,
    /// Effects that have succeeded or failed. Their keys are free again.
    pub effects: u64,
    /// Runs that have ended, and skipped slots.
    pub runs: u64,
}

impl Engine {
    /// Deletes finished jobs, ended claims and their attempts, effects and runs that have ended. `progress` is told the counts after each step.
    ///
    /// # Errors
    /// `Invalid` for a wrong batch; `Schema`, `Unavailable`; what was deleted until then stays deleted.
    pub async fn prune(&self, request: PruneRequest, mut progress: impl FnMut(&Pruned)) -> Result<Pruned> {
        check_limit("batch", request.batch).map_err(|e| e.during("prune"))?;
        let mut pruned = Pruned::default();
        for part in 0..5 {
            let mut after = 0;
            loop {
                let step = self
                    .run("prune", async |_, statements, session, _| {
                        let (find, delete) = match part {
                            0 => (&statements.prunable_jobs, &statements.prune_jobs),
                            1 => (&statements.prunable_claims, &statements.prune_claims),
                            2 => (&statements.prunable_attempts, &statements.prune_attempts),
                            3 => (&statements.ledger.prunable_effects, &statements.ledger.prune_effects),
                            _ => (&statements.ledger.prunable_runs, &statements.ledger.prune_runs),
                        };
                        let values = vec![Value::Int(after), micros(request.older_than).into(), Value::Int(request.batch as i64)];
                        let rows = session.query(&plain(find, values)).await?;
                        let ids = rows.iter().map(|row| row.int(0)).collect::<Result<Ids>>()?;
                        let mut deleted = 0;
                        for chunk in ids.chunks() {
                            deleted += session.execute(&chunk.statement(delete, vec![], vec![])).await?.matched;
                        }
                        Ok(ids.iter().last().map(|last| (last, deleted)))
                    })
                    .await?;
                let Some((last, deleted)) = step else { break };
                after = last;
                let counter = match part {
                    0 => &mut pruned.jobs,
                    1 => &mut pruned.claims,
                    2 => &mut pruned.attempts,
                    3 => &mut pruned.effects,
                    _ => &mut pruned.runs,
                };
                *counter += deleted;
                progress(&pruned);
                tokio::time::sleep(request.pause).await;
            }
        }
        Ok(pruned)
    }
}
