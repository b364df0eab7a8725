//! The shapes that `--json` prints. Names are those of the core; a change here breaks people's scripts.
//!
//! Instants are RFC 3339 in UTC; durations are seconds. A payload is embedded byte for byte.

use crate::span::instant;
use rowclaim::{Attempt, Count, Finding, JobRow, QueueStats, Recovered, Severity, Stats};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io;

/// Writes `value` as one line.
pub fn line(value: &impl Serialize) -> io::Result<()> {
    crate::screen::line(serde_json::to_string(value)?)
}

/// A job.
#[derive(Serialize)]
pub struct JobView<'a> {
    id: i64,
    queue: &'a str,
    key: Option<&'a str>,
    state: &'static str,
    priority: i64,
    attempts: i64,
    max_attempts: i64,
    lost: i64,
    fence: i64,
    claim_id: Option<i64>,
    ready_at: Option<String>,
    created_at: String,
    finished_at: Option<String>,
    last_error: Option<&'a str>,
    payload: Payload<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_attempts: Option<Vec<AttemptView<'a>>>,
}

/// JSON as it is; a row that somebody else wrote may hold text that is none.
#[derive(Serialize)]
#[serde(untagged)]
enum Payload<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

/// An attempt that did not succeed.
#[derive(Serialize)]
struct AttemptView<'a> {
    fence: i64,
    outcome: &'a str,
    is_final: bool,
    worker: &'a str,
    claimed_at: Option<String>,
    ended_at: String,
    error: Option<&'a str>,
}

impl<'a> From<&'a JobRow> for JobView<'a> {
    fn from(job: &'a JobRow) -> Self {
        // A payload written with line breaks would break one-object-a-line.
        let is_one_line = !job.payload.contains(['\n', '\r']);
        let payload = serde_json::from_str::<&RawValue>(&job.payload).ok().filter(|_| is_one_line);
        JobView {
            id: job.id,
            queue: &job.queue,
            key: job.key.as_deref(),
            state: job.state.name(),
            priority: job.priority,
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            lost: job.lost,
            fence: job.fence,
            claim_id: job.claim_id,
            ready_at: job.ready_at.map(instant),
            created_at: instant(job.created_at),
            finished_at: job.finished_at.map(instant),
            last_error: job.last_error.as_deref(),
            payload: payload.map_or(Payload::Text(&job.payload), Payload::Json),
            failed_attempts: None,
        }
    }
}

impl<'a> JobView<'a> {
    /// The same with its failed attempts.
    pub fn with_attempts(mut self, attempts: &'a [Attempt]) -> Self {
        let view = |attempt: &'a Attempt| AttemptView {
            fence: attempt.fence,
            outcome: &attempt.outcome,
            is_final: attempt.is_final,
            worker: &attempt.worker,
            claimed_at: attempt.claimed_at.map(instant),
            ended_at: instant(attempt.ended_at),
            error: attempt.error.as_deref(),
        };
        self.failed_attempts = Some(attempts.iter().map(view).collect());
        self
    }
}

/// A count that may have been cut.
#[derive(Serialize)]
struct CountView {
    rows: u64,
    is_capped: bool,
}

impl From<Count> for CountView {
    fn from(count: Count) -> Self {
        CountView { rows: count.rows, is_capped: count.is_capped }
    }
}

/// All queues.
#[derive(Serialize)]
pub struct StatsView<'a> {
    server: &'a str,
    queues: Vec<QueueView<'a>>,
    open_claims: u64,
    expired_claims: u64,
}

#[derive(Serialize)]
struct QueueView<'a> {
    queue: &'a str,
    due: CountView,
    delayed: CountView,
    claimed: u64,
    dead: CountView,
    held: CountView,
    oldest_due_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exact: Option<&'a BTreeMap<String, u64>>,
}

impl<'a> StatsView<'a> {
    pub fn new(server: &'a str, stats: &'a Stats) -> Self {
        let view = |queue: &'a QueueStats| QueueView {
            queue: &queue.queue,
            due: queue.due.into(),
            delayed: queue.delayed.into(),
            claimed: queue.claimed,
            dead: queue.dead.into(),
            held: queue.held.into(),
            oldest_due_seconds: queue.oldest_due.map(|span| span.as_secs_f64()),
            exact: queue.exact.as_ref(),
        };
        StatsView {
            server,
            queues: stats.queues.iter().map(view).collect(),
            open_claims: stats.open_claims,
            expired_claims: stats.expired_claims,
        }
    }
}

/// What the doctor found.
#[derive(Serialize)]
pub struct DoctorView<'a> {
    faults: usize,
    warnings: usize,
    notes: usize,
    findings: Vec<FindingView<'a>>,
}

#[derive(Serialize)]
struct FindingView<'a> {
    severity: &'static str,
    code: &'static str,
    subject: &'a str,
    message: &'a str,
    consequence: &'a str,
    fix: Option<&'a str>,
}

impl<'a> From<&'a [Finding]> for DoctorView<'a> {
    fn from(findings: &'a [Finding]) -> Self {
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let view = |finding: &'a Finding| FindingView {
            severity: finding.severity.name(),
            code: finding.code,
            subject: &finding.subject,
            message: &finding.message,
            consequence: &finding.consequence,
            fix: finding.fix.as_deref(),
        };
        DoctorView {
            faults: count(Severity::Fault),
            warnings: count(Severity::Warning),
            notes: count(Severity::Note),
            findings: findings.iter().map(view).collect(),
        }
    }
}

/// A recovery.
#[derive(Serialize)]
pub struct RecoveredView {
    claims: u64,
    returned: u64,
    dead: u64,
    held: u64,
}

impl From<Recovered> for RecoveredView {
    fn from(recovered: Recovered) -> Self {
        let Recovered { claims, returned, dead, held } = recovered;
        RecoveredView { claims, returned, dead, held }
    }
}
