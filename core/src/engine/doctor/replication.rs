//! Whether what is claimed here holds everywhere: the binary log, read-only servers, replicas, clusters, proxies.

use super::Finding;
use super::look::{Look, Settings, answered};
use crate::dialect::doctor as dialect;
use crate::driver::Session;
use crate::error::Result;
use crate::plan::plain;
use crate::value::Row;
use std::collections::BTreeSet;
use std::time::Duration;

const SERVER: &str = "server";
/// Fresh connections that are asked which server they lead to.
const CONNECTIONS: usize = 3;

pub(super) async fn look(look: &mut Look<'_>, settings: &Settings, session: &Settings, status: &Settings) -> Result<()> {
    binlog(look, settings, session);
    read_only(look, settings);
    replica(look).await?;
    galera(look, settings, status);
    let is_group = !settings.text("group_replication_group_name").is_empty();
    if is_group {
        look.find(
            Finding::note("group-replication", SERVER, "the server is a member of a replication group")
                .so("a claim that collides with one on another member is rolled back at its COMMIT and tried again"),
        );
    }
    let is_cluster = is_group || settings.is_on("wsrep_on");
    several_servers(look, is_cluster).await?;
    read_write_split(look).await
}

fn binlog(look: &mut Look<'_>, settings: &Settings, session: &Settings) {
    // New sessions begin with the global value, and this one is new.
    let format = session.text("binlog_format").to_uppercase();
    if format == "STATEMENT" && (settings.is_on("log_bin") || settings.is_on("wsrep_on")) {
        look.find(
            Finding::fault("binlog-statement", SERVER, "binlog_format is STATEMENT and the binary log is on")
                .so("the engine writes under READ COMMITTED, which cannot be logged so: every write fails with error 1665")
                .mend("SET GLOBAL binlog_format = 'ROW'"),
        );
    }
}

fn read_only(look: &mut Look<'_>, settings: &Settings) {
    let names = ["super_read_only", "read_only", "innodb_read_only", "transaction_read_only", "tx_read_only"];
    if let Some(name) = names.into_iter().find(|name| settings.is_on(name)) {
        look.find(
            Finding::fault("read-only", SERVER, format!("{name} is {}", settings.text(name)))
                .so("nothing can be claimed or created here; an account that may write in spite of it writes where nobody looks")
                .mend("connect to the server that takes the writes"),
        );
    }
}

/// Only where the account may ask; that it may not is no finding.
async fn replica(look: &mut Look<'_>) -> Result<()> {
    for sql in dialect::REPLICA {
        let Ok((names, rows)) = look.ask(&plain(sql, vec![])).await? else { continue };
        let Some(row) = rows.first() else { return Ok(()) };
        let value = |wanted: [&str; 2]| {
            let at = names.iter().position(|name| wanted.iter().any(|wanted| name.eq_ignore_ascii_case(wanted)))?;
            text(row, at)
        };
        let source = value(["Source_Host", "Master_Host"]).unwrap_or_default();
        let lag =
            value(["Seconds_Behind_Source", "Seconds_Behind_Master"]).map_or("stopped".to_owned(), |s| format!("{s} s behind"));
        look.find(
            Finding::warning("replica", SERVER, format!("the server replicates from {source} ({lag})"))
                .so("rows claimed here and rows claimed there are handed out twice, and a fail-back loses what was done here")
                .mend("connect every worker to the one server that takes the writes"),
        );
        return Ok(());
    }
    Ok(())
}

fn text(row: &Row, at: usize) -> Option<String> {
    row.text(at).ok().or_else(|| row.int(at).ok().map(|number| number.to_string()))
}

fn galera(look: &mut Look<'_>, settings: &Settings, status: &Settings) {
    if !settings.is_on("wsrep_on") {
        return;
    }
    let (size, state) = (status.text("wsrep_cluster_size"), status.text("wsrep_local_state_comment"));
    let message =
        format!("a Galera node, {state}, in a cluster of {size}; wsrep_sync_wait is {}", settings.text("wsrep_sync_wait"));
    look.find(
        Finding::note("galera", SERVER, message)
            .so("a claim that collides with one on another node is rolled back at its COMMIT and tried again"),
    );
    if !status.is_on("wsrep_ready") || status.text("wsrep_cluster_status") != "Primary" {
        let part = status.text("wsrep_cluster_status");
        look.find(
            Finding::fault("galera-not-ready", SERVER, format!("the node is not ready: {state}, cluster status {part}"))
                .so("every statement fails with error 1047 until the node is in the primary component again")
                .mend("connect to another node, or bring this one back: SHOW STATUS LIKE 'wsrep%'"),
        );
    }
    let mode = settings.text("innodb_autoinc_lock_mode");
    if mode != "2" {
        look.find(
            Finding::warning("galera-autoinc", SERVER, format!("innodb_autoinc_lock_mode is {mode}"))
                .so("inserts on two nodes deadlock; Galera asks for 2")
                .mend("innodb_autoinc_lock_mode = 2 in the server's configuration file, then a restart"),
        );
    }
}

/// Which servers stand behind the address: a proxy, a DNS name with several addresses, a port forwarded now here, now there.
async fn several_servers(look: &mut Look<'_>, is_cluster: bool) -> Result<()> {
    let mut seen = BTreeSet::new();
    for _ in 0..CONNECTIONS {
        let shared = look.shared;
        let mut fresh = match shared.driver.open(&shared.config, shared.config.lock_timeout).await {
            Ok(fresh) => fresh,
            Err(error) => {
                look.find(
                    Finding::warning("connections-refused", SERVER, format!("one more connection could not be opened: {error}"))
                        .so("a process needs one for its claims and one for its heartbeat")
                        .mend("SHOW VARIABLES LIKE 'max%connections'"),
                );
                return Ok(());
            }
        };
        let identity = identity(&mut fresh).await;
        fresh.close(Duration::from_secs(1)).await;
        seen.extend(identity);
    }
    if seen.len() < 2 {
        return Ok(());
    }
    let servers: Vec<String> = seen.into_iter().collect();
    let message = format!("the address leads to {} servers: {}", servers.len(), servers.join("; "));
    look.find(if is_cluster {
        Finding::note("several-servers", SERVER, message)
            .so("rows are handed out once all the same: the cluster certifies each claim, and collisions are tried again")
    } else {
        Finding::fault("several-servers", SERVER, message)
            .so("each server hands out its own copy of a row: the same row goes to two workers")
            .mend("a DSN that leads to the one server that takes the writes")
    });
    Ok(())
}

async fn identity(session: &mut Session) -> Option<String> {
    let (_, rows) = session.query_typed(&plain(dialect::IDENTITY, vec![])).await.ok()?;
    let shown = Settings::read(&rows).shown();
    (!shown.is_empty()).then_some(shown)
}

/// A proxy that sends plain reads elsewhere than transactions.
async fn read_write_split(look: &mut Look<'_>) -> Result<()> {
    let outside = look.settings(dialect::IDENTITY).await?.shown();
    if answered(look.session.begin().await)?.is_err() {
        return Ok(());
    }
    let inside = look.settings(dialect::IDENTITY).await?.shown();
    look.session.rollback().await?;
    if outside != inside {
        look.find(
            Finding::warning("read-write-split", SERVER, format!("plain reads go to {outside}, transactions to {inside}"))
                .so("candidates and counts are read where they are late: claims come back empty though rows wait")
                .mend("a rule of the proxy that sends this account's statements to the writer only"),
        );
    }
    Ok(())
}
