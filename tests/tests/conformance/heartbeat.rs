use conformance::{every_database, wait_until};
use rowclaim::{ClaimRequest, Finish, Recovered};
use std::time::{Duration, Instant};

every_database! {
    // 25, 31
    fn a_long_job_keeps_its_lease("lease=1", db) {
        db.fill("q", 2);
        let claim = db.claim(2);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(3_500) {
            assert_eq!(db.engine.recover().unwrap(), Recovered::default());
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!claim.valid_for().is_zero());
        assert_eq!(claim.complete_all().unwrap(), [Finish::Accepted; 2]);
    }

    // 36
    fn no_renewal_goes_past_max_run("lease=1", db) {
        db.fill("q", 1);
        let mut request = ClaimRequest::new("q");
        request.max_run = Some(Duration::from_secs(2));
        let since = Instant::now();
        let claim = db.engine.claim(&request).unwrap();
        wait_until("the row is recovered", || db.engine.recover().unwrap().returned == 1);
        let after = since.elapsed();
        assert!((1_900..3_500).contains(&(after.as_millis() as i64)), "{after:?}");
        wait_until("the handle knows", || claim.is_lost());
        assert_eq!(claim.job(0).unwrap().complete().unwrap(), Finish::Lost);
    }

    // 38
    fn a_claim_that_is_taken_away_is_lost_at_the_next_beat("lease=1", db) {
        db.fill("q", 2);
        let claim = db.claim(2);
        claim.next_job().unwrap().unwrap();
        db.raw().run("UPDATE {claims} SET state = 'expired'");
        let since = Instant::now();
        wait_until("lost", || claim.is_lost());
        assert!(since.elapsed() < Duration::from_millis(1_500), "a beat comes each third of a second: {:?}", since.elapsed());
        assert!(claim.next_job().unwrap().is_none(), "no further row is started");
    }

    // 41
    fn past_its_time_no_row_is_started_without_a_renewal("lease=1&heartbeat=0&backoff_base=0", db) {
        db.fill("q", 3);
        let claim = db.claim(3);
        claim.next_job().unwrap().unwrap();
        std::thread::sleep(Duration::from_millis(1_050));
        assert!(claim.valid_for().is_zero());
        assert!(claim.next_job().unwrap().is_some(), "nobody took the rows: the renewal succeeds");
        assert!(!claim.valid_for().is_zero());
        std::thread::sleep(Duration::from_millis(1_100));
        assert_eq!(db.engine.recover().unwrap().returned, 3);
        assert!(claim.next_job().unwrap().is_none());
        assert!(claim.is_lost());
    }

    // 29, 47: recovery goes by the row's lease, not by the health of the process.
    fn a_dropped_claim_is_renewed_no_more("lease=1&backoff_base=0", db) {
        db.fill("q", 1);
        let claim = db.claim(1);
        drop(claim.next_job().unwrap().unwrap());
        drop(claim);
        wait_until("recovered", || db.engine.recover().unwrap().returned == 1);
    }
}
