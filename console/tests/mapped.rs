//! The commands for mapped tables as people run them: a configuration file, a table of theirs, a worker that died.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests, outside of #[test]")]

use rowclaim::blocking::Engine;
use rowclaim::{Mapping, RowClaimRequest};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

struct Stage {
    folder: TempDir,
    mapping: Json,
}

/// What a command printed, and its exit code.
struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Stage {
    /// Seven targets: the first done, the second failed, two held by a worker that is gone.
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        // A library of SQLite of this test's own would not see the engine's locks: it is closed before the engine is there.
        let connection = rusqlite::Connection::open(folder.path().join("shop.db")).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE targets (id INTEGER PRIMARY KEY, task_id INT NOT NULL, openid VARCHAR(64), status INT NOT NULL DEFAULT 0, \
                 cron_token VARCHAR(40), send_at DATETIME, error VARCHAR(100)); \
                 INSERT INTO targets (task_id, openid) VALUES (42,'a'),(42,'b'),(42,'c'),(42,'d'),(42,'e'),(43,'f'),(43,NULL)",
            )
            .unwrap();
        connection.close().unwrap();
        let mapping = json!({"status": "status", "pending": 0, "processing": 1, "done": 2, "failed": 3, "token": "cron_token",
            "claimed_at": "send_at", "zone": "+08:00", "error": "error", "recover_after": 600});
        let stage = Stage { folder, mapping };
        let engine = Engine::connect(&stage.dsn()).unwrap();
        let table = engine.table("targets", &Mapping::from_json(&stage.mapping.to_string()).unwrap()).unwrap();
        let claim = table.claim(&RowClaimRequest::new(4)).unwrap();
        claim.job(0).unwrap().complete().unwrap();
        claim.job(1).unwrap().fail("no such\u{1b}[31m user", None).unwrap();
        std::mem::forget(claim);
        stage
    }

    fn dsn(&self) -> String {
        format!("sqlite://{}/shop.db", self.folder.path().display())
    }

    fn write_file(&self) {
        let config = json!({"dsn": self.dsn(), "tables": {"targets": self.mapping}});
        std::fs::write(self.folder.path().join("rowclaim.json"), config.to_string()).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        self.run_in(self.folder.path(), arguments)
    }

    fn run_in(&self, folder: &Path, arguments: &[&str]) -> Answer {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowclaim"));
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        let output = command.env_remove("ROWCLAIM_DSN").env_remove("ROWCLAIM_CONFIG").env_remove("RUST_LOG").output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Answer { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn json(&self, arguments: &[&str]) -> Vec<Json> {
        let answer = self.run(arguments);
        assert_eq!(answer.code, 0, "{}", answer.err);
        answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn tables_come_from_the_file_and_from_the_registry() {
    let stage = Stage::new();
    let dsn = stage.dsn();
    let known = stage.json(&["--dsn", &dsn, "tables", "--json"]);
    assert_eq!((known.len(), &known[0]["origin"], &known[0]["fits"]), (1, &json!("registry"), &json!(true)));
    assert_eq!(known[0]["mapping"]["token"], "cron_token");
    stage.write_file();
    assert_eq!(stage.json(&["tables", "--json"])[0]["origin"], "file");
    let config = stage.folder.path().join("other.json");
    std::fs::write(&config, json!({"tables": {"nowhere": stage.mapping}}).to_string()).unwrap();
    let shown = stage.run(&["--dsn", &dsn, "--config", config.to_str().unwrap(), "tables"]);
    assert!(words(&shown.out).contains("nowhere file (primary) status cron_token there is no table nowhere"), "{}", shown.out);
}

#[test]
fn rows_are_listed_shown_and_retried() {
    let stage = Stage::new();
    stage.write_file();
    let held = stage.json(&["rows", "list", "targets", "--status", "1", "--json"]);
    assert_eq!(held.iter().map(|row| row["id"].clone()).collect::<Vec<_>>(), [3, 4]);
    let some = stage.json(&["rows", "list", "targets", "--where", "task_id=43", "--where", "openid", "--json"]);
    assert_eq!(some.iter().map(|row| row["id"].clone()).collect::<Vec<_>>(), [7]);
    let page = stage.run(&["rows", "list", "targets", "--after", "5", "--limit", "1"]);
    assert!(page.out.contains("43") && !page.out.contains(" 7 "), "{}", page.out);
    let shown = stage.run(&["rows", "show", "targets", "2"]);
    assert!(shown.out.contains("no such\\u{1b}[31m user"), "{}", shown.out);
    assert_eq!(stage.run(&["rows", "show", "targets", "99"]).code, 3);
    assert_eq!(stage.run(&["rows", "show", "nowhere", "1"]).code, 3);
    assert_eq!(stage.run(&["rows", "list", "targets", "--where", "nope=1"]).code, 2);
    assert_eq!(stage.run(&["rows", "retry", "targets", "1"]).code, 1, "it has not failed");
    assert_eq!(stage.run(&["rows", "retry", "targets", "--failed", "--where", "task_id=42"]).out, "retried 1 rows\n");
    assert_eq!(stage.json(&["rows", "show", "targets", "2", "--json"])[0]["status"], 0);
}

#[test]
fn rows_that_wait_for_a_person_are_resolved() {
    let mut stage = Stage::new();
    stage.mapping["held"] = json!(4);
    stage.mapping["on_lost"] = json!("hold");
    stage.write_file();
    let engine = Engine::connect(&(stage.dsn() + "?heartbeat=0")).unwrap();
    let table = engine.table("targets", &Mapping::from_json(&stage.mapping.to_string()).unwrap()).unwrap();
    let claim = table.claim(&RowClaimRequest::new(2)).unwrap();
    while claim.next_job().unwrap().is_some() {}
    assert_eq!(stage.run(&["release", "--claim", &claim.id().unwrap().to_string()]).code, 0);
    let held = stage.json(&["rows", "list", "targets", "--status", "4", "--json"]);
    assert_eq!(held.iter().map(|row| row["id"].clone()).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(stage.run(&["rows", "resolve", "targets", "5", "--sent"]).out, "resolved 5\n");
    let answer = stage.run(&["rows", "resolve", "targets", "5", "6", "--not-sent"]);
    assert_eq!((answer.code, answer.out.as_str()), (1, "resolved 6\n"));
    assert!(answer.err.starts_with("error: lost: row 5 was not resolved"), "{}", answer.err);
    assert_eq!(stage.run(&["rows", "resolve", "targets", "6"]).code, 2);
    assert_eq!(stage.json(&["rows", "show", "targets", "5", "--json"])[0]["status"], 2);
    assert_eq!(stage.json(&["rows", "show", "targets", "6", "--json"])[0]["status"], 0);
}

#[test]
fn claims_tell_how_their_rows_ended_and_can_be_released() {
    let stage = Stage::new();
    stage.write_file();
    let claims = stage.json(&["claims", "list", "--source", "targets", "--json"]);
    assert_eq!((claims.len(), &claims[0]["rows"], &claims[0]["state"]), (1, &json!(4), &json!("open")));
    let token = claims[0]["token"].as_str().unwrap();
    let ends = |claim: &str| -> Vec<String> {
        let shown = stage.json(&["claims", "show", claim, "--json"]);
        shown[0]["ends"].as_array().unwrap().iter().map(|end| end["end"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ends(token), ["completed", "failed", "held", "held"]);
    assert_eq!(stage.run(&["release", "--table", "targets", "3", "7"]).code, 1, "the seventh is not held");
    assert_eq!(stage.run(&["release", "--claim", token]).code, 0);
    assert_eq!(ends("1"), ["completed", "failed", "unknown", "lost"]);
    let again = stage.run(&["release", "--claim", token]);
    assert_eq!((again.code, again.err.as_str()), (1, "error: lost: the claim is not open any more\n"));
    assert_eq!(stage.run(&["claims", "show", "99"]).code, 3);
    assert_eq!(stage.run(&["claims", "show", "x"]).code, 2);
}

#[test]
fn recovery_takes_what_other_code_has_left_behind() {
    let stage = Stage::new();
    stage.write_file();
    assert!(stage.run(&["recover", "--table", "nowhere"]).err.contains("is not mapped"));
    let connection = rusqlite::Connection::open(stage.folder.path().join("shop.db")).unwrap();
    connection.execute_batch("UPDATE targets SET status = 1, cron_token = 'host:7', send_at = NULL WHERE id = 5").unwrap();
    connection.close().unwrap();
    assert!(stage.run(&["recover"]).out.starts_with("recovered 0 claims"));
    assert!(stage.run(&["recover", "--table", "targets"]).out.starts_with("recovered 1 claims: 1 jobs or rows"));
}
