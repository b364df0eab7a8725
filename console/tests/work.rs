//! `rowclaim work`: a process for each job; what its exit code does, how long it may take, and how the worker stops.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests, outside of #[test]")]

mod stage;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rowclaim::NewJob;
use serde_json::{Value, json};
use stage::{Answer, Stage};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

impl Stage {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn work(&self, exec: &str, more: &[&str]) -> Answer {
        self.run(&[&["work", "mail", "--exec", exec, "--json"], more].concat())
    }

    fn job(&self, id: i64) -> Value {
        self.run(&["jobs", "show", &id.to_string(), "--json"]).json()
    }

    fn create(&self, payloads: &[&str]) {
        let jobs: Vec<NewJob> = payloads.iter().map(|payload| NewJob::new("mail", *payload)).collect();
        self.engine().create_many(&jobs).unwrap();
    }

    fn start(&self, exec: &str, more: &[&str]) -> Child {
        let arguments = [&["work", "mail", "--exec", exec, "--json"], more].concat();
        self.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

fn wait_for(what: impl Fn() -> bool) {
    let since = Instant::now();
    while !what() {
        assert!(since.elapsed() < Duration::from_secs(30), "it does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn the_payload_is_on_stdin_and_the_rest_in_the_environment() {
    let stage = Stage::new();
    let payload = format!("{{\"to\": 7, \"text\": \"{}\"}}", "王 ".repeat(100_000));
    let mut job = NewJob::new("mail", payload.clone()).key("mail:7");
    job.max_attempts = Some(3);
    stage.engine().create(&job).unwrap();
    stage.engine().create(&NewJob::new("mail", "1")).unwrap();
    let names = "JOB_ID QUEUE KEY ATTEMPTS MAX_ATTEMPTS FENCE TOKEN";
    let told: String = names.split(' ').map(|name| format!("${{ROWCLAIM_{name}-unset}}|")).collect();
    let exec = format!("cat > {0}.$ROWCLAIM_JOB_ID; echo \"{told}\" > {0}.env.$ROWCLAIM_JOB_ID", stage.file("job").display());
    // The console itself may have been started by such a command.
    let mut command = stage.command(&["work", "mail", "--exec", &exec, "--until-empty"]);
    let answer = Answer::of(command.env("ROWCLAIM_KEY", "another").output().unwrap());
    assert!(answer.ok().starts_with("2 completed, 0 failed, 0 released, 0 lost in "));
    assert_eq!(std::fs::read_to_string(stage.file("job.1")).unwrap(), payload);
    let told = std::fs::read_to_string(stage.file("job.env.1")).unwrap();
    let told: Vec<&str> = told.trim().split('|').collect();
    assert_eq!(told[..6], ["1", "mail", "mail:7", "1", "3", "1"]);
    assert_eq!(told[6].len(), 36);
    let told = std::fs::read_to_string(stage.file("job.env.2")).unwrap();
    assert!(told.starts_with("2|mail|unset|1|20|"), "{told}");
}

#[test]
fn the_exit_code_decides() {
    let stage = Stage::new();
    stage.create(&["0", "75", "3", "9", "65"]);
    let exec = "code=$(cat); echo job $code >&2; [ $code = 9 ] && kill -9 $$; exit $code";
    let answer = stage.work(exec, &["--until-empty", "--retry-after", "1h"]).json();
    let counts = json!({ "claimed": 5, "completed": 1, "failed": 3, "released": 1, "lost": 0, "stopped": false });
    for (name, count) in counts.as_object().unwrap() {
        assert_eq!(answer[name], *count, "{name}");
    }
    assert_eq!(stage.job(1)["state"], "done");
    let released = stage.job(2);
    assert_eq!((&released["state"], &released["attempts"], &released["last_error"]), (&json!("ready"), &json!(0), &Value::Null));
    assert!(released["ready_at"].as_str() > released["created_at"].as_str());
    assert_eq!(stage.job(3)["last_error"], "exit code 3: job 3");
    assert_eq!(stage.job(4)["last_error"], "ended by SIGKILL: job 9");
    assert_eq!(stage.job(4)["attempts"], 1);
    assert_eq!((&stage.job(3)["state"], &stage.job(5)["state"]), (&json!("ready"), &json!("dead")), "no attempt mends 65");
    assert_eq!(stage.job(5)["last_error"], "exit code 65: job 65");
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_its_children() {
    let stage = Stage::new();
    stage.create(&["1"]);
    let exec = format!("trap 'echo bye >&2; exit 0' TERM; sleep 60 & wait; touch {}", stage.file("late").display());
    let since = Instant::now();
    let answer = stage.work(&exec, &["--until-empty", "--max-run", "200ms"]).json();
    assert_eq!((&answer["failed"], &answer["completed"]), (&json!(1), &json!(0)));
    assert!(since.elapsed() < Duration::from_secs(20) && !stage.file("late").exists());
    let error = stage.job(1)["last_error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("ended after 200ms, its --max-run") && error.ends_with("bye"), "{error}");
    stage.create(&["2"]);
    let stubborn = "trap '' TERM; while :; do sleep 0.1; done";
    assert_eq!(stage.work(stubborn, &["--max-jobs", "1", "--max-run", "100ms"]).json()["failed"], 1, "SIGKILL after 5 s");
}

#[test]
fn a_command_whose_job_is_lost_is_ended() {
    let stage = Stage::new();
    stage.create(&["1"]);
    let (begun, late) = (stage.file("begun"), stage.file("late"));
    let child = stage.start(
        &format!("echo x >> {}; sleep 20; touch {}", begun.display(), late.display()),
        &["--lease", "1s", "--max-jobs", "1"],
    );
    wait_for(|| lines(&begun) == 1);
    let claim = stage.run(&["claims", "list", "--state", "open", "--json"]).json();
    let since = Instant::now();
    stage.run(&["release", "--claim", &claim["id"].to_string()]);
    let answer = Answer::of(child.wait_with_output().unwrap()).json();
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    assert_eq!((&answer["lost"], &answer["failed"], &answer["completed"]), (&json!(1), &json!(0), &json!(0)));
    assert!(!late.exists());
    assert_eq!(stage.job(1)["state"], "ready", "another worker may take it");
}

#[test]
fn jobs_and_time_are_limited_and_commands_run_side_by_side() {
    let stage = Stage::new();
    stage.create(&["1"; 12]);
    assert_eq!(stage.work("cat", &["--max-jobs", "3"]).json()["completed"], 3);
    assert_eq!(stage.work("cat", &["--max-jobs", "2", "--parallel", "4", "--batch", "5"]).json()["completed"], 2);
    // Each waits until another has begun: alone it would fail.
    let place = stage.file("begun");
    let exec = format!(
        "echo x >> {0}; for i in $(seq 200); do [ $(wc -l < {0}) -ge 2 ] && exit 0; sleep 0.05; done; exit 1",
        place.display()
    );
    assert_eq!(stage.work(&exec, &["--max-jobs", "2", "--parallel", "2"]).json()["completed"], 2);
    let answer = stage.work("sleep 0.3", &["--max-seconds", "1s", "--batch", "10"]).json();
    assert!((1..=4).contains(&answer["completed"].as_i64().unwrap()), "{answer}");
    assert_eq!(answer["released"].as_i64().unwrap() + answer["completed"].as_i64().unwrap(), 5, "{answer}");
    assert_eq!(stage.work("cat", &["--until-empty", "--finish", "group", "--batch", "100"]).json()["failed"], 0);
    assert_eq!(stage.run(&["stats", "--json", "--exact"]).json()["queues"][0]["exact"]["done"], 12);
}

#[test]
fn after_a_signal_the_job_in_hand_is_finished_and_the_others_are_given_back() {
    for sent in [Signal::SIGTERM, Signal::SIGINT] {
        let stage = Stage::new();
        stage.create(&["1"; 5]);
        let (begun, go) = (stage.file("begun"), stage.file("go"));
        let exec = format!("echo x >> {}; while [ ! -e {} ]; do sleep 0.02; done", begun.display(), go.display());
        let child = stage.start(&exec, &["--batch", "5"]);
        wait_for(|| lines(&begun) == 1);
        signal(&child, sent);
        std::thread::sleep(Duration::from_millis(100));
        std::fs::write(&go, "").unwrap();
        let answer = Answer::of(child.wait_with_output().unwrap()).json();
        assert_eq!((&answer["completed"], &answer["released"], &answer["stopped"]), (&json!(1), &json!(4), &json!(true)));
        assert_eq!(lines(&begun), 1);
        assert!((2..=5).all(|id| stage.job(id)["state"] == "ready" && stage.job(id)["attempts"] == 0));
    }
}

#[test]
fn a_second_signal_ends_the_worker_and_its_command_at_once() {
    let stage = Stage::new();
    stage.create(&["1"]);
    let (begun, late) = (stage.file("begun"), stage.file("late"));
    let child = stage.start(&format!("echo $$ > {}; sleep 3; touch {}", begun.display(), late.display()), &[]);
    wait_for(|| lines(&begun) == 1);
    let since = Instant::now();
    signal(&child, Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    assert!(since.elapsed() < Duration::from_millis(2_500), "it did not wait for the command");
    std::thread::sleep(Duration::from_secs(4).saturating_sub(since.elapsed()));
    assert!(!late.exists(), "the command was ended too");
    assert_eq!(stage.job(1)["state"], "claimed", "it comes back when the lease ends");
}

#[test]
fn wrong_use_is_refused_before_anything_is_claimed() {
    let stage = Stage::new();
    stage.create(&["1"]);
    for wrong in [&["--batch", "0"][..], &["--lease", "0.1"]] {
        stage.work("cat", wrong).fails(2, "invalid");
    }
    for wrong in [&["--max-jobs", "0"][..], &["--parallel", "0"], &["--finish", "never"], &["--max-run", "soon"]] {
        assert_eq!(stage.work("cat", wrong).code, 2);
    }
    assert_eq!(stage.run(&["work", "mail"]).code, 2);
    assert_eq!(stage.run(&["work", "--exec", "cat"]).code, 2);
    assert_eq!(stage.job(1)["attempts"], 0);
}
