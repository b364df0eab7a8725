//! Leases by name: one holder at a time by the database's clock, and a fence that only grows.

use conformance::tables::UserTable;
use conformance::{Db, every_database, wait_until};
use rowclaim::blocking::{Engine, Lease, Leased};
use rowclaim::faults::Fault;
use rowclaim::{Busy, ErrorKind, GuardedWrite, LeaseFilter, LeaseRequest, RowClaimRequest, Value};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn taken(engine: &Engine, name: &str) -> Lease {
    match engine.lease(&LeaseRequest::new(name, LONG)).unwrap() {
        Leased::Acquired(lease) => lease,
        Leased::Busy(busy) => panic!("{busy:?}"),
    }
}

fn busy(engine: &Engine, name: &str) -> Busy {
    match engine.lease(&LeaseRequest::new(name, LONG)).unwrap() {
        Leased::Acquired(_) => panic!("acquired"),
        Leased::Busy(busy) => busy,
    }
}

fn expire(db: &Db) {
    let past = if db.is_sqlite() { "0" } else { "'2000-01-01'" };
    db.raw().run(&format!("UPDATE {{leases}} SET lease_until = {past}"));
}

every_database! {
    // 5, 42, 43, 74, 146
    fn one_holds_it_and_a_late_one_changes_nothing("heartbeat=0&worker=first", db) {
        let second = db.another("heartbeat=0");
        let late = taken(&db.engine, "nightly");
        let told = busy(&second, "nightly");
        assert_eq!(told.holder, "first");
        assert!(told.until > rowclaim::Timestamp(0));
        drop(taken(&second, "other"));
        drop(taken(&second, "nightlY"));
        expire(db);
        let owner = taken(&second, "nightly");
        assert!(owner.fence() > late.fence());
        assert_ne!(owner.token(), late.token());
        assert!(!late.renew().unwrap());
        assert!(late.is_lost());
        assert!(late.valid_for().is_zero());
        assert!(!late.release().unwrap());
        assert!(busy(&db.engine, "nightly").until > told.until);
        assert!(owner.renew().unwrap());
        assert!(owner.release().unwrap());
        assert!(!owner.release().unwrap());
        let next = taken(&db.engine, "nightly");
        assert!(next.fence() > owner.fence());
        assert_eq!(db.engine.leases(&LeaseFilter { limit: 10 }).unwrap().iter().filter(|lease| lease.is_held).count(), 1);
    }

    fn a_lease_that_is_dropped_is_given_back(db) {
        drop(taken(&db.engine, "a"));
        drop(taken(&db.another(""), "a"));
    }

    fn a_lapsed_lease_that_nobody_took_is_renewed("heartbeat=0", db) {
        let lease = taken(&db.engine, "a");
        expire(db);
        assert!(lease.renew().unwrap());
        busy(&db.another(""), "a");
    }

    // 37
    fn the_heartbeat_keeps_it(db) {
        let Leased::Acquired(lease) = db.engine.lease(&LeaseRequest::new("a", Duration::from_secs(1))).unwrap() else { panic!() };
        std::thread::sleep(Duration::from_millis(2_500));
        busy(&db.another(""), "a");
        assert!(!lease.valid_for().is_zero());
        drop(lease);
        drop(taken(&db.another(""), "a"));
    }

    fn whoever_waits_gets_it_when_it_is_free("heartbeat=0", db) {
        let lease = taken(&db.engine, "a");
        let second = db.another("heartbeat=0");
        let request = LeaseRequest { wait: Duration::from_millis(300), ..LeaseRequest::new("a", LONG) };
        let since = Instant::now();
        assert!(matches!(second.lease(&request).unwrap(), Leased::Busy(_)));
        assert!((290..3_000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
        std::thread::scope(|scope| {
            let request = LeaseRequest { wait: LONG, ..request };
            let waiting = scope.spawn(move || matches!(second.lease(&request).unwrap(), Leased::Acquired(_)));
            std::thread::sleep(Duration::from_millis(200));
            lease.release().unwrap();
            assert!(waiting.join().unwrap());
        });
    }

    fn a_deleted_row_is_put_back_and_the_fence_still_grows("heartbeat=0", db) {
        let lease = taken(&db.engine, "a");
        db.raw().run("DELETE FROM {leases}");
        assert!(lease.renew().unwrap());
        busy(&db.another("heartbeat=0"), "a");
        db.raw().run("DELETE FROM {leases}");
        let other = taken(&db.another("heartbeat=0"), "a");
        assert!(other.fence() > lease.fence());
        assert!(!lease.renew().unwrap());
        drop(other);
        db.raw().run("DELETE FROM {leases}");
        assert!(!lease.renew().unwrap(), "a lost one is not put back");
        assert!(db.engine.leases(&LeaseFilter::default()).unwrap().is_empty());
    }

    // 23, 43: at no time two holders.
    fn many_at_once_are_one_at_a_time("", db) {
        let (inside, most, times) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let engine = db.another("");
                scope.spawn(|| {
                    let engine = engine;
                    let until = Instant::now() + Duration::from_secs(2);
                    while Instant::now() < until {
                        let request = LeaseRequest { wait: Duration::from_millis(100), ..LeaseRequest::new("one", LONG) };
                        if let Leased::Acquired(lease) = engine.lease(&request).unwrap() {
                            most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                            times.fetch_add(1, SeqCst);
                            inside.fetch_sub(1, SeqCst);
                            assert!(lease.release().unwrap());
                        }
                    }
                });
            }
        });
        assert_eq!(most.load(SeqCst), 1);
        assert!(times.load(SeqCst) > 10, "{times:?}");
    }

    // 67: only a holder means busy.
    fn what_is_wrong_is_no_busy("heartbeat=0", db) {
        for (name, lease, says) in [("", LONG, "1 to 191 bytes"), (&"n".repeat(192), LONG, "1 to 191 bytes"), ("a", Duration::ZERO, "lease must be")] {
            let error = db.engine.lease(&LeaseRequest::new(name, lease)).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says), "{error}");
        }
        for limit in [0, 10_001] {
            let error = db.engine.leases(&LeaseFilter { limit }).unwrap_err();
            assert_eq!((error.kind(), error.operation()), (ErrorKind::Invalid, "leases"));
        }
        db.raw().run("DROP TABLE {leases}");
        let since = Instant::now();
        assert_eq!(db.engine.lease(&LeaseRequest::new("a", LONG)).err().unwrap().kind(), ErrorKind::Schema);
        assert!(since.elapsed() < Duration::from_secs(1));
    }

    fn a_fault_at_any_statement_leaves_one_holder("heartbeat=0", db) {
        for fault in [Fault::Deadlock, Fault::LockWait, Fault::LostBefore, Fault::LostAfter] {
            for skip in 0..3 {
                for name in ["fresh", "again"] {
                    let name = if name == "fresh" { format!("{fault:?}{skip}") } else { name.to_owned() };
                    db.faults.order("leases", fault, skip, 1);
                    let lease = taken(&db.engine, &name);
                    let told = busy(&db.another("heartbeat=0"), &name);
                    assert!(lease.renew().unwrap(), "{fault:?} at {skip}: {told:?}");
                    assert!(lease.release().unwrap(), "{fault:?} at {skip}");
                    while db.faults.left() > 0 {
                        db.engine.leases(&LeaseFilter { limit: 1 }).unwrap();
                    }
                }
            }
        }
        wait_until("all are free", || db.engine.leases(&LeaseFilter::default()).unwrap().iter().all(|lease| !lease.is_held));
    }

    // 27: a write with an older fence changes nothing, whoever is late.
    fn a_late_holder_cannot_write_past_the_fence("heartbeat=0", db) {
        let columns = "day VARCHAR(10) NOT NULL, shop INT NOT NULL, total INT NULL, note VARCHAR(20) NULL, fence BIGINT NULL, \
            PRIMARY KEY (day, shop)";
        let reports = UserTable::new(db, "reports", columns);
        reports.run("INSERT INTO {t} (day, shop, total) VALUES ('old', 1, 5)");
        let write = |day: &str, total: i64, fence: i64| GuardedWrite {
            table: reports.name.clone(),
            key: vec![("day".into(), Value::Text(day.into())), ("shop".into(), Value::Int(1))],
            set: vec![("total".into(), Value::Int(total)), ("note".into(), Value::Text(format!("by {fence}")))],
            fence_column: "fence".into(),
            fence,
        };
        let late = taken(&db.engine, "report");
        expire(db);
        let owner = taken(&db.another("heartbeat=0"), "report");
        for day in ["old", "new"] {
            assert!(db.engine.guard(&write(day, 1, owner.fence())).unwrap(), "an older row, or none");
            assert!(!db.engine.guard(&write(day, 2, late.fence())).unwrap());
            assert!(db.engine.guard(&write(day, 3, owner.fence())).unwrap(), "the same holder again");
            assert!(db.engine.guard(&write(day, 3, owner.fence())).unwrap(), "the same write again");
        }
        assert_eq!(reports.number("SELECT SUM(total) FROM {t}"), 6);
        assert_eq!(reports.number(&format!("SELECT COUNT(*) FROM {{t}} WHERE fence = {}", owner.fence())), 2);
        let planned = db.engine.plan_guard(&write("old", 9, late.fence())).unwrap();
        assert_eq!((planned.sql.matches('?').count(), planned.bindings.len()), (6, 6));
        let wrong = |change: &dyn Fn(&mut GuardedWrite), says: &str| {
            let mut write = write("old", 1, owner.fence());
            change(&mut write);
            let error = db.engine.guard(&write).unwrap_err();
            assert!(error.to_string().contains(says), "{error}\nnot: {says}");
        };
        wrong(&|w| w.table = "nowhere".into(), "there is no table nowhere");
        wrong(&|w| w.key.truncate(1), "(day) is no primary or unique key");
        wrong(&|w| w.set[0].0 = "x; DROP TABLE y".into(), "has no column");
        wrong(&|w| w.set[0].1 = Value::Text("1 OR 1".into()), "column total takes a whole number");
        wrong(&|w| w.set[0].0 = "fence".into(), "is the key's or the fence's");
        wrong(&|w| w.set.clear(), "there is nothing to write");
        wrong(&|w| w.fence_column = "note".into(), "is no whole number");
    }

    fn leases_jobs_and_rows_guard_with_their_own_fence("heartbeat=0&backoff_base=0", db) {
        let results = UserTable::new(db, "results", "id INT NOT NULL PRIMARY KEY, by_whom VARCHAR(20) NULL, fence BIGINT NULL");
        let write = |id: i64, by: &str| GuardedWrite {
            table: results.name.clone(),
            key: vec![("id".into(), Value::Int(id))],
            set: vec![("by_whom".into(), Value::Text(by.into()))],
            fence_column: "fence".into(),
            fence: -1,
        };
        let late = taken(&db.engine, "report");
        expire(db);
        let owner = taken(&db.another("heartbeat=0"), "report");
        assert!(owner.guard(&write(1, "owner")).unwrap());
        assert!(!late.guard(&write(1, "late")).unwrap());

        db.fill("q", 1);
        let late = db.claim(1).next_job().unwrap().unwrap();
        db.expire();
        db.engine.recover().unwrap();
        let owner = db.claim(1).next_job().unwrap().unwrap();
        assert!(owner.guard(&write(2, "owner")).unwrap());
        assert!(!late.guard(&write(2, "late")).unwrap());

        let targets = UserTable::targets(db, 1);
        let one = || RowClaimRequest { limit: 1, ..RowClaimRequest::default() };
        let table = targets.map("\"fence\":\"fence\",\"backoff_base\":0");
        let late = table.claim(&one()).unwrap().next_job().unwrap().unwrap();
        assert_eq!(table.take_back(None, &rowclaim::Filters::none(), 1).unwrap(), 1);
        let owner = table.claim(&one()).unwrap().next_job().unwrap().unwrap();
        assert!(owner.guard(&write(3, "owner")).unwrap());
        assert!(!late.guard(&write(3, "late")).unwrap());
        assert_eq!(results.column("by_whom"), ["owner", "owner", "owner"]);
        assert_eq!(results.number("SELECT fence FROM {t} WHERE id = 3"), owner.fence);

        targets.run("UPDATE {t} SET status = 0, cron_token = NULL");
        let unfenced = targets.map("").claim(&one()).unwrap().next_job().unwrap().unwrap();
        let error = unfenced.guard(&write(4, "nobody")).unwrap_err();
        assert!(error.to_string().contains("names no fence column"), "{error}");
    }

    // 1,000 late writes from many hands: none is accepted.
    fn no_late_write_of_a_thousand_is_accepted("heartbeat=0", db) {
        let table = UserTable::new(db, "state", "id INT NOT NULL PRIMARY KEY, value INT NOT NULL, fence BIGINT NOT NULL");
        let write = |value: i64, fence: i64| GuardedWrite {
            table: table.name.clone(),
            key: vec![("id".into(), Value::Int(1))],
            set: vec![("value".into(), Value::Int(value))],
            fence_column: "fence".into(),
            fence,
        };
        assert!(db.engine.guard(&write(0, 1_000)).unwrap());
        let accepted: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|part| {
                    let (engine, write) = (db.another("heartbeat=0"), &write);
                    scope.spawn(move || (0..250).filter(|n| engine.guard(&write(-1, part * 250 + n)).unwrap()).count())
                })
                .collect();
            for fence in 1_001..1_050 {
                assert!(db.engine.guard(&write(fence, fence)).unwrap());
            }
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_eq!((accepted, table.number("SELECT value FROM {t}")), (0, 1_049));
    }
}
