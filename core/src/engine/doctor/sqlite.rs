//! An SQLite file: whether it can be written, and how.

use super::Finding;
use super::look::Look;
use super::server::clock;
use crate::config::Target;
use crate::dialect::doctor as dialect;
use crate::error::{ErrorKind, Result};
use crate::value::Row;

const SERVER: &str = "server";

pub(super) async fn look(look: &mut Look<'_>) -> Result<()> {
    let version = look.session.info().version.clone();
    let place = match &look.shared.config.target {
        Target::Sqlite(Some(path)) => path.display().to_string(),
        _ => "in memory".to_owned(),
    };
    look.find(Finding::note("server", SERVER, format!("{version}, {place}")));
    look.find(Finding::note("claim-shape", SERVER, "a claim has the whole database to itself"));
    let [journal, synchronous] = dialect::SQLITE_PRAGMAS;
    let is_file = !matches!(look.shared.config.target, Target::Sqlite(None));
    let mode = look.see(journal, vec![]).await?.first().and_then(|row| row.text(0).ok()).unwrap_or_default();
    if is_file && !mode.eq_ignore_ascii_case("wal") {
        look.find(
            Finding::warning(
                "sqlite-journal",
                SERVER,
                format!("the journal mode is {mode}, and the file would not change to WAL"),
            )
            .so("readers and writers lock each other out; a file on a network drive is not safe at all")
            .mend("move the file to a local disk"),
        );
    }
    // 2 is FULL, 3 EXTRA.
    let level = look.see(synchronous, vec![]).await?.first().and_then(|row: &Row| row.int(0).ok());
    if is_file && level.is_some_and(|level| level < 2) {
        look.find(
            Finding::note("sqlite-synchronous", SERVER, "commits do not wait for the disk (synchronous=normal)")
                .so("a power cut may lose the last accepted outcomes; those rows are worked on again")
                .mend("synchronous=full in the DSN"),
        );
    }
    writable(look).await?;
    clock(look).await
}

/// Writes in a transaction that is rolled back: a file that can only be read says so no earlier.
async fn writable(look: &mut Look<'_>) -> Result<()> {
    let written = async {
        look.session.begin().await?;
        look.session.run_text(dialect::SQLITE_WRITE).await
    };
    let written = written.await;
    look.session.rollback().await?;
    match written {
        Ok(()) => {}
        // Another process writes: so the file can be written.
        Err(error) if error.kind() == ErrorKind::Contention => {}
        Err(error) => look.find(
            Finding::fault("read-only", SERVER, format!("the file cannot be written: {}", error.message()))
                .so("nothing can be claimed or created")
                .mend("write permission on the file and its folder for the user of the workers"),
        ),
    }
    Ok(())
}
