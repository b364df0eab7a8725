//! One worker process of the race and crash suites: claims, records, finishes.
//!
//! `worker DSN RECORDS MODE [FAULT SKIP]`: mode `race` finishes in groups with batches of 100; `crash` finishes each job
//! with a little work in it; `hold` claims five at most once and hangs inside of its third job; `steps` takes one batch
//! through complete, fail and release. With FAULT `crash` the process kills itself before statement number SKIP. Ends when
//! nothing waits (`race`, `steps`) or when it is killed.

use conformance::records::Recorder;
use rowclaim::blocking::{Engine, Handled, WorkRequest};
use rowclaim::faults::Fault;
use rowclaim::{ClaimRequest, Config, Finish, OnLost, Outcome};
use std::path::Path;
use std::time::Duration;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dsn, records, mode, rest @ ..] = &words[..] else { panic!("usage: worker DSN RECORDS MODE [crash SKIP]") };
    let config = Config::new(dsn).unwrap();
    if let [_, skip] = rest {
        config.faults.order("", Fault::Crash, skip.parse().unwrap(), 1);
    }
    let engine = Engine::with_config(config).unwrap();
    let mut recorder = Recorder::new(Path::new(records));
    let errors = match mode.as_str() {
        "race" => race(&engine, &mut recorder),
        "crash" => crash(&engine, &mut recorder),
        "hold" => hold(&engine, &mut recorder),
        "steps" => steps(&engine, &mut recorder),
        other => panic!("no mode {other}"),
    };
    engine.close(Duration::from_secs(10)).unwrap();
    println!("{errors}");
}

/// Works until nothing waits for a second; the number of errors that came out of the engine.
fn race(engine: &Engine, recorder: &mut Recorder) -> u32 {
    let mut errors = 0;
    let mut request = WorkRequest::new(ClaimRequest::new("q").limit(100));
    request.max_time = Some(Duration::from_secs(1));
    request.max_idle = Duration::from_millis(50);
    loop {
        let mut seen = Vec::new();
        match engine.work(&request, |job| {
            recorder.write("start", job.id, job.fence);
            seen.push((job.id, job.fence));
            Handled::As(Outcome::Complete)
        }) {
            Ok(summary) => {
                // Durable now. A lost one is not told from the others here, so all are checked in the table too.
                let event = if summary.lost == 0 { "done" } else { "unsure" };
                seen.iter().for_each(|(id, fence)| recorder.write(event, *id, *fence));
                if summary.claimed == 0 {
                    return errors;
                }
            }
            Err(error) => {
                eprintln!("{error}");
                errors += 1;
            }
        }
    }
}

/// Works until it is killed. Errors are printed; the audit sees what they cost.
fn crash(engine: &Engine, recorder: &mut Recorder) -> ! {
    loop {
        let claim = match engine.claim(&ClaimRequest::new("q").limit(10)) {
            Ok(claim) => claim,
            Err(error) => {
                eprintln!("{error}");
                continue;
            }
        };
        if claim.is_empty() {
            std::thread::sleep(Duration::from_millis(30));
            continue;
        }
        while let Ok(Some(job)) = claim.next_job() {
            recorder.write("start", job.id, job.fence);
            std::thread::sleep(Duration::from_micros(fastrand::u64(0..8_000)));
            match job.complete() {
                Ok(Finish::Accepted) => recorder.write("done", job.id, job.fence),
                Ok(Finish::Lost) => recorder.write("lost", job.id, job.fence),
                Err(error) => eprintln!("{error}"),
            }
        }
    }
}

/// Hangs inside of the third job until it is killed.
fn hold(engine: &Engine, recorder: &mut Recorder) -> u32 {
    let mut request = WorkRequest::new(ClaimRequest::new("q").limit(5).on_lost(OnLost::Hold));
    request.finish_each = true;
    let mut handled = 0;
    let summary = engine.work(&request, |job| {
        recorder.write("start", job.id, job.fence);
        handled += 1;
        if handled == 3 {
            std::thread::sleep(Duration::from_secs(600));
        }
        Handled::As(Outcome::Complete)
    });
    u32::from(summary.is_err())
}

fn steps(engine: &Engine, recorder: &mut Recorder) -> u32 {
    for _ in 0..2 {
        let claim = engine.claim(&ClaimRequest::new("q").limit(6)).unwrap();
        let mut turn = 0;
        while let Ok(Some(job)) = claim.next_job() {
            recorder.write("start", job.id, job.fence);
            let outcome = match turn {
                0 | 1 => Outcome::Complete,
                2 => Outcome::Fail { error: "x".into(), delay: Some(Duration::ZERO) },
                3 => Outcome::Release { delay: Duration::ZERO },
                _ => break,
            };
            turn += 1;
            let answer = job.finish(&outcome).unwrap();
            let event = match (answer, &outcome) {
                (Finish::Lost, _) => "lost",
                (_, Outcome::Complete) => "done",
                _ => "back",
            };
            recorder.write(event, job.id, job.fence);
        }
    }
    0
}
