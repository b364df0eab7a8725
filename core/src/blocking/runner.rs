//! Work behind an HTTP request or a line of a crontab: who may start it, one at a time, and what is answered.
//!
//! The handlers are the caller's; this is the door before them. The token is compared in constant time and never written
//! anywhere.

use super::{Engine, Lease, Leased, Summary, Table};
use crate::engine::Recovered;
use crate::engine::lease::LeaseRequest;
use crate::error::{Error, ErrorKind, Result};
use crate::row::Filters;
use sha2::{Digest, Sha256};
use std::time::Duration;
use subtle::ConstantTimeEq;

/// The shortest token, in bytes.
const SHORTEST_TOKEN: usize = 16;

/// Who may start work, and how.
#[derive(Clone)]
pub struct RunnerRequest {
    /// What a request must bring; at least 16 bytes. `None` for a crontab, where nobody asks.
    pub token: Option<String>,
    /// One runner of this name at a time, by a lease; `None` lets any number work side by side.
    pub name: Option<String>,
    /// The lease of the name; at least 1 second. Renewed in the background.
    pub lease: Duration,
}

impl RunnerRequest {
    /// A door for requests with a token; any number at a time.
    pub fn new(token: Option<String>) -> Self {
        RunnerRequest { token, name: None, lease: Duration::from_secs(60) }
    }

    /// # Errors
    /// `Invalid` for a token that can be guessed, and for a wrong name or lease.
    pub fn check(&self) -> Result<()> {
        if self.token.as_ref().is_some_and(|token| token.len() < SHORTEST_TOKEN) {
            return Err(Error::invalid(format!("the token must have at least {SHORTEST_TOKEN} bytes")).during("runner"));
        }
        match &self.name {
            Some(name) => LeaseRequest::new(name.as_str(), self.lease).check().map_err(|e| e.during("runner")),
            None => Ok(()),
        }
    }

    fn accepts(&self, presented: Option<&str>) -> bool {
        let Some(token) = &self.token else { return true };
        let presented = presented.unwrap_or_default();
        let presented = presented.strip_prefix("Bearer ").unwrap_or(presented).trim();
        // Digests have one length, so that the time tells nothing about the token's.
        let digest = |text: &str| Sha256::digest(text.as_bytes());
        digest(token).ct_eq(&digest(presented)).into()
    }
}

/// What is answered to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerAnswer {
    /// 200, 403, 405, 409, 500 or 503.
    pub status: u16,
    /// JSON text.
    pub body: String,
}

impl RunnerAnswer {
    fn new(status: u16, body: &serde_json::Value) -> Self {
        RunnerAnswer { status, body: body.to_string() }
    }

    fn refused(status: u16, why: &str) -> Self {
        RunnerAnswer::new(status, &serde_json::json!({"ok": false, "error": why}))
    }

    fn failed(error: &Error) -> Self {
        let status = if error.kind() == ErrorKind::Unavailable { 503 } else { 500 };
        let body = serde_json::json!({"ok": false, "error": error.to_string(), "kind": error.kind().name()});
        RunnerAnswer::new(status, &body)
    }
}

/// The answer to [`Engine::admit`].
pub enum Admission {
    /// Work, then [`Admitted::answer`].
    Work(Admitted),
    /// Answer this.
    Refused(RunnerAnswer),
}

/// Where more work may wait.
#[derive(Clone, Copy)]
pub enum Waiting<'a> {
    /// In these queues.
    Queues(&'a [String]),
    /// In a mapped table.
    Table(&'a Table, &'a Filters),
}

/// A request that may work; holds the runner's name until it is dropped.
pub struct Admitted {
    engine: Engine,
    recovered: Recovered,
    _name: Option<Lease>,
}

impl Engine {
    /// Whether a request may work: by POST (405), with the token (403), and while no other runner of the name works (409).
    /// Then rows of workers that died are taken back. What goes wrong is answered too: 503 without the database, otherwise 500.
    pub fn admit(&self, runner: &RunnerRequest, method: &str, token: Option<&str>) -> Admission {
        if runner.token.is_some() {
            if method != "POST" {
                return Admission::Refused(RunnerAnswer::refused(405, "only POST works"));
            }
            if !runner.accepts(token) {
                return Admission::Refused(RunnerAnswer::refused(403, "the token is missing or wrong"));
            }
        }
        match self.try_admit(runner) {
            Ok(admission) => admission,
            Err(error) => Admission::Refused(RunnerAnswer::failed(&error)),
        }
    }

    fn try_admit(&self, runner: &RunnerRequest) -> Result<Admission> {
        runner.check()?;
        let name = match &runner.name {
            None => None,
            Some(name) => match self.lease(&LeaseRequest::new(name.as_str(), runner.lease))? {
                Leased::Acquired(lease) => Some(lease),
                Leased::Busy(busy) => {
                    let body = serde_json::json!({"ok": false, "error": "another runner is at work", "holder": busy.holder});
                    return Ok(Admission::Refused(RunnerAnswer::new(409, &body)));
                }
            },
        };
        let recovered = self.recover()?;
        Ok(Admission::Work(Admitted { engine: self.clone(), recovered, _name: name }))
    }
}

impl Admitted {
    /// What the work came to: `ok, claimed, completed, failed, released, lost, recovered, seconds, more`. `more` says that
    /// something is left to do.
    pub fn answer(self, work: &Result<Summary>, waiting: Waiting<'_>) -> RunnerAnswer {
        let more = || match waiting {
            Waiting::Queues(queues) => self.engine.has_due(queues),
            Waiting::Table(table, filters) => table.remaining(filters),
        };
        match work.clone().and_then(|summary| Ok((summary, more()?))) {
            Ok((summary, more)) => RunnerAnswer::new(
                200,
                &serde_json::json!({
                    "ok": true,
                    "claimed": summary.claimed,
                    "completed": summary.completed,
                    "failed": summary.failed,
                    "released": summary.released,
                    "lost": summary.lost,
                    "recovered": self.recovered.returned + self.recovered.dead,
                    "seconds": (summary.seconds * 1_000.0).round() / 1_000.0,
                    "more": more,
                }),
            ),
            Err(error) => RunnerAnswer::failed(&error),
        }
    }
}
