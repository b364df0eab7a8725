//! `rowclaim runs`: the planned times of tasks, and what became of each.

use crate::fault::{OK, Outcome};
use crate::{connect, json, screen, span};
use clap::{Args, Subcommand};
use comfy_table::Cell;
use rowclaim::blocking::Engine;
use rowclaim::{RunFilter, RunRecord, RunState};
use serde::Serialize;

/// List runs of tasks
#[derive(Subcommand)]
pub enum Runs {
    List(List),
}

/// List runs and skipped slots, newest first
///
/// A slot is the planned time of a task; each has one row, and those that a person had run again have more. With --json,
/// one object a line. For the next page give the last id to --before.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim runs list --task daily-report
  rowclaim runs list --state failed
  rowclaim runs list --state skipped --json | jq -r '[.task, .slot, .reason] | @tsv'

Reasons of skipped slots: busy (an earlier run was still going on), missed (nobody looked in time),
disabled (the schedule was paused). Where ×N follows, the row stands for N slots.")]
pub struct List {
    /// Only of this task
    #[arg(long)]
    task: Option<String>,
    /// Only in this state: started, succeeded, failed, lost or skipped
    #[arg(long, value_parser = state)]
    state: Option<RunState>,
    /// Only ids below this one
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    /// Runs at most, 1 to 10,000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

fn state(name: &str) -> Result<RunState, String> {
    RunState::parse(name).map_err(|error| error.to_string())
}

impl Runs {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        match self {
            Runs::List(command) => command.run(&connect::engine(dsn)?),
        }
    }
}

/// A run, for programs.
#[derive(Serialize)]
pub struct View<'a> {
    id: i64,
    task: &'a str,
    slot: String,
    state: &'a str,
    reason: Option<&'a str>,
    slots: i64,
    is_manual: bool,
    rerun: i64,
    fence: Option<i64>,
    worker: &'a str,
    started_at: String,
    finished_at: Option<String>,
    seconds: Option<f64>,
    error: Option<&'a str>,
}

impl<'a> From<&'a RunRecord> for View<'a> {
    fn from(run: &'a RunRecord) -> Self {
        View {
            id: run.id,
            task: &run.task,
            slot: span::instant(run.slot),
            state: run.state.name(),
            reason: run.reason.map(rowclaim::SkipReason::name),
            slots: run.slots,
            is_manual: run.is_manual,
            rerun: run.rerun,
            fence: run.fence,
            worker: &run.worker,
            started_at: span::instant(run.started_at),
            finished_at: run.finished_at.map(span::instant),
            seconds: run.duration().map(|span| span.as_secs_f64()),
            error: run.error.as_deref(),
        }
    }
}

impl List {
    fn run(&self, engine: &Engine) -> Outcome {
        let filter = RunFilter { task: self.task.clone(), state: self.state, before: self.before, limit: self.limit as usize };
        let runs = engine.runs(&filter)?;
        if self.json {
            runs.iter().try_for_each(|run| json::line(&View::from(run)))?;
            return Ok(OK);
        }
        if runs.is_empty() {
            screen::line("no runs")?;
            return Ok(OK);
        }
        let mut table = screen::table(["id", "task", "slot", "state", "reason", "manual", "took", "worker", "error"]);
        for run in &runs {
            let mut reason = run.reason.map_or_else(String::new, |reason| reason.name().to_owned());
            if run.slots > 1 {
                reason += &format!(" ×{}", run.slots);
            }
            table.add_row([
                Cell::new(run.id),
                screen::text(&run.task),
                Cell::new(span::shown(run.slot)),
                screen::word(run.state.name()),
                Cell::new(reason),
                Cell::new(if run.is_manual { "manual" } else { "" }),
                Cell::new(run.duration().map(span::human).unwrap_or_default()),
                screen::text(&run.worker),
                screen::text(&screen::shortened(run.error.as_deref().unwrap_or_default(), 60)),
            ]);
        }
        screen::show(&table)?;
        Ok(OK)
    }
}
