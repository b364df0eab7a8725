//! One look at a database: the session, what was found so far, and what could not be looked at.

use super::{DoctorRequest, Finding};
use crate::driver::Session;
use crate::engine::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::plain;
use crate::value::{Row, Statement, Value};
use std::collections::HashMap;

/// Tries of a statement that is refused now and then.
const TRIES: usize = 3;

pub(super) struct Look<'a> {
    pub shared: &'a Shared,
    pub session: &'a mut Session,
    pub request: &'a DoctorRequest,
    findings: Vec<Finding>,
    /// What the user has no right to look at: all of it needs PROCESS.
    unseen: Vec<&'static str>,
    /// The account the server sees, quoted; empty on SQLite.
    pub account: String,
}

/// Names and values of settings, the names in lower case.
pub(super) struct Settings(HashMap<String, String>);

impl<'a> Look<'a> {
    pub(super) fn new(shared: &'a Shared, session: &'a mut Session, request: &'a DoctorRequest) -> Self {
        Look { shared, session, request, findings: Vec::new(), unseen: Vec::new(), account: String::new() }
    }

    pub(super) fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub(super) fn has_found(&self, codes: &[&str]) -> bool {
        self.findings.iter().any(|finding| codes.contains(&finding.code))
    }

    /// Runs a statement; what the server refused is an answer, a lost connection is an error.
    pub(super) async fn ask(&mut self, statement: &Statement) -> Result<std::result::Result<(Vec<String>, Vec<Row>), Error>> {
        answered(self.session.query_typed(statement).await)
    }

    /// The rows of a statement; none where the server does not know it.
    pub(super) async fn see(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Row>> {
        Ok(self.ask(&plain(sql, values)).await?.map(|(_, rows)| rows).unwrap_or_default())
    }

    /// As [`Look::see`] for what needs the right PROCESS; `what` is said at the end where it is missing.
    ///
    /// Tries again when the answer is refused for another reason: MySQL does so while another session runs a statement
    /// with bytes that are no text.
    pub(super) async fn see_by_process(&mut self, what: &'static str, sql: &str, values: Vec<Value>) -> Result<Vec<Row>> {
        let statement = plain(sql, values);
        for _ in 0..TRIES {
            match self.ask(&statement).await? {
                Ok((_, rows)) => return Ok(rows),
                Err(error) if error.kind() == ErrorKind::Config => {
                    if !self.unseen.contains(&what) {
                        self.unseen.push(what);
                    }
                    break;
                }
                Err(_) => {}
            }
        }
        Ok(Vec::new())
    }

    /// Whether the right PROCESS was there so far.
    pub(super) fn sees_processes(&self) -> bool {
        self.unseen.is_empty()
    }

    /// The answer of a SHOW of names and values.
    pub(super) async fn settings(&mut self, sql: &str) -> Result<Settings> {
        Ok(Settings::read(&self.see(sql, vec![]).await?))
    }

    /// What was found, with what could not be looked at.
    pub(super) fn end(mut self) -> Vec<Finding> {
        if !self.unseen.is_empty() {
            let message = format!("without the right PROCESS, {} could not be looked at", self.unseen.join(" and "));
            let finding = Finding::note("not-looked-at", "server", message);
            self.findings.push(finding.mend(format!("GRANT PROCESS ON *.* TO {}", self.account)));
        }
        self.findings
    }
}

impl Settings {
    pub(super) fn read(rows: &[Row]) -> Self {
        let pair = |row: &Row| Some((row.text(0).ok()?.to_lowercase(), row.text(1).ok()?));
        Settings(rows.iter().filter_map(pair).collect())
    }

    /// The value; empty where the server has no such setting.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        !matches!(self.text(name).to_uppercase().as_str(), "" | "0" | "OFF" | "NO")
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }

    /// In the order of the names: what tells servers apart.
    pub(super) fn shown(&self) -> String {
        let mut pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.sort();
        pairs.join(" ")
    }
}

/// What the server refused is an answer; a lost connection stays an error.
pub(super) fn answered<T>(result: Result<T>) -> Result<std::result::Result<T, Error>> {
    match result {
        Ok(answer) => Ok(Ok(answer)),
        // A server that answers with a code is there, whatever it thinks of the statement.
        Err(error) if error.drops_connection() && error.server_code().is_none() => Err(error),
        Err(error) => {
            log::debug!("left out: {error}");
            Ok(Err(error))
        }
    }
}

/// The first value of the first row as a number.
pub(super) fn one_number(rows: &[Row]) -> Option<i64> {
    rows.first().and_then(|row| row.int(0).ok())
}
