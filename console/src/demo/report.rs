//! What came of it: a table for people, and one JSON line for scripts.

use super::audit::{self, Doubles, Victim};
use super::campaign::{Campaign, Creation, recipient};
use super::provider::Provider;
use super::workers::{Crew, Told};
use crate::fault::Fault;
use crate::{json, screen};
use comfy_table::{Attribute, Cell, CellAlignment, Color};
use rowclaim::JobState;
use serde::Serialize;
use std::collections::HashSet;
use std::io;
use std::time::Duration;

/// The account of one run.
pub struct Report {
    server: String,
    creation: Creation,
    recipients: u64,
    deliveries: u64,
    doubles: Doubles,
    lost: u64,
    /// Jobs that needed more than one attempt.
    retried: u64,
    /// Claims whose jobs were taken back.
    recovered: u64,
    told: Told,
    misbehaved: (u64, u64),
    accidents: u64,
    seconds: f64,
}

/// The last line on stdout.
#[derive(Serialize)]
struct Summary<'a> {
    db: &'a str,
    recipients: u64,
    deliveries: u64,
    doubles: u64,
    unexplained_doubles: u64,
    lost: u64,
    late_writes_refused: u64,
    seconds: f64,
    jobs_per_s: f64,
}

impl Report {
    pub fn new(
        campaign: &Campaign,
        provider: &Provider,
        crew: &Crew,
        victims: &[Victim],
        creation: Creation,
        elapsed: Duration,
    ) -> Result<Self, Fault> {
        let (deliveries, told) = (provider.deliveries(), crew.told());
        let numbered = |(worker, name, attempt): &(String, String, u32)| Some((worker.clone(), provider.number(name)?, *attempt));
        let gave_up: HashSet<_> = told.gave_up.iter().filter_map(numbered).collect();
        let reached: HashSet<usize> = deliveries.iter().map(|delivery| delivery.recipient).collect();
        let jobs = campaign.jobs(None)?;
        let done = jobs.iter().filter(|job| job.state == JobState::Done);
        let done: HashSet<usize> = done.filter_map(|job| provider.number(recipient(job)?)).collect();
        let mut lost_claims = HashSet::new();
        for job in jobs.iter().filter(|job| job.lost > 0) {
            let attempts = campaign.engine.attempts(job.id)?;
            lost_claims.extend(attempts.into_iter().filter(|a| a.outcome == "lost").map(|a| (a.worker, a.claimed_at)));
        }
        Ok(Report {
            server: campaign.engine.server_version()?,
            creation,
            recipients: campaign.len() as u64,
            deliveries: deliveries.len() as u64,
            doubles: audit::doubles(&deliveries, victims, &gave_up),
            lost: (campaign.len() - reached.intersection(&done).count()) as u64,
            retried: jobs.iter().filter(|job| job.attempts > 1).count() as u64,
            recovered: lost_claims.len() as u64,
            told,
            misbehaved: provider.misbehaved(),
            accidents: victims.len() as u64,
            seconds: elapsed.as_secs_f64(),
        })
    }

    /// Nothing lost, no double without an explanation, and the second creation made nothing.
    pub fn is_good(&self) -> bool {
        self.lost == 0 && self.doubles.unexplained == 0 && self.creation.created_again == 0
    }

    fn jobs_per_s(&self) -> f64 {
        self.recipients as f64 / self.seconds.max(0.001)
    }

    /// The server's brand in one word.
    fn db(&self) -> &'static str {
        let version = self.server.to_ascii_lowercase();
        let known = ["sqlite", "mariadb", "mysql"];
        known.into_iter().find(|brand| version.contains(brand)).unwrap_or("mysql")
    }

    pub fn show(&self) -> io::Result<()> {
        let (refused, unanswered) = self.misbehaved;
        let mut table = screen::table(["a bulk send", &screen::printable(&self.server)]);
        let mut row = |label: &str, cell: Cell| {
            table.add_row([Cell::new(label), cell.set_alignment(CellAlignment::Right)]);
        };
        row("recipients", Cell::new(self.recipients));
        row("jobs created", Cell::new(self.creation.created));
        row("created by the second round", verdict(self.creation.created_again));
        row("workers killed or stopped (of 2)", Cell::new(self.accidents));
        row("refused by the provider (500)", Cell::new(refused));
        row("never answered by the provider", Cell::new(unanswered));
        row("deliveries", Cell::new(self.deliveries));
        row("doubles", Cell::new(self.doubles.total()));
        row("  explained by an accident", Cell::new(self.doubles.by_accident));
        row("  explained by timeout", Cell::new(self.doubles.by_timeout));
        row("unexplained doubles", verdict(self.doubles.unexplained));
        row("lost", verdict(self.lost));
        row("retried jobs", Cell::new(self.retried));
        row("recovered claims", Cell::new(self.recovered));
        row("late writes refused", Cell::new(self.told.refused));
        row("seconds", Cell::new(format!("{:.1}", self.seconds)));
        row("jobs/s", Cell::new(format!("{:.0}", self.jobs_per_s())));
        screen::show(&table)?;
        json::line(&Summary {
            db: self.db(),
            recipients: self.recipients,
            deliveries: self.deliveries,
            doubles: self.doubles.total(),
            unexplained_doubles: self.doubles.unexplained,
            lost: self.lost,
            late_writes_refused: self.told.refused,
            seconds: (self.seconds * 100.0).round() / 100.0,
            jobs_per_s: self.jobs_per_s().round(),
        })
    }
}

/// A number that must be zero.
fn verdict(value: u64) -> Cell {
    Cell::new(value).add_attribute(Attribute::Bold).fg(if value == 0 { Color::Green } else { Color::Red })
}
