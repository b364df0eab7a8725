//! What one side of a figure took: its speed in every round, and what a job cost the server and the workers.

use crate::Result;
use crate::floor::INSERTED_TOGETHER;
use crate::report::{Pairs, Report};
use crate::server::{Server, cpu_of};
use crate::workers::{Round, Team};
use std::time::Instant;

/// One side of a figure, over all rounds.
#[derive(Default)]
pub struct Taken {
    /// Jobs a second, round by round.
    pub per_second: Vec<f64>,
    jobs: f64,
    batches: f64,
    server_cpu: f64,
    worker_cpu: f64,
    statements: f64,
}

impl Taken {
    /// Fills the queue, waits until the server is at rest, and has the team work it off.
    pub fn round(&mut self, server: &mut Server, team: &mut Team, prefix: &str, jobs: usize, batch: usize) -> Result<()> {
        server.fill(prefix, jobs)?;
        server.settle()?;
        let (questions, cpu) = (server.questions()?, server.cpu());
        let round = team.round("go")?;
        self.server_cpu += server.cpu() - cpu;
        self.statements += server.questions()? - questions - 1.0;
        self.add(&round, jobs)?;
        self.batches += jobs as f64 / batch as f64;
        server.check_done(prefix)
    }

    /// Times a creation of `count` jobs in this process; a batch is what one INSERT takes.
    pub fn creation<T>(&mut self, server: &mut Server, count: usize, create: impl FnOnce() -> Result<T>) -> Result<T> {
        let own = std::process::id();
        let (questions, server_cpu, own_cpu) = (server.questions()?, server.cpu(), cpu_of(own));
        let since = Instant::now();
        let created = create()?;
        self.per_second.push(count as f64 / since.elapsed().as_secs_f64());
        self.server_cpu += server.cpu() - server_cpu;
        self.worker_cpu += cpu_of(own) - own_cpu;
        self.statements += server.questions()? - questions - 1.0;
        self.jobs += count as f64;
        self.batches += count as f64 / INSERTED_TOGETHER as f64;
        Ok(created)
    }

    /// Counts a round, in which exactly `jobs` must have been done.
    pub fn add(&mut self, round: &Round, jobs: usize) -> Result<()> {
        if (round.jobs() - jobs as f64).abs() > 0.1 {
            return Err(format!("{} jobs were reported done of {jobs}", round.jobs()).into());
        }
        self.per_second.push(jobs as f64 / round.seconds);
        self.jobs += jobs as f64;
        self.worker_cpu += round.cpu;
        Ok(())
    }

    /// What a job cost, for whoever looks for the reason of a ratio.
    pub fn aside(&self, report: &mut Report, name: &str, side: &str) {
        let (server, worker) = (self.server_cpu * 1e6 / self.jobs, self.worker_cpu * 1e6 / self.jobs);
        let statements = self.statements / self.batches;
        eprintln!(
            "    {side:<7} {server:.0} us of the server, {worker:.1} us of the workers a job; {statements:.1} statements a batch"
        );
        report.aside(&format!("{name}.{side}_server_us_per_job"), server);
        report.aside(&format!("{name}.{side}_worker_us_per_job"), worker);
        report.aside(&format!("{name}.{side}_statements_per_batch"), statements);
    }
}

/// Both sides in jobs a second.
pub fn jobs_per_s<'a>(ours: &'a Taken, theirs: &'a Taken, name: &'a str) -> Pairs<'a> {
    Pairs { ours: &ours.per_second, counterpart: &theirs.per_second, counterpart_is: name, unit: "jobs/s" }
}
