//! What a person, or code that asks the receiver, says of held rows: sent or not sent.

use super::Engine;
use crate::claim::Resolution;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::ids::Ids;
use crate::value::Row;
use std::collections::HashSet;

impl Engine {
    /// Ends the wait of held jobs, in one transaction. Answers in the order of `ids`: `false` for a job that is not held, or
    /// not any more, because somebody else was faster.
    ///
    /// # Errors
    /// `Schema`, `Unavailable`: unknown whether it was written; `jobs` tells.
    pub async fn resolve(&self, ids: &[i64], resolution: Resolution) -> Result<Vec<bool>> {
        let wanted: Ids = ids.iter().copied().collect();
        let resolved: HashSet<i64> = self
            .run("resolve", async |_, statements, session, _| {
                let sql = match resolution {
                    Resolution::Sent => &statements.resolve_sent,
                    Resolution::NotSent => &statements.resolve_unsent,
                };
                let mut resolved = HashSet::new();
                session.begin().await?;
                for chunk in wanted.chunks() {
                    let rows = session.query(&chunk.statement(&statements.held_jobs, vec![], vec![])).await?;
                    let held = rows.iter().map(|row: &Row| row.int(0)).collect::<Result<Ids>>()?;
                    if held.is_empty() {
                        continue;
                    }
                    if session.execute(&held.statement(sql, vec![], vec![])).await?.matched != held.len() as u64 {
                        return Err(Error::new(ErrorKind::Contention, "held jobs changed under their locks"));
                    }
                    resolved.extend(held.iter());
                }
                session.commit().await?;
                Ok(resolved)
            })
            .await?;
        Ok(ids.iter().map(|id| resolved.contains(id)).collect())
    }
}
