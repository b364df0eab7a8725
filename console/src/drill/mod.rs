//! `rowclaim drill`: the five accidents that a claim engine is there for, on the user's own database, with real processes.
//!
//! In reading order: [`scratch`] (tables under a prefix drawn by lot, and who held when), [`crew`] (processes that are started,
//! told, killed and stopped), [`worker`] (what they do), [`holders`] (drills 1 to 3), [`slots`] (drill 4), [`reruns`]
//! (drill 5), [`history`] (were there ever two at once), [`report`].
//!
//! The one thing to know: a check that cannot fail is worth nothing. The hidden `--violate` plants what each of them must
//! find, and the tests of the console do so.

mod crew;
mod history;
mod holders;
mod report;
mod reruns;
mod scratch;
mod slots;
pub mod worker;

use crate::fault::{FAILED, Fault, OK, Outcome};
use crate::{connect, progress, stop};
use clap::{Args, ValueEnum};
use crew::{Crew, Orders};
use report::Report;
use scratch::Scratch;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// What a shell reports after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Kill, stop and crowd real processes on your database, and check that nothing happened twice
///
/// Five drills, about 40 seconds. It makes tables of its own under a prefix drawn by lot (drill_…) and drops them at the
/// end, also after a failure or Ctrl-C; nothing else in the database is looked at or changed. The user of the DSN must be
/// allowed to create and drop tables.
#[derive(Args)]
#[command(after_long_help = "\
The drills:
  killed   a holder is killed (SIGKILL) in the middle of its lease while all others wait: the next
           takes over after the lease, and there are never two
  silent   a holder whose renewals do not arrive works on past its lease: it is fenced off, and its
           guarded writes are refused
  stopped  a holder is stopped (SIGSTOP) past its lease and continued: the same
  slots    all processes run the same planned times at once; each run sends one effect, and some are
           killed in the middle of it: one row a slot, one send a key, and what nobody knows is held
           for a person
  reruns   people run a task again and ask for runs beside a scheduled pass in many processes: never
           two at once, each one marked, every slot accounted for

Examples:
  rowclaim drill
  rowclaim drill --drill stopped --processes 32
  rowclaim --dsn sqlite:///tmp/drill.db drill --json

With --json the last line on stdout is one object: db, drills, passed, max_holders_at_once,
late_writes_tried, late_writes_accepted, effects_sent_twice. Exit code 1 unless all have passed.")]
pub struct Drill {
    /// Processes in each drill
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(8..=200))]
    processes: u16,
    /// Only this drill; may be given more than once
    #[arg(long, value_name = "NAME", value_enum)]
    drill: Vec<Name>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Have statements of the processes fail: only in a build with the feature `faults`
    #[arg(long, hide = true)]
    faults: bool,
    /// Plant a violation that a check must find: for tests
    #[arg(long, hide = true, default_value = "")]
    violate: String,
}

/// A drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    Killed,
    Silent,
    Stopped,
    Slots,
    Reruns,
}

impl Name {
    fn text(self) -> &'static str {
        match self {
            Name::Killed => "killed",
            Name::Silent => "silent",
            Name::Stopped => "stopped",
            Name::Slots => "slots",
            Name::Reruns => "reruns",
        }
    }
}

/// Why a drill did not come to its end.
#[derive(Debug)]
pub enum Broken {
    /// Something did not happen, or an error came out of the engine: the drill has failed.
    Now(String),
    /// By a person.
    Interrupted,
}

impl Broken {
    fn now(text: impl Into<String>) -> Self {
        Broken::Now(text.into())
    }
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Broken::Now(fault.text())
    }
}

impl From<rowclaim::Error> for Broken {
    fn from(error: rowclaim::Error) -> Self {
        Broken::Now(error.to_string())
    }
}

/// What happened in a drill.
#[derive(Debug, Default)]
pub struct Told {
    pub what: String,
    /// What should not have happened.
    pub faults: Vec<String>,
    pub late_tried: u64,
    pub late_accepted: u64,
    pub sent_twice: u64,
}

impl Told {
    /// Notes a fault unless `is_so`.
    fn must(&mut self, is_so: bool, fault: impl FnOnce() -> String) {
        if !is_so {
            self.faults.push(fault());
        }
    }
}

/// What the drills have in common.
struct Stage<'a> {
    scratch: &'a Scratch,
    orders: Orders,
    processes: usize,
    interrupted: Arc<AtomicBool>,
}

impl Stage<'_> {
    fn crew(&self, role: &str, heartless: &[usize]) -> Result<Crew, Broken> {
        Crew::start(self.scratch, &self.orders, role, self.processes, heartless, &self.interrupted)
    }

    fn run(&self, name: Name) -> Result<Told, Broken> {
        match name {
            Name::Killed => holders::killed(self),
            Name::Silent => holders::silent(self),
            Name::Stopped => holders::stopped(self),
            Name::Slots => slots::run(self),
            Name::Reruns => reruns::run(self),
        }
    }
}

impl Drill {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        let dsn = connect::required(dsn)?;
        if dsn.starts_with("sqlite::memory:") {
            return Err(Fault::config("the processes of the drill cannot reach a database in memory"));
        }
        let interrupted = stop::on_signals()?;
        let folder = tempfile::Builder::new().prefix("rowclaim-drill-").tempdir();
        let folder = folder.map_err(|error| Fault::unexpected(format!("no temporary folder: {error}")))?;
        // Dropped at the end of this function, however it ends; the tables with it.
        let scratch = Scratch::make(dsn)?;
        let report = self.drills(&scratch, folder.path(), &interrupted)?;
        if interrupted.load(Relaxed) {
            progress::say("interrupted; the tables are dropped");
            return Ok(INTERRUPTED);
        }
        report.show(self.json)?;
        Ok(if report.is_good() { OK } else { FAILED })
    }

    fn drills(&self, scratch: &Scratch, folder: &Path, interrupted: &Arc<AtomicBool>) -> Result<Report, Fault> {
        let orders = Orders {
            prefix: scratch.prefix().to_owned(),
            provider: folder.join("provider"),
            faults: self.faults,
            violate: self.violate.clone(),
        };
        let stage = Stage { scratch, orders, processes: usize::from(self.processes), interrupted: Arc::clone(interrupted) };
        let names = if self.drill.is_empty() { Name::value_variants() } else { &self.drill };
        let mut report = Report::new(scratch.engine.server_version()?);
        for (number, name) in names.iter().enumerate() {
            progress::say(&format!("drill {} of {}: {}, {} processes", number + 1, names.len(), name.text(), stage.processes));
            let since = Instant::now();
            let told = match stage.run(*name) {
                Ok(told) => told,
                Err(Broken::Interrupted) => break,
                Err(Broken::Now(fault)) => Told { faults: vec![fault], ..Told::default() },
            };
            report.add(*name, told, &scratch.history()?, since.elapsed());
        }
        Ok(report)
    }
}
