//! Creating jobs once: look first, insert what is missing, and look again when somebody was faster.

use super::{Engine, Shared};
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Created, JobState, NewJob, Unique};
use crate::plan::create as plan;
use crate::plan::ids::Ids;
use rowclaim_migrations::Flavor;
use std::collections::{BTreeMap, HashMap, HashSet};
use uuid::Uuid;

use crate::plan::create::PlannedStatement;

impl Engine {
    /// Creates one job, or says which one holds its key.
    ///
    /// # Errors
    /// `Invalid` before anything is written; `Schema`; `Unavailable`.
    pub async fn create(&self, job: &NewJob) -> Result<Created> {
        let created = self.create_many(std::slice::from_ref(job)).await.map_err(|e| e.during("create"))?;
        created.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Unexpected, "no answer for the job"))
    }

    /// Creates many jobs; one answer a job, in order. Equal keys within one call are created once.
    ///
    /// Written in chunks of up to 500; each chunk is whole. A repeat of the call after an error creates only what is missing.
    ///
    /// # Errors
    /// `Invalid`, naming the job, before anything is written; `Schema`; `Unavailable`.
    pub async fn create_many(&self, jobs: &[NewJob]) -> Result<Vec<Created>> {
        let max_packet = self.max_packet().await?;
        for (position, job) in jobs.iter().enumerate() {
            job.check(max_packet).map_err(|error| match jobs.len() {
                1 => error,
                _ => Error::new(error.kind(), format!("job {position}: {}", error.message())),
            })?;
        }
        let mut answers = Vec::with_capacity(jobs.len());
        let mut rest = jobs;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(chunk_length(rest, max_packet));
            rest = after;
            answers.extend(self.create_chunk(chunk).await?);
        }
        Ok(answers)
    }

    /// SQL and values that create a job on a connection the application has open, in its own transaction.
    ///
    /// On SQLite that connection must be of the same SQLite library or of another process: two libraries in one process
    /// do not see each other's locks (<https://sqlite.org/howtocorrupt.html>, 2.2.1).
    ///
    /// # Errors
    /// `Invalid`; `Unsupported` for a key with a time and for `run_at`.
    pub async fn plan_create(&self, job: &NewJob) -> Result<PlannedStatement> {
        let work = async {
            job.check(self.max_packet().await?)?;
            if matches!(job.unique, Unique::For(_)) || job.run_at.is_some() {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "plan_create takes delay instead of run_at, and no key with a time",
                ));
            }
            self.run("plan_create", async |shared, statements, _, _| {
                Ok(plan::planned(statements, job, shared.config.max_attempts))
            })
            .await
        };
        work.await.map_err(|e: Error| e.during("plan_create"))
    }

    async fn max_packet(&self) -> Result<usize> {
        self.run("create", async |_, _, session, _| Ok(session.info().max_packet)).await
    }

    async fn create_chunk(&self, jobs: &[NewJob]) -> Result<Vec<Created>> {
        // The token stays the same over all tries: after a lost connection it tells whether the INSERT arrived.
        let token = Uuid::new_v4();
        let mut sent = None;
        self.run("create", async |shared, statements, session, tries| {
            if tries.losses > 0
                && let Some(sent) = &sent
                && let Some(answers) = find_sent(statements, session, jobs, sent, token).await?
            {
                return Ok(answers);
            }
            create_chunk(shared, statements, session, jobs, token, &mut sent).await
        })
        .await
    }
}

/// Which jobs of a chunk an INSERT was sent for, by position.
type Sent = Vec<usize>;

/// How many of the first jobs go into one chunk: by number and by bytes.
fn chunk_length(jobs: &[NewJob], max_packet: usize) -> usize {
    let mut bytes = 0usize;
    let within = jobs.iter().take(plan::ROWS).take_while(|job| {
        bytes = bytes.saturating_add(job.payload.len() + 512);
        bytes < max_packet / 2
    });
    within.count().max(1)
}

async fn find_sent(
    statements: &Statements,
    session: &mut Session,
    jobs: &[NewJob],
    sent: &Sent,
    token: Uuid,
) -> Result<Option<Vec<Created>>> {
    let rows = session.query(&plan::made_before_loss(statements, token)).await?;
    if rows.len() != sent.len() {
        return Ok(None);
    }
    let mut own: HashMap<usize, i64> = HashMap::new();
    for (position, row) in sent.iter().zip(&rows) {
        own.insert(*position, row.int(0)?);
    }
    let held = look(statements, session, jobs).await?;
    answers(jobs, &own, &held).map(Some)
}

async fn create_chunk(
    shared: &Shared,
    statements: &Statements,
    session: &mut Session,
    jobs: &[NewJob],
    token: Uuid,
    sent: &mut Option<Sent>,
) -> Result<Vec<Created>> {
    // Somebody may take a key between look and insert; then the insert is refused as a whole and we look again.
    for _ in 0..20 {
        let held = look(statements, session, jobs).await?;
        let mut seen = HashSet::new();
        let is_missing = |job: &NewJob| job.key.is_none() || (!held.contains_key(&pair_of(job)) && seen.insert(pair_of(job)));
        let missing: Sent = positions(jobs, is_missing);
        if missing.is_empty() {
            return answers(jobs, &HashMap::new(), &held);
        }
        let rows: Vec<&NewJob> = missing.iter().filter_map(|position| jobs.get(*position)).collect();
        *sent = Some(missing.clone());
        let insert = plan::insert(statements, &rows, shared.config.max_attempts, token);
        let ids = match session.execute(&insert).await {
            Ok(executed) if rows.len() == 1 => vec![executed.last_id],
            Ok(executed) => {
                // MySQL names the first id of an INSERT, SQLite the last one.
                let first_id = match shared.flavor() {
                    Flavor::MySql => executed.last_id,
                    Flavor::Sqlite => executed.last_id - rows.len() as i64 + 1,
                };
                made_ids(statements, session, first_id, token, rows.len()).await?
            }
            Err(error) if error.kind() == ErrorKind::Duplicate => continue,
            Err(error) => return Err(error),
        };
        if ids.len() != missing.len() {
            return Err(Error::new(ErrorKind::Unexpected, "some of the jobs just created cannot be found"));
        }
        let own = missing.iter().copied().zip(ids).collect();
        return answers(jobs, &own, &held);
    }
    Err(Error::new(ErrorKind::Contention, "the keys are being created by others all the time"))
}

/// The ids of the jobs of one INSERT, in order.
///
/// They follow each other unless the server steps by more than one (Galera) or other sessions' ids lie between them; that
/// they do is asked for, never taken for granted.
async fn made_ids(statements: &Statements, session: &mut Session, first_id: i64, token: Uuid, count: usize) -> Result<Vec<i64>> {
    let counted = session.query(&plan::made_in_row(statements, first_id, token, count)).await?;
    if counted.first().map_or(Ok(0), |row| row.int(0))? == count as i64 {
        return Ok((first_id..).take(count).collect());
    }
    let made = session.query(&plan::made(statements, first_id, token, count)).await?;
    made.iter().map(|row| row.int(0)).collect()
}

type Held = BTreeMap<(String, String), Created>;

fn pair_of(job: &NewJob) -> (String, String) {
    (job.queue.clone(), job.key.clone().unwrap_or_default())
}

fn positions(jobs: &[NewJob], mut is_wanted: impl FnMut(&NewJob) -> bool) -> Vec<usize> {
    jobs.iter().enumerate().filter(|(_, job)| is_wanted(job)).map(|(position, _)| position).collect()
}

/// Who holds the keys of `jobs`. Keys whose time is over are freed on the way.
async fn look(statements: &Statements, session: &mut Session, jobs: &[NewJob]) -> Result<Held> {
    let mut by_queue: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for job in jobs {
        if let Some(key) = &job.key {
            by_queue.entry(&job.queue).or_default().push(key);
        }
    }
    let mut held = Held::new();
    let mut over = Vec::new();
    for (queue, keys) in by_queue {
        for row in session.query(&plan::look(statements, queue, &keys)).await? {
            let holder = plan::holder(&row)?;
            if holder.is_over {
                over.push(holder.answer.id);
            } else {
                held.insert((queue.to_owned(), holder.key), holder.answer);
            }
        }
    }
    if !over.is_empty() {
        let ids: Ids = over.into_iter().collect();
        session.execute(&ids.statement(&statements.free_timed, vec![], vec![])).await?;
    }
    Ok(held)
}

/// One answer a job: made now, held by another, or the twin of an earlier job of the same call.
fn answers(jobs: &[NewJob], own: &HashMap<usize, i64>, held: &Held) -> Result<Vec<Created>> {
    let mut made: HashMap<(String, String), i64> = HashMap::new();
    let mut answers = Vec::with_capacity(jobs.len());
    for (position, job) in jobs.iter().enumerate() {
        let pair = job.key.is_some().then(|| pair_of(job));
        let answer = match own.get(&position) {
            Some(id) => {
                if let Some(pair) = pair {
                    made.insert(pair, *id);
                }
                Some(Created { id: *id, exists: false, state: JobState::Ready })
            }
            None => pair.and_then(|pair| {
                let twin = made.get(&pair).map(|id| Created { id: *id, exists: true, state: JobState::Ready });
                twin.or_else(|| held.get(&pair).cloned())
            }),
        };
        answers.push(answer.ok_or_else(|| Error::new(ErrorKind::Contention, "a key was freed while it was looked at"))?);
    }
    Ok(answers)
}
