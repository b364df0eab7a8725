//! The lease in the rows themselves, for other code that looks at them, and for claims without a record.

use super::claim::hashable;
use super::statements_of;
use crate::claim::ClaimState;
use crate::driver::Session;
use crate::engine::Shared;
use crate::error::Result;
use crate::plan::keys::Keys;
use crate::plan::table::Table;
use crate::value::Value;
use std::collections::HashSet;

/// Writes a later lease, or a fresh time of the claim, into the rows a claim still holds; whether it holds any.
///
/// A row that was taken away is only found lost when it is finished: one row's loss is not the claim's.
pub(in crate::engine) async fn touch(
    shared: &Shared,
    session: &mut Session,
    claim: &ClaimState,
    table: &Table,
    keys: &[Value],
) -> Result<bool> {
    let rows = statements_of(shared, session, table).await?;
    if claim.is_past_max_run() {
        return Ok(false);
    }
    let mut seen = HashSet::new();
    let distinct = keys.iter().filter(|key| seen.insert(hashable(key))).cloned();
    let mut matched = 0;
    for chunk in Keys::new(distinct)?.chunks() {
        let Some(statement) = rows.touch(&chunk, claim.token, claim.lease) else { return Ok(true) };
        matched += session.execute(&statement).await?.matched;
    }
    Ok(matched > 0)
}
