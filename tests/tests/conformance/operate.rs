use conformance::{Db, every_database};
use rowclaim::{ErrorKind, Finish, JobFilter, JobState, NewJob, PruneRequest};
use std::time::Duration;

fn dead(db: &Db, count: usize) -> Vec<i64> {
    let jobs: Vec<NewJob> = (0..count)
        .map(|n| {
            let mut job = NewJob::new("q", n.to_string()).key(format!("k{n}"));
            job.max_attempts = Some(1);
            job.unique = rowclaim::Unique::Active;
            job
        })
        .collect();
    let ids = db.engine.create_many(&jobs).unwrap().into_iter().map(|created| created.id).collect();
    let claim = db.claim(count);
    for n in 0..claim.len() {
        claim.job(n).unwrap().fail("boom", None).unwrap();
    }
    ids
}

every_database! {
    // 60
    fn three_people_retry_the_same_dead_jobs_and_each_comes_back_once(db) {
        let ids = dead(db, 60);
        let retried: usize = std::thread::scope(|scope| {
            let people: Vec<_> = (0..3)
                .map(|_| {
                    let (engine, ids) = (db.another(""), ids.clone());
                    scope.spawn(move || ids.iter().filter(|id| engine.retry(**id, false).unwrap()).count())
                })
                .collect();
            people.into_iter().map(|person| person.join().unwrap()).sum()
        });
        assert_eq!(retried, 60);
        let claim = db.claim(100);
        assert_eq!(claim.len(), 60);
        assert!(claim.rows().iter().all(|job| job.attempts == 1 && job.fence == 3), "all attempts again, and a newer fence");
    }

    fn a_retried_job_takes_its_key_again_or_is_refused(db) {
        let id = dead(db, 1)[0];
        let mut twin = NewJob::new("q", "2").key("k0");
        twin.unique = rowclaim::Unique::Active;
        let twin_id = db.engine.create(&twin).unwrap().id;
        assert_eq!(db.engine.retry(id, false).unwrap_err().kind(), ErrorKind::Duplicate);
        assert_eq!(db.engine.job(id).unwrap().unwrap().state, JobState::Dead);
        db.engine.cancel(twin_id, false).unwrap();
        assert!(db.engine.retry(id, false).unwrap());
        assert!(db.engine.create(&twin).unwrap().exists);
    }

    // 61
    fn a_claimed_job_is_retried_by_force_only_and_its_owner_is_fenced_off(db) {
        let id = db.fill("q", 1)[0];
        let claim = db.claim(1);
        assert!(!db.engine.retry(id, false).unwrap());
        assert!(db.engine.retry(id, true).unwrap());
        assert_eq!(claim.job(0).unwrap().complete().unwrap(), Finish::Lost);
        let second = db.claim(1);
        assert_eq!(second.rows()[0].fence, 3);
        assert_eq!(second.complete_all().unwrap(), [Finish::Accepted]);
    }

    fn a_job_is_cancelled_once(db) {
        let ids = db.fill("q", 2);
        assert!(db.engine.cancel(ids[0], false).unwrap());
        assert!(!db.engine.cancel(ids[0], false).unwrap());
        let claim = db.claim(5);
        assert_eq!(claim.len(), 1);
        assert!(!db.engine.cancel(ids[1], false).unwrap(), "held");
        assert!(db.engine.cancel(ids[1], true).unwrap());
        assert_eq!(claim.job(0).unwrap().complete().unwrap(), Finish::Lost);
        assert_eq!(db.engine.cancel(999, false).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(db.engine.retry(999, true).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(db.engine.job(999).unwrap().is_none());
    }

    fn jobs_are_listed_newest_first_in_pages(db) {
        let ids = db.fill("q", 30);
        db.fill("other", 5);
        let mut filter = JobFilter { queue: Some("q".into()), limit: 10, ..JobFilter::default() };
        let mut seen = Vec::new();
        loop {
            let page = db.engine.jobs(&filter).unwrap();
            let Some(last) = page.last() else { break };
            filter.before = Some(last.id);
            seen.extend(page.into_iter().map(|job| job.id));
        }
        assert_eq!(seen, ids.into_iter().rev().collect::<Vec<_>>());
        db.claim(3);
        let filter = JobFilter { state: Some(JobState::Ready), queue: Some("other".into()), ..JobFilter::default() };
        assert_eq!(db.engine.jobs(&filter).unwrap().len(), 5);
    }

    fn dead_jobs_are_listed_and_counted(db) {
        let ids = dead(db, 12);
        db.engine.retry(ids[0], false).unwrap();
        let filter = JobFilter { state: Some(JobState::Dead), limit: 5, ..JobFilter::default() };
        let page = db.engine.jobs(&filter).unwrap();
        assert_eq!(page.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[11], ids[10], ids[9], ids[8], ids[7]]);
        let stats = db.engine.stats(true).unwrap();
        assert_eq!((stats.queues[0].dead.rows, stats.queues[0].due.rows), (11, 1));
        assert_eq!(stats.queues[0].exact.as_ref().unwrap()["dead"], 11);
    }

    fn stats_tell_what_waits_runs_and_is_late("heartbeat=0", db) {
        db.fill("a", 7);
        db.fill("b", 2);
        let mut job = NewJob::new("b", "1");
        job.delay = Duration::from_secs(60);
        job.priority = 4;
        db.engine.create(&job).unwrap();
        std::mem::forget(db.engine.claim(&rowclaim::ClaimRequest::new("a").limit(3)).unwrap());
        let stats = db.engine.stats(false).unwrap();
        let row = |n: usize| (stats.queues[n].queue.as_str(), stats.queues[n].due.rows, stats.queues[n].delayed.rows, stats.queues[n].claimed);
        assert_eq!((row(0), row(1)), (("a", 4, 0, 3), ("b", 2, 1, 0)));
        assert_eq!((stats.open_claims, stats.expired_claims), (1, 0));
        assert!(stats.queues[0].oldest_due.is_some() && stats.queues[0].exact.is_none());
        db.expire();
        assert_eq!(db.engine.stats(false).unwrap().expired_claims, 1);
    }

    fn pruning_takes_what_is_finished_and_old_and_nothing_else(db) {
        db.fill("q", 2_500);
        let claim = db.claim(2_000);
        claim.complete_all().unwrap();
        let other = db.claim(10);
        other.job(0).unwrap().fail("x", None).unwrap();
        db.engine.flush().unwrap();
        let kept = db.engine.prune(PruneRequest::new(Duration::from_secs(3_600)), |_| ()).unwrap();
        assert_eq!((kept.jobs, kept.claims, kept.attempts), (0, 0, 0));
        let mut steps = 0;
        std::thread::sleep(Duration::from_millis(5));
        let pruned = db.engine.prune(PruneRequest::new(Duration::ZERO), |_| steps += 1).unwrap();
        assert_eq!((pruned.jobs, pruned.claims, pruned.attempts), (2_000, 1, 0));
        assert!(steps >= 3, "small steps: {steps}");
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs}"), 500);
    }
}
