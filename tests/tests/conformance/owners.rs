//! Who owns a job, when two think so (cases 9, 26, 28, 49, 51). Of rows of mapped tables: `adopted_claiming`, `adopted_leases`.

use conformance::{Db, Kind, every_database, wait_until};
use rowclaim::blocking::{Lease, Leased};
use rowclaim::faults::Fault;
use rowclaim::{ClaimRequest, Finish, LeaseFilter, LeaseRequest, NewJob, Recovered};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

every_database! {
    // 9: whoever comes second is told so at once, and never starts it.
    fn a_job_is_started_once_by_two_who_want_it_at_the_same_moment("heartbeat=0", db) {
        db.fill("q", 1);
        let second = db.another("heartbeat=0");
        assert!(second.claim(&ClaimRequest::new("empty")).unwrap().is_empty());
        let ask = || second.claim(&ClaimRequest::new("q")).unwrap();
        let (first, (other, pauses_left)) = db.while_a_claim_is_open(|| db.claim(1), || (ask(), db.faults.left()));
        assert_eq!(first.len() + other.len(), 1);
        // Where rows cannot be stepped over, and on SQLite, it waits for the other's commit.
        if matches!(db.kind, Kind::MariaDb | Kind::MySql) {
            assert!(pauses_left > 0 && other.is_empty(), "it waited for the other's commit");
        }
        assert_eq!(db.number("SELECT fence FROM {jobs}"), 1);
    }

    // 26: each kind of job has a lease that fits it.
    fn jobs_of_a_short_kind_come_back_while_those_of_a_long_one_are_held("heartbeat=0&backoff_base=0", db) {
        for (queue, lease) in [("fast", 5), ("slow", 900)] {
            db.fill(queue, 2);
            let request = ClaimRequest::new(queue).lease(Duration::from_secs(lease));
            std::mem::forget(db.engine.claim(&request).unwrap());
        }
        for (seconds, queue) in [(6, "fast"), (900, "slow")] {
            let ago = match db.is_sqlite() {
                true => format!("lease_until - {}", seconds * 1_000_000),
                false => format!("lease_until - INTERVAL {seconds} SECOND"),
            };
            db.raw().run(&format!("UPDATE {{claims}} SET lease_until = {ago}"));
            assert_eq!(db.engine.recover().unwrap(), Recovered { claims: 1, returned: 2, dead: 0, ..Recovered::default() }, "{queue}");
            assert_eq!(db.number(&format!("SELECT COUNT(*) FROM {{jobs}} WHERE state = 'ready' AND queue = '{queue}'")), 2);
        }
    }

    // 28: an owner that was paused past its lease and resumes, ten times: one end for each fence.
    fn an_owner_that_resumes_late_again_and_again_ends_nothing("heartbeat=0&backoff_base=0&max_attempts=100", db) {
        let id = db.fill("q", 1)[0];
        for round in 0..10 {
            let late = db.claim(1);
            db.expire();
            assert_eq!(db.engine.recover().unwrap().returned, 1);
            let owner = db.claim(1);
            assert_eq!((late.rows()[0].fence, owner.rows()[0].fence), (2 * round + 1, 2 * round + 2));
            assert_eq!(late.job(0).unwrap().complete().unwrap(), Finish::Lost);
            assert!(db.claim(1).is_empty(), "one at a time");
            let last = round == 9;
            let answer = if last { owner.job(0).unwrap().complete() } else { owner.job(0).unwrap().fail("x", Some(Duration::ZERO)) };
            assert_eq!(answer.unwrap(), Finish::Accepted);
            assert_eq!(late.job(0).unwrap().fail("late", None).unwrap(), Finish::Lost);
        }
        let job = db.engine.job(id).unwrap().unwrap();
        assert_eq!((job.state.name(), job.fence, job.lost), ("done", 20, 10));
        let fences = "SELECT COUNT(DISTINCT fence) FROM {attempts}";
        assert_eq!((db.number(fences), db.number("SELECT COUNT(*) FROM {attempts}")), (19, 19), "one end for each fence");
    }

    // 49: a dead worker's job takes nobody's place.
    fn jobs_that_are_held_by_the_dead_do_not_keep_the_others("heartbeat=0", db) {
        let ids = db.fill("q", 11);
        std::mem::forget(db.claim(1));
        db.expire();
        let claim = db.another("heartbeat=0").claim(&ClaimRequest::new("q").limit(1)).unwrap();
        assert_eq!(claim.rows()[0].id, ids[1]);
    }

    // 51: a key that a dead process holds is free after its lease, not before, and then for one at a time.
    fn a_dead_holder_of_a_lease_blocks_it_for_its_time_and_then_one_goes_on("heartbeat=0", db) {
        let request = LeaseRequest::new("order:7", Duration::from_secs(1));
        let held: Lease = match db.engine.lease(&request).unwrap() {
            Leased::Acquired(lease) => lease,
            Leased::Busy(busy) => panic!("{busy:?}"),
        };
        let fence = held.fence();
        std::mem::forget(held);
        let until = db.engine.leases(&LeaseFilter::default()).unwrap()[0].lease_until.0;
        let (inside, most, starts) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let engine = db.another("heartbeat=0");
                let (inside, most, starts, request) = (&inside, &most, &starts, &request);
                scope.spawn(move || {
                    let since = Instant::now();
                    while starts.load(SeqCst) < 6 {
                        assert!(since.elapsed() < Duration::from_secs(15), "it never came free");
                        let Leased::Acquired(lease) = engine.lease(request).unwrap() else {
                            std::thread::sleep(Duration::from_millis(5));
                            continue;
                        };
                        assert!(db.clock() > until && lease.fence() > fence, "before its time");
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        starts.fetch_add(1, SeqCst);
                        inside.fetch_sub(1, SeqCst);
                        assert!(lease.release().unwrap());
                    }
                });
            }
        });
        assert_eq!(most.load(SeqCst), 1);
    }
}

// 4: a job that a person has put back between the look at it and its end as spent is not ended.
#[test]
fn a_job_put_back_by_a_person_in_between_is_not_ended_as_spent_without_locks() {
    let Some(db) = Db::new(Kind::MariaDbTokenUpdate, "heartbeat=0") else { return };
    let mut job = NewJob::new("q", "1");
    job.max_attempts = Some(1);
    let id = db.engine.create(&job).unwrap().id;
    db.raw().run("UPDATE {jobs} SET attempts = 1");
    db.faults.order("SET state = 'dead'", Fault::Pause, 0, 1);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| db.claim(1).len());
        wait_until("it has looked", || db.faults.left() == 0);
        // Another worker has ended it, and a person has put it back.
        let other = db.another("heartbeat=0");
        assert!(other.claim(&ClaimRequest::new("q")).unwrap().is_empty());
        assert!(other.retry(id, false).unwrap());
        slow.join().unwrap();
    });
    assert_eq!(db.engine.job(id).unwrap().unwrap().state.name(), "ready", "it has all its attempts");
}
