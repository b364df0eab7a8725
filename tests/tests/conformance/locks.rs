//! A claim of n rows locks at most 2n + 16 rows whatever the table holds: one test for each claim shape and option.
//!
//! The claim is held up before its COMMIT, and the server is asked for the count of its transaction.

use conformance::{Db, Kind};
use rowclaim::faults::Fault;
use rowclaim::{ClaimRequest, NewJob};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// 30,000 finished and 30,000 ready rows in one lane, some in others.
fn crowded(kind: Kind, options: &str) -> Option<Db> {
    let db = Db::new(kind, options)?;
    let mut raw = db.raw();
    let digits = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 \
        UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let numbers = format!("{digits} a, {digits} b, {digits} c, {digits} d, (SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2) e");
    for (state, ready_at) in [("done", "NULL"), ("ready", "UTC_TIMESTAMP(6) - INTERVAL 10 SECOND")] {
        raw.run(&format!(
            "INSERT INTO {{jobs}} (queue, payload, state, ready_at, max_attempts, created_at) \
             SELECT 'q', '{{}}', '{state}', {ready_at}, 20, UTC_TIMESTAMP(6) FROM {numbers}"
        ));
    }
    raw.rows("ANALYZE TABLE {jobs}");
    Some(db)
}

/// The rows that the transaction of one claim has locked when it is about to commit.
fn most_locked(db: &Db, request: &ClaimRequest) -> (usize, i64) {
    let mut raw = db.raw();
    // The claim's row names the connection; it is read before its commit.
    raw.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
    raw.run(&format!(
        "CREATE TRIGGER {}who BEFORE INSERT ON {{claims}} FOR EACH ROW SET NEW.worker = CONNECTION_ID()",
        db.prefix
    ));
    db.faults.order("COMMIT", Fault::Pause, 0, 1);
    let (claimed, most) = std::thread::scope(|scope| {
        let claim = scope.spawn(|| db.engine.claim(request).unwrap().len());
        let mut most = 0;
        while !claim.is_finished() {
            // The server makes this table anew only when nobody has read it for 100 ms.
            std::thread::sleep(Duration::from_millis(130));
            let rows = raw.try_rows(
                "SELECT COALESCE(MAX(trx_rows_locked), 0) FROM information_schema.innodb_trx \
                 WHERE trx_mysql_thread_id = (SELECT CAST(worker AS UNSIGNED) FROM {claims} ORDER BY id DESC LIMIT 1)",
            );
            // MySQL refuses the whole answer while it shows another session's statement with bytes that are not text.
            let Ok(rows) = rows else { continue };
            most = most.max(rows[0][0].as_deref().unwrap().parse::<i64>().unwrap());
        }
        (claim.join().unwrap(), most)
    });
    raw.run(&format!("DROP TRIGGER {}who", db.prefix));
    (claimed, most)
}

/// One reader of `innodb_trx` at a time, see below.
static READER: Mutex<()> = Mutex::new(());

fn check(kind: Kind, options: &str, requests: &[ClaimRequest]) {
    let _reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(db) = crowded(kind, options) else { return };
    for request in requests {
        for limit in [1, 100, 500] {
            let request = request.clone().limit(limit);
            let mut tries = (0..4).map(|_| most_locked(&db, &request));
            let (claimed, locked) = tries.find(|(_, locked)| *locked > 0).unwrap_or((limit, 0));
            let bound = 2 * limit as i64 + 16;
            println!("{} {options}: claim of {limit} locks {locked} rows ({request:?})", kind.name());
            assert_eq!(claimed, limit);
            assert!(locked <= bound, "{}: a claim of {limit} locks {locked} rows, more than {bound}: {request:?}", kind.name());
            assert!(locked >= limit as i64, "the count was not seen: {locked}");
        }
    }
}

fn requests() -> Vec<ClaimRequest> {
    let plain = ClaimRequest::new("q");
    let mut queues = ClaimRequest::new("empty");
    queues.queues.push("q".to_owned());
    let mut priority = ClaimRequest::new("q");
    priority.priority = Some(0);
    let mut partition = ClaimRequest::new("q");
    partition.partition = Some((1, 3));
    vec![plain, queues, priority, partition]
}

#[test]
fn mariadb() {
    check(Kind::MariaDb, "heartbeat=0", &requests());
}

#[test]
fn mysql() {
    check(Kind::MySql, "heartbeat=0", &requests());
}

#[test]
fn mariadb_token_update() {
    check(Kind::MariaDbTokenUpdate, "heartbeat=0", &requests());
}

#[test]
fn mysql_token_update() {
    check(Kind::MySql, "heartbeat=0&shape=token_update", &requests());
}

/// Finishing goes by primary key: it locks its rows and no others.
#[test]
fn a_finish_locks_only_its_rows() {
    for kind in Kind::SERVERS {
        let Some(db) = crowded(kind, "heartbeat=0") else { continue };
        let claim = db.claim(100);
        let mut raw = db.raw();
        // A row of every second id is locked by somebody else; the finish of the others must not wait for it.
        raw.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
        raw.run("BEGIN");
        raw.rows("SELECT id FROM {jobs} WHERE state = 'ready' AND id % 2 = 0 ORDER BY id LIMIT 5000 FOR UPDATE");
        let since = std::time::Instant::now();
        claim.complete_all().unwrap();
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        raw.run("COMMIT");
    }
}

/// Producers do not wait for claims: READ COMMITTED takes no gap locks.
#[test]
fn a_claim_held_open_does_not_hold_up_producers() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        db.fill("q", 50);
        let producer = db.another("");
        producer.create(&NewJob::new("warm", "1")).unwrap();
        db.faults.order("COMMIT", Fault::Pause, 0, 1);
        std::thread::scope(|scope| {
            let claim = scope.spawn(|| db.claim(50).len());
            std::thread::sleep(Duration::from_millis(100));
            producer.create(&NewJob::new("q", "1")).unwrap();
            assert!(!claim.is_finished(), "the producer did not wait for the claim");
            assert_eq!(claim.join().unwrap(), 50);
        });
    }
}
