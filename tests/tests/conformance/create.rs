use conformance::{Db, every_database, wait_until};
use rowclaim::{Binding, ClaimRequest, Created, ErrorKind, JobState, NewJob, Outcome, Timestamp, Unique};
use std::time::Duration;

fn create(db: &Db, key: &str, unique: Unique) -> Created {
    let mut job = NewJob::new("q", "{}").key(key);
    job.unique = unique;
    db.engine.create(&job).unwrap()
}

every_database! {
    // 62–65
    fn keys_are_bytes(db) {
        let keys = ["publish:Bot-A", "publish:bot-a", "e", "é", "e\u{301}", "a", "a ", "🎉", "👍", "ß", "ss", "SS", "a\u{0}", "À", "A"];
        for key in keys {
            assert!(!create(db, key, Unique::Forever).exists, "{key:?}");
        }
        for key in keys {
            let again = create(db, key, Unique::Forever);
            assert!(again.exists, "{key:?}");
            assert_eq!(db.engine.job(again.id).unwrap().unwrap().key.as_deref(), Some(key));
        }
    }

    // 66
    fn a_key_of_192_bytes_is_refused_and_one_of_191_is_not(db) {
        assert!(!create(db, &"k".repeat(191), Unique::Forever).exists);
        for key in [String::new(), "k".repeat(192), "é".repeat(96), format!("{}x", "k".repeat(300))] {
            let error = db.engine.create(&NewJob::new("q", "{}").key(key)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().contains("key must have 1 to 191 bytes"), "{error}");
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs}"), 1);
    }

    // 69
    fn repeats_burn_no_ids(db) {
        let first = create(db, "k", Unique::Forever);
        for _ in 0..50 {
            assert_eq!(create(db, "k", Unique::Forever).id, first.id);
        }
        assert_eq!(create(db, "other", Unique::Forever).id, first.id + 1);
    }

    // 72
    fn keys_are_unique_in_their_queue_only(db) {
        for queue in ["a", "b"] {
            assert!(!db.engine.create(&NewJob::new(queue, "{}").key("1")).unwrap().exists);
        }
    }

    // 71
    fn an_active_key_is_free_when_the_job_is_dead_done_or_cancelled(db) {
        for end in ["dead", "done", "cancelled"] {
            let mut job = NewJob::new("q", "{}").key(end);
            job.unique = Unique::Active;
            job.max_attempts = Some(1);
            let first = db.engine.create(&job).unwrap();
            assert!(db.engine.create(&job).unwrap().exists, "{end}: waits");
            match end {
                "cancelled" => assert!(db.engine.cancel(first.id, false).unwrap()),
                _ => {
                    let claim = db.claim(1);
                    assert!(db.engine.create(&job).unwrap().exists, "{end}: runs");
                    let outcome = if end == "dead" { Outcome::Fail { error: "x".into(), delay: None } } else { Outcome::Complete };
                    claim.job(0).unwrap().finish(&outcome).unwrap();
                }
            }
            assert_eq!(db.engine.job(first.id).unwrap().unwrap().state.name(), end);
            let second = db.engine.create(&job).unwrap();
            assert!(!second.exists, "{end}: over");
            db.engine.cancel(second.id, false).unwrap();
        }
    }

    // 71
    fn a_forever_key_stays_taken_by_a_dead_job(db) {
        let mut job = NewJob::new("q", "{}").key("k");
        job.max_attempts = Some(1);
        db.engine.create(&job).unwrap();
        db.claim(1).job(0).unwrap().fail("x", None).unwrap();
        let again = db.engine.create(&job).unwrap();
        assert_eq!((again.exists, again.state), (true, JobState::Dead));
    }

    // 44
    fn a_key_until_claimed_is_free_at_the_first_claim_and_a_retry_does_not_free_it_again("backoff_base=0", db) {
        create(db, "k", Unique::UntilClaimed);
        let first = db.claim(1);
        assert!(!create(db, "k", Unique::UntilClaimed).exists, "the key is free once the job is claimed");
        first.job(0).unwrap().fail("x", None).unwrap();
        assert!(create(db, "k", Unique::UntilClaimed).exists, "a failure does not free the newer job's key");
        let second = db.engine.claim(&ClaimRequest::new("q").limit(5)).unwrap();
        assert_eq!(second.len(), 2);
        assert!(!create(db, "k", Unique::UntilClaimed).exists);
    }

    fn a_timed_key_is_free_after_its_time(db) {
        let time = Unique::For(Duration::from_millis(300));
        assert!(!create(db, "k", time).exists);
        assert!(create(db, "k", time).exists);
        wait_until("the key is free", || !create(db, "k", time).exists);
        assert!(create(db, "k", time).exists);
    }

    fn many_are_answered_in_order_with_twins_and_holders(db) {
        let held = create(db, "b", Unique::Forever);
        let jobs: Vec<NewJob> = ["a", "b", "a", "c"].iter().map(|key| NewJob::new("q", "{}").key(*key)).collect();
        let mut jobs = jobs;
        jobs.push(NewJob::new("q", "{}"));
        jobs.push(NewJob::new("q", "{}"));
        let created = db.engine.create_many(&jobs).unwrap();
        assert_eq!(created.iter().map(|c| c.exists).collect::<Vec<_>>(), [false, true, true, false, false, false]);
        assert_eq!(created[1].id, held.id);
        assert_eq!(created[0].id, created[2].id);
        assert_ne!(created[4].id, created[5].id);
        assert!(db.engine.create_many(&[]).unwrap().is_empty());
    }

    fn two_thousand_are_created_in_chunks_and_a_repeat_creates_none(db) {
        let jobs: Vec<NewJob> = (0..2_000).map(|n| NewJob::new("q", n.to_string()).key(format!("k{n}"))).collect();
        let created = db.engine.create_many(&jobs).unwrap();
        assert!(created.iter().all(|c| !c.exists));
        let again = db.engine.create_many(&jobs).unwrap();
        assert!(again.iter().all(|c| c.exists));
        assert_eq!(created.iter().map(|c| c.id).collect::<Vec<_>>(), again.iter().map(|c| c.id).collect::<Vec<_>>());
        let payloads = db.raw().rows("SELECT payload FROM {jobs} ORDER BY id");
        assert_eq!(payloads.len(), 2_000);
        for (n, created) in created.iter().enumerate().step_by(137) {
            assert_eq!(db.engine.job(created.id).unwrap().unwrap().payload, n.to_string());
        }
    }

    // 22
    fn two_creators_of_one_key_at_once_make_one_job(db) {
        for round in 0..20 {
            let key = format!("k{round}");
            let made: usize = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..4)
                    .map(|_| {
                        let engine = db.another("");
                        let key = key.clone();
                        scope.spawn(move || engine.create(&NewJob::new("q", "{}").key(key)).unwrap())
                    })
                    .collect();
                racers.into_iter().map(|racer| usize::from(!racer.join().unwrap().exists)).sum()
            });
            assert_eq!(made, 1, "round {round}");
        }
    }

    // 76
    fn a_time_in_2500_is_stored_and_never_due(db) {
        let mut job = NewJob::new("q", "{}");
        job.run_at = Some(Timestamp(16_725_268_800_000_000)); // 2500-01-01T12:00Z
        let created = db.engine.create(&job).unwrap();
        assert_eq!(db.engine.job(created.id).unwrap().unwrap().ready_at, job.run_at);
        job.run_at = Some(Timestamp::END);
        db.engine.create(&job).unwrap();
        assert!(db.claim(5).is_empty());
    }

    // 45
    fn a_delayed_job_is_claimed_when_its_time_has_come_and_not_before(db) {
        let mut job = NewJob::new("q", "{}");
        job.delay = Duration::from_millis(400);
        let since = std::time::Instant::now();
        db.engine.create(&job).unwrap();
        wait_until("the job is due", || !db.claim(1).is_empty());
        assert!(since.elapsed() >= Duration::from_millis(390), "{:?}", since.elapsed());
    }

    // 86, 87, 88
    fn payloads_come_back_byte_for_byte(db) {
        let payloads = [
            "0", "null", "false", "\"\"", "[]", "{}", "1.0", "0.30000000000000004", "\"\\u0000\"", "\"😊\"", "{ \"b\" : 1 , \"a\":2}",
            "[899999999999999990,9223372036854775807,9223372036854775808,18446744073709551615]", "1e400", "{\"a\":1,\"a\":2}",
        ];
        for payload in payloads {
            db.engine.create(&NewJob::new("q", payload)).unwrap();
        }
        let claim = db.claim(100);
        assert_eq!(claim.rows().iter().map(|job| job.payload.as_str()).collect::<Vec<_>>(), payloads);
    }

    // 83, 84
    fn five_megabytes_come_back_whole(db) {
        let payload = format!("\"{}\"", "x".repeat(5 << 20));
        db.engine.create(&NewJob::new("q", payload.clone())).unwrap();
        assert!(db.claim(1).rows()[0].payload == payload);
    }

    fn a_planned_creation_runs_on_the_callers_own_connection(db) {
        let job = NewJob::new("q", r#"{"it's":"fine"}"#).key("k");
        let planned = db.engine.plan_create(&job).unwrap();
        let mut sql = String::new();
        let mut values = planned.bindings.iter();
        for part in planned.sql.split('?') {
            sql += part;
            match values.next() {
                Some(Binding::Null) => sql += "NULL",
                Some(Binding::Int(number)) => sql += &number.to_string(),
                Some(Binding::Text(text)) => sql += &format!("'{}'", text.replace('\'', "''")),
                None => {}
            }
        }
        let mut raw = db.raw();
        raw.run("BEGIN");
        raw.run(&sql);
        assert!(db.claim(1).is_empty() || db.is_sqlite(), "seen before the caller's commit");
        raw.run("ROLLBACK");
        assert!(db.claim(1).is_empty(), "the caller's rollback takes the job with it");
        for _ in 0..2 {
            raw.run(&sql);
        }
        let claim = db.claim(5);
        assert_eq!(claim.len(), 1, "a repeat creates nothing");
        assert_eq!(claim.rows()[0].payload, job.payload);
        assert!(db.engine.create(&job).unwrap().exists);
    }
}
