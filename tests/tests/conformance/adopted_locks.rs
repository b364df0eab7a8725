//! Deadlocks, lock waits, and how much is locked in a user's table: kind B of the cases.
//!
//! | case | where |
//! |---|---|
//! | 11, 14–18, 20, 24 | here; the number of locked rows in every shape and with every index: `locks` |
//! | 12, 13, 21 | `tables` |
//! | 22 | creating is for jobs: `create` |
//! | 23 | leases by name: `leases` |

use conformance::tables::{ALL_ROLES, TARGETS, UserTable, abandon, claim, keys};
use conformance::{Db, Kind, every_database};
use rowclaim::blocking::Table;
use rowclaim::faults::statements;
use rowclaim::{ClaimShape, Filters, Finish, Outcome, RowClaimRequest, Value};
use rowclaim_migrations::Flavor;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The rows come back at once.
fn at_once() -> String {
    ALL_ROLES
        .replace("\"backoff_base\":60", "\"backoff_base\":0,\"backoff_cap\":0")
        .replace("\"max_attempts\":3", "\"max_attempts\":99")
}

/// `count` workers with engines of their own, at once, each until its work is done.
fn crowd(db: &Db, targets: &UserTable, count: usize, more: &str, work: impl Fn(usize, &Table) + Sync) {
    let barrier = Barrier::new(count);
    std::thread::scope(|scope| {
        for number in 0..count {
            let table = targets.map_by(&db.another("heartbeat=0"), more);
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                work(number, &table);
            });
        }
    });
}

fn until_all_done(table: &Table, mut step: impl FnMut()) {
    let since = Instant::now();
    while table.remaining(&Filters::none()).unwrap() {
        assert!(since.elapsed() < Duration::from_secs(40), "rows are left");
        step();
    }
}

every_database! {
    // 11: sweepers beside claims; whoever comes second leaves a row to the first.
    fn workers_that_recover_before_each_claim_meet_no_error("heartbeat=0", db) {
        let targets = UserTable::targets(db, 240);
        let table = targets.map(&at_once());
        for _ in 0..6 {
            abandon(claim(&table, 10));
        }
        db.expire();
        let recovered = AtomicBool::new(false);
        crowd(db, &targets, 10, &at_once(), |_, table| {
            until_all_done(table, || {
                let found = table.recover().unwrap();
                recovered.fetch_or(found.returned > 0, Relaxed);
                for answer in claim(table, 3).complete_all().unwrap() {
                    assert_eq!(answer, Finish::Accepted);
                }
            });
        });
        assert!(recovered.load(Relaxed));
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 2 AND attempts = 1"), 180);
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 2 AND attempts = 2"), 60, "each recovered once");
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'lost'"), 60);
    }

    // 14
    fn workers_that_complete_a_part_and_release_the_rest_meet_no_error("heartbeat=0", db) {
        let targets = UserTable::new(db, "targets", TARGETS);
        targets.run("CREATE INDEX {t}_i ON {t} (status)");
        targets.run("CREATE INDEX {t}_j ON {t} (cron_token)");
        targets.fill(1_000);
        crowd(db, &targets, 12, "\"attempts\":\"attempts\"", |_, table| {
            until_all_done(table, || {
                let batch = claim(table, 25);
                let done: Vec<Value> = batch.rows().iter().take(20).map(|row| row.key.clone()).collect();
                if !done.is_empty() {
                    assert!(batch.finish(&done, &Outcome::Complete).unwrap().iter().all(|answer| *answer == Finish::Accepted));
                    assert_eq!(batch.release_unstarted().unwrap(), batch.len() - done.len());
                }
            });
        });
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 2 AND attempts = 1"), 1_000);
    }

    // 16
    fn twenty_workers_over_rows_due_at_the_same_instant_meet_no_error("heartbeat=0", db) {
        let targets = UserTable::targets(db, 300);
        targets.run("UPDATE {t} SET available_at = '2020-01-01 00:00:00'");
        crowd(db, &targets, 20, ALL_ROLES, |_, table| {
            until_all_done(table, || {
                assert!(claim(table, 5).complete_all().unwrap().iter().all(|answer| *answer == Finish::Accepted));
            });
        });
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 2 AND attempts = 1"), 300);
    }

    // 17: the application goes on inserting, with plain SQL that retries nothing.
    fn producers_and_workers_of_one_table_meet_no_error("heartbeat=0", db) {
        let key = if db.is_sqlite() { "id INTEGER NOT NULL PRIMARY KEY" } else { "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY" };
        let columns = TARGETS.replace("id INTEGER NOT NULL PRIMARY KEY", key);
        let targets = UserTable::new(db, "orders", &columns);
        targets.run("CREATE INDEX {t}_i ON {t} (status, priority)");
        let is_over = AtomicBool::new(false);
        let inserted: usize = std::thread::scope(|scope| {
            let produce = |number: usize| {
                let mut raw = db.raw();
                let mut inserted = 0;
                while !is_over.load(Relaxed) {
                    raw.run(&format!("INSERT INTO {} (openid) VALUES ('{number}-{inserted}')", targets.name));
                    inserted += 1;
                }
                inserted
            };
            let producers: Vec<_> = (0..3).map(|number| scope.spawn(move || produce(number))).collect();
            let until = Instant::now() + Duration::from_millis(1_200);
            crowd(db, &targets, 5, "\"attempts\":\"attempts\"", |_, table| {
                while Instant::now() < until {
                    assert!(claim(table, 7).complete_all().unwrap().iter().all(|answer| *answer == Finish::Accepted));
                }
            });
            is_over.store(true, Relaxed);
            producers.into_iter().map(|producer| producer.join().unwrap()).sum()
        });
        let table = targets.map("\"attempts\":\"attempts\"");
        until_all_done(&table, || drop(claim(&table, 1_000).complete_all().unwrap()));
        assert!(inserted > 10, "{inserted}");
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 2 AND attempts = 1") as usize, inserted);
    }

    // 18: whatever the order of the caller.
    fn many_rows_are_released_and_taken_back_by_three_at_once_in_any_order("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1_500);
        crowd(db, &targets, 3, "\"attempts\":\"attempts\"", |number, table| {
            let request = RowClaimRequest { partition: Some((number as i64, 3)), ..RowClaimRequest::new(500) };
            let mut left: Vec<Value> = Vec::new();
            let batch = loop {
                let batch = table.claim(&request).unwrap();
                if !batch.is_empty() {
                    break batch;
                }
            };
            // A row that another one was just looking at may be left out.
            assert!(batch.len() > 400, "{}", batch.len());
            left.extend(batch.rows().iter().map(|row| row.key.clone()));
            fastrand::shuffle(&mut left);
            let answers = batch.finish(&left, &Outcome::Release { delay: Duration::ZERO }).unwrap();
            assert_eq!(answers, vec![Finish::Accepted; batch.len()]);
        });
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 0 AND cron_token IS NULL AND attempts = 0"), 1_500);
        abandon(claim(&targets.map(""), 1_500));
        let counts = std::sync::Mutex::new(0);
        crowd(db, &targets, 3, "", |_, table| {
            let mut all: Vec<Value> = (1..=1_500).map(Value::Int).collect();
            fastrand::shuffle(&mut all);
            *counts.lock().unwrap() += table.take_back(Some(&all), &Filters::none(), 10).unwrap();
        });
        assert_eq!(*counts.lock().unwrap(), 1_500, "each row once");
    }

    // 20: an application, or a person, holds a row for longer than the lock wait.
    fn a_row_that_is_locked_for_long_is_claimed_when_it_is_let_go("heartbeat=0&lock_timeout=1", db) {
        let targets = UserTable::targets(db, 1);
        let table = targets.map("\"attempts\":\"attempts\"");
        let mut raw = db.raw();
        if db.is_sqlite() {
            raw.run("BEGIN IMMEDIATE");
        } else {
            raw.run("BEGIN");
            raw.rows(&format!("SELECT id FROM {} FOR UPDATE", targets.name));
        }
        let is_free = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let poller = scope.spawn(|| loop {
                let batch = claim(&table, 1);
                if !batch.is_empty() {
                    assert!(is_free.load(Relaxed), "it was locked");
                    return batch.rows()[0].attempts;
                }
                std::thread::sleep(Duration::from_millis(20));
            });
            // Longer than one wait for the lock, and than SQLite's.
            std::thread::sleep(Duration::from_millis(1_300));
            assert!(!poller.is_finished());
            is_free.store(true, Relaxed);
            raw.run("COMMIT");
            let since = Instant::now();
            assert_eq!(poller.join().unwrap(), 1, "the tries cost no attempt");
            assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        });
    }
}

/// A claim for whose commit the others should not have to wait, and what they did meanwhile.
fn held_open<R>(db: &Db, table: &Table, limit: usize, meanwhile: impl FnOnce() -> R) -> (Vec<i64>, R) {
    let take = || {
        let batch = claim(table, limit);
        let keys = keys(&batch);
        abandon(batch);
        keys
    };
    let (keys, (answer, pauses_left)) = db.while_a_claim_is_open(take, || (meanwhile(), db.faults.left()));
    assert!(pauses_left > 0, "somebody waited for it");
    (keys, answer)
}

// 15: the claim of another one that is still open is stepped over at once.
#[test]
fn a_claim_does_not_wait_for_the_open_claim_of_another() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        for (name, index) in [("indexed", ", KEY (status, available_at)"), ("bare", "")] {
            let targets = UserTable::new(&db, name, &format!("{TARGETS}{index}"));
            targets.fill(2_000);
            targets.run("UPDATE {t} SET available_at = '2020-01-01 00:00:00'");
            let more = "\"available_at\":\"available_at\",\"zone\":\"UTC\"";
            let (first, second) = (targets.map(more), targets.map_by(&db.another("heartbeat=0"), more));
            assert!(second.claim(&RowClaimRequest::new(1).equal("id", Value::Int(0))).unwrap().is_empty());
            let (taken, next) = held_open(&db, &first, 5, || keys(&claim(&second, 5)));
            assert_eq!(taken, [1, 2, 3, 4, 5], "{}, {name}", kind.name());
            // Without an index that gives them in order, the batch may be smaller, and is looked for further on.
            assert!(!next.is_empty() && next.iter().all(|key| *key > 5), "{}, {name}: {next:?}", kind.name());
            if name == "indexed" {
                assert_eq!(next, [6, 7, 8, 9, 10], "{}", kind.name());
            }
        }
    }
}

// 24: no statement locks a table, and the application's own statements go on while a claim is open.
#[test]
fn the_application_works_on_its_tables_while_a_claim_is_open() {
    let all = [(Flavor::MySql, ClaimShape::SkipLocked), (Flavor::MySql, ClaimShape::TokenUpdate)];
    let mut texts: Vec<String> =
        all.iter().flat_map(|(flavor, shape)| statements(*flavor, *shape, "x_")).map(|(_, sql)| sql).collect();
    for kind in [Kind::MariaDb, Kind::MariaDbTokenUpdate, Kind::MySql] {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        let targets = UserTable::targets(&db, 10);
        let notes = UserTable::new(&db, "notes", "id INT NOT NULL PRIMARY KEY, text VARCHAR(20) NULL");
        let table = targets.map(ALL_ROLES);
        texts.extend(table.statements().unwrap());
        let (taken, ()) = held_open(&db, &table, 3, || {
            let mut raw = db.raw();
            raw.run("SET SESSION innodb_lock_wait_timeout = 1");
            raw.run(&format!("INSERT INTO {} VALUES (1, 'mine')", notes.name));
            raw.run(&format!("INSERT INTO {} (id, openid) VALUES (11, 'new')", targets.name));
            raw.run(&format!("UPDATE {} SET result = 'mine' WHERE id = 9", targets.name));
            assert_eq!(raw.rows(&format!("SELECT text FROM {}", notes.name))[0][0].as_deref(), Some("mine"));
        });
        assert_eq!(taken, [1, 2, 3], "{}", kind.name());
    }
    assert!(texts.len() > 60, "{}", texts.len());
    for text in texts {
        let text = text.to_uppercase();
        assert!(!text.contains("LOCK TABLE") && !text.contains("GET_LOCK") && !text.contains("WITH READ LOCK"), "{text}");
    }
}
