//! Two workers and one row of a user's table: kind A of the cases, and what of it concerns mapped tables.
//!
//! | case | where |
//! |---|---|
//! | 1, 3, 4, 5, 7, 9, 10 | here |
//! | 2, 8 | `tables` |
//! | 6 | not in the list |

use conformance::tables::{ALL_ROLES, TARGETS, UserTable, abandon, claim, keys};
use conformance::{Db, Kind, every_database, wait_until};
use rowclaim::blocking::Engine;
use rowclaim::faults::Fault;
use rowclaim::{Filters, Finish, Recovered, RowClaimRequest, Value};
use std::collections::HashSet;
use std::sync::Barrier;
use std::time::{Duration, Instant};

fn row_one() -> RowClaimRequest {
    RowClaimRequest::new(1).equal("id", Value::Int(1))
}

/// The next claim of the first engine stops between the look at its candidates and the statement that takes them.
fn stop_between_look_and_claim(db: &Db) {
    let text = match db.kind {
        Kind::Sqlite => "BEGIN IMMEDIATE",
        Kind::MariaDbTokenUpdate => "UPDATE `",
        Kind::MariaDb | Kind::MySql => "FOR UPDATE",
    };
    db.faults.order(text, Fault::Pause, 0, 1);
}

/// What a slow worker gets when others do something between its look and its claim; again, from `prepare` on, when this
/// machine took longer for that than the stop lasts.
fn slowly<R: Send>(db: &Db, prepare: impl Fn(), slow: impl Fn() -> R + Sync, meanwhile: impl Fn()) -> R {
    for _ in 0..5 {
        prepare();
        stop_between_look_and_claim(db);
        let (is_in_time, answer) = std::thread::scope(|scope| {
            let slow = scope.spawn(&slow);
            wait_until("it has looked", || db.faults.left() == 0);
            let since = Instant::now();
            meanwhile();
            (since.elapsed() < Duration::from_millis(400), slow.join().unwrap())
        });
        if is_in_time {
            return answer;
        }
    }
    panic!("this machine is too slow")
}

const RECURS: &str = "{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":0,\"token\":\"cron_token\",\
    \"available_at\":\"available_at\",\"zone\":\"UTC\",\"fence\":\"fence\"}";

every_database! {
    // 1
    fn one_row_goes_to_one_of_eight_workers("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let tables: Vec<_> = (0..8).map(|_| targets.map_by(&db.another("heartbeat=0"), "\"attempts\":\"attempts\"")).collect();
        let barrier = Barrier::new(8);
        const ROUNDS: i64 = 20;
        for round in 1..=ROUNDS {
            let given: usize = std::thread::scope(|scope| {
                let race = |table| {
                    barrier.wait();
                    let batch = claim(table, 1);
                    batch.complete_all().unwrap();
                    batch.len()
                };
                let racers: Vec<_> = tables.iter().map(|table| scope.spawn(move || race(table))).collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).sum()
            });
            assert!(given <= 1, "round {round}: {given} owners");
            // A row that two workers met over may be left for the next poll, never for longer.
            if given == 0 {
                assert_eq!(claim(&tables[0], 1).complete_all().unwrap(), [Finish::Accepted], "round {round}");
            }
            targets.run("UPDATE {t} SET status = 0, cron_token = NULL WHERE status = 2");
        }
        assert_eq!(targets.number("SELECT attempts FROM {t}"), ROUNDS, "one start a round");
    }

    // 3: a candidate that another one has finished meanwhile is not taken.
    fn a_slow_worker_does_not_take_what_a_faster_one_has_finished("heartbeat=0", db) {
        let targets = UserTable::targets(db, 2);
        let (slow, fast) = (targets.map(ALL_ROLES), targets.map_by(&db.another("heartbeat=0"), ALL_ROLES));
        let prepare = || targets.run("UPDATE {t} SET status = 0, cron_token = NULL, fence = 0");
        let finish = || drop(fast.claim(&row_one()).unwrap().complete_all().unwrap());
        let late = slowly(db, prepare, || claim(&slow, 1), finish);
        assert!(keys(&late).iter().all(|key| *key == 2), "it goes on to the next candidate, now or with the next poll");
        assert_eq!(targets.column("status")[0], "2");
        assert_eq!(targets.column("fence")[0], "1", "started once");
        drop(late);
        assert_eq!(keys(&claim(&slow, 2)), [2]);
    }

    // 4: a row that came back to the same status in between is another occasion, and not due yet.
    fn a_recurring_row_does_not_fire_twice_for_one_slot("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let slow = targets.try_map(RECURS).unwrap();
        let fast = db.another("heartbeat=0").table(&targets.name, slow.mapping()).unwrap();
        let prepare = || {
            targets.run("UPDATE {t} SET status = 0, cron_token = NULL, fence = 0, available_at = '2020-01-01 00:00:00'");
        };
        for (next, fires) in [("2020-02-01 00:00:00", 1), ("2500-01-01 00:00:00", 0)] {
            let fire = || {
                let batch = fast.claim(&row_one()).unwrap();
                let set = vec![("available_at".to_owned(), Value::Text(next.into()))];
                batch.job(0).map(|row| row.complete_with(set, None).unwrap());
            };
            let late = slowly(db, prepare, || claim(&slow, 1), fire);
            assert_eq!(late.len(), fires, "next is {next}");
            for row in late.rows() {
                // Due again already: that is the next slot, and the row says so.
                let at = row.get("available_at").unwrap().as_text().unwrap().to_owned();
                assert!(at.starts_with("2020-02-01"), "{at}");
            }
            assert_eq!(targets.number("SELECT fence FROM {t}"), 1 + fires as i64, "each slot once");
        }
    }

    // 5: the names of host and process prove nothing.
    fn two_workers_of_one_name_are_two_owners("worker=web:1&heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let first = targets.map(ALL_ROLES);
        let twin = targets.map_by(&db.another("worker=web:1&heartbeat=0"), ALL_ROLES);
        let mut tokens = HashSet::new();
        for fence in 1..=5 {
            let batch = claim(&first, 1);
            assert!(claim(&twin, 1).is_empty(), "the same name does not own it");
            let row = &batch.rows()[0];
            assert_eq!((row.fence, row.get("locked_by")), (fence, Some(&Value::Text("web:1".into()))));
            assert_eq!(batch.token().unwrap().get_version_num(), 4, "128 bits less those of the version");
            tokens.insert(batch.token().unwrap());
            batch.job(0).unwrap().release(Duration::ZERO).unwrap();
        }
        assert_eq!(tokens.len(), 5, "new for every claim");
    }

    // 7: a claim is read back by its token, whatever the claim's time has become in its column.
    fn a_claim_in_the_middle_of_a_second_finds_its_rows("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let table = targets.map("\"claimed_at\":\"send_at\",\"zone\":\"UTC\"");
        let mut parts = HashSet::new();
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(1_100) {
            parts.insert(db.clock() % 1_000_000 / 250_000);
            assert_eq!(keys(&claim(&table, 1)), [1]);
        }
        assert_eq!(parts.len(), 4, "in every quarter of a second");
        assert!(!targets.column("send_at")[0].contains('.'));
    }

    // 9: two that know of the same row start it once; the other one hears so at once.
    fn the_same_row_is_started_once_by_two_who_were_told_of_it("heartbeat=0", db) {
        let targets = UserTable::targets(db, 3);
        let (first, second) = (targets.map(ALL_ROLES), targets.map_by(&db.another("heartbeat=0"), ALL_ROLES));
        second.remaining(&Filters::none()).unwrap();
        let ask = || second.claim(&row_one()).unwrap();
        let (first, (other, pauses_left)) =
            db.while_a_claim_is_open(|| first.claim(&row_one()).unwrap(), || (ask(), db.faults.left()));
        assert_eq!(first.len() + other.len(), 1);
        // Where rows cannot be stepped over, and on SQLite, it waits for the other's commit.
        if matches!(db.kind, Kind::MariaDb | Kind::MySql) {
            assert!(pauses_left > 0 && other.is_empty(), "it waited for the other's commit");
        }
        assert_eq!(targets.column("fence"), ["1", "0", "0"]);
    }

    // 10: the order is total, so a run after a crash cuts the same batch.
    fn a_batch_after_a_crash_is_the_batch_of_before("heartbeat=0", db) {
        for (name, more, index) in [
            ("by_key", "", ""),
            ("by_index", "", ", UNIQUE (status, id)"),
            ("by_priority", "\"priority\":\"priority\"", ""),
        ] {
            let targets = UserTable::new(db, name, &format!("{TARGETS}{index}"));
            targets.fill(10);
            let table = targets.map(more);
            for _ in 0..2 {
                let batch = claim(&table, 5);
                assert_eq!(keys(&batch), [1, 2, 3, 4, 5], "{name}");
                abandon(batch);
                db.expire();
                assert_eq!(table.recover().unwrap(), Recovered { claims: 1, returned: 5, dead: 0, ..Recovered::default() }, "{name}");
            }
        }
    }
}

/// The claim shapes of one server, for the same rows: what one would take the other would take too, in the same order.
// 10, 91
#[test]
fn both_shapes_take_the_same_rows_in_the_same_order() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        let old: Engine = db.another("heartbeat=0&shape=token_update");
        let targets = UserTable::targets(&db, 40);
        targets.run("UPDATE {t} SET priority = id % 3, available_at = CASE id % 4 WHEN 0 THEN NULL ELSE '2020-01-01' + INTERVAL (id % 5) DAY END");
        for more in ["", "\"priority\":\"priority\"", "\"available_at\":\"available_at\",\"zone\":\"UTC\"", ALL_ROLES] {
            let (new, old) = (targets.map(more), targets.map_by(&old, more));
            for limit in [1, 7, 40] {
                // Dropped at once, so the rows wait again.
                let by_new = keys(&claim(&new, limit));
                let by_old = keys(&claim(&old, limit));
                assert_eq!(by_new.len(), limit);
                assert_eq!(by_new, by_old, "{}: {more}", kind.name());
            }
        }
    }
}

fn a_row_is_put_back_between_look_and_end(kind: Kind) {
    let Some(db) = Db::new(kind, "heartbeat=0") else { return };
    let targets = UserTable::targets(&db, 1);
    let table = targets.map("\"attempts\":\"attempts\",\"max_attempts\":3");
    let prepare = || targets.run("UPDATE {t} SET status = 0, attempts = 3");
    // The claim is dropped at once, should it get the row.
    slowly(&db, prepare, || drop(claim(&table, 1)), || targets.run("UPDATE {t} SET attempts = 0"));
    assert_eq!(targets.column("status"), ["0"], "{}: it has all its attempts, and waits", kind.name());
    assert_eq!(claim(&table, 1).len(), 1);
}

// 4: a row whose attempts a person has set back in between is not ended as spent.
#[test]
fn a_row_put_back_by_a_person_in_between_is_not_ended_as_spent() {
    [Kind::Sqlite, Kind::MariaDb, Kind::MySql].into_iter().for_each(a_row_is_put_back_between_look_and_end);
}

// 4
#[test]
fn a_row_put_back_by_a_person_in_between_is_not_ended_as_spent_without_locks() {
    a_row_is_put_back_between_look_and_end(Kind::MariaDbTokenUpdate);
}
