//! Looking at jobs, and what a person may do with one: retry and cancel.

use super::Engine;
use crate::bounds::{check_limit, check_queue};
use crate::error::{Error, ErrorKind, Result};
use crate::job::{Attempt, JobRow, JobState};
use crate::plan::{jobs as plan, plain};
use crate::value::Value;

/// Which jobs to list, newest first.
#[derive(Clone, Debug)]
pub struct JobFilter {
    /// Only of this queue.
    pub queue: Option<String>,
    /// Only in this state. `Dead` and `Held` are found through the attempts ledger; other states walk the primary key.
    pub state: Option<JobState>,
    /// Only ids below this one: the last id of the page before.
    pub before: Option<i64>,
    /// Rows at most, 1 to 10,000.
    pub limit: usize,
}

impl Default for JobFilter {
    fn default() -> Self {
        JobFilter { queue: None, state: None, before: None, limit: 100 }
    }
}

impl Engine {
    /// One job by id.
    ///
    /// # Errors
    /// `Schema`, `Unavailable`.
    pub async fn job(&self, id: i64) -> Result<Option<JobRow>> {
        self.run("job", async |_, statements, session, _| {
            let rows = session.query(&plain(&statements.job, vec![id.into()])).await?;
            rows.into_iter().next().map(plan::job).transpose()
        })
        .await
    }

    /// Jobs, newest first.
    ///
    /// # Errors
    /// `Invalid` for a wrong limit; `Schema`, `Unavailable`.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>> {
        let limit: Value = check_limit("limit", filter.limit)?.into();
        if let Some(queue) = &filter.queue {
            check_queue(queue)?;
        }
        let before = Value::Int(filter.before.unwrap_or(i64::MAX));
        let queue: Value = filter.queue.as_deref().into();
        self.run("jobs", async |_, statements, session, _| {
            let mut values = vec![before.clone(), queue.clone(), queue.clone()];
            let sql = match filter.state {
                Some(JobState::Dead) => &statements.list_dead,
                Some(JobState::Held) => &statements.list_held,
                other => {
                    let state: Value = other.map(JobState::name).into();
                    values.extend([state.clone(), state]);
                    &statements.list_jobs
                }
            };
            values.push(limit.clone());
            session.query(&plain(sql, values)).await?.into_iter().map(plan::job).collect()
        })
        .await
    }

    /// The attempts of a job that did not succeed, oldest first, 1,000 at most.
    ///
    /// # Errors
    /// `Schema`, `Unavailable`.
    pub async fn attempts(&self, job_id: i64) -> Result<Vec<Attempt>> {
        self.run("attempts", async |_, statements, session, _| {
            let rows = session.query(&plain(&statements.list_attempts, vec![job_id.into(), Value::Int(1_000)])).await?;
            rows.iter().map(plan::attempt).collect()
        })
        .await
    }

    /// Puts a dead job back with all its attempts. With `force` also a claimed one, whose owner is fenced off.
    ///
    /// `false` when it does not stand so any more: another person was faster, or a claim has it (and `force` is off). A job in
    /// state `held` is never put back by this: see [`Engine::resolve`].
    ///
    /// # Errors
    /// `NotFound`; `Duplicate` when a newer job holds its key; `Unavailable`.
    pub async fn retry(&self, id: i64, force: bool) -> Result<bool> {
        self.change("retry", id, force, |s| (&s.retry_dead, &s.retry_claimed)).await
    }

    /// Takes a waiting, dead or held job out. With `force` also a claimed one, whose owner is fenced off.
    ///
    /// `false` when it does not stand so any more: it is finished, or a claim has it (and `force` is off).
    ///
    /// # Errors
    /// `NotFound`; `Unavailable`.
    pub async fn cancel(&self, id: i64, force: bool) -> Result<bool> {
        self.change("cancel", id, force, |s| (&s.cancel, &s.cancel_claimed)).await
    }

    async fn change(
        &self,
        operation: &'static str,
        id: i64,
        force: bool,
        sql: impl Fn(&crate::dialect::Statements) -> (&str, &str),
    ) -> Result<bool> {
        let changed = self
            .run(operation, async |_, statements, session, _| {
                let (free, claimed) = sql(statements);
                if session.execute(&plain(free, vec![id.into()])).await?.matched == 1 {
                    return Ok(Some(true));
                }
                if force && session.execute(&plain(claimed, vec![id.into()])).await?.matched == 1 {
                    return Ok(Some(true));
                }
                let rows = session.query(&plain(&statements.job, vec![id.into()])).await?;
                Ok(rows.first().map(|_| false))
            })
            .await?;
        changed.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no job {id}")).during(operation))
    }
}
