//! Leases of rows of a user's table, late owners, and what comes back after a crash: kinds C and D of the cases.
//!
//! | case | where |
//! |---|---|
//! | 25, 26, 28, 30, 32, 35, 36, 38, 40–42, 45–47 (and with it 29), 49, 51 | here; of 46 also `heartbeat` |
//! | 27, 31, 34, 39, 43 | `tables` |
//! | 37 | the interpreter lock is the bindings': their tests of processes |
//! | 44 | the life of a key is a job's: `create` |
//! | 48 | runs have tables of their own; a row left in `processing` is 34 |
//! | 50 | real signals: `processes` |

use conformance::tables::{ALL_ROLES, TARGETS, UserTable, abandon, claim, keys};
use conformance::{Db, every_database, wait_until};
use rowclaim::blocking::{Handled, Table, WorkRequest};
use rowclaim::faults::Fault;
use rowclaim::{ClaimName, Filters, Finish, Outcome, Recovered, RowClaimRequest, Value};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const IN_ROW: &str = "\"lease_until\":\"lease_until\",\"zone\":\"UTC\",\"registry\":\"off\"";

/// Lost rows come back at once.
fn at_once() -> String {
    ALL_ROLES.replace("\"backoff_base\":60", "\"backoff_base\":0,\"backoff_cap\":0")
}

/// Times with milliseconds, on every database.
const WITH_MILLISECONDS: &str = "\"lease_until\":\"until_ms\",\"available_at\":\"due_ms\",\"unit\":\"milliseconds\"";

fn with_milliseconds(db: &Db) -> UserTable<'_> {
    let columns = "id INTEGER NOT NULL PRIMARY KEY, openid VARCHAR(20) NULL, status INT NOT NULL DEFAULT 0, \
        cron_token VARCHAR(40) NULL, until_ms BIGINT NULL, due_ms BIGINT NULL";
    UserTable::new(db, "precise", columns)
}

fn returned(rows: u64) -> Recovered {
    Recovered { claims: u64::from(rows > 0), returned: rows, dead: 0, ..Recovered::default() }
}

every_database! {
    // 25: with the heartbeat a row longer than its lease is started once.
    fn a_row_that_takes_longer_than_its_lease_is_started_once("lease=1&heartbeat=1", db) {
        let targets = UserTable::targets(db, 1);
        let (table, other) = (targets.map(&at_once()), targets.map_by(&db.another(""), &at_once()));
        let batch = claim(&table, 1);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(1_800) {
            assert!(claim(&other, 1).is_empty());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted]);
        assert_eq!((targets.column("status"), targets.column("fence")), (vec!["2".into()], vec!["1".into()]));
    }

    // 25: without it the second result counts, and the first is refused.
    fn without_renewal_only_the_second_owners_result_is_kept("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let (table, other) = (targets.map(&at_once()), targets.map_by(&db.another("heartbeat=0"), &at_once()));
        let late = claim(&table, 1);
        db.expire();
        other.recover().unwrap();
        let owner = claim(&other, 1);
        let result = |text: &str| vec![("result".to_owned(), Value::Text(text.into()))];
        assert_eq!(late.job(0).unwrap().complete_with(result("first"), None).unwrap(), Finish::Lost);
        assert_eq!(owner.job(0).unwrap().complete_with(result("second"), None).unwrap(), Finish::Accepted);
        assert_eq!(late.job(0).unwrap().complete_with(result("first"), None).unwrap(), Finish::Lost);
        assert_eq!(targets.column("result"), ["second"]);
    }

    // 26: each kind of row has the lease of its own mapping.
    fn rows_of_a_short_kind_come_back_while_those_of_a_long_one_are_held("heartbeat=0", db) {
        let targets = UserTable::targets(db, 6);
        let of_kind = |kind: i64, lease: i64| {
            targets.map(&format!("{},\"scope\":{{\"task_id\":{kind}}},\"lease\":{lease}", at_once()))
        };
        targets.run("UPDATE {t} SET task_id = id % 2");
        let (fast, slow) = (of_kind(1, 5), of_kind(0, 900));
        abandon(claim(&fast, 9));
        abandon(claim(&slow, 9));
        let lease = |kind: i64| {
            let claims = db.engine.claims(&rowclaim::ClaimFilter::default()).unwrap();
            let claim = &claims[usize::from(kind == 1)];
            claim.lease_until.0 - claim.claimed_at.0
        };
        assert_eq!((lease(1), lease(0)), (5_000_000, 900_000_000));
        // Both workers died six seconds ago.
        let ago = if db.is_sqlite() { "lease_until - 6000000" } else { "lease_until - INTERVAL 6 SECOND" };
        db.raw().run(&format!("UPDATE {{claims}} SET lease_until = {ago}"));
        assert_eq!(fast.recover().unwrap(), returned(3));
        assert_eq!(targets.column("status"), ["0", "1", "0", "1", "0", "1"]);
        let ago = if db.is_sqlite() { "lease_until - 900000000" } else { "lease_until - INTERVAL 900 SECOND" };
        db.raw().run(&format!("UPDATE {{claims}} SET lease_until = {ago} WHERE state = 'open'"));
        assert_eq!(slow.recover().unwrap(), returned(3));
    }

    // 28: a paused owner that resumes, again and again: one end for each fence, never two at once.
    fn an_owner_that_resumes_late_again_and_again_ends_nothing("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let json = "{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":0,\"token\":\"cron_token\",\
            \"available_at\":\"available_at\",\"zone\":\"UTC\",\"fence\":\"fence\",\"backoff_base\":0,\"backoff_cap\":0}";
        let table = targets.try_map(json).unwrap();
        let soon = Some(Duration::ZERO);
        for round in 0..10 {
            let late = claim(&table, 1);
            db.expire();
            assert_eq!(table.recover().unwrap(), returned(1));
            let owner = claim(&table, 1);
            assert_eq!((late.rows()[0].fence, owner.rows()[0].fence), (2 * round + 1, 2 * round + 2));
            assert_eq!(late.job(0).unwrap().complete_with(vec![], soon).unwrap(), Finish::Lost);
            assert!(claim(&table, 1).is_empty(), "one at a time");
            assert_eq!(owner.job(0).unwrap().complete_with(vec![], soon).unwrap(), Finish::Accepted);
            assert_eq!(late.job(0).unwrap().complete_with(vec![], soon).unwrap(), Finish::Lost);
        }
        let ends = |outcome: &str| db.number(&format!("SELECT COUNT(DISTINCT fence) FROM {{attempts}} WHERE outcome = '{outcome}'"));
        assert_eq!((ends("completed"), ends("lost")), (10, 10));
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts}"), 20, "one end for each fence");
    }

    // 30: a worker that is told to stop keeps the row in its hand until it is done.
    fn the_row_in_hand_keeps_its_lease_while_the_worker_stops("lease=1&heartbeat=1", db) {
        let targets = UserTable::targets(db, 3);
        let (table, other) = (targets.map(&at_once()), targets.map_by(&db.another(""), &at_once()));
        let request = WorkRequest::new(RowClaimRequest::new(3));
        let summary = table.work(&request, |_| {
            request.stop.store(true, SeqCst);
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(1_500) {
                assert_eq!(other.recover().unwrap(), Recovered::default());
                std::thread::sleep(Duration::from_millis(50));
            }
            Handled::As(Outcome::Complete)
        }).unwrap();
        assert_eq!((summary.completed, summary.released, summary.lost), (1, 2, 0));
        assert_eq!(targets.column("status"), ["2", "0", "0"]);
    }

    // 32: a worker that is started again under its name neither owns nor renews what it held before.
    fn a_restarted_worker_of_the_same_name_does_not_keep_its_orphans("lease=1&heartbeat=1&worker=web-1", db) {
        let targets = UserTable::targets(db, 4);
        let dead = targets.map_by(&db.another("heartbeat=0&worker=web-1"), &at_once());
        abandon(claim(&dead, 3));
        let table = targets.map(&at_once());
        let own = claim(&table, 1);
        assert_eq!(keys(&own), [4]);
        let mut back = 0;
        wait_until("the orphans come back", || {
            back += table.recover().unwrap().returned;
            back == 3
        });
        assert!(own.renew().unwrap());
        assert_eq!(targets.column("status"), ["0", "0", "0", "1"]);
    }

    // 35: the limit may be in the row; the last attempt that is lost is the end of the row.
    fn the_last_attempt_that_is_lost_ends_the_row_with_its_reason("heartbeat=0", db) {
        let columns = format!("{TARGETS}, most INT NOT NULL DEFAULT 3");
        let targets = UserTable::new(db, "limited", &columns);
        targets.fill(2);
        targets.run("UPDATE {t} SET most = 0 WHERE id = 2");
        let table = targets.map(&at_once().replace("\"max_attempts\":3", "\"max_attempts\":\"most\""));
        for attempt in 1..=3 {
            let batch = claim(&table, 2);
            assert!(batch.rows().iter().all(|row| row.attempts == attempt));
            assert_eq!((batch.rows()[0].max_attempts, batch.rows()[1].max_attempts), (Some(3), None), "0 is no limit");
            abandon(batch);
            db.expire();
            let dead = u64::from(attempt == 3);
            assert_eq!(table.recover().unwrap(), Recovered { claims: 1, returned: 2 - dead, dead, ..Recovered::default() });
        }
        assert_eq!(targets.column("status"), ["3", "0"], "nothing stays held");
        assert_eq!(targets.column("attempts"), ["3", "3"]);
        assert_eq!(targets.column("error"), ["lease expired", "lease expired"]);
        assert_eq!(targets.column("locked_by"), ["-", "-"]);
        assert_eq!(keys(&claim(&table, 9)), [2]);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE row_key = '1' AND outcome = 'lost' AND final = 1"), 1);
    }

    // 36: a handler that hangs does not hold its row for ever, with a record and without.
    fn no_renewal_goes_past_max_run("lease=1&heartbeat=1", db) {
        let (recorded, bare) = (UserTable::targets(db, 1), UserTable::new(db, "bare", TARGETS));
        bare.fill(1);
        let (first, second) = (recorded.map(""), bare.map(IN_ROW));
        let request = RowClaimRequest { max_run: Some(Duration::from_millis(1_500)), ..RowClaimRequest::new(1) };
        let since = Instant::now();
        let hanging = [first.claim(&request).unwrap(), second.claim(&request).unwrap()];
        wait_until("the recorded row comes back", || first.recover().unwrap().returned == 1);
        let after = since.elapsed();
        assert!((1_400..6_000).contains(&after.as_millis()), "{after:?}");
        wait_until("the other row comes back", || second.recover().unwrap().returned == 1);
        // Whole seconds, rounded away from now: up to a lease and a second past the last renewal.
        assert!(since.elapsed() < Duration::from_secs(9), "{:?}", since.elapsed());
        for claim in hanging {
            wait_until("the handle knows", || claim.is_lost());
            assert_eq!(claim.job(0).unwrap().complete().unwrap(), Finish::Lost);
        }
        assert_eq!(bare.column("status"), ["0"]);
    }

    // 38: taken away by a person: known within one renewal, nothing further is started, nothing is written.
    fn a_worker_whose_claim_was_taken_away_stops("lease=1&heartbeat=1", db) {
        let recorded = UserTable::targets(db, 3);
        let bare = UserTable::new(db, "bare", TARGETS);
        bare.fill(3);
        let batches = [claim(&recorded.map(ALL_ROLES), 3), claim(&bare.map(IN_ROW), 3)];
        batches.iter().for_each(|batch| assert!(batch.next_job().unwrap().is_some()));
        let since = Instant::now();
        assert!(db.engine.end_claim(ClaimName::Token(batches[0].token().unwrap())).unwrap());
        bare.run("UPDATE {t} SET status = 0, cron_token = NULL, lease_until = NULL");
        for (batch, targets) in batches.iter().zip([&recorded, &bare]) {
            wait_until("the handle knows", || batch.is_lost());
            assert!(batch.next_job().unwrap().is_none(), "no further row is started");
            let answer = batch.job(0).unwrap().complete_with(vec![("result".into(), Value::Text("late".into()))], None).unwrap();
            assert_eq!(answer, Finish::Lost);
            assert_eq!(targets.column("result"), ["-", "-", "-"]);
        }
        assert!(since.elapsed() < Duration::from_secs(3), "a beat comes each third of a second: {:?}", since.elapsed());
    }

    // 40: with a record and without, and of rows that other code holds: not a second too early.
    fn nothing_is_taken_back_before_its_time("heartbeat=0", db) {
        let targets = UserTable::targets(db, 3);
        let table = targets.map(&at_once());
        abandon(claim(&table, 3));
        for (seconds, rows) in [(60, 0), (2, 0), (-1, 3)] {
            db.leases_end_in(seconds);
            assert_eq!(table.recover().unwrap(), returned(rows), "{seconds} s left");
        }
        let shifted = |zone: i64, seconds: i64| match db.is_sqlite() {
            true => format!("datetime('now', '{} seconds')", zone + seconds),
            false => format!("UTC_TIMESTAMP() + INTERVAL {} SECOND", zone + seconds),
        };
        let bare = UserTable::new(db, "bare", TARGETS);
        bare.fill(3);
        let by_lease = bare.map(IN_ROW);
        abandon(claim(&by_lease, 3));
        for (seconds, rows) in [(60, 0), (2, 0), (-1, 3)] {
            bare.run(&format!("UPDATE {{t}} SET lease_until = {}", shifted(0, seconds)));
            assert_eq!(by_lease.recover().unwrap(), returned(rows), "{seconds} s left");
        }
        let of_others = bare.map(&format!("{},\"recover_after\":60", at_once()));
        for (seconds, rows) in [(0, 0), (-58, 0), (-62, 3)] {
            bare.run(&format!("UPDATE {{t}} SET status = 1, cron_token = 'host:1', send_at = {}", shifted(8 * 3_600, seconds)));
            assert_eq!(of_others.recover().unwrap(), returned(rows), "claimed {seconds} s ago");
        }
    }

    // 41: the tail of a batch is not started in the hands of a worker whose time is over.
    fn past_its_time_no_row_is_started_without_a_renewal("lease=1&heartbeat=0", db) {
        let targets = UserTable::targets(db, 3);
        let table = targets.map(&at_once());
        let batch = claim(&table, 3);
        assert!(batch.next_job().unwrap().is_some());
        wait_until("its time is over", || batch.valid_for().is_zero());
        assert!(batch.next_job().unwrap().is_some(), "nobody took the rows: the renewal succeeds");
        assert!(!batch.valid_for().is_zero());
        wait_until("its time is over", || batch.valid_for().is_zero());
        db.expire();
        assert_eq!(table.recover().unwrap(), returned(3));
        assert!(batch.next_job().unwrap().is_none());
        let again = claim(&table, 3);
        assert_eq!(again.rows().iter().map(|row| row.attempts).collect::<Vec<_>>(), [2, 2, 2]);
    }

    // 41: with the heartbeat a long batch is worked off by its one owner.
    fn the_rows_of_a_long_batch_wait_for_their_worker("lease=1&heartbeat=1", db) {
        let targets = UserTable::targets(db, 6);
        let (table, other) = (targets.map(&at_once()), targets.map_by(&db.another(""), &at_once()));
        let mut request = WorkRequest::new(RowClaimRequest::new(6));
        request.until_empty = true;
        let summary = table.work(&request, |_| {
            assert!(claim(&other, 6).is_empty());
            std::thread::sleep(Duration::from_millis(300));
            Handled::As(Outcome::Complete)
        }).unwrap();
        assert_eq!((summary.completed, summary.lost), (6, 0));
        assert_eq!(targets.column("fence"), ["1"; 6]);
    }

    // 42: the end of a lease is computed by the database in the statement, so a pause before it costs the owner nothing,
    // and what the process believes ends before that.
    fn a_pause_before_the_claim_does_not_shorten_its_lease("heartbeat=0&lease=5", db) {
        let targets = with_milliseconds(db);
        targets.run("INSERT INTO {t} (id) VALUES (1)");
        for more in [WITH_MILLISECONDS.to_owned(), format!("{WITH_MILLISECONDS},\"registry\":\"off\"")] {
            let table = targets.map(&more);
            drop(claim(&table, 1));
            let text = if db.is_sqlite() { "UPDATE \"" } else { "UPDATE `" };
            db.faults.order(text, Fault::Pause, 0, 1);
            let before = db.clock();
            let batch = claim(&table, 1);
            assert_eq!((batch.len(), db.faults.left()), (1, 0), "the pause was in it");
            let until = targets.number("SELECT until_ms FROM {t}") * 1_000;
            assert!(until >= before + 5_450_000, "{} of 5.5 s", until - before);
            let believed = db.clock() + batch.valid_for().as_micros() as i64;
            assert!(believed < until - 950_000, "believed {believed}, true {until}");
        }
    }

    // 45: rows with a time are not taken early, and then once.
    fn a_row_with_a_time_is_started_once_when_it_has_come("heartbeat=0", db) {
        let targets = with_milliseconds(db);
        let due = db.clock() / 1_000 + 500;
        targets.run(&format!("INSERT INTO {{t}} (id, due_ms) VALUES (1, {due})"));
        let starts = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let table = targets.map_by(&db.another("heartbeat=0"), WITH_MILLISECONDS);
                let starts = &starts;
                scope.spawn(move || {
                    while db.clock() / 1_000 < due + 300 {
                        let batch = claim(&table, 1);
                        if !batch.is_empty() {
                            starts.lock().unwrap().push(db.clock() / 1_000);
                            abandon(batch);
                        }
                    }
                });
            }
        });
        let starts = starts.into_inner().unwrap();
        assert_eq!(starts.len(), 1, "{starts:?}");
        assert!(starts[0] >= due, "{} ms early", due - starts[0]);
    }

    // 46
    fn a_renewal_after_the_last_finish_is_quiet("lease=1&heartbeat=1", db) {
        let targets = UserTable::targets(db, 12);
        let batch = claim(&targets.map(""), 12);
        let since = Instant::now();
        while let Some(row) = batch.next_job().unwrap() {
            assert_eq!(row.complete().unwrap(), Finish::Accepted);
            std::thread::sleep(Duration::from_millis(35));
        }
        assert!(since.elapsed() > Duration::from_millis(350), "at least one beat fell into it");
        db.engine.flush().unwrap();
        assert!(!batch.is_lost());
    }

    // 29, 47: the connection is gone in the middle of a row; the row comes back by itself, and its history says why.
    fn a_row_whose_outcome_never_arrived_comes_back_with_its_history("heartbeat=0", db) {
        let targets = UserTable::targets(db, 2);
        let table = targets.map(&at_once());
        let batch = claim(&table, 1);
        db.faults.order("UPDATE", Fault::LostBefore, 0, 100);
        assert!(batch.job(0).unwrap().complete().unwrap_err().is_retryable());
        let name = ClaimName::Token(batch.token().unwrap());
        abandon(batch);
        let healthy = targets.map_by(&db.another("heartbeat=0"), &at_once());
        assert_eq!(claim(&healthy, 1).complete_all().unwrap(), [Finish::Accepted], "other rows go on");
        db.expire();
        assert_eq!(healthy.recover().unwrap(), returned(1));
        let second = claim(&healthy, 1);
        assert_eq!((keys(&second), second.rows()[0].attempts), (vec![1], 2));
        assert_eq!(second.complete_all().unwrap(), [Finish::Accepted]);
        let ends = |name| db.another("heartbeat=0").claim_record(name).unwrap().unwrap().1;
        assert_eq!(ends(name)[0].end, "lost");
        assert_eq!(ends(ClaimName::Token(second.token().unwrap()))[0].end, "completed");
    }

    // 49, 51: a row that stands for a key: whoever dies with it holds it until the lease ends, and nobody else after that.
    fn a_dead_holder_blocks_its_key_for_one_lease_and_then_one_goes_on("heartbeat=0", db) {
        let tasks = UserTable::targets(db, 11);
        let of = |engine: &rowclaim::blocking::Engine| tasks.map_by(engine, &at_once());
        let task = RowClaimRequest { lease: Some(Duration::from_secs(1)), ..RowClaimRequest::new(1) }.equal("id", Value::Int(1));
        abandon(of(&db.engine).claim(&task).unwrap());
        let until = db.engine.claims(&rowclaim::ClaimFilter::default()).unwrap()[0].lease_until.0;
        // A dead holder of one key does not count for the others.
        assert_eq!(keys(&claim(&of(&db.engine), 1)), [2]);
        let (inside, most, starts) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let table: Table = of(&db.another("heartbeat=0"));
                let (inside, most, starts, task) = (&inside, &most, &starts, &task);
                scope.spawn(move || {
                    let since = Instant::now();
                    while starts.load(SeqCst) < 6 {
                        assert!(since.elapsed() < Duration::from_secs(15), "it never came back");
                        table.recover().unwrap();
                        let batch = table.claim(task).unwrap();
                        if batch.is_empty() {
                            continue;
                        }
                        assert!(db.clock() > until, "before the lease has ended");
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        starts.fetch_add(1, SeqCst);
                        inside.fetch_sub(1, SeqCst);
                        batch.job(0).unwrap().release(Duration::ZERO).unwrap();
                    }
                });
            }
        });
        assert_eq!(most.load(SeqCst), 1);
        assert!(tasks.map("").remaining(&Filters::none()).unwrap());
    }
}
