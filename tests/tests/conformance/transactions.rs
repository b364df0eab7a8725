//! The engine's transactions and other people's: connections that die inside of one, and outcomes that outlive one
//! (cases 110, 117, 118). No table is locked by any statement: `adopted_locks`, 24.

use conformance::tables::{ALL_ROLES, UserTable, claim};
use conformance::{Db, Kind, every_database, wait_until};
use rowclaim::blocking::Engine;
use rowclaim::faults::{Fault, Faults};
use rowclaim::{Binding, ClaimRequest, Config, Finish, JobState, NewJob, PlannedStatement};
use std::sync::Barrier;

const SERVERS: [Kind; 3] = [Kind::MariaDb, Kind::MariaDbTokenUpdate, Kind::MySql];

/// An engine whose connections are known by their user, so that they can be killed without harm to other tests.
struct Victim<'a> {
    db: &'a Db,
    name: String,
    engine: Engine,
    faults: Faults,
}

impl<'a> Victim<'a> {
    fn new(db: &'a Db) -> Victim<'a> {
        let name = format!("v{}", db.prefix);
        db.raw().run(&format!("CREATE USER {name}@'%' IDENTIFIED BY 'secret'"));
        db.raw().run(&format!("GRANT ALL ON *.* TO {name}@'%'"));
        let config = Config::new(&db.dsn.replace("root@", &format!("{name}:secret@"))).unwrap();
        let faults = config.faults.clone();
        Victim { db, engine: Engine::with_config(config).unwrap(), faults, name }
    }

    fn kill(&self) -> usize {
        let mut raw = self.db.raw();
        let sql = format!("SELECT id FROM information_schema.processlist WHERE user = '{}'", self.name);
        // MySQL refuses the whole answer while it shows another session's statement with bytes that are not text.
        let found = (0..100).find_map(|_| raw.try_rows(&sql).ok()).unwrap_or_default();
        found.iter().filter(|row| raw.try_run(&format!("KILL {}", row[0].as_deref().unwrap())).is_ok()).count()
    }

    /// Does something whose statement with `text` in it comes late, and loses its connection before it comes.
    fn loses_its_connection<R: Send>(&self, text: &str, work: impl FnOnce() -> R + Send, meanwhile: impl FnOnce()) -> R {
        self.faults.order(text, Fault::Pause, 0, 1);
        std::thread::scope(|scope| {
            let working = scope.spawn(work);
            wait_until("it is between two statements", || self.faults.left() == 0);
            assert!(self.kill() > 0, "no connection was killed");
            meanwhile();
            working.join().unwrap()
        })
    }
}

impl Drop for Victim<'_> {
    fn drop(&mut self) {
        let _ = self.engine.close(std::time::Duration::from_secs(2));
        let _ = self.db.raw().try_run(&format!("DROP USER {}@'%'", self.name));
    }
}

// 110: the first half of a step is gone with its connection, and the step is made again as a whole.
#[test]
fn a_connection_killed_inside_a_step_leaves_no_half_of_it() {
    for kind in SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0&backoff_base=60") else { continue };
        let victim = Victim::new(&db);
        db.fill("q", 20);
        let mark = format!("UPDATE `{}jobs`", db.prefix);
        let mut claims = 0;
        for text in [mark.as_str(), "COMMIT"] {
            let place = format!("{} at {text}", kind.name());
            let batch = victim.loses_its_connection(
                text,
                || victim.engine.claim(&ClaimRequest::new("q").limit(5)).unwrap(),
                || {
                    // What the server is undoing still counts until it has.
                    wait_until("nothing of it is there", || {
                        let open = db.number("SELECT COUNT(*) FROM {claims}") - claims;
                        open == 0 && db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'claimed'") == 0
                    });
                },
            );
            claims += 1;
            assert_eq!(db.number("SELECT COUNT(*) FROM {claims}"), claims, "{place}");
            assert_eq!(batch.rows().iter().map(|job| job.attempts).collect::<Vec<_>>(), [1; 5], "{place}");
            let before = db.number("SELECT COUNT(*) FROM {attempts}");
            let answer = victim.loses_its_connection("INSERT INTO", || batch.job(0).unwrap().fail("x", None).unwrap(), || ());
            assert_eq!(answer, Finish::Accepted, "{place}");
            assert_eq!(db.number("SELECT COUNT(*) FROM {attempts}") - before, 1, "{place}");
            batch.complete_all().unwrap();
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1"), 8);
    }
}

/// The statement as an application would send it.
fn with_values(planned: &PlannedStatement) -> String {
    let mut values = planned.bindings.iter();
    let mut parts = planned.sql.split('?');
    let mut sql = parts.next().unwrap().to_owned();
    for part in parts {
        sql += &match values.next().unwrap() {
            Binding::Null => "NULL".to_owned(),
            Binding::Int(number) => number.to_string(),
            Binding::Text(text) => format!("'{text}'"),
        };
        sql += part;
    }
    sql
}

// 110: and of the application's transaction with a planned creation in it.
#[test]
fn a_job_planned_in_a_transaction_that_dies_is_not_created() {
    for kind in SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0") else { continue };
        let job = NewJob::new("q", "7").key("order:7");
        let planned = db.engine.plan_create(&job).unwrap();
        let mut own = db.raw();
        own.run("BEGIN");
        own.run(&with_values(&planned));
        db.raw().run(&format!("KILL {}", own.connection_id()));
        assert!(own.try_run("COMMIT").is_err(), "nobody connects again in silence");
        wait_until("the server has undone it", || db.number("SELECT COUNT(*) FROM {jobs}") == 0);
        assert!(!db.engine.create(&job).unwrap().exists);
    }
}

// 117: a handler's own transaction takes the outcome of its job not with it.
#[test]
fn an_outcome_outlives_the_transaction_of_its_handler() {
    for kind in SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0&backoff_base=60") else { continue };
        let notes = UserTable::new(&db, "notes", "id INT NOT NULL PRIMARY KEY");
        let targets = UserTable::targets(&db, 1);
        let ids = db.fill("q", 1);
        let (jobs, rows) = (db.claim(1), claim(&targets.map(ALL_ROLES), 1));
        let mut own = db.raw();
        own.run("BEGIN");
        own.run(&format!("INSERT INTO {} VALUES (1)", notes.name));
        assert_eq!(jobs.job(0).unwrap().fail("time limit", None).unwrap(), Finish::Accepted);
        assert_eq!(rows.job(0).unwrap().fail("time limit", None).unwrap(), Finish::Accepted);
        db.raw().run(&format!("KILL {}", own.connection_id()));
        wait_until("the handler's write is gone", || notes.number("SELECT COUNT(*) FROM {t}") == 0);
        let job = db.engine.job(ids[0]).unwrap().unwrap();
        assert_eq!((job.state, job.last_error.as_deref()), (JobState::Ready, Some("time limit")), "{}", kind.name());
        assert_eq!((targets.column("status"), targets.column("error")), (vec!["0".into()], vec!["time limit".into()]));
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'failed' AND error = 'time limit'"), 2);
    }
}

every_database! {
    // 118: a time limit that fires at the moment at which the handler fails: one end, one entry.
    fn two_failures_of_one_attempt_at_once_are_one_end("heartbeat=0&max_attempts=1", db) {
        const JOBS: usize = 40;
        db.fill("q", JOBS);
        let batch = db.claim(JOBS);
        let barrier = Barrier::new(2);
        let answers: Vec<Finish> = std::thread::scope(|scope| {
            let hands: Vec<_> = ["limit", "thrown"]
                .into_iter()
                .map(|error| {
                    let (batch, barrier) = (batch.clone(), &barrier);
                    let fail = move |n| {
                        barrier.wait();
                        batch.job(n).unwrap().fail(error, None).unwrap()
                    };
                    scope.spawn(move || (0..JOBS).map(fail).collect::<Vec<_>>())
                })
                .collect();
            hands.into_iter().flat_map(|hand| hand.join().unwrap()).collect()
        });
        assert_eq!(answers, [Finish::Accepted; 2 * JOBS]);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'dead' AND attempts = 1"), JOBS as i64);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts}"), JOBS as i64);
    }
}
