//! A temporary SQLite file, and the built binary run on it.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests, outside of #[test]")]

use rowclaim::blocking::Engine;
use rowclaim::{ClaimRequest, NewJob};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

pub struct Stage {
    pub folder: TempDir,
}

impl Stage {
    pub fn new() -> Self {
        Stage { folder: tempfile::tempdir().unwrap() }
    }

    pub fn dsn(&self) -> String {
        format!("sqlite://{}/jobs.db", self.folder.path().display())
    }

    pub fn engine(&self) -> Engine {
        Engine::connect(&self.dsn()).unwrap()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(arguments);
        command.env("ROWCLAIM_DSN", self.dsn());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Answer {
        Answer::of(self.command(arguments).output().unwrap())
    }

    /// A job that has used up its only attempt.
    pub fn dead(&self, key: &str) -> i64 {
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

pub fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowclaim"));
    command.args(arguments).env_remove("ROWCLAIM_DSN").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Answer {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Answer { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// One line on stderr that starts with the kind.
    #[track_caller]
    pub fn fails(&self, code: i32, kind: &str) {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(self.err.starts_with(&format!("error: {kind}: ")), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
    }

    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// One object a line.
    pub fn lines(self) -> Vec<Value> {
        self.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
