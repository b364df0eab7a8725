//! Rowclaim hands out rows of a database table so that a row has at most one valid owner at a time,
//! a dead owner's rows come back, a late owner's writes are refused, and the same job is created once.
//!
//! The words: an [`Engine`] is a handle on one database. A *job* is a row of its table. A *claim* is a batch of
//! rows handed to one worker; it has a *token*, a *lease* on the database's clock, and each row in it a *fence*
//! that only grows. *complete*, *fail* and *release* take rows out of a claim; *recover* takes them back when the
//! lease has run out. *Lost* is the answer to a late owner.
//!
//! The modules in the order a claim travels: [`blocking`] (the facade for synchronous callers and the bindings),
//! `engine` (the verbs; `engine/run.rs` alone retries), `plan` (which statements, what their answers mean),
//! `dialect` (SQL text), `driver` (I/O). `background` is the one thread beside them: heartbeat and group finish.

mod background;
pub mod blocking;
mod bounds;
mod claim;
mod config;
mod dialect;
mod driver;
mod effect;
mod engine;
mod error;
#[cfg(feature = "faults")]
pub mod faults;
mod ident;
mod job;
mod mapping;
mod plan;
mod row;
mod runs;
mod time;
mod validity;
mod value;

pub use bounds::{MAX_KEY, MAX_LIMIT, MAX_QUEUE, MAX_TASK};
pub use claim::{ClaimRequest, Finish, OnLost, Outcome, Resolution};
pub use config::{ClaimShape, Config};
pub use effect::{EffectRecord, EffectState, MAX_RESPONSE, OnUnknown, Once, OnceRequest, Receipt, Sent};
pub use engine::effect::EffectFilter;
pub use engine::guard::GuardedWrite;
pub use engine::lease::{Busy, LeaseFilter, LeaseRecord, LeaseRequest};
pub use engine::schedule::ScheduleFilter;
pub use engine::table::{MappedTable, TableRecord};
pub use engine::throttle::ThrottleRequest;
pub use engine::{
    ClaimEnd, ClaimFilter, ClaimName, ClaimRecord, Count, Engine, JobFilter, Migrated, PruneRequest, Pruned, QueueStats,
    Recovered, RunFilter, Stats,
};
pub use engine::{DoctorRequest, DoctorTable, Finding, Severity};
pub use error::{Error, ErrorKind, Result};
pub use ident::Prefix;
pub use job::{Attempt, ClaimedJob, Created, JobRow, JobState, NewJob, Unique};
pub use mapping::{Mapping, MaxAttempts, Unit};
pub use plan::create::{Binding, PlannedStatement};
pub use row::{ClaimedRow, Columns, Filters, RowClaimRequest, RowFilter};
pub use runs::{Missed, RunRecord, RunRequest, RunState, ScheduleRecord, ScheduleRequest, SkipReason};
pub use time::{Backoff, Timestamp, span_from_seconds};
pub use value::Value;

/// The README's Rust blocks are doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
