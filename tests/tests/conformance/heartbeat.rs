use conformance::tables::{UserTable, claim};
use conformance::{Db, Kind, every_database, wait_until};
use rowclaim::faults::Fault;
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

// 46: without a record a beat that comes between the last write and its answer finds no row held any more.
#[test]
fn a_renewal_between_the_last_write_and_its_answer_is_quiet() {
    for kind in [Kind::Sqlite, Kind::MariaDb, Kind::MySql] {
        let Some(db) = Db::new(kind, "lease=1&heartbeat=1") else { continue };
        let targets = UserTable::targets(&db, 1);
        let batch = claim(&targets.map("\"lease_until\":\"lease_until\",\"zone\":\"UTC\",\"registry\":\"off\""), 1);
        let text = if db.is_sqlite() { "SET \"status\" = ?" } else { "SET `status` = ?" };
        // The answer is lost, and the connection is away for a second: at least one beat falls into it.
        db.faults.order(text, Fault::LostAfter, 0, 1);
        db.faults.order(text, Fault::LostBefore, 0, 2);
        assert_eq!(batch.job(0).unwrap().complete().unwrap(), Finish::Accepted);
        assert_eq!(db.faults.left(), 0);
        assert!(!batch.is_lost(), "{}: it was accepted", kind.name());
    }
}
