//! `rowclaim schedule tick`: one pass over the schedules, with a command for each slot that is due.

use crate::exec::{self, Exec};
use crate::fault::{FAILED, Fault, OK, Outcome};
use crate::progress::Progress;
use crate::{json, screen, span, stop};
use clap::Args;
use rowclaim::blocking::{Engine, Run};
use rowclaim::{ErrorKind, Finish, ScheduleFilter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Why a command is ended.
const LOST: &str = "ended: its lease is lost, after its --max-run or while the database was away";

/// Run a command for each slot that is due, and end
///
/// For a line of a crontab, on as many machines as you like: each slot runs once, and two runs of a task are never at work
/// at once. The times are the database's. Tasks run one after the other; while a long one runs, the next minute's pass
/// takes care of the others.
#[derive(Args)]
#[command(after_long_help = "\
The command is run by `sh -c`, in a process group of its own, and told what it is for:
  ROWCLAIM_TASK     the task
  ROWCLAIM_SLOT     the planned time in UTC, as in 2026-11-30T08:00:00Z; of a run that a person has
                    asked for, when that was
  ROWCLAIM_RUN_ID   the number of the run
  ROWCLAIM_FENCE    larger than that of every earlier run, for writes that late runs must not make
  ROWCLAIM_MANUAL   1 when a person has asked for it, otherwise 0
Exit code 0: the run has succeeded. Any other, or a signal: it has failed, with the end of stderr.
A run that is lost (its --max-run is over, or the database was away for longer than its lease) may
begin elsewhere: its command is ended, by SIGTERM and 5 s later by SIGKILL.

Examples:
  * * * * * rowclaim schedule tick --exec '/srv/shop/cron.sh \"$ROWCLAIM_TASK\"'
  rowclaim schedule tick --exec 'php artisan \"$ROWCLAIM_TASK\"' daily-report

SIGTERM or Ctrl-C: the run in hand is finished, and no other begun; a second one ends at once.
Exit code 1 when a run has failed or was lost.")]
pub struct Tick {
    /// Run this for each slot that is due
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// Begin no run after this time
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    max_seconds: Option<Duration>,
    /// Only these tasks, in this order; otherwise all
    task: Vec<String>,
    /// Print JSON, one object for each run
    #[arg(long)]
    json: bool,
}

impl Tick {
    pub fn run(&self, engine: &Engine) -> Outcome {
        let stop = stop::on_signals()?;
        let since = Instant::now();
        let progress = Arc::new(Progress::open_ended("runs"));
        let is_named = !self.task.is_empty();
        let tasks = match is_named {
            true => self.task.clone(),
            false => engine.schedules(&ScheduleFilter::default())?.into_iter().map(|record| record.request.task).collect(),
        };
        let (mut code, mut made) = (OK, 0);
        for task in tasks {
            let left = self.max_seconds.map(|limit| limit.saturating_sub(since.elapsed()));
            let mut pass = engine.tick(std::slice::from_ref(&task), left)?;
            while !stop.load(Relaxed) {
                let run = match pass.next_run() {
                    Ok(Some(run)) => run,
                    Ok(None) => break,
                    // It was removed just now.
                    Err(error) if error.kind() == ErrorKind::NotFound && !is_named => break,
                    Err(error) => return Err(error.into()),
                };
                if !self.run_one(&run, &progress, &stop)? {
                    code = FAILED;
                }
                made += 1;
                progress.at(made);
            }
        }
        Ok(code)
    }

    /// True when it has succeeded.
    fn run_one(&self, run: &Run, progress: &Arc<Progress>, stop: &AtomicBool) -> Result<bool, Fault> {
        let since = Instant::now();
        let exec = Exec {
            command: &self.exec,
            environment: vec![
                ("ROWCLAIM_TASK", Some(run.task().to_owned())),
                ("ROWCLAIM_SLOT", Some(span::brief(run.slot()))),
                ("ROWCLAIM_RUN_ID", Some(run.id().to_string())),
                ("ROWCLAIM_FENCE", Some(run.fence().to_string())),
                ("ROWCLAIM_MANUAL", Some(u8::from(run.is_manual()).to_string())),
            ],
            stdin: String::new(),
        };
        let ended = exec::run(exec, &progress.passing_on(), || run.is_lost().then(|| LOST.to_owned()));
        let error = match &ended {
            Ok(ended) if ended.code() == Some(0) => None,
            Ok(ended) => Some(ended.error()),
            Err(error) => Some(format!("the command cannot be started: {error}")),
        };
        let finish = match &error {
            None => run.succeed()?,
            Some(error) => run.fail(error)?,
        };
        let state = match (finish, &error) {
            (Finish::Lost, _) => "lost",
            (Finish::Accepted, None) => "succeeded",
            (Finish::Accepted, Some(_)) => "failed",
        };
        if self.json {
            json::line(&serde_json::json!({
                "id": run.id(), "task": run.task(), "slot": span::instant(run.slot()), "is_manual": run.is_manual(),
                "state": state, "seconds": (since.elapsed().as_secs_f64() * 1_000.0).round() / 1_000.0, "error": error,
            }))?;
        } else {
            let (task, slot, took) = (screen::printable(run.task()), span::brief(run.slot()), span::human(since.elapsed()));
            let manual = if run.is_manual() { " (manual)" } else { "" };
            let why = error.map_or_else(String::new, |error| format!(": {}", screen::printable(&screen::shortened(&error, 200))));
            screen::line(format!("{state} {task} {slot}{manual} in {took}{why}"))?;
        }
        if stop.load(Relaxed) {
            progress.say("stopped: no further run is begun");
        }
        Ok(state == "succeeded")
    }
}
