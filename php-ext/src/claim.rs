//! `Rowclaim\Claim`: a batch of jobs with one token and one lease, handed out one by one.

use crate::arguments::{Seconds, ids};
use crate::held::{Batch, Held, Started, failure, giving_back, rejection};
use crate::job::Job;
use ext_php_rs::boxed::ZBox;
use ext_php_rs::convert::IntoZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::prelude::*;
use ext_php_rs::types::{ZendHashTable, Zval};
use ext_php_rs::zend::ce;
use rowclaim::{ClaimedJob, Finish, Outcome};

impl Held for ClaimedJob {
    type Id = i64;

    fn id(&self) -> i64 {
        self.id
    }

    fn finish(claim: &rowclaim::blocking::Claim, ids: &[i64], outcome: &Outcome) -> rowclaim::Result<Vec<Finish>> {
        claim.finish(ids, outcome)
    }

    fn put(answers: &mut ZendHashTable, id: &i64, is_accepted: bool) -> ext_php_rs::error::Result<()> {
        answers.insert_at_index(*id, is_accepted)
    }

    fn object(started: Started<Self>) -> ext_php_rs::error::Result<Zval> {
        Job::new(started).into_zval(false)
    }
}

/// A batch of jobs.
#[php_class]
#[php(name = "Rowclaim\\Claim", flags = crate::CLASS)]
#[php(implements(ce = ce::iterator, stub = "\\Iterator"))]
#[php(implements(ce = ce::countable, stub = "\\Countable"))]
pub struct Claim(pub Batch<ClaimedJob>);

#[php_impl]
impl Claim {
    /// The job handed out last, or null.
    pub fn current(&self) -> Zval {
        self.0.current()
    }

    /// Its position among the jobs handed out, or null.
    pub fn key(&self) -> Option<i64> {
        self.0.position()
    }

    /// Hands the next job out; renews first when the claim is not surely valid any more. Throws as the core's `next_job`.
    pub fn next(&mut self) -> PhpResult<()> {
        self.0.next()
    }

    /// Hands the first job out. `InvalidException` when it was started already.
    pub fn rewind(&mut self) -> PhpResult<()> {
        self.0.rewind()
    }

    /// Whether there is a job handed out.
    pub fn valid(&self) -> bool {
        self.0.is_valid()
    }

    /// Jobs in it.
    pub fn count(&self) -> i64 {
        self.0.count()
    }

    /// True when nothing waited.
    pub fn is_empty(&self) -> bool {
        self.0.inner().is_empty()
    }

    /// Id of its row in the claims table.
    #[php(getter)]
    pub fn get_id(&self) -> Option<i64> {
        self.0.inner().id()
    }

    /// Its token as a UUID.
    #[php(getter)]
    pub fn get_token(&self) -> Option<String> {
        self.0.token()
    }

    /// True once a renewal was refused.
    #[php(getter)]
    pub fn get_lost(&self) -> bool {
        self.0.inner().is_lost()
    }

    /// For how many seconds it is surely valid.
    #[php(getter)]
    pub fn get_valid_for(&self) -> f64 {
        self.0.inner().valid_for().as_secs_f64()
    }

    /// Renews the lease now; false when it is lost. Throws `UnavailableException`.
    pub fn renew(&self) -> PhpResult<bool> {
        self.0.renew()
    }

    /// Completes jobs by id, or all that are open. Throws `InvalidException` for another claim's job, `UnavailableException`.
    pub fn complete(&self, ids: Option<&ZendHashTable>) -> PhpResult<ZBox<ZendHashTable>> {
        let wanted = ids.map_or_else(|| Ok(self.0.open()), self::ids)?;
        self.0.finish(&wanted, &Outcome::Complete)
    }

    /// Fails jobs by id. Throws as `complete`.
    pub fn fail(&self, ids: &ZendHashTable, error: &Zval, delay: Option<Seconds>) -> PhpResult<ZBox<ZendHashTable>> {
        self.0.finish(&self::ids(ids)?, &failure(error, delay)?)
    }

    /// Fails jobs by id for good. Throws as `complete`.
    pub fn reject(&self, ids: &ZendHashTable, error: &Zval) -> PhpResult<ZBox<ZendHashTable>> {
        self.0.finish(&self::ids(ids)?, &rejection(error)?)
    }

    /// Gives jobs back by id, or all that were not started. Throws as `complete`.
    pub fn release(&self, ids: Option<&ZendHashTable>, delay: Option<Seconds>) -> PhpResult<ZBox<ZendHashTable>> {
        let outcome = giving_back(delay)?;
        let wanted = ids.map_or_else(|| Ok(self.0.unstarted()), self::ids)?;
        self.0.finish(&wanted, &outcome)
    }
}
