//! `Rowclaim\Claim`: a batch of jobs with one token and one lease, handed out one by one.
//!
//! The one thing to know: jobs keep the core's claim alive, so it is the last *claim* object that PHP code lets go of that
//! releases what was not started: `break` out of a foreach does it, also while `$job` is still set.

use crate::arguments::{Seconds, error_text, ids};
use crate::exceptions::invalid;
use crate::job::Job;
use crate::process::gate;
use ext_php_rs::boxed::ZBox;
use ext_php_rs::convert::IntoZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::{ZendHashTable, Zval};
use ext_php_rs::zend::ce;
use rowclaim::{Finish, Outcome};
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

/// What all PHP objects of one claim share.
pub struct Handle {
    inner: rowclaim::blocking::Claim,
    started: RefCell<HashSet<i64>>,
}

impl Handle {
    fn ids(&self, is_wanted: impl Fn(&rowclaim::blocking::Job) -> bool) -> Vec<i64> {
        let jobs = (0..self.inner.len()).filter_map(|index| self.inner.job(index));
        jobs.filter(|job| !job.is_finished() && is_wanted(job)).map(|job| job.id).collect()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked child the core refuses; without a database the rows come back when the lease ends.
        let _ = self.inner.release_unstarted();
    }
}

/// A batch of jobs.
#[php_class]
#[php(name = "Rowclaim\\Claim", flags = crate::CLASS)]
#[php(implements(ce = ce::iterator, stub = "\\Iterator"))]
#[php(implements(ce = ce::countable, stub = "\\Countable"))]
pub struct Claim {
    handle: Rc<Handle>,
    current: Option<Zval>,
    position: Option<i64>,
}

impl Claim {
    /// A claim for PHP code.
    pub fn new(inner: rowclaim::blocking::Claim) -> Self {
        Claim::again(Rc::new(Handle { inner, started: RefCell::default() }))
    }

    /// Another object for the same claim.
    pub fn again(handle: Rc<Handle>) -> Self {
        Claim { handle, current: None, position: None }
    }

    fn advance(&mut self) -> PhpResult<()> {
        self.current = None;
        let job = gate(|| self.handle.inner.next_job())?;
        self.position = Some(self.position.map_or(0, |position| position + 1));
        if let Some(job) = job {
            self.handle.started.borrow_mut().insert(job.id);
            self.current = Some(Job::new(job, Rc::downgrade(&self.handle)).into_zval(false)?);
        }
        Ok(())
    }

    fn finish(&self, ids: &[i64], outcome: &Outcome) -> PhpResult<ZBox<ZendHashTable>> {
        let answers = gate(|| self.handle.inner.finish(ids, outcome))?;
        let mut table = ZendHashTable::new();
        for (id, answer) in ids.iter().zip(answers) {
            table.insert_at_index(*id, answer == Finish::Accepted)?;
        }
        Ok(table)
    }
}

#[php_impl]
impl Claim {
    /// The job handed out last, or null.
    pub fn current(&self) -> Zval {
        self.current.as_ref().map_or_else(Zval::null, Zval::shallow_clone)
    }

    /// Its position among the jobs handed out, or null.
    pub fn key(&self) -> Option<i64> {
        self.current.as_ref().and(self.position)
    }

    /// Hands the next job out; renews first when the claim is not surely valid any more. Throws as the core's `next_job`.
    pub fn next(&mut self) -> PhpResult<()> {
        self.advance()
    }

    /// Hands the first job out. `InvalidException` when it was started already.
    pub fn rewind(&mut self) -> PhpResult<()> {
        if self.position.is_some() {
            return invalid("a claim is handed out once: it cannot be rewound");
        }
        self.advance()
    }

    /// Whether there is a job handed out.
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }

    /// Jobs in it.
    pub fn count(&self) -> i64 {
        i64::try_from(self.handle.inner.len()).unwrap_or(i64::MAX)
    }

    /// True when nothing waited.
    pub fn is_empty(&self) -> bool {
        self.handle.inner.is_empty()
    }

    /// Id of its row in the claims table.
    #[php(getter)]
    pub fn get_id(&self) -> Option<i64> {
        self.handle.inner.id()
    }

    /// Its token as a UUID.
    #[php(getter)]
    pub fn get_token(&self) -> Option<String> {
        self.handle.inner.token().map(|token| token.to_string())
    }

    /// True once a renewal was refused.
    #[php(getter)]
    pub fn get_lost(&self) -> bool {
        self.handle.inner.is_lost()
    }

    /// For how many seconds it is surely valid.
    #[php(getter)]
    pub fn get_valid_for(&self) -> f64 {
        self.handle.inner.valid_for().as_secs_f64()
    }

    /// Renews the lease now; false when it is lost. Throws `UnavailableException`.
    pub fn renew(&self) -> PhpResult<bool> {
        gate(|| self.handle.inner.renew())
    }

    /// Completes jobs by id, or all that are open. Throws `InvalidException` for another claim's job, `UnavailableException`.
    pub fn complete(&self, ids: Option<&ZendHashTable>) -> PhpResult<ZBox<ZendHashTable>> {
        let wanted = match ids {
            Some(list) => self::ids(list)?,
            None => self.handle.ids(|_| true),
        };
        self.finish(&wanted, &Outcome::Complete)
    }

    /// Fails jobs by id. Throws as `complete`.
    pub fn fail(&self, ids: &ZendHashTable, error: &Zval, delay: Option<Seconds>) -> PhpResult<ZBox<ZendHashTable>> {
        let (ids, error) = (self::ids(ids)?, error_text(error)?);
        let delay = delay.map(|delay| delay.span("delay")).transpose()?;
        self.finish(&ids, &Outcome::Fail { error, delay })
    }

    /// Gives jobs back by id, or all that were not started. Throws as `complete`.
    pub fn release(&self, ids: Option<&ZendHashTable>, delay: Option<Seconds>) -> PhpResult<ZBox<ZendHashTable>> {
        let delay = delay.map(|delay| delay.span("delay")).transpose()?;
        let wanted = match ids {
            Some(list) => self::ids(list)?,
            None => self.handle.ids(|job| !self.handle.started.borrow().contains(&job.id)),
        };
        self.finish(&wanted, &Outcome::Release { delay: delay.unwrap_or(Duration::ZERO) })
    }
}
