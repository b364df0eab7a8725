//! `rowclaim prune`: delete what is finished and old.

use crate::fault::{OK, Outcome};
use crate::progress::Progress;
use crate::{connect, json, screen, span};
use clap::Args;
use rowclaim::{PruneRequest, Pruned};
use std::time::Duration;

/// Delete jobs, claims, effects and runs that ended long ago
///
/// Goes in small steps beside running workers; stopping it half-way loses nothing. The keys of deleted jobs and effects
/// are free again: a job with the same key can then be created anew, and the same effect be sent anew.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim prune --older-than 7d
  rowclaim prune --older-than 12h --batch 200        smaller steps for a busy server")]
pub struct Prune {
    /// Only what ended longer ago than this: 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    older_than: Duration,
    /// Rows in one step, 1 to 10,000
    #[arg(long, value_name = "ROWS", default_value_t = 1_000)]
    batch: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Prune {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        let engine = connect::engine(dsn)?;
        let mut request = PruneRequest::new(self.older_than);
        request.batch = self.batch;
        let progress = Progress::open_ended("deleted");
        let pruned = engine.prune(request, |so_far| {
            progress.at(so_far.jobs + so_far.claims + so_far.attempts + so_far.effects + so_far.runs);
        });
        drop(progress);
        let Pruned { jobs, claims, attempts, effects, runs } = pruned?;
        if self.json {
            json::line(&serde_json::json!({
                "jobs": jobs, "claims": claims, "attempts": attempts, "effects": effects, "runs": runs,
            }))?;
        } else {
            let more = format!("{effects} effects, {runs} runs");
            screen::line(format!("deleted {jobs} jobs, {claims} claims, {attempts} attempts, {more}"))?;
        }
        Ok(OK)
    }
}
