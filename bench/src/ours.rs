//! The measured side: what an application does through `rowclaim::blocking::Engine`.

use crate::Result;
use crate::server::payload;
use rowclaim::blocking::{Engine, Handled, WorkRequest};
use rowclaim::{ClaimRequest, Finish, NewJob, Outcome};
use std::time::Instant;

/// Claims and completes batches until nothing waits; how many jobs.
pub fn work_off(engine: &Engine, batch: usize) -> Result<usize> {
    let request = ClaimRequest::new("q").limit(batch);
    let mut jobs = 0;
    loop {
        let claim = engine.claim(&request)?;
        if claim.is_empty() {
            break;
        }
        jobs += claim.complete_all()?.iter().filter(|answer| **answer == Finish::Accepted).count();
    }
    engine.flush()?;
    Ok(jobs)
}

/// The same by `work` with a handler that does nothing, and group finish.
pub fn work_loop(engine: &Engine, batch: usize) -> Result<usize> {
    let mut request = WorkRequest::new(ClaimRequest::new("q").limit(batch));
    request.until_empty = true;
    let summary = engine.work(&request, |_| Handled::As(Outcome::Complete))?;
    Ok(usize::try_from(summary.completed)?)
}

/// Microseconds of `count` claims; each is completed outside of the time.
pub fn time_claims(engine: &Engine, count: usize, limit: usize) -> Result<Vec<f64>> {
    let request = ClaimRequest::new("q").limit(limit);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let since = Instant::now();
        let claim = engine.claim(&request)?;
        times.push(since.elapsed().as_secs_f64() * 1e6);
        if claim.len() != limit {
            return Err(format!("a claim of {limit} got {} jobs", claim.len()).into());
        }
        claim.complete_all()?;
    }
    engine.flush()?;
    Ok(times)
}

/// Jobs for `create_many`, numbered from `first`, with keys or without.
pub fn new_jobs(first: usize, count: usize, with_keys: bool) -> Vec<NewJob> {
    let job = |number| {
        let job = NewJob::new("q", payload(number));
        if with_keys { job.key(format!("order:{number}")) } else { job }
    };
    (first..first + count).map(job).collect()
}
