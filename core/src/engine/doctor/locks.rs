//! What a claim locks: one is made as far as its locks, the server is asked for their count, and it is rolled back.
//!
//! Workers meanwhile step over its rows, as over those of any other claim.

use super::index::LIMIT;
use super::look::{Look, answered};
use crate::config::ClaimShape;
use crate::dialect::doctor as dialect;
use crate::dialect::rows::Rows;
use crate::error::Result;
use crate::plan::keys::Keys;
use crate::plan::table::access::{Access, Search};
use crate::value::{Row, Statement, Value};

/// Another reader of the server's list of transactions keeps it from being made anew.
const TRIES: usize = 4;

/// What one claim locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locks {
    /// Rows the claim found.
    pub taken: i64,
    /// Rows and index entries it locked.
    pub locked: i64,
}

impl Locks {
    /// Each row and its index entry, and a few at the ends of ranges.
    pub(super) fn bound(self) -> i64 {
        2 * self.taken + 16
    }

    pub(super) fn is_too_many(self) -> bool {
        self.locked > self.bound()
    }
}

/// The locks of a claim of up to [`LIMIT`] rows; `None` where nothing waits or the count cannot be seen.
pub(super) async fn of_a_claim(look: &mut Look<'_>, rows: &Rows<'_>, search: &Search) -> Result<Option<Locks>> {
    let cannot_lock = look.has_found(&["binlog-statement", "read-only"]);
    if rows.shape != ClaimShape::SkipLocked || cannot_lock || !look.sees_processes() {
        return Ok(None);
    }
    for _ in 0..TRIES {
        look.see(dialect::SETTLE, vec![]).await?;
        if answered(look.session.begin().await)?.is_err() {
            return Ok(None);
        }
        let locks = lock(look, rows, search).await;
        look.session.rollback().await?;
        let Some(locks) = locks? else { return Ok(None) };
        // A list that is older than this transaction shows fewer.
        if locks.locked >= locks.taken {
            return Ok(Some(locks));
        }
    }
    Ok(None)
}

/// Locks as a claim does, and counts.
async fn lock(look: &mut Look<'_>, rows: &Rows<'_>, search: &Search) -> Result<Option<Locks>> {
    let mut taken = 0;
    match &search.access {
        Access::Index { name, by_free_token } => {
            for lane in rows.lanes() {
                if taken < LIMIT {
                    taken += answer(look, &rows.pick(search, name, *by_free_token, *lane, None, LIMIT - taken)).await?.len();
                }
            }
        }
        Access::Candidates => {
            let found = answer(look, &rows.candidates(search, LIMIT)).await?;
            let keys = found.into_iter().map(|mut row| row.take(0)).filter(|key| !matches!(key, Value::UInt(_)));
            for chunk in Keys::new(keys)?.chunks() {
                taken += answer(look, &rows.lock(search, &chunk)).await?.len();
            }
        }
    }
    if taken == 0 {
        return Ok(None);
    }
    let count = look.see_by_process("the locks of a claim", dialect::OWN_LOCKS, vec![]).await?;
    let locked = count.first().and_then(|row| row.int(0).ok()).unwrap_or(0);
    Ok(Some(Locks { taken: i64::try_from(taken).unwrap_or(i64::MAX), locked }))
}

async fn answer(look: &mut Look<'_>, statement: &Statement) -> Result<Vec<Row>> {
    Ok(look.ask(statement).await?.map(|(_, rows)| rows).unwrap_or_default())
}
