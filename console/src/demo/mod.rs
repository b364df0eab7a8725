//! `rowclaim demo`: a bulk send as in the field, with two accidents, and an account of every message.
//!
//! In reading order: [`recipients`] (the CSV), [`campaign`] (one job a recipient, created twice on purpose),
//! [`provider`] (an HTTP service that notes what it accepted, and misbehaves), [`workers`] (four processes on one
//! database), [`accidents`] (one is killed, one stopped past its lease, both inside of a send), [`audit`] (which doubles
//! those two explain), [`report`] (the table, and the JSON line that a script reads).
//!
//! The one thing to know: doubles are counted from the provider's records alone. What the database believes plays no part.

mod accidents;
mod audit;
mod campaign;
mod provider;
mod recipients;
mod report;
pub mod rust_worker;
mod workers;

use crate::connect::with_options;
use crate::fault::{FAILED, Fault, OK, Outcome};
use crate::progress::{self, Progress};
use campaign::Campaign;
use clap::Args;
use provider::Provider;
use rowclaim::Prefix;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use workers::{Crew, Language, Place, Tools};

/// The lease of the workers: short, so that the accidents are mended while the demo runs.
const LEASE: Duration = Duration::from_secs(3);
/// Jobs in one claim.
const BATCH: usize = 50;
/// Without a delivery for so long, the jobs may all be over although a recipient was not reached.
const QUIET: Duration = Duration::from_secs(2);
/// Without a delivery for so long, something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a shell reports after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Send 20,000 messages through four workers, kill one, stop one, and account for every double
///
/// Creates one job a recipient (twice, to show that the second time creates nothing), starts two PHP and two Python
/// workers and a provider on 127.0.0.1 that sometimes fails, stalls or never answers. One worker is killed in the middle
/// of a send and replaced; one is stopped in the middle of a send past its lease, and continued. At the end each message
/// that went out twice is traced to the send its worker was inside of at its accident. Without --dsn all of it happens in
/// an SQLite file in a temporary folder.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim demo
  rowclaim demo --recipients 2000 --workers rust        needs neither PHP nor Python
  rowclaim demo --extension target/fast/librowclaim_php.so
  rowclaim --dsn mysql://app:secret@127.0.0.1/test demo --csv people.csv

A given CSV has a header with the column `recipient`; the other columns travel in the payload.

On a server the demo makes tables of its own (--prefix), refuses to run where they hold jobs that
are not its own, and deletes its rows at the end. The tables stay.

The last line on stdout is one JSON object: db, recipients, deliveries, doubles,
unexplained_doubles, lost, late_writes_refused, seconds, jobs_per_s. Exit code 1 when a message
was lost, a double has no explanation, or the second creation made a job.")]
pub struct Demo {
    /// How many recipients; of a given CSV, the first so many [default: 20000, or all of the CSV]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    recipients: Option<u32>,
    /// Who gets the message; made up when not given
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// What the workers are written in: php, python, rust; one name stands for four of a kind
    #[arg(long, value_name = "KINDS", value_delimiter = ',', default_value = "php,python,php,python")]
    workers: Vec<Language>,
    /// The PHP interpreter
    #[arg(long, value_name = "PATH", env = "ROWCLAIM_PHP", default_value = "php")]
    php: PathBuf,
    /// The extension, where php.ini does not load it
    #[arg(long, value_name = "FILE", env = "ROWCLAIM_PHP_EXTENSION")]
    extension: Option<PathBuf>,
    /// A Python with the module rowclaim
    #[arg(long, value_name = "PATH", env = "ROWCLAIM_PYTHON", default_value = "python3")]
    python: PathBuf,
    /// Prefix of the demo's own tables
    #[arg(long, value_name = "TEXT", default_value = "demo_")]
    prefix: String,
    /// Another seed makes the provider misbehave elsewhere
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Demo {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        Prefix::new(&self.prefix)?;
        let folder = tempfile::Builder::new().prefix("rowclaim-demo-").tempdir();
        let folder = folder.map_err(|error| Fault::unexpected(format!("no temporary folder: {error}")))?;
        let tools = Tools { php: self.php.clone(), extension: self.extension.clone(), python: self.python.clone() };
        let languages = match self.workers.as_slice() {
            [one] => vec![*one; 4],
            several => several.to_vec(),
        };
        tools.check(&languages)?;
        let csv = match &self.csv {
            Some(path) => path.clone(),
            None => recipients::generate(folder.path(), self.recipients.unwrap_or(20_000), self.seed)?,
        };
        let people = recipients::read(&csv, self.recipients)?;
        let dsn = database(dsn, folder.path())?;
        let dsn = with_options(&dsn, &[("prefix", &self.prefix), ("backoff_base", "0.2"), ("backoff_cap", "2")]);

        let campaign = Campaign::prepare(&dsn, &self.prefix, people)?;
        let result = self.send(&campaign, languages, tools, &dsn, folder.path());
        // Also after a fault: the next demo shall find clean tables.
        let cleaned = campaign.clean();
        let code = result?;
        cleaned?;
        Ok(code)
    }

    fn send(&self, campaign: &Campaign, languages: Vec<Language>, tools: Tools, dsn: &str, folder: &std::path::Path) -> Outcome {
        let interrupted = Arc::new(AtomicBool::new(false));
        let provider = Provider::start(campaign.recipients(), self.seed, Arc::clone(&interrupted))?;
        let created = campaign.create(&interrupted)?;
        if interrupted.load(Relaxed) {
            return Ok(INTERRUPTED);
        }
        let started = Instant::now();
        let place = Place { dsn: dsn.to_owned(), url: provider.url.clone(), folder: folder.to_owned() };
        // A few recipients are shared out too.
        let batch = (campaign.len() / 20).clamp(1, BATCH);
        let crew = Crew::start(languages, tools, place, batch)?;
        let over = AtomicBool::new(false);
        let watched = std::thread::scope(|scope| {
            let accidents = scope.spawn(|| accidents::run(&crew, &provider, campaign, &over));
            let watched = watch(campaign, &provider, &crew, &interrupted);
            over.store(true, Relaxed);
            let happened = accidents.join().map_err(|_| Fault::unexpected("the thread of the accidents ended early"));
            watched.and_then(|()| happened?)
        });
        let elapsed = started.elapsed();
        crew.stop();
        crew.said().iter().for_each(|line| progress::say(line));
        let victims = watched?;
        if interrupted.load(Relaxed) {
            return Ok(INTERRUPTED);
        }
        let report = report::Report::new(campaign, &provider, &crew, &victims, created, elapsed)?;
        report.show()?;
        Ok(if report.is_good() { OK } else { FAILED })
    }
}

/// Waits until no job is left, or nothing moves any more. A worker that is stopped right now holds one.
fn watch(campaign: &Campaign, provider: &Provider, crew: &Crew, interrupted: &AtomicBool) -> Result<(), Fault> {
    let progress = Progress::new("sending", campaign.len() as u64);
    let (mut seen, mut moved_at) = (0, Instant::now());
    while !interrupted.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        crew.check()?;
        for line in crew.said() {
            progress.say(&line);
        }
        let (reached, accepted) = (provider.reached(), provider.accepted());
        progress.at(reached as u64);
        if accepted != seen {
            (seen, moved_at) = (accepted, Instant::now());
        }
        // The count reads the whole table: only when it may be the last one.
        let may_be_over = reached == campaign.len() || moved_at.elapsed() > QUIET;
        if may_be_over && campaign.unfinished()? == 0 {
            break;
        }
        if moved_at.elapsed() > PATIENCE {
            progress.say("nothing has moved for a minute: giving up");
            break;
        }
    }
    Ok(())
}

/// The given database, or a file in the temporary folder.
fn database(dsn: Option<&str>, folder: &std::path::Path) -> Result<String, Fault> {
    let Some(dsn) = dsn.filter(|dsn| !dsn.is_empty()) else {
        let file = folder.join("demo.db");
        let path = file.to_str().ok_or_else(|| Fault::config("the temporary folder's name is not UTF-8"))?;
        return Ok(format!("sqlite://{}", path.replace('%', "%25").replace('?', "%3F")));
    };
    if dsn.starts_with("sqlite::memory:") {
        return Err(Fault::config("the workers are other processes: they cannot reach a database in memory"));
    }
    Ok(dsn.to_owned())
}
