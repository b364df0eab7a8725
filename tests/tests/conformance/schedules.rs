//! Schedules: every slot is accounted for, in order, by the database's clock.

use conformance::every_database;
use rowclaim::blocking::{Engine, Tick};
use rowclaim::faults::Fault;
use rowclaim::{EffectFilter, ErrorKind, Missed, RunFilter, RunState, ScheduleFilter, ScheduleRequest, SkipReason};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

fn hourly(missed: Missed) -> ScheduleRequest {
    // A slot as late as it would be by the minute, where the next one would come in the middle of many a test.
    let grace = Duration::from_secs(90 * 60);
    ScheduleRequest { missed, grace, ..ScheduleRequest::new("t", "0 * * * *", "UTC") }
}

/// The last look was so many slots ago.
fn away(db: &conformance::Db, slots: i64) {
    let seconds = slots * 3_600;
    let since = if db.is_sqlite() {
        format!("accounted_until - {seconds} * 1000000")
    } else {
        format!("accounted_until - INTERVAL {seconds} SECOND")
    };
    db.raw().run(&format!("UPDATE {{schedules}} SET accounted_until = {since}"));
}

fn tick(engine: &Engine) -> Tick {
    engine.tick(&["t".to_owned()], None).unwrap()
}

/// Runs what is due; how many.
fn run_all(engine: &Engine) -> usize {
    let mut tick = tick(engine);
    let mut runs = 0;
    while let Some(run) = tick.next_run().unwrap() {
        run.succeed().unwrap();
        runs += 1;
    }
    runs
}

/// Runs that succeeded, and slots that were missed, disabled and busy.
fn counts(db: &conformance::Db) -> (i64, i64, i64, i64) {
    let rows = db.engine.runs(&RunFilter { limit: 10_000, ..RunFilter::default() }).unwrap();
    let of = |reason| rows.iter().filter(|run| run.reason == Some(reason)).map(|run| run.slots).sum();
    let succeeded = rows.iter().filter(|run| run.state == RunState::Succeeded).count();
    (succeeded as i64, of(SkipReason::Missed), of(SkipReason::Disabled), of(SkipReason::Busy))
}

every_database! {
    // 127
    fn missed_slots_are_skipped_or_made_up_for_as_the_policy_says("heartbeat=0", db) {
        db.engine.schedule(&hourly(Missed::Skip)).unwrap();
        assert_eq!(run_all(&db.engine), 0, "nothing is due before the first slot");
        away(db, 10);
        assert_eq!(run_all(&db.engine), 1, "the newest is within the grace");
        let (_, missed, _, _) = counts(db);
        assert!((8..=10).contains(&missed), "{missed}");
        assert_eq!(run_all(&db.engine), 0);

        db.engine.schedule(&ScheduleRequest { cap: 3, ..hourly(Missed::All) }).unwrap();
        db.raw().run("DELETE FROM {runs}");
        away(db, 10);
        assert_eq!((run_all(&db.engine), run_all(&db.engine)), (3, 3), "three in a pass");
        let rows = db.engine.runs(&RunFilter::default()).unwrap();
        assert!(rows.windows(2).all(|pair| pair[0].slot.0 - pair[1].slot.0 == 3_600_000_000), "in order, none left out");
    }

    // 133: many look at once; each slot has one row and one run.
    fn many_that_look_at_once_run_each_slot_once("", db) {
        db.engine.schedule(&ScheduleRequest { cap: 1_000, ..hourly(Missed::All) }).unwrap();
        away(db, 40);
        let runs = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let (engine, runs) = (db.another(""), &runs);
                scope.spawn(move || runs.fetch_add(run_all(&engine), SeqCst));
            }
        });
        // Whoever finds the task busy leaves it to the others, so at the end some may be left.
        runs.fetch_add(run_all(&db.engine), SeqCst);
        let rows = db.engine.runs(&RunFilter { limit: 1_000, ..RunFilter::default() }).unwrap();
        assert!((40..=41).contains(&rows.len()), "{}", rows.len());
        assert_eq!((runs.load(SeqCst), counts(db).0), (rows.len(), rows.len() as i64));
    }

    // 124: the mark of a slot is its row, not a time that the next slot has to wait out.
    fn a_task_of_each_hour_runs_each_hour("heartbeat=0", db) {
        db.engine.schedule(&hourly(Missed::Skip)).unwrap();
        for run in 1..=5 {
            db.raw().run("DELETE FROM {runs} WHERE state = 'skipped'");
            // The next hour: the slot that ran lies an hour back.
            let back = if db.is_sqlite() { "slot - 3600000000" } else { "slot - INTERVAL 1 HOUR" };
            let order = if db.is_sqlite() { "" } else { " ORDER BY slot" };
            db.raw().run(&format!("UPDATE {{runs}} SET slot = {back}{order}"));
            away(db, 1);
            assert_eq!(run_all(&db.engine), 1, "hour {run}");
        }
        assert_eq!(counts(db).0, 5);
    }

    // 129: each is claimed right before it runs, so a second pass beside a long one takes other tasks, not the same ones again.
    fn a_second_pass_beside_a_long_one_runs_nothing_twice("", db) {
        let tasks: Vec<String> = (0..20).map(|task| format!("task{task:02}")).collect();
        for task in &tasks {
            db.engine.schedule(&ScheduleRequest { task: task.clone(), ..hourly(Missed::Skip) }).unwrap();
        }
        away(db, 1);
        let runs = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (engine, runs, tasks) = (db.another(""), &runs, &tasks);
                scope.spawn(move || {
                    let mut pass = engine.tick(tasks, None).unwrap();
                    while let Some(run) = pass.next_run().unwrap() {
                        runs.fetch_add(1, SeqCst);
                        std::thread::sleep(Duration::from_millis(20));
                        run.succeed().unwrap();
                    }
                });
            }
        });
        let rows = db.engine.runs(&RunFilter { limit: 1_000, ..RunFilter::default() }).unwrap();
        let succeeded = rows.iter().filter(|run| run.state == RunState::Succeeded).count();
        assert_eq!((runs.load(SeqCst), succeeded), (20, 20));
    }

    // 122, 135
    fn a_busy_task_is_skipped_with_its_reason_and_a_failed_slot_is_not_run_again("heartbeat=0", db) {
        db.engine.schedule(&hourly(Missed::Once)).unwrap();
        away(db, 1);
        let run = tick(&db.engine).next_run().unwrap().unwrap();
        away(db, 1);
        assert!(tick(&db.another("heartbeat=0")).next_run().unwrap().is_none(), "the slot goes on already");
        run.fail("no").unwrap();
        away(db, 1);
        assert_eq!(run_all(&db.engine), 0, "one start for that slot");
        let record = &db.engine.schedules(&ScheduleFilter::default()).unwrap()[0];
        assert_eq!(record.last.as_ref().map(|run| run.state), Some(RunState::Failed));
        assert!(record.next_at.unwrap() > record.last.as_ref().unwrap().slot);
    }

    fn a_paused_schedule_records_its_slots_and_goes_on_when_resumed("heartbeat=0", db) {
        db.engine.schedule(&hourly(Missed::All)).unwrap();
        assert!(db.engine.pause_schedule("t").unwrap() && !db.engine.pause_schedule("t").unwrap());
        away(db, 5);
        assert_eq!(run_all(&db.engine), 0);
        let before = counts(db).2;
        assert!((5..=6).contains(&before), "{before}");
        away(db, 0);
        db.raw().run("DELETE FROM {runs}");
        away(db, 5);
        assert!(db.engine.resume_schedule("t").unwrap() && !db.engine.resume_schedule("t").unwrap());
        assert!(counts(db).2 >= 5, "nobody looked while it was paused: they are not made up for");
        assert_eq!(run_all(&db.engine), 0);
        assert_eq!(db.engine.pause_schedule("x").unwrap_err().kind(), ErrorKind::NotFound);
    }

    fn a_person_may_ask_for_a_run_now("heartbeat=0", db) {
        db.engine.schedule(&hourly(Missed::Skip)).unwrap();
        db.engine.pause_schedule("t").unwrap();
        db.engine.ask_run("t").unwrap();
        let mut pass = tick(&db.engine);
        let run = pass.next_run().unwrap().unwrap();
        assert!(run.is_manual());
        run.succeed().unwrap();
        assert!(pass.next_run().unwrap().is_none(), "once");
        let rows = db.engine.runs(&RunFilter::default()).unwrap();
        assert!(rows.len() == 1 && rows[0].is_manual);
    }

    // Two passes see the same wish; the second comes to its turn when the run is over already.
    fn a_run_that_was_asked_for_is_made_once("heartbeat=0", db) {
        db.engine.schedule(&hourly(Missed::Skip)).unwrap();
        db.engine.pause_schedule("t").unwrap();
        assert_eq!(run_all(&db.engine), 0);
        db.engine.ask_run("t").unwrap();
        db.faults.order("runs", Fault::Pause, 0, 1);
        let other = db.another("heartbeat=0");
        std::thread::scope(|scope| {
            let late = scope.spawn(|| run_all(&db.engine));
            conformance::wait_until("the other pass has seen the wish", || db.faults.left() == 0);
            assert_eq!(run_all(&other), 1);
            assert_eq!(late.join().unwrap(), 0);
        });
        assert_eq!(db.engine.runs(&RunFilter::default()).unwrap().len(), 1);
    }

    fn a_schedule_is_recorded_once_and_a_changed_one_counts_from_now("heartbeat=0", db) {
        let first = db.engine.schedule(&hourly(Missed::All)).unwrap();
        assert_eq!(db.engine.schedule(&hourly(Missed::All)).unwrap().accounted_until, first.accounted_until);
        away(db, 60);
        let kept = db.engine.schedule(&ScheduleRequest { cap: 5, ..hourly(Missed::All) }).unwrap();
        assert!(kept.accounted_until < first.accounted_until, "the cursor stays");
        let changed = ScheduleRequest { cron: "0 */5 * * *".into(), ..hourly(Missed::All) };
        assert!(db.engine.schedule(&changed).unwrap().accounted_until >= first.accounted_until);
        assert_eq!(db.engine.schedules(&ScheduleFilter::default()).unwrap().len(), 1);
        assert!(db.engine.unschedule("t").unwrap() && !db.engine.unschedule("t").unwrap());
        assert_eq!(tick(&db.engine).next_run().err().unwrap().kind(), ErrorKind::NotFound);
    }

    fn a_pass_ends_in_time("heartbeat=0", db) {
        db.engine.schedule(&hourly(Missed::All)).unwrap();
        away(db, 10);
        let mut pass = db.engine.tick(&["t".to_owned()], Some(Duration::ZERO)).unwrap();
        assert!(pass.next_run().unwrap().is_none());
        assert_eq!(counts(db), (0, 0, 0, 0), "what was not looked at is not lost");
    }

    fn what_is_wrong_names_the_option("heartbeat=0", db) {
        let change = |change: &dyn Fn(&mut ScheduleRequest), says: &str| {
            let mut request = hourly(Missed::Skip);
            change(&mut request);
            let error = db.engine.schedule(&request).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says), "{error}");
        };
        change(&|r| r.task.clear(), "1 to 187 bytes");
        change(&|r| r.cron = "every day".into(), "cron expression \"every day\"");
        change(&|r| r.cron = "61 * * * *".into(), "cron expression");
        change(&|r| r.zone = "Mars/Olympus".into(), "zone Mars/Olympus");
        change(&|r| r.cap = 0, "cap must be");
        change(&|r| r.grace = Duration::ZERO, "grace must be");
        change(&|r| r.catch_up_for = Some(Duration::from_secs(1)), "catch_up");
        change(&|r| r.lease = Duration::ZERO, "lease must be");
        change(&|r| r.max_run = Some(Duration::from_secs(1)), "max_run must not be shorter");
        assert_eq!(db.engine.schedules(&ScheduleFilter::default()).unwrap().len(), 0);
        for limit in [0, 10_001] {
            let errors = [
                db.engine.schedules(&ScheduleFilter { limit }).unwrap_err(),
                db.engine.runs(&RunFilter { limit, ..RunFilter::default() }).unwrap_err(),
                db.engine.effects(&EffectFilter { limit, ..EffectFilter::default() }).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(error.to_string().contains("limit must be from 1 to 10000"), "{error}");
            }
        }
    }
}
