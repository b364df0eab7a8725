//! Real processes: signals at any moment, clocks that are wrong, and memory (cases 50, 74, 79, 119, 121).
//!
//! The program is `src/bin/worker.rs`. Forks and interpreters are the bindings' (111–113); a time limit that fires while a
//! handler runs is theirs too (118).

use conformance::records::{Audit, clock};
use conformance::tables::{ALL_ROLES, UserTable, abandon, claim, mapping};
use conformance::{Db, Kind, every_database, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rowclaim::LeaseRequest;
use rowclaim::blocking::Leased;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A worker process and its records; none outlives its test.
struct Worker {
    child: Child,
    records: PathBuf,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scratch(db: &Db) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rowclaim-process-{}", db.prefix));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

impl Worker {
    fn start(db: &Db, records: PathBuf, words: &[&str], shim: Option<&Shim>) -> Worker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.args([db.dsn.as_str(), records.to_str().unwrap()]).args(words);
        if let Some(shim) = shim {
            command.env("LD_PRELOAD", &shim.library).env("CLOCK_FILE", &shim.file);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Worker { child, records }
    }

    fn has_written(&self, lines: usize) -> bool {
        std::fs::read_to_string(&self.records).is_ok_and(|text| text.lines().count() >= lines)
    }

    fn terminate(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
    }

    /// Waits for its end; what it printed.
    fn answer(mut self) -> (std::process::ExitStatus, String) {
        let mut printed = String::new();
        drop(self.child.stdin.take());
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        (self.child.wait().unwrap(), printed)
    }
}

every_database! {
    // 119: SIGTERM at random moments of claim, run and finish: each job is started once and none has lost an attempt.
    fn workers_that_are_terminated_at_any_moment_start_each_job_once("", db) {
        let jobs = db.fill("q", 150);
        let folder = scratch(db);
        let mut audit = Audit::default();
        let open = || db.number("SELECT COUNT(*) FROM {jobs} WHERE state IN ('ready', 'claimed')");
        let since = Instant::now();
        let mut signals = 0;
        while open() > 0 {
            assert!(since.elapsed() < Duration::from_secs(40), "{} jobs are left", open());
            let worker = Worker::start(db, folder.join(signals.to_string()), &["drain"], None);
            std::thread::sleep(Duration::from_millis(fastrand::u64(10..140)));
            worker.terminate();
            let records = worker.records.clone();
            let (status, printed) = worker.answer();
            // Before it has asked for the signal the process dies of it, with nothing in hand.
            let is_early = status.signal() == Some(15) && !std::fs::read_to_string(&records).is_ok_and(|text| !text.is_empty());
            assert!(status.success() && printed.trim() == "0" || is_early, "{status}: {printed}");
            audit.read(signals, &records, clock());
            signals += 1;
        }
        assert!(signals >= 5, "{signals} signals");
        assert_eq!(audit.spans.len(), jobs.len());
        assert!(audit.spans.values().all(|spans| spans.len() == 1), "started once each");
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1 AND lost = 0"), 150);
        std::fs::remove_dir_all(folder).unwrap();
    }

    // 50: with a time to end in, what runs is done; without, it is back before the process has gone. Jobs, then rows.
    fn a_terminated_worker_leaves_nothing_claimed("heartbeat=1", db) {
        let folder = scratch(db);
        let targets = UserTable::targets(db, 6);
        let json = mapping(ALL_ROLES).to_json();
        db.fill("q", 6);
        for (grace, is_mapped) in [("1", false), ("0", false), ("1", true), ("0", true)] {
            let mut words = vec!["three", grace];
            if is_mapped {
                words.extend([targets.name.as_str(), json.as_str()]);
            }
            let worker = Worker::start(db, folder.join(format!("{grace}{is_mapped}")), &words, None);
            wait_until("three are running", || worker.has_written(3));
            worker.terminate();
            let (status, printed) = worker.answer();
            assert!(status.success() && printed.trim() == "0", "{grace} {is_mapped}: {status} {printed}");
        }
        let jobs = |filter: &str| db.number(&format!("SELECT COUNT(*) FROM {{jobs}} WHERE {filter}"));
        assert_eq!((jobs("state = 'done'"), jobs("state = 'ready' AND attempts = 0")), (3, 3));
        assert_eq!(targets.column("status"), ["2", "2", "2", "0", "0", "0"]);
        assert_eq!(targets.column("attempts"), ["1", "1", "1", "0", "0", "0"]);
        assert_eq!(db.number("SELECT COUNT(*) FROM {claims} WHERE state = 'open'"), 0);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'released'"), 6);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

// 121: one at a time, for long: what has grown by the end is noise.
#[test]
fn a_long_running_worker_does_not_grow() {
    for (kind, options, rounds) in [(Kind::Sqlite, "synchronous=normal", "2000"), (Kind::MySql, "", "600")] {
        let Some(db) = Db::new(kind, options) else { continue };
        let (status, printed) = Worker::start(&db, "/dev/null".into(), &["memory", rounds], None).answer();
        assert!(status.success(), "{status}");
        let grown: i64 = printed.lines().next().unwrap().parse().unwrap();
        println!("{}: grown by {grown} KiB in {rounds} rounds", kind.name());
        assert!(grown < 1_024, "{}: grown by {grown} KiB in {rounds} rounds", kind.name());
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state <> 'done'"), 0);
    }
}

/// A library that shifts the wall clock of a process by the seconds that stand in a file.
struct Shim {
    library: PathBuf,
    file: PathBuf,
}

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) {
    long seconds = 0;
    const char *name = getenv("CLOCK_FILE");
    FILE *file = name ? fopen(name, "r") : NULL;
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(id, at);
    if (!answer && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += shift();
    return answer;
}
time_t time(time_t *to) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (to) *to = at.tv_sec;
    return at.tv_sec;
}
int gettimeofday(struct timeval *to, void *zone) {
    struct timespec at;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    to->tv_sec = at.tv_sec;
    to->tv_usec = at.tv_nsec / 1000;
    return 0;
}
"#;

impl Shim {
    fn new(folder: &Path) -> Shim {
        let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
        std::fs::write(&source, SHIM).unwrap();
        let compiled =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").status().unwrap();
        assert!(compiled.success(), "cc cannot compile the shim");
        Shim { library, file: folder.join("shift") }
    }

    fn set(&self, seconds: i64) {
        // Whole at any moment.
        let next = self.file.with_extension("next");
        std::fs::write(&next, seconds.to_string()).unwrap();
        std::fs::rename(next, &self.file).unwrap();
    }
}

// 79: the clock is set back by an hour while a lease is renewed, and while a worker waits. On SQLite the machine's clock is
// the database's own.
#[test]
fn a_clock_that_is_set_back_delays_no_renewal_and_no_poll() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "lease=1") else { continue };
        let folder = scratch(&db);
        let shim = Shim::new(&folder);
        shim.set(0);
        db.fill("q", 1);
        let mut holder = Worker::start(&db, folder.join("holder"), &["hold"], Some(&shim));
        let mut lines = BufReader::new(holder.child.stdout.take().unwrap()).lines();
        let mut time = |word: &str| -> i64 {
            let line = lines.next().unwrap().unwrap();
            line.strip_prefix(word).unwrap_or_else(|| panic!("{line}")).trim().parse().unwrap()
        };
        let before = time("held");
        let idle = Worker::start(&db, folder.join("idle"), &["drain"], Some(&shim));
        std::thread::sleep(Duration::from_millis(300));
        shim.set(-3_600);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(2_200) {
            assert_eq!(db.engine.recover().unwrap().returned, 0, "the lease has lapsed");
            std::thread::sleep(Duration::from_millis(50));
        }
        let created = Instant::now();
        db.fill("q", 1);
        wait_until("the waiting worker has found it", || idle.has_written(1));
        assert!(created.elapsed() < Duration::from_millis(2_500), "{:?}: it polls each second", created.elapsed());
        drop(holder.child.stdin.take());
        let after = time("Accepted");
        assert!((-3_700..-3_500).contains(&(after - before)), "the clock did not go back: {before}, {after}");
        idle.terminate();
        assert!(idle.answer().0.success());
        wait_until("both are done", || db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1") == 2);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

// 74: a process whose clock is three minutes ahead waits for the database's clock like everybody else.
#[test]
fn a_clock_that_is_ahead_ends_nobody_elses_lease() {
    for kind in Kind::SERVERS {
        let Some(db) = Db::new(kind, "heartbeat=0&lease=120") else { continue };
        let folder = scratch(&db);
        let shim = Shim::new(&folder);
        shim.set(180);
        let ask = || -> (String, i64) {
            let (status, printed) = Worker::start(&db, "/dev/null".into(), &["ask", "nightly"], Some(&shim)).answer();
            assert!(status.success(), "{status}");
            let (answer, believed) = printed.lines().next().unwrap().rsplit_once(' ').unwrap();
            let ahead = believed.parse::<i64>().unwrap() - db.clock() / 1_000_000;
            (answer.to_owned(), ahead)
        };
        let targets = UserTable::targets(&db, 2);
        abandon(claim(&targets.map(ALL_ROLES), 2));
        let request = LeaseRequest::new("nightly", Duration::from_secs(120));
        let Leased::Acquired(lease) = db.engine.lease(&request).unwrap() else { panic!("it is free") };
        let (answer, ahead) = ask();
        assert_eq!(answer, "busy 0", "{}", kind.name());
        assert!((170..190).contains(&ahead), "its clock is {ahead} s ahead");
        // 120 seconds of the database's time have gone.
        db.raw().run("UPDATE {leases} SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND");
        db.leases_end_in(-1);
        assert_eq!(ask().0, "free 2", "{}", kind.name());
        assert!(!lease.renew().unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
