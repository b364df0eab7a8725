//! What is wrong, or will be, with a server, the own tables and mapped tables: findings where other verbs have errors.
//!
//! Nothing is changed. The only locks are those of one claim on each mapped table, which is rolled back at once; workers
//! step over them. A look that the user has no right for, or that the server does not know, is left out and never an error.
//! The one thing to know: every look ends at a number of rows, so this is cheap on a table of any size.

mod claims;
mod contents;
mod finding;
mod index;
mod ledger;
mod load;
mod locks;
mod look;
mod own;
mod replication;
mod server;
mod sqlite;
mod table;

pub use finding::{Finding, Severity};

use super::Engine;
use super::table::MappedTable;
use crate::error::Result;
use crate::mapping::Mapping;
use look::Look;
use rowclaim_migrations::Flavor;
use std::time::Duration;

/// A mapped table to look at, whether or not the mapping fits.
#[derive(Clone, Debug)]
pub struct DoctorTable {
    /// `table` or `database.table`.
    pub name: String,
    /// How it is mapped.
    pub mapping: Mapping,
    /// Columns that claims filter by with an equality, beside the mapping's scope: the index has to have them too.
    pub filters: Vec<String>,
}

impl DoctorTable {
    /// A table whose claims use no filter.
    pub fn new(name: impl Into<String>, mapping: Mapping) -> Self {
        DoctorTable { name: name.into(), mapping, filters: Vec::new() }
    }
}

impl From<&MappedTable> for DoctorTable {
    fn from(table: &MappedTable) -> Self {
        DoctorTable::new(table.name(), table.mapped.mapping.clone())
    }
}

/// What the doctor is to look at.
#[derive(Clone, Debug)]
pub struct DoctorRequest {
    /// Mapped tables, beside the server and the own tables.
    pub tables: Vec<DoctorTable>,
    /// Processes that will have an engine like this one at the same time: their connections must fit.
    pub processes: u64,
    /// A transaction that is open for longer is named.
    pub long_transaction: Duration,
}

impl Default for DoctorRequest {
    fn default() -> Self {
        DoctorRequest { tables: Vec::new(), processes: 16, long_transaction: Duration::from_secs(60) }
    }
}

impl DoctorRequest {
    /// The server, the own tables, and these.
    pub fn new(tables: Vec<DoctorTable>) -> Self {
        DoctorRequest { tables, ..DoctorRequest::default() }
    }
}

impl Engine {
    /// Looks at the server, the own tables and mapped tables; what is so, in this order. Changes nothing, makes no tables.
    ///
    /// # Errors
    /// `Unavailable` when the server cannot be reached or goes away; `Config` when it refuses the user or the database.
    pub async fn doctor(&self, request: &DoctorRequest) -> Result<Vec<Finding>> {
        self.run_without_tables("doctor", async |shared, session, _| {
            let mut look = Look::new(shared, session, request);
            match shared.flavor() {
                Flavor::MySql => {
                    server::look(&mut look).await?;
                    load::look(&mut look).await?;
                }
                Flavor::Sqlite => sqlite::look(&mut look).await?,
            }
            if look.has_found(&["galera-not-ready"]) {
                // Such a node answers nothing else.
                return Ok(look.end());
            }
            if own::look(&mut look).await? {
                claims::look(&mut look).await?;
                ledger::look(&mut look).await?;
            }
            for table in &request.tables {
                table::look(&mut look, table).await?;
            }
            Ok(look.end())
        })
        .await
    }
}
