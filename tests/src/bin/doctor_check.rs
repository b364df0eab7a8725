//! `make doctor-check`: ten faults are planted one by one on a private MariaDB, and `rowclaim doctor --json` must name each
//! and nothing else above a note; on a healthy set-up it must name nothing.
//!
//! Run by `python3 tests/servers.py run --db mariadb -- doctor_check`. Prints a line for each fault on stderr, and at the
//! end one JSON line: `{"planted":10,"found":10,"false_alarms":0}`. Exits with 1 when a fault was missed or there was a
//! false alarm.

use conformance::raw::Raw;
use rowclaim::blocking::Engine;
use rowclaim::{Mapping, NewJob, RowClaimRequest};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const TABLE: &str = "send_targets";
const COLUMNS: &str = "id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, task_id INT NOT NULL, openid VARCHAR(64) NOT NULL, \
    status TINYINT NOT NULL DEFAULT 0, cron_token VARCHAR(36) NULL, send_at DATETIME NULL, attempts INT NOT NULL DEFAULT 0, \
    next_at DATETIME NOT NULL DEFAULT '2020-01-01 00:00:00', error VARCHAR(500) NULL, \
    KEY claim (task_id, status, next_at)";
const MAPPING: &str = r#"{"status": "status", "pending": 0, "processing": 1, "done": 2, "failed": 3, "token": "cron_token",
    "claimed_at": "send_at", "attempts": "attempts", "max_attempts": 3, "available_at": "next_at", "error": "error",
    "zone": "+08:00", "recover_after": 600}"#;

/// A fault: what is done to the table, and the code the doctor has for it.
const FAULTS: [(&str, &[&str]); 8] = [
    ("table-engine", &["ALTER TABLE {t} ENGINE=MyISAM"]),
    ("table-view", &["RENAME TABLE {t} TO {t}_base", "CREATE VIEW {t} AS SELECT * FROM {t}_base"]),
    ("token-unfit", &["ALTER TABLE {t} MODIFY cron_token VARCHAR(20) NULL"]),
    ("missing-index", &["ALTER TABLE {t} DROP KEY claim"]),
    (
        "attempts-near-full",
        &["ALTER TABLE {t} MODIFY attempts TINYINT UNSIGNED NOT NULL DEFAULT 0", "UPDATE {t} SET attempts = 255 WHERE id = 77"],
    ),
    ("zero-date", &["SET sql_mode = ''", "UPDATE {t} SET next_at = 0 WHERE id BETWEEN 3010 AND 3019"]),
    ("unknown-status", &["UPDATE {t} SET status = 9 WHERE id BETWEEN 100 AND 199"]),
    ("stuck-rows", &["UPDATE {t} SET status = 1, send_at = NULL WHERE id BETWEEN 1 AND 12"]),
];

struct Check {
    dsn: String,
    folder: PathBuf,
    planted: usize,
    found: usize,
    false_alarms: usize,
}

fn main() {
    let dsn = std::env::var("ROWCLAIM_TEST_MARIADB").expect("run by tests/servers.py run --db mariadb -- doctor_check");
    let folder = std::env::temp_dir().join(format!("rowclaim-doctor-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut check = Check { dsn, folder, planted: 0, found: 0, false_alarms: 0 };
    Engine::connect(&check.dsn).unwrap().migrate().unwrap();
    check.healthy("before");
    for (code, statements) in FAULTS {
        check.fresh_table();
        let mut raw = check.raw();
        statements.iter().for_each(|sql| raw.run(&sql.replace("{t}", TABLE)));
        let alarms = check.alarms(&check.dsn, &[]);
        check.note(code, &alarms);
    }
    check.long_transaction();
    check.statement_binlog();
    check.healthy("after");
    let _ = std::fs::remove_dir_all(&check.folder);
    println!("{}", json!({ "planted": check.planted, "found": check.found, "false_alarms": check.false_alarms }));
    std::process::exit(i32::from(check.found != check.planted || check.planted != 10 || check.false_alarms > 0));
}

impl Check {
    fn raw(&self) -> Raw {
        Raw::open(&self.dsn, "rowclaim_")
    }

    /// 5,000 rows, half of them done.
    fn fresh_table(&self) {
        let mut raw = self.raw();
        raw.run(&format!("DROP VIEW IF EXISTS {TABLE}"));
        raw.run(&format!("DROP TABLE IF EXISTS {TABLE}, {TABLE}_base"));
        raw.run(&format!("CREATE TABLE {TABLE} ({COLUMNS}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"));
        raw.run(&format!(
            "INSERT INTO {TABLE} (task_id, openid, status) SELECT 42, seq, IF(seq > 2500, 0, 2) FROM seq_1_to_5000"
        ));
        raw.rows(&format!("ANALYZE TABLE {TABLE}"));
    }

    /// What `rowclaim doctor` has to say above a note, with the table in a configuration file, as `code subject`.
    fn alarms(&self, dsn: &str, options: &[&str]) -> Vec<String> {
        let file = self.folder.join("rowclaim.json");
        let mapping: Value = serde_json::from_str(MAPPING).unwrap();
        std::fs::write(&file, json!({ "dsn": dsn, "tables": { TABLE: mapping } }).to_string()).unwrap();
        let program = std::env::current_exe().unwrap().with_file_name("rowclaim");
        let output = Command::new(program)
            .args(["--config", file.to_str().unwrap(), "doctor", "--json", "--table", TABLE, "--where", "task_id"])
            .args(options)
            .env_remove("ROWCLAIM_DSN")
            .output()
            .expect("the console is built beside this program");
        let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else {
            return vec![format!("no answer: {}", String::from_utf8_lossy(&output.stderr).trim())];
        };
        let findings = answer["findings"].as_array().unwrap();
        let alarms: Vec<String> = findings
            .iter()
            .filter(|finding| finding["severity"] != "note")
            .map(|finding| format!("{} {}", finding["code"].as_str().unwrap(), finding["subject"].as_str().unwrap()))
            .collect();
        let worst = if findings.iter().any(|finding| finding["severity"] == "fault") { 2 } else { i32::from(!alarms.is_empty()) };
        assert_eq!(output.status.code(), Some(worst), "the exit code is that of the worst finding");
        alarms
    }

    /// Counts a planted fault, and whether it alone was named.
    fn note(&mut self, code: &str, alarms: &[String]) {
        let is_found = matches!(alarms, [alarm] if alarm.split(' ').next() == Some(code));
        self.planted += 1;
        self.found += usize::from(is_found);
        eprintln!("{} {code}: {}", if is_found { "found " } else { "MISSED" }, alarms.join(", "));
    }

    /// Claims, jobs and leftovers of other code as they are on a good day, looked at by an account of few rights and by root.
    fn healthy(&mut self, when: &str) {
        self.fresh_table();
        let engine = Engine::connect(&self.dsn).unwrap();
        let jobs: Vec<NewJob> = (0..200).map(|n| NewJob::new("mail", n.to_string())).collect();
        engine.create_many(&jobs).unwrap();
        engine.claim(&rowclaim::ClaimRequest::new("mail").limit(100)).unwrap().complete_all().unwrap();
        let table = engine.table(TABLE, &Mapping::from_json(MAPPING).unwrap()).unwrap();
        let request = RowClaimRequest::new(100).equal("task_id", rowclaim::Value::Int(42));
        table.claim(&request).unwrap().complete_all().unwrap();
        let held = table.claim(&request).unwrap();
        self.raw().run(&format!(
            "UPDATE {TABLE} SET status = 1, send_at = UTC_TIMESTAMP() + INTERVAL 8 HOUR, cron_token = 'old-cron' WHERE id = 5000"
        ));
        let mut raw = self.raw();
        raw.run("CREATE USER doctor_check@'%' IDENTIFIED BY 'secret'");
        raw.run("GRANT SELECT, INSERT, UPDATE, DELETE ON rowclaim_test.* TO doctor_check@'%'");
        for dsn in [self.dsn.clone(), self.dsn.replace("root@", "doctor_check:secret@")] {
            let alarms = self.alarms(&dsn, &[]);
            self.false_alarms += alarms.len();
            eprintln!("healthy ({when}): {}", if alarms.is_empty() { "silent".to_owned() } else { alarms.join(", ") });
        }
        raw.run("DROP USER doctor_check@'%'");
        drop(held);
        engine.close(Duration::from_secs(5)).unwrap();
    }

    /// Somebody's report, with a snapshot that keeps claimed entries from being purged.
    fn long_transaction(&mut self) {
        self.fresh_table();
        let mut report = self.raw();
        report.run("START TRANSACTION WITH CONSISTENT SNAPSHOT");
        report.rows(&format!("SELECT COUNT(*) FROM {TABLE}"));
        let since = Instant::now();
        let alarms = loop {
            let alarms = self.alarms(&self.dsn, &["--long-transaction", "2s"]);
            if !alarms.is_empty() || since.elapsed() > Duration::from_secs(20) {
                break alarms;
            }
        };
        self.note("long-transaction", &alarms);
        report.run("ROLLBACK");
    }

    /// On a server of its own: whether there is a binary log is decided at the start.
    fn statement_binlog(&mut self) {
        let own = Own::start(&self.folder.join("binlog"));
        let shared = std::mem::replace(&mut self.dsn, own.dsn.clone());
        Engine::connect(&self.dsn).unwrap().migrate().unwrap();
        self.fresh_table();
        self.raw().run("SET GLOBAL binlog_format = 'STATEMENT'");
        let alarms = self.alarms(&self.dsn, &[]);
        self.note("binlog-statement", &alarms);
        self.dsn = shared;
    }
}

/// A server with a binary log; gone when dropped.
struct Own {
    folder: PathBuf,
    dsn: String,
}

fn servers(words: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers.py");
    let done = Command::new("python3").arg(script).args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

impl Own {
    fn start(folder: &Path) -> Own {
        let folder = folder.to_owned();
        let words = ["start", "mariadb", "--dir", folder.to_str().unwrap(), "--arg=--log-bin=x", "--arg=--binlog-format=ROW"];
        let answer = servers(&words);
        let answer: Value = serde_json::from_str(answer.lines().last().unwrap()).unwrap();
        Own { dsn: answer["dsn"].as_str().unwrap().to_owned(), folder }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        servers(&["stop", "--kill", "--dir", self.folder.to_str().unwrap()]);
    }
}
