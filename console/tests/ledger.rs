//! Effects, runs and schedules as people look at them and change them.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests, outside of #[test]")]

mod stage;

use rowclaim::blocking::{Engine, OnceStep, RunStart};
use rowclaim::{OnceRequest, RunRequest, Sent, Timestamp};
use serde_json::{Value, json};
use stage::{Stage, bare};
use std::time::Duration;

impl Stage {
    fn once(&self, key: &str, sent: Sent) {
        let request = OnceRequest::new(key, "{}");
        self.engine().once(&request, |_| sent, |_| panic!("nobody is asked")).unwrap();
    }

    /// Shifts what the schedules have accounted for into the past: slots are due.
    fn away(&self, seconds: i64) {
        let file = rusqlite::Connection::open(self.folder.path().join("jobs.db")).unwrap();
        let sql = "UPDATE rowclaim_schedules SET accounted_until = accounted_until - ?1 * 1000000";
        file.execute(sql, [seconds]).unwrap();
    }

    fn minutely(&self, more: &[&str]) {
        self.run(&[&["schedule", "set", "report", "* * * * *", "--zone", "UTC"], more].concat()).ok();
    }

    fn runs(&self, more: &[&str]) -> Vec<Value> {
        self.run(&[&["runs", "list", "--json"], more].concat()).lines()
    }
}

#[test]
fn effects_are_listed_shown_and_decided_by_a_person() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["effects", "list"]).ok(), "no effects\n");
    stage.once("sms:1", Sent::Succeeded("{\"id\": \"王\",\"n\":1.0}".into()));
    stage.once("sms:2", Sent::Failed("refused".into()));
    stage.once("sms:3", Sent::Unknown("timed \u{1b}[31mout".into()));
    stage.once("sms:4", Sent::Unknown("timed out".into()));
    let keys = |arguments: &[&str]| -> Vec<String> {
        let lines = stage.run(&[&["effects", "list", "--json"], arguments].concat()).lines();
        lines.iter().map(|line| line["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&[]), ["sms:4", "sms:3", "sms:2", "sms:1"]);
    assert_eq!(keys(&["--state", "unknown"]), ["sms:4", "sms:3"]);
    assert_eq!(keys(&["--before", "3", "--limit", "1"]), ["sms:2"]);
    for (option, value) in [("--state", "asleep"), ("--limit", "0"), ("--limit", "10001")] {
        assert_eq!(stage.run(&["effects", "list", option, value]).code, 2);
    }
    let shown = stage.run(&["effects", "show", "sms:1", "--json"]).ok();
    assert!(shown.contains("\"response\":{\"id\": \"王\",\"n\":1.0}"), "byte for byte: {shown}");
    let table = stage.run(&["effects", "show", "sms:3"]).ok();
    assert!(table.contains("unknown") && table.contains("timed") && !table.contains('\u{1b}'), "{table:?}");
    assert_eq!(stage.run(&["effects", "list"]).ok().lines().count(), 5);

    stage.run(&["effects", "resolve", "sms:3", "--happened", "--response", "{\"id\":3}"]).ok();
    assert_eq!(stage.run(&["effects", "show", "sms:3", "--json"]).json()["response"], json!({ "id": 3 }));
    stage.run(&["effects", "resolve", "sms:4", "--not-sent"]).ok();
    assert_eq!(stage.run(&["effects", "show", "sms:4", "--json"]).json()["state"], "pending");
    let decided = stage.run(&["effects", "resolve", "sms:4", "--happened"]);
    decided.fails(1, "lost");
    assert!(decided.err.contains("it is pending"), "{}", decided.err);
    stage.run(&["effects", "resolve", "sms:9", "--happened"]).fails(3, "not_found");
    stage.run(&["effects", "show", "sms:9"]).fails(3, "not_found");
    stage.run(&["effects", "resolve", "sms:1", "--happened", "--response", "no json"]).fails(2, "invalid");
    for wrong in [&["sms:1"][..], &["sms:1", "--happened", "--not-sent"], &["sms:1", "--not-sent", "--response", "1"]] {
        assert_eq!(stage.run(&[&["effects", "resolve"], wrong].concat()).code, 2);
    }
}

#[test]
fn recover_and_prune_count_runs_and_effects() {
    let stage = Stage::new();
    let engine = Engine::connect(&(stage.dsn() + "?heartbeat=0")).unwrap();
    let lease = Duration::from_secs(1);
    let mut call = engine.begin_once(OnceRequest { lease, ..OnceRequest::new("sms:1", "{}") }).unwrap();
    assert!(matches!(call.next_step().unwrap(), OnceStep::Send(_)));
    std::mem::forget(call);
    let RunStart::Run(run) = engine.run_slot(&RunRequest { lease, ..RunRequest::new("report", Timestamp(0)) }).unwrap() else {
        panic!("not ours")
    };
    std::mem::forget(run);
    let (mut runs, mut effects) = (0, 0);
    while (runs, effects) != (1, 1) {
        let answer = stage.run(&["recover", "--json"]).json();
        runs += answer["runs"].as_u64().unwrap();
        effects += answer["effects"].as_u64().unwrap();
    }
    assert_eq!(stage.runs(&["--state", "lost"]).len(), 1);
    assert!(stage.run(&["recover"]).ok().ends_with("0 runs are lost, 0 effects are unknown\n"));
    let pruned = stage.run(&["prune", "--older-than", "0s", "--json"]).json();
    assert_eq!((&pruned["runs"], &pruned["effects"]), (&json!(1), &json!(0)), "what is unknown waits for a person");
    stage.once("sms:2", Sent::Succeeded("1".into()));
    assert!(stage.run(&["prune", "--older-than", "0s"]).ok().contains("1 effects, 0 runs"));
}

#[test]
fn a_schedule_is_set_changed_paused_and_removed() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["schedule", "list"]).ok(), "no schedules\n");
    let said = stage.run(&["schedule", "set", "report", "0 8 * * *", "--zone", "Asia/Shanghai"]).ok();
    assert!(said.starts_with("report runs next at ") && said.ends_with("T00:00:00.000Z\n"), "{said}");
    let all = ["--missed", "all", "--cap", "5", "--catch-up", "1d", "--grace", "2m", "--lease", "30s", "--max-run", "1h"];
    let set = stage.run(&[&["schedule", "set", "report", "0 8 * * *", "--zone", "-03:00", "--json"], &all[..]].concat()).json();
    let expected = [
        ("zone", json!("-03:00")),
        ("missed", json!("all")),
        ("cap", json!(5)),
        ("catch_up_seconds", json!(86_400.0)),
        ("grace_seconds", json!(120.0)),
        ("lease_seconds", json!(30.0)),
        ("max_run_seconds", json!(3_600.0)),
    ];
    for (name, value) in expected {
        assert_eq!(set[name], value, "{name}");
    }
    assert_eq!(stage.run(&["schedule", "pause", "report"]).ok(), "report is paused\n");
    assert_eq!(stage.run(&["schedule", "pause", "report"]).ok(), "report was paused before\n");
    let listed = stage.run(&["schedule", "list", "--json"]).lines();
    assert!(listed.len() == 1 && listed[0]["paused_at"].is_string() && listed[0]["next_at"].is_null(), "{listed:?}");
    assert!(stage.run(&["schedule", "list"]).ok().contains("paused"));
    assert_eq!(stage.run(&["schedule", "resume", "report"]).ok(), "report runs again\n");
    assert_eq!(stage.run(&["schedule", "resume", "report"]).ok(), "report was not paused\n");
    assert_eq!(stage.run(&["schedule", "remove", "report"]).ok(), "report has no schedule any more\n");
    for verb in ["pause", "resume", "run", "remove"] {
        stage.run(&["schedule", verb, "report"]).fails(3, "not_found");
    }
    stage.run(&["schedule", "set", "report", "every day", "--zone", "UTC"]).fails(2, "invalid");
    stage.run(&["schedule", "set", "report", "* * * * *", "--zone", "Mars/Olympus"]).fails(2, "invalid");
    assert_eq!(stage.run(&["schedule", "set", "report", "* * * * *"]).code, 2, "the zone is never guessed");
}

#[test]
fn a_pass_runs_what_is_due_and_tells_the_command_what_it_is_for() {
    let stage = Stage::new();
    stage.minutely(&["--missed", "all"]);
    let exec = r#"printf '%s %s %s %s %s\n' "$ROWCLAIM_TASK" "$ROWCLAIM_SLOT" "$ROWCLAIM_RUN_ID" "$ROWCLAIM_FENCE" "$ROWCLAIM_MANUAL" >> "$0.told"; cat"#;
    let told = stage.folder.path().join("told");
    let exec = exec.replace("$0.told", told.to_str().unwrap());
    let tick = |more: &[&str]| stage.run(&[&["schedule", "tick", "--exec", &exec, "--json"], more].concat());
    assert!(tick(&[]).lines().is_empty(), "nothing is due yet");
    stage.away(180);
    let runs = tick(&["report"]).lines();
    assert!(runs.len() >= 3 && runs.iter().all(|run| run["state"] == "succeeded" && run["is_manual"] == false), "{runs:?}");
    assert!(tick(&[]).lines().len() <= 1, "each slot once, unless a minute has just gone by");
    let told = std::fs::read_to_string(told).unwrap();
    let words: Vec<&str> = told.lines().next().unwrap().split(' ').collect();
    assert_eq!((words[0], words[4]), ("report", "0"));
    assert!(words[1].ends_with(":00Z") && words[1].len() == 20, "{told}");
    let first = &stage.runs(&["--task", "report"]).pop().unwrap();
    assert_eq!((words[2], words[3]), (first["id"].to_string().as_str(), first["fence"].to_string().as_str()));
    assert_eq!(first["slot"], words[1].replace('Z', ".000000Z"));
    stage.run(&["schedule", "tick", "--exec", "true", "none"]).fails(3, "not_found");
    assert_eq!(stage.run(&["schedule", "tick"]).code, 2);
}

#[test]
fn a_failed_run_keeps_the_end_of_stderr_and_the_pass_says_so() {
    let stage = Stage::new();
    stage.minutely(&[]);
    stage.run(&["schedule", "run", "report"]).ok();
    assert!(stage.run(&["schedule", "list"]).ok().contains("asked for"));
    let failed = stage.run(&["schedule", "tick", "--exec", "echo out; echo the shop is closed >&2; exit 3"]);
    assert_eq!(failed.code, 1);
    assert!(failed.out.starts_with("failed report ") && failed.out.contains("(manual)"), "{}", failed.out);
    assert!(failed.out.ends_with("exit code 3: the shop is closed\n"), "{}", failed.out);
    assert!(failed.err.contains("out\n") && failed.err.contains("the shop is closed\n"), "{}", failed.err);
    let runs = stage.runs(&["--state", "failed"]);
    assert_eq!((&runs[0]["is_manual"], &runs[0]["error"]), (&json!(true), &json!("exit code 3: the shop is closed")));
    assert!(runs[0]["seconds"].as_f64().is_some());
    let table = stage.run(&["runs", "list"]).ok();
    assert!(table.contains("manual") && table.contains("the shop is closed"), "{table}");
    assert!(stage.runs(&["--task", "other"]).is_empty());
}

#[test]
fn a_run_past_its_max_run_is_lost_and_its_command_is_ended() {
    let stage = Stage::new();
    stage.minutely(&["--lease", "1s", "--max-run", "1s"]);
    stage.run(&["schedule", "run", "report"]).ok();
    let late = stage.folder.path().join("late");
    let exec = format!("sleep 60; touch {}", late.display());
    let answer = stage.run(&["schedule", "tick", "--exec", &exec]);
    assert!(answer.code == 1 && answer.out.contains("ended: its lease is lost"), "{}", answer.out);
    assert!(!late.exists());
    let run = &stage.runs(&[])[0];
    assert!(run["state"] == "failed" || run["state"] == "lost", "{run}");
}

#[test]
fn skipped_slots_have_their_reason() {
    let stage = Stage::new();
    stage.minutely(&[]);
    stage.away(7_200);
    stage.run(&["schedule", "tick", "--exec", "true"]).ok();
    let skipped = stage.runs(&["--state", "skipped", "--limit", "1000"]);
    let slots: i64 = skipped.iter().map(|run| run["slots"].as_i64().unwrap()).sum();
    assert!((118..=121).contains(&slots) && skipped.iter().all(|run| run["reason"] == "missed"), "{slots}");
    assert!(stage.run(&["runs", "list"]).ok().contains("missed"));
}

#[test]
fn help_of_the_new_commands_teaches() {
    for (arguments, taught) in [
        (&["effects", "resolve"][..], "idempotency key"),
        (&["schedule", "set"], "Asia/Shanghai"),
        (&["schedule", "tick"], "ROWCLAIM_FENCE"),
        (&["runs", "list"], "Reasons of skipped slots"),
        (&["work"], "EX_TEMPFAIL"),
    ] {
        let output = bare(&[arguments, &["--help"]].concat()).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains(taught), "{arguments:?}");
    }
}
