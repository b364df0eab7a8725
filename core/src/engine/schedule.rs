//! Schedules: the plans in the table, and which slot is run next. The time is the database's.
//!
//! A look at a schedule accounts for its slots in order: those that will not be run get their rows, then the next one to run is
//! answered. Looks at the same schedule wait for each other at its row, so each slot gets one row however many look.

use super::{Engine, runs};
use crate::bounds::{MAX_LIMIT, check_limit, check_task};
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::slots::{self, Look, Plan};
use crate::plan::{plain, runs as plan};
use crate::runs::{RunRequest, ScheduleRecord, ScheduleRequest, SkipReason};
use crate::time::Timestamp;
use crate::value::Value;

/// What a schedule wants run now.
pub(crate) struct Wanted {
    pub run: RunRequest,
    /// As the schedule says.
    pub request: ScheduleRequest,
}

/// Which schedules to list.
#[derive(Clone, Debug)]
pub struct ScheduleFilter {
    /// At most so many; 1 to 10,000.
    pub limit: usize,
}

impl Default for ScheduleFilter {
    fn default() -> Self {
        ScheduleFilter { limit: MAX_LIMIT }
    }
}

impl Engine {
    /// Records a schedule, or changes it: repeat it at every start. A changed expression or zone counts from now on; the cursor
    /// and a pause stay otherwise.
    ///
    /// # Errors
    /// `Invalid`, naming the option, for an expression, a zone or a limit that cannot be; `Schema`, `Unavailable`.
    pub async fn schedule(&self, request: &ScheduleRequest) -> Result<ScheduleRecord> {
        let plan = request.check().map_err(|e| e.during("schedule"))?;
        let values = plan::schedule_values(request);
        let changed: Vec<Value> = values.iter().take(2).chain(&values).cloned().collect();
        self.run("schedule", async |_, statements, session, _| {
            let task = request.task.as_str();
            match find(statements, session, task).await? {
                Some((record, _)) if record.request == *request => {}
                Some(_) => drop(session.execute(&plain(&statements.ledger.change_schedule, changed.clone())).await?),
                None => match session.execute(&plain(&statements.ledger.insert_schedule, values.clone())).await {
                    Err(error) if error.kind() == ErrorKind::Duplicate => {
                        return Err(Error::new(ErrorKind::Contention, "another process has recorded the schedule"));
                    }
                    other => drop(other?),
                },
            }
            let found = find(statements, session, task).await?;
            let (record, now) = found.ok_or_else(|| Error::new(ErrorKind::Contention, "the schedule was deleted just now"))?;
            filled(statements, session, record, &plan, now).await
        })
        .await
    }

    /// Deletes a schedule; its history stays. `false` when there was none.
    ///
    /// # Errors
    /// `Invalid` for a wrong name; `Schema`, `Unavailable`.
    pub async fn unschedule(&self, task: &str) -> Result<bool> {
        check_task(task).map_err(|e| e.during("unschedule"))?;
        self.run("unschedule", async |_, statements, session, tries| {
            let deleted = session.execute(&plain(&statements.ledger.delete_schedule, vec![task.into()])).await?.matched == 1;
            Ok(deleted || tries.losses > 0)
        })
        .await
    }

    /// Schedules in the order of their names, each with its next slot and its last run.
    ///
    /// # Errors
    /// `Invalid` for a wrong limit; `Schema`, `Unavailable`.
    pub async fn schedules(&self, filter: &ScheduleFilter) -> Result<Vec<ScheduleRecord>> {
        let limit: Value = check_limit("limit", filter.limit).map_err(|e| e.during("schedules"))?.into();
        self.run("schedules", async |_, statements, session, _| {
            runs::lose_all(statements, session).await?;
            let mut records = Vec::new();
            for row in session.query(&plain(&statements.ledger.list_schedules, vec![limit.clone()])).await? {
                let (record, now) = plan::schedule(&row)?;
                let plan = Plan::parse(&record.request.cron, &record.request.zone)?;
                records.push(filled(statements, session, record, &plan, now).await?);
            }
            Ok(records)
        })
        .await
    }

    /// Stops a schedule: its slots are recorded as skipped until it is resumed. `false` when it is paused already.
    ///
    /// # Errors
    /// `NotFound`; `Schema`, `Unavailable`.
    pub async fn pause_schedule(&self, task: &str) -> Result<bool> {
        self.change_schedule("pause", task, async |statements, session| {
            Ok(session.execute(&plain(&statements.ledger.pause_schedule, vec![task.into()])).await?.matched == 1)
        })
        .await
    }

    /// Starts a paused schedule again; slots that came meanwhile are recorded as skipped. `false` when it was not paused.
    ///
    /// # Errors
    /// `NotFound`; `Schema`, `Unavailable`.
    pub async fn resume_schedule(&self, task: &str) -> Result<bool> {
        self.wanted(task, true).await.map_err(|e| e.during("resume"))?;
        self.change_schedule("resume", task, async |statements, session| {
            Ok(session.execute(&plain(&statements.ledger.resume_schedule, vec![task.into()])).await?.matched == 1)
        })
        .await
    }

    /// Asks for a run at once: the next look at the schedule makes it, marked as manual, also when it is paused.
    ///
    /// # Errors
    /// `NotFound`; `Schema`, `Unavailable`.
    pub async fn ask_run(&self, task: &str) -> Result<()> {
        self.change_schedule("run", task, async |statements, session| {
            Ok(session.execute(&plain(&statements.ledger.ask_schedule, vec![task.into()])).await?.matched == 1)
        })
        .await
        .map(drop)
    }

    async fn change_schedule(
        &self,
        operation: &'static str,
        task: &str,
        mut change: impl AsyncFnMut(&Statements, &mut Session) -> Result<bool>,
    ) -> Result<bool> {
        check_task(task).map_err(|e| e.during(operation))?;
        let changed = self
            .run(operation, async |_, statements, session, _| {
                if change(statements, session).await? {
                    return Ok(Some(true));
                }
                Ok(find(statements, session, task).await?.map(|_| false))
            })
            .await?;
        changed.ok_or_else(|| none(task).during(operation))
    }

    /// The next slot of a schedule that is to be run; those before it have their rows then. With `is_away`, slots that are due
    /// are recorded as disabled when the schedule is paused, and nothing is answered.
    ///
    /// # Errors
    /// `NotFound`; `Schema`, `Unavailable`.
    pub(crate) async fn wanted(&self, task: &str, is_away: bool) -> Result<Option<Wanted>> {
        check_task(task)?;
        self.run("run_due", async |shared, statements, session, _| {
            session.begin().await?;
            let rows = session.query(&plain(&statements.ledger.lock_schedule, vec![task.into()])).await?;
            let (record, now) = rows.first().map(plan::schedule).transpose()?.ok_or_else(|| none(task))?;
            let request = record.request;
            if is_away && record.paused_at.is_none() {
                session.rollback().await?;
                return Ok(None);
            }
            let run = |slot, is_manual| RunRequest {
                task: request.task.clone(),
                slot,
                lease: request.lease,
                max_run: request.max_run,
                is_manual,
            };
            if let Some(asked_at) = record.asked_at
                && !is_away
            {
                session.rollback().await?;
                return Ok(Some(Wanted { run: run(asked_at, true), request: request.clone() }));
            }
            let plan = Plan::parse(&request.cron, &request.zone)?;
            let due = slots::due(
                &plan,
                &Look {
                    accounted_until: record.accounted_until,
                    now,
                    is_paused: record.paused_at.is_some(),
                    missed: request.missed,
                    catch_up_for: request.catch_up_for,
                    grace: request.grace,
                },
            );
            let reason = if record.paused_at.is_some() { SkipReason::Disabled } else { SkipReason::Missed };
            for skipped in &due.skipped {
                let slot: Value = skipped.slot.into();
                let worker = shared.worker.as_str();
                let values =
                    vec![task.into(), slot.clone(), reason.name().into(), skipped.slots.into(), worker.into(), task.into(), slot];
                session.execute(&plain(&statements.ledger.insert_skipped_once, values)).await.map_err(again)?;
            }
            if let Some(until) = due.accounted_until {
                account(statements, session, task, until).await?;
            }
            session.commit().await?;
            Ok(due.slot.map(|slot| Wanted { run: run(slot, false), request: request.clone() }))
        })
        .await
    }

    /// Says that the slot of a run has its row.
    ///
    /// # Errors
    /// `Schema`, `Unavailable`; the next look finds the row.
    pub(crate) async fn accounted(&self, run: &RunRequest) -> Result<()> {
        self.run("run_due", async |_, statements, session, _| {
            if run.is_manual {
                let values = vec![run.task.as_str().into(), run.slot.into()];
                return session.execute(&plain(&statements.ledger.clear_asked, values)).await.map(drop);
            }
            account(statements, session, &run.task, run.slot).await
        })
        .await
    }
}

fn none(task: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no schedule {task:?}"))
}

/// A row that another process wrote just now.
fn again(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Duplicate => Error::new(ErrorKind::Contention, "another process has recorded the same slot"),
        _ => error,
    }
}

async fn account(statements: &Statements, session: &mut Session, task: &str, until: Timestamp) -> Result<()> {
    let values = vec![until.into(), task.into(), until.into()];
    session.execute(&plain(&statements.ledger.account_schedule, values)).await.map(drop)
}

async fn find(statements: &Statements, session: &mut Session, task: &str) -> Result<Option<(ScheduleRecord, Timestamp)>> {
    let rows = session.query(&plain(&statements.ledger.schedule, vec![task.into()])).await?;
    rows.first().map(plan::schedule).transpose()
}

/// With the next slot and the last run.
async fn filled(
    statements: &Statements,
    session: &mut Session,
    mut record: ScheduleRecord,
    plan: &Plan,
    now: Timestamp,
) -> Result<ScheduleRecord> {
    record.next_at = if record.paused_at.is_some() { None } else { plan.next_after(now) };
    let rows = session.query(&plain(&statements.ledger.last_run, vec![record.request.task.as_str().into()])).await?;
    record.last = rows.first().map(plan::run).transpose()?;
    Ok(record)
}
