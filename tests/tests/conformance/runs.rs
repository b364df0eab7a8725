//! Runs: a slot once, a task never twice at once, and the history says what happened.

use conformance::{every_database, wait_until};
use rowclaim::blocking::{Engine, Run, RunStart};
use rowclaim::faults::Fault;
use rowclaim::{ErrorKind, Finish, PruneRequest, RunFilter, RunRequest, RunState, SkipReason, Timestamp};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

fn slot(minute: i64) -> Timestamp {
    Timestamp((1_764_460_800 + 60 * minute) * 1_000_000)
}

fn started(engine: &Engine, task: &str, minute: i64) -> Run {
    match engine.run_slot(&RunRequest::new(task, slot(minute))).unwrap() {
        RunStart::Run(run) => run,
        RunStart::Already(record) => panic!("already {record:?}"),
        RunStart::Busy(record) => panic!("busy {record:?}"),
    }
}

fn history(db: &conformance::Db) -> Vec<(i64, RunState, Option<SkipReason>)> {
    let mut runs = db.engine.runs(&RunFilter::default()).unwrap();
    runs.reverse();
    runs.iter().map(|run| ((run.slot.0 / 1_000_000 - 1_764_460_800) / 60, run.state, run.reason)).collect()
}

/// The process of a run is gone.
fn expire(db: &conformance::Db) {
    let past = if db.is_sqlite() { "0" } else { "'2000-01-01'" };
    db.raw().run(&format!("UPDATE {{leases}} SET lease_until = {past}"));
}

every_database! {
    // 123, 125: short runs, clocks that differ: the slot is what counts.
    fn a_slot_runs_once_however_many_ask("", db) {
        let (runs, most, inside) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let engine = db.another("");
                let (runs, most, inside) = (&runs, &most, &inside);
                scope.spawn(move || {
                    for minute in 0..60 {
                        let mut request = RunRequest::new("short", slot(minute));
                        request.lease = Duration::from_secs(15);
                        match engine.run_slot(&request).unwrap() {
                            RunStart::Run(run) => {
                                most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                                runs.fetch_add(1, SeqCst);
                                inside.fetch_sub(1, SeqCst);
                                assert_eq!(run.succeed().unwrap(), Finish::Accepted);
                            }
                            RunStart::Already(record) => assert_eq!(record.slot, slot(minute)),
                            // Another is inside of an earlier slot: this one is recorded as skipped, and stays it.
                            RunStart::Busy(record) => assert_eq!(record.unwrap().reason, Some(SkipReason::Busy)),
                        }
                    }
                });
            }
        });
        let rows = db.engine.runs(&RunFilter { limit: 100, ..RunFilter::default() }).unwrap();
        assert_eq!((rows.len(), most.load(SeqCst)), (60, 1), "each slot has one row");
        let succeeded = rows.iter().filter(|run| run.state == RunState::Succeeded).count();
        assert_eq!(succeeded, runs.load(SeqCst));
    }

    // 122: a crashed run does not block for ever, and each slot says why it was skipped.
    fn a_run_whose_process_is_gone_is_lost_and_the_next_slot_runs("heartbeat=0", db) {
        let dead = started(&db.engine, "report", 0);
        let other = db.another("heartbeat=0");
        let RunStart::Busy(record) = other.run_slot(&RunRequest::new("report", slot(1))).unwrap() else { panic!("not busy") };
        assert_eq!(record.unwrap().reason, Some(SkipReason::Busy));
        expire(db);
        let RunStart::Already(record) = other.run_slot(&RunRequest::new("report", slot(0))).unwrap() else { panic!("it had its run") };
        assert_eq!(record.state, RunState::Lost, "shown as what it is, although nobody has recovered yet");
        let run = started(&other, "report", 2);
        assert!(run.fence() > dead.fence());
        assert_eq!(dead.succeed().unwrap(), Finish::Lost, "a late end is refused");
        assert!(run.succeed().unwrap() == Finish::Accepted && run.succeed().unwrap() == Finish::Accepted, "a repeat is accepted");
        assert_eq!(history(db), [
            (0, RunState::Lost, None),
            (1, RunState::Skipped, Some(SkipReason::Busy)),
            (2, RunState::Succeeded, None),
        ]);
        assert!(matches!(db.engine.run_slot(&RunRequest::new("report", slot(0))).unwrap(), RunStart::Already(_)), "it had its run");
    }

    // 48: closed as lost by recovery, and prune can delete it.
    fn recovery_closes_runs_that_are_gone("heartbeat=0", db) {
        std::mem::forget(started(&db.engine, "a", 0));
        let alive = started(&db.engine, "b", 0);
        assert_eq!(db.engine.recover().unwrap().runs, 0);
        let past = if db.is_sqlite() { "0" } else { "'2000-01-01'" };
        db.raw().run(&format!("UPDATE {{leases}} SET lease_until = {past} WHERE name = 'run:a'"));
        assert_eq!(db.engine.recover().unwrap().runs, 1);
        let lost = db.engine.runs(&RunFilter { state: Some(RunState::Lost), ..RunFilter::default() }).unwrap();
        assert_eq!((lost.len(), lost[0].task.as_str(), lost[0].error.as_deref()), (1, "a", Some("lease expired")));
        assert!(lost[0].finished_at.is_some());
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(db.engine.prune(PruneRequest::new(Duration::from_millis(1)), |_| {}).unwrap().runs, 1);
        assert_eq!(alive.succeed().unwrap(), Finish::Accepted);
    }

    // 130: a proxy gives up and sends the request again, twice, while the first one still works.
    fn a_request_that_is_repeated_while_the_first_works_runs_nothing("", db) {
        let first = started(&db.engine, "sync", 0);
        for _ in 0..2 {
            let RunStart::Already(record) = db.another("").run_slot(&RunRequest::new("sync", slot(0))).unwrap() else {
                panic!("it ran twice")
            };
            assert_eq!((record.state, record.id, record.fence), (RunState::Started, first.id(), Some(first.fence())));
        }
        assert_eq!(first.succeed().unwrap(), Finish::Accepted);
        assert_eq!(db.engine.runs(&RunFilter::default()).unwrap().len(), 1);
    }

    // 134: leases are by name.
    fn a_long_task_does_not_keep_the_others("heartbeat=0", db) {
        let _long = started(&db.engine, "long", 0);
        for minute in 0..3 {
            started(&db.engine, "b", minute).succeed().unwrap();
            started(&db.engine, "c", minute).succeed().unwrap();
        }
    }

    fn a_live_run_of_any_length_keeps_its_lease("", db) {
        let mut request = RunRequest::new("long", slot(0));
        request.lease = Duration::from_secs(1);
        let RunStart::Run(run) = db.engine.run_slot(&request).unwrap() else { panic!("not ours") };
        let other = db.another("");
        for _ in 0..25 {
            assert_eq!(other.recover().unwrap().runs, 0);
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!run.is_lost() && !run.valid_for().is_zero());
        assert_eq!(run.succeed().unwrap(), Finish::Accepted);
    }

    // 136: a run that hangs gives its place up.
    fn no_renewal_goes_past_max_run("", db) {
        let mut request = RunRequest::new("hangs", slot(0));
        (request.lease, request.max_run) = (Duration::from_secs(1), Some(Duration::from_secs(1)));
        let RunStart::Run(run) = db.engine.run_slot(&request).unwrap() else { panic!("not ours") };
        wait_until("it is taken for lost", || db.engine.recover().unwrap().runs == 1);
        wait_until("it knows", || run.is_lost());
        assert_eq!(run.succeed().unwrap(), Finish::Lost);
    }

    fn a_failed_run_says_why_and_is_not_run_again("heartbeat=0", db) {
        let run = started(&db.engine, "a", 0);
        run.fail("the shop is closed").unwrap();
        drop(started(&db.engine, "a", 1));
        assert!(matches!(db.engine.run_slot(&RunRequest::new("a", slot(0))).unwrap(), RunStart::Already(_)));
        let errors: Vec<_> = db.engine.runs(&RunFilter::default()).unwrap().into_iter().map(|run| (run.state, run.error)).collect();
        let failed = |text: &str| (RunState::Failed, Some(text.to_owned()));
        assert_eq!(errors, [failed("ended without an outcome"), failed("the shop is closed")]);
    }

    fn a_person_may_run_a_slot_again_and_it_is_marked("heartbeat=0", db) {
        started(&db.engine, "a", 0).fail("no").unwrap();
        let manual = RunRequest { is_manual: true, ..RunRequest::new("a", slot(0)) };
        for rerun in 1..3 {
            let RunStart::Run(run) = db.engine.run_slot(&manual).unwrap() else { panic!("not ours") };
            assert!(run.is_manual());
            assert!(matches!(db.another("heartbeat=0").run_slot(&manual).unwrap(), RunStart::Busy(_)), "the same road: not two at once");
            run.succeed().unwrap();
            assert_eq!(db.engine.runs(&RunFilter { state: Some(RunState::Succeeded), ..RunFilter::default() }).unwrap().len(), rerun);
        }
        let rows = db.engine.runs(&RunFilter::default()).unwrap();
        assert!(rows.iter().filter(|run| run.rerun > 0).all(|run| run.is_manual));
        assert_eq!(db.engine.run_of_slot("a", slot(0)).unwrap().unwrap().state, RunState::Failed);
    }

    // Others record that they found the task busy, each in a row of its own, while the connection is made again.
    fn a_run_by_hand_whose_begin_was_cut_off_has_one_row("heartbeat=0", db) {
        let manual = RunRequest { is_manual: true, ..RunRequest::new("a", slot(0)) };
        let other = db.another("heartbeat=0");
        let started = RunFilter { state: Some(RunState::Started), ..RunFilter::default() };
        for _ in 0..5 {
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(SeqCst) {
                        if !other.runs(&started).unwrap().is_empty() {
                            assert!(matches!(other.run_slot(&manual).unwrap(), RunStart::Busy(_)));
                        }
                    }
                });
                db.faults.order("COMMIT", Fault::LostAfter, 0, 1);
                let begun = db.engine.run_slot(&manual).unwrap();
                is_over.store(true, SeqCst);
                let RunStart::Run(run) = begun else { panic!("not ours") };
                // The other one is in its last look, perhaps.
                std::thread::sleep(Duration::from_millis(100));
                run.succeed().unwrap();
            });
        }
        let rows = db.engine.runs(&RunFilter { limit: 10_000, ..RunFilter::default() }).unwrap();
        let states: Vec<_> = rows.iter().filter(|run| run.state != RunState::Skipped).map(|run| run.state).collect();
        assert_eq!(states, [RunState::Succeeded; 5]);
        assert!(rows.len() > 5, "nobody found it busy");
    }

    fn a_fault_at_any_statement_leaves_one_run("heartbeat=0", db) {
        let mut minute = 0;
        for fault in [Fault::Deadlock, Fault::LockWait, Fault::LostBefore, Fault::LostAfter] {
            for text in ["runs", "leases", "COMMIT"] {
                for skip in 0..3 {
                    minute += 1;
                    db.faults.order(text, fault, skip, 1);
                    let run = started(&db.engine, "a", minute);
                    assert!(matches!(db.another("heartbeat=0").run_slot(&RunRequest::new("a", slot(minute))).unwrap(), RunStart::Already(_)));
                    assert_eq!(run.succeed().unwrap(), Finish::Accepted, "{fault:?} {text} {skip}");
                    while db.faults.left() > 0 {
                        db.engine.lease(&rowclaim::LeaseRequest::new("x", Duration::from_secs(5))).unwrap();
                        started(&db.engine, "b", minute).succeed().unwrap();
                        minute += 1;
                    }
                }
            }
        }
        let rows = db.engine.runs(&RunFilter { task: Some("a".into()), limit: 1_000, ..RunFilter::default() }).unwrap();
        assert!(rows.len() >= 36 && rows.iter().all(|run| run.state == RunState::Succeeded));
    }

    fn what_is_wrong_is_refused("heartbeat=0", db) {
        for (task, lease, says) in [("", 60, "1 to 187 bytes"), (&"t".repeat(188), 60, "1 to 187 bytes"), ("a", 0, "lease must be")] {
            let request = RunRequest { lease: Duration::from_secs(lease), ..RunRequest::new(task, slot(0)) };
            let error = db.engine.run_slot(&request).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says), "{error}");
        }
        for text in ["2026-11-30T08:00:00", "2026-11-30", "tomorrow", ""] {
            let error = Timestamp::from_rfc3339("slot", text).unwrap_err();
            assert!(error.to_string().contains("is not an instant with its zone"), "{error}");
        }
        assert_eq!(Timestamp::from_rfc3339("slot", "2026-11-30T16:00:00+08:00").unwrap(), Timestamp::from_rfc3339("slot", "2026-11-30T08:00:00Z").unwrap());
    }
}
