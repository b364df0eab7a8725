//! `Rowclaim\Lease` and `Rowclaim\LeaseRecord`: a lease by name in its holder's hands, and one as it stands in the table.
//!
//! The core gives a lease back when its object goes, also at the end of the request; in a forked child it is the
//! parent's and left alone.
#![allow(non_snake_case)]

use crate::arguments::{Seconds, Text};
use crate::guard::GuardArguments;
use crate::process::gate;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::ZendHashTable;
use rowclaim::LeaseRequest;
use rowclaim::blocking::{Engine, Leased};

/// A lease that is held.
#[php_class]
#[php(name = "Rowclaim\\Lease", flags = crate::CLASS)]
pub struct Lease(rowclaim::blocking::Lease);

impl Lease {
    /// Takes a lease; `None` when somebody else holds it.
    ///
    /// # Errors
    /// As the core's `lease`.
    pub fn take(engine: &Engine, name: Text, lease: Seconds, wait: Option<Seconds>) -> PhpResult<Option<Self>> {
        let mut request = LeaseRequest::new(name.utf8("name")?, lease.span("for")?);
        if let Some(wait) = wait {
            request.wait = wait.span("wait")?;
        }
        gate(|| engine.lease(&request)).map(|leased| match leased {
            Leased::Acquired(lease) => Some(Lease(lease)),
            Leased::Busy(_) => None,
        })
    }
}

#[php_impl]
impl Lease {
    /// Its name.
    #[php(getter)]
    pub fn get_name(&self) -> String {
        self.0.name().to_owned()
    }

    /// The token of this holding as a UUID.
    #[php(getter)]
    pub fn get_token(&self) -> String {
        self.0.token().to_string()
    }

    /// A number above that of every earlier holder.
    #[php(getter)]
    pub fn get_fence(&self) -> i64 {
        self.0.fence()
    }

    /// True once a renewal was refused, or after it was released.
    #[php(getter)]
    pub fn get_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// For how many seconds it is surely held.
    #[php(getter)]
    pub fn get_valid_for(&self) -> f64 {
        self.0.valid_for().as_secs_f64()
    }

    /// Renews it now; false when it is lost. Throws `UnavailableException`.
    pub fn renew(&self) -> PhpResult<bool> {
        gate(|| self.0.renew())
    }

    /// Gives it back; false when it was lost before. Throws `UnavailableException`.
    pub fn release(&self) -> PhpResult<bool> {
        gate(|| self.0.release())
    }

    /// Makes a write with its fence; false when a later holder has written before. Throws as the engine's `guard`.
    pub fn guard(&self, table: Text, key: &ZendHashTable, set: &ZendHashTable, fenceColumn: Text) -> PhpResult<bool> {
        let write = GuardArguments { table, key, set, fence_column: fenceColumn }.write()?;
        gate(|| self.0.guard(&write))
    }
}

/// A lease as it stands in the table.
#[php_class]
#[php(name = "Rowclaim\\LeaseRecord", flags = crate::CLASS)]
pub struct LeaseRecord(pub rowclaim::LeaseRecord);

#[php_impl]
impl LeaseRecord {
    /// Its name.
    #[php(getter)]
    pub fn get_name(&self) -> String {
        self.0.name.clone()
    }

    /// Who holds or last held it.
    #[php(getter)]
    pub fn get_holder(&self) -> String {
        self.0.holder.clone()
    }

    /// The last fence.
    #[php(getter)]
    pub fn get_fence(&self) -> i64 {
        self.0.fence
    }

    /// When it was last acquired, in seconds since 1970.
    #[php(getter)]
    pub fn get_acquired_at(&self) -> f64 {
        self.0.acquired_at.as_unix_seconds()
    }

    /// Until when it is or was held, in seconds since 1970.
    #[php(getter)]
    pub fn get_lease_until(&self) -> f64 {
        self.0.lease_until.as_unix_seconds()
    }

    /// Held now.
    #[php(getter)]
    pub fn get_held(&self) -> bool {
        self.0.is_held
    }
}
