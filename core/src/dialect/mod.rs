//! SQL text and nothing else: whole statements per database, as constants.
//!
//! A text holds `{names}` of tables and indexes, filled in once per engine, and at most one of `{ids}`,
//! `{rows}` and `{list}`, filled in per call with places for bound values. [`codes`] sorts server errors.

pub(crate) mod codes;
pub(crate) mod doctor;
pub(crate) mod guard;
pub(crate) mod ledger;
mod mysql;
pub(crate) mod rows;
mod sqlite;

use crate::config::ClaimShape;
use ledger::Ledger;
use rowclaim_migrations::{Flavor, Names};

macro_rules! statements {
    ($texts:ident, $statements:ident: $($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The texts of one database before names are filled in.
        pub(crate) struct $texts { $(pub $name: &'static str),* }

        /// The statements of one engine.
        pub(crate) struct $statements { $($(#[$doc])* pub $name: String),* }

        impl $statements {
            pub(super) fn fill(texts: &$texts, fill: impl Fn(&str) -> String) -> Self {
                $statements { $($name: fill(texts.$name)),* }
            }

            /// Every statement by name, for the snapshot and EXPLAIN tests.
            #[cfg(feature = "faults")]
            pub(crate) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), self.$name.as_str())),*]
            }
        }
    };
}
pub(crate) use statements;

statements! {
    Texts, Main:

    /// Fails with a syntax error where SKIP LOCKED is unknown.
    probe_skip_locked,

    /// The next queue after one (loose index scan).
    next_queue,
    /// The next priority in use in a queue (loose index scan).
    next_priority,
    /// Locks the first waiting jobs of one lane.
    pick,
    /// The same from within an instant on.
    pick_after,
    /// Reads, without locks, ids of the first waiting jobs of one lane and one partition.
    pick_ids,
    /// Locks candidates by id.
    lock_ids,
    /// Records the claim.
    insert_claim,
    /// Hands the jobs to the claim.
    mark,
    /// Ends jobs that were found ready with no attempt left.
    exhaust,
    /// Ends jobs that cannot be read.
    bury,
    /// The claim of a token, after a lost COMMIT.
    claim_by_token,
    /// The jobs a claim holds.
    claimed,
    /// Writes that a row of an open claim is about to be handed out.
    start,

    /// Accepts outcomes of a claim's jobs.
    complete,
    /// Puts a failed job back for a later attempt.
    fail_back,
    /// Ends a failed job.
    fail_dead,
    /// Gives jobs back without blame.
    release,
    /// Records attempts that did not succeed.
    insert_attempts,
    /// One `{rows}` item of `insert_attempts`.
    insert_attempts_row,
    /// Where jobs stand now, to tell a repeated finish from a lost one.
    inspect,
    /// How an attempt ended.
    outcome_of,
    /// Closes claims whose jobs are all finished.
    close_claims,

    /// Extends the leases of open claims.
    renew,
    /// Which claims are still renewable.
    renewable,

    /// Claims whose lease has run out.
    expired,
    /// Marks one claim expired.
    expire,
    /// Locks the jobs an expired claim still holds.
    lost_jobs,
    /// Puts lost jobs back.
    lost_back,
    /// Ends lost jobs that have no attempt left.
    lost_dead,
    /// What a claim has handed out.
    started,
    /// Puts lost jobs that were begun aside for a person.
    lost_held,
    /// Puts lost jobs that were not begun back, as if they had not been claimed.
    lost_unbegun,

    /// Jobs that hold any of some keys.
    look,
    /// Frees keys whose time is over.
    free_timed,
    /// Creates jobs.
    insert_jobs,
    /// One `{rows}` item of `insert_jobs`.
    insert_jobs_row,
    /// How many of a row of ids belong to the jobs just created.
    made_in_row,
    /// The ids of the jobs just created.
    made,
    /// Jobs created under a token before the connection was lost.
    made_before_loss,
    /// Creates one job on the caller's own connection.
    plan_create,

    /// One whole job.
    job,
    /// Jobs before an id, newest first.
    list_jobs,
    /// Dead jobs before an id, newest first, found through the attempts ledger.
    list_dead,
    /// Held jobs before an id, newest first, found through the attempts ledger.
    list_held,
    /// Puts a dead job back.
    retry_dead,
    /// Takes a claimed job away from its owner and puts it back.
    retry_claimed,
    /// Cancels a job that is not held.
    cancel,
    /// Cancels a job and takes it away from its owner.
    cancel_claimed,
    /// Locks those of some jobs that wait for a person.
    held_jobs,
    /// Held jobs that were sent are done.
    resolve_sent,
    /// Held jobs that were not sent are put back.
    resolve_unsent,
    /// Attempts of one job.
    list_attempts,

    /// How a row of a mapped table left a claim.
    outcome_of_row,
    /// The record of a mapping.
    find_table,
    /// Records a mapping.
    insert_table,
    /// One mapping.
    table_by_id,
    /// All mappings.
    list_tables,
    /// Which of some tokens name open claims.
    open_tokens,
    /// Leaves an expired claim that cannot be recovered for later.
    postpone,

    /// One claim by id or token.
    claim,
    /// Claims before an id, newest first.
    list_claims,
    /// Ends the lease of an open claim.
    end_claim,
    /// Attempts of one claim that did not succeed.
    attempts_of_claim,

    /// Takes a lease that nobody holds; the new fence is the id of the statement, where the database has that.
    take_lease,
    /// Takes a lease that was never held.
    first_lease,
    /// Who holds a lease, by which fence, until when, and whether that is now.
    lease,
    /// Extends a lease of its owner.
    renew_lease,
    /// Puts a deleted lease of its owner back.
    restore_lease,
    /// Gives a lease back.
    release_lease,
    /// All leases.
    list_leases,

    /// Waiting jobs of a lane that are due, up to a limit.
    count_due,
    /// Waiting jobs of a lane that are not due yet, up to a limit.
    count_delayed,
    /// Since when the first due job of a lane waits.
    oldest_due,
    /// Open claims and their jobs.
    open_claims,
    /// How many of a claim's jobs are still held.
    count_claimed,
    /// Dead jobs, up to a limit.
    count_dead,
    /// Held jobs, up to a limit.
    count_held,
    /// All jobs by queue and state: scans the table.
    count_exact,

    /// Finished jobs after an id that are old enough to go.
    prunable_jobs,
    /// Deletes finished jobs.
    prune_jobs,
    /// Ended claims that are old enough to go.
    prunable_claims,
    /// Deletes ended claims.
    prune_claims,
    /// Attempts that are old enough to go.
    prunable_attempts,
    /// Deletes attempts.
    prune_attempts,
}

/// The database's clock as an expression, for the migrations' own bookkeeping.
pub(crate) fn clock(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::MySql => mysql::NOW,
        Flavor::Sqlite => sqlite::NOW,
    }
}

/// The statements of one engine: of jobs and claims, and with `ledger` of leases' siblings.
pub(crate) struct Statements {
    main: Main,
    /// Effects, runs and schedules.
    pub ledger: Ledger,
}

impl std::ops::Deref for Statements {
    type Target = Main;
    fn deref(&self) -> &Main {
        &self.main
    }
}

impl Statements {
    /// The statements of `flavor` for a claim shape, with the table names filled in.
    pub(crate) fn new(flavor: Flavor, shape: ClaimShape, names: &Names) -> Self {
        let (texts, ledger) = match flavor {
            Flavor::MySql => (&mysql::TEXTS, &ledger::mysql::TEXTS),
            Flavor::Sqlite => (&sqlite::TEXTS, &ledger::sqlite::TEXTS),
        };
        let (skip, wait) = match shape {
            ClaimShape::SkipLocked => ("FOR UPDATE SKIP LOCKED", "FOR UPDATE"),
            ClaimShape::TokenUpdate => ("FOR UPDATE", "FOR UPDATE"),
            ClaimShape::Exclusive => ("", ""),
        };
        let fill = |text: &str| names.fill(text).replace("{skip locked}", skip).replace("{lock}", wait).trim_end().to_owned();
        Statements { main: Main::fill(texts, fill), ledger: Ledger::fill(ledger, fill) }
    }

    /// Every statement by name, for the snapshot and EXPLAIN tests.
    #[cfg(feature = "faults")]
    pub(crate) fn all(&self) -> Vec<(&'static str, &str)> {
        [self.main.all(), self.ledger.all()].concat()
    }
}
