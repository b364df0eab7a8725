//! `rowclaim schedule`: which tasks run by the clock. The pass that runs them is [`tick`]'s.

mod tick;

use crate::fault::{OK, Outcome};
use crate::{connect, json, screen, span};
use clap::{Args, Subcommand};
use comfy_table::{Cell, Color};
use rowclaim::blocking::Engine;
use rowclaim::{Error, ErrorKind, Missed, ScheduleFilter, ScheduleRecord, ScheduleRequest};
use serde::Serialize;
use std::time::Duration;

/// List and change schedules, and run what is due
#[derive(Subcommand)]
pub enum Schedule {
    List(List),
    Set(Set),
    /// Record the slots of a task as skipped until it is resumed
    Pause(Named),
    /// Run the slots of a paused task again, from now on
    Resume(Named),
    /// Ask for a run: the next pass makes it, marked as manual, also when the task is paused
    Run(Named),
    /// Delete a schedule; its history stays
    Remove(Named),
    Tick(tick::Tick),
}

/// List schedules with the next slot and the last run
#[derive(Args)]
pub struct List {
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct Named {
    task: String,
}

/// Record a schedule, or change it
///
/// Safe to repeat at every start: an equal one changes nothing. A changed expression or zone counts from now on. Nothing
/// runs by itself: see `rowclaim schedule tick`.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim schedule set daily-report '0 8 * * *' --zone Asia/Shanghai
  rowclaim schedule set close-orders '*/5 * * * *' --zone UTC --missed once --max-run 4m

CRON has five fields: minute, hour, day, month, day of the week; or six with seconds first. L, W
and # are known. When the clock is set forward, a time that is skipped runs right after; when it
is set back, a time that comes twice runs once.")]
pub struct Set {
    /// 1 to 187 bytes
    task: String,
    /// When, in five fields or six
    cron: String,
    /// The zone the expression is read in: UTC, +08:00, Asia/Shanghai
    #[arg(long, value_name = "ZONE", allow_hyphen_values = true)]
    zone: String,
    /// What is done about slots that nobody ran in time: skip, once (the newest), or all
    #[arg(long, value_name = "POLICY", default_value = "skip", value_parser = missed)]
    missed: Missed,
    /// With --missed all: slots made up for in one pass
    #[arg(long, value_name = "N", default_value_t = 10)]
    cap: u32,
    /// Slots older than this are never made up for
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    catch_up: Option<Duration>,
    /// A slot this late is still on time [default: 90s]
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    grace: Option<Duration>,
    /// A run that is silent for longer is taken for lost; renewed while its process lives [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    lease: Option<Duration>,
    /// A run that takes longer is taken for lost, and its command is ended
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    max_run: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn missed(name: &str) -> Result<Missed, String> {
    Missed::parse(name).map_err(|error| error.to_string())
}

impl Schedule {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        let engine = connect::engine(dsn)?;
        let (task, said) = match self {
            Schedule::List(command) => return command.run(&engine),
            Schedule::Set(command) => return command.run(&engine),
            Schedule::Tick(command) => return command.run(&engine),
            Schedule::Pause(Named { task }) => {
                (task, if engine.pause_schedule(task)? { "is paused" } else { "was paused before" })
            }
            Schedule::Resume(Named { task }) => {
                (task, if engine.resume_schedule(task)? { "runs again" } else { "was not paused" })
            }
            Schedule::Run(Named { task }) => {
                engine.ask_run(task)?;
                (task, "runs in the next pass")
            }
            Schedule::Remove(Named { task }) => {
                if !engine.unschedule(task)? {
                    return Err(Error::new(ErrorKind::NotFound, format!("there is no schedule {task:?}")).into());
                }
                (task, "has no schedule any more")
            }
        };
        screen::line(format!("{} {said}", screen::printable(task)))?;
        Ok(OK)
    }
}

/// A schedule, for programs.
#[derive(Serialize)]
struct View<'a> {
    task: &'a str,
    cron: &'a str,
    zone: &'a str,
    missed: &'a str,
    cap: u32,
    catch_up_seconds: Option<f64>,
    grace_seconds: f64,
    lease_seconds: f64,
    max_run_seconds: Option<f64>,
    accounted_until: String,
    paused_at: Option<String>,
    asked_at: Option<String>,
    next_at: Option<String>,
    last: Option<crate::runs::View<'a>>,
}

impl<'a> From<&'a ScheduleRecord> for View<'a> {
    fn from(record: &'a ScheduleRecord) -> Self {
        let request = &record.request;
        View {
            task: &request.task,
            cron: &request.cron,
            zone: &request.zone,
            missed: request.missed.name(),
            cap: request.cap,
            catch_up_seconds: request.catch_up_for.map(|span| span.as_secs_f64()),
            grace_seconds: request.grace.as_secs_f64(),
            lease_seconds: request.lease.as_secs_f64(),
            max_run_seconds: request.max_run.map(|span| span.as_secs_f64()),
            accounted_until: span::instant(record.accounted_until),
            paused_at: record.paused_at.map(span::instant),
            asked_at: record.asked_at.map(span::instant),
            next_at: record.next_at.map(span::instant),
            last: record.last.as_ref().map(crate::runs::View::from),
        }
    }
}

impl List {
    fn run(&self, engine: &Engine) -> Outcome {
        let schedules = engine.schedules(&ScheduleFilter::default())?;
        if self.json {
            schedules.iter().try_for_each(|record| json::line(&View::from(record)))?;
            return Ok(OK);
        }
        if schedules.is_empty() {
            screen::line("no schedules")?;
            return Ok(OK);
        }
        let mut table = screen::table(["task", "cron", "zone", "missed", "next", "last slot", "last state"]);
        for record in &schedules {
            let request = &record.request;
            let next = match (record.asked_at, record.paused_at, record.next_at) {
                (Some(_), _, _) => Cell::new("asked for").fg(Color::Yellow),
                (_, Some(_), _) => Cell::new("paused").fg(Color::Yellow),
                (_, _, Some(at)) => Cell::new(span::shown(at)),
                (_, _, None) => Cell::new("never"),
            };
            table.add_row([
                screen::text(&request.task),
                screen::text(&request.cron),
                screen::text(&request.zone),
                Cell::new(request.missed.name()),
                next,
                Cell::new(record.last.as_ref().map(|run| span::shown(run.slot)).unwrap_or_default()),
                record.last.as_ref().map_or_else(|| Cell::new(""), |run| screen::word(run.state.name())),
            ]);
        }
        screen::show(&table)?;
        Ok(OK)
    }
}

impl Set {
    fn run(&self, engine: &Engine) -> Outcome {
        let mut request = ScheduleRequest::new(&self.task, &self.cron, &self.zone);
        request.missed = self.missed;
        request.cap = self.cap;
        request.catch_up_for = self.catch_up;
        request.grace = self.grace.unwrap_or(request.grace);
        request.lease = self.lease.unwrap_or(request.lease);
        request.max_run = self.max_run;
        let record = engine.schedule(&request)?;
        if self.json {
            json::line(&View::from(&record))?;
            return Ok(OK);
        }
        let next = match (record.paused_at, record.next_at) {
            (Some(_), _) => "is paused".to_owned(),
            (None, Some(at)) => format!("runs next at {}", span::shown(at)),
            (None, None) => "never comes".to_owned(),
        };
        screen::line(format!("{} {next}", screen::printable(&self.task)))?;
        Ok(OK)
    }
}
