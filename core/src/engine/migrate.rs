//! Making and upgrading the tables, under a lock, as often as anyone likes.

use super::{Engine, Shared};
use crate::dialect;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::plain;
use crate::value::Value;
use rowclaim_migrations::{Flavor, Names};
use std::time::Duration;

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; 0 when there were no tables.
    pub from: i64,
    /// The version now.
    pub to: i64,
}

impl Engine {
    /// Brings the tables to the newest version. Two processes at once: one applies, the other waits and finds nothing to do.
    ///
    /// # Errors
    /// `Schema` when the tables are newer than this code; `Config` without the rights; `Unavailable`.
    pub async fn migrate(&self) -> Result<Migrated> {
        let work = async {
            let mut session = self.shared.session().await?;
            let migrated = apply(&self.shared, &mut session).await?;
            self.shared.give_back(session);
            Ok(migrated)
        };
        work.await.map_err(|e: Error| e.during("migrate"))
    }

    /// The SQL of the whole schema, for people who apply it with their own tool.
    pub fn schema_sql(&self) -> String {
        self.shared.names.fill(self.shared.flavor().schema())
            + &format!("\n{};\n{};\n", self.shared.names.fill(self.shared.flavor().ledger()), ledger_rows(&self.shared))
    }
}

/// What tells the engine that a hand-made schema is complete.
fn ledger_rows(shared: &Shared) -> String {
    let now = dialect::clock(shared.flavor());
    let rows = shared.flavor().migrations().iter();
    let rows: Vec<String> = rows.map(|m| format!("({}, '{}', {now})", m.version, m.name)).collect();
    shared.names.fill(&format!("INSERT INTO {{schema}} (version, name, applied_at) VALUES {}", rows.join(", ")))
}

async fn version(shared: &Shared, session: &mut Session) -> Result<i64> {
    let rows = session.query(&plain(&shared.names.fill("SELECT COALESCE(MAX(version), 0) FROM {schema}"), vec![])).await?;
    rows.first().map_or(Ok(0), |row| row.int(0))
}

/// # Errors
/// `Schema` when the tables are missing, older or newer.
pub(super) async fn check_version(shared: &Shared, session: &mut Session) -> Result<()> {
    let newest = shared.flavor().newest();
    let found = match version(shared, session).await {
        Err(error) if error.kind() == ErrorKind::Schema => {
            return Err(Error::new(
                ErrorKind::Schema,
                format!(
                    "the tables with the prefix {} are missing; run `rowclaim migrate` or call migrate()",
                    shared.config.prefix.as_str()
                ),
            ));
        }
        other => other?,
    };
    if found < newest {
        return Err(Error::new(
            ErrorKind::Schema,
            format!("the tables are at version {found} and this code needs {newest}; run `rowclaim migrate` or call migrate()"),
        ));
    }
    check_not_newer(found, newest)
}

fn check_not_newer(found: i64, newest: i64) -> Result<()> {
    if found > newest {
        return Err(Error::new(
            ErrorKind::Schema,
            format!("the tables are at version {found}, newer than the {newest} of this code; upgrade Rowclaim"),
        ));
    }
    Ok(())
}

pub(super) async fn apply(shared: &Shared, session: &mut Session) -> Result<Migrated> {
    match shared.flavor() {
        Flavor::MySql => apply_locked(shared, session).await,
        Flavor::Sqlite => {
            // Looked at without the write lock first: every connect comes through here.
            if let Ok(found) = version(shared, session).await
                && found >= shared.flavor().newest()
            {
                check_not_newer(found, shared.flavor().newest())?;
                return Ok(Migrated { from: found, to: found });
            }
            begin(session).await?;
            let migrated = steps(shared, session).await;
            match migrated {
                Ok(_) => session.commit().await?,
                Err(_) => session.rollback().await?,
            }
            migrated
        }
    }
}

/// Waits for another process that migrates the same file.
async fn begin(session: &mut Session) -> Result<()> {
    for _ in 0..30 {
        match session.begin().await {
            Err(error) if error.kind() == ErrorKind::Contention => tokio::time::sleep(Duration::from_millis(50)).await,
            other => return other,
        }
    }
    session.begin().await
}

/// DDL commits by itself on MySQL: a named lock keeps two processes apart, and each step can be repeated.
async fn apply_locked(shared: &Shared, session: &mut Session) -> Result<Migrated> {
    let name = format!("rowclaim_migrate_{}", shared.config.prefix.as_str());
    let lock = plain("SELECT GET_LOCK(CONCAT(LEFT(?, 40), CRC32(DATABASE())), 30)", vec![name.as_str().into()]);
    let got = session.query(&lock).await?;
    if got.first().map_or(Ok(0), |row| row.int(0))? != 1 {
        return Err(Error::new(ErrorKind::Contention, "another process is migrating for more than 30 seconds"));
    }
    let migrated = steps(shared, session).await;
    let unlock = plain("SELECT RELEASE_LOCK(CONCAT(LEFT(?, 40), CRC32(DATABASE())))", vec![name.as_str().into()]);
    session.query(&unlock).await?;
    migrated
}

async fn steps(shared: &Shared, session: &mut Session) -> Result<Migrated> {
    let flavor = shared.flavor();
    session.run_text(&shared.names.fill(flavor.ledger())).await?;
    let from = version(shared, session).await?;
    check_not_newer(from, flavor.newest())?;
    for migration in flavor.migrations().iter().filter(|m| m.version > from) {
        for sql in Names::statements(&shared.names, migration.text) {
            match session.run_text(&sql).await {
                // A step that was cut off: what it had added is there already.
                Err(error) if error.kind() == ErrorKind::Duplicate => {}
                other => other?,
            }
        }
        let sql = format!("INSERT INTO {{schema}} (version, name, applied_at) VALUES (?, ?, {})", dialect::clock(flavor));
        let values: Vec<Value> = vec![migration.version.into(), migration.name.into()];
        session.execute(&plain(&shared.names.fill(&sql), values)).await?;
        log::info!("applied migration {} {}", migration.version, migration.name);
    }
    Ok(Migrated { from, to: flavor.newest() })
}
