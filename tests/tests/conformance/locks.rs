//! A claim of n rows locks at most 2n + 16 rows whatever the table holds (15): one test for each claim shape and option.
//!
//! The claim is held up before its COMMIT, and the server is asked for the count of its transaction.

use conformance::tables::{TARGETS, UserTable};
use conformance::{Db, Kind};
use rowclaim::faults::Fault;
use rowclaim::{ClaimRequest, NewJob, OnLost, RowClaimRequest, Value};
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
fn most_locked(db: &Db, claim: impl FnOnce() -> usize + Send) -> (usize, i64) {
    most_locked_by(db, "INSERT", claim)
}

/// The same of whatever writes the row of a claim.
fn most_locked_by(db: &Db, event: &str, claim: impl FnOnce() -> usize + Send) -> (usize, i64) {
    let mut raw = db.raw();
    // The claim's row names the connection; it is read before its commit.
    raw.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
    raw.run(&format!(
        "CREATE TRIGGER {}who BEFORE {event} ON {{claims}} FOR EACH ROW SET NEW.worker = CONNECTION_ID()",
        db.prefix
    ));
    db.faults.order("COMMIT", Fault::Pause, 0, 1);
    let (claimed, most) = std::thread::scope(|scope| {
        let claim = scope.spawn(claim);
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
            let mut tries = (0..4).map(|_| most_locked(&db, || db.engine.claim(&request).unwrap().len()));
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

/// 30,000 finished and 30,000 waiting rows of one task in a user's table, with an index or without.
fn crowded_table<'a>(db: &'a Db, index: &str) -> UserTable<'a> {
    let targets = UserTable::new(db, "targets", &format!("{TARGETS}{index}"));
    let mut raw = db.raw();
    let digits = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 \
        UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let numbers = format!("{digits} a, {digits} b, {digits} c, {digits} d, (SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2) e");
    let number = "a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d";
    // New rows usually have no time yet: that is another lane than those whose time has come.
    let time = if index.contains("/* no time */") { "NULL" } else { "UTC_TIMESTAMP() - INTERVAL 10 SECOND" };
    for (from, status, token) in [(0, 2, "'00000000-0000-0000-0000-000000000000'"), (30_000, 0, "NULL")] {
        raw.run(&format!(
            "INSERT INTO {} (id, task_id, status, cron_token, available_at) SELECT {number} + {from}, 42, {status}, {token}, {time} \
             FROM {numbers}",
            targets.name
        ));
    }
    raw.rows(&format!("ANALYZE TABLE {}", targets.name));
    targets
}

/// Every way to the rows of a mapped table: by an index that gives them in order, with a time and without, by the token, and
/// by candidates where no index fits.
#[test]
fn a_claim_on_a_mapped_table_locks_few_rows_whatever_its_indexes() {
    let _reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    let timed = "\"available_at\":\"available_at\",\"zone\":\"UTC\"";
    for (kind, options) in [
        (Kind::MariaDb, "heartbeat=0"),
        (Kind::MySql, "heartbeat=0"),
        (Kind::MariaDb, "heartbeat=0&shape=token_update"),
        (Kind::MySql, "heartbeat=0&shape=token_update"),
    ] {
        for (index, more) in [
            (", KEY i (task_id, status)", ""),
            (", KEY i (task_id, status, available_at)", timed),
            (", KEY i (task_id, status, available_at) /* no time */", timed),
            (", KEY i (task_id, cron_token)", ""),
            (", KEY i (task_id, cron_token, available_at) /* no time */", timed),
            (", KEY i (status)", ""),
            ("", ""),
            (", KEY i (status, available_at)", timed),
        ] {
            let Some(db) = Db::new(kind, options) else { continue };
            let targets = crowded_table(&db, index);
            let table = targets.map(more);
            for limit in [1, 100, 500] {
                let request = RowClaimRequest::new(limit).equal("task_id", Value::Int(42));
                let (claimed, locked) = (0..4)
                    .map(|_| most_locked(&db, || table.claim(&request).unwrap().len()))
                    .find(|(_, locked)| *locked > 0)
                    .unwrap_or((limit, 0));
                let bound = 2 * limit as i64 + 16;
                let place = format!("{} {options}{index}: claim of {limit}", kind.name());
                println!("{place} locks {locked} rows");
                assert_eq!(claimed, limit, "{place}");
                assert!((limit as i64..=bound).contains(&locked), "{place} locks {locked} rows, more than {bound} or unseen");
            }
        }
    }
}

/// The cursor stands within an instant that thousands share: jobs, and rows of a mapped table.
#[test]
fn a_claim_from_within_an_instant_locks_few_rows() {
    let _reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in Kind::SERVERS {
        let Some(db) = crowded(kind, "heartbeat=0") else { continue };
        let targets = crowded_table(&db, ", KEY i (status, available_at)");
        let table = targets.map("\"available_at\":\"available_at\",\"zone\":\"UTC\"");
        let claim = |limit| db.claim(limit).len();
        let claim_rows = |limit| table.claim(&RowClaimRequest::new(limit)).unwrap().len();
        for claim in [&claim as &(dyn Fn(usize) -> usize + Sync), &claim_rows] {
            let mut tries = (0..4).map(|_| {
                // Within the second a cursor lives.
                assert_eq!((claim(400), claim(400)), (400, 400));
                most_locked(&db, || claim(100))
            });
            let (claimed, locked) = tries.find(|(_, locked)| *locked > 0).unwrap_or((100, 0));
            println!("{}: from within an instant a claim of 100 locks {locked} rows", kind.name());
            assert_eq!(claimed, 100);
            assert!((100..=216).contains(&locked), "{}: a claim of 100 locks {locked} rows", kind.name());
        }
    }
}

/// Whether it holds what was begun or not, a recovery locks the rows of its claim and few others.
#[test]
fn a_recovery_locks_few_rows_also_where_some_are_held() {
    let _reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in Kind::SERVERS {
        for on_lost in [OnLost::Retry, OnLost::Hold] {
            let Some(db) = crowded(kind, "heartbeat=0") else { continue };
            let mut claims = Vec::new();
            let (lost, locked) = (0..4)
                .map(|_| {
                    let claim = db.engine.claim(&ClaimRequest::new("q").limit(100).on_lost(on_lost)).unwrap();
                    for _ in 0..30 {
                        claim.next_job().unwrap().unwrap();
                    }
                    claims.push(claim);
                    db.expire();
                    most_locked_by(&db, "UPDATE", || {
                        let recovered = db.engine.recover().unwrap();
                        assert_eq!(recovered.held, if on_lost == OnLost::Hold { 30 } else { 0 });
                        (recovered.returned + recovered.held) as usize
                    })
                })
                .find(|(_, locked)| *locked > 0)
                .unwrap_or((100, 0));
            println!("{} {on_lost:?}: recovery of 100 locks {locked} rows", kind.name());
            assert_eq!(lost, 100);
            assert!((100..=216).contains(&locked), "{} {on_lost:?}: locks {locked} rows", kind.name());
            claims.into_iter().for_each(std::mem::forget);
        }
    }
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
