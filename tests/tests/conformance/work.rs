use conformance::{every_database, wait_until};
use rowclaim::blocking::{Handled, WorkRequest};
use rowclaim::faults::Fault;
use rowclaim::{ClaimRequest, Finish, Outcome};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn done() -> Handled {
    Handled::As(Outcome::Complete)
}

every_database! {
    fn work_runs_every_job_once_and_sums_up(db) {
        db.fill("q", 250);
        let mut request = WorkRequest::new(ClaimRequest::new("q").limit(100));
        request.until_empty = true;
        let mut turn = 0;
        let summary = db.engine.work(&request, |_| {
            turn += 1;
            match turn {
                10 => Handled::As(Outcome::Fail { error: "x".into(), delay: Some(Duration::from_secs(60)) }),
                20 => Handled::As(Outcome::Release { delay: Duration::from_secs(60) }),
                _ => done(),
            }
        }).unwrap();
        assert_eq!((summary.claimed, summary.completed, summary.failed, summary.released, summary.lost), (250, 248, 1, 1, 0));
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'"), 248);
        assert_eq!(db.number("SELECT COUNT(*) FROM {claims} WHERE state = 'open'"), 0);
    }

    fn each_job_is_durable_before_the_next_when_asked("heartbeat=0", db) {
        db.fill("q", 20);
        let mut request = WorkRequest::new(ClaimRequest::new("q"));
        request.until_empty = true;
        request.finish_each = true;
        let mut before = 0;
        db.engine.work(&request, |_| {
            assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'"), before);
            before += 1;
            done()
        }).unwrap();
        assert_eq!(before, 20);
    }

    fn max_jobs_and_stop_end_between_jobs_and_release_the_rest(db) {
        db.fill("q", 50);
        let mut request = WorkRequest::new(ClaimRequest::new("q").limit(20));
        request.max_jobs = Some(25);
        let summary = db.engine.work(&request, |_| done()).unwrap();
        assert_eq!((summary.claimed, summary.completed), (25, 25));
        request.max_jobs = None;
        let stop = request.stop.clone();
        let seen = AtomicUsize::new(0);
        let summary = db.engine.work(&request, |_| {
            if seen.fetch_add(1, SeqCst) == 4 {
                stop.store(true, SeqCst);
            }
            done()
        }).unwrap();
        assert_eq!((summary.claimed, summary.completed, summary.released), (20, 5, 15));
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'ready' AND attempts = 0"), 20);
    }

    fn the_next_batch_is_claimed_while_the_last_jobs_of_this_one_run("heartbeat=0", db) {
        db.fill("q", 60);
        let claims = || db.number("SELECT COUNT(*) FROM {claims}");
        for prefetch in [true, false] {
            let mut request = WorkRequest::new(ClaimRequest::new("q").limit(10));
            request.max_jobs = Some(30);
            request.prefetch = prefetch;
            let before = claims();
            let mut turn = 0;
            let summary = db.engine.work(&request, |_| {
                turn += 1;
                if turn == 10 && prefetch {
                    wait_until("the second claim", || claims() == before + 2);
                } else if turn == 10 {
                    assert_eq!(claims(), before + 1);
                }
                done()
            }).unwrap();
            assert_eq!((summary.claimed, summary.completed), (30, 30));
            assert_eq!(claims(), before + 3, "none beyond the number of jobs");
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1"), 60);
    }

    fn a_batch_claimed_ahead_is_given_back_at_the_end("heartbeat=0", db) {
        db.fill("q", 60);
        let request = WorkRequest::new(ClaimRequest::new("q").limit(10));
        let stop = request.stop.clone();
        let mut turn = 0;
        db.engine.work(&request, |_| {
            turn += 1;
            if turn == 10 {
                wait_until("the second claim", || db.number("SELECT COUNT(*) FROM {claims}") == 2);
                stop.store(true, SeqCst);
            }
            done()
        }).unwrap();
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'ready' AND attempts = 0"), 50);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'claimed'"), 0);
    }

    // Whatever happens at whichever statement, in the foreground or in the background, each job is done by its first attempt.
    fn faults_beside_a_claim_made_ahead_cost_no_attempt("heartbeat=0", db) {
        for fault in [Fault::Deadlock, Fault::LockWait, Fault::LostBefore, Fault::LostAfter] {
            for skip in [0, 3, 6, 9, 12, 15, 18] {
                db.fill("q", 60);
                let mut request = WorkRequest::new(ClaimRequest::new("q").limit(10));
                request.until_empty = true;
                db.faults.order("", fault, skip, 1);
                let summary = db.engine.work(&request, |_| done()).unwrap();
                assert_eq!((summary.completed, summary.lost), (60, 0), "{fault:?} at {skip}");
                while db.faults.left() > 0 {
                    db.engine.job(1).unwrap();
                }
            }
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state <> 'done' OR attempts <> 1"), 0);
    }

    fn max_time_ends_an_idle_worker(db) {
        let mut request = WorkRequest::new(ClaimRequest::new("q"));
        request.max_time = Some(Duration::from_millis(300));
        let since = Instant::now();
        let summary = db.engine.work(&request, |_| done()).unwrap();
        assert_eq!(summary.claimed, 0);
        assert!((290..2_000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
    }

    fn an_idle_worker_takes_a_new_job_soon(db) {
        let mut request = WorkRequest::new(ClaimRequest::new("q"));
        request.max_jobs = Some(1);
        request.max_idle = Duration::from_millis(200);
        let producer = db.another("");
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| db.engine.work(&request, |_| done()).unwrap());
            std::thread::sleep(Duration::from_millis(400));
            let since = Instant::now();
            producer.create(&rowclaim::NewJob::new("q", "1")).unwrap();
            assert_eq!(worker.join().unwrap().completed, 1);
            assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        });
    }

    fn a_handler_may_finish_its_job_itself(db) {
        db.fill("q", 3);
        let mut request = WorkRequest::new(ClaimRequest::new("q"));
        request.until_empty = true;
        let mut turn = 0;
        let summary = db.engine.work(&request, |job| {
            turn += 1;
            match turn {
                1 => assert_eq!(job.complete().unwrap(), Finish::Accepted),
                2 => assert_eq!(job.release(Duration::from_secs(60)).unwrap(), Finish::Accepted),
                _ => assert_eq!(job.fail("x", Some(Duration::from_secs(60))).unwrap(), Finish::Accepted),
            }
            Handled::Itself
        }).unwrap();
        assert_eq!((summary.completed, summary.released, summary.failed), (1, 1, 1));
    }

    fn lost_jobs_are_counted("heartbeat=0&lease=1&backoff_base=60", db) {
        db.fill("q", 3);
        let mut request = WorkRequest::new(ClaimRequest::new("q"));
        request.until_empty = true;
        let sweeper = db.another("backoff_base=60");
        let mut turn = 0;
        let summary = db.engine.work(&request, |_| {
            turn += 1;
            if turn == 2 {
                db.expire();
                assert!((2..=3).contains(&sweeper.recover().unwrap().returned));
            }
            done()
        });
        // The first job may be written before or after the loss: what is accepted and lost adds up either way.
        let summary = summary.unwrap();
        assert_eq!(summary.claimed, 3);
        assert_eq!(summary.completed + summary.lost, 3);
        assert!(summary.lost >= 2, "{summary:?}");
    }

    // 30: the heartbeat is the last to stop.
    fn the_job_in_hand_keeps_its_lease_while_draining("lease=1", db) {
        db.fill("q", 5);
        let mut request = WorkRequest::new(ClaimRequest::new("q"));
        request.max_idle = Duration::from_millis(100);
        let stop = request.stop.clone();
        let other = db.another("");
        let summary = db.engine.work(&request, |_| {
            stop.store(true, SeqCst);
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(2_500) {
                assert_eq!(other.recover().unwrap().returned, 0);
                std::thread::sleep(Duration::from_millis(100));
            }
            done()
        }).unwrap();
        assert_eq!((summary.completed, summary.released, summary.lost), (1, 4, 0));
    }

    fn closing_writes_what_is_pending(db) {
        db.fill("q", 50);
        let claim = db.claim(50);
        while let Some(job) = claim.next_job().unwrap() {
            job.finish_later(Outcome::Complete).unwrap();
        }
        db.engine.close(Duration::from_secs(5)).unwrap();
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'"), 50);
        assert!(claim.renew().is_err(), "the claim's engine is closed");
    }
}
