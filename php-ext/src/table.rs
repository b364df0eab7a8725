//! `Rowclaim\Table`: a user's own table by a mapping.
//!
//! As `engine`: arguments become Rust values, then [`gate`] does the rest. The names of parameters are PHP's.
#![allow(non_snake_case)]

use crate::arguments::{Flag, Int, Seconds, Text, resolution};
use crate::column_values::{filters, keys, names, order, value};
use crate::held::{Batch, answers};
use crate::process::gate;
use crate::record::Record;
use crate::row_claim::RowClaim;
use crate::rows::{self, Array};
use crate::runner::Runner;
use crate::summary::Summary;
use crate::work::{Work, WorkArguments, work};
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::{ZendHashTable, Zval};
use rowclaim::{ClaimedRow, DoctorRequest, DoctorTable, Filters, RowClaimRequest, RowFilter, Value};

/// A user's own table.
#[php_class]
#[php(name = "Rowclaim\\Table", flags = crate::CLASS)]
pub struct Table {
    inner: rowclaim::blocking::Table,
}

/// What rows to put back: by key, or by conditions up to a limit.
struct Chosen {
    keys: Option<Vec<Value>>,
    filters: Filters,
    limit: usize,
}

impl Chosen {
    fn new(keys: Option<&ZendHashTable>, conditions: Option<&ZendHashTable>, limit: Option<Int>) -> PhpResult<Self> {
        // As many as `rows` lists, so that it can be seen before what is put back.
        let limit = limit.map_or_else(|| Ok(RowFilter::default().limit), |limit| limit.size("limit"))?;
        Ok(Chosen { keys: keys.map(self::keys).transpose()?, filters: filters(conditions)?, limit })
    }
}

fn count(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

impl Table {
    /// A table for PHP code.
    pub fn new(inner: rowclaim::blocking::Table) -> Self {
        Table { inner }
    }
}

#[php_impl]
#[allow(clippy::too_many_arguments)]
impl Table {
    /// Its name as it was given.
    #[php(getter)]
    pub fn get_name(&self) -> String {
        self.inner.name().to_owned()
    }

    /// Takes up to `limit` rows. Throws `InvalidException`, `ConfigException`, `SchemaException`, `UnavailableException`.
    #[php(name = "claim")]
    pub fn claim_rows(
        &self,
        limit: Option<Int>,
        r#where: Option<&ZendHashTable>,
        order: Option<&Zval>,
        lease: Option<Seconds>,
        maxRun: Option<Seconds>,
        partition: Option<&ZendHashTable>,
    ) -> PhpResult<RowClaim> {
        let mut request =
            RowClaimRequest { filters: filters(r#where)?, order: self::order(order)?, ..RowClaimRequest::default() };
        if let Some(limit) = limit {
            request.limit = limit.size("limit")?;
        }
        request.lease = lease.map(|lease| lease.span("lease")).transpose()?;
        request.max_run = maxRun.map(|span| span.span("maxRun")).transpose()?;
        request.partition = partition.map(crate::arguments::partition).transpose()?;
        gate(|| self.inner.claim(&request)).map(|claim| RowClaim(Batch::new(claim)))
    }

    /// Calls the handler for each row until a limit or a signal. Throws as the core's `work`.
    #[php(optional = "batch", defaults(untilEmpty = false))]
    pub fn work(
        &self,
        handler: &Zval,
        batch: Option<Int>,
        maxSeconds: Option<Seconds>,
        maxJobs: Option<Int>,
        untilEmpty: Flag,
        lease: Option<Seconds>,
        maxRun: Option<Seconds>,
        maxIdle: Option<Seconds>,
        finish: Option<Text>,
        r#where: Option<&ZendHashTable>,
        order: Option<&Zval>,
    ) -> PhpResult<Summary> {
        let arguments = WorkArguments {
            batch,
            max_seconds: maxSeconds,
            max_jobs: maxJobs,
            until_empty: untilEmpty,
            lease,
            max_run: maxRun,
            max_idle: maxIdle,
            finish,
        };
        let claim = RowClaimRequest { filters: filters(r#where)?, order: self::order(order)?, ..RowClaimRequest::default() };
        work(&Work::on_rows(&self.inner, handler, claim, arguments)?).map(Summary)
    }

    /// Work on rows behind an HTTP request or a crontab. Throws `InvalidException`.
    #[php(optional = "token")]
    pub fn runner(
        &self,
        handler: &Zval,
        token: Option<Text>,
        name: Option<Text>,
        batch: Option<Int>,
        maxSeconds: Option<Seconds>,
        maxJobs: Option<Int>,
        lease: Option<Seconds>,
        maxRun: Option<Seconds>,
        finish: Option<Text>,
        r#where: Option<&ZendHashTable>,
        order: Option<&Zval>,
    ) -> PhpResult<Runner> {
        let arguments = WorkArguments {
            batch,
            max_seconds: maxSeconds,
            max_jobs: maxJobs,
            until_empty: Flag(true),
            lease,
            max_run: maxRun,
            max_idle: None,
            finish,
        };
        let claim = RowClaimRequest { filters: filters(r#where)?, order: self::order(order)?, ..RowClaimRequest::default() };
        Runner::new(token, name, Work::on_rows(&self.inner, handler, claim, arguments)?)
    }

    /// Whether any row waits or is held.
    pub fn remaining(&self, r#where: Option<&ZendHashTable>) -> PhpResult<bool> {
        let filters = filters(r#where)?;
        gate(|| self.inner.remaining(&filters))
    }

    /// Looks at the server, Rowclaim's tables and this table for what is wrong, or will be; changes nothing.
    pub fn doctor(&self, filters: Option<&Zval>) -> PhpResult<Array> {
        let mut table = DoctorTable::new(self.inner.name(), self.inner.mapping().clone());
        table.filters = names("filters", filters)?;
        let request = DoctorRequest::new(vec![table]);
        Ok(rows::list(gate(|| self.inner.engine().doctor(&request))?, rows::finding)?)
    }

    /// Takes the rows of expired claims, and those that other code left, back now.
    pub fn recover(&self) -> PhpResult<Array> {
        Ok(rows::recovered(gate(|| self.inner.recover())?)?)
    }

    /// Puts failed rows back. Throws `InvalidException` for a mapping without `failed`.
    pub fn retry(&self, keys: Option<&ZendHashTable>, r#where: Option<&ZendHashTable>, limit: Option<Int>) -> PhpResult<i64> {
        let chosen = Chosen::new(keys, r#where, limit)?;
        gate(|| self.inner.retry(chosen.keys.as_deref(), &chosen.filters, chosen.limit)).map(count)
    }

    /// Takes held rows away from their owners and puts them back.
    pub fn take_back(&self, keys: Option<&ZendHashTable>, r#where: Option<&ZendHashTable>, limit: Option<Int>) -> PhpResult<i64> {
        let chosen = Chosen::new(keys, r#where, limit)?;
        gate(|| self.inner.take_back(chosen.keys.as_deref(), &chosen.filters, chosen.limit)).map(count)
    }

    /// Says of rows that wait for a person whether they were sent. Throws `InvalidException` for a mapping without `held`.
    pub fn resolve(&self, keys: &ZendHashTable, sent: Flag) -> PhpResult<Array> {
        let keys = self::keys(keys)?;
        Ok(answers::<ClaimedRow>(&keys, gate(|| self.inner.resolve(&keys, resolution(sent)))?)?)
    }

    /// Rows as they stand, in the order of their keys. Throws `InvalidException` for a wrong condition or limit.
    pub fn rows(
        &self,
        r#where: Option<&ZendHashTable>,
        status: Option<&Zval>,
        after: Option<&Zval>,
        limit: Option<Int>,
    ) -> PhpResult<Vec<Record>> {
        let given = |name: &str, given: Option<&Zval>| {
            let given = given.filter(|given| !given.dereference().is_null());
            given.map(|given| value(name, given)).transpose()
        };
        let mut filter = RowFilter { filters: filters(r#where)?, ..RowFilter::default() };
        filter.status = given("status", status)?;
        filter.after = given("after", after)?;
        if let Some(limit) = limit {
            filter.limit = limit.size("limit")?;
        }
        Ok(gate(|| self.inner.rows(&filter))?.into_iter().map(Record).collect())
    }

    /// A row as it stands, or null. Throws `InvalidException` for a key of another type.
    pub fn row(&self, key: &Zval) -> PhpResult<Option<Record>> {
        let key = value("key", key)?;
        Ok(gate(|| self.inner.row(&key))?.map(Record))
    }
}
