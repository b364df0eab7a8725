use conformance::every_database;
use rowclaim::{ClaimRequest, NewJob, Recovered};
use std::time::Duration;

every_database! {
    // 40
    fn a_valid_lease_is_left_alone_and_an_expired_one_is_not("heartbeat=0&lease=2", db) {
        db.fill("q", 3);
        let claim = db.claim(3);
        assert_eq!(db.engine.recover().unwrap(), Recovered::default());
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(db.engine.recover().unwrap(), Recovered::default());
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(db.engine.recover().unwrap(), Recovered { claims: 1, returned: 3, dead: 0, held: 0 });
        assert_eq!(db.engine.recover().unwrap(), Recovered::default());
        drop(claim);
    }

    // 35, 53
    fn the_last_attempt_that_is_lost_is_dead_with_its_reason("heartbeat=0&backoff_base=0", db) {
        let mut job = NewJob::new("q", "{}").key("k");
        job.max_attempts = Some(3);
        job.unique = rowclaim::Unique::Active;
        let id = db.engine.create(&job).unwrap().id;
        for attempt in 1..=3 {
            let claim = db.claim(1);
            assert_eq!(claim.rows()[0].attempts, attempt);
            std::mem::forget(claim);
            db.expire();
            let recovered = db.engine.recover().unwrap();
            assert_eq!((recovered.returned, recovered.dead), if attempt < 3 { (1, 0) } else { (0, 1) });
        }
        let dead = db.engine.job(id).unwrap().unwrap();
        assert_eq!((dead.state.name(), dead.attempts, dead.lost), ("dead", 3, 3));
        assert_eq!(dead.last_error.as_deref(), Some("lease expired"));
        assert_eq!(db.engine.attempts(id).unwrap().iter().filter(|a| a.outcome == "lost").count(), 3);
        assert!(!db.engine.create(&job).unwrap().exists, "its key is free");
    }

    // 11, 13
    fn sweepers_at_once_recover_each_row_once("heartbeat=0&backoff_base=0", db) {
        db.fill("q", 400);
        for _ in 0..40 {
            std::mem::forget(db.claim(10));
        }
        db.expire();
        let total = std::thread::scope(|scope| {
            let sweepers: Vec<_> = (0..8)
                .map(|_| {
                    let engine = db.another("heartbeat=0&backoff_base=0");
                    scope.spawn(move || engine.recover().unwrap())
                })
                .collect();
            let mut total = Recovered::default();
            for sweeper in sweepers {
                total += sweeper.join().unwrap();
            }
            total
        });
        assert_eq!(total, Recovered { claims: 40, returned: 400, dead: 0, held: 0 });
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts}"), 400);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'ready' AND claim_id IS NULL AND lost = 1"), 400);
    }

    fn a_claim_that_crashed_before_its_close_is_closed_without_lost_rows("heartbeat=0", db) {
        db.fill("q", 2);
        let claim = db.claim(2);
        claim.complete_all().unwrap();
        db.engine.flush().unwrap();
        db.raw().run("UPDATE {claims} SET state = 'open', closed_at = NULL");
        db.expire();
        assert_eq!(db.engine.recover().unwrap(), Recovered::default());
        assert_eq!(db.number("SELECT COUNT(*) FROM {claims} WHERE state = 'open'"), 0);
    }

    fn any_claim_triggers_recovery("heartbeat=0&backoff_base=0", db) {
        db.fill("q", 1);
        std::mem::forget(db.claim(1));
        db.expire();
        std::thread::sleep(Duration::from_millis(1_050));
        let claim = db.engine.claim(&ClaimRequest::new("q")).unwrap();
        assert_eq!(claim.len(), 1);
        assert_eq!(claim.rows()[0].attempts, 2);
    }

    // 32
    fn a_restarted_worker_of_the_same_name_does_not_own_its_orphans("heartbeat=1&lease=1&worker=web-1&backoff_base=0", db) {
        db.fill("q", 3);
        let dead = db.another("heartbeat=0&worker=web-1");
        std::mem::forget(dead.claim(&ClaimRequest::new("q").limit(3)).unwrap());
        db.fill("other", 1);
        let own = db.engine.claim(&ClaimRequest::new("other")).unwrap();
        std::thread::sleep(Duration::from_millis(1_200));
        assert_eq!(db.engine.recover().unwrap().returned, 3);
        assert!(own.renew().unwrap());
    }
}
