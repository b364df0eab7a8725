//! Every statement is kept as a snapshot, and none reads a whole table by accident.

use conformance::tables::{ALL_ROLES, TARGETS, UserTable};
use conformance::{Db, Kind};
use rowclaim::ClaimShape;
use rowclaim::faults::statements;
use rowclaim_migrations::Flavor;
use std::path::Path;

fn flavors() -> [(&'static str, Flavor, ClaimShape); 2] {
    [("mysql", Flavor::MySql, ClaimShape::SkipLocked), ("sqlite", Flavor::Sqlite, ClaimShape::Exclusive)]
}

/// `UPDATE_SNAPSHOTS=1` writes them anew; the difference is then read in the commit.
#[test]
fn statements_are_as_in_their_snapshots() {
    for (name, flavor, shape) in flavors() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("snapshots/{name}.sql"));
        let all = statements(flavor, shape, "rowclaim_");
        let text: String = all.iter().map(|(name, sql)| format!("-- {name}\n{sql}\n\n")).collect();
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept == text, "{name}: the statements differ from {}; look, then UPDATE_SNAPSHOTS=1", path.display());
    }
}

/// The statements on mapped tables: with every role and with the fewest.
#[test]
fn statements_on_mapped_tables_are_as_in_their_snapshots() {
    for (name, kind) in [("mysql", Kind::MariaDb), ("sqlite", Kind::Sqlite)] {
        let Some(db) = Db::new(kind, "heartbeat=0&shape=skip_locked") else { continue };
        let index = if db.is_sqlite() { "" } else { ", KEY due (status, available_at)" };
        let targets = UserTable::new(&db, "targets", &format!("{TARGETS}{index}"));
        let mut text = String::new();
        for (title, more) in [
            (
                "every role",
                format!(
                    "{ALL_ROLES},\"lease_until\":\"lease_until\",\"recover_after\":600,\"scope\":{{\"task_id\":42}},\
                     \"held\":4,\"on_lost\":\"hold\""
                ),
            ),
            ("an index that holds status and time", "\"available_at\":\"available_at\",\"zone\":\"Asia/Shanghai\"".to_owned()),
            ("only what every mapping has", String::new()),
        ] {
            text += &format!("-- {title}\n\n");
            for sql in targets.map(&more).statements().unwrap() {
                text += &format!("{}\n\n", sql.replace(&targets.name, "targets"));
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("snapshots/tables_{name}.sql"));
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept == text, "{name}: the statements differ from {}; look, then UPDATE_SNAPSHOTS=1", path.display());
    }
}

/// The text with its places filled in by something of a fitting type.
fn filled(sql: &str) -> String {
    let sql = sql.replace("{ids}", "id IN (5, 6)").replace("{list}", "'a', 'b'");
    let sql = sql
        .replace("queue = ?", "queue = 'q'")
        .replace("queue > ?", "queue > 'a'")
        .replace("name = ?", "name = 'a'")
        .replace("effect_key = ?", "effect_key = 'a'")
        .replace("task = ?", "task = 'a'")
        .replace("state = ?", "state = 'unknown'")
        .replace("slot = ?", "slot = '2026-01-01'")
        .replace("accounted_until = ?", "accounted_until = '2026-01-01'")
        .replace("accounted_until < ?", "accounted_until < '2026-01-01'")
        .replace("asked_at = ?", "asked_at = '2026-01-01'")
        .replace("token = ?", "token = '0123456789abcdef'");
    let sql = sql.replace("BETWEEN ? AND LEAST(?,", "BETWEEN '1000-01-01' AND LEAST('9999-12-31',");
    sql.replace("? IS NULL OR", "NULL IS NULL OR").replace('?', "1")
}

/// What walks a table on purpose, each by primary key and in steps, or because it was asked to.
const WALKS: [&str; 14] = [
    "list_tables",
    "list_claims",
    "count_exact",
    "prunable_jobs",
    "prunable_claims",
    "prunable_attempts",
    "list_jobs",
    "list_dead",
    "count_dead",
    "list_effects",
    "list_runs",
    "list_schedules",
    "prunable_effects",
    "prunable_runs",
];

#[test]
fn no_statement_reads_a_whole_table_by_accident() {
    for kind in [Kind::Sqlite, Kind::MariaDb, Kind::MySql] {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        db.fill("q", 3_000);
        for _ in 0..20 {
            let claim = db.claim(100);
            claim.complete_all().unwrap();
        }
        std::mem::forget(db.claim(5));
        let (_, flavor, shape) = flavors().into_iter().find(|(name, ..)| (*name == "sqlite") == db.is_sqlite()).unwrap();
        let mut raw = db.raw();
        if !db.is_sqlite() {
            raw.rows("ANALYZE TABLE {jobs}, {claims}, {attempts}");
        }
        let mut explained = 0;
        for (name, sql) in statements(flavor, shape, &db.prefix) {
            let is_fragment = !["SELECT", "UPDATE", "DELETE"].iter().any(|verb| sql.starts_with(verb));
            if is_fragment || WALKS.contains(&name) {
                continue;
            }
            explained += 1;
            // MySQL may draw trees, in which no row says ALL; MariaDB has no other format.
            let explain = match kind {
                Kind::Sqlite => "EXPLAIN QUERY PLAN",
                Kind::MySql => "EXPLAIN FORMAT=TRADITIONAL",
                _ => "EXPLAIN",
            };
            for row in raw.rows(&format!("{explain} {}", filled(&sql))) {
                let text = format!("{row:?}");
                let is_whole = if db.is_sqlite() {
                    text.contains(&format!("SCAN {}", db.prefix)) && !text.contains("USING")
                } else {
                    text.contains("Some(\"ALL\")") && !text.contains("<derived")
                };
                assert!(!is_whole, "{} {name} reads a whole table: {text}\n{sql}", kind.name());
            }
        }
        assert!(explained > 30, "{explained}");
    }
}
