//! Servers, sessions, other people's transactions and lost answers, on a user's table: kind I of the cases.
//!
//! | case | where |
//! |---|---|
//! | 94, 95, 97, 99–103, 107, 108 | here, with 77, 109, 115, 116 on a server of its own |
//! | 91 | `adopted_claiming`: both shapes on one server |
//! | 92, 93 | a server without SKIP LOCKED is known by a probe, never by its version; none is among those tested |
//! | 96 | leases by name: `leases` |
//! | 104, 105 | `tables_refused` |
//! | 106 | PostgreSQL is not supported yet |

use super::servers::Own;
use conformance::tables::{ALL_ROLES, TARGETS, UserTable, abandon, claim, keys, mapping};
use conformance::{Db, Kind, every_database};
use rowclaim::blocking::Leased;
use rowclaim::faults::Fault;
use rowclaim::{ClaimRequest, ErrorKind, Filters, Finish, LeaseRequest, NewJob, Outcome, RowClaimRequest, Timestamp, Value};
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

every_database! {
    // 97: rows are handed out when COMMIT has come back; when it never does, there are none, and none has lost an attempt.
    fn a_claim_whose_commit_fails_hands_out_nothing("heartbeat=0", db) {
        let targets = UserTable::targets(db, 3);
        let table = targets.map(ALL_ROLES);
        db.faults.order("COMMIT", Fault::Deadlock, 0, 1_000);
        assert!(claim(&table, 3).is_empty());
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 0 AND attempts = 0 AND fence = 0 AND cron_token IS NULL"), 3);
        assert_eq!(db.number("SELECT COUNT(*) FROM {claims}"), 0);
        let other = targets.map_by(&db.another("heartbeat=0"), ALL_ROLES);
        assert!(claim(&other, 3).rows().iter().all(|row| row.attempts == 1));
    }

    // 99: each step sees what is there, not what was there when the connection was first used.
    fn a_poller_sees_rows_that_came_after_its_first_look("heartbeat=0", db) {
        let targets = UserTable::targets(db, 0);
        let table = targets.map(ALL_ROLES);
        assert!(claim(&table, 1).is_empty());
        assert!(!table.remaining(&Filters::none()).unwrap());
        targets.fill(1);
        assert!(table.remaining(&Filters::none()).unwrap());
        assert_eq!(claim(&table, 1).complete_all().unwrap(), [Finish::Accepted]);
        assert!(!table.remaining(&Filters::none()).unwrap());
        targets.run("UPDATE {t} SET status = 0, cron_token = NULL");
        assert_eq!(claim(&table, 1).len(), 1);
    }

    // 101: a write that changes nothing in its row is counted like any other.
    fn writes_of_the_value_that_is_there_already_are_counted("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let others = UserTable::new(db, "others", TARGETS);
        others.fill(1);
        let bare = "\"lease_until\":\"lease_until\",\"zone\":\"UTC\",\"registry\":\"off\"";
        let batch = claim(&targets.map(bare), 1);
        // Whole seconds: most of these write the value of the one before.
        for _ in 0..20 {
            assert!(batch.renew().unwrap());
        }
        assert!(!batch.is_lost());
        let recorded = claim(&others.map("\"claimed_at\":\"send_at\",\"recover_after\":600,\"zone\":\"UTC\""), 1);
        for _ in 0..20 {
            assert!(recorded.renew().unwrap());
        }
        let same = vec![("openid".to_owned(), Value::Text("open1".into()))];
        assert_eq!(batch.job(0).unwrap().complete_with(same, None).unwrap(), Finish::Accepted);
    }

    // 103: the answer to COMMIT is lost; what was committed is found again by the claim's token.
    fn a_lost_answer_to_a_commit_changes_no_result("heartbeat=0", db) {
        let targets = UserTable::targets(db, 6);
        let table = targets.map(ALL_ROLES);
        let lost_answer = || {
            assert_eq!(db.faults.left(), 0);
            db.faults.order("COMMIT", Fault::LostAfter, 0, 1);
        };
        lost_answer();
        let batch = claim(&table, 3);
        assert_eq!(keys(&batch), [1, 2, 3]);
        assert_eq!(db.number("SELECT COUNT(*) FROM {claims}"), 1, "one claim, not two");
        assert!(batch.rows().iter().all(|row| (row.attempts, row.fence) == (1, 1)));
        for outcome in [Outcome::Fail { error: "x".into(), delay: None }, Outcome::Release { delay: Duration::from_secs(60) }] {
            lost_answer();
            let position = if matches!(outcome, Outcome::Fail { .. }) { 0 } else { 1 };
            assert_eq!(batch.job(position).unwrap().finish(&outcome).unwrap(), Finish::Accepted);
        }
        lost_answer();
        assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted]);
        db.faults.order("", Fault::LostAfter, 0, 1);
        assert_eq!(batch.job(2).unwrap().complete().unwrap(), Finish::Accepted, "a repeat");
        assert_eq!(targets.column("attempts"), ["1", "0", "1", "0", "0", "0"]);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts}"), 2, "one end each");
    }
}

// 100: the engine's connection is its own: what another transaction does or takes back is none of its.
#[test]
fn a_transaction_of_the_application_that_is_rolled_back_takes_no_claim_with_it() {
    for kind in [Kind::MariaDb, Kind::MariaDbTokenUpdate, Kind::MySql] {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        let targets = UserTable::targets(&db, 3);
        let table = targets.map(ALL_ROLES);
        let mut raw = db.raw();
        raw.run("BEGIN");
        raw.run(&format!("INSERT INTO {} (id, openid) VALUES (4, 'not yet')", targets.name));
        let batch = claim(&table, 9);
        assert_eq!(keys(&batch), [1, 2, 3], "{}: what is not committed is not handed out", kind.name());
        raw.run("ROLLBACK");
        assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted; 3]);
        assert_eq!(targets.column("status"), ["2", "2", "2"]);
    }
}

// 107: a producer with plain SQL, workers and renewals on one file.
#[test]
fn one_file_serves_a_producer_and_workers_without_a_lock_error() {
    let Some(db) = Db::new(Kind::Sqlite, "lease=1") else { return };
    let targets = UserTable::targets(&db, 0);
    let is_over = AtomicBool::new(false);
    let (created, done): (usize, usize) = std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let mut raw = db.raw();
            let mut id = 0;
            while !is_over.load(Relaxed) {
                id += 1;
                raw.run(&format!("INSERT INTO {} (id) VALUES ({id})", targets.name));
                std::thread::sleep(Duration::from_millis(4));
            }
            id
        });
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let table = targets.map_by(&db.another("lease=1"), ALL_ROLES);
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut done = 0;
                    while !is_over.load(Relaxed) || table.remaining(&Filters::none()).unwrap() {
                        let batch = claim(&table, 5);
                        if batch.is_empty() {
                            std::thread::sleep(Duration::from_millis(20));
                            continue;
                        }
                        assert!(batch.renew().unwrap());
                        done += batch.complete_all().unwrap().len();
                    }
                    done
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(1_500));
        is_over.store(true, Relaxed);
        (producer.join().unwrap(), workers.into_iter().map(|worker| worker.join().unwrap()).sum())
    });
    assert!(created > 20, "{created}");
    assert_eq!(created, done);
}

// 108: a file that was in another journal mode, and two that claim at the same moment.
#[test]
fn two_workers_on_one_file_never_get_the_same_row() {
    let Some(db) = Db::new(Kind::Sqlite, "heartbeat=0") else { return };
    for mode in ["DELETE", "WAL"] {
        let targets = UserTable::new(&db, mode, TARGETS);
        targets.fill(60);
        db.engine.close(Duration::from_secs(1)).unwrap();
        assert_eq!(db.raw().rows(&format!("PRAGMA journal_mode = {mode}"))[0][0].as_deref(), Some(mode.to_lowercase().as_str()));
        let tables: Vec<_> = (0..2).map(|_| targets.map_by(&db.another("heartbeat=0"), ALL_ROLES)).collect();
        assert_eq!(db.raw().rows("PRAGMA journal_mode")[0][0].as_deref(), Some("wal"), "set by the engine");
        let barrier = Barrier::new(2);
        let taken: Vec<i64> = std::thread::scope(|scope| {
            let race = |table| {
                let rounds = (0..30).flat_map(|_| {
                    barrier.wait();
                    let batch = claim(table, 1);
                    let taken = keys(&batch);
                    abandon(batch);
                    taken
                });
                rounds.collect::<Vec<i64>>()
            };
            let racers: Vec<_> = tables.iter().map(|table| scope.spawn(move || race(table))).collect();
            racers.into_iter().flat_map(|racer| racer.join().unwrap()).collect()
        });
        assert_eq!((taken.len(), taken.iter().collect::<HashSet<_>>().len()), (60, 60), "{mode}");
    }
}

/// Everything a session can inherit that would change what statements mean.
const HOSTILE: [&str; 6] = [
    "SET GLOBAL sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'",
    "SET GLOBAL time_zone = '+05:30'",
    "SET GLOBAL autocommit = 0",
    "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET GLOBAL wait_timeout = 1",
    "SET GLOBAL interactive_timeout = 1",
];

fn stamped() -> String {
    TARGETS.replace("available_at DATETIME", "available_at TIMESTAMP")
}

fn fresh(own: &Own) {
    let mut raw = own.raw();
    raw.run("SET autocommit = 1");
    raw.run("DROP TABLE IF EXISTS targets");
    raw.run(&format!("CREATE TABLE targets ({}) ENGINE=InnoDB", stamped()));
    raw.run("INSERT INTO targets (id, openid) VALUES (1, 'open1'), (2, 'open2'), (3, 'open3')");
}

// 77, 109, 115, 116: the engine's sessions set what they need themselves, and leases outlive connections.
fn the_defaults_of_the_server_change_nothing(own: &Own) {
    HOSTILE.iter().for_each(|statement| own.raw().run(statement));
    own.root().migrate().unwrap();
    fresh(own);
    let engine = own.app("heartbeat=0");
    let table = engine.table("targets", &mapping(ALL_ROLES)).unwrap();
    let daily = LeaseRequest::new("daily", Duration::from_secs(60));
    let Leased::Acquired(lease) = engine.lease(&daily).unwrap() else { panic!("it is free") };
    let batch = claim(&table, 2);
    engine.create(&NewJob::new("q", r#"{"it's":"a \\ text"}"#).key("k")).unwrap();
    let jobs = engine.claim(&ClaimRequest::new("q")).unwrap();
    assert_eq!(jobs.rows()[0].payload, r#"{"it's":"a \\ text"}"#);
    let age =
        own.raw().rows("SELECT ABS(TIMESTAMPDIFF(SECOND, claimed_at, UTC_TIMESTAMP())) FROM {claims} ORDER BY id DESC LIMIT 1");
    assert!(age[0][0].as_deref().unwrap().parse::<i64>().unwrap() < 5, "{age:?}");
    // Longer than the server lets connections be idle.
    std::thread::sleep(Duration::from_millis(2_200));
    assert!(matches!(own.app("worker=second").lease(&daily).unwrap(), Leased::Busy(_)));
    assert!(matches!(engine.lease(&daily).unwrap(), Leased::Busy(_)), "not twice in one process");
    assert!(lease.renew().unwrap() && lease.release().unwrap());
    assert_eq!(jobs.complete_all().unwrap(), [Finish::Accepted]);
    // 02:30 UTC, an hour that was skipped in Berlin.
    let row = batch.job(0).unwrap();
    let skipped = Timestamp(1_774_751_400_000_000);
    assert_eq!(row.complete_with(vec![("available_at".into(), Value::At(skipped))], None).unwrap(), Finish::Accepted);
    assert_eq!(batch.job(1).unwrap().fail("it's \\ so", None).unwrap(), Finish::Accepted);
    let rows = own.raw().rows("SELECT status, UNIX_TIMESTAMP(available_at), error FROM targets ORDER BY id");
    assert_eq!(rows[0][..2], [Some("2".into()), Some("1774751400".into())]);
    assert_eq!((rows[1][0].as_deref(), rows[1][2].as_deref()), (Some("0"), Some("it's \\ so")));
}

// 95, 102: a server that does not take writes is named; when it takes them again, so do claims, and no row has failed.
fn a_read_only_server_is_named_and_waited_for(own: &Own) {
    for host in ["%", "localhost"] {
        own.raw().run(&format!("CREATE USER plain@'{host}' IDENTIFIED BY 'secret'"));
        own.raw().run(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON rowclaim_test.* TO plain@'{host}'"));
    }
    fresh(own);
    let engine = own.user("plain", "heartbeat=0");
    let table = engine.table("targets", &mapping(ALL_ROLES)).unwrap();
    let batch = claim(&table, 1);
    own.raw().run("SET GLOBAL read_only = 1");
    let error = batch.job(0).unwrap().complete().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_retryable() && error.message().contains("read-only"), "{error}");
    own.raw().run("SET GLOBAL read_only = 0");
    let since = Instant::now();
    assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted]);
    let next = claim(&table, 9);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(next.rows().iter().map(|row| row.attempts).collect::<Vec<_>>(), [1, 1]);
}

// 94: statements that a replica could not repeat are refused with the way out, not written with a warning.
fn a_statement_binlog_is_refused_with_the_way_out(own: &Own) {
    fresh(own);
    let more = "\"lease_until\":\"lease_until\",\"zone\":\"UTC\",\"registry\":\"off\"";
    own.raw().run("SET GLOBAL binlog_format = 'STATEMENT'");
    let engine = own.app("heartbeat=0&worker=by_statement");
    let error = engine.table("targets", &mapping(more)).unwrap().claim(&RowClaimRequest::new(1)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.message().contains("binlog_format is STATEMENT") && error.message().contains("ROW"), "{error}");
    own.raw().run("SET GLOBAL binlog_format = 'ROW'");
    let table = own.app("heartbeat=0&worker=by_row").table("targets", &mapping(more)).unwrap();
    assert_eq!(claim(&table, 1).len(), 1);
}

/// A server of its own is dear, so these stories share one; the most hostile comes last.
fn a_hostile_server_changes_no_result(kind: Kind) {
    let Some(own) = Own::start(kind, "hostile", &["--log-bin=x", "--server-id=1", "--binlog-format=ROW"]) else { return };
    own.root().migrate().unwrap();
    a_statement_binlog_is_refused_with_the_way_out(&own);
    a_read_only_server_is_named_and_waited_for(&own);
    the_defaults_of_the_server_change_nothing(&own);
}

#[test]
fn a_hostile_mariadb_changes_no_result() {
    a_hostile_server_changes_no_result(Kind::MariaDb);
}

#[test]
fn a_hostile_mysql_changes_no_result() {
    a_hostile_server_changes_no_result(Kind::MySql);
}
