//! One worker process of the race, crash and process suites: claims, records, finishes.
//!
//! `worker DSN RECORDS MODE [WORD …]`
//!
//! - `race` finishes in groups with batches of 100, until nothing waits.
//! - `crash` finishes each job with a little work in it, until it is killed.
//! - `steps CRASH SKIP` takes one batch through complete, fail and release; with the words the process kills itself before
//!   statement number SKIP.
//! - `poison TABLE MAPPING` claims one row and is killed by it.
//! - `drain` works until SIGTERM, then ends after the job in hand.
//! - `three GRACE [TABLE MAPPING]` runs three jobs or rows at once; on SIGTERM it waits for them, each of which takes half a
//!   second (GRACE 1), or gives them back, each of which takes half a minute (GRACE 0).
//! - `hold` claims one job, says `held TIME`, and completes it when its stdin ends: `Accepted TIME` by its own clock.
//! - `ask LEASE` says whether a lease is `busy` or `free`, how many rows recovery took back, and its own clock.
//! - `memory ROUNDS` claims and completes jobs one at a time and says by how many KiB it grew.
//! - `begun` claims five at most once and hangs inside of its third job.

use conformance::records::Recorder;
use nix::sys::signal::{SigSet, Signal, raise};
use rowclaim::blocking::{Claim, Claimable, Engine, Handled, Leased, WorkRequest};
use rowclaim::faults::Fault;
use rowclaim::{ClaimRequest, Config, Finish, LeaseRequest, Mapping, NewJob, OnLost, Outcome, RowClaimRequest};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, SystemTime};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dsn, records, mode, rest @ ..] = &words[..] else { panic!("usage: worker DSN RECORDS MODE [WORD …]") };
    // Before any thread is started, so that all of them leave the signal to the one that waits for it.
    let terminated = SigSet::from_iter([Signal::SIGTERM]);
    if ["drain", "three"].contains(&mode.as_str()) {
        terminated.thread_block().unwrap();
    }
    let config = Config::new(dsn).unwrap();
    if let ("steps", [_, skip]) = (mode.as_str(), rest) {
        config.faults.order("", Fault::Crash, skip.parse().unwrap(), 1);
    }
    let engine = Engine::with_config(config).unwrap();
    let mut recorder = Recorder::new(Path::new(records));
    let errors = match mode.as_str() {
        "race" => race(&engine, &mut recorder),
        "crash" => crash(&engine, &mut recorder),
        "begun" => begun(&engine, &mut recorder),
        "steps" => steps(&engine, &mut recorder),
        "drain" => drain(&engine, &mut recorder),
        "three" => three(&engine, &mut recorder, rest),
        "hold" => hold(&engine),
        "ask" => ask(&engine, &rest[0]),
        "memory" => memory(&engine, rest[0].parse().unwrap()),
        "poison" => poison(&engine, &rest[0], &rest[1]),
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

/// Starts one row of a mapped table, which kills it.
fn poison(engine: &Engine, table: &str, mapping: &str) -> u32 {
    let table = engine.table(table, &Mapping::from_json(mapping).unwrap()).unwrap();
    let claim = table.claim(&RowClaimRequest::new(1)).unwrap();
    if claim.next_job().unwrap().is_some() {
        raise(Signal::SIGKILL).unwrap();
    }
    0
}

/// Hangs inside of the third job until it is killed.
fn begun(engine: &Engine, recorder: &mut Recorder) -> u32 {
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

fn until_terminated() {
    SigSet::from_iter([Signal::SIGTERM]).wait().unwrap();
}

fn drain(engine: &Engine, recorder: &mut Recorder) -> u32 {
    let mut request = WorkRequest::new(ClaimRequest::new("q").limit(10));
    request.finish_each = true;
    let stop = std::sync::Arc::clone(&request.stop);
    std::thread::spawn(move || {
        until_terminated();
        stop.store(true, SeqCst);
    });
    let work = engine.work(&request, |job| {
        recorder.write("start", job.id, job.fence);
        std::thread::sleep(Duration::from_millis(4));
        Handled::As(Outcome::Complete)
    });
    u32::from(work.unwrap().lost > 0)
}

fn three(engine: &Engine, recorder: &mut Recorder, words: &[String]) -> u32 {
    let is_patient = words[0] == "1";
    match words {
        [_, table, mapping] => {
            let table = engine.table(table, &Mapping::from_json(mapping).unwrap()).unwrap();
            run_three(table.claim(&RowClaimRequest::new(3)).unwrap(), recorder, is_patient)
        }
        _ => run_three(engine.claim(&ClaimRequest::new("q").limit(3)).unwrap(), recorder, is_patient),
    }
}

fn run_three<R: Claimable + Send + Sync + 'static>(claim: Claim<R>, recorder: &mut Recorder, is_patient: bool) -> u32 {
    let jobs: Vec<_> = (0..claim.len()).map(|_| claim.next_job().unwrap().unwrap()).collect();
    let takes = Duration::from_millis(if is_patient { 500 } else { 30_000 });
    let running: Vec<_> = jobs
        .iter()
        .cloned()
        .enumerate()
        .map(|(number, job)| {
            recorder.write("start", number as i64, 1);
            std::thread::spawn(move || {
                std::thread::sleep(takes);
                job.complete().unwrap()
            })
        })
        .collect();
    until_terminated();
    if is_patient {
        return running.into_iter().map(|job| u32::from(job.join().unwrap() != Finish::Accepted)).sum();
    }
    jobs.iter().map(|job| u32::from(job.release(Duration::ZERO).unwrap() != Finish::Accepted)).sum()
}

/// Seconds since 1970 as this process believes.
fn believed() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

fn hold(engine: &Engine) -> u32 {
    let claim = engine.claim(&ClaimRequest::new("q").limit(1)).unwrap();
    println!("held {}", believed());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    println!("{:?} {}", claim.job(0).unwrap().complete().unwrap(), believed());
    0
}

fn ask(engine: &Engine, lease: &str) -> u32 {
    let answer = engine.lease(&LeaseRequest::new(lease, Duration::from_secs(60))).unwrap();
    let word = if matches!(answer, Leased::Busy(_)) { "busy" } else { "free" };
    println!("{word} {} {}", engine.recover().unwrap().returned, believed());
    0
}

/// What the process has in memory, in KiB.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn memory(engine: &Engine, rounds: usize) -> u32 {
    let run = |rounds: usize| {
        for _ in 0..rounds / 100 {
            let jobs: Vec<NewJob> = (0..100).map(|n: u32| NewJob::new("q", n.to_string())).collect();
            engine.create_many(&jobs).unwrap();
            for _ in jobs {
                let claim = engine.claim(&ClaimRequest::new("q").limit(1)).unwrap();
                assert_eq!(claim.complete_all().unwrap(), [Finish::Accepted]);
            }
        }
    };
    run(rounds / 3);
    let before = resident();
    run(rounds);
    println!("{}", resident() - before);
    0
}
