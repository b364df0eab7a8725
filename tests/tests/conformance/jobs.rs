//! Jobs as such: payloads that cannot be read, keys, planned times, kinds (cases 56, 68, 73, 80, 89, 147).
//!
//! What a binding makes of a payload (85, and the decoding of 56 and 73) is tested there; here is what the engine does.

use conformance::raw::OWN_TABLES;
use conformance::{Db, Kind, every_database};
use rowclaim::{ClaimRequest, Finish, NewJob, Outcome, Timestamp, Unique};
use std::time::Duration;

/// A job whose payload was cut by other code, before five good ones.
fn with_a_broken_one(db: &Db, payload: &str) -> NewJob {
    let mut broken = NewJob::new("q", "1").key("k");
    broken.max_attempts = Some(1);
    broken.unique = Unique::Active;
    let id = db.engine.create(&broken).unwrap().id;
    db.fill("q", 5);
    db.raw().run(&format!("UPDATE {{jobs}} SET payload = {payload} WHERE id = {id}"));
    broken
}

every_database! {
    // 56, 73: half a document is its handler's to refuse, whatever attempts are left; its key is free, and the others run.
    fn a_job_with_half_a_document_ends_and_the_others_run("heartbeat=0", db) {
        let broken = with_a_broken_one(db, "'{\"order\":'");
        let claim = db.claim(6);
        assert_eq!((claim.len(), claim.rows()[0].payload.as_str()), (6, "{\"order\":"));
        assert_eq!(claim.job(0).unwrap().reject("payload is no JSON").unwrap(), Finish::Accepted);
        assert_eq!(claim.complete_all().unwrap(), [Finish::Accepted; 5]);
        let dead = db.engine.job(claim.rows()[0].id).unwrap().unwrap();
        assert_eq!((dead.state.name(), dead.attempts, dead.last_error.as_deref()), ("dead", 1, Some("payload is no JSON")));
        assert!(!db.engine.create(&broken).unwrap().exists, "its key is free");
    }

    // 80: a planned instant is kept as it is, summer or winter.
    fn a_planned_instant_is_stored_in_utc("heartbeat=0", db) {
        for (seconds, utc) in [(1_590_285_600, "2020-05-24 02:00:00"), (1_579_834_800, "2020-01-24 03:00:00")] {
            let mut job = NewJob::new("q", "1");
            job.run_at = Some(Timestamp(seconds * 1_000_000));
            let id = db.engine.create(&job).unwrap().id;
            assert_eq!(db.engine.job(id).unwrap().unwrap().ready_at, job.run_at);
            if !db.is_sqlite() {
                let stored = db.raw().rows(&format!("SELECT DATE_FORMAT(ready_at, '%Y-%m-%d %H:%i:%s') FROM {{jobs}} WHERE id = {id}"));
                assert_eq!(stored[0][0].as_deref(), Some(utc));
            }
        }
    }

    // 89: a worker takes the kinds it knows; what it was given by mistake goes back without blame.
    fn a_worker_takes_only_the_kinds_it_knows("heartbeat=0", db) {
        db.fill("v2", 1);
        assert!(db.engine.claim(&ClaimRequest::new("v1")).unwrap().is_empty());
        for fence in 1..=3 {
            let claim = db.engine.claim(&ClaimRequest::new("v2")).unwrap();
            assert_eq!((claim.rows()[0].attempts, claim.rows()[0].fence), (1, fence));
            assert_eq!(claim.job(0).unwrap().finish(&Outcome::Release { delay: Duration::ZERO }).unwrap(), Finish::Accepted);
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'failed'"), 0);
    }

    // 147: a receiver in two lists gets one message.
    fn a_receiver_in_two_lists_is_one_job("heartbeat=0", db) {
        let list = |receivers: &[&str]| -> Vec<bool> {
            let jobs: Vec<NewJob> = receivers.iter().map(|name| NewJob::new("q", "1").key(format!("task:42:{name}"))).collect();
            db.engine.create_many(&jobs).unwrap().iter().map(|created| created.exists).collect()
        };
        assert_eq!(list(&["x", "y"]), [false, false]);
        assert_eq!(list(&["y", "z"]), [true, false]);
        assert_eq!(list(&["Y", "y "]), [false, false], "byte for byte");
        assert_eq!(db.claim(9).len(), 5);
    }
}

// 56: SQLite keeps bytes that are no text in a text column.
#[test]
fn a_job_that_cannot_be_read_does_not_keep_the_others() {
    let Some(db) = Db::new(Kind::Sqlite, "heartbeat=0") else { return };
    with_a_broken_one(&db, "CAST(X'ff' AS TEXT)");
    for _ in 0..8 {
        if let Ok(claim) = db.engine.claim(&ClaimRequest::new("q")) {
            let _ = claim.complete_all();
        }
    }
    assert!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'") >= 5);
}

// 68: no index is over the 767 bytes of older row formats.
#[test]
fn the_tables_can_be_made_with_the_row_format_of_older_servers() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "") else { continue };
        for table in OWN_TABLES {
            db.raw().run(&format!("ALTER TABLE {{{table}}} ROW_FORMAT = COMPACT"));
        }
        let formats = db.raw().rows(&format!(
            "SELECT row_format FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE '{}%'",
            db.prefix.replace('_', "\\_")
        ));
        assert!(formats.len() >= 6 && formats.iter().all(|row| row[0].as_deref() == Some("Compact")), "{formats:?}");
        assert!(!db.engine.create(&NewJob::new("q", "1").key("k".repeat(191))).unwrap().exists);
    }
}
