//! Looking at a mapped table, and what a person may do with its rows.

use super::{MappedTable, execute_each, statements_of};
use crate::bounds::check_limit;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::plan::keys::Keys;
use crate::plan::plain;
use crate::plan::table::{Table, access, rows};
use crate::row::{ClaimedRow, Filters, RowFilter};
use crate::time::Timestamp;
use crate::value::Value;

/// A mapping as it is recorded in the registry.
#[derive(Clone, Debug)]
pub struct TableRecord {
    /// The record's id.
    pub id: i64,
    /// The table's name.
    pub name: String,
    /// The mapping in its JSON form.
    pub mapping: String,
    /// When it was first used.
    pub created_at: Timestamp,
}

impl Engine {
    /// The mappings that claims were made by, in the order of the tables' names.
    ///
    /// # Errors
    /// `Schema`, `Unavailable`.
    pub async fn tables(&self) -> Result<Vec<TableRecord>> {
        self.run("tables", async |_, statements, session, _| {
            let rows = session.query(&plain(&statements.list_tables, vec![])).await?;
            let read = |row: &crate::value::Row| {
                Ok(TableRecord { id: row.int(0)?, name: row.text(1)?, mapping: row.text(2)?, created_at: row.time(3)? })
            };
            rows.iter().map(read).collect()
        })
        .await
    }
}

impl MappedTable {
    /// Whether any row waits or is held by a claim: two look-ups that stop at the first row, never a count. Rows that wait for
    /// a person (failed, held) do not count.
    ///
    /// # Errors
    /// `Invalid` for a wrong filter; `Config`, `Schema`, `Unavailable`.
    pub async fn remaining(&self, filters: &Filters) -> Result<bool> {
        self.run("remaining", async |shared, session, table, _| {
            let conditions = access::conditions(table, &filters.borrowed())?;
            let statement = statements_of(shared, session, table).await?.remaining(&conditions);
            let found = session.query(&statement).await?;
            Ok(found.first().map_or(Ok(0), |row| row.int(0))? != 0)
        })
        .await
    }

    /// Rows in the order of their keys, whatever their status.
    ///
    /// # Errors
    /// `Invalid` for a wrong filter or limit; `Config`, `Schema`, `Unavailable`.
    pub async fn rows(&self, filter: &RowFilter) -> Result<Vec<ClaimedRow>> {
        let limit = check_limit("limit", filter.limit)?;
        self.run("rows", async |shared, session, table, _| {
            let conditions = access::conditions(table, &filter.filters.borrowed())?;
            let status = filter.status.as_ref().map(|status| table.fit(&table.status, status)).transpose()?;
            let after = filter.after.as_ref().map(|after| table.fit(&table.key, after)).transpose()?;
            let list = statements_of(shared, session, table).await?.list(&conditions, status.as_ref(), after.as_ref(), limit);
            read(table, session.query_typed(&list).await?.1)
        })
        .await
    }

    /// One row by its key.
    ///
    /// # Errors
    /// `Invalid` for a key of another type; `Config`, `Schema`, `Unavailable`.
    pub async fn row(&self, key: &Value) -> Result<Option<ClaimedRow>> {
        self.run("row", async |shared, session, table, _| {
            let condition = access::Condition { column: table.key.clone(), values: vec![table.fit(&table.key, key)?] };
            let list = statements_of(shared, session, table).await?.list(&[condition], None, None, 1);
            Ok(read(table, session.query_typed(&list).await?.1)?.into_iter().next())
        })
        .await
    }

    /// Puts failed rows back with all their attempts: those of `keys`, or up to `limit` (1 to 10,000) for which `filters` hold.
    /// How many.
    ///
    /// # Errors
    /// `Invalid` for a wrong filter or key, or a mapping without `failed`; `Config`, `Schema`, `Unavailable`.
    pub async fn retry(&self, keys: Option<&[Value]>, filters: &Filters, limit: usize) -> Result<u64> {
        self.put_back("retry", keys, filters, limit, |table| {
            table.failed.clone().ok_or_else(|| Error::invalid("the mapping has no failed: rows never end there"))
        })
        .await
    }

    /// Takes held rows away from their owners and puts them back at once; the owners' writes are refused from then on. For
    /// a person who knows that the owner is gone, and also where the mapping holds rows that were begun. How many.
    ///
    /// # Errors
    /// As [`MappedTable::retry`].
    pub async fn take_back(&self, keys: Option<&[Value]>, filters: &Filters, limit: usize) -> Result<u64> {
        self.put_back("take_back", keys, filters, limit, |table| Ok(table.processing.clone())).await
    }

    async fn put_back(
        &self,
        operation: &'static str,
        keys: Option<&[Value]>,
        filters: &Filters,
        limit: usize,
        from: impl Fn(&Table) -> Result<Value>,
    ) -> Result<u64> {
        if keys.is_some() && *filters != Filters::none() {
            return Err(Error::invalid("rows are chosen by keys or by where, not by both").during(operation));
        }
        if keys.is_none() {
            check_limit("limit", limit).map_err(|e| e.during(operation))?;
        }
        self.run(operation, async |shared, session, table, _| {
            let from = from(table)?;
            let rows = statements_of(shared, session, table).await?;
            let keys = match keys {
                Some(keys) => keys.iter().map(|key| table.fit(&table.key, key)).collect::<Result<Vec<_>>>()?,
                None => {
                    let conditions = access::conditions(table, &filters.borrowed())?;
                    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                    let found = session.query_typed(&rows.list(&conditions, Some(&from), None, limit)).await?.1;
                    read(table, found)?.into_iter().map(|row| row.key).collect()
                }
            };
            execute_each(session, &Keys::new(keys)?.chunks(), |chunk| Some(rows.retry(chunk, &from))).await
        })
        .await
    }

    /// The statements of one claim and its end, for the snapshots.
    #[cfg(feature = "faults")]
    pub async fn statements(&self) -> Result<Vec<String>> {
        self.run("statements", async |shared, session, table, _| {
            use crate::{claim::Resolution, dialect::rows::Gone};
            let rows = statements_of(shared, session, table).await?;
            let search = access::Search::new(table, &[], &[], None)?;
            let mut texts: Vec<String> = rows.finding(&search, 100).into_iter().map(|s| s.sql).collect();
            let keys = Keys::new([Value::Int(1)])?;
            let token = uuid::Uuid::nil();
            texts.push(rows.mark(&search, &keys, token, "w", std::time::Duration::from_secs(60)).sql);
            texts.push(rows.lock(&search, &keys).sql);
            texts.push(rows.claimed(&keys, token).sql);
            texts.push(rows.complete(&keys, token, &[], None).sql);
            let back =
                crate::dialect::rows::Back { delay: Some(std::time::Duration::from_secs(1)), error: Some("e"), uncount: true };
            texts.push(rows.put_back(&keys, token, &back).sql);
            texts.push(rows.still_held(&keys, token).sql);
            texts.push(rows.inspect(&keys, token).sql);
            texts.push(rows.remaining(&[]).sql);
            texts.push(rows.retry(&keys, &table.processing).sql);
            let others = [
                rows.exhaust(&keys, "e"),
                rows.fail(&keys, token, "e"),
                rows.touch(&keys, token, std::time::Duration::from_secs(60)),
                rows.stale_rows(500),
                rows.take_stale(&keys, &table.token_free, Gone::Back(None), "e"),
                rows.hold(&keys, token, "e"),
                rows.aside_of(&keys),
                rows.resolve(&keys, Resolution::Sent),
                rows.resolve(&keys, Resolution::NotSent),
            ];
            texts.extend(others.into_iter().flatten().map(|s| s.sql));
            Ok(texts)
        })
        .await
    }
}

fn read(table: &Table, found: Vec<crate::value::Row>) -> Result<Vec<ClaimedRow>> {
    let columns = rows::columns(table);
    found.into_iter().map(|row| rows::claimed(table, &columns, row)).collect()
}
