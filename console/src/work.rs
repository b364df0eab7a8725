//! `rowclaim work`: a worker for teams whose language has no binding; each job is a process.

use crate::exec::{self, Exec, PassOn};
use crate::fault::{Fault, OK, Outcome};
use crate::progress::Progress;
use crate::{connect, json, screen, span, stop};
use clap::{Args, ValueEnum};
use rowclaim::blocking::{Engine, Handled, Job, Summary, WorkRequest};
use rowclaim::{ClaimRequest, Outcome as JobOutcome};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// EX_DATAERR of sysexits.h.
const BAD_DATA: i32 = 65;
/// EX_TEMPFAIL of sysexits.h.
const TEMPORARY: i32 = 75;
/// Why a command is ended.
const LOST: &str = "ended: its claim is lost, and the job may run elsewhere";

/// Run a command for each job of some queues, until stopped
///
/// For languages that have no binding. Jobs are claimed, renewed while the command runs, and finished by its exit code.
/// Start as many as you like, on as many machines as you like.
#[derive(Args)]
#[command(after_long_help = "\
The command is run by `sh -c`, in a process group of its own. The payload is on its stdin, and:
  ROWCLAIM_JOB_ID        the job
  ROWCLAIM_QUEUE         its queue
  ROWCLAIM_KEY           its key; not set when it has none
  ROWCLAIM_ATTEMPTS      which attempt this is, from 1
  ROWCLAIM_MAX_ATTEMPTS  after so many it is dead
  ROWCLAIM_FENCE         larger than that of every earlier owner, for writes that late owners must not make
  ROWCLAIM_TOKEN         the claim

Exit codes of the command:
  0      the job is complete
  65     it can never be done (EX_DATAERR): it is dead, whatever attempts are left
  75     not now (EX_TEMPFAIL): it is given back, without counting the attempt; see --retry-after
  other  it has failed: it comes back after the back-off, or is dead when its attempts are used up;
         also after a signal. The last 4,000 characters of stderr are kept with it.

What the command writes goes to stderr; stdout is for the summary.

A job that is lost (released by a person, or the database was away for longer than the lease) may begin
elsewhere: its command is ended, by SIGTERM and 5 s later by SIGKILL, and whatever it exits with, its
late outcome is refused.

SIGTERM or Ctrl-C: the job in hand is finished, those that were not started are given back. A second
one ends the commands and the worker at once; their jobs come back when the lease ends.

Examples:
  rowclaim work mail --exec './send-mail.rb'
  rowclaim work mail sms --exec 'node job.js' --parallel 4 --max-run 2m
  rowclaim work mail --exec './send-mail.rb' --until-empty --max-seconds 55     for a crontab
  rowclaim work ping --exec 'curl -fsS -d @- https://shop.example/hook || exit 75' --retry-after 30s")]
pub struct Work {
    /// The queues, asked in this order within one priority
    #[arg(required = true)]
    queue: Vec<String>,
    /// Run this for each job
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// Jobs in one claim; more than 1 is for many short ones, since they wait for each other
    #[arg(long, value_name = "N", default_value_t = 1)]
    batch: usize,
    /// A worker that is silent for longer has lost its jobs; renewed while it lives. Otherwise the DSN's
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    lease: Option<Duration>,
    /// A command that runs longer is ended, by SIGTERM and 5 s later by SIGKILL, and the job has failed
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    max_run: Option<Duration>,
    /// With exit code 75: the job is not handed out again before this
    #[arg(long, value_name = "TIME", value_parser = span::parse, default_value = "60s")]
    retry_after: Duration,
    /// Stop after this time; a job that would not fit is not begun
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    max_seconds: Option<Duration>,
    /// Stop after so many jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_jobs: Option<u64>,
    /// Stop when nothing waits
    #[arg(long)]
    until_empty: bool,
    /// Write each outcome before the next job (each), or several together (group): faster, and more is
    /// done again after a crash
    #[arg(long, value_enum, default_value_t = FinishBy::Each)]
    finish: FinishBy,
    /// Commands at once, each with a claim of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FinishBy {
    Each,
    Group,
}

impl Work {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        let engine = connect::engine(dsn)?;
        let stop = stop::on_signals()?;
        let since = Instant::now();
        let progress = Arc::new(Progress::open_ended("jobs"));
        let (pass_on, handled) = (progress.passing_on(), AtomicU64::new(0));
        let crew = Crew { work: self, progress, pass_on, handled, broken: Mutex::default() };
        let mut summary = crew.work(&engine, &stop)?;
        summary.seconds = since.elapsed().as_secs_f64();
        let Crew { progress, broken, .. } = crew;
        progress.clear();
        self.show(&summary)?;
        match broken.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(fault) => Err(fault),
            None => Ok(OK),
        }
    }

    /// What one of `parallel` asks for; `share` of the jobs at most.
    fn request(&self, stop: &Arc<AtomicBool>, share: Option<u64>) -> WorkRequest {
        let mut claim = ClaimRequest::new("").limit(self.batch);
        claim.queues.clone_from(&self.queue);
        claim.lease = self.lease;
        let mut request = WorkRequest::new(claim);
        request.max_time = self.max_seconds;
        request.max_jobs = share;
        request.until_empty = self.until_empty;
        request.finish_each = self.finish == FinishBy::Each;
        request.stop = Arc::clone(stop);
        request
    }

    fn show(&self, summary: &Summary) -> Result<(), Fault> {
        let Summary { claimed, completed, failed, released, lost, stopped, seconds } = *summary;
        if self.json {
            json::line(&serde_json::json!({
                "claimed": claimed, "completed": completed, "failed": failed, "released": released, "lost": lost,
                "stopped": stopped, "seconds": (seconds * 1_000.0).round() / 1_000.0,
            }))?;
        } else {
            let took = span::human(Duration::from_secs_f64(seconds));
            screen::line(format!("{completed} completed, {failed} failed, {released} released, {lost} lost in {took}"))?;
        }
        Ok(())
    }
}

/// All that work at once.
struct Crew<'a> {
    work: &'a Work,
    progress: Arc<Progress>,
    pass_on: PassOn,
    handled: AtomicU64,
    /// Why no command can be started.
    broken: Mutex<Option<Fault>>,
}

impl Crew<'_> {
    fn work(&self, engine: &Engine, stop: &Arc<AtomicBool>) -> Result<Summary, Fault> {
        let workers = u64::from(self.work.parallel).min(self.work.max_jobs.unwrap_or(u64::MAX));
        let share = |worker: u64| self.work.max_jobs.map(|jobs| jobs / workers + u64::from(worker < jobs % workers));
        let results: Vec<_> = std::thread::scope(|scope| {
            let start = |worker| {
                let request = self.work.request(stop, share(worker));
                scope.spawn(move || {
                    let result = engine.work(&request, |job| self.handle(job));
                    if result.is_err() {
                        // The others stop too: somebody starts the whole again.
                        stop.store(true, Relaxed);
                    }
                    result
                })
            };
            let started: Vec<_> = (0..workers).map(start).collect();
            started.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        let mut sum = Summary::default();
        for result in results {
            let summary = result.map_err(|_| Fault::unexpected("a thread ended early"))??;
            sum.claimed += summary.claimed;
            sum.completed += summary.completed;
            sum.failed += summary.failed;
            sum.released += summary.released;
            sum.lost += summary.lost;
            sum.stopped |= summary.stopped;
        }
        Ok(sum)
    }

    fn handle(&self, job: &Job) -> Handled {
        let since = Instant::now();
        let number = |number: i64| Some(number.to_string());
        let exec = Exec {
            command: &self.work.exec,
            environment: vec![
                ("ROWCLAIM_JOB_ID", number(job.id)),
                ("ROWCLAIM_QUEUE", Some(job.queue.clone())),
                ("ROWCLAIM_KEY", job.key.clone()),
                ("ROWCLAIM_ATTEMPTS", number(job.attempts)),
                ("ROWCLAIM_MAX_ATTEMPTS", number(job.max_attempts)),
                ("ROWCLAIM_FENCE", number(job.fence)),
                ("ROWCLAIM_TOKEN", job.token().map(|token| token.to_string())),
            ],
            stdin: job.payload.clone(),
        };
        let must_end = || {
            if job.claim().is_lost() {
                return Some(LOST.to_owned());
            }
            let limit = self.work.max_run.filter(|limit| since.elapsed() >= *limit)?;
            Some(format!("ended after {}, its --max-run", span::human(limit)))
        };
        let ended = match exec::run(exec, &self.pass_on, must_end) {
            Ok(ended) => ended,
            Err(error) => {
                // It is not the job's fault.
                let fault = Fault::unexpected(format!("no command can be started: {error}"));
                *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
                return Handled::Last(JobOutcome::Release { delay: Duration::ZERO });
            }
        };
        self.progress.at(self.handled.fetch_add(1, Relaxed) + 1);
        Handled::As(match ended.code() {
            Some(0) => JobOutcome::Complete,
            Some(TEMPORARY) => JobOutcome::Release { delay: self.work.retry_after },
            Some(BAD_DATA) => JobOutcome::Reject { error: ended.error() },
            _ => JobOutcome::Fail { error: ended.error(), delay: None },
        })
    }
}
