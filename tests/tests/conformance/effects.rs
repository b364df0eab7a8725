//! The effect ledger: nothing is sent twice blindly, and what nobody knows is said.

use conformance::every_database;
use rowclaim::blocking::{Effect, Engine, OnceStep};
use rowclaim::faults::Fault;
use rowclaim::{EffectFilter, EffectState, ErrorKind, OnUnknown, Once, OnceRequest, Receipt, RowClaimRequest, Sent};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn request(key: &str) -> OnceRequest {
    OnceRequest::new(key, r#"{"to":"+4512345678","text":"hello"}"#)
}

fn ok(_: &Effect) -> Sent {
    Sent::Succeeded(r#"{"id":7}"#.to_owned())
}

fn never(_: &Effect) -> Sent {
    panic!("must not be called")
}

fn done(once: Once) -> Receipt {
    once.receipt().unwrap()
}

fn state(engine: &Engine, key: &str) -> EffectState {
    engine.effect(key).unwrap().unwrap().state
}

/// A sender that dies in the middle: its lease is over, and nothing was written.
fn die_in_the_middle(db: &conformance::Db, request: &OnceRequest) {
    let mut call = db.engine.begin_once(request.clone()).unwrap();
    assert!(matches!(call.next_step().unwrap(), OnceStep::Send(_)));
    std::mem::forget(call);
    let past = if db.is_sqlite() { "0" } else { "'2000-01-01'" };
    db.raw().run(&format!("UPDATE {{effects}} SET lease_until = {past} WHERE state = 'sending'"));
}

fn in_state(state: EffectState) -> EffectFilter {
    EffectFilter { state: Some(state), ..EffectFilter::default() }
}

every_database! {
    fn a_second_call_gets_the_stored_response("heartbeat=0", db) {
        let first = done(db.engine.once(&request("sms:1"), ok, never).unwrap());
        assert_eq!((first.is_fresh, first.attempts, first.response.as_deref()), (true, 1, Some(r#"{"id":7}"#)));
        for engine in [&db.engine, &db.another("heartbeat=0")] {
            let again = done(engine.once(&request("sms:1"), never, never).unwrap());
            assert_eq!((again.is_fresh, again.attempts, again.response), (false, 1, first.response.clone()));
        }
        assert_eq!(done(db.engine.once(&request("sms:2"), ok, never).unwrap()).attempts, 1, "another key is another effect");
    }

    fn another_request_under_the_same_key_is_refused("heartbeat=0", db) {
        done(db.engine.once(&request("sms:1"), ok, never).unwrap());
        let other = OnceRequest::new("sms:1", r#"{"to":"+4587654321","text":"hello"}"#);
        let error = db.engine.once(&other, never, never).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("sms:1 was begun with another request"), "{error}");
        assert!(!error.to_string().contains("4587"), "the request is not in the message");
        // The same request written in another way is the same.
        done(db.engine.once(&OnceRequest::new("sms:1", "{\"text\": \"hello\", \"to\": \"+4512345678\"}"), never, never).unwrap());
    }

    fn what_surely_was_not_sent_is_sent_again("heartbeat=0", db) {
        let refused = db.engine.once(&request("a"), |_| Sent::Failed("number refused".into()), never).unwrap();
        let Once::Failed(record) = refused else { panic!("{refused:?}") };
        assert_eq!((record.state, record.error.as_deref()), (EffectState::Failed, Some("number refused")));
        let receipt = done(db.engine.once(&request("a"), ok, never).unwrap());
        assert_eq!((receipt.is_fresh, receipt.attempts), (true, 2));
        assert_eq!(db.engine.effect("a").unwrap().unwrap().error, None);
    }

    // A call that ends in an exception or a time-out may have been accepted.
    fn an_unknown_effect_waits_for_a_person("heartbeat=0", db) {
        for key in ["timeout", "lost"] {
            let once = match key {
                "timeout" => db.engine.once(&request(key), |_| Sent::Unknown("timed out".into()), never).unwrap(),
                _ => {
                    die_in_the_middle(db, &request(key));
                    db.engine.once(&request(key), never, never).unwrap()
                }
            };
            assert!(matches!(once, Once::Unknown(_)), "{once:?}");
            let error = db.engine.once(&request(key), never, never).unwrap().receipt().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unknown);
            assert!(!error.is_retryable());
        }
        let unknown = db.engine.effects(&in_state(EffectState::Unknown)).unwrap();
        assert_eq!(unknown.iter().map(|effect| effect.key.as_str()).collect::<Vec<_>>(), ["lost", "timeout"]);
        assert!(db.engine.resolve_effect("timeout", true, Some(r#"{"id":9}"#)).unwrap());
        assert!(!db.engine.resolve_effect("timeout", false, None).unwrap(), "it is decided");
        assert_eq!(done(db.engine.once(&request("timeout"), never, never).unwrap()).response.as_deref(), Some(r#"{"id":9}"#));
        assert!(db.engine.resolve_effect("lost", false, None).unwrap());
        assert_eq!(state(&db.engine, "lost"), EffectState::Pending);
        assert_eq!(done(db.engine.once(&request("lost"), ok, never).unwrap()).attempts, 2);
        assert_eq!(db.engine.resolve_effect("nothing", true, None).unwrap_err().kind(), ErrorKind::NotFound);
    }

    fn an_unknown_effect_is_asked_about_or_sent_again_as_the_policy_says("heartbeat=0", db) {
        let by = |key: &str, on_unknown| OnceRequest { on_unknown, ..request(key) };
        die_in_the_middle(db, &request("asked"));
        let receipt = done(db.engine.once(&by("asked", OnUnknown::Ask), never, ok).unwrap());
        assert!(receipt.is_fresh && receipt.response.as_deref() == Some(r#"{"id":7}"#), "the provider had it");

        die_in_the_middle(db, &request("not there"));
        let asked = AtomicUsize::new(0);
        let not_there = |_: &Effect| {
            asked.fetch_add(1, SeqCst);
            Sent::Failed("no such message".into())
        };
        done(db.engine.once(&by("not there", OnUnknown::Ask), |effect| { assert_eq!(effect.key(), "not there"); ok(effect) }, not_there).unwrap());
        assert_eq!(asked.load(SeqCst), 1);

        die_in_the_middle(db, &request("no answer"));
        let once = db.engine.once(&by("no answer", OnUnknown::Ask), never, |_| Sent::Unknown("the provider is away".into())).unwrap();
        assert!(matches!(once, Once::Unknown(_)));

        die_in_the_middle(db, &request("idempotent"));
        let receipt = done(db.engine.once(&by("idempotent", OnUnknown::Retry), |effect| { assert_eq!(effect.attempts(), 2); ok(effect) }, never).unwrap());
        assert_eq!(receipt.attempts, 2);
    }

    fn two_at_once_send_one("lease=5", db) {
        let sends = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for worker in 0..8 {
                let (engine, sends) = (db.another(""), &sends);
                scope.spawn(move || {
                    for key in 0..10 {
                        let wait = if worker % 2 == 0 { Duration::from_secs(10) } else { Duration::ZERO };
                        let once = engine.once(&OnceRequest { wait, ..request(&format!("k{key}")) }, |effect| {
                            sends.fetch_add(1, SeqCst);
                            std::thread::sleep(Duration::from_millis(10));
                            ok(effect)
                        }, never).unwrap();
                        match once {
                            Once::Done(receipt) => assert!(receipt.response.is_some()),
                            Once::Busy(record) => assert!(worker % 2 == 1 && record.state == EffectState::Sending),
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
        assert_eq!(sends.load(SeqCst), 10);
        assert_eq!(db.engine.effects(&in_state(EffectState::Succeeded)).unwrap().len(), 10);
    }

    fn a_slow_sender_keeps_its_effect("", db) {
        let slow = OnceRequest { lease: Duration::from_secs(1), ..request("slow") };
        let other = db.another("");
        done(db.engine.once(&slow, |effect| {
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(2_500) {
                let once = other.once(&OnceRequest { on_unknown: OnUnknown::Retry, ..slow.clone() }, never, never).unwrap();
                assert!(matches!(once, Once::Busy(_)), "{once:?}");
                std::thread::sleep(Duration::from_millis(100));
            }
            assert!(!effect.valid_for().is_zero());
            ok(effect)
        }, never).unwrap());
    }

    // The truth of a late sender is taken, unless somebody else has decided or sends already.
    fn a_late_sender_tells_what_it_knows("heartbeat=0", db) {
        let expire = || {
            let past = if db.is_sqlite() { "0" } else { "'2000-01-01'" };
            db.raw().run(&format!("UPDATE {{effects}} SET lease_until = {past} WHERE state = 'sending'"));
        };
        let receipt = done(db.engine.once(&request("late"), |effect| {
            expire();
            assert_eq!(db.engine.recover().unwrap().effects, 1);
            assert_eq!(state(&db.engine, "late"), EffectState::Unknown);
            ok(effect)
        }, never).unwrap());
        assert!(receipt.is_fresh);
        assert_eq!(state(&db.engine, "late"), EffectState::Succeeded);
        let error = db.engine.once(&request("decided"), |effect| {
            expire();
            assert!(db.engine.resolve_effect("decided", false, None).unwrap());
            ok(effect)
        }, never).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert_eq!(state(&db.engine, "decided"), EffectState::Pending, "the person's word stands");
    }

    // 137: the database goes away between the call and the record.
    fn an_outcome_that_could_not_be_written_is_written_when_the_database_is_back("", db) {
        for round in 0..3 {
            let key = format!("sms:{round}");
            let error = db.engine.once(&request(&key), |effect| {
                db.faults.order("UPDATE", Fault::LostBefore, 0, 8);
                ok(effect)
            }, never).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            conformance::wait_until("it is written", || state(&db.engine, &key) == EffectState::Succeeded);
            let receipt = done(db.engine.once(&request(&key), never, never).unwrap());
            assert!(!receipt.is_fresh && receipt.response.is_some());
        }
    }

    fn a_fault_at_any_statement_sends_once("heartbeat=0", db) {
        for fault in [Fault::Deadlock, Fault::LockWait, Fault::LostBefore, Fault::LostAfter] {
            for skip in 0..4 {
                let key = format!("{fault:?}{skip}");
                let sends = AtomicUsize::new(0);
                db.faults.order("effects", fault, skip, 1);
                let receipt = done(db.engine.once(&request(&key), |effect| { sends.fetch_add(1, SeqCst); ok(effect) }, never).unwrap());
                assert!(receipt.is_fresh, "{key}");
                assert_eq!((sends.load(SeqCst), state(&db.engine, &key)), (1, EffectState::Succeeded), "{key}");
                while db.faults.left() > 0 {
                    db.engine.effect("x").unwrap();
                }
            }
        }
    }

    fn a_job_is_completed_in_the_same_transaction("heartbeat=0&backoff_base=0", db) {
        let once = |job: &rowclaim::blocking::Job, key: &str| {
            let mut call = db.engine.begin_once(request(key)).unwrap().completing(job).unwrap();
            loop {
                match call.next_step().unwrap() {
                    OnceStep::Send(effect) => call.answer(ok(&effect)).unwrap(),
                    OnceStep::Ask(_) => panic!("nothing to ask"),
                    OnceStep::Settled(once) => return done(once),
                }
            }
        };
        db.fill("q", 3);
        let claim = db.claim(3);
        let jobs: Vec<_> = (0..3).map(|_| claim.next_job().unwrap().unwrap()).collect();
        let receipt = once(&jobs[0], "first");
        assert_eq!((receipt.is_fresh, receipt.is_completed), (true, Some(true)));
        assert!(jobs[0].is_finished());
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'"), 1);
        // It happened before the process died: the job that comes back is completed without sending.
        done(db.engine.once(&request("second"), ok, never).unwrap());
        let receipt = once(&jobs[1], "second");
        assert_eq!((receipt.is_fresh, receipt.is_completed), (false, Some(true)));
        // The job was taken away: what happened is recorded all the same.
        db.expire();
        assert_eq!(db.engine.recover().unwrap().returned, 1);
        let receipt = once(&jobs[2], "third");
        assert_eq!((receipt.is_fresh, receipt.is_completed), (true, Some(false)));
        assert_eq!(state(&db.engine, "third"), EffectState::Succeeded);
        // Neither without the other: the completion fails, and so does the record.
        let targets = conformance::tables::UserTable::targets(db, 1);
        let rows = targets.map("").claim(&RowClaimRequest::new(1)).unwrap();
        let row = rows.next_job().unwrap().unwrap();
        let mut call = db.engine.begin_once(request("row")).unwrap().completing(&row).unwrap();
        let OnceStep::Send(effect) = call.next_step().unwrap() else { panic!("sent before") };
        call.answer(ok(&effect)).unwrap();
        assert_eq!(targets.column("status"), ["2"]);
    }

    fn what_is_wrong_is_refused_before_anything_is_sent("heartbeat=0", db) {
        let cases = [
            (OnceRequest::new("", "1"), "1 to 191 bytes"),
            (OnceRequest::new("k".repeat(192), "1"), "1 to 191 bytes"),
            (OnceRequest::new("k", "{no json"), "the request is not JSON"),
            (OnceRequest { lease: Duration::ZERO, ..request("k") }, "lease must be"),
        ];
        for (request, says) in cases {
            let error = db.engine.once(&request, never, never).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says), "{error}");
        }
        for (response, says) in [("{no json", "is not JSON"), (&format!("\"{}\"", "x".repeat(1 << 20)), "over 1 MB")] {
            let error = db.engine.resolve_effect("k", true, Some(response)).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        db.raw().run("DROP TABLE {effects}");
        assert_eq!(db.engine.once(&request("k"), never, never).unwrap_err().kind(), ErrorKind::Schema);
    }

    fn a_response_over_a_megabyte_is_not_kept_but_its_success_is("heartbeat=0", db) {
        let large = format!("\"{}\"", "x".repeat(1 << 20));
        let receipt = done(db.engine.once(&request("k"), |_| Sent::Succeeded(large.clone()), never).unwrap());
        assert_eq!(receipt.response.map(|response| response.len()), Some(large.len()));
        let again = done(db.engine.once(&request("k"), never, never).unwrap());
        assert_eq!((again.is_fresh, again.response), (false, None));
        assert!(db.engine.effect("k").unwrap().unwrap().error.unwrap().contains("too large to be kept"));
    }

    fn a_call_that_is_given_up_says_so("heartbeat=0", db) {
        let mut call = db.engine.begin_once(request("k")).unwrap();
        assert!(matches!(call.next_step().unwrap(), OnceStep::Send(_)));
        drop(call);
        assert_eq!(state(&db.engine, "k"), EffectState::Unknown);
        let mut call = db.engine.begin_once(request("other")).unwrap();
        assert_eq!(call.answer(Sent::Failed("x".into())).unwrap_err().kind(), ErrorKind::Invalid, "nothing was begun");
    }

    fn old_effects_are_pruned_and_unknown_ones_stay("heartbeat=0", db) {
        done(db.engine.once(&request("good"), ok, never).unwrap());
        db.engine.once(&request("unknown"), |_| Sent::Unknown("?".into()), never).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let pruned = db.engine.prune(rowclaim::PruneRequest::new(Duration::from_millis(1)), |_| {}).unwrap();
        assert_eq!(pruned.effects, 1);
        assert_eq!(db.engine.effects(&EffectFilter::default()).unwrap().iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["unknown"]);
    }
}
