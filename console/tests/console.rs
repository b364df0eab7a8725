//! The commands as people run them: the built binary on a temporary SQLite file, its output, and its exit codes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests, outside of #[test]")]

use rowclaim::blocking::{Engine, Leased};
use rowclaim::{ClaimRequest, LeaseRequest, NewJob, OnLost};
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        Stage { folder: tempfile::tempdir().unwrap() }
    }

    fn dsn(&self) -> String {
        format!("sqlite://{}/jobs.db", self.folder.path().display())
    }

    fn engine(&self) -> Engine {
        Engine::connect(&self.dsn()).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(arguments);
        command.env("ROWCLAIM_DSN", self.dsn());
        command
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        Answer::of(self.command(arguments).output().unwrap())
    }

    /// A job that has used up its only attempt.
    fn dead(&self, key: &str) -> i64 {
        let engine = self.engine();
        let mut job = NewJob::new("mail", "{}").key(key);
        job.max_attempts = Some(1);
        let id = engine.create(&job).unwrap().id;
        for job in engine.claim(&ClaimRequest::new("mail")).unwrap() {
            job.unwrap().fail("no such\u{1b}[31m mailbox", None).unwrap();
        }
        id
    }
}

fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowclaim"));
    command.args(arguments).env_remove("ROWCLAIM_DSN").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Answer {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Answer { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// One line on stderr that starts with the kind.
    #[track_caller]
    fn fails(&self, code: i32, kind: &str) {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(self.err.starts_with(&format!("error: {kind}: ")), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
    }

    fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }
}

#[test]
fn help_teaches_examples_and_exit_codes() {
    let help = Answer::of(bare(&["--help"]).output().unwrap()).ok();
    for taught in ["Examples:", "Exit codes:", "mysql://", "sqlite:", "RUST_LOG", "demo"] {
        assert!(help.contains(taught), "{taught} is missing in {help}");
    }
    assert!(Answer::of(bare(&["--version"]).output().unwrap()).ok().starts_with("rowclaim "));
    assert!(!help.contains("demo-worker"));
}

#[test]
fn help_does_not_show_the_dsn_of_the_environment() {
    let help = Answer::of(bare(&["--help"]).env("ROWCLAIM_DSN", "mysql://app:s3cret@h/d").output().unwrap()).ok();
    assert!(!help.contains("s3cret"), "{help}");
}

#[test]
fn migrate_twice_does_nothing_the_second_time() {
    let stage = Stage::new();
    stage.run(&["migrate"]).ok();
    assert!(stage.run(&["migrate"]).ok().starts_with("nothing to do"));
}

#[test]
fn migrate_print_needs_no_server_and_fills_in_the_prefix() {
    let sql =
        Answer::of(bare(&["--dsn", "mysql://nobody@127.0.0.1:1/x?prefix=shop_", "migrate", "--print"]).output().unwrap()).ok();
    assert!(sql.contains("CREATE TABLE") && sql.contains("shop_jobs"), "{sql}");
}

#[test]
fn a_job_is_created_once_for_each_key() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["create", "mail", "{\"to\": 7}", "--key", "m:7"]).ok(), "created 1\n");
    assert_eq!(stage.run(&["create", "mail", "{\"to\": 8}", "--key", "m:7"]).ok(), "exists 1 (ready)\n");
    let answer = stage.run(&["create", "mail", "{}", "--key", "m:7", "--json"]).json();
    assert_eq!(answer, serde_json::json!({ "id": 1, "exists": true, "state": "ready" }));
}

#[test]
fn a_payload_can_come_from_stdin_and_is_kept_byte_for_byte() {
    let stage = Stage::new();
    let mut child = stage.command(&["create", "mail", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), "{\"n\": 1.00, \"s\": \"王\"}\n".as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let shown = stage.run(&["jobs", "show", "1", "--json"]).ok();
    assert!(shown.contains("{\"n\": 1.00, \"s\": \"王\"}"), "{shown}");
}

#[test]
fn a_payload_that_is_no_json_is_wrong_use() {
    Stage::new().run(&["create", "mail", "not json"]).fails(2, "invalid");
}

#[test]
fn stats_count_what_waits_and_what_is_dead() {
    let stage = Stage::new();
    assert!(stage.run(&["stats"]).ok().starts_with("no jobs"));
    stage.dead("a");
    stage.run(&["create", "mail", "{}", "--delay", "1h"]).ok();
    stage.run(&["create", "mail", "{}"]).ok();
    let stats = stage.run(&["stats", "--json", "--exact"]).json();
    let queue = &stats["queues"][0];
    assert_eq!((&queue["queue"], &queue["due"]["rows"], &queue["delayed"]["rows"]), (&"mail".into(), &1.into(), &1.into()));
    assert_eq!((&queue["dead"]["rows"], &queue["exact"]["dead"], &queue["exact"]["ready"]), (&1.into(), &1.into(), &2.into()));
    assert!(stage.run(&["stats"]).ok().contains("mail"));
}

#[test]
fn watching_stats_goes_on_until_the_reader_leaves() {
    let stage = Stage::new();
    let mut child =
        stage.command(&["stats", "--json", "--watch", "0.1"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut seen: Vec<u8> = Vec::new();
    while seen.iter().filter(|byte| **byte == b'\n').count() < 2 {
        let mut buffer = [0; 512];
        let read = out.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "it ended early");
        seen.extend(&buffer[..read]);
    }
    drop(out);
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
}

#[test]
fn lists_filter_by_queue_and_state_and_go_on_before_an_id() {
    let stage = Stage::new();
    stage.dead("a");
    for queue in ["mail", "mail", "other"] {
        stage.run(&["create", queue, "{}"]).ok();
    }
    let ids = |arguments: &[&str]| -> Vec<i64> {
        let arguments = [&["jobs", "list", "--json"], arguments].concat();
        let lines = stage.run(&arguments).ok();
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids(&[]), [4, 3, 2, 1]);
    assert_eq!(ids(&["--queue", "mail"]), [3, 2, 1]);
    assert_eq!(ids(&["--state", "dead"]), [1]);
    assert_eq!(ids(&["--queue", "mail", "--state", "ready", "--before", "3"]), [2]);
    assert_eq!(ids(&["--limit", "1"]), [4]);
    stage.run(&["jobs", "list", "--limit", "0"]).fails(2, "invalid");
    assert_eq!(stage.run(&["jobs", "list", "--state", "asleep"]).code, 2);
    let table = stage.run(&["jobs", "list"]).ok();
    assert_eq!(table.lines().count(), 5, "{table}");
}

#[test]
fn show_has_the_failed_attempts_and_lets_no_escape_sequence_through() {
    let stage = Stage::new();
    let id = stage.dead("a").to_string();
    let job = stage.run(&["jobs", "show", &id, "--json"]).json();
    assert_eq!((&job["state"], &job["failed_attempts"][0]["outcome"]), (&"dead".into(), &"failed".into()));
    assert_eq!(job["failed_attempts"][0]["is_final"], true);
    let shown = stage.run(&["jobs", "show", &id]).ok();
    assert!(shown.contains("no such") && !shown.contains('\u{1b}'), "{shown:?}");
    stage.run(&["jobs", "show", "99"]).fails(3, "not_found");
}

#[test]
fn dead_jobs_are_put_back_one_or_all() {
    let stage = Stage::new();
    let (a, b, c) = (stage.dead("a"), stage.dead("b"), stage.dead("c"));
    assert_eq!(stage.run(&["jobs", "retry", &a.to_string()]).ok(), format!("retried {a}\n"));
    stage.run(&["jobs", "retry", &a.to_string()]).fails(1, "lost");
    assert_eq!(stage.run(&["jobs", "retry", "--dead", "--queue", "other"]).ok(), "retried 0 jobs\n");
    assert_eq!(stage.run(&["jobs", "retry", "--dead", "--queue", "mail"]).ok(), "retried 2 jobs\n");
    for id in [b, c] {
        assert_eq!(stage.run(&["jobs", "show", &id.to_string(), "--json"]).json()["state"], "ready");
    }
    assert_eq!(stage.run(&["jobs", "retry"]).code, 2);
}

#[test]
fn what_is_left_of_the_ids_is_changed_after_one_that_is_missing() {
    let stage = Stage::new();
    stage.run(&["create", "mail", "{}"]).ok();
    let answer = stage.run(&["jobs", "cancel", "99", "1"]);
    answer.fails(3, "not_found");
    assert_eq!(answer.out, "cancelled 1\n");
}

#[test]
fn a_claimed_job_is_cancelled_only_by_force_and_its_owner_is_refused() {
    let stage = Stage::new();
    let engine = stage.engine();
    engine.create(&NewJob::new("mail", "{}")).unwrap();
    let claim = engine.claim(&ClaimRequest::new("mail")).unwrap();
    let job = claim.next_job().unwrap().unwrap();
    let refused = stage.run(&["jobs", "cancel", "1"]);
    refused.fails(1, "lost");
    assert!(refused.err.contains("--force"), "{}", refused.err);
    stage.run(&["jobs", "cancel", "1", "--force"]).ok();
    assert_eq!(job.complete().unwrap(), rowclaim::Finish::Lost);
}

#[test]
fn held_jobs_are_listed_and_resolved() {
    let stage = Stage::new();
    let engine = Engine::connect(&(stage.dsn() + "?heartbeat=0")).unwrap();
    for _ in 0..3 {
        engine.create(&NewJob::new("mail", "{}")).unwrap();
    }
    let claim = engine.claim(&ClaimRequest::new("mail").on_lost(OnLost::Hold)).unwrap();
    for _ in 0..2 {
        claim.next_job().unwrap().unwrap();
    }
    engine.end_claim(rowclaim::ClaimName::Id(claim.id().unwrap())).unwrap();
    let held = stage.run(&["jobs", "list", "--state", "held", "--json"]).ok();
    let ids: Vec<_> = held.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect();
    assert_eq!(ids, [2, 1]);
    assert!(stage.run(&["jobs", "list", "--state", "held"]).ok().contains("lease expired after it was started"));
    assert_eq!(stage.run(&["stats", "--json"]).json()["queues"][0]["held"]["rows"], 2);
    assert_eq!(stage.run(&["claims", "show", "1", "--json"]).json()["on_lost"], "hold");
    let refused = stage.run(&["jobs", "retry", "1"]);
    refused.fails(1, "lost");
    assert!(refused.err.contains("it is held; rowclaim jobs resolve"), "{}", refused.err);
    for wrong in
        [&["jobs", "resolve", "1"][..], &["jobs", "resolve", "1", "--sent", "--not-sent"], &["jobs", "resolve", "--sent"]]
    {
        assert_eq!(stage.run(wrong).code, 2, "{wrong:?}");
    }
    assert_eq!(stage.run(&["jobs", "resolve", "1", "--sent"]).ok(), "resolved 1\n");
    let answer = stage.run(&["jobs", "resolve", "2", "1", "--not-sent"]);
    answer.fails(1, "lost");
    assert!(answer.out == "resolved 2\n" && answer.err.contains("job 1 was not resolved: it is done"), "{}", answer.err);
    stage.run(&["jobs", "resolve", "99", "--sent"]).fails(3, "not_found");
    let states = ["1", "2", "3"].map(|id| stage.run(&["jobs", "show", id, "--json"]).json()["state"].clone());
    assert_eq!(states, ["done", "ready", "ready"]);
}

#[test]
fn recover_takes_back_what_a_dead_worker_held() {
    let stage = Stage::new();
    let engine = Engine::connect(&(stage.dsn() + "?heartbeat=0")).unwrap();
    engine.create(&NewJob::new("mail", "{}")).unwrap();
    let claim = engine.claim(&ClaimRequest::new("mail").lease(Duration::from_secs(1))).unwrap();
    let _job = claim.next_job().unwrap().unwrap();
    assert_eq!(stage.run(&["recover", "--json"]).json()["returned"], 0);
    let recovered = loop {
        let answer = stage.run(&["recover", "--json"]).json();
        if answer["claims"] != 0 {
            break answer;
        }
    };
    assert_eq!(recovered, serde_json::json!({ "claims": 1, "returned": 1, "dead": 0, "held": 0 }));
    assert_eq!(stage.run(&["jobs", "show", "1", "--json"]).json()["state"], "ready");
}

#[test]
fn leases_are_listed_with_their_holders() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["leases"]).ok(), "no leases\n");
    let engine = Engine::connect(&(stage.dsn() + "?worker=host-7")).unwrap();
    let take = |name: &str| match engine.lease(&LeaseRequest::new(name, Duration::from_secs(90))).unwrap() {
        Leased::Acquired(lease) => lease,
        Leased::Busy(busy) => panic!("{busy:?}"),
    };
    let report = take("report");
    assert!(take("mail\u{1b}[31m").release().unwrap());
    let shown = stage.run(&["leases"]).ok();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    for title in ["name", "holder", "fence", "acquired", "until", "held"] {
        assert!(lines[0].contains(title), "{shown}");
    }
    assert!(lines[1].contains("mail\\u{1b}[31m") && lines[1].ends_with("no"), "{shown}");
    assert!(lines[2].contains("report") && lines[2].contains("host-7") && lines[2].ends_with("yes"), "{shown}");
    assert!(lines[2].contains(&report.fence().to_string()), "{shown}");
    let json = stage.run(&["leases", "--json"]).ok();
    let rows: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["is_held"].as_bool().unwrap()).collect::<Vec<_>>(), [false, true]);
    let row = rows[1].as_object().unwrap();
    assert_eq!((&row["name"], &row["holder"], &row["fence"]), (&"report".into(), &"host-7".into(), &report.fence().into()));
    assert!(row["acquired_at"].as_str().unwrap() < row["lease_until"].as_str().unwrap(), "{json}");
    assert_eq!(row.len(), 6);
    assert_eq!(stage.run(&["leases", "--limit", "1", "--json"]).ok().lines().count(), 1);
    stage.run(&["leases", "--limit", "0"]).fails(2, "invalid");
}

#[test]
fn prune_deletes_what_ended_long_enough_ago() {
    let stage = Stage::new();
    stage.dead("a");
    stage.run(&["create", "mail", "{}"]).ok();
    assert_eq!(stage.run(&["prune", "--older-than", "7d", "--json"]).json()["jobs"], 0);
    assert_eq!(stage.run(&["prune", "--older-than", "0s", "--json"]).json()["jobs"], 1);
    stage.run(&["jobs", "show", "1"]).fails(3, "not_found");
    stage.run(&["jobs", "show", "2"]).ok();
    assert_eq!(stage.run(&["prune"]).code, 2);
    assert_eq!(stage.run(&["prune", "--older-than", "soon"]).code, 2);
    stage.run(&["prune", "--older-than", "1d", "--batch", "0"]).fails(2, "invalid");
}

#[test]
fn a_reader_that_leaves_early_is_no_fault() {
    let stage = Stage::new();
    let payload = format!("\"{}\"", "x".repeat(2_000));
    let jobs: Vec<NewJob> = (0..500).map(|_| NewJob::new("mail", payload.clone())).collect();
    stage.engine().create_many(&jobs).unwrap();
    let mut child = stage
        .command(&["jobs", "list", "--limit", "500", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 10]).unwrap();
    drop(out);
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
}

#[test]
fn without_a_database_the_usage_is_wrong() {
    Answer::of(bare(&["stats"]).output().unwrap()).fails(2, "usage");
    assert_eq!(Answer::of(bare(&["unheard-of"]).output().unwrap()).code, 2);
}

#[test]
fn wrong_dsns_are_configuration_faults_and_keep_their_password() {
    for dsn in [
        "postgres://app:s3cret@127.0.0.1/x",
        "mysql://app:s3cret@127.0.0.1:99999/x",
        "mysql://app:s3cret@127.0.0.1",
        "mysql://app:s3cret@127.0.0.1/x?colour=red",
        "app:s3cret@127.0.0.1/x",
    ] {
        let answer = Answer::of(bare(&["--dsn", dsn, "stats"]).output().unwrap());
        answer.fails(5, "config");
        assert!(!answer.err.contains("s3cret"), "{}", answer.err);
    }
}

#[test]
fn a_dsn_in_the_wrong_place_is_shown_without_its_password() {
    for arguments in [["mysql://app:s3cret@h/d", "stats"], ["stats", "mysql://app:s3cret@h/d"]] {
        let answer = Answer::of(bare(&arguments).output().unwrap());
        assert_eq!(answer.code, 2, "{}", answer.err);
        assert!(answer.err.contains("@h/d") && !answer.err.contains("s3cret"), "{}", answer.err);
    }
}

#[test]
fn a_server_that_is_not_there_is_unavailable_and_the_password_is_kept() {
    let answer = Answer::of(
        bare(&["stats"]).env("ROWCLAIM_DSN", "mysql://app:s3cret@127.0.0.1:1/x").env("RUST_LOG", "trace").output().unwrap(),
    );
    assert_eq!(answer.code, 4, "{}", answer.err);
    assert!(answer.err.contains("error: unavailable: "), "{}", answer.err);
    assert!(!answer.err.contains("s3cret"), "{}", answer.err);
}

#[test]
fn missing_tables_are_a_schema_fault() {
    let stage = Stage::new();
    let dsn = stage.dsn() + "?migrate=never";
    Answer::of(bare(&["--dsn", &dsn, "stats"]).output().unwrap()).fails(5, "schema");
}
