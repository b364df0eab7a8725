use conformance::{Db, Kind, every_database};
use rowclaim::blocking::{Engine, Handled, WorkRequest};
use rowclaim::{ClaimRequest, Config, ErrorKind, NewJob, Outcome, PruneRequest};
use std::time::{Duration, Instant};

fn refused(dsn: &str) -> rowclaim::Error {
    let since = Instant::now();
    let error = match Engine::connect(dsn) {
        Ok(_) => panic!("{dsn} was accepted"),
        Err(error) => error,
    };
    assert!(since.elapsed() < Duration::from_secs(7), "{dsn}: {:?}", since.elapsed());
    assert!(!error.to_string().contains("hush"), "a password in a message: {error}");
    error
}

#[test]
fn a_wrong_dsn_is_refused_by_the_name_of_what_is_wrong() {
    for (dsn, words) in [
        ("", "DSN"),
        ("redis://x", "scheme redis is unknown"),
        ("mysql://root:hush@127.0.0.1", "names no database"),
        ("mysql://root:hush@127.0.0.1:99999/x", "port"),
        ("mysql://root:hush@127.0.0.1/x?colour=red", "unknown option colour"),
        ("mysql://root:hush@127.0.0.1/x?pool=0", "pool must be a whole number from 1 to 1000"),
        ("mysql://root:hush@127.0.0.1/x?tls=maybe", "tls must be off, verify or insecure"),
        ("sqlite:x.db?socket=/tmp/x", "unknown option socket"),
        ("sqlite:x.db?lease=0.5", "lease must be at least 1 second"),
        ("sqlite:x.db?lease=soon", "lease must be a number of seconds"),
        ("sqlite:x.db?prefix=a-b", "prefix must be at most 32"),
        ("sqlite:x.db?backoff_base=10&backoff_cap=5", "backoff_cap"),
        ("sqlite:", "without a file"),
        ("sqlite:///", "without a file"),
        ("sqlite:///no/such/folder/x.db", "cannot open the SQLite file"),
    ] {
        let error = refused(dsn);
        assert_eq!(error.kind(), ErrorKind::Config, "{dsn}: {error}");
        assert!(error.to_string().contains(words), "{dsn}: {error}");
    }
    let text = format!("{:?}", Config::new("mysql://root:hush@127.0.0.1/x").unwrap());
    assert!(!text.contains("hush") && text.contains("127.0.0.1"), "{text}");
}

#[test]
fn a_dead_server_is_unavailable_and_named_soon() {
    let error = refused("mysql://root:hush@127.0.0.1:1/x");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_retryable());
    assert!(error.to_string().starts_with("connect: cannot reach 127.0.0.1:1: "), "{error}");
    // A server that accepts and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let error = refused(&format!("mysql://root:hush@127.0.0.1:{port}/x?connect_timeout=1"));
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[test]
fn wrong_password_and_unknown_database_are_faults_of_configuration() {
    for kind in Kind::SERVERS {
        let Some(dsn) = kind.dsn() else { continue };
        let wrong = dsn.replace("root@", "app:hush@");
        assert_eq!(refused(&wrong).kind(), ErrorKind::Config);
        let (server, _) = dsn.rsplit_once('/').unwrap();
        let error = refused(&format!("{server}/no_such_database"));
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("no_such_database"), "{error}");
    }
}

// 82
#[test]
fn a_payload_over_the_servers_packet_is_refused_before_it_is_sent() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "") else { continue };
        let limit = db.number("SELECT @@max_allowed_packet") as usize;
        let error = db.engine.create(&NewJob::new("q", format!("\"{}\"", "x".repeat(limit)))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("max_allowed_packet"), "{error}");
        assert!(!db.engine.create(&NewJob::new("q", "1")).unwrap().exists, "the same handle goes on");
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs}"), 1);
        let large = NewJob::new("q", format!("\"{}\"", "x".repeat(limit / 3)));
        assert_eq!(db.engine.create_many(&[large.clone(), large.clone(), large]).unwrap().len(), 3, "chunks by bytes");
    }
}

fn claim_error(db: &Db, change: impl Fn(&mut ClaimRequest)) -> String {
    let mut request = ClaimRequest::new("q");
    change(&mut request);
    let error = match db.engine.claim(&request) {
        Ok(_) => panic!("{request:?} was accepted"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    error.to_string()
}

every_database! {
    fn wrong_requests_are_refused_by_name_and_lose_nothing(db) {
        db.fill("q", 3);
        for (error, words) in [
            (claim_error(db, |r| r.limit = 0), "limit must be from 1 to 10000, not 0"),
            (claim_error(db, |r| r.limit = 10_001), "limit must be"),
            (claim_error(db, |r| r.lease = Some(Duration::from_millis(999))), "lease must be from 1 second"),
            (claim_error(db, |r| r.max_run = Some(Duration::from_secs(1))), "max_run must not be shorter than the lease"),
            (claim_error(db, |r| r.queues.clear()), "queues must name"),
            (claim_error(db, |r| r.queues = vec![String::new()]), "queue must have 1 to 64 bytes"),
            (claim_error(db, |r| r.queues = vec!["x".repeat(65)]), "queue must have 1 to 64 bytes, not 65"),
            (claim_error(db, |r| r.partition = Some((3, 3))), "partition"),
            (claim_error(db, |r| r.partition = Some((-1, 3))), "partition"),
        ] {
            assert!(error.contains(words), "{error}");
            assert!(error.starts_with("claim: "), "{error}");
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'ready' AND attempts = 0"), 3);
    }

    fn wrong_jobs_are_refused_before_anything_is_written(db) {
        let with = |change: &dyn Fn(&mut NewJob)| {
            let mut job = NewJob::new("q", "{}");
            change(&mut job);
            job
        };
        for (job, words) in [
            (with(&|j| j.payload = "{".into()), "payload is not JSON"),
            (with(&|j| j.payload = String::new()), "payload is not JSON"),
            (with(&|j| j.payload = "1 2".into()), "payload is not JSON"),
            (with(&|j| j.queue = String::new()), "queue must have"),
            (with(&|j| j.queue = "é".repeat(33)), "queue must have 1 to 64 bytes, not 66"),
            (with(&|j| j.max_attempts = Some(0)), "max_attempts must be 1 or more"),
            (with(&|j| j.unique = rowclaim::Unique::Active), "unique needs a key"),
            (with(&|j| j.delay = Duration::from_secs(u64::MAX / 2)), "delay"),
        ] {
            let error = db.engine.create_many(&[NewJob::new("q", "1"), job]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().starts_with("job 1: ") && error.message().contains(words), "{error}");
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs}"), 0, "also the good ones of the same call");
    }

    fn a_queue_name_of_64_bytes_and_a_quote_in_it_is_a_name(db) {
        for queue in ["x".repeat(64), "it's; DROP TABLE --".to_owned(), "päckchen 🎉".to_owned()] {
            db.engine.create(&NewJob::new(&queue, "1")).unwrap();
            assert_eq!(db.engine.claim(&ClaimRequest::new(&queue)).unwrap().len(), 1);
        }
    }

    fn a_closed_engine_says_so_and_connecting_again_works(db) {
        db.fill("q", 2);
        let claim = db.claim(1);
        db.engine.close(Duration::from_secs(2)).unwrap();
        let used = db.engine.claim(&ClaimRequest::new("q")).err().unwrap();
        for error in [claim.renew().unwrap_err(), claim.job(0).unwrap().complete().unwrap_err(), used] {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().contains("closed"), "{error}");
        }
        std::mem::forget(claim);
        db.engine.close(Duration::from_secs(2)).unwrap();
        assert_eq!(Engine::connect(&db.dsn).unwrap().claim(&ClaimRequest::new("q").limit(1)).unwrap().len(), 1);
    }

    fn wrong_limits_of_tools_are_refused(db) {
        let mut prune = PruneRequest::new(Duration::ZERO);
        prune.batch = 0;
        assert_eq!(db.engine.prune(prune, |_| ()).unwrap_err().kind(), ErrorKind::Invalid);
        let filter = rowclaim::JobFilter { limit: 0, ..rowclaim::JobFilter::default() };
        assert_eq!(db.engine.jobs(&filter).unwrap_err().kind(), ErrorKind::Invalid);
        let mut work = WorkRequest::new(ClaimRequest::new("q"));
        work.max_jobs = Some(0);
        assert_eq!(db.engine.work(&work, |_| Handled::As(Outcome::Complete)).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_read_only_file_is_refused_clearly() {
    let Some(db) = Db::new(Kind::Sqlite, "") else { return };
    db.fill("q", 1);
    db.engine.close(Duration::from_secs(1)).unwrap();
    let path = db.dsn.trim_start_matches("sqlite://").split('?').next().unwrap().to_owned();
    // Rights do not bind root: a file that is not a database does the same for everybody.
    std::fs::write(format!("{path}.txt"), "this is no database, and it is long enough to be looked at as one by SQLite").unwrap();
    let error = match Engine::connect(&format!("sqlite://{path}.txt")).and_then(|engine| engine.create(&NewJob::new("q", "1"))) {
        Ok(_) => panic!("accepted"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}
