//! What claims on jobs and claims on rows of mapped tables share in PHP's hands: handing out, finishing by id or key.
//!
//! The one thing to know: jobs and rows keep the core's claim alive, so it is the last *claim* object that PHP code lets
//! go of that releases what was not started: `break` out of a foreach does it, also while `$job` is still set.

use crate::arguments::{Seconds, error_text};
use crate::exceptions::invalid;
use crate::guard::GuardArguments;
use crate::process::gate;
use ext_php_rs::boxed::ZBox;
use ext_php_rs::error::Result;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendHashTable, Zval};
use rowclaim::blocking::{Claimable, Job};
use rowclaim::{Finish, Outcome};
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// What a claim can hold: jobs by id, rows of a mapped table by key.
pub trait Held: Claimable + Sized {
    /// What it is finished by.
    type Id;

    /// Its own.
    fn id(&self) -> Self::Id;

    /// Finishes some of a claim in one step; one answer an id, in order.
    ///
    /// # Errors
    /// As the core's `finish`.
    fn finish(claim: &rowclaim::blocking::Claim<Self>, ids: &[Self::Id], outcome: &Outcome) -> rowclaim::Result<Vec<Finish>>;

    /// Puts an answer into a PHP array.
    ///
    /// # Errors
    /// When PHP refuses a value.
    fn put(answers: &mut ZendHashTable, id: &Self::Id, is_accepted: bool) -> Result<()>;

    /// The PHP object of one that is handed out.
    ///
    /// # Errors
    /// When PHP refuses it.
    fn object(started: Started<Self>) -> Result<Zval>;
}

/// What all PHP objects of one claim share.
pub struct Handle<R: Held> {
    inner: rowclaim::blocking::Claim<R>,
    /// Places in the claim.
    started: RefCell<HashSet<usize>>,
    /// What was not started is given back with it. Not when the claim is in the hands of `work`.
    is_owner: bool,
}

impl<R: Held> Drop for Handle<R> {
    fn drop(&mut self) {
        if self.is_owner {
            // In a forked child the core refuses; without a database the rows come back when the lease ends.
            let _ = self.inner.release_unstarted();
        }
    }
}

/// A claim as one PHP object knows it.
pub struct Batch<R: Held> {
    handle: Rc<Handle<R>>,
    current: Option<Zval>,
    position: Option<i64>,
}

impl<R: Held> Batch<R> {
    /// A claim for PHP code.
    pub fn new(inner: rowclaim::blocking::Claim<R>) -> Self {
        Batch::again(Rc::new(Handle { inner, started: RefCell::default(), is_owner: true }))
    }

    /// A look at a claim that somebody else hands out, or whose objects PHP code has let go of.
    fn beside(inner: rowclaim::blocking::Claim<R>) -> Self {
        Batch::again(Rc::new(Handle { inner, started: RefCell::default(), is_owner: false }))
    }

    fn again(handle: Rc<Handle<R>>) -> Self {
        Batch { handle, current: None, position: None }
    }

    /// The core's claim.
    pub fn inner(&self) -> &rowclaim::blocking::Claim<R> {
        &self.handle.inner
    }

    /// What was handed out last, or null.
    pub fn current(&self) -> Zval {
        self.current.as_ref().map_or_else(Zval::null, Zval::shallow_clone)
    }

    /// Its position among what was handed out.
    pub fn position(&self) -> Option<i64> {
        self.current.as_ref().and(self.position)
    }

    /// Whether there is one.
    pub fn is_valid(&self) -> bool {
        self.current.is_some()
    }

    /// How many it holds.
    pub fn count(&self) -> i64 {
        i64::try_from(self.inner().len()).unwrap_or(i64::MAX)
    }

    /// Its token as a UUID.
    pub fn token(&self) -> Option<String> {
        self.inner().token().map(|token| token.to_string())
    }

    /// Hands the next one out.
    ///
    /// # Errors
    /// As the core's `next_job`.
    pub fn next(&mut self) -> PhpResult<()> {
        self.current = None;
        let job = gate(|| self.handle.inner.next_job())?;
        self.position = Some(self.position.map_or(0, |position| position + 1));
        if let Some(inner) = job {
            self.handle.started.borrow_mut().insert(inner.index());
            self.current = Some(R::object(Started { inner, handle: Rc::downgrade(&self.handle) })?);
        }
        Ok(())
    }

    /// Hands the first one out.
    ///
    /// # Errors
    /// `InvalidException` when it was started already.
    pub fn rewind(&mut self) -> PhpResult<()> {
        if self.position.is_some() {
            return invalid("a claim is handed out once: it cannot be rewound");
        }
        self.next()
    }

    /// Renews the lease now.
    ///
    /// # Errors
    /// `UnavailableException`.
    pub fn renew(&self) -> PhpResult<bool> {
        gate(|| self.handle.inner.renew())
    }

    fn ids(&self, is_wanted: impl Fn(&Job<R>) -> bool) -> Vec<R::Id> {
        let jobs = (0..self.inner().len()).filter_map(|index| self.inner().job(index));
        jobs.filter(|job| !job.is_finished() && is_wanted(job)).map(|job| job.id()).collect()
    }

    /// What is not finished.
    pub fn open(&self) -> Vec<R::Id> {
        self.ids(|_| true)
    }

    /// What was not handed out.
    pub fn unstarted(&self) -> Vec<R::Id> {
        let started = self.handle.started.borrow();
        self.ids(|job| !started.contains(&job.index()))
    }

    /// Finishes some in one step: an array of id and whether that was accepted.
    ///
    /// # Errors
    /// As the core's `finish`.
    pub fn finish(&self, ids: &[R::Id], outcome: &Outcome) -> PhpResult<ZBox<ZendHashTable>> {
        let finished = gate(|| R::finish(&self.handle.inner, ids, outcome))?;
        Ok(answers::<R>(ids, finished.into_iter().map(|answer| answer == Finish::Accepted).collect())?)
    }
}

/// Answers about some, by id or key.
///
/// # Errors
/// When PHP refuses a value.
pub fn answers<R: Held>(ids: &[R::Id], answers: Vec<bool>) -> Result<ZBox<ZendHashTable>> {
    let mut table = ZendHashTable::new();
    for (id, answer) in ids.iter().zip(answers) {
        R::put(&mut table, id, answer)?;
    }
    Ok(table)
}

/// One job or row that was handed out.
pub struct Started<R: Held> {
    /// The core's.
    pub inner: Job<R>,
    /// The claim's handle, while PHP code holds one.
    handle: Weak<Handle<R>>,
}

impl<R: Held> Started<R> {
    /// One whose claim PHP code does not hold.
    pub fn alone(inner: Job<R>) -> Self {
        Started { inner, handle: Weak::new() }
    }

    /// Leaves the claim; false when it was lost.
    ///
    /// # Errors
    /// `UnavailableException`, `InvalidException`.
    pub fn finish(&self, outcome: &Outcome) -> PhpResult<bool> {
        gate(|| self.inner.finish(outcome)).map(|answer| answer == Finish::Accepted)
    }

    /// Makes a write with the fence of this claim of it; false when a later owner has written before.
    ///
    /// # Errors
    /// As the core's `guard`; `TypeError`.
    pub fn guard(&self, write: GuardArguments) -> PhpResult<bool> {
        let write = write.write()?;
        gate(|| self.inner.guard(&write))
    }

    /// Its claim's token as a UUID.
    pub fn token(&self) -> Option<String> {
        self.inner.token().map(|token| token.to_string())
    }

    /// The claim it belongs to.
    pub fn claim(&self) -> Batch<R> {
        match self.handle.upgrade() {
            Some(handle) => Batch::again(handle),
            None => Batch::beside(self.inner.claim()),
        }
    }
}

/// The outcome of a failure.
///
/// # Errors
/// `InvalidException`, `TypeError`.
pub fn failure(error: &Zval, delay: Option<Seconds>) -> PhpResult<Outcome> {
    let error = error_text(error)?;
    let delay = delay.map(|delay| delay.span("delay")).transpose()?;
    Ok(Outcome::Fail { error, delay })
}

/// The outcome of a failure for good.
///
/// # Errors
/// `TypeError`.
pub fn rejection(error: &Zval) -> PhpResult<Outcome> {
    Ok(Outcome::Reject { error: error_text(error)? })
}

/// The outcome of giving something back.
///
/// # Errors
/// `InvalidException`.
pub fn giving_back(delay: Option<Seconds>) -> PhpResult<Outcome> {
    let delay = delay.map(|delay| delay.span("delay")).transpose()?;
    Ok(Outcome::Release { delay: delay.unwrap_or(Duration::ZERO) })
}
