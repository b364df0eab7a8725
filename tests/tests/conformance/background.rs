//! What the background thread does with what can never be written: it must not keep the rest waiting.

use conformance::tables::UserTable;
use conformance::{every_database, wait_until};
use rowclaim::{ErrorKind, Finish, Outcome, RowClaimRequest};
use std::time::{Duration, Instant};

const DROP: &str = "DROP TABLE {t}";
const AGAIN: &str = "CREATE TABLE {t} (id INTEGER PRIMARY KEY)";

every_database! {
    fn outcomes_of_a_table_that_is_gone_do_not_keep_the_others("backoff_base=0", db) {
        let targets = UserTable::targets(db, 2);
        db.fill("q", 2);
        let rows = targets.map("").claim(&RowClaimRequest::new(2)).unwrap();
        let jobs = db.claim(2);
        targets.run(DROP);
        while let Some(row) = rows.next_job().unwrap() {
            row.finish_later(Outcome::Complete).unwrap();
        }
        while let Some(job) = jobs.next_job().unwrap() {
            job.finish_later(Outcome::Complete).unwrap();
        }
        let error = db.engine.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().starts_with("2 outcomes could not be written"), "{error}");
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'"), 2);
        db.engine.flush().unwrap();
        targets.run(AGAIN);
    }

    fn a_claim_of_a_table_that_is_gone_does_not_keep_the_others_from_their_renewal("lease=1", db) {
        let targets = UserTable::targets(db, 1);
        db.fill("q", 1);
        let rows = targets.map("\"lease_until\":\"lease_until\",\"zone\":\"UTC\"").claim(&RowClaimRequest::new(1)).unwrap();
        let jobs = db.claim(1);
        targets.run(DROP);
        let since = Instant::now();
        wait_until("the rows' claim has lapsed", || rows.valid_for().is_zero());
        while since.elapsed() < Duration::from_millis(2_500) {
            assert!(!jobs.is_lost() && !jobs.valid_for().is_zero(), "renewed each third of a second");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(jobs.complete_all().unwrap(), [Finish::Accepted]);
        targets.run(AGAIN);
    }

    // Once each process waited its whole shutdown limit for claims that nobody can close.
    fn an_engine_whose_tables_are_gone_ends_at_once("backoff_base=0", db) {
        let other = db.another("");
        db.fill("q", 1);
        let claim = other.claim(&rowclaim::ClaimRequest::new("q")).unwrap();
        assert_eq!(claim.complete_all().unwrap(), [Finish::Accepted]);
        db.raw().drop_own_tables();
        let since = Instant::now();
        other.close(Duration::from_secs(20)).unwrap();
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
        db.engine.migrate().unwrap();
    }
}
