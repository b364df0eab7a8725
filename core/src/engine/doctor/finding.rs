//! What the doctor says: one finding for each thing that is so, with what follows from it and what mends it.

use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know; nothing has to be done.
    Note,
    /// Works now, and will hurt: slowly, sometimes, or under load.
    Warning,
    /// Does not work, or hands out rows twice.
    Fault,
}

impl Severity {
    /// Its name in lower case, the same in every language.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Fault => "fault",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Which kind of finding: a word of [`Finding::CODES`], which stays the same from version to version.
    pub code: &'static str,
    /// What it is about: `server`, a table, or `table.column`.
    pub subject: String,
    /// What is so, with the value.
    pub message: String,
    /// What happens if it is left so; empty where nothing does.
    pub consequence: String,
    /// The statement or the setting that mends it, as it can be typed.
    pub fix: Option<String>,
}

impl Finding {
    /// Every code there is, in the order of the alphabet.
    pub const CODES: [&'static str; 64] = [
        "attempts-near-full",
        "autocommit-off",
        "binlog-statement",
        "claim-locks",
        "claim-plan",
        "claim-shape",
        "claim-sorts",
        "claims-expire",
        "claims-unrecovered",
        "clock-apart",
        "connections-refused",
        "connections-short",
        "dead-jobs",
        "effects-unknown",
        "error-short",
        "flush-relaxed",
        "galera",
        "galera-autoinc",
        "galera-not-ready",
        "group-replication",
        "held-by-other-code",
        "held-jobs",
        "held-rows",
        "history-long",
        "isolation-serializable",
        "isolation-uncommitted",
        "key-not-primary",
        "lease-short",
        "lock-wait-long",
        "long-transaction",
        "mapping-unfit",
        "missing-index",
        "no-attempts",
        "no-back-off",
        "no-recovery",
        "no-skip-locked",
        "not-looked-at",
        "own-index-missing",
        "own-table-changed",
        "own-table-engine",
        "own-tables-missing",
        "own-tables-newer",
        "own-tables-old",
        "packet-small",
        "read-only",
        "read-write-split",
        "recover-after-short",
        "replica",
        "rights-missing",
        "rollback-on-timeout",
        "schedule-unattended",
        "server",
        "several-servers",
        "sqlite-journal",
        "sqlite-synchronous",
        "stuck-rows",
        "table-engine",
        "table-missing",
        "table-view",
        "token-unfit",
        "triggers",
        "unknown-status",
        "where-unknown",
        "zero-date",
    ];

    pub(super) fn new(severity: Severity, code: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        debug_assert!(Finding::CODES.contains(&code), "{code} is not listed");
        let message: String = message.into();
        let message = message.replace(['\n', '\r'], " ");
        Finding { severity, code, subject: subject.into(), message, consequence: String::new(), fix: None }
    }

    pub(super) fn fault(code: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Finding::new(Severity::Fault, code, subject, message)
    }

    pub(super) fn warning(code: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Finding::new(Severity::Warning, code, subject, message)
    }

    pub(super) fn note(code: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Finding::new(Severity::Note, code, subject, message)
    }

    /// The same with what follows from it.
    pub(super) fn so(mut self, consequence: impl Into<String>) -> Self {
        self.consequence = consequence.into();
        self
    }

    /// The same with what mends it.
    pub(super) fn mend(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// In one line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}: {}", self.severity.name(), self.code, self.subject, self.message)?;
        if !self.consequence.is_empty() {
            write!(f, "; {}", self.consequence)?;
        }
        match &self.fix {
            Some(fix) => write!(f, "; fix: {fix}"),
            None => Ok(()),
        }
    }
}
