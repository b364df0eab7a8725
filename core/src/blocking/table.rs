//! A mapped table for synchronous callers: resolved at each call to this process's engine, as everything here.

use super::Engine;
use super::claim::Claim;
use super::registry::Local;
use crate::claim::Resolution;
use crate::engine::Recovered;
use crate::engine::table::MappedTable;
use crate::error::Result;
use crate::mapping::Mapping;
use crate::row::{ClaimedRow, Filters, RowClaimRequest, RowFilter};
use crate::value::Value;
use std::sync::Arc;
use std::time::Duration;

/// Verbs on a user's own table; cheap to clone, usable from any thread, and in a forked child.
#[derive(Clone)]
pub struct Table {
    engine: Engine,
    name: Arc<str>,
    mapping: Arc<Mapping>,
}

impl Table {
    pub(super) fn new(engine: Engine, name: &str, mapping: &Mapping) -> Result<Self> {
        let table = Table { engine, name: name.into(), mapping: Arc::new(mapping.clone()) };
        table.find()?;
        Ok(table)
    }

    /// This process's engine and its view of the table; checked against the table on first use.
    fn find(&self) -> Result<(Arc<Local>, MappedTable)> {
        let local = self.engine.local()?;
        let table = local.wait(local.engine.table(&self.name, &self.mapping))?;
        Ok((local, table))
    }

    /// The engine it belongs to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The table's name as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is mapped.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(super) fn default_lease(&self) -> Result<Duration> {
        Ok(self.find()?.1.default_lease())
    }

    /// Takes up to `limit` rows. The claim is empty when nothing waits.
    ///
    /// # Errors
    /// As [`MappedTable::claim`].
    pub fn claim(&self, request: &RowClaimRequest) -> Result<Claim<ClaimedRow>> {
        let (local, table) = self.find()?;
        let claimed = local.wait(table.claim(request))?;
        Ok(Claim::new(local, claimed))
    }

    /// See [`MappedTable::remaining`].
    ///
    /// # Errors
    /// As there.
    pub fn remaining(&self, filters: &Filters) -> Result<bool> {
        let (local, table) = self.find()?;
        local.wait(table.remaining(filters))
    }

    /// See [`MappedTable::recover`].
    ///
    /// # Errors
    /// As there.
    pub fn recover(&self) -> Result<Recovered> {
        let (local, table) = self.find()?;
        local.wait(table.recover())
    }

    /// See [`MappedTable::retry`].
    ///
    /// # Errors
    /// As there.
    pub fn retry(&self, keys: Option<&[Value]>, filters: &Filters, limit: usize) -> Result<u64> {
        let (local, table) = self.find()?;
        local.wait(table.retry(keys, filters, limit))
    }

    /// See [`MappedTable::take_back`].
    ///
    /// # Errors
    /// As there.
    pub fn take_back(&self, keys: Option<&[Value]>, filters: &Filters, limit: usize) -> Result<u64> {
        let (local, table) = self.find()?;
        local.wait(table.take_back(keys, filters, limit))
    }

    /// See [`MappedTable::resolve`].
    ///
    /// # Errors
    /// As there.
    pub fn resolve(&self, keys: &[Value], resolution: Resolution) -> Result<Vec<bool>> {
        let (local, table) = self.find()?;
        local.wait(table.resolve(keys, resolution))
    }

    /// See [`MappedTable::rows`].
    ///
    /// # Errors
    /// As there.
    pub fn rows(&self, filter: &RowFilter) -> Result<Vec<ClaimedRow>> {
        let (local, table) = self.find()?;
        local.wait(table.rows(filter))
    }

    /// See [`MappedTable::row`].
    ///
    /// # Errors
    /// As there.
    pub fn row(&self, key: &Value) -> Result<Option<ClaimedRow>> {
        let (local, table) = self.find()?;
        local.wait(table.row(key))
    }

    /// The statements it sends, for tests.
    #[cfg(feature = "faults")]
    pub fn statements(&self) -> Result<Vec<String>> {
        let (local, table) = self.find()?;
        local.wait(table.statements())
    }
}
