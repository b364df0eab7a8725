//! The doctor: silent where all is well, right about what is not, and never in the way.

use conformance::raw::Raw;
use conformance::tables::UserTable;
use conformance::{Db, Kind, every_database, wait_until};
use rowclaim::blocking::Engine;
use rowclaim::faults::Fault;
use rowclaim::{Config, DoctorRequest, DoctorTable, Finding, Mapping, RowClaimRequest, Severity};
use std::time::Duration;

const COLUMNS: &str = "id INTEGER NOT NULL PRIMARY KEY, task_id INT NOT NULL DEFAULT 1, status TINYINT NOT NULL DEFAULT 0, \
    cron_token VARCHAR(36) NULL, send_at DATETIME NULL, attempts INT NOT NULL DEFAULT 0, \
    available_at DATETIME NOT NULL DEFAULT '2020-01-01 00:00:00', error VARCHAR(500) NULL";
const MAPPING: &str = r#"{"status": "status", "pending": 0, "processing": 1, "done": 2, "failed": 3, "token": "cron_token",
    "claimed_at": "send_at", "attempts": "attempts", "max_attempts": 3, "available_at": "available_at", "error": "error",
    "zone": "+08:00", "recover_after": 600}"#;

/// A table as it should be, with `count` rows that wait.
fn healthy(db: &Db, count: usize) -> UserTable<'_> {
    let table = UserTable::new(db, "targets", COLUMNS);
    table.run(&format!("CREATE INDEX {}pick ON {{t}} (status, available_at)", db.prefix));
    let ids: Vec<String> = (1..=count).map(|id| format!("({id})")).collect();
    table.run(&format!("INSERT INTO {{t}} (id) VALUES {}", ids.join(",")));
    table
}

fn request(table: &UserTable) -> DoctorRequest {
    DoctorRequest::new(vec![DoctorTable::new(&table.name, Mapping::from_json(MAPPING).unwrap())])
}

fn serious(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.severity > Severity::Note).collect()
}

fn has(findings: &[Finding], severity: Severity, code: &str) -> bool {
    findings.iter().any(|finding| finding.severity == severity && finding.code == code)
}

/// The codes above a note.
fn codes(engine: &Engine, request: &DoctorRequest) -> Vec<&'static str> {
    let findings = engine.doctor(request).unwrap();
    serious(&findings).iter().map(|finding| finding.code).collect()
}

every_database! {
    fn what_nobody_knows_and_what_nobody_looks_at_is_named("heartbeat=0", db) {
        let request = rowclaim::OnceRequest::new("sms:1", "1");
        let unknown = |_: &rowclaim::blocking::Effect| rowclaim::Sent::Unknown("timed out".into());
        db.engine.once(&request, unknown, unknown).unwrap();
        db.engine.schedule(&rowclaim::ScheduleRequest::new("report", "* * * * *", "UTC")).unwrap();
        assert_eq!(codes(&db.engine, &DoctorRequest::default()), ["effects-unknown"]);
        let past = if db.is_sqlite() { "accounted_until - 3600000000" } else { "accounted_until - INTERVAL 1 HOUR" };
        db.raw().run(&format!("UPDATE {{schedules}} SET accounted_until = {past}"));
        assert_eq!(codes(&db.engine, &DoctorRequest::default()), ["effects-unknown", "schedule-unattended"]);
        db.engine.pause_schedule("report").unwrap();
        db.engine.resolve_effect("sms:1", false, None).unwrap();
        assert!(codes(&db.engine, &DoctorRequest::default()).is_empty());
    }

    fn a_healthy_database_is_silent_and_left_as_it_was("heartbeat=0", db) {
        db.fill("q", 20);
        db.claim(10).complete_all().unwrap();
        let table = healthy(db, 1_500);
        let mapped = db.engine.table(&table.name, &Mapping::from_json(MAPPING).unwrap()).unwrap();
        mapped.claim(&RowClaimRequest::new(50)).unwrap().complete_all().unwrap();
        let held = mapped.claim(&RowClaimRequest::new(20)).unwrap();
        let before = db.raw().rows(&format!("SELECT * FROM {} ORDER BY id", table.name));
        let findings = db.engine.doctor(&DoctorRequest::new(vec![(&mapped).into()])).unwrap();
        assert!(serious(&findings).is_empty(), "{findings:#?}");
        for code in ["server", "claim-shape", "claim-plan"] {
            assert!(has(&findings, Severity::Note, code), "{code}: {findings:#?}");
        }
        assert_eq!(db.raw().rows(&format!("SELECT * FROM {} ORDER BY id", table.name)), before);
        // The claim that was tried holds nothing any more.
        let engine = db.another("");
        let all = engine.table(&table.name, mapped.mapping()).unwrap().claim(&RowClaimRequest::new(10_000)).unwrap();
        assert_eq!((all.len(), held.complete_all().unwrap().len()), (1_430, 20));
    }

    fn what_was_planted_in_a_table_is_found_and_nothing_else("heartbeat=0", db) {
        let on_sqlite = db.is_sqlite();
        let drop_index = if on_sqlite { format!("DROP INDEX {}pick", db.prefix) } else { format!("DROP INDEX {}pick ON {{t}}", db.prefix) };
        let everywhere: &[(&str, &str)] = &[
            (&drop_index, "missing-index"),
            ("UPDATE {t} SET status = 9 WHERE id % 10 = 0", "unknown-status"),
            ("UPDATE {t} SET status = 1 WHERE id <= 12", "stuck-rows"),
            ("UPDATE {t} SET status = 1, send_at = '2020-01-01 00:00:00', cron_token = 'cron-7:0815' WHERE id = 5", "stuck-rows"),
        ];
        let servers: &[(&str, &str)] = &[
            ("ALTER TABLE {t} MODIFY cron_token VARCHAR(20) NULL", "token-unfit"),
            ("ALTER TABLE {t} ENGINE=MyISAM", "table-engine"),
            ("ALTER TABLE {t} MODIFY attempts TINYINT UNSIGNED NOT NULL DEFAULT 255", "attempts-near-full"),
        ];
        for (sql, code) in everywhere.iter().chain(if on_sqlite { &[] } else { servers }) {
            let table = healthy(db, 2_000);
            table.run(sql);
            if *code == "attempts-near-full" {
                table.run("UPDATE {t} SET attempts = 255 WHERE id = 3");
            }
            assert_eq!(codes(&db.engine, &request(&table)), [*code], "{sql}");
            if on_sqlite {
                // Its file, and the tables in it, end with the test only.
                table.run("DROP TABLE {t}");
            }
        }
    }

    fn rows_of_other_code_are_told_from_stuck_ones("heartbeat=0", db) {
        let table = healthy(db, 200);
        let now = if db.is_sqlite() { "datetime('now', '+8 hours')" } else { "UTC_TIMESTAMP() + INTERVAL 8 HOUR" };
        table.run(&format!("UPDATE {{t}} SET status = 1, send_at = {now} WHERE id IN (7, 8)"));
        let findings = db.engine.doctor(&request(&table)).unwrap();
        assert!(serious(&findings).is_empty(), "{findings:#?}");
        let other = findings.iter().find(|finding| finding.code == "held-by-other-code").unwrap();
        assert_eq!(other.message, "other code holds 2 rows; keys 7, 8");
    }

    fn a_table_that_cannot_be_claimed_from_is_a_finding(db) {
        let table = healthy(db, 10);
        table.run(&format!("CREATE VIEW {}seen AS SELECT * FROM {{t}}", db.prefix));
        let of = |name: &str, mapping: &str| {
            let table = DoctorTable::new(format!("{}{name}", db.prefix), Mapping::from_json(mapping).unwrap());
            codes(&db.engine, &DoctorRequest::new(vec![table]))
        };
        assert_eq!(of("seen", MAPPING), ["table-view"]);
        assert_eq!(of("gone", MAPPING), ["table-missing"]);
        assert_eq!(of("targets", &MAPPING.replace("send_at", "sent_at")), ["mapping-unfit"]);
        assert_eq!(of("targets", &MAPPING.replace("+08:00", "Moon/Crater")), ["mapping-unfit"]);
        table.run(&format!("DROP VIEW {}seen", db.prefix));
    }

    fn own_tables_that_are_not_right_are_findings_and_are_not_made("migrate=never", db) {
        db.raw().run("UPDATE {schema} SET version = 99 WHERE version = (SELECT m FROM (SELECT MAX(version) m FROM {schema}) x)");
        assert_eq!(codes(&db.engine, &DoctorRequest::default()), ["own-tables-newer"]);
        db.raw().run("DELETE FROM {schema} WHERE version > 1");
        assert_eq!(codes(&db.engine, &DoctorRequest::default()), ["own-tables-old"]);
        db.raw().drop_own_tables();
        assert_eq!(codes(&db.engine, &DoctorRequest::default()), ["own-tables-missing"]);
        assert_eq!(codes(&db.engine, &DoctorRequest::default()), ["own-tables-missing"], "it has made them");
        db.engine.migrate().unwrap();
    }

    fn claims_that_nobody_takes_back_are_named("heartbeat=0", db) {
        db.fill("q", 3);
        let claim = db.claim(3);
        db.expire();
        let findings = db.engine.doctor(&DoctorRequest::default()).unwrap();
        let [finding] = serious(&findings)[..] else { panic!("{findings:#?}") };
        assert_eq!((finding.code, finding.fix.as_deref()), ("claims-unrecovered", Some("rowclaim recover")));
        drop(claim);
    }
}

every_database! {
    fn leases_that_are_shorter_than_the_work_are_named("heartbeat=0", db) {
        let table = healthy(db, 60);
        let mapped = db.engine.table(&table.name, &Mapping::from_json(MAPPING).unwrap()).unwrap();
        for _ in 0..25 {
            mapped.claim(&RowClaimRequest::new(1)).unwrap().complete_all().unwrap();
        }
        db.engine.flush().unwrap();
        let is_closed = "SELECT COUNT(*) FROM {claims} WHERE state = 'closed'";
        wait_until("all claims are closed", || db.number(is_closed) == 25);
        assert!(codes(&db.engine, &request(&table)).is_empty());
        // As if each had run for twenty minutes.
        let later = if db.is_sqlite() { "claimed_at + 1200000000" } else { "claimed_at + INTERVAL 20 MINUTE" };
        db.raw().run(&format!("UPDATE {{claims}} SET closed_at = {later}"));
        assert_eq!(codes(&db.engine, &request(&table)), ["lease-short", "recover-after-short"]);
        db.raw().run("UPDATE {claims} SET state = 'expired' WHERE id % 2 = 0");
        assert!(codes(&db.engine, &request(&table)).contains(&"claims-expire"));
    }
}

/// An account that may only read and write the rows of one test.
fn limited(db: &Db, rights: &str, tables: &[&str]) -> (Engine, String) {
    let user = format!("{}plain", db.prefix);
    let mut raw = db.raw();
    for host in ["%", "localhost"] {
        raw.run(&format!("CREATE USER {user}@'{host}' IDENTIFIED BY 'secret'"));
        for table in tables {
            raw.run(&format!("GRANT {rights} ON {table} TO {user}@'{host}'"));
        }
    }
    let dsn = db.dsn.replace("root@", &format!("{user}:secret@"));
    (Engine::connect(&dsn).unwrap(), user)
}

fn drop_user(raw: &mut Raw, user: &str) {
    raw.run(&format!("DROP USER {user}@'%', {user}@'localhost'"));
}

#[test]
fn without_rights_it_says_less_and_never_fails() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        let table = healthy(&db, 1_500);
        let own: Vec<String> =
            db.raw().rows(&format!("SHOW TABLES LIKE '{}%'", db.prefix)).into_iter().map(|row| row[0].clone().unwrap()).collect();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let (engine, user) = limited(&db, "SELECT, INSERT, UPDATE, DELETE", &own);
        let findings = engine.doctor(&request(&table)).unwrap();
        assert!(serious(&findings).is_empty(), "{findings:#?}");
        let unseen = findings.iter().find(|finding| finding.code == "not-looked-at").unwrap();
        assert!(unseen.fix.as_deref().unwrap().starts_with(&format!("GRANT PROCESS ON *.* TO '{user}'@")), "{unseen}");
        engine.close(Duration::from_secs(1)).unwrap();
        drop_user(&mut db.raw(), &user);

        // Reading alone is not enough to claim.
        let (engine, user) = limited(&db, "SELECT", &own);
        let findings = engine.doctor(&request(&table)).unwrap();
        let lacking: Vec<&str> = serious(&findings).iter().map(|finding| finding.subject.as_str()).collect();
        assert!(
            lacking.contains(&table.name.as_str()) && serious(&findings).iter().all(|f| f.code == "rights-missing"),
            "{findings:#?}"
        );
        engine.close(Duration::from_secs(1)).unwrap();
        drop_user(&mut db.raw(), &user);

        // A right on one table that has nothing to do with it.
        let (engine, user) = limited(&db, "INSERT", &own[..1]);
        let findings = engine.doctor(&request(&table)).unwrap();
        assert!(
            has(&findings, Severity::Fault, "table-missing") || has(&findings, Severity::Fault, "mapping-unfit"),
            "{findings:#?}"
        );
        engine.close(Duration::from_secs(1)).unwrap();
        drop_user(&mut db.raw(), &user);
    }
}

#[test]
fn a_connection_that_is_lost_meanwhile_is_opened_again() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        let table = healthy(&db, 300);
        for text in ["SHOW GLOBAL STATUS", "INNODB_METRICS", "GROUP BY", "START TRANSACTION"] {
            db.faults.order(text, Fault::LostBefore, 0, 1);
            let findings = db.engine.doctor(&request(&table)).unwrap();
            assert_eq!(db.faults.left(), 0, "{text}");
            assert_eq!(findings.iter().filter(|finding| finding.code == "server").count(), 1, "{text}");
            assert!(serious(&findings).is_empty(), "{text}: {findings:#?}");
        }
    }
}

/// As a fault of the server in each look in turn: what is refused is left out.
#[test]
fn a_statement_that_is_refused_is_left_out() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        let table = healthy(&db, 300);
        for text in ["SHOW SESSION", "SHOW GLOBAL STATUS", "EXPLAIN", "INNODB_TRX", "information_schema.COLUMNS", "SKIP LOCKED"] {
            let mut config = Config::new(&db.dsn).unwrap();
            config.set("worker", text).unwrap();
            let faults = config.faults.clone();
            let engine = Engine::with_config(config).unwrap();
            faults.order(text, Fault::Deadlock, 0, 50);
            let findings = engine.doctor(&request(&table)).unwrap();
            assert!(faults.left() < 50 && has(&findings, Severity::Note, "server"), "{text}: {findings:#?}");
            engine.close(Duration::from_secs(1)).unwrap();
        }
    }
}

#[test]
fn codes_are_listed_once_and_in_order() {
    let mut sorted = Finding::CODES.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted, Finding::CODES);
}
