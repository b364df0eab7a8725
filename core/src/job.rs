//! Jobs as they go in and come out.

use crate::bounds::{MAX_KEY, check_length, check_queue};
use crate::error::{Error, Result};
use crate::time::Timestamp;
use std::time::Duration;

/// The longest stored error text, in characters.
pub(crate) const MAX_ERROR: usize = 4_000;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waits, until now or later.
    Ready,
    /// Held by a claim.
    Claimed,
    /// Finished.
    Done,
    /// Out of attempts; waits for a person.
    Dead,
    /// Taken out by a person.
    Cancelled,
    /// Begun in a claim whose lease ran out, at most once: waits for a person to say whether it was sent.
    Held,
}

impl JobState {
    /// Every state.
    pub const ALL: [JobState; 6] =
        [JobState::Ready, JobState::Claimed, JobState::Done, JobState::Dead, JobState::Cancelled, JobState::Held];

    /// Its name, the same in SQL and in every language.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Ready => "ready",
            JobState::Claimed => "claimed",
            JobState::Done => "done",
            JobState::Dead => "dead",
            JobState::Cancelled => "cancelled",
            JobState::Held => "held",
        }
    }

    /// The state of a name.
    ///
    /// # Errors
    /// `Invalid` for any other word.
    pub fn parse(name: &str) -> Result<Self> {
        JobState::ALL
            .into_iter()
            .find(|state| state.name() == name)
            .ok_or_else(|| Error::invalid(format!("state {name} is none of ready, claimed, done, dead, cancelled, held")))
    }
}

/// How long a business key keeps others out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unique {
    /// As long as the job's row exists.
    #[default]
    Forever,
    /// Until the job is done, dead or cancelled.
    Active,
    /// Until the job is first claimed.
    UntilClaimed,
    /// For a time after creation.
    For(Duration),
}

impl Unique {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unique::Forever => "forever",
            Unique::Active => "active",
            Unique::UntilClaimed => "until_claimed",
            Unique::For(_) => "timed",
        }
    }

    /// The life of a name: `forever`, `active` or `until_claimed`.
    ///
    /// # Errors
    /// `Invalid` for any other word.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "forever" => Ok(Unique::Forever),
            "active" => Ok(Unique::Active),
            "until_claimed" => Ok(Unique::UntilClaimed),
            _ => Err(Error::invalid(format!("unique must be forever, active, until_claimed or a number of seconds, not {name}"))),
        }
    }
}

/// A job to be created.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// 1 to 64 bytes.
    pub queue: String,
    /// JSON text; stored and handed out byte for byte.
    pub payload: String,
    /// The business key, 1 to 191 bytes: with the same queue and key the job is created once.
    pub key: Option<String>,
    /// How long the key lives.
    pub unique: Unique,
    /// Wait this long before the first attempt.
    pub delay: Duration,
    /// Or wait until this instant.
    pub run_at: Option<Timestamp>,
    /// Smaller runs first.
    pub priority: i16,
    /// Attempts before the job is dead; the engine's default when `None`.
    pub max_attempts: Option<i64>,
}

impl NewJob {
    /// A job for `queue` with a JSON `payload`, ready at once, without a key.
    pub fn new(queue: impl Into<String>, payload: impl Into<String>) -> Self {
        NewJob {
            queue: queue.into(),
            payload: payload.into(),
            key: None,
            unique: Unique::Forever,
            delay: Duration::ZERO,
            run_at: None,
            priority: 0,
            max_attempts: None,
        }
    }

    /// The same job with a business key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    pub(crate) fn check(&self, max_packet: usize) -> Result<()> {
        check_queue(&self.queue)?;
        if let Some(key) = &self.key {
            check_length("key", key, MAX_KEY)?;
        }
        if self.key.is_none() && self.unique != Unique::Forever {
            return Err(Error::invalid("unique needs a key"));
        }
        if self.max_attempts.is_some_and(|n| !(1..=i64::from(i32::MAX)).contains(&n)) {
            return Err(Error::invalid("max_attempts must be 1 or more"));
        }
        if self.run_at.is_some() && !self.delay.is_zero() {
            return Err(Error::invalid("give delay or run_at, not both"));
        }
        if self.run_at.is_some_and(|at| !(Timestamp::BEGINNING..=Timestamp::END).contains(&at)) {
            return Err(Error::invalid("run_at is outside of the years 1000 to 9999"));
        }
        if self.delay > Duration::from_secs(32_000_000_000) {
            return Err(Error::invalid("delay is over a thousand years"));
        }
        // Room for the other columns and the statement's own text.
        if self.payload.len().saturating_add(4_096) > max_packet {
            return Err(Error::invalid(format!(
                "payload too large: {} bytes, and max_allowed_packet of the server is {max_packet}",
                self.payload.len()
            )));
        }
        if let Err(error) = serde_json::from_str::<&serde_json::value::RawValue>(&self.payload) {
            return Err(Error::invalid(format!("payload is not JSON: {error}")));
        }
        Ok(())
    }
}

/// The answer to a creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The job's id.
    pub id: i64,
    /// True when a job with this queue and key was there already; nothing was written then.
    pub exists: bool,
    /// Where that job stands.
    pub state: JobState,
}

/// A job handed out by a claim.
#[derive(Clone, Debug)]
pub struct ClaimedJob {
    /// The job's id.
    pub id: i64,
    /// Its queue.
    pub queue: String,
    /// Its business key as given.
    pub key: Option<String>,
    /// Smaller runs first.
    pub priority: i64,
    /// JSON text, byte for byte as it was created.
    pub payload: String,
    /// Attempts so far, this one included.
    pub attempts: i64,
    /// Attempts before the job is dead.
    pub max_attempts: i64,
    /// How often a lease on it ran out.
    pub lost: i64,
    /// The fence of this claim of the job: every later claim has a larger one.
    pub fence: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// Since when it waited.
    pub(crate) ready_at: Timestamp,
}

/// A job as it stands in the table, for people and tools.
#[derive(Clone, Debug)]
pub struct JobRow {
    /// The job's id.
    pub id: i64,
    /// Its queue.
    pub queue: String,
    /// Its business key as given.
    pub key: Option<String>,
    /// Smaller runs first.
    pub priority: i64,
    /// Where it stands.
    pub state: JobState,
    /// JSON text.
    pub payload: String,
    /// Attempts so far.
    pub attempts: i64,
    /// Attempts before the job is dead.
    pub max_attempts: i64,
    /// How often a lease on it ran out.
    pub lost: i64,
    /// Its last fence.
    pub fence: i64,
    /// When it is due; only while it waits.
    pub ready_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was done, dead or cancelled.
    pub finished_at: Option<Timestamp>,
    /// What the last failed attempt said.
    pub last_error: Option<String>,
    /// The claim that holds or last held it.
    pub claim_id: Option<i64>,
}

/// One attempt that did not succeed.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The fence of the claim it belonged to.
    pub fence: i64,
    /// `failed`, `lost` or `released`.
    pub outcome: String,
    /// The job was dead after it.
    pub is_final: bool,
    /// Who held it.
    pub worker: String,
    /// When the claim was made.
    pub claimed_at: Option<Timestamp>,
    /// When the attempt ended.
    pub ended_at: Timestamp,
    /// What went wrong.
    pub error: Option<String>,
}
