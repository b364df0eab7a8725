//! `Rowclaim\RowClaim`: a batch of rows of a mapped table with one token and one lease, handed out one by one.

use crate::arguments::Seconds;
use crate::column_values::{completion, keys};
use crate::held::{Batch, Held, Started, failure, giving_back, rejection};
use crate::row::Row;
use ext_php_rs::boxed::ZBox;
use ext_php_rs::convert::IntoZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::{ZendHashTable, ZendStr, Zval};
use ext_php_rs::zend::ce;
use rowclaim::{ClaimedRow, Finish, Outcome, Value};

impl Held for ClaimedRow {
    type Id = Value;

    fn id(&self) -> Value {
        self.key.clone()
    }

    fn finish(claim: &rowclaim::blocking::Claim<ClaimedRow>, keys: &[Value], outcome: &Outcome) -> rowclaim::Result<Vec<Finish>> {
        claim.finish(keys, outcome)
    }

    fn put(answers: &mut ZendHashTable, key: &Value, is_accepted: bool) -> ext_php_rs::error::Result<()> {
        match key {
            Value::Int(number) => answers.insert_at_index(*number, is_accepted),
            // As everywhere in PHP, '12' becomes 12.
            Value::Bytes(bytes) => answers.insert(&ZendStr::new(bytes, false), is_accepted),
            other => answers.insert(other.as_text().unwrap_or_default(), is_accepted),
        }
    }

    fn object(started: Started<Self>) -> ext_php_rs::error::Result<Zval> {
        Row::new(started).into_zval(false)
    }
}

/// A batch of rows.
#[php_class]
#[php(name = "Rowclaim\\RowClaim", flags = crate::CLASS)]
#[php(implements(ce = ce::iterator, stub = "\\Iterator"))]
#[php(implements(ce = ce::countable, stub = "\\Countable"))]
pub struct RowClaim(pub Batch<ClaimedRow>);

#[php_impl]
impl RowClaim {
    /// The row handed out last, or null.
    pub fn current(&self) -> Zval {
        self.0.current()
    }

    /// Its position among the rows handed out, or null.
    pub fn key(&self) -> Option<i64> {
        self.0.position()
    }

    /// Hands the next row out; renews first when the claim is not surely valid any more. Throws as the core's `next_job`.
    pub fn next(&mut self) -> PhpResult<()> {
        self.0.next()
    }

    /// Hands the first row out. `InvalidException` when it was started already.
    pub fn rewind(&mut self) -> PhpResult<()> {
        self.0.rewind()
    }

    /// Whether there is a row handed out.
    pub fn valid(&self) -> bool {
        self.0.is_valid()
    }

    /// Rows in it.
    pub fn count(&self) -> i64 {
        self.0.count()
    }

    /// True when nothing waited.
    pub fn is_empty(&self) -> bool {
        self.0.inner().is_empty()
    }

    /// Id of its row in the claims table.
    #[php(getter)]
    pub fn get_id(&self) -> Option<i64> {
        self.0.inner().id()
    }

    /// Its token as a UUID.
    #[php(getter)]
    pub fn get_token(&self) -> Option<String> {
        self.0.token()
    }

    /// True once a renewal was refused.
    #[php(getter)]
    pub fn get_lost(&self) -> bool {
        self.0.inner().is_lost()
    }

    /// For how many seconds it is surely valid.
    #[php(getter)]
    pub fn get_valid_for(&self) -> f64 {
        self.0.inner().valid_for().as_secs_f64()
    }

    /// Renews the lease now; false when it is lost. Throws `UnavailableException`.
    pub fn renew(&self) -> PhpResult<bool> {
        self.0.renew()
    }

    /// Completes rows by key, or all that are open. Throws `InvalidException` for another claim's row, and, naming the
    /// column, for what does not fit; `UnavailableException`.
    pub fn complete(
        &self,
        keys: Option<&ZendHashTable>,
        set: Option<&ZendHashTable>,
        delay: Option<Seconds>,
    ) -> PhpResult<ZBox<ZendHashTable>> {
        let outcome = completion(set, delay)?;
        let wanted = keys.map_or_else(|| Ok(self.0.open()), self::keys)?;
        self.0.finish(&wanted, &outcome)
    }

    /// Fails rows by key. Throws as `complete`.
    pub fn fail(&self, keys: &ZendHashTable, error: &Zval, delay: Option<Seconds>) -> PhpResult<ZBox<ZendHashTable>> {
        self.0.finish(&self::keys(keys)?, &failure(error, delay)?)
    }

    /// Fails rows by key for good. Throws as `complete`.
    pub fn reject(&self, keys: &ZendHashTable, error: &Zval) -> PhpResult<ZBox<ZendHashTable>> {
        self.0.finish(&self::keys(keys)?, &rejection(error)?)
    }

    /// Gives rows back by key, or all that were not started. Throws as `complete`.
    pub fn release(&self, keys: Option<&ZendHashTable>, delay: Option<Seconds>) -> PhpResult<ZBox<ZendHashTable>> {
        let outcome = giving_back(delay)?;
        let wanted = keys.map_or_else(|| Ok(self.0.unstarted()), self::keys)?;
        self.0.finish(&wanted, &outcome)
    }
}
