//! Limits that all workers share.

use conformance::every_database;
use rowclaim::blocking::{Handled, WorkRequest};
use rowclaim::{ClaimRequest, ErrorKind, Outcome, ThrottleRequest};
use std::sync::Mutex;
use std::time::{Duration, Instant};

every_database! {
    // 144: five workers, one limit; what is throttled costs no attempt.
    fn five_workers_together_keep_the_limit("", db) {
        let (limit, count) = (40, 60);
        db.fill("q", count);
        let sends = Mutex::new(Vec::new());
        let since = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..5 {
                let (engine, sends) = (db.another(""), &sends);
                scope.spawn(move || {
                    let mut request = WorkRequest::new(ClaimRequest::new("q").limit(10));
                    request.until_empty = true;
                    let throttle = ThrottleRequest { wait: Duration::from_millis(60), ..ThrottleRequest::new("sms", limit) };
                    while engine.has_due(&["q".to_owned()]).unwrap() {
                        engine.work(&request, |_| {
                            if !engine.throttle(&throttle).unwrap() {
                                return Handled::As(Outcome::Release { delay: Duration::ZERO });
                            }
                            sends.lock().unwrap().push(since.elapsed());
                            Handled::As(Outcome::Complete)
                        }).unwrap();
                    }
                });
            }
        });
        let mut sends = sends.into_inner().unwrap();
        sends.sort();
        assert_eq!(sends.len(), count);
        // Places are 25 ms apart on the database's clock, the first not before the start; a worker may be late for its own.
        for (place, send) in sends.iter().enumerate() {
            let earliest = Duration::from_millis(25 * place as u64);
            assert!(*send + Duration::from_millis(5) >= earliest, "send {place} after {send:?}");
        }
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1"), count as i64);
    }

    fn a_limit_names_what_is_wrong_and_waits_no_longer_than_asked("heartbeat=0", db) {
        let of = |name: &str, limit, per, wait| ThrottleRequest {
            name: name.to_owned(), limit, per: Duration::from_millis(per), wait: Duration::from_millis(wait),
        };
        assert!(db.engine.throttle(&of("a", 1, 60_000, 0)).unwrap());
        let since = Instant::now();
        assert!(!db.engine.throttle(&of("a", 1, 60_000, 500)).unwrap());
        assert!(!db.another("heartbeat=0").throttle(&of("a", 1, 60_000, 500)).unwrap());
        assert!(since.elapsed() < Duration::from_millis(450), "it is told at once: {:?}", since.elapsed());
        assert!(db.engine.throttle(&of("b", 1, 60_000, 0)).unwrap(), "another name is another limit");
        for (request, says) in [
            (of("", 1, 1_000, 0), "1 to 191 bytes"),
            (of("a", 0, 1_000, 0), "limit must be"),
            (of("a", 1, 0, 0), "per must be"),
        ] {
            let error = db.engine.throttle(&request).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
