//! The jobs of the demo: refused over strangers' work, created in bulk, counted, and cleaned away.

use super::recipients::Recipient;
use crate::fault::Fault;
use crate::progress::Progress;
use rowclaim::blocking::Engine;
use rowclaim::{ClaimRequest, JobFilter, JobRow, JobState, MAX_LIMIT, NewJob, PruneRequest};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

pub const QUEUE: &str = "demo";
/// Keys start with it; a job of the queue with another key is somebody else's.
const KEY: &str = "demo:";
/// Jobs given to one `create_many`, between two steps of the progress bar.
const CHUNK: usize = 1_000;
const PAGE: usize = 10_000;

/// One bulk send.
pub struct Campaign {
    pub engine: Engine,
    people: Vec<Recipient>,
}

/// What the two rounds of creation answered.
#[derive(Clone, Copy)]
pub struct Creation {
    pub created: u64,
    /// Created by the second round: must be none.
    pub created_again: u64,
}

impl Campaign {
    /// Makes the tables and looks that nobody else works in them. What an earlier demo left behind is cleaned away.
    pub fn prepare(dsn: &str, prefix: &str, people: Vec<Recipient>) -> Result<Self, Fault> {
        let engine = Engine::connect(dsn)?;
        engine.migrate()?;
        let stats = engine.stats(false)?;
        if stats.open_claims > stats.expired_claims {
            return Err(Fault::config(format!(
                "workers are at work on the tables {prefix}*; wait for them, or name another --prefix"
            )));
        }
        let campaign = Campaign { engine, people };
        // Finished jobs of others too: cleaning up deletes whatever has ended.
        if let Some(job) = campaign.find_stranger()? {
            return Err(Fault::config(format!(
                "the tables {prefix}* hold a job ({job}) that is not the demo's; name another --prefix"
            )));
        }
        campaign.clean()?;
        Ok(campaign)
    }

    pub fn len(&self) -> usize {
        self.people.len()
    }

    pub fn recipients(&self) -> impl Iterator<Item = &str> {
        self.people.iter().map(|person| person.name.as_str())
    }

    /// Creates one job a recipient, twice.
    pub fn create(&self, interrupted: &AtomicBool) -> Result<Creation, Fault> {
        let created = self.create_all("creating", interrupted)?;
        let created_again = self.create_all("once more", interrupted)?;
        Ok(Creation { created, created_again })
    }

    fn create_all(&self, label: &'static str, interrupted: &AtomicBool) -> Result<u64, Fault> {
        let progress = Progress::new(label, self.people.len() as u64);
        let (mut asked, mut created) = (0, 0);
        for chunk in self.people.chunks(CHUNK) {
            if interrupted.load(Relaxed) {
                break;
            }
            let jobs: Vec<NewJob> =
                chunk.iter().map(|person| NewJob::new(QUEUE, &person.payload).key(format!("{KEY}{}", person.name))).collect();
            created += self.engine.create_many(&jobs)?.iter().filter(|answer| !answer.exists).count() as u64;
            asked += chunk.len() as u64;
            progress.at(asked);
        }
        Ok(created)
    }

    /// Jobs that wait or are held; reads the whole table.
    pub fn unfinished(&self) -> Result<u64, Fault> {
        let stats = self.engine.stats(true)?;
        let queue = stats.queues.iter().find(|queue| queue.queue == QUEUE);
        let Some(counts) = queue.and_then(|queue| queue.exact.as_ref()) else { return Ok(0) };
        let count = |state: JobState| counts.get(state.name()).copied().unwrap_or(0);
        Ok(count(JobState::Ready) + count(JobState::Claimed))
    }

    /// All jobs, or those in one state.
    pub fn jobs(&self, state: Option<JobState>) -> Result<Vec<JobRow>, Fault> {
        let mut jobs = Vec::new();
        self.pages(state, |page| {
            jobs.extend(page);
            true
        })?;
        Ok(jobs)
    }

    fn find_stranger(&self) -> Result<Option<i64>, Fault> {
        let mut found = None;
        self.pages(None, |page| {
            found = page.iter().find(|job| !is_ours(job)).map(|job| job.id);
            found.is_none()
        })?;
        Ok(found)
    }

    /// Hands out jobs, newest first, until `look` has seen enough.
    fn pages(&self, state: Option<JobState>, mut look: impl FnMut(Vec<JobRow>) -> bool) -> Result<(), Fault> {
        let mut filter = JobFilter { state, limit: PAGE, ..JobFilter::default() };
        loop {
            let page = self.engine.jobs(&filter)?;
            let is_last = page.len() < PAGE;
            filter.before = page.last().map(|job| job.id);
            if !look(page) || is_last {
                return Ok(());
            }
        }
    }

    /// Takes out what is unfinished and deletes the rows.
    pub fn clean(&self) -> Result<(), Fault> {
        self.engine.recover()?;
        // What is due goes in bulk; what is held or delayed is little, and goes one by one.
        loop {
            let claim = self.engine.claim(&ClaimRequest::new(QUEUE).limit(MAX_LIMIT))?;
            if claim.is_empty() {
                break;
            }
            claim.complete_all()?;
        }
        for state in [JobState::Ready, JobState::Claimed] {
            for job in self.jobs(Some(state))? {
                self.engine.cancel(job.id, true)?;
            }
        }
        self.engine.flush()?;
        self.engine.prune(PruneRequest { pause: Duration::ZERO, ..PruneRequest::new(Duration::ZERO) }, |_| ())?;
        Ok(())
    }
}

/// The recipient of one of the demo's own jobs.
pub fn recipient(job: &JobRow) -> Option<&str> {
    job.key.as_deref().filter(|_| job.queue == QUEUE)?.strip_prefix(KEY)
}

fn is_ours(job: &JobRow) -> bool {
    recipient(job).is_some()
}
