use conformance::{Db, Kind, every_database};
use rowclaim::faults::Fault;
use rowclaim::{ClaimRequest, ErrorKind, Finish, NewJob, Outcome};
use std::time::{Duration, Instant};

const KINDS: [Fault; 4] = [Fault::Deadlock, Fault::LockWait, Fault::LostBefore, Fault::LostAfter];

every_database! {
    // 13, 21, 110: whatever happens at whichever statement of a claim, it is whole or nothing, and retried inside.
    fn a_fault_at_any_statement_of_a_claim_is_retried("heartbeat=0", db) {
        db.fill("q", 2_000);
        for fault in KINDS {
            for skip in 0..7 {
                db.faults.order("", fault, skip, 1);
                let claim = db.claim(10);
                // In the shape of old servers a step may fall on a row that is taken: then a batch may be empty.
                assert_eq!(claim.len(), 10, "{fault:?} at {skip}");
                assert!(claim.rows().iter().all(|job| job.attempts == 1 && job.fence == 1), "{fault:?} at {skip}");
                assert!(claim.complete_all().unwrap().iter().all(|answer| *answer == Finish::Accepted), "{fault:?} at {skip}");
                let dirty = "SELECT COUNT(*) FROM {jobs} WHERE state = 'claimed' OR (state = 'ready' AND (attempts > 0 OR ready_at IS NULL))";
                assert_eq!(db.number(dirty), 0, "{fault:?} at {skip}");
                while db.faults.left() > 0 {
                    let claim = db.claim(1);
                    claim.complete_all().unwrap();
                }
            }
        }
        db.engine.flush().unwrap();
        assert_eq!(db.number("SELECT COUNT(*) FROM {claims} WHERE state = 'open'"), 0);
    }

    // 12, 21, 29
    fn a_fault_at_any_statement_of_a_finish_is_retried_with_one_outcome("heartbeat=0&backoff_base=0", db) {
        db.fill("q", 500);
        let outcomes = [
            Outcome::Complete,
            Outcome::Fail { error: "x".into(), delay: Some(Duration::from_secs(60)) },
            Outcome::Reject { error: "x".into() },
            Outcome::Release { delay: Duration::from_secs(60) },
        ];
        for fault in KINDS {
            for outcome in &outcomes {
                for skip in 0..4 {
                    let claim = db.claim(3);
                    let ids: Vec<i64> = claim.rows().iter().map(|job| job.id).collect();
                    db.faults.order("", fault, skip, 1);
                    let place = format!("{fault:?} at {skip} of {outcome:?}");
                    assert_eq!(claim.finish(&ids, outcome).unwrap(), [Finish::Accepted; 3], "{place}");
                    let recorded = db.number(&format!(
                        "SELECT COUNT(*) FROM {{attempts}} WHERE job_id IN ({}, {}, {})", ids[0], ids[1], ids[2]
                    ));
                    assert_eq!(recorded, if *outcome == Outcome::Complete { 0 } else { 3 }, "{place}");
                    while db.faults.left() > 0 {
                        db.engine.job(1).unwrap();
                    }
                }
            }
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'claimed'"), 0);
    }

    fn a_fault_at_any_statement_of_a_recovery_is_retried("heartbeat=0&backoff_base=0", db) {
        db.fill("q", 300);
        for fault in KINDS {
            for skip in 0..7 {
                std::mem::forget(db.claim(5));
                db.expire();
                db.faults.order("", fault, skip, 1);
                let returned = db.engine.recover().unwrap().returned;
                // After a lost answer to COMMIT the second look finds nothing left to do.
                assert!(returned == 5 || fault == Fault::LostAfter, "{fault:?} at {skip}: {returned}");
                assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'claimed'"), 0, "{fault:?} at {skip}");
                while db.faults.left() > 0 {
                    db.engine.job(1).unwrap();
                }
            }
        }
        let twice = "SELECT COUNT(*) FROM (SELECT job_id, fence FROM {attempts} GROUP BY job_id, fence HAVING COUNT(*) > 1) t";
        assert_eq!(db.number(twice), 0);
    }

    fn a_lost_connection_creates_no_second_job(db) {
        for (round, fault) in [Fault::LostBefore, Fault::LostAfter, Fault::Deadlock].into_iter().enumerate() {
            for with_key in [true, false] {
                for count in [1, 7] {
                    let jobs: Vec<NewJob> = (0..count)
                        .map(|n| {
                            let job = NewJob::new("q", format!("\"{round}{with_key}{count}-{n}\""));
                            if with_key { job.key(format!("{round}-{count}-{n}")) } else { job }
                        })
                        .collect();
                    let before = db.number("SELECT COUNT(*) FROM {jobs}");
                    db.faults.order("INSERT", fault, 0, 1);
                    let created = db.engine.create_many(&jobs).unwrap();
                    assert_eq!(db.faults.left(), 0);
                    assert!(created.iter().all(|c| !c.exists), "{fault:?}, key {with_key}, {count}");
                    assert_eq!(db.number("SELECT COUNT(*) FROM {jobs}") - before, count, "{fault:?}, key {with_key}");
                    for (job, created) in jobs.iter().zip(&created) {
                        assert_eq!(db.engine.job(created.id).unwrap().unwrap().payload, job.payload);
                    }
                }
            }
        }
    }

    // 13
    fn contention_without_end_makes_an_empty_claim_and_changes_nothing(db) {
        db.fill("q", 1);
        db.faults.order("UPDATE", Fault::Deadlock, 0, 1_000);
        assert!(db.claim(1).is_empty());
        let row = db.raw().rows("SELECT state, attempts, fence FROM {jobs}").remove(0);
        assert_eq!(row.iter().map(|cell| cell.as_deref().unwrap()).collect::<Vec<_>>(), ["ready", "0", "0"]);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts}"), 0);
    }

    // 29: the process lives, its finishes never arrive.
    fn a_row_whose_finish_never_arrives_comes_back("heartbeat=0&lease=1&backoff_base=0", db) {
        db.fill("q", 1);
        let claim = db.claim(1);
        db.faults.order("state = 'done'", Fault::LostBefore, 0, 1_000);
        let error = claim.job(0).unwrap().complete().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_retryable());
        let healthy = db.another("heartbeat=0&backoff_base=0");
        db.expire();
        assert_eq!(healthy.recover().unwrap().returned, 1);
        let second = healthy.claim(&ClaimRequest::new("q")).unwrap();
        assert_eq!(second.complete_all().unwrap(), [Finish::Accepted]);
    }

    fn group_finish_survives_faults("heartbeat=0", db) {
        db.fill("q", 200);
        let claim = db.claim(200);
        for fault in KINDS {
            db.faults.order("state = 'done'", fault, 0, 1);
        }
        while let Some(job) = claim.next_job().unwrap() {
            job.finish_later(Outcome::Complete).unwrap();
        }
        db.engine.flush().unwrap();
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1"), 200);
    }
}

// 109, 120: real connections, really killed.
#[test]
fn killed_connections_are_replaced_by_every_verb_and_by_the_heartbeat() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "") else { continue };
        // The user `app` is this test's alone, so its connections can be told from others'.
        let dsn = db.dsn.replace("root@", "app:secret@").replace("worker=", "x=") + "&lease=1";
        let engine = rowclaim::blocking::Engine::connect(&dsn).unwrap();
        let jobs: Vec<NewJob> = (0..20).map(|n| NewJob::new("q", n.to_string())).collect();
        engine.create_many(&jobs).unwrap();
        let claim = engine.claim(&ClaimRequest::new("q").limit(10)).unwrap();
        let mut raw = db.raw();
        let mut killed = 0;
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(3) {
            // MySQL refuses the whole answer while it shows another session's statement with bytes that are not text.
            let found = raw.try_rows("SELECT id FROM information_schema.processlist WHERE user = 'app'").unwrap_or_default();
            for row in found {
                killed += u32::from(raw.try_run(&format!("KILL {}", row[0].as_deref().unwrap())).is_ok());
            }
            if let Some(job) = claim.next_job().unwrap() {
                assert_eq!(job.complete().unwrap(), Finish::Accepted);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(killed >= 10, "{killed} connections killed");
        assert!(!claim.is_lost(), "the heartbeat came through on new connections");
        engine.close(Duration::from_secs(2)).unwrap();
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1"), 10);
    }
}
