//! The demo at a small size, with workers that need neither PHP nor Python; and proof that it can fail.
//!
//! Sabotage comes from outside: a script in the place of `php` that does harm and then becomes the usual worker.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests, outside of #[test]")]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const ROWCLAIM: &str = env!("CARGO_BIN_EXE_rowclaim");

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(ROWCLAIM);
    command.arg("demo").args(arguments).stdin(Stdio::null());
    for name in ["ROWCLAIM_DSN", "ROWCLAIM_PHP", "ROWCLAIM_PHP_EXTENSION", "ROWCLAIM_PYTHON", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
}

/// The last line of stdout, and the exit code.
fn summary(output: &Output) -> (Value, i32) {
    let out = String::from_utf8_lossy(&output.stdout);
    let last = out.lines().last().unwrap_or_default();
    let summary = serde_json::from_str(last).unwrap_or_else(|_| panic!("{out}\n{}", String::from_utf8_lossy(&output.stderr)));
    (summary, output.status.code().unwrap())
}

/// An interpreter that does `harm` once for each worker and then works as it should.
fn saboteur(folder: &Path, harm: &str) -> PathBuf {
    let path = folder.join("php");
    let text = format!("#!/usr/bin/env bash\n[ \"$1\" = -r ] && exit 0\n{harm}\nexec {ROWCLAIM} demo-worker\n");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn two_accidents_lose_nothing_and_explain_every_double() {
    let output = demo(&["--recipients", "600", "--workers", "rust"]).output().unwrap();
    let (summary, code) = summary(&output);
    assert_eq!(code, 0, "{summary}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(summary["db"], "sqlite");
    assert_eq!(summary["recipients"], 600);
    assert_eq!(summary["lost"], 0);
    assert_eq!(summary["unexplained_doubles"], 0);
    // Killed and stopped after the provider had accepted: both messages have to go out again.
    assert!(summary["doubles"].as_u64().unwrap() >= 2, "{summary}");
    assert_eq!(summary["deliveries"].as_u64().unwrap(), 600 + summary["doubles"].as_u64().unwrap());
    assert!(summary["late_writes_refused"].as_u64().unwrap() >= 1, "{summary}");
}

#[test]
fn a_message_sent_behind_the_engines_back_is_an_unexplained_double() {
    let folder = tempfile::tempdir().unwrap();
    let harm = r#"
address=${DEMO_URL#http://}; address=${address%/send}; body='{"recipient":"r000009@shop.example"}'
exec 3<>"/dev/tcp/${address%:*}/${address#*:}"
printf 'POST /send HTTP/1.1\r\nHost: x\r\nX-Worker: stray\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' ${#body} "$body" >&3
cat <&3 >/dev/null"#;
    let php = saboteur(folder.path(), harm);
    let output = demo(&["--recipients", "200", "--workers", "php,rust", "--php", php.to_str().unwrap()]).output().unwrap();
    let (summary, code) = summary(&output);
    assert_eq!(code, 1, "{summary}");
    assert!(summary["unexplained_doubles"].as_u64().unwrap() >= 1, "{summary}");
    assert_eq!(summary["lost"], 0);
}

#[test]
fn a_job_that_somebody_took_out_is_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let php = saboteur(folder.path(), &format!("{ROWCLAIM} jobs cancel 200 --force >/dev/null 2>&1"));
    let output = demo(&["--recipients", "200", "--workers", "php,php", "--php", php.to_str().unwrap()]).output().unwrap();
    let (summary, code) = summary(&output);
    assert_eq!(code, 1, "{summary}");
    assert_eq!(summary["lost"], 1, "{summary}");
}

#[test]
fn the_own_csv_is_sent_to_and_strangers_jobs_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("people.csv");
    let lines: String = (0..300).map(|n| format!("{n}@example.org,Zoë\n")).collect();
    std::fs::write(&csv, format!("recipient,name\n{lines}")).unwrap();
    let dsn = format!("sqlite://{}/jobs.db", folder.path().display());
    let run = || {
        let mut command = demo(&["--workers", "rust,rust", "--csv", csv.to_str().unwrap()]);
        command.env("ROWCLAIM_DSN", &dsn).output().unwrap()
    };
    let (found, code) = summary(&run());
    assert_eq!((code, &found["recipients"]), (0, &300.into()), "{found}");

    let engine = rowclaim::blocking::Engine::connect(&format!("{dsn}?prefix=demo_")).unwrap();
    assert!(engine.jobs(&rowclaim::JobFilter::default()).unwrap().is_empty(), "it cleans up");
    let id = engine.create(&rowclaim::NewJob::new("mail", "{}")).unwrap().id;
    let refused = run();
    assert_eq!(refused.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--prefix"));
    assert_eq!(engine.job(id).unwrap().unwrap().state, rowclaim::JobState::Ready);
}

#[test]
fn missing_interpreters_are_named_with_what_to_do() {
    for (option, language) in [("--php", "php"), ("--python", "python")] {
        let output = demo(&["--workers", language, option, "/nonexistent/interpreter"]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{err}");
        assert!(err.starts_with("error: config: ") && err.contains("install") && err.contains("--workers rust"), "{err}");
        // One that has not got the module.
        let output = demo(&["--workers", language, option, "/bin/false"]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{err}");
        assert!(err.contains("does not have"), "{err}");
    }
}

#[test]
fn an_unknown_language_and_a_database_in_memory_are_refused() {
    assert_eq!(demo(&["--workers", "rust,ruby"]).output().unwrap().status.code(), Some(2));
    let mut command = demo(&["--workers", "rust", "--recipients", "10"]);
    assert_eq!(command.env("ROWCLAIM_DSN", "sqlite::memory:").output().unwrap().status.code(), Some(5));
}

#[test]
fn an_interrupt_stops_workers_and_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("sqlite://{}/jobs.db", folder.path().display());
    let mut child = demo(&["--workers", "rust", "--recipients", "5000"])
        .env("ROWCLAIM_DSN", &dsn)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let engine = rowclaim::blocking::Engine::connect(&format!("{dsn}?prefix=demo_")).unwrap();
    while engine.stats(false).unwrap().open_claims == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(engine.jobs(&rowclaim::JobFilter::default()).unwrap().is_empty(), "jobs are left");
    assert_eq!(engine.stats(false).unwrap().open_claims, 0);
}

#[test]
fn one_recipient_is_enough_and_ends_soon() {
    let output = demo(&["--recipients", "1", "--workers", "rust"]).output().unwrap();
    let (summary, code) = summary(&output);
    assert_eq!((code, &summary["lost"]), (0, &0.into()), "{summary}");
    assert!(summary["seconds"].as_f64().unwrap() < 30.0, "{summary}");
}
