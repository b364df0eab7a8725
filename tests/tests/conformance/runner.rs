//! The door for HTTP requests and crontabs.

use conformance::every_database;
use rowclaim::blocking::{Admission, Admitted, Handled, RunnerAnswer, RunnerRequest, Waiting, WorkRequest};
use rowclaim::{ClaimRequest, Outcome};
use std::time::{Duration, Instant};

const TOKEN: &str = "0123456789abcdef-secret";

fn door(name: Option<&str>) -> RunnerRequest {
    RunnerRequest { name: name.map(str::to_owned), ..RunnerRequest::new(Some(TOKEN.to_owned())) }
}

fn admitted(admission: Admission) -> Admitted {
    match admission {
        Admission::Work(admitted) => admitted,
        Admission::Refused(answer) => panic!("{answer:?}"),
    }
}

fn refused(admission: Admission) -> RunnerAnswer {
    match admission {
        Admission::Refused(answer) => answer,
        Admission::Work(_) => panic!("let in"),
    }
}

every_database! {
    fn only_a_post_with_the_token_is_let_in("heartbeat=0", db) {
        for (method, token, status) in [
            ("GET", Some(TOKEN), 405),
            ("PUT", None, 405),
            ("POST", None, 403),
            ("POST", Some(""), 403),
            ("POST", Some("0123456789abcdef-secreT"), 403),
            ("POST", Some("Bearer wrong"), 403),
        ] {
            let answer = refused(db.engine.admit(&door(None), method, token));
            assert_eq!(answer.status, status, "{method} {token:?}");
            assert!(!answer.body.contains("0123456789"), "{}", answer.body);
        }
        for token in [TOKEN.to_owned(), format!("Bearer {TOKEN}")] {
            drop(admitted(db.engine.admit(&door(None), "POST", Some(&token))));
        }
        let error = RunnerRequest::new(Some("short".into())).check().unwrap_err();
        assert!(error.to_string().contains("at least 16 bytes"), "{error}");
    }

    fn one_runner_of_a_name_works_at_a_time("heartbeat=0", db) {
        let other = db.another("heartbeat=0");
        let first = admitted(db.engine.admit(&door(Some("nightly")), "POST", Some(TOKEN)));
        let answer = refused(other.admit(&door(Some("nightly")), "POST", Some(TOKEN)));
        assert_eq!(answer.status, 409);
        drop(admitted(other.admit(&door(Some("hourly")), "POST", Some(TOKEN))));
        drop(first);
        drop(admitted(other.admit(&door(Some("nightly")), "POST", Some(TOKEN))));
    }

    fn the_answer_tells_what_was_done_and_whether_there_is_more("heartbeat=0&backoff_base=0", db) {
        db.fill("q", 5);
        let held = db.claim(1);
        held.next_job().unwrap().unwrap();
        std::mem::forget(held);
        db.expire();
        let queues = ["q".to_owned()];
        let work = |max_jobs| {
            let mut request = WorkRequest::new(ClaimRequest::new("q").limit(10));
            (request.until_empty, request.max_jobs) = (true, max_jobs);
            db.engine.work(&request, |_| Handled::As(Outcome::Complete))
        };
        let runner = admitted(db.engine.admit(&door(None), "POST", Some(TOKEN)));
        let answer = runner.answer(&work(Some(3)), Waiting::Queues(&queues));
        assert_eq!(answer.status, 200);
        assert!(answer.body.starts_with(r#"{"ok":true,"claimed":3,"completed":3,"failed":0,"released":0,"lost":0,"recovered":1,"seconds":"#), "{}", answer.body);
        assert!(answer.body.ends_with(r#""more":true}"#), "{}", answer.body);
        let runner = admitted(db.engine.admit(&door(None), "POST", Some(TOKEN)));
        assert!(runner.answer(&work(None), Waiting::Queues(&queues)).body.ends_with(r#""more":false}"#));
    }

    // 131, 132: no job is begun that does not fit.
    fn no_job_is_begun_that_does_not_fit_into_the_time("heartbeat=0", db) {
        db.fill("q", 10);
        let mut request = WorkRequest::new(ClaimRequest::new("q").limit(10));
        request.max_time = Some(Duration::from_millis(1_250));
        let since = Instant::now();
        let mut starts = 0;
        let summary = db.engine.work(&request, |_| {
            starts += 1;
            std::thread::sleep(Duration::from_millis(500));
            Handled::As(Outcome::Complete)
        }).unwrap();
        assert_eq!((starts, summary.completed, summary.released), (2, 2, 8));
        assert!(since.elapsed() < Duration::from_millis(1_400), "{:?}", since.elapsed());
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'ready' AND attempts = 0"), 8);
    }
}

#[test]
fn without_tables_the_answer_is_500_and_says_why() {
    let engine = rowclaim::blocking::Engine::connect("sqlite::memory:?migrate=never").unwrap();
    let answer = refused(engine.admit(&door(Some("x")), "POST", Some(TOKEN)));
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains(r#""kind":"schema""#), "{}", answer.body);
}
