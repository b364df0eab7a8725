//! Attempts, back-off and rows that harm their workers, in a user's table: kind E of the cases.
//!
//! | case | where |
//! |---|---|
//! | 52, 53, 55, 56, 57, 60, 61, 83 | here |
//! | 54 | `tables`; the numbers of the curve: unit tests of the back-off |
//! | 58 | the engine has no timer of its own that could fire: the time of a handler is the bindings' |
//! | 82, 84–89 | payloads are of jobs; values of columns: the bindings' tests of table values |

use conformance::tables::{ALL_ROLES, TARGETS, UserTable, abandon, claim, keys};
use conformance::{Db, Kind, every_database, wait_until};
use rowclaim::{ErrorKind, Filters, Finish, Outcome, RowClaimRequest, Value};
use std::process::Command;
use std::time::Duration;

every_database! {
    // 53: a row that kills its process ends after its attempts.
    fn a_row_that_kills_its_worker_is_started_as_often_as_it_may_be("heartbeat=0&lease=1", db) {
        let targets = UserTable::targets(db, 1);
        let more = ALL_ROLES.replace("\"backoff_base\":60", "\"backoff_base\":0,\"backoff_cap\":0");
        let mapping = conformance::tables::mapping(&more).to_json();
        let table = targets.map(&more);
        let mut starts = 0;
        while table.remaining(&Filters::none()).unwrap() {
            let worker = Command::new(env!("CARGO_BIN_EXE_worker"))
                .args([db.dsn.as_str(), "/dev/null", "poison", targets.name.as_str(), mapping.as_str()])
                .output()
                .unwrap();
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(worker.status.signal(), Some(9), "{}", String::from_utf8_lossy(&worker.stderr));
            starts += 1;
            assert!(starts <= 3, "endless");
            db.expire();
            table.recover().unwrap();
        }
        assert_eq!(starts, 3);
        assert_eq!((targets.column("status"), targets.column("attempts")), (vec!["3".into()], vec!["3".into()]));
        assert_eq!(targets.column("error"), ["lease expired"]);
    }

    // 55
    fn failures_wait_for_the_back_off_of_the_mapping("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let more = ALL_ROLES.replace("\"backoff_base\":60", "\"backoff_base\":10,\"backoff_cap\":30").replace("\"max_attempts\":3", "\"max_attempts\":9");
        let table = targets.map(&more);
        let wait = if db.is_sqlite() {
            "SELECT CAST(ROUND((julianday(available_at) - julianday('now', '+8 hours')) * 86400) AS INTEGER) FROM {t}"
        } else {
            "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP() + INTERVAL 8 HOUR, available_at) FROM {t}"
        };
        for (attempt, seconds) in [(1, 10), (2, 20), (3, 30), (4, 30)] {
            let batch = claim(&table, 1);
            assert_eq!(batch.rows()[0].attempts, attempt);
            assert_eq!(batch.job(0).unwrap().fail("no answer", None).unwrap(), Finish::Accepted);
            let waits = targets.number(wait);
            assert!((seconds - 1..=seconds + 1).contains(&waits), "attempt {attempt}: {waits} s");
            assert!(claim(&table, 1).is_empty());
            targets.run("UPDATE {t} SET available_at = '2020-01-01 00:00:00'");
        }
    }

    // 57: bytes, emoji and length that the column cannot keep do not keep the failure from being written.
    fn a_failure_is_written_whatever_its_text("heartbeat=0", db) {
        let narrow = if db.is_sqlite() { "VARCHAR(100)" } else { "VARCHAR(100) CHARACTER SET latin1" };
        let targets = UserTable::new(db, "narrow", &TARGETS.replace("error VARCHAR(100)", &format!("error {narrow}")));
        targets.fill(2);
        let table = targets.map("\"error\":\"error\"");
        let batch = claim(&table, 2);
        let text = format!("{} \u{1f389} \0{}", String::from_utf8_lossy(b"\xff\xfe"), "x".repeat(2 << 20));
        assert_eq!(batch.job(0).unwrap().fail(text, None).unwrap(), Finish::Accepted);
        assert_eq!(batch.job(1).unwrap().complete().unwrap(), Finish::Accepted, "the worker goes on");
        assert_eq!(targets.column("status"), ["3", "2"]);
        let stored = &targets.column("error")[0];
        assert!(stored.contains(" xxx") || stored.contains("?xxx") || stored.contains("\u{fffd}xxx"), "{stored}");
        assert!(stored.chars().count() == 100 || db.is_sqlite(), "cut to the column");
    }

    // 60
    fn three_people_retry_the_same_failed_rows_and_each_comes_back_once("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1_000);
        targets.run("UPDATE {t} SET status = 3, attempts = 3, error = 'no answer', finished_at = '2020-01-01 00:00:00'");
        targets.run("UPDATE {t} SET task_id = 2 WHERE id > 900");
        let retried: u64 = std::thread::scope(|scope| {
            let people: Vec<_> = (0..3)
                .map(|_| {
                    let table = targets.map_by(&db.another("heartbeat=0"), ALL_ROLES);
                    scope.spawn(move || table.retry(None, &Filters::none().equal("task_id", Value::Int(1)), 10_000).unwrap())
                })
                .collect();
            people.into_iter().map(|person| person.join().unwrap()).sum()
        });
        assert_eq!(retried, 900);
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 0 AND attempts = 0 AND finished_at IS NULL"), 900);
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 3"), 100);
    }

    // 61: a held row is put back only by force, and its owner is refused from then on.
    fn a_held_row_is_put_back_by_force_only("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let table = targets.map(ALL_ROLES);
        let first = claim(&table, 1);
        assert_eq!(table.retry(Some(&[Value::Int(1)]), &Filters::none(), 1).unwrap(), 0, "it is held");
        assert_eq!(targets.column("status"), ["1"]);
        assert_eq!(table.take_back(Some(&[Value::Int(1)]), &Filters::none(), 1).unwrap(), 1);
        let second = claim(&table, 1);
        assert!(second.rows()[0].fence > first.rows()[0].fence);
        assert_eq!(first.complete_all().unwrap(), [Finish::Lost]);
        assert_eq!(second.complete_all().unwrap(), [Finish::Accepted]);
        assert_eq!(first.job(0).unwrap().fail("late", None).unwrap(), Finish::Lost);
        assert_eq!((targets.column("status"), targets.column("error")), (vec!["2".into()], vec!["-".into()]), "one end");
    }

    // 83: what does not fit is refused before it is sent, and the row can still be completed.
    fn a_result_that_does_not_fit_its_column_is_refused_before_it_is_written("heartbeat=0", db) {
        if db.is_sqlite() {
            return;
        }
        let targets = UserTable::new(db, "short", &TARGETS.replace("result VARCHAR(64)", "result TEXT"));
        targets.fill(1);
        let batch = claim(&targets.map(ALL_ROLES), 1);
        let row = batch.job(0).unwrap();
        let set = |length: usize| vec![("result".to_owned(), Value::Text("x".repeat(length)))];
        let error = row.complete_with(set(70_000), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("column result takes at most 65535 bytes"), "{error}");
        assert_eq!(targets.column("status"), ["1"]);
        assert_eq!(row.complete_with(set(65_535), None).unwrap(), Finish::Accepted);
        assert_eq!(targets.number("SELECT LENGTH(result) FROM {t}"), 65_535);
    }

    // 52: where rows never fail, a full counter stays full and the row goes on.
    fn a_full_counter_of_rows_that_never_fail_stays_full("heartbeat=0", db) {
        if db.is_sqlite() {
            return;
        }
        let targets = UserTable::new(db, "endless", &TARGETS.replace("attempts INT", "attempts TINYINT UNSIGNED"));
        targets.fill(2);
        targets.run("UPDATE {t} SET attempts = 255 WHERE id = 1");
        let json = "{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":2,\"token\":\"cron_token\",\"attempts\":\"attempts\",\
            \"backoff_base\":0,\"backoff_cap\":0}";
        let table = targets.try_map(json).unwrap();
        for expected in ["1", "2"] {
            let batch = claim(&table, 2);
            assert_eq!(keys(&batch), [1, 2]);
            assert_eq!(targets.column("attempts"), ["255", expected]);
            abandon(batch);
            db.expire();
            assert_eq!(table.recover().unwrap().returned, 2);
        }
    }
}

/// A row with something in it that cannot be read, before five good ones.
fn the_good_rows_run(db: &Db, targets: &UserTable, more: &str) {
    let table = targets.map(more);
    let mut done = 0;
    wait_until("the good rows are done", || {
        // What is wrong with the first may be said, once or each time; the others must not wait for it.
        if let Ok(batch) = table.claim(&RowClaimRequest::new(6)) {
            for row in batch.rows() {
                let bad = row.key == Value::Int(1);
                let outcome = if bad { Outcome::Fail { error: "unreadable".into(), delay: None } } else { Outcome::Complete };
                done += usize::from(!bad);
                batch.finish(std::slice::from_ref(&row.key), &outcome).unwrap();
            }
        }
        done == 5 || targets.column("status")[1..].iter().all(|status| status == "2")
    });
    assert_eq!(targets.column("status")[1..], ["2"; 5], "{}", db.kind.name());
}

// 56: SQLite keeps bytes that are no text in a text column.
#[test]
fn a_row_that_cannot_be_read_does_not_keep_the_others() {
    let Some(db) = Db::new(Kind::Sqlite, "heartbeat=0") else { return };
    let targets = UserTable::targets(&db, 6);
    targets.run("UPDATE {t} SET openid = CAST(X'ff' AS TEXT) WHERE id = 1");
    the_good_rows_run(&db, &targets, ALL_ROLES);
}

// 56: and text in a column of numbers.
#[test]
fn a_row_whose_counter_is_no_number_does_not_keep_the_others() {
    let Some(db) = Db::new(Kind::Sqlite, "heartbeat=0") else { return };
    let targets = UserTable::targets(&db, 6);
    targets.run("UPDATE {t} SET attempts = 'many' WHERE id = 1");
    the_good_rows_run(&db, &targets, ALL_ROLES);
}

// 53: a counter that nobody has set is none yet.
#[test]
fn a_row_whose_counter_is_null_is_served_like_the_others() {
    for kind in [Kind::Sqlite, Kind::MariaDb, Kind::MariaDbTokenUpdate, Kind::MySql] {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        let targets = UserTable::new(
            &db,
            "unset",
            &TARGETS
                .replace("attempts INT NOT NULL DEFAULT 0", "attempts INT NULL")
                .replace("fence BIGINT NOT NULL DEFAULT 0", "fence BIGINT NULL"),
        );
        targets.fill(2);
        let table = targets.map(&ALL_ROLES.replace("\"backoff_base\":60", "\"backoff_base\":0,\"backoff_cap\":0"));
        for attempt in 1..=3 {
            let batch = claim(&table, 2);
            let counted: Vec<(i64, i64)> = batch.rows().iter().map(|row| (row.attempts, row.fence)).collect();
            assert_eq!(counted, [(attempt, attempt); 2], "{}", kind.name());
            for position in 0..2 {
                assert_eq!(batch.job(position).unwrap().fail("again", Some(Duration::ZERO)).unwrap(), Finish::Accepted);
            }
        }
        assert_eq!(targets.column("status"), ["3", "3"], "{}", kind.name());
    }
}
