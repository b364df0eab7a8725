//! `rowclaim jobs`: look at jobs, put dead ones back, take waiting ones out, say what became of held ones.

use crate::fault::{FAILED, Fault, OK, Outcome, exit_code};
use crate::json::{self, JobView};
use crate::progress::Progress;
use crate::{connect, screen, span};
use clap::{Args, Subcommand};
use comfy_table::Cell;
use rowclaim::blocking::Engine;
use rowclaim::{Error, ErrorKind, JobFilter, JobRow, JobState, Resolution};
use std::io;

/// Jobs looked at in one step of `retry --dead`.
const PAGE: usize = 1_000;

/// List, show, retry, cancel and resolve jobs
#[derive(Subcommand)]
pub enum Jobs {
    List(List),
    Show(Show),
    Retry(Retry),
    Cancel(Cancel),
    Resolve(Resolve),
}

/// List jobs, newest first
///
/// With --json, one object a line. For the next page give the last id to --before.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim jobs list --state dead
  rowclaim jobs list --queue mail --limit 1000 --json | jq -r '[.id, .key] | @tsv'")]
pub struct List {
    /// Only of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only in this state: ready, claimed, done, dead, cancelled or held
    #[arg(long, value_parser = state)]
    state: Option<JobState>,
    /// Only ids below this one
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    /// Jobs at most, 1 to 10,000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Show one job with the attempts that did not succeed
#[derive(Args)]
pub struct Show {
    id: i64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Put dead jobs back with all their attempts
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim jobs retry 4711 4712
  rowclaim jobs retry --dead --queue mail
  rowclaim jobs retry 4711 --force            also when a worker holds it: that worker is fenced off")]
pub struct Retry {
    #[arg(required_unless_present = "dead")]
    id: Vec<i64>,
    /// Also a claimed job; its owner's late answer will be refused
    #[arg(long)]
    force: bool,
    /// All dead jobs
    #[arg(long, conflicts_with_all = ["id", "force"])]
    dead: bool,
    /// With --dead: only of this queue
    #[arg(long, requires = "dead")]
    queue: Option<String>,
}

/// Take waiting, dead or held jobs out
#[derive(Args)]
pub struct Cancel {
    #[arg(required = true)]
    id: Vec<i64>,
    /// Also a claimed job; its owner's late answer will be refused
    #[arg(long)]
    force: bool,
}

/// Say of held jobs whether they were sent
///
/// A job is held when it was claimed to be done at most once, and its worker's lease ran out after it was begun. Sent: it is
/// done. Not sent: it is handed out again, and the attempt is not counted.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim jobs list --state held
  rowclaim jobs resolve 4711 4712 --sent
  rowclaim jobs resolve 4713 --not-sent")]
pub struct Resolve {
    #[arg(required = true)]
    id: Vec<i64>,
    #[command(flatten)]
    what: What,
}

/// What became of a row that was begun.
#[derive(Args, Clone, Copy)]
#[group(required = true, multiple = false)]
pub struct What {
    /// It was sent: done
    #[arg(long)]
    sent: bool,
    /// It was not sent: it is handed out again
    #[arg(long)]
    not_sent: bool,
}

impl What {
    pub fn resolution(self) -> Resolution {
        if self.sent { Resolution::Sent } else { Resolution::NotSent }
    }
}

fn state(name: &str) -> Result<JobState, String> {
    JobState::parse(name).map_err(|error| error.to_string())
}

impl Jobs {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        match self {
            Jobs::List(command) => command.run(&connect::engine(dsn)?),
            Jobs::Show(command) => command.run(&connect::engine(dsn)?),
            Jobs::Retry(command) if command.dead => retry_dead(&connect::engine(dsn)?, command.queue.as_deref()),
            Jobs::Retry(command) => change(&connect::engine(dsn)?, &command.id, "retried", |e, id| e.retry(id, command.force)),
            Jobs::Cancel(command) => {
                change(&connect::engine(dsn)?, &command.id, "cancelled", |e, id| e.cancel(id, command.force))
            }
            Jobs::Resolve(command) => resolve(&connect::engine(dsn)?, &command.id, command.what.resolution()),
        }
    }
}

impl List {
    fn run(&self, engine: &Engine) -> Outcome {
        let mut filter = JobFilter::default();
        filter.queue.clone_from(&self.queue);
        filter.state = self.state;
        filter.before = self.before;
        filter.limit = self.limit;
        let jobs = engine.jobs(&filter)?;
        if self.json {
            jobs.iter().try_for_each(|job| json::line(&JobView::from(job)))?;
            return Ok(OK);
        }
        let mut table = screen::table(["id", "queue", "key", "state", "attempts", "created", "due or ended", "last error"]);
        for job in &jobs {
            let attempts = format!("{}/{}", job.attempts, job.max_attempts);
            table.add_row([
                Cell::new(job.id),
                screen::text(&job.queue),
                screen::text(job.key.as_deref().unwrap_or_default()),
                screen::state(job.state),
                Cell::new(attempts),
                Cell::new(span::shown(job.created_at)),
                Cell::new(job.ready_at.or(job.finished_at).map(span::shown).unwrap_or_default()),
                screen::text(&screen::shortened(job.last_error.as_deref().unwrap_or_default(), 60)),
            ]);
        }
        if jobs.is_empty() {
            screen::line("no jobs")?;
        } else {
            screen::show(&table)?;
        }
        Ok(OK)
    }
}

impl Show {
    fn run(&self, engine: &Engine) -> Outcome {
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no job {}", self.id));
        let job = engine.job(self.id)?.ok_or_else(missing)?;
        let attempts = engine.attempts(self.id)?;
        if self.json {
            json::line(&JobView::from(&job).with_attempts(&attempts))?;
            return Ok(OK);
        }
        show_job(&job)?;
        if attempts.is_empty() {
            return Ok(OK);
        }
        screen::line("")?;
        let mut table = screen::table(["fence", "outcome", "worker", "claimed", "ended", "error"]);
        for attempt in &attempts {
            table.add_row([
                Cell::new(attempt.fence),
                screen::text(&attempt.outcome),
                screen::text(&attempt.worker),
                Cell::new(attempt.claimed_at.map(span::shown).unwrap_or_default()),
                Cell::new(span::shown(attempt.ended_at)),
                screen::text(attempt.error.as_deref().unwrap_or_default()),
            ]);
        }
        screen::show(&table)?;
        Ok(OK)
    }
}

fn show_job(job: &JobRow) -> io::Result<()> {
    let mut table = screen::table(["job", &job.id.to_string()]);
    let instant = |at: Option<rowclaim::Timestamp>| at.map(span::shown).unwrap_or_default();
    table.add_row([Cell::new("queue"), screen::text(&job.queue)]);
    table.add_row([Cell::new("key"), screen::text(job.key.as_deref().unwrap_or_default())]);
    table.add_row([Cell::new("state"), screen::state(job.state)]);
    table.add_row([Cell::new("attempts"), Cell::new(format!("{} of {}", job.attempts, job.max_attempts))]);
    table.add_row([Cell::new("leases lost"), Cell::new(job.lost)]);
    table.add_row([Cell::new("fence"), Cell::new(job.fence)]);
    table.add_row([Cell::new("claim"), Cell::new(job.claim_id.map(|id| id.to_string()).unwrap_or_default())]);
    table.add_row([Cell::new("priority"), Cell::new(job.priority)]);
    table.add_row([Cell::new("created"), Cell::new(span::shown(job.created_at))]);
    table.add_row([Cell::new("due"), Cell::new(instant(job.ready_at))]);
    table.add_row([Cell::new("ended"), Cell::new(instant(job.finished_at))]);
    table.add_row([Cell::new("last error"), screen::text(job.last_error.as_deref().unwrap_or_default())]);
    table.add_row([Cell::new("payload"), screen::text(&job.payload)]);
    screen::show(&table)
}

/// Changes jobs one by one, and says what became of each. The code is the first that is not ok.
fn change(engine: &Engine, ids: &[i64], done: &str, verb: impl Fn(&Engine, i64) -> rowclaim::Result<bool>) -> Outcome {
    let mut code = OK;
    for id in ids {
        let answer = match verb(engine, *id) {
            Ok(true) => {
                screen::line(format!("{done} {id}"))?;
                continue;
            }
            Ok(false) => {
                let state = engine.job(*id)?.map_or("gone", |job| job.state.name());
                let hint = match state {
                    "claimed" => "; --force takes it from its worker",
                    "held" => "; rowclaim jobs resolve says whether it was sent",
                    _ => "",
                };
                Fault::Other { kind: ErrorKind::Lost, message: format!("job {id} was not {done}: it is {state}{hint}") }
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Duplicate) => error.into(),
            Err(error) => return Err(error.into()),
        };
        let found = answer.report();
        code = if code == OK { found } else { code };
    }
    Ok(code)
}

/// Resolves jobs in one step, and says what became of each.
fn resolve(engine: &Engine, ids: &[i64], resolution: Resolution) -> Outcome {
    let mut code = OK;
    for (id, resolved) in ids.iter().zip(engine.resolve(ids, resolution)?) {
        if resolved {
            screen::line(format!("resolved {id}"))?;
            continue;
        }
        let fault = match engine.job(*id)? {
            Some(job) => {
                Fault::Other { kind: ErrorKind::Lost, message: format!("job {id} was not resolved: it is {}", job.state.name()) }
            }
            None => Error::new(ErrorKind::NotFound, format!("there is no job {id}")).into(),
        };
        let found = fault.report();
        code = if code == OK { found } else { code };
    }
    Ok(code)
}

fn retry_dead(engine: &Engine, queue: Option<&str>) -> Outcome {
    let progress = Progress::open_ended("retried");
    let mut filter = JobFilter { queue: queue.map(str::to_owned), state: Some(JobState::Dead), before: None, limit: PAGE };
    let (mut retried, mut faults) = (0, 0u64);
    loop {
        let page = engine.jobs(&filter)?;
        for job in &page {
            match engine.retry(job.id, false) {
                Ok(done) => retried += u64::from(done),
                // A newer job holds its key, or it was pruned meanwhile: the others are still to be put back.
                Err(error) if exit_code(error.kind()) != exit_code(ErrorKind::Unavailable) => {
                    progress.say(&format!("error: {}: job {}: {error}", error.kind().name(), job.id));
                    faults += 1;
                }
                Err(error) => return Err(error.into()),
            }
            progress.at(retried);
        }
        filter.before = page.last().map(|job| job.id);
        if page.len() < PAGE {
            break;
        }
    }
    drop(progress);
    screen::line(format!("retried {retried} jobs"))?;
    Ok(if faults > 0 { FAILED } else { OK })
}
