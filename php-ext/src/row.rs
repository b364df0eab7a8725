//! `Rowclaim\Row`: one row of a claim on a mapped table, in a worker's hands.
#![allow(non_snake_case)]

use crate::arguments::{Seconds, Text};
use crate::column_values::{array, completion, zval};
use crate::exceptions::invalid;
use crate::guard::GuardArguments;
use crate::held::{Started, failure, giving_back, rejection};
use crate::once::{OnceArguments, once_of};
use crate::receipt::Receipt;
use crate::record::{Traversable, column, is_set, iterator, json_serializable, shown};
use crate::row_claim::RowClaim;
use crate::rows::Array;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::{ZendHashTable, Zval};
use ext_php_rs::zend::ce;
use rowclaim::ClaimedRow;

/// One row of a claim.
#[php_class]
#[php(name = "Rowclaim\\Row", flags = crate::CLASS)]
#[php(implements(ce = ce::arrayaccess, stub = "\\ArrayAccess"))]
#[php(implements(ce = ce::aggregate, stub = "\\IteratorAggregate"))]
#[php(implements(ce = json_serializable, stub = "\\JsonSerializable"))]
pub struct Row {
    held: Started<ClaimedRow>,
}

impl Row {
    /// A row for PHP code.
    pub fn new(held: Started<ClaimedRow>) -> Self {
        Row { held }
    }

    /// The core's.
    pub fn core(&self) -> &rowclaim::blocking::Row {
        &self.held.inner
    }
}

#[php_impl]
#[allow(clippy::too_many_arguments)]
impl Row {
    /// The value of its key column.
    #[php(getter)]
    pub fn get_key(&self) -> PhpResult<Zval> {
        zval(&self.held.inner.key)
    }

    /// Attempts so far, this one included; 1 where they are not mapped.
    #[php(getter)]
    pub fn get_attempts(&self) -> i64 {
        self.held.inner.attempts
    }

    /// Attempts before it is failed, or null.
    #[php(getter)]
    pub fn get_max_attempts(&self) -> Option<i64> {
        self.held.inner.max_attempts
    }

    /// The fence of this claim of it; 0 where it is not mapped.
    #[php(getter)]
    pub fn get_fence(&self) -> i64 {
        self.held.inner.fence
    }

    /// Its claim's token.
    #[php(getter)]
    pub fn get_token(&self) -> Option<String> {
        self.held.token()
    }

    /// As isset of an array.
    pub fn offset_exists(&self, offset: &Zval) -> bool {
        is_set(&self.held.inner, offset)
    }

    /// A column's value as it stood when the row was claimed. `InvalidException` for one that is not there.
    pub fn offset_get(&self, offset: &Zval) -> PhpResult<Zval> {
        column(&self.held.inner, offset)
    }

    /// Throws `InvalidException`.
    #[allow(unused_variables)]
    pub fn offset_set(&self, offset: &Zval, value: &Zval) -> PhpResult<()> {
        invalid("a row is read-only; complete(set: […]) writes columns")
    }

    /// Throws `InvalidException`.
    #[allow(unused_variables)]
    pub fn offset_unset(&self, offset: &Zval) -> PhpResult<()> {
        invalid("a row is read-only; complete(set: […]) writes columns")
    }

    /// Over columns and their values, in order, for foreach.
    pub fn get_iterator(&self) -> PhpResult<Traversable> {
        iterator(&self.held.inner)
    }

    /// Its columns and their values, in order.
    pub fn to_array(&self) -> PhpResult<Array> {
        array(&self.held.inner)
    }

    /// The same.
    pub fn json_serialize(&self) -> PhpResult<Array> {
        array(&self.held.inner)
    }

    /// What `var_dump` shows.
    #[php(name = "__debugInfo")]
    pub fn debug_info(&self) -> PhpResult<Array> {
        shown(&self.held.inner, self.held.token())
    }

    /// Done, and columns of the row set in the same write; `delay` for rows that recur. False when lost. Throws
    /// `InvalidException`, naming the column; `UnavailableException`: the same call may be repeated.
    pub fn complete(&self, set: Option<&ZendHashTable>, delay: Option<Seconds>) -> PhpResult<bool> {
        self.held.finish(&completion(set, delay)?)
    }

    /// Failed; `delay` in seconds instead of the back-off. Throws as `complete`.
    pub fn fail(&self, error: &Zval, delay: Option<Seconds>) -> PhpResult<bool> {
        self.held.finish(&failure(error, delay)?)
    }

    /// Failed for good, whatever attempts are left. Throws as `complete`.
    pub fn reject(&self, error: &Zval) -> PhpResult<bool> {
        self.held.finish(&rejection(error)?)
    }

    /// Given back without blame, for `delay` seconds. Throws as `complete`.
    pub fn release(&self, delay: Option<Seconds>) -> PhpResult<bool> {
        self.held.finish(&giving_back(delay)?)
    }

    /// Has an effect happen once, and completes the row with it. Throws as the engine's `once`; `InvalidException` for rows
    /// that recur.
    #[php(optional = "ask")]
    pub fn once(
        &self,
        key: Text,
        request: &Zval,
        send: &Zval,
        ask: Option<&Zval>,
        onUnknown: Option<Text>,
        lease: Option<Seconds>,
        wait: Option<Seconds>,
    ) -> PhpResult<Receipt> {
        let arguments = OnceArguments { key, request, send, ask, on_unknown: onUnknown, lease, wait };
        once_of(|request| self.held.inner.begin_once(request), arguments)
    }

    /// Makes a write on any table with the fence of this claim of the row; false when a later owner has written before.
    /// Throws as the engine's `guard`.
    pub fn guard(&self, table: Text, key: &ZendHashTable, set: &ZendHashTable, fenceColumn: Text) -> PhpResult<bool> {
        let write = GuardArguments { table, key, set, fence_column: fenceColumn };
        self.held.guard(write)
    }

    /// True when it was finished through this claim, or its finish is on the way.
    pub fn finished(&self) -> bool {
        self.held.inner.is_finished()
    }

    /// The claim it belongs to.
    pub fn claim(&self) -> RowClaim {
        RowClaim(self.held.claim())
    }
}
