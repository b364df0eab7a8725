//! Users' tables beside the engine's own: made for a test, dropped with it.

use crate::Db;
use rowclaim::blocking::{Claim, Engine, Table};
use rowclaim::{ClaimedRow, Error, Mapping, RowClaimRequest, Value};

/// A table of a user; dropped with the test.
pub struct UserTable<'a> {
    pub db: &'a Db,
    pub name: String,
}

/// The columns of most tests: every role a column can have.
pub const TARGETS: &str = "id INTEGER NOT NULL PRIMARY KEY, task_id INT NOT NULL DEFAULT 1, openid VARCHAR(64) NULL, \
    status TINYINT NOT NULL DEFAULT 0, cron_token VARCHAR(40) NULL, send_at DATETIME NULL, lease_until DATETIME NULL, \
    locked_by VARCHAR(64) NULL, attempts INT NOT NULL DEFAULT 0, available_at DATETIME NULL, error VARCHAR(100) NULL, \
    finished_at DATETIME NULL, priority INT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0, result VARCHAR(64) NULL";

/// The mapping of [`TARGETS`] with its required entries and those given, as JSON entries.
pub fn mapping(more: &str) -> Mapping {
    let comma = if more.is_empty() { "" } else { "," };
    let json = format!(
        "{{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":2,\"failed\":3,\"token\":\"cron_token\"{comma}{more}}}"
    );
    Mapping::from_json(&json).unwrap()
}

/// Every role.
pub const ALL_ROLES: &str = "\"claimed_at\":\"send_at\",\"locked_by\":\"locked_by\",\"attempts\":\"attempts\",\"max_attempts\":3,\
    \"available_at\":\"available_at\",\"error\":\"error\",\"finished_at\":\"finished_at\",\"fence\":\"fence\",\"zone\":\"+08:00\",\
    \"backoff_base\":60";

/// A claim of up to `limit` rows.
pub fn claim(table: &Table, limit: usize) -> Claim<ClaimedRow> {
    table.claim(&RowClaimRequest::new(limit)).unwrap()
}

/// The keys of its rows, which are whole numbers, in their order.
pub fn keys(claim: &Claim<ClaimedRow>) -> Vec<i64> {
    claim.rows().iter().map(|row| if let Value::Int(key) = row.key { key } else { panic!("{:?}", row.key) }).collect()
}

/// What a dead process leaves behind: its rows stay held until their lease ends.
pub fn abandon(claim: Claim<ClaimedRow>) {
    std::mem::forget(claim);
}

impl<'a> UserTable<'a> {
    pub fn new(db: &'a Db, name: &str, columns: &str) -> UserTable<'a> {
        let table = UserTable { db, name: format!("{}{name}", db.prefix) };
        let engine = if db.is_sqlite() { "" } else { " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4" };
        db.raw().run(&format!("CREATE TABLE {} ({columns}){engine}", table.name));
        table
    }

    /// The usual table with `count` waiting rows, ids from 1.
    pub fn targets(db: &'a Db, count: usize) -> UserTable<'a> {
        let table = UserTable::new(db, "targets", TARGETS);
        table.fill(count);
        table
    }

    pub fn fill(&self, count: usize) {
        let ids: Vec<usize> = (1..=count).collect();
        for chunk in ids.chunks(500) {
            let rows: Vec<String> = chunk.iter().map(|id| format!("({id}, 'open{id}')")).collect();
            self.run(&format!("INSERT INTO {{t}} (id, openid) VALUES {}", rows.join(",")));
        }
    }

    /// Verbs on it by the usual mapping with more entries.
    pub fn map(&self, more: &str) -> Table {
        self.db.engine.table(&self.name, &mapping(more)).unwrap()
    }

    /// The same verbs as another process would have them.
    pub fn map_by(&self, engine: &Engine, more: &str) -> Table {
        engine.table(&self.name, &mapping(more)).unwrap()
    }

    pub fn try_map(&self, json: &str) -> Result<Table, Error> {
        self.db.engine.table(&self.name, &Mapping::from_json(json)?)
    }

    /// Runs SQL; `{t}` is the table.
    pub fn run(&self, sql: &str) {
        self.db.raw().run(&sql.replace("{t}", &self.name));
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.db.number(&sql.replace("{t}", &self.name))
    }

    /// One column of the rows in the order of `id`, NULL as `-`.
    pub fn column(&self, column: &str) -> Vec<String> {
        let rows = self.db.raw().rows(&format!("SELECT {column} FROM {} ORDER BY id", self.name));
        rows.into_iter().map(|row| row.into_iter().next().flatten().unwrap_or_else(|| "-".to_owned())).collect()
    }
}

impl Drop for UserTable<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let rows = self.db.raw().rows(&format!("SELECT * FROM {} LIMIT 20", self.name));
            eprintln!("{}:", self.name);
            rows.iter().for_each(|row| eprintln!("  {row:?}"));
        }
        if !self.db.is_sqlite() {
            let _ = self.db.raw().try_run(&format!("DROP TABLE IF EXISTS {}", self.name));
        }
    }
}
