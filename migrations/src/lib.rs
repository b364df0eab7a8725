//! The tables of Rowclaim as numbered migrations, one set per kind of database.
//!
//! This crate is text only: applying the steps under a lock is the engine's (`engine/migrate.rs`).
//! The one thing to know: the texts hold `{names}`; [`Names`] fills them in, quoted.

/// Which SQL a database speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// MySQL and MariaDB.
    MySql,
    /// SQLite.
    Sqlite,
}

/// One step of the schema: `version` rises by one from 1.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Position in the sequence, from 1.
    pub version: i64,
    /// The name of its file without number and ending.
    pub name: &'static str,
    /// Its statements, each ended by a semicolon at a line's end; names are still `{…}`.
    pub text: &'static str,
}

const MYSQL: &[Migration] = &[
    Migration { version: 1, name: "jobs", text: include_str!("../mysql/0001_jobs.sql") },
    Migration { version: 2, name: "tables", text: include_str!("../mysql/0002_tables.sql") },
    Migration { version: 3, name: "leases", text: include_str!("../mysql/0003_leases.sql") },
    Migration { version: 4, name: "effects", text: include_str!("../mysql/0004_effects.sql") },
    Migration { version: 5, name: "held", text: include_str!("../mysql/0005_held.sql") },
];
const SQLITE: &[Migration] = &[
    Migration { version: 1, name: "jobs", text: include_str!("../sqlite/0001_jobs.sql") },
    Migration { version: 2, name: "tables", text: include_str!("../sqlite/0002_tables.sql") },
    Migration { version: 3, name: "leases", text: include_str!("../sqlite/0003_leases.sql") },
    Migration { version: 4, name: "effects", text: include_str!("../sqlite/0004_effects.sql") },
    Migration { version: 5, name: "held", text: include_str!("../sqlite/0005_held.sql") },
];

impl Flavor {
    /// All steps, oldest first.
    pub fn migrations(self) -> &'static [Migration] {
        match self {
            Flavor::MySql => MYSQL,
            Flavor::Sqlite => SQLITE,
        }
    }

    /// The whole schema at the newest version, for people who keep theirs by another tool.
    pub fn schema(self) -> &'static str {
        match self {
            Flavor::MySql => include_str!("../mysql/schema.sql"),
            Flavor::Sqlite => include_str!("../sqlite/schema.sql"),
        }
    }

    /// A name as an identifier: the one place where names get their quotes.
    pub fn quote(self, name: &str) -> String {
        let mark = match self {
            Flavor::MySql => '`',
            Flavor::Sqlite => '"',
        };
        format!("{mark}{}{mark}", name.replace(mark, &format!("{mark}{mark}")))
    }

    /// The newest version this code knows.
    pub fn newest(self) -> i64 {
        self.migrations().last().map_or(0, |m| m.version)
    }

    /// The table that records which steps were applied.
    pub fn ledger(self) -> &'static str {
        match self {
            Flavor::MySql => {
                "CREATE TABLE IF NOT EXISTS {schema} (version INT NOT NULL PRIMARY KEY, name VARCHAR(64) NOT NULL, applied_at DATETIME(6) NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
            }
            Flavor::Sqlite => {
                "CREATE TABLE IF NOT EXISTS {schema} (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"
            }
        }
    }
}

/// The quoted names of tables and indexes under one prefix.
///
/// The prefix must have been checked: letters, digits and underscores only.
#[derive(Clone, Debug)]
pub struct Names {
    pairs: Vec<(&'static str, String)>,
}

impl Names {
    /// Names under `prefix` (`rowclaim_` unless configured otherwise), quoted for `flavor`.
    pub fn new(flavor: Flavor, prefix: &str) -> Self {
        let pairs = [
            ("{jobs}", "jobs"),
            ("{jobs_new}", "jobs_new"),
            ("{claims}", "claims"),
            ("{attempts}", "attempts"),
            ("{attempts_new}", "attempts_new"),
            ("{tables}", "tables"),
            ("{leases}", "leases"),
            ("{effects}", "effects"),
            ("{runs}", "runs"),
            ("{schedules}", "schedules"),
            ("{limits}", "limits"),
            ("{schema}", "schema"),
            ("{pick}", "jobs_pick"),
            ("{unique}", "jobs_unique_key"),
            ("{lease}", "claims_lease"),
            ("{job}", "attempts_job"),
            ("{final}", "attempts_final"),
            ("{claim}", "attempts_claim"),
            ("{effect_state}", "effects_state"),
            ("{run_slot}", "runs_slot"),
            ("{run_state}", "runs_state"),
        ]
        .map(|(place, name)| (place, flavor.quote(&format!("{prefix}{name}"))))
        .to_vec();
        Names { pairs }
    }

    /// `text` with every `{name}` filled in.
    pub fn fill(&self, text: &str) -> String {
        self.pairs.iter().fold(text.to_owned(), |text, (place, name)| text.replace(place, name))
    }

    /// The statements of `text`, filled in, without comments and closing semicolons.
    pub fn statements(&self, text: &str) -> Vec<String> {
        let code: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with("--")).collect();
        code.join("\n")
            .split(";\n")
            .map(|s| s.trim().trim_end_matches(';'))
            .filter(|s| !s.is_empty())
            .map(|s| self.fill(s))
            .collect()
    }
}
