//! The drill at a small size; and proof that each of its checks can fail: what it must find is planted.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests, outside of #[test]")]

mod stage;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use stage::{Answer, Stage, bare};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

impl Stage {
    fn drill(&self, arguments: &[&str]) -> Answer {
        self.run(&[&["drill", "--processes", "8", "--json"], arguments].concat())
    }

    /// Tables that the drill has left behind.
    fn left(&self) -> Vec<String> {
        let file = rusqlite::Connection::open(self.folder.path().join("jobs.db")).unwrap();
        let mut statement = file.prepare("SELECT name FROM sqlite_master WHERE name LIKE 'drill%'").unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect()
    }
}

/// A violation is planted: the drill fails, says why, and cleans up.
#[track_caller]
fn finds(drill: &str, violation: &str, says: &str, count: (&str, u64)) {
    let stage = Stage::new();
    let answer = stage.drill(&["--drill", drill, "--violate", violation]);
    assert_eq!(answer.code, 1, "{}\n{}", answer.out, answer.err);
    assert!(answer.err.contains(says), "{}", answer.err);
    let summary: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(summary["passed"], 0, "{summary}");
    assert!(summary[count.0].as_u64().unwrap() >= count.1, "{summary}");
    assert!(stage.left().is_empty());
}

#[test]
fn a_healthy_database_passes_and_is_left_as_it_was() {
    let stage = Stage::new();
    stage.run(&["create", "mail", "{}"]).ok();
    let summary = stage.drill(&["--drill", "stopped", "--drill", "slots"]).json();
    let tried = summary["late_writes_tried"].clone();
    assert!(tried.as_u64().unwrap() >= 500);
    let expected = json!({
        "db": "sqlite", "drills": 2, "passed": 2, "max_holders_at_once": 1, "late_writes_tried": tried,
        "late_writes_accepted": 0, "effects_sent_twice": 0,
    });
    assert_eq!(summary, expected);
    assert!(stage.left().is_empty());
    assert_eq!(stage.run(&["stats", "--json"]).json()["queues"][0]["due"]["rows"], 1);
}

#[test]
fn two_holders_at_once_are_found() {
    finds("killed", "holders", "holders at once", ("max_holders_at_once", 2));
}

#[test]
fn a_late_write_without_a_guard_is_found_in_the_table() {
    finds("silent", "late", "the row was written by a late holder", ("late_writes_accepted", 1));
}

#[test]
fn a_late_write_that_is_accepted_is_found() {
    finds("killed", "fence", "late writes were accepted", ("late_writes_accepted", 100));
}

#[test]
fn a_second_row_of_a_slot_is_found() {
    finds("slots", "slot", "that had had its run was run again", ("drills", 1));
}

#[test]
fn an_effect_that_is_sent_twice_is_found() {
    finds("slots", "resend", "effects were sent twice", ("effects_sent_twice", 1));
}

#[test]
fn a_run_without_its_mark_is_found() {
    finds("reruns", "mark", "by hand", ("drills", 1));
}

#[test]
fn a_slot_without_a_row_is_found() {
    finds("reruns", "gap", "has 0 rows", ("drills", 1));
}

#[test]
fn ctrl_c_ends_the_drill_and_drops_its_tables() {
    let stage = Stage::new();
    let mut child = stage.command(&["drill", "--processes", "8"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("drill 1 of 5: killed"), "{line}");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(stage.left().is_empty());
}

#[test]
fn help_says_what_is_done_to_the_database() {
    let help = Answer::of(bare(&["drill", "--help"]).output().unwrap()).ok();
    for taught in ["drops them at the", "killed ", "silent ", "stopped ", "slots ", "reruns ", "max_holders_at_once"] {
        assert!(help.contains(taught), "{taught} is missing in {help}");
    }
    assert!(!help.contains("--violate") && !help.contains("--faults"));
    Answer::of(bare(&["drill"]).output().unwrap()).fails(2, "usage");
    Answer::of(bare(&["--dsn", "sqlite::memory:", "drill"]).output().unwrap()).fails(5, "config");
    let stage = Stage::new();
    assert_eq!(stage.run(&["drill", "--processes", "4"]).code, 2);
    assert_eq!(stage.run(&["drill", "--drill", "unheard-of"]).code, 2);
}
