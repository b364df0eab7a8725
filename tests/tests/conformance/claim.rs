use conformance::{Db, Kind, every_database, wait_until};
use rowclaim::{ClaimRequest, NewJob};
use std::collections::HashSet;
use std::sync::Barrier;
use std::time::Duration;

fn ids(claim: &rowclaim::blocking::Claim) -> Vec<i64> {
    claim.rows().iter().map(|job| job.id).collect()
}

every_database! {
    // 1
    fn one_row_goes_to_one_of_eight_workers(db) {
        let engines: Vec<_> = (0..8).map(|_| db.another("")).collect();
        for engine in &engines {
            assert!(engine.claim(&ClaimRequest::new("q")).unwrap().is_empty());
        }
        let barrier = Barrier::new(8);
        for round in 0..40 {
            db.fill("q", 1);
            let given: usize = std::thread::scope(|scope| {
                let racers: Vec<_> = engines
                    .iter()
                    .map(|engine| {
                        let barrier = &barrier;
                        scope.spawn(move || {
                            barrier.wait();
                            let claim = engine.claim(&ClaimRequest::new("q").limit(1)).unwrap();
                            claim.complete_all().unwrap();
                            claim.len()
                        })
                    })
                    .collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).sum()
            });
            assert!(given <= 1, "round {round}: {given} owners");
            // A row that two workers met over may be left for the next poll, never for longer.
            if given == 0 {
                assert_eq!(db.claim(1).complete_all().unwrap().len(), 1, "round {round}");
            }
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1"), 40);
    }

    // 2, 8
    fn batches_of_many_workers_share_no_row_and_leave_none(db) {
        db.fill("q", 240);
        let taken: Vec<i64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|_| {
                    let engine = db.another("");
                    scope.spawn(move || {
                        let mut own = Vec::new();
                        let mut empty = 0;
                        while empty < 5 {
                            let claim = engine.claim(&ClaimRequest::new("q").limit(20)).unwrap();
                            own.extend(ids(&claim));
                            empty = if claim.is_empty() { empty + 1 } else { 0 };
                            claim.complete_all().unwrap();
                        }
                        own
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(taken.len(), 240);
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 240);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state <> 'done'"), 0);
    }

    // 10
    fn the_order_is_priority_then_time_then_id_and_the_same_after_recovery("heartbeat=0&backoff_base=0&lease=1", db) {
        let created = db.fill("q", 10);
        let first = db.claim(5);
        assert_eq!(ids(&first), created[..5]);
        db.expire();
        assert_eq!(db.engine.recover().unwrap().returned, 5);
        let past = if db.is_sqlite() { "1000" } else { "'2001-01-01'" };
        db.raw().run(&format!("UPDATE {{jobs}} SET ready_at = {past}"));
        assert_eq!(ids(&db.claim(5)), created[..5]);
        let mut urgent = NewJob::new("q", "{}");
        urgent.priority = -5;
        let urgent = db.engine.create(&urgent).unwrap().id;
        let later = NewJob::new("q", "{}");
        let later = db.engine.create(&later).unwrap().id;
        std::thread::sleep(Duration::from_millis(1_050));
        let all = ids(&db.claim(20));
        assert_eq!(all.first(), Some(&urgent));
        assert_eq!(all.last(), Some(&later));
    }

    fn several_queues_are_asked_in_turn_within_a_priority(db) {
        let a = db.fill("a", 3);
        let b = db.fill("b", 3);
        let mut request = ClaimRequest::new("b").limit(4);
        request.queues.push("a".into());
        let claim = db.engine.claim(&request).unwrap();
        assert_eq!(ids(&claim), [b[0], b[1], b[2], a[0]]);
        assert_eq!(claim.rows()[3].queue, "a");
    }

    fn one_priority_can_be_asked_for(db) {
        for priority in [3, 1, 2] {
            let mut job = NewJob::new("q", priority.to_string());
            job.priority = priority;
            db.engine.create(&job).unwrap();
        }
        let mut request = ClaimRequest::new("q");
        request.priority = Some(2);
        let claim = db.engine.claim(&request).unwrap();
        assert_eq!(claim.rows().iter().map(|job| job.priority).collect::<Vec<_>>(), [2]);
        assert_eq!(db.claim(9).rows().iter().map(|job| job.priority).collect::<Vec<_>>(), [1, 3]);
    }

    fn partitions_cover_all_rows_once(db) {
        let all: HashSet<i64> = db.fill("q", 30).into_iter().collect();
        let mut seen = HashSet::new();
        for k in 0..3 {
            let mut request = ClaimRequest::new("q");
            request.partition = Some((k, 3));
            let part = ids(&db.engine.claim(&request).unwrap());
            assert!(part.iter().all(|id| id % 3 == k));
            seen.extend(part);
        }
        assert_eq!(seen, all);
    }

    // 5
    fn tokens_are_random_and_new_for_every_claim("worker=same", db) {
        db.fill("q", 20);
        let other = db.another("worker=same");
        let mut tokens = HashSet::new();
        for engine in [&db.engine, &other] {
            for _ in 0..5 {
                let claim = engine.claim(&ClaimRequest::new("q").limit(1)).unwrap();
                let token = claim.token().unwrap();
                assert_eq!(token.get_version_num(), 4);
                tokens.insert(token);
                std::mem::forget(claim);
            }
        }
        assert_eq!(tokens.len(), 10);
    }

    // 3, 4
    fn fences_only_grow("backoff_base=0", db) {
        db.fill("q", 1);
        for fence in 1..=5 {
            let claim = db.claim(1);
            let job = claim.job(0).unwrap();
            assert_eq!((job.fence, job.attempts), (fence, fence));
            job.fail("again", None).unwrap();
        }
        let claim = db.claim(1);
        claim.job(0).unwrap().release(Duration::ZERO).unwrap();
        let claim = db.claim(1);
        assert_eq!((claim.rows()[0].fence, claim.rows()[0].attempts), (7, 6), "a release takes the attempt back, not the fence");
    }

    fn a_row_without_attempts_left_is_never_handed_out(db) {
        let created = db.fill("q", 3);
        db.raw().run(&format!("UPDATE {{jobs}} SET attempts = max_attempts WHERE id = {}", created[0]));
        assert_eq!(ids(&db.claim(5)), created[1..]);
        let dead = db.engine.job(created[0]).unwrap().unwrap();
        assert_eq!((dead.state.name(), dead.last_error.as_deref()), ("dead", Some("no attempts left")));
    }

    fn an_empty_claim_is_a_normal_answer(db) {
        let claim = db.claim(5);
        assert!(claim.is_empty() && claim.token().is_none() && claim.next_job().unwrap().is_none());
        assert_eq!(db.number("SELECT COUNT(*) FROM {claims}"), 0);
        assert!(claim.complete_all().unwrap().is_empty());
    }

    fn a_dropped_claim_releases_what_was_not_started_and_keeps_what_was(db) {
        db.fill("q", 5);
        let claim = db.claim(5);
        let started = claim.next_job().unwrap().unwrap();
        started.complete().unwrap();
        let unfinished = claim.next_job().unwrap().unwrap();
        drop(claim);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'claimed'"), 4, "a job in use keeps its claim");
        drop((started, unfinished));
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'ready' AND attempts = 0"), 3);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'claimed'"), 1);
    }

    fn the_ledger_says_who_held_which_rows("worker=web-1:42", db) {
        let created = db.fill("q", 4);
        let claim = db.claim(10);
        let row = db.raw().rows("SELECT worker, source, state, job_count, job_ids FROM {claims}").remove(0);
        let row: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap()).collect();
        let expected_ids = format!("{}-{}", created[0], created[3]);
        assert_eq!(row, ["web-1:42", "q", "open", "4", expected_ids.as_str()]);
        claim.complete_all().unwrap();
        db.engine.flush().unwrap();
        assert_eq!(db.raw().rows("SELECT state FROM {claims}")[0][0].as_deref(), Some("closed"));
    }

    // 16
    fn twenty_workers_over_rows_due_at_the_same_instant_meet_no_error(db) {
        db.fill("q", 300);
        let past = if db.is_sqlite() { "1000" } else { "'2001-01-01'" };
        db.raw().run(&format!("UPDATE {{jobs}} SET ready_at = {past}"));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                let engine = db.another("");
                scope.spawn(move || {
                    let mut empty = 0;
                    while empty < 3 {
                        let claim = engine.claim(&ClaimRequest::new("q").limit(5)).unwrap();
                        empty = if claim.is_empty() { empty + 1 } else { 0 };
                        claim.complete_all().unwrap();
                    }
                });
            }
        });
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1"), 300);
    }

    // 17
    fn producers_and_workers_meet_no_error(db) {
        let until = std::time::Instant::now() + Duration::from_secs(3);
        let (created, done): (usize, usize) = std::thread::scope(|scope| {
            let producers: Vec<_> = (0..4)
                .map(|number| {
                    let engine = db.another("");
                    scope.spawn(move || {
                        let mut created = 0;
                        while std::time::Instant::now() < until {
                            let job = NewJob::new("q", "1").key(format!("{number}-{created}"));
                            created += usize::from(!engine.create(&job).unwrap().exists);
                        }
                        created
                    })
                })
                .collect();
            let workers: Vec<_> = (0..6)
                .map(|_| {
                    let engine = db.another("");
                    scope.spawn(move || {
                        let mut done = 0;
                        while std::time::Instant::now() < until {
                            let claim = engine.claim(&ClaimRequest::new("q").limit(7)).unwrap();
                            done += claim.complete_all().unwrap().len();
                        }
                        done
                    })
                })
                .collect();
            let sum = |threads: Vec<std::thread::ScopedJoinHandle<'_, usize>>| threads.into_iter().map(|t| t.join().unwrap()).sum();
            (sum(producers), sum(workers))
        });
        let rest = db.engine.claim(&ClaimRequest::new("q").limit(10_000)).unwrap().complete_all().unwrap().len();
        assert!(created > 100, "{created}");
        assert_eq!(created, done + rest);
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1") as usize, created);
    }

    fn threads_that_share_a_claim_get_each_row_once("heartbeat=0&lease=1", db) {
        db.fill("q", 2_000);
        let claim = db.claim(2_000);
        std::thread::sleep(Duration::from_millis(1_000));
        let barrier = Barrier::new(4);
        let handed_out: Vec<i64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (claim, barrier) = (claim.clone(), &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        claim.map(|job| job.unwrap().id).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(handed_out.len(), 2_000);
        assert_eq!(handed_out.iter().collect::<HashSet<_>>().len(), 2_000);
    }

    // 75, 77: neither the server's nor the session's zone matters.
    fn a_hostile_session_zone_changes_nothing(db) {
        if db.is_sqlite() {
            return;
        }
        db.fill("q", 1);
        let mut raw = db.raw();
        for zone in ["+08:00", "-05:00"] {
            raw.run(&format!("SET time_zone = '{zone}'"));
            let age = raw.rows("SELECT ABS(TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP())) FROM {jobs}");
            assert!(age[0][0].as_deref().unwrap().parse::<i64>().unwrap() < 5);
        }
        assert_eq!(db.claim(1).len(), 1);
    }
}

// 20: in both shapes a worker lives through a lock that is held longer than its lock wait.
#[test]
fn a_row_that_is_locked_for_long_is_claimed_when_it_is_let_go() {
    for kind in [Kind::MariaDb, Kind::MariaDbTokenUpdate, Kind::MySql] {
        let Some(db) = Db::new(kind, "lock_timeout=1") else { continue };
        let ids = db.fill("q", 1);
        let mut raw = db.raw();
        raw.run("BEGIN");
        raw.rows(&format!("SELECT id FROM {{jobs}} WHERE id = {} FOR UPDATE", ids[0]));
        std::thread::scope(|scope| {
            let poller = scope.spawn(|| {
                let mut empty = 0;
                loop {
                    let claim = db.engine.claim(&ClaimRequest::new("q")).unwrap();
                    if !claim.is_empty() {
                        assert_eq!(claim.rows()[0].attempts, 1);
                        return empty;
                    }
                    empty += 1;
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            std::thread::sleep(Duration::from_millis(2_500));
            assert!(!poller.is_finished());
            raw.run("COMMIT");
            let since = std::time::Instant::now();
            poller.join().unwrap();
            assert!(since.elapsed() < Duration::from_secs(5), "{}: {:?}", kind.name(), since.elapsed());
        });
    }
}

#[test]
fn servers_of_today_claim_by_skip_locked() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "") else { continue };
        let ids = db.fill("q", 2);
        // With another worker's row locked, the claim must step over it at once.
        let mut raw = db.raw();
        raw.run("BEGIN");
        raw.rows(&format!("SELECT id FROM {{jobs}} WHERE id = {} FOR UPDATE", ids[0]));
        let since = std::time::Instant::now();
        let claim = db.claim(2);
        assert_eq!(claim.rows().iter().map(|job| job.id).collect::<Vec<_>>(), ids[1..]);
        assert!(since.elapsed() < Duration::from_secs(1));
        raw.run("COMMIT");
        wait_until("the other row", || db.claim(2).len() == 1);
    }
}
