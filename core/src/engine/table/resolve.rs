//! What a person, or code that asks the receiver, says of rows that wait for it: sent or not sent.

use super::claim::hashable;
use super::{MappedTable, execute_each, statements_of};
use crate::claim::Resolution;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::keys::Keys;
use crate::value::Value;
use std::collections::HashSet;

impl MappedTable {
    /// Ends the wait of rows whose status is the mapping's `held`, in one transaction. Answers in the order of `keys`: `false`
    /// for a row that does not wait, or not any more, because somebody else was faster.
    ///
    /// # Errors
    /// `Invalid` for a mapping without `held` or a key of another type; `Config`, `Schema`; `Unavailable`: unknown whether it
    /// was written, the rows tell.
    pub async fn resolve(&self, keys: &[Value], resolution: Resolution) -> Result<Vec<bool>> {
        self.run("resolve", async |shared, session, table, _| {
            if table.held.is_none() {
                return Err(Error::invalid("the mapping has no held: no row waits for a person there"));
            }
            let keys = keys.iter().map(|key| table.fit(&table.key, key)).collect::<Result<Vec<_>>>()?;
            let rows = statements_of(shared, session, table).await?;
            let mut resolved: HashSet<Vec<u8>> = HashSet::new();
            session.begin().await?;
            for chunk in Keys::new(keys.iter().cloned())?.chunks() {
                let Some(statement) = rows.aside_of(&chunk) else { continue };
                let (_, found) = session.query_typed(&statement).await?;
                let found = Keys::new(found.into_iter().map(|mut row| row.take(0)))?;
                let written = execute_each(session, &found.chunks(), |chunk| rows.resolve(chunk, resolution)).await?;
                if written != found.len() as u64 {
                    return Err(Error::new(ErrorKind::Contention, "rows changed under their locks"));
                }
                resolved.extend(found.iter().map(|key| hashable(&key)));
            }
            session.commit().await?;
            Ok(keys.iter().map(|key| resolved.contains(&hashable(key))).collect())
        })
        .await
    }
}
