//! Runs of tasks: each planned time at most once, two of the same task never at once.
//!
//! *Not twice for the same slot* is a unique row; *not two at once* is the lease `run:` and the task's name. Both are taken in
//! one transaction, so that whoever finds the lease held also finds the row it is held for.

use super::lease::{Busy, LeaseRequest, LeaseState, Place, take};
use super::{Engine, Shared};
use crate::bounds::{check_limit, check_task};
use crate::claim::Finish;
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::finish::stored_error;
use crate::plan::{plain, runs as plan};
use crate::runs::{RunRecord, RunRequest, RunState, SkipReason};
use crate::time::{Timestamp, boottime};
use crate::validity::Validity;
use crate::value::{Row, Value};
use std::sync::Arc;
use uuid::Uuid;

/// What [`Engine::begin_run`] found.
pub(crate) enum Started {
    /// It is ours to run.
    Ours(Hold),
    /// The slot has had its run, or it goes on elsewhere.
    Already(RunRecord),
    /// Not now: an earlier run goes on. Recorded, when asked for.
    Busy(Option<RunRecord>),
}

/// A run in its process's hands.
#[derive(Debug)]
pub(crate) struct Hold {
    pub id: i64,
    pub request: RunRequest,
    pub lease: Arc<LeaseState>,
}

/// The lease of a task.
pub(crate) fn lease_name(task: &str) -> String {
    format!("run:{task}")
}

impl Engine {
    /// Begins the run of a slot. A slot that finds the task busy is recorded as skipped when `records_busy`; otherwise it waits
    /// for its turn, and then a person's run too is made once for each slot: several passes may have seen the same wish.
    ///
    /// # Errors
    /// `Invalid` for a wrong task or lease; `Schema`, `Unavailable`.
    pub(crate) async fn begin_run(&self, request: &RunRequest, records_busy: bool) -> Result<Started> {
        request.check().map_err(|e| e.during("run_slot"))?;
        let token = Uuid::new_v4();
        let started = boottime();
        let begun = self
            .run("run_slot", async |shared, statements, session, tries| {
                let was_cut_off = tries.losses > 0;
                let begin = Begin { shared, statements, request, token, records_busy, was_cut_off };
                begin.step(session).await
            })
            .await?;
        let (id, fence) = match begun {
            Step::Ours(id, fence) => (id, fence),
            Step::Already(record) => return Ok(Started::Already(record)),
            Step::Busy(record) => return Ok(Started::Busy(record)),
        };
        let lease = Arc::new(LeaseState {
            name: lease_name(&request.task),
            owner: token,
            fence,
            holder: self.shared.worker.clone(),
            place: Place::Leases,
            validity: Validity::new(request.lease, request.max_run, started),
        });
        if self.shared.config.heartbeat {
            self.shared.background()?.watch_lease(&lease);
        }
        Ok(Started::Ours(Hold { id, request: request.clone(), lease }))
    }

    /// Ends a run: with an error it has failed. `Lost` when it was taken for lost before; nothing is changed then.
    ///
    /// # Errors
    /// `Unavailable`; the run counts as lost when its lease ends.
    pub(crate) async fn finish_run(&self, run: &Hold, error: Option<&str>) -> Result<Finish> {
        let state = if error.is_some() { RunState::Failed } else { RunState::Succeeded };
        let lease = &run.lease;
        let owner: Value = lease.owner.as_bytes().as_slice().into();
        let finished = self
            .run("finish", async |_, statements, session, _| {
                let values = vec![state.name().into(), error.map(stored_error).into(), run.id.into(), owner.clone()];
                session.begin().await?;
                let matched = session.execute(&plain(&statements.ledger.finish_run, values)).await?.matched;
                let values = vec![lease.name.as_str().into(), owner.clone(), lease.fence.into()];
                session.execute(&plain(&statements.release_lease, values)).await?;
                session.commit().await?;
                if matched == 1 {
                    return Ok(Finish::Accepted);
                }
                let rows = session.query(&plain(&statements.ledger.run, vec![run.id.into()])).await?;
                let Some(row) = rows.first() else { return Ok(Finish::Lost) };
                Ok(if plan::run(row)?.state == state { Finish::Accepted } else { Finish::Lost })
            })
            .await;
        if let Some(background) = self.shared.background.get() {
            background.forget_lease(lease);
        }
        lease.set_lost();
        finished
    }

    /// The history, newest first.
    ///
    /// # Errors
    /// `Invalid` for a wrong limit; `Schema`, `Unavailable`.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRecord>> {
        let limit: Value = check_limit("limit", filter.limit).map_err(|e| e.during("runs"))?.into();
        self.run("runs", async |_, statements, session, _| {
            lose_all(statements, session).await?;
            let state: Value = filter.state.map(RunState::name).into();
            let task: Value = filter.task.as_deref().into();
            let before = Value::Int(filter.before.unwrap_or(i64::MAX));
            let values = vec![before, task.clone(), task, state.clone(), state, limit.clone()];
            session.query(&plain(&statements.ledger.list_runs, values)).await?.iter().map(plan::run).collect()
        })
        .await
    }

    /// One run by its number.
    ///
    /// # Errors
    /// `NotFound`; `Schema`, `Unavailable`.
    pub async fn run_record(&self, id: i64) -> Result<RunRecord> {
        let found = self
            .run("runs", async |_, statements, session, _| {
                let rows = session.query(&plain(&statements.ledger.run, vec![id.into()])).await?;
                rows.first().map(plan::run).transpose()
            })
            .await?;
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no run {id}")).during("runs"))
    }

    /// The run of a slot, without what people ran again.
    ///
    /// # Errors
    /// `Invalid` for a wrong task; `Schema`, `Unavailable`.
    pub async fn run_of_slot(&self, task: &str, slot: Timestamp) -> Result<Option<RunRecord>> {
        check_task(task).map_err(|e| e.during("runs"))?;
        self.run("runs", async |_, statements, session, _| Ok(find(statements, session, task, slot, 0).await?.map(|(r, _)| r)))
            .await
    }
}

/// Which runs are listed.
#[derive(Clone, Debug)]
pub struct RunFilter {
    /// Only of this task.
    pub task: Option<String>,
    /// Only of this state.
    pub state: Option<RunState>,
    /// Only those before this id.
    pub before: Option<i64>,
    /// At most so many; 1 to 10,000.
    pub limit: usize,
}

impl Default for RunFilter {
    fn default() -> Self {
        RunFilter { task: None, state: None, before: None, limit: 100 }
    }
}

async fn find(
    statements: &Statements,
    session: &mut Session,
    task: &str,
    slot: Timestamp,
    rerun: i64,
) -> Result<Option<(RunRecord, Option<Uuid>)>> {
    let rows = session.query(&plain(&statements.ledger.run_of_slot, vec![task.into(), slot.into(), rerun.into()])).await?;
    rows.first().map(|row| Ok((plan::run(row)?, plan::token(row)?))).transpose()
}

/// One try to begin a run.
struct Begin<'a> {
    shared: &'a Shared,
    statements: &'a Statements,
    request: &'a RunRequest,
    token: Uuid,
    records_busy: bool,
    /// What an earlier try wrote is unknown.
    was_cut_off: bool,
}

enum Step {
    Ours(i64, i64),
    Already(RunRecord),
    Busy(Option<RunRecord>),
}

impl Begin<'_> {
    async fn step(&self, session: &mut Session) -> Result<Step> {
        let RunRequest { task, slot, .. } = self.request;
        let mut rerun = 0;
        if self.request.is_manual && self.records_busy {
            if self.was_cut_off
                && let Some(ours) = self.ours(session).await?
            {
                return Ok(ours);
            }
            let rows = session.query(&plain(&self.statements.ledger.reruns, vec![task.as_str().into(), (*slot).into()])).await?;
            rerun = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(-1) + 1;
        } else if let Some((record, token)) = find(self.statements, session, task, *slot, 0).await? {
            return match record.fence {
                Some(fence) if token == Some(self.token) => Ok(Step::Ours(record.id, fence)),
                _ => self.already(session, record).await,
            };
        }
        session.begin().await?;
        let lease = LeaseRequest::new(lease_name(task), self.request.lease);
        let taken = take(self.shared, self.statements, session, &lease, self.token, &self.shared.worker).await?;
        let fence = match taken {
            Ok(fence) => fence,
            Err(Busy { .. }) => {
                session.rollback().await?;
                return self.busy(session, rerun).await;
            }
        };
        let values = vec![
            task.as_str().into(),
            (*slot).into(),
            rerun.into(),
            i64::from(self.request.is_manual).into(),
            self.token.as_bytes().as_slice().into(),
            fence.into(),
            self.shared.worker.as_str().into(),
        ];
        let id = match session.execute(&plain(&self.statements.ledger.insert_run, values)).await {
            Ok(executed) => executed.last_id,
            Err(error) if error.kind() == ErrorKind::Duplicate => {
                // Somebody was faster: the next look finds the row.
                return Err(Error::new(ErrorKind::Contention, "another process has begun the same slot"));
            }
            Err(error) => return Err(error),
        };
        let values = vec![task.as_str().into(), fence.into()];
        let lost = session.execute(&plain(&self.statements.ledger.lose_earlier_runs, values)).await?.matched;
        session.commit().await?;
        if lost > 0 {
            log::warn!("{task}: an earlier run was lost");
        }
        Ok(Step::Ours(id, fence))
    }

    /// The row that an earlier try of this begin has made; others may have found the task busy meanwhile, in rows after it.
    async fn ours(&self, session: &mut Session) -> Result<Option<Step>> {
        let RunRequest { task, slot, .. } = self.request;
        let values = vec![task.as_str().into(), (*slot).into(), self.token.as_bytes().as_slice().into()];
        let rows = session.query(&plain(&self.statements.ledger.run_of_token, values)).await?;
        rows.first().map(|row| Ok(Step::Ours(row.int(0)?, row.int(1)?))).transpose()
    }

    /// The slot has a run. One whose process has gone silent is lost, and written down as that before it is shown.
    async fn already(&self, session: &mut Session, record: RunRecord) -> Result<Step> {
        if record.state != RunState::Started
            || session.execute(&plain(&self.statements.ledger.lose_run, vec![record.id.into()])).await?.matched == 0
        {
            return Ok(Step::Already(record));
        }
        let rows = session.query(&plain(&self.statements.ledger.run, vec![record.id.into()])).await?;
        Ok(Step::Already(rows.first().map(plan::run).transpose()?.unwrap_or(record)))
    }

    /// The task is busy: perhaps with this very slot.
    async fn busy(&self, session: &mut Session, rerun: i64) -> Result<Step> {
        let RunRequest { task, slot, is_manual, .. } = self.request;
        if !is_manual && let Some((record, _)) = find(self.statements, session, task, *slot, 0).await? {
            return self.already(session, record).await;
        }
        if !self.records_busy {
            return Ok(Step::Busy(None));
        }
        let values = vec![
            task.as_str().into(),
            (*slot).into(),
            rerun.into(),
            i64::from(*is_manual).into(),
            SkipReason::Busy.name().into(),
            self.shared.worker.as_str().into(),
        ];
        match session.execute(&plain(&self.statements.ledger.insert_skipped, values)).await {
            Ok(_) => Ok(Step::Busy(find(self.statements, session, task, *slot, rerun).await?.map(|(record, _)| record))),
            Err(error) if error.kind() == ErrorKind::Duplicate => {
                Err(Error::new(ErrorKind::Contention, "another process has recorded the same slot"))
            }
            Err(error) => Err(error),
        }
    }
}

/// Runs looked at in one pass.
const RUNS_A_PASS: i64 = 100;

/// Marks runs whose lease is over as lost; how many.
pub(super) async fn lose_all(statements: &Statements, session: &mut Session) -> Result<u64> {
    let mut lost = 0;
    loop {
        let rows = session.query(&plain(&statements.ledger.lapsed_runs, vec![RUNS_A_PASS.into()])).await?;
        let ids: Vec<i64> = rows.iter().map(|row: &Row| row.int(0)).collect::<Result<_>>()?;
        for id in &ids {
            lost += session.execute(&plain(&statements.ledger.lose_run, vec![(*id).into()])).await?.matched;
        }
        if ids.len() < RUNS_A_PASS as usize {
            return Ok(lost);
        }
    }
}
