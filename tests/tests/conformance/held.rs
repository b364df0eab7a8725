//! `on_lost: hold`: at most once. What was begun waits for a person when its lease runs out, and nothing else does.

use conformance::records::{Audit, clock};
use conformance::tables::{ALL_ROLES, UserTable};
use conformance::{Db, every_database, wait_until};
use rowclaim::blocking::{Claim, Handled, Job, WorkRequest};
use rowclaim::faults::Fault;
use rowclaim::{
    ClaimName, ClaimRequest, ErrorKind, Filters, Finish, JobFilter, JobState, NewJob, OnLost, Outcome, PruneRequest, Recovered,
    Resolution, RowClaimRequest, Unique, Value,
};
use std::process::Command;
use std::time::Duration;

const HELD: &str = "\"held\":4,\"on_lost\":\"hold\"";
const STARTED: &str = "lease expired after it was started";

fn hold(limit: usize) -> ClaimRequest {
    ClaimRequest::new("q").limit(limit).on_lost(OnLost::Hold)
}

fn started(claim: &Claim) -> Job {
    claim.next_job().unwrap().unwrap()
}

fn state(db: &Db, id: i64) -> &'static str {
    db.engine.job(id).unwrap().unwrap().state.name()
}

/// A job that was begun when its lease ran out, and its late owner.
fn held(db: &Db, job: &NewJob) -> (i64, Job) {
    let id = db.engine.create(job).unwrap().id;
    let owner = started(&db.engine.claim(&hold(1)).unwrap());
    db.expire();
    assert_eq!(db.engine.recover().unwrap(), Recovered { claims: 1, returned: 0, dead: 0, held: 1, ..Recovered::default() });
    assert_eq!(state(db, id), "held");
    (id, owner)
}

fn active(key: &str) -> NewJob {
    let mut job = NewJob::new("q", "{}").key(key);
    job.unique = Unique::Active;
    job.max_attempts = Some(1);
    job
}

every_database! {
    fn what_was_begun_is_held_and_the_rest_comes_back_at_once("heartbeat=0&backoff_base=3600", db) {
        let ids = db.fill("q", 4);
        let claim = db.engine.claim(&hold(4)).unwrap();
        assert_eq!(started(&claim).complete().unwrap(), Finish::Accepted);
        let begun = started(&claim);
        assert_eq!(begun.id, ids[1]);
        db.expire();
        assert_eq!(db.engine.recover().unwrap(), Recovered { claims: 1, returned: 2, dead: 0, held: 1, ..Recovered::default() });
        assert_eq!(db.engine.recover().unwrap(), Recovered::default());

        let row = db.engine.job(ids[1]).unwrap().unwrap();
        assert_eq!((row.state, row.attempts, row.lost, row.claim_id), (JobState::Held, 1, 1, None));
        assert_eq!((row.last_error.as_deref(), row.ready_at, row.finished_at), (Some(STARTED), None, None));
        let attempts = db.engine.attempts(ids[1]).unwrap();
        assert_eq!(attempts.len(), 1, "what was started is told by how it ended: {attempts:?}");
        assert_eq!((attempts[0].outcome.as_str(), attempts[0].error.as_deref(), attempts[0].is_final), ("lost", Some(STARTED), false));
        assert!(db.engine.attempts(ids[0]).unwrap().is_empty(), "the one that is done was started and has nothing to tell");

        let again = db.claim(9);
        let seen: Vec<(i64, i64, i64)> = again.rows().iter().map(|job| (job.id, job.attempts, job.lost)).collect();
        assert_eq!(seen, [(ids[2], 1, 1), (ids[3], 1, 1)], "without back-off, the attempt not counted");
        again.complete_all().unwrap();
        drop(claim);
        assert_eq!(ids.iter().map(|id| state(db, *id)).collect::<Vec<_>>(), ["done", "held", "done", "done"]);
    }

    fn held_jobs_are_listed_counted_and_diagnosed("heartbeat=0", db) {
        let (id, _owner) = held(db, &active("k"));
        let (other, _second) = held(db, &NewJob::new("q", "2"));
        let filter = JobFilter { state: Some(JobState::Held), queue: Some("q".into()), ..JobFilter::default() };
        assert_eq!(db.engine.jobs(&filter).unwrap().iter().map(|job| job.id).collect::<Vec<_>>(), [other, id]);
        let stats = db.engine.stats(true).unwrap();
        assert_eq!((stats.queues[0].held.rows, stats.queues[0].dead.rows, stats.queues[0].claimed), (2, 0, 0));
        assert_eq!(stats.queues[0].exact.as_ref().unwrap()["held"], 2);
        let dead = JobFilter { state: Some(JobState::Dead), ..JobFilter::default() };
        assert!(db.engine.jobs(&dead).unwrap().is_empty());
        let findings = db.engine.doctor(&rowclaim::DoctorRequest::default()).unwrap();
        let finding = findings.iter().find(|finding| finding.code == "held-jobs").unwrap();
        assert!(finding.message.ends_with(": 2"), "{finding:?}");
        let created = db.engine.create(&active("k")).unwrap();
        assert_eq!((created.id, created.exists, created.state), (id, true, JobState::Held), "its key stays taken");
        let claim_id = db.number("SELECT MIN(id) FROM {claims}");
        let (record, ends) = db.engine.claim_record(ClaimName::Id(claim_id)).unwrap().unwrap();
        assert_eq!((record.on_lost, ends[0].end, ends[0].is_final), (OnLost::Hold, "lost", false));
        assert_eq!(ends[0].error.as_deref(), Some(STARTED));
        let pruned = db.engine.prune(PruneRequest::new(Duration::ZERO), |_| ()).unwrap();
        assert_eq!(pruned.jobs, 0, "held jobs stay");
    }

    fn a_late_owner_of_a_held_job_is_lost_whatever_it_says("heartbeat=0", db) {
        let (id, owner) = held(db, &NewJob::new("q", "1"));
        for outcome in [
            Outcome::Complete,
            Outcome::Fail { error: "x".into(), delay: None },
            Outcome::Release { delay: Duration::ZERO },
        ] {
            assert_eq!(owner.finish(&outcome).unwrap(), Finish::Lost, "{outcome:?}");
        }
        assert_eq!(state(db, id), "held");
        assert_eq!(db.engine.resolve(&[id], Resolution::Sent).unwrap(), [true]);
        assert_eq!(owner.complete().unwrap(), Finish::Lost, "also when a person has said the same");
        assert_eq!(state(db, id), "done");
    }

    fn a_person_says_sent_or_not_sent_once("heartbeat=0", db) {
        let (sent, _a) = held(db, &active("sent"));
        let (unsent, _b) = held(db, &active("unsent"));
        let ready = db.fill("q", 1)[0];
        assert_eq!(db.engine.resolve(&[ready, sent, 999, sent], Resolution::Sent).unwrap(), [false, true, false, true]);
        assert_eq!(db.engine.resolve(&[sent], Resolution::Sent).unwrap(), [false]);
        assert_eq!(db.engine.resolve(&[sent], Resolution::NotSent).unwrap(), [false]);
        assert_eq!(db.engine.resolve(&[], Resolution::NotSent).unwrap(), [false; 0]);
        let row = db.engine.job(sent).unwrap().unwrap();
        assert_eq!((row.state, row.finished_at.is_some()), (JobState::Done, true));
        assert!(!db.engine.create(&active("sent")).unwrap().exists, "its key is free");
        db.raw().run("DELETE FROM {jobs} WHERE state = 'ready'");

        assert_eq!(db.engine.resolve(&[unsent], Resolution::NotSent).unwrap(), [true]);
        assert!(db.engine.create(&active("unsent")).unwrap().exists, "its key is still taken");
        let claim = db.claim(5);
        let job = &claim.rows()[0];
        assert_eq!((claim.len(), job.id, job.attempts, job.max_attempts, job.fence), (1, unsent, 1, 1, 2), "allowed once more");
        assert_eq!(claim.complete_all().unwrap(), [Finish::Accepted]);
    }

    fn people_who_resolve_the_same_jobs_at_once_are_told_apart("heartbeat=0", db) {
        let ids = db.fill("q", 40);
        let claim = db.engine.claim(&hold(40)).unwrap();
        while claim.next_job().unwrap().is_some() {}
        db.expire();
        assert_eq!(db.engine.recover().unwrap().held, 40);
        let resolved: usize = std::thread::scope(|scope| {
            let people: Vec<_> = [Resolution::Sent, Resolution::NotSent, Resolution::Sent]
                .into_iter()
                .map(|resolution| {
                    let (engine, ids) = (db.another(""), ids.clone());
                    scope.spawn(move || {
                        let one = |ids: &[i64]| engine.resolve(ids, resolution).unwrap().into_iter().filter(|done| *done).count();
                        ids.chunks(7).map(one).sum::<usize>()
                    })
                })
                .collect();
            people.into_iter().map(|person| person.join().unwrap()).sum()
        });
        assert_eq!(resolved, 40);
        drop(claim);
    }

    fn retry_leaves_held_jobs_alone_and_cancel_takes_them_out("heartbeat=0", db) {
        let (id, _owner) = held(db, &active("k"));
        assert!(!db.engine.retry(id, false).unwrap());
        assert!(!db.engine.retry(id, true).unwrap());
        assert_eq!(state(db, id), "held");
        assert!(db.engine.cancel(id, false).unwrap());
        assert_eq!(state(db, id), "cancelled");
        assert!(!db.engine.create(&active("k")).unwrap().exists, "its key is free");
    }

    fn claims_that_do_not_hold_write_no_marks("heartbeat=0&backoff_base=0", db) {
        db.fill("q", 2);
        let claim = db.claim(2);
        let _begun = started(&claim);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts}"), 0);
        db.expire();
        assert_eq!(db.engine.recover().unwrap(), Recovered { claims: 1, returned: 2, dead: 0, held: 0, ..Recovered::default() });
        drop(claim);
    }

    // The handler never sees a row whose mark is not written.
    fn without_its_mark_a_row_is_not_handed_out("heartbeat=0", db) {
        let ids = db.fill("q", 3);
        let claim = db.engine.claim(&hold(3)).unwrap();
        db.faults.order("'started'", Fault::LostBefore, 0, 5);
        assert_eq!(claim.next_job().err().unwrap().kind(), ErrorKind::Unavailable);
        assert_eq!((db.faults.left(), db.number("SELECT COUNT(*) FROM {attempts}")), (0, 0));
        assert_eq!(started(&claim).id, ids[0], "it waits for its turn again");
        for fault in [Fault::Deadlock, Fault::LostAfter] {
            db.faults.order("'started'", fault, 0, 1);
            assert!(ids.contains(&started(&claim).id), "{fault:?} is retried inside");
        }
        assert!(claim.next_job().unwrap().is_none());
        claim.complete_all().unwrap();

        db.fill("q", 2);
        db.raw().run("ALTER TABLE {attempts} RENAME TO {attempts_new}");
        let mut calls = 0;
        let request = WorkRequest { until_empty: true, ..WorkRequest::new(hold(2)) };
        let answer = db.engine.work(&request, |_| {
            calls += 1;
            Handled::As(Outcome::Complete)
        });
        assert_eq!((answer.unwrap_err().kind(), calls), (ErrorKind::Schema, 0));
        db.raw().run("ALTER TABLE {attempts_new} RENAME TO {attempts}");
    }

    fn a_row_is_not_begun_once_its_claim_was_taken_back("heartbeat=0&lease=600", db) {
        let ids = db.fill("q", 3);
        let claim = db.another("").claim(&hold(3)).unwrap();
        let _begun = started(&claim);
        // A person ends the claim: by its own clock the owner believes that it is valid for long.
        assert!(db.engine.end_claim(ClaimName::Token(claim.token().unwrap())).unwrap());
        assert!(claim.valid_for() > Duration::from_secs(60) && claim.next_job().unwrap().is_none());
        assert!(claim.is_lost());
        assert_eq!(ids.iter().map(|id| state(db, *id)).collect::<Vec<_>>(), ["held", "ready", "ready"]);
    }

    // The mark waits for the recovery that has the claim in its hands, and then finds nothing to write.
    fn a_row_is_not_begun_while_its_claim_is_taken_back("heartbeat=0&lease=600", db) {
        let id = db.fill("q", 1)[0];
        let claim = db.another("").claim(&hold(1)).unwrap();
        db.expire();
        db.faults.order("COMMIT", Fault::Pause, 0, 1);
        std::thread::scope(|scope| {
            let recovery = scope.spawn(|| db.engine.recover().unwrap());
            std::thread::sleep(Duration::from_millis(200));
            assert!(claim.next_job().unwrap().is_none());
            assert_eq!(recovery.join().unwrap(), Recovered { claims: 1, returned: 1, dead: 0, held: 0, ..Recovered::default() });
        });
        assert_eq!(state(db, id), "ready");
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'started'"), 0);
    }

    // 139: kill -9 between the call and its outcome: held, and sent once.
    fn the_row_a_killed_worker_was_inside_of_is_held_and_not_sent_again("lease=1&backoff_base=0", db) {
        let ids = db.fill("q", 5);
        let folder = std::env::temp_dir().join(format!("rowclaim-held-{}", db.prefix));
        std::fs::create_dir_all(&folder).unwrap();
        let records = folder.join("worker");
        let mut worker =
            Command::new(env!("CARGO_BIN_EXE_worker")).args([db.dsn.as_str(), records.to_str().unwrap(), "begun"]).spawn().unwrap();
        wait_until("the worker is inside of its third job", || {
            std::fs::read_to_string(&records).is_ok_and(|text| text.lines().count() == 3)
        });
        worker.kill().unwrap();
        worker.wait().unwrap();
        let mut sent: Vec<i64> = Vec::new();
        let mut request = WorkRequest::new(hold(5));
        request.until_empty = true;
        wait_until("its claim is taken back", || db.engine.recover().unwrap().claims > 0);
        let summary = db.engine.work(&request, |job| {
            sent.push(job.id);
            Handled::As(Outcome::Complete)
        });
        assert_eq!((summary.unwrap().completed, &sent[..]), (2, &ids[3..]));
        let states: Vec<_> = ids.iter().map(|id| state(db, *id)).collect();
        assert_eq!(states, ["done", "done", "held", "done", "done"]);
        let mut audit = Audit::default();
        audit.read(0, &records, clock());
        assert_eq!(audit.spans[&ids[2]].len(), 1, "sent once");
        assert!(audit.spans.keys().copied().eq(ids[..3].iter().copied()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn a_handler_that_is_broken_off_is_not_given_back_where_it_was_begun("heartbeat=0", db) {
        let ids = db.fill("q", 2);
        for (on_lost, released, states) in [(OnLost::Retry, 2, ["ready", "ready"]), (OnLost::Hold, 1, ["claimed", "ready"])] {
            let request = WorkRequest::new(ClaimRequest::new("q").on_lost(on_lost));
            let summary = db.engine.work(&request, |_| Handled::BrokenOff).unwrap();
            assert_eq!((summary.claimed, summary.released), (2, released), "{on_lost:?}");
            let mut found: Vec<_> = ids.iter().map(|id| state(db, *id)).collect();
            found.sort();
            assert_eq!(found, states, "{on_lost:?}");
        }
        db.expire();
        assert_eq!(db.engine.recover().unwrap().held, 1);
    }

    fn rows_of_a_mapped_table_are_held_and_resolved_alike("heartbeat=0", db) {
        let targets = UserTable::targets(db, 6);
        let table = targets.map(&format!("{ALL_ROLES},{HELD},\"lease_until\":\"lease_until\""));
        let claim = table.claim(&RowClaimRequest::new(5)).unwrap();
        assert_eq!(claim.on_lost(), OnLost::Hold);
        assert_eq!(claim.next_job().unwrap().unwrap().complete().unwrap(), Finish::Accepted);
        let begun = [claim.next_job().unwrap().unwrap(), claim.next_job().unwrap().unwrap()];
        // Nothing that an open claim has begun is forgotten.
        db.engine.prune(PruneRequest::new(Duration::ZERO), |_| ()).unwrap();
        db.expire();
        assert_eq!(db.another("").recover().unwrap(), Recovered { claims: 1, returned: 2, dead: 0, held: 2, ..Recovered::default() });
        assert_eq!(targets.column("status"), ["2", "4", "4", "0", "0", "0"]);
        assert_eq!(targets.column("attempts"), ["1", "1", "1", "0", "0", "0"]);
        assert_eq!(targets.column("error"), ["-", STARTED, STARTED, "lease expired", "lease expired", "-"]);
        let aside = "SELECT COUNT(*) FROM {t} WHERE id IN (2, 3) AND cron_token IS NULL AND lease_until IS NULL AND locked_by IS NULL \
            AND send_at IS NOT NULL AND finished_at IS NULL";
        assert_eq!(targets.number(aside), 2);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'lost' AND final = 2"), 2);
        for row in &begun {
            assert_eq!(row.complete().unwrap(), Finish::Lost);
            assert_eq!(row.fail("x", None).unwrap(), Finish::Lost);
            assert_eq!(row.release(Duration::ZERO).unwrap(), Finish::Lost);
        }
        drop(claim);
        table.claim(&RowClaimRequest::new(9)).unwrap().complete_all().unwrap();
        assert!(!table.remaining(&Filters::none()).unwrap(), "what waits for a person does not keep a task open");
        let findings = db.engine.doctor(&rowclaim::DoctorRequest::new(vec![(&table).into()])).unwrap();
        let finding = findings.iter().find(|finding| finding.code == "held-rows").unwrap();
        assert!(finding.message.ends_with(": 2") && findings.iter().all(|f| f.code != "unknown-status"), "{findings:?}");

        targets.run("UPDATE {t} SET status = 3 WHERE id = 6");
        assert_eq!(table.retry(None, &Filters::none(), 100).unwrap(), 1);
        assert_eq!(targets.column("status"), ["2", "4", "4", "2", "2", "0"], "retry leaves what is held alone");
        targets.run("UPDATE {t} SET status = 2 WHERE id = 6");

        let key = |id: i64| Value::Int(id);
        assert_eq!(table.resolve(&[key(1), Value::Text("2".into())], Resolution::Sent).unwrap(), [false, true]);
        assert_eq!(table.resolve(&[key(2), key(3)], Resolution::NotSent).unwrap(), [false, true]);
        assert_eq!(targets.column("status"), ["2", "2", "0", "2", "2", "2"]);
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE id = 2 AND finished_at IS NOT NULL"), 1);
        assert_eq!(begun[0].complete().unwrap(), Finish::Lost, "also when a person has said the same");
        let again = table.claim(&RowClaimRequest::new(9)).unwrap();
        assert_eq!(again.rows().iter().map(|row| (row.key.clone(), row.attempts)).collect::<Vec<_>>(), [(key(3), 1)]);
        assert_eq!(again.next_job().unwrap().unwrap().complete().unwrap(), Finish::Accepted);
        assert_eq!(table.resolve(&[Value::Text("x".into())], Resolution::Sent).unwrap_err().kind(), ErrorKind::Invalid);
    }

    fn keys_that_are_text_are_held_by_their_text("heartbeat=0", db) {
        let columns = "code VARCHAR(64) NOT NULL PRIMARY KEY, status TINYINT NOT NULL DEFAULT 0, cron_token VARCHAR(40) NOT NULL DEFAULT ''";
        let targets = UserTable::new(db, "targets", columns);
        targets.run("INSERT INTO {t} (code) VALUES ('a-1'), ('ä 2'), ('🎉')");
        let table = targets.map(HELD);
        let claim = table.claim(&RowClaimRequest::new(3)).unwrap();
        let begun = claim.next_job().unwrap().unwrap();
        db.expire();
        assert_eq!(db.engine.recover().unwrap(), Recovered { claims: 1, returned: 2, dead: 0, held: 1, ..Recovered::default() });
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 4 AND cron_token = ''"), 1);
        assert_eq!(table.resolve(std::slice::from_ref(&begun.key), Resolution::Sent).unwrap(), [true]);
        drop(claim);
    }

    // Nobody knows whether other code had begun the rows that it left.
    fn rows_that_other_code_left_are_held_too("heartbeat=0", db) {
        let targets = UserTable::targets(db, 3);
        let table = targets.map(&format!("{HELD},\"claimed_at\":\"send_at\",\"zone\":\"UTC\",\"error\":\"error\",\"recover_after\":60"));
        targets.run("UPDATE {t} SET status = 1, cron_token = 'old cron', send_at = '2020-01-01 00:00:00' WHERE id < 3");
        assert_eq!(table.recover().unwrap(), Recovered { claims: 1, returned: 0, dead: 0, held: 2, ..Recovered::default() });
        assert_eq!(targets.column("status"), ["4", "4", "0"]);
        assert_eq!(targets.column("error"), ["lease expired, unknown whether it was started", "lease expired, unknown whether it was started", "-"]);
    }

    fn mappings_that_cannot_hold_are_refused("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let with = |more: &str| {
            let json = format!("{{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":2,\"failed\":3,\"token\":\"cron_token\",{more}}}");
            targets.try_map(&json).map(|_| ()).map_err(|error| (error.kind(), error.to_string()))
        };
        let registry_off = format!("{HELD},\"registry\":\"off\",\"lease_until\":\"lease_until\",\"zone\":\"UTC\"");
        for (more, named) in [
            ("\"on_lost\":\"hold\"", "on_lost hold needs held"),
            ("\"on_lost\":\"hold\",\"held\":3", "held must differ from pending, processing, done and failed"),
            ("\"held\":1", "held must differ from pending"),
            ("\"held\":400,\"on_lost\":\"hold\"", "held: column status takes"),
            (registry_off.as_str(), "on_lost hold needs the registry"),
            ("\"on_lost\":\"keep\"", "on_lost cannot be \"keep\""),
        ] {
            match with(more) {
                // SQLite's columns take numbers of any size.
                Ok(()) => assert!(db.is_sqlite() && more.contains("400"), "{more} was taken"),
                Err((kind, text)) => assert!(kind == ErrorKind::Config && text.contains(named), "{more}: {text}"),
            }
        }
        assert_eq!(with("\"held\":4"), Ok(()), "held alone: what is held from before can be resolved");
        assert_eq!(with(HELD), Ok(()));
        let recurring = format!(
            "{{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":0,\"token\":\"cron_token\",\"available_at\":\"available_at\",\
             \"zone\":\"UTC\",{HELD}}}"
        );
        let error = targets.try_map(&recurring).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("on_lost hold is for rows that end"), "{error}");
        let unheld = targets.map("").resolve(&[Value::Int(1)], Resolution::Sent).unwrap_err();
        assert!(unheld.kind() == ErrorKind::Invalid && unheld.to_string().contains("has no held"), "{unheld}");
    }

    // What was in the tables before they learned to hold is there afterwards.
    fn the_tables_are_widened_with_all_they_hold("heartbeat=0&backoff_base=3600", db) {
        let ids = db.fill("q", 5);
        db.claim(1).job(0).unwrap().fail("boom", None).unwrap();
        let claim = db.claim(2);
        let mut raw = db.raw();
        raw.run("DELETE FROM {jobs} WHERE queue = 'q' AND id = (SELECT m FROM (SELECT MAX(id) AS m FROM {jobs}) x)");
        let rows = "SELECT * FROM {jobs} ORDER BY id";
        let before = (raw.rows(rows), raw.rows("SELECT * FROM {attempts} ORDER BY id"));
        raw.run("DELETE FROM {schema} WHERE version = 5");
        raw.run("ALTER TABLE {claims} DROP COLUMN on_lost");
        assert_eq!(db.another("migrate=never").migrate().unwrap().from, 4);
        assert_eq!((raw.rows(rows), raw.rows("SELECT * FROM {attempts} ORDER BY id")), before);
        assert_eq!(claim.complete_all().unwrap(), [Finish::Accepted; 2]);
        assert!(db.fill("q", 1)[0] > ids[4], "no id is given out twice");
    }
}
