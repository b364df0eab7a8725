//! The server as a whole: version, claim shape, settings, clock.

use super::Finding;
use super::look::{Look, Settings, answered};
use super::replication;
use crate::config::{ClaimShape, Target};
use crate::dialect::{doctor as dialect, rows as mapped};
use crate::error::Result;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SERVER: &str = "server";
/// Payloads and bulk writes have room in a packet of this size.
const PACKET: usize = 4 << 20;

pub(super) async fn look(look: &mut Look<'_>) -> Result<()> {
    let settings = look.settings(dialect::VARIABLES).await?;
    let version = look.session.info().version.clone();
    let place = match &look.shared.config.target {
        // It shows itself without the password.
        Target::MySql(target) => format!(", {target:?}"),
        Target::Sqlite(_) => String::new(),
    };
    look.find(Finding::note("server", SERVER, format!("{version}, {}{place}", settings.text("version_comment"))));
    if let Some(row) = look.see(dialect::ACCOUNT, vec![]).await?.first() {
        let account = row.text(0)?;
        let (user, host) = account.rsplit_once('@').unwrap_or((&account, "%"));
        look.account = format!("'{user}'@'{host}'");
    }
    let session = look.settings(dialect::SESSION_VARIABLES).await?;
    let status = look.settings(dialect::STATUS).await?;
    replication::look(look, &settings, &session, &status).await?;
    shape(look).await?;
    durability(look, &settings);
    sessions(look, &settings);
    connections(look, &settings, &session, &status);
    packet(look);
    clock(look).await
}

/// How claims are made here, and why.
async fn shape(look: &mut Look<'_>) -> Result<()> {
    let is_forced = look.shared.config.shape.is_some();
    let why = if is_forced { "because shape= says so" } else { "because the server can" };
    let Ok(shape) = answered(look.shared.shape(look.session).await)? else { return Ok(()) };
    let finding = match shape {
        ClaimShape::SkipLocked => {
            Finding::note("claim-shape", SERVER, format!("claims step over rows that others hold (SKIP LOCKED), {why}"))
        }
        ClaimShape::Exclusive => Finding::note("claim-shape", SERVER, "a claim has the whole database to itself"),
        ClaimShape::TokenUpdate if is_forced => {
            Finding::note("claim-shape", SERVER, format!("claims read candidates and update them under a token, {why}"))
        }
        ClaimShape::TokenUpdate => Finding::warning("no-skip-locked", SERVER, "the server does not know SKIP LOCKED")
            .so("workers that meet at the same rows wait for each other and try again: right, but slower with many workers")
            .mend("upgrade to MySQL 8.0.1, MariaDB 10.6 or later"),
    };
    look.find(finding);
    Ok(())
}

fn durability(look: &mut Look<'_>, settings: &Settings) {
    let flush = settings.text("innodb_flush_log_at_trx_commit");
    if !matches!(flush, "1" | "") {
        look.find(
            Finding::note("flush-relaxed", SERVER, format!("innodb_flush_log_at_trx_commit is {flush}"))
                .so("a power cut may lose the last second of accepted outcomes; those rows are worked on again")
                .mend("SET GLOBAL innodb_flush_log_at_trx_commit = 1"),
        );
    }
    if settings.is_on("innodb_rollback_on_timeout") {
        look.find(
            Finding::note("rollback-on-timeout", SERVER, "innodb_rollback_on_timeout is ON")
                .so("a lock wait time-out ends the whole transaction; the engine expects that, your own transactions must too"),
        );
    }
}

/// What sessions of other code begin with. The engine sets its own.
fn sessions(look: &mut Look<'_>, settings: &Settings) {
    if settings.text("autocommit").eq_ignore_ascii_case("OFF") {
        look.find(
            Finding::warning("autocommit-off", SERVER, "autocommit is 0 for new sessions")
                .so("every session of other code opens a transaction with its first read and keeps its snapshot, which slows claims")
                .mend("SET GLOBAL autocommit = 1"),
        );
    }
    let isolation = [settings.text("transaction_isolation"), settings.text("tx_isolation")].concat().to_uppercase();
    let mend = "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED";
    if isolation == "SERIALIZABLE" {
        look.find(
            Finding::warning("isolation-serializable", SERVER, "the default isolation is SERIALIZABLE")
                .so("plain reads of other code inside of transactions lock rows, and claims wait or find fewer rows")
                .mend(mend),
        );
    }
    if isolation == "READ-UNCOMMITTED" {
        look.find(
            Finding::note("isolation-uncommitted", SERVER, "the default isolation is READ UNCOMMITTED")
                .so("other code may see a claim that is rolled back a moment later; the engine's own sessions do not")
                .mend(mend),
        );
    }
    if let Some(seconds) = settings.number("innodb_lock_wait_timeout").filter(|seconds| *seconds > 120) {
        look.find(
            Finding::note("lock-wait-long", SERVER, format!("innodb_lock_wait_timeout is {seconds} seconds"))
                .so("statements of other code wait that long for a row somebody holds; the engine's wait for lock_timeout")
                .mend("SET GLOBAL innodb_lock_wait_timeout = 50"),
        );
    }
}

fn connections(look: &mut Look<'_>, settings: &Settings, session: &Settings, status: &Settings) {
    // The background thread has a connection of its own.
    let pool = look.shared.config.pool as u64 + 1;
    let processes = look.request.processes;
    let needed = pool.saturating_mul(processes);
    let want = format!("{processes} processes with pool={} open up to {needed} connections", pool - 1);
    if let Some(limit) = session.number("max_user_connections").filter(|limit| (1..needed).contains(limit)) {
        look.find(
            Finding::warning("connections-short", SERVER, format!("the account may open {limit} connections, and {want}"))
                .so("the processes that come last cannot connect")
                .mend(format!("ALTER USER {} WITH MAX_USER_CONNECTIONS {}", look.account, needed + 10)),
        );
    }
    let (Some(limit), Some(used)) = (settings.number("max_connections"), status.number("threads_connected")) else { return };
    let mend = format!("SET GLOBAL max_connections = {}", (needed + used).max(limit) * 2);
    let so = "processes that come last cannot connect, workers and the web alike";
    if needed >= limit {
        let message = format!("max_connections is {limit}, and {want}");
        look.find(Finding::warning("connections-short", SERVER, message).so(so).mend(mend));
    } else if used * 10 >= limit * 9 {
        let message = format!("{used} of {limit} connections are open");
        look.find(Finding::warning("connections-short", SERVER, message).so(so).mend(mend));
    }
}

fn packet(look: &mut Look<'_>) {
    let packet = look.session.info().max_packet;
    if packet < PACKET {
        look.find(
            Finding::warning("packet-small", SERVER, format!("max_allowed_packet is {packet} bytes"))
                .so("payloads above it are refused, and bulk creation goes in many small statements")
                .mend("SET GLOBAL max_allowed_packet = 67108864"),
        );
    }
}

/// The only place where the clock of this machine is looked at, for people: nothing is ever compared with it.
pub(super) async fn clock(look: &mut Look<'_>) -> Result<()> {
    let here = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let before = here();
    let Ok(rows) = answered(look.session.query(&mapped::clock(look.shared.flavor())).await)? else { return Ok(()) };
    let after = here();
    let Some(there) = rows.first().and_then(|row| row.time(0).ok()) else { return Ok(()) };
    let there = Duration::from_micros(u64::try_from(there.0).unwrap_or(0));
    // Somewhere between the two readings it was the same moment.
    let (ahead, behind) = (there.saturating_sub(after), before.saturating_sub(there));
    let (apart, word) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if apart > Duration::from_secs(2) {
        let message = format!("the server's clock is {:.1} seconds {word} this machine's", apart.as_secs_f64());
        let finding = if apart > Duration::from_secs(60) {
            Finding::warning("clock-apart", SERVER, message)
        } else {
            Finding::note("clock-apart", SERVER, message)
        };
        look.find(
            finding
                .so("leases do not care; times that your code writes by its own clock, such as a next run, are early or late")
                .mend("let both follow the same NTP server"),
        );
    }
    Ok(())
}
