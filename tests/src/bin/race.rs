//! `make race`: many processes on each database, then many kills; one line of JSON for each database and suite.
//!
//! `race [--processes 16] [--jobs 50000] [--kills 200] [DATABASE …]`. Exits with 1 when a job was lost, done twice, had
//! two owners at once, or an error came out of the engine.

use conformance::records::{Audit, clock};
use conformance::{Db, Kind};
use nix::sys::signal::Signal;
use serde_json::json;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

struct Numbers {
    processes: usize,
    jobs: usize,
    kills: usize,
}

fn main() {
    let mut numbers = Numbers { processes: 16, jobs: 50_000, kills: 200 };
    let mut kinds = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{word} needs a number"));
        match word.as_str() {
            "--processes" => numbers.processes = number(),
            "--jobs" => numbers.jobs = number(),
            "--kills" => numbers.kills = number(),
            name => kinds.push(name.to_owned()),
        }
    }
    let mut is_good = true;
    for kind in [Kind::Sqlite, Kind::MariaDb, Kind::MariaDbTokenUpdate, Kind::MySql] {
        if !kinds.is_empty() && !kinds.iter().any(|name| name == kind.name()) {
            continue;
        }
        if let Some(db) = Db::new(kind, "lease=30") {
            is_good &= race(&db, &numbers);
        }
        if let Some(db) = Db::new(kind, "lease=1&backoff_base=0.1&backoff_cap=0.1&max_attempts=1000") {
            is_good &= crash(&db, &numbers);
        }
    }
    std::process::exit(i32::from(!is_good));
}

struct Worker {
    child: Child,
    records: PathBuf,
}

/// No worker outlives the suite, whatever happens to it.
impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    /// Waits for the end of the program; what it printed, `None` when it failed.
    fn answer(&mut self) -> Option<String> {
        let mut printed = String::new();
        self.child.stdout.take()?.read_to_string(&mut printed).ok()?;
        self.child.wait().ok()?.success().then(|| printed.trim().to_owned())
    }
}

fn start(db: &Db, folder: &std::path::Path, number: usize, mode: &str) -> Worker {
    let records = folder.join(format!("{number}.records"));
    let program = std::env::current_exe().unwrap().with_file_name("worker");
    let child = Command::new(program)
        .args([&db.dsn, records.to_str().unwrap(), mode])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("the worker program cannot be started: {error}; build it first"));
    Worker { child, records }
}

fn scratch(db: &Db, suite: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rowclaim-{suite}-{}", db.prefix));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// All processes at once until nothing waits.
fn race(db: &Db, numbers: &Numbers) -> bool {
    db.fill("q", numbers.jobs);
    let folder = scratch(db, "race");
    let since = Instant::now();
    let workers: Vec<Worker> = (0..numbers.processes).map(|number| start(db, &folder, number, "race")).collect();
    let mut audit = Audit::default();
    let mut surfaced_errors = 0;
    for (number, mut worker) in workers.into_iter().enumerate() {
        surfaced_errors += worker.answer().and_then(|printed| printed.parse::<u64>().ok()).unwrap_or(1);
        audit.read(number, &worker.records, clock());
    }
    let seconds = since.elapsed().as_secs_f64();
    let done_once = audit.done_once();
    let in_table = db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1 AND lost = 0") as usize;
    let lost = numbers.jobs - db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'") as usize;
    let double_owners = audit.double_owners();
    println!(
        "{}",
        json!({
            "suite": "race", "db": db.kind.name(), "processes": numbers.processes, "jobs": numbers.jobs, "done_once": done_once,
            "surfaced_errors": surfaced_errors, "kills": 0, "lost": lost, "double_owners": double_owners,
            "late_writes_refused": audit.late_writes_refused, "seconds": rounded(seconds),
        })
    );
    let _ = std::fs::remove_dir_all(folder);
    done_once == numbers.jobs && in_table == numbers.jobs && surfaced_errors == 0 && lost == 0 && double_owners == 0
}

/// Workers are killed and stopped past their lease at random moments, and replaced, while jobs are done.
fn crash(db: &Db, numbers: &Numbers) -> bool {
    let folder = scratch(db, "crash");
    let since = Instant::now();
    let mut audit = Audit::default();
    let mut workers: Vec<(usize, Worker)> = Vec::new();
    let mut next = 0;
    let mut begin = |workers: &mut Vec<(usize, Worker)>| {
        workers.push((next, start(db, &folder, next, "crash")));
        next += 1;
    };
    for _ in 0..4 {
        begin(&mut workers);
    }
    let mut jobs = 0;
    let mut stopped: Vec<(u32, JoinHandle<()>)> = Vec::new();
    for kill in 0..numbers.kills {
        jobs += db.fill("q", 20).len();
        std::thread::sleep(Duration::from_millis(fastrand::u64(20..90)));
        stopped.retain(|(_, going_on)| !going_on.is_finished());
        // Every tenth time a worker is stopped past its lease as well, and goes on as a late owner.
        let free = |workers: &[(usize, Worker)], stopped: &[(u32, JoinHandle<()>)]| {
            let mut free: Vec<usize> = (0..workers.len()).collect();
            free.retain(|index| stopped.iter().all(|(pid, _)| *pid != workers[*index].1.child.id()));
            free[fastrand::usize(..free.len())]
        };
        if kill % 10 == 9 {
            let pid = workers[free(&workers, &stopped)].1.child.id();
            signal(pid, Signal::SIGSTOP);
            // On its own thread: on SQLite the stopped one may hold the write lock, and then everybody waits for it.
            let go_on = move || {
                std::thread::sleep(Duration::from_millis(2_500));
                signal(pid, Signal::SIGCONT);
            };
            stopped.push((pid, std::thread::spawn(go_on)));
            begin(&mut workers);
        }
        let (number, mut worker) = workers.remove(free(&workers, &stopped));
        worker.child.kill().unwrap();
        worker.child.wait().unwrap();
        audit.read(number, &worker.records, clock());
        begin(&mut workers);
    }
    stopped.into_iter().for_each(|(_, going_on)| going_on.join().unwrap());
    let drained = Instant::now();
    let open = "SELECT COUNT(*) FROM {jobs} WHERE state IN ('ready', 'claimed')";
    while db.number(open) > 0 && drained.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
    }
    for (number, mut worker) in workers {
        worker.child.kill().unwrap();
        worker.child.wait().unwrap();
        audit.read(number, &worker.records, clock());
    }
    let lost = jobs - db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'") as usize;
    // A worker may be killed between the accepted finish and its own record: never twice, at most once.
    let twice = audit.spans.values().filter(|spans| spans.iter().filter(|span| span.is_done).count() > 1).count();
    let double_owners = audit.double_owners() + twice;
    if double_owners > 0 {
        for (job, spans) in audit.spans.iter().filter(|(_, spans)| spans.len() > 1).take(5) {
            eprintln!("job {job}: {spans:?}");
        }
    }
    println!(
        "{}",
        json!({
            "suite": "crash", "db": db.kind.name(), "processes": 4, "jobs": jobs, "done_once": audit.done_once(),
            "surfaced_errors": 0, "kills": numbers.kills, "lost": lost, "double_owners": double_owners,
            "late_writes_refused": audit.late_writes_refused, "seconds": rounded(since.elapsed().as_secs_f64()),
        })
    );
    let _ = std::fs::remove_dir_all(folder);
    lost == 0 && double_owners == 0
}

fn signal(pid: u32, signal: Signal) {
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal);
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}
