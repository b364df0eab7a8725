use conformance::{Db, every_database, wait_until};
use rowclaim::{ErrorKind, Finish, JobState, NewJob, Outcome};
use std::time::{Duration, Instant};

fn state(db: &Db, id: i64) -> JobState {
    db.engine.job(id).unwrap().unwrap().state
}

every_database! {
    fn complete_twice_is_accepted_twice(db) {
        let id = db.fill("q", 1)[0];
        let claim = db.claim(1);
        let job = claim.next_job().unwrap().unwrap();
        assert_eq!(job.complete().unwrap(), Finish::Accepted);
        assert_eq!(job.complete().unwrap(), Finish::Accepted);
        assert_eq!(state(db, id), JobState::Done);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts}"), 0, "success costs no extra row");
    }

    fn another_outcome_after_the_first_is_lost(db) {
        db.fill("q", 3);
        let claim = db.claim(3);
        let jobs: Vec<_> = (0..3).map(|n| claim.job(n).unwrap()).collect();
        let delay = Duration::from_secs(60);
        assert_eq!(jobs[0].complete().unwrap(), Finish::Accepted);
        assert_eq!(jobs[0].fail("x", None).unwrap(), Finish::Lost);
        assert_eq!(jobs[0].release(delay).unwrap(), Finish::Lost);
        assert_eq!(jobs[1].fail("x", Some(delay)).unwrap(), Finish::Accepted);
        assert_eq!(jobs[1].fail("x", Some(delay)).unwrap(), Finish::Accepted);
        assert_eq!(jobs[1].release(delay).unwrap(), Finish::Lost);
        assert_eq!(jobs[1].complete().unwrap(), Finish::Lost);
        assert_eq!(jobs[2].release(delay).unwrap(), Finish::Accepted);
        assert_eq!(jobs[2].release(delay).unwrap(), Finish::Accepted);
        assert_eq!(jobs[2].fail("x", None).unwrap(), Finish::Lost);
        assert_eq!(jobs[2].complete().unwrap(), Finish::Lost);
        assert_eq!(db.raw().rows("SELECT outcome FROM {attempts} ORDER BY id").len(), 2);
    }

    // 27, 39
    fn a_late_owner_is_refused_in_every_way("heartbeat=0&backoff_base=0", db) {
        let id = db.fill("q", 1)[0];
        let first = db.claim(1);
        let late = first.job(0).unwrap();
        db.expire();
        assert_eq!(db.engine.recover().unwrap().returned, 1);
        assert!(!first.renew().unwrap());
        assert!(first.is_lost());
        assert_eq!(first.valid_for(), Duration::ZERO);
        for step in ["ready", "claimed", "done"] {
            assert_eq!(state(db, id).name(), step);
            for outcome in [
                Outcome::Complete,
                Outcome::Fail { error: "late".into(), delay: None },
                Outcome::Release { delay: Duration::ZERO },
            ] {
                assert_eq!(late.finish(&outcome).unwrap(), Finish::Lost, "{outcome:?} while {step}");
            }
            assert!(!first.renew().unwrap());
            match step {
                "ready" => std::mem::forget(db.claim(1)),
                "claimed" => db.raw().run("UPDATE {jobs} SET state = 'done'"),
                _ => {}
            }
        }
        let job = db.engine.job(id).unwrap().unwrap();
        assert_eq!((job.fence, job.attempts, job.last_error.as_deref()), (2, 2, Some("lease expired")));
    }

    fn a_lapsed_claim_that_nobody_recovered_is_still_valid("heartbeat=0", db) {
        db.fill("q", 2);
        let claim = db.claim(2);
        db.expire();
        assert!(claim.renew().unwrap());
        db.expire();
        assert_eq!(claim.complete_all().unwrap(), [Finish::Accepted; 2]);
    }

    // 54, 55
    fn failures_wait_for_the_back_off("backoff_base=10&backoff_cap=30", db) {
        let id = db.fill("q", 1)[0];
        for (attempt, seconds) in [(1, 10), (2, 20), (3, 30), (4, 30)] {
            let claim = db.claim(1);
            assert_eq!(claim.len(), 1, "attempt {attempt}");
            claim.job(0).unwrap().fail("x", None).unwrap();
            let job = db.engine.job(id).unwrap().unwrap();
            let now = if db.is_sqlite() {
                db.number("SELECT CAST((julianday('now') - 2440587.5) * 86400.0 AS INTEGER)")
            } else {
                db.number("SELECT UNIX_TIMESTAMP()")
            };
            let wait = job.ready_at.unwrap().0 / 1_000_000 - now;
            assert!((seconds - 1..=seconds + 1).contains(&wait), "attempt {attempt}: {wait} s");
            assert!(db.claim(1).is_empty());
            let past = if db.is_sqlite() { "1000" } else { "'2001-01-01'" };
            db.raw().run(&format!("UPDATE {{jobs}} SET ready_at = {past}"));
        }
    }

    fn the_last_attempt_makes_it_dead("backoff_base=0", db) {
        let mut job = NewJob::new("q", "{}");
        job.max_attempts = Some(2);
        let id = db.engine.create(&job).unwrap().id;
        for expected in [JobState::Ready, JobState::Dead] {
            db.claim(1).job(0).unwrap().fail("boom", None).unwrap();
            assert_eq!(state(db, id), expected);
        }
        assert!(db.claim(1).is_empty());
        let attempts = db.engine.attempts(id).unwrap();
        assert_eq!(attempts.iter().map(|a| a.is_final).collect::<Vec<_>>(), [false, true]);
        assert!(attempts.iter().all(|a| a.outcome == "failed" && a.error.as_deref() == Some("boom") && a.claimed_at.is_some()));
    }

    fn a_rejected_job_is_dead_whatever_attempts_are_left("", db) {
        let ids = db.fill("q", 3);
        let claim = db.claim(3);
        let reject = |error: &str| Outcome::Reject { error: error.into() };
        assert_eq!(claim.finish(&ids[..1], &reject("no such order")).unwrap(), [Finish::Accepted]);
        claim.job(1).unwrap().finish_later(reject("later")).unwrap();
        db.engine.flush().unwrap();
        assert_eq!((state(db, ids[0]), state(db, ids[1])), (JobState::Dead, JobState::Dead));
        let attempts = db.engine.attempts(ids[0]).unwrap();
        assert_eq!((attempts.len(), attempts[0].is_final, attempts[0].error.as_deref()), (1, true, Some("no such order")));
        // The first word stands: what waits for its next attempt is not ended by a late one.
        assert_eq!(claim.job(2).unwrap().fail("x", None).unwrap(), Finish::Accepted);
        assert_eq!(claim.job(2).unwrap().reject("x").unwrap(), Finish::Lost);
        assert_eq!(state(db, ids[2]), JobState::Ready);
        assert_eq!(claim.job(0).unwrap().complete().unwrap(), Finish::Lost);
        assert!(db.engine.retry(ids[0], false).unwrap(), "a person may bring it back");
    }

    // 57
    fn any_error_text_can_be_stored(db) {
        let id = db.fill("q", 1)[0];
        let text = format!("\u{fffd}😊\u{0}{}", "x".repeat(2 << 20));
        let claim = db.claim(1);
        assert_eq!(claim.job(0).unwrap().fail(text, None).unwrap(), Finish::Accepted);
        let stored = db.engine.job(id).unwrap().unwrap().last_error.unwrap();
        assert!(stored.starts_with("\u{fffd}😊\u{fffd}xxx"));
        assert_eq!(stored.chars().count(), 4_000);
    }

    fn a_release_costs_no_attempt_and_waits(db) {
        let id = db.fill("q", 1)[0];
        db.claim(1).job(0).unwrap().release(Duration::from_millis(300)).unwrap();
        assert!(db.claim(1).is_empty());
        let job = db.engine.job(id).unwrap().unwrap();
        assert_eq!((job.state, job.attempts, job.fence), (JobState::Ready, 0, 1));
        wait_until("the delay is over", || !db.claim(1).is_empty());
    }

    // 14, 18
    fn many_are_finished_at_once_whatever_their_order_and_lost_ones_are_named("heartbeat=0&backoff_base=0", db) {
        db.fill("q", 1_500);
        let claim = db.claim(1_500);
        let mut ids: Vec<i64> = claim.rows().iter().map(|job| job.id).collect();
        fastrand::shuffle(&mut ids);
        let stolen = ids[700];
        db.engine.retry(stolen, true).unwrap();
        for (range, outcome) in [
            (0..600, Outcome::Complete),
            (600..800, Outcome::Release { delay: Duration::from_secs(60) }),
            (800..1_500, Outcome::Fail { error: "x".into(), delay: None }),
        ] {
            let part = &ids[range];
            let answers = claim.finish(part, &outcome).unwrap();
            for (id, answer) in part.iter().zip(answers) {
                assert_eq!(answer == Finish::Lost, *id == stolen, "{id}");
            }
        }
        assert_eq!(state(db, stolen), JobState::Ready);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'"), 600);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE attempts = 0 AND state = 'ready'"), 199);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'released'"), 199);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'failed'"), 700);
    }

    fn ids_of_another_claim_are_refused(db) {
        db.fill("q", 2);
        let (first, second) = (db.claim(1), db.claim(1));
        let error = first.finish(&[second.rows()[0].id], &Outcome::Complete).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("is not in this claim"), "{error}");
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'claimed'"), 2);
    }

    fn group_finish_is_durable_after_flush(db) {
        db.fill("q", 300);
        let claim = db.claim(300);
        while let Some(job) = claim.next_job().unwrap() {
            job.finish_later(if job.id % 3 == 0 { Outcome::Fail { error: "x".into(), delay: None } } else { Outcome::Complete }).unwrap();
        }
        db.engine.flush().unwrap();
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'claimed'"), 0);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'"), 200);
        assert_eq!(db.raw().rows("SELECT state FROM {claims}")[0][0].as_deref(), Some("closed"));
    }

    // 46
    fn a_renewal_after_the_last_finish_is_quiet("lease=1", db) {
        db.fill("q", 20);
        let claim = db.claim(20);
        let since = Instant::now();
        while let Some(job) = claim.next_job().unwrap() {
            job.complete().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(since.elapsed() > Duration::from_millis(350), "at least one beat fell into it");
        db.engine.flush().unwrap();
        assert!(!claim.is_lost());
    }
}
