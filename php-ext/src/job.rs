//! `Rowclaim\Job`: one job of a claim, in a worker's hands.
#![allow(non_snake_case)]

use crate::arguments::{Seconds, Text};
use crate::claim::Claim;
use crate::guard::GuardArguments;
use crate::held::{Started, failure, giving_back, rejection};
use crate::once::{OnceArguments, once_of};
use crate::receipt::Receipt;
use crate::values::from_json;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::{ZendHashTable, Zval};
use rowclaim::{ClaimedJob, Outcome};
use std::cell::OnceCell;

/// One job of a claim.
#[php_class]
#[php(name = "Rowclaim\\Job", flags = crate::CLASS)]
pub struct Job {
    held: Started<ClaimedJob>,
    payload: OnceCell<Zval>,
}

impl Job {
    /// A job for PHP code.
    pub fn new(held: Started<ClaimedJob>) -> Self {
        Job { held, payload: OnceCell::new() }
    }

    /// The core's.
    pub fn core(&self) -> &rowclaim::blocking::Job {
        &self.held.inner
    }
}

#[php_impl]
#[allow(clippy::too_many_arguments)]
impl Job {
    /// The job's id.
    #[php(getter)]
    pub fn get_id(&self) -> i64 {
        self.held.inner.id
    }

    /// Its queue.
    #[php(getter)]
    pub fn get_queue(&self) -> String {
        self.held.inner.queue.clone()
    }

    /// Its business key as given.
    #[php(getter)]
    pub fn get_key(&self) -> Option<String> {
        self.held.inner.key.clone()
    }

    /// Its payload, decoded once. Throws `DecodeException`.
    #[php(getter)]
    pub fn get_payload(&self) -> PhpResult<Zval> {
        if let Some(payload) = self.payload.get() {
            return Ok(payload.shallow_clone());
        }
        let payload = from_json("the payload cannot be read by PHP; rawPayload has its text", &self.held.inner.payload)?;
        Ok(self.payload.get_or_init(|| payload).shallow_clone())
    }

    /// Its payload as JSON text, byte for byte.
    #[php(getter)]
    pub fn get_raw_payload(&self) -> String {
        self.held.inner.payload.clone()
    }

    /// Attempts so far, this one included.
    #[php(getter)]
    pub fn get_attempts(&self) -> i64 {
        self.held.inner.attempts
    }

    /// Attempts before it is dead.
    #[php(getter)]
    pub fn get_max_attempts(&self) -> i64 {
        self.held.inner.max_attempts
    }

    /// How often a lease on it ran out.
    #[php(getter)]
    pub fn get_lost(&self) -> i64 {
        self.held.inner.lost
    }

    /// The fence of this claim of it.
    #[php(getter)]
    pub fn get_fence(&self) -> i64 {
        self.held.inner.fence
    }

    /// Smaller runs first.
    #[php(getter)]
    pub fn get_priority(&self) -> i64 {
        self.held.inner.priority
    }

    /// Its claim's token.
    #[php(getter)]
    pub fn get_token(&self) -> Option<String> {
        self.held.token()
    }

    /// When it was created, in seconds since 1970.
    #[php(getter)]
    pub fn get_created_at(&self) -> f64 {
        self.held.inner.created_at.as_unix_seconds()
    }

    /// Done; false when lost. Throws `UnavailableException`: the same call may be repeated.
    pub fn complete(&self) -> PhpResult<bool> {
        self.held.finish(&Outcome::Complete)
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

    /// Has an effect happen once, and completes the job with it. Throws as the engine's `once`.
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

    /// Makes a write on any table with the fence of this claim of the job; false when a later owner has written before.
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
    pub fn claim(&self) -> Claim {
        Claim(self.held.claim())
    }
}
