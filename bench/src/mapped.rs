//! Claims on a mapped table, the targets of a bulk send, beside claims on the own jobs table.
//!
//! The table is schema (a) of tests/schemas: with an index that gives waiting targets in order, and as the field has it, with
//! an index on the token only, 30,000 finished targets of the same task in front of those that wait.

use crate::report::{Pairs, Report, Target};
use crate::server::Server;
use crate::taken::{Taken, jobs_per_s};
use crate::workers::Team;
use crate::{Effort, Result};
use rowclaim::blocking::{Engine, Table};
use rowclaim::{Finish, Mapping, RowClaimRequest, Value};

const OURS: &str = "bench_ours_";
const TASK: i64 = 42;
const FINISHED: usize = 30_000;
const FITTED: &str = "bench_fitted";
const GIVEN: &str = "bench_given";

/// The measured side: claims and completes batches until nothing waits; how many rows.
pub fn work_off(table: &Table, engine: &Engine, batch: usize) -> Result<usize> {
    let request = RowClaimRequest::new(batch).equal("task_id", Value::Int(TASK));
    let mut rows = 0;
    loop {
        let claim = table.claim(&request)?;
        if claim.is_empty() {
            break;
        }
        rows += claim.complete_all()?.iter().filter(|answer| **answer == Finish::Accepted).count();
    }
    engine.flush()?;
    Ok(rows)
}

/// The mapping of tests/schemas/a/targets.json.
pub fn mapping() -> Result<Mapping> {
    let json = "{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":2,\"failed\":3,\"token\":\"cron_token\",\
        \"claimed_at\":\"send_at\",\"zone\":\"+08:00\",\"recover_after\":600}";
    Ok(Mapping::from_json(json)?)
}

struct Targets {
    name: &'static str,
    finished: usize,
    filled: usize,
}

impl Targets {
    fn make(server: &mut Server, name: &'static str, index: &str, finished: usize) -> Result<Self> {
        server.run(&format!("DROP TABLE IF EXISTS {name}"))?;
        server.run(&format!(
            "CREATE TABLE {name} (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, task_id INT NOT NULL, openid VARCHAR(64) NOT NULL, \
             status TINYINT NOT NULL DEFAULT 0, cron_token VARCHAR(40) NULL, send_at DATETIME NULL, KEY i ({index})) ENGINE=InnoDB"
        ))?;
        Ok(Targets { name, finished, filled: 0 })
    }

    /// Works `count` targets off.
    fn round(&mut self, server: &mut Server, taken: &mut Taken, team: &mut Team, count: usize) -> Result<()> {
        let name = self.name;
        server.run(&format!("TRUNCATE TABLE {name}"))?;
        self.filled = count;
        if self.finished > 0 {
            server.run(&format!(
                "INSERT INTO {name} (task_id, openid, status, cron_token, send_at) \
                 SELECT {TASK}, CONCAT('openid-', seq), 2, UUID(), NOW() FROM seq_1_to_{}",
                self.finished
            ))?;
        }
        server
            .run(&format!("INSERT INTO {name} (task_id, openid) SELECT {TASK}, CONCAT('openid-', seq) FROM seq_1_to_{count}"))?;
        server.run(&format!("ANALYZE TABLE {name}"))?;
        server.settle()?;
        taken.add(&team.round("go")?, count)?;
        let left = server.number(&format!("SELECT COUNT(*) FROM {name} WHERE status <> 2"))?;
        if left > 0 { Err(format!("{name}: {left} targets are not done").into()) } else { Ok(()) }
    }
}

fn team(kind: &str, server: &Server, workers: usize) -> Result<Team> {
    let one = |worker| Team::own(kind, &server.dsn(OURS, &format!("&worker=bench{worker}")), 100);
    Team::start((0..workers).map(one).collect::<Result<Vec<_>>>()?)
}

/// `mapped_ratio_*`, `mapped_as_given_ratio`, `mapped_w16_vs_w4`.
pub fn measure(server: &mut Server, report: &mut Report, effort: Effort) -> Result<()> {
    server.make_tables(OURS)?;
    let mut fitted = Targets::make(server, FITTED, "task_id, status", 0)?;
    let mut given = Targets::make(server, GIVEN, "task_id, cron_token", FINISHED)?;
    let plan = [(1, effort.jobs), (4, effort.jobs * 3 / 2), (16, effort.jobs * 3)];
    let mut sizes = Vec::new();
    for (workers, jobs) in plan {
        let teams = (team("engine", server, workers)?, team(&format!("mapped:{FITTED}"), server, workers)?);
        sizes.push((workers, jobs, teams, <(Taken, Taken)>::default()));
    }
    let mut given_team = team(&format!("mapped:{GIVEN}"), server, 4)?;
    let mut as_given = Taken::default();
    for round in 0..=effort.rounds {
        for (_, jobs, (own, mapped), taken) in &mut sizes {
            server.empty_tables(OURS)?;
            taken.0.round(server, own, OURS, *jobs, 100)?;
            fitted.round(server, &mut taken.1, mapped, *jobs)?;
        }
        given.round(server, &mut as_given, &mut given_team, effort.jobs * 3 / 2)?;
        if round == 0 {
            // The first one only warms up.
            sizes.iter_mut().for_each(|size| size.3 = Default::default());
            as_given = Taken::default();
        }
    }
    for (workers, _, _, taken) in &sizes {
        report.ratio(&format!("mapped_ratio_b100_w{workers}"), &jobs_per_s(&taken.1, &taken.0, "own"), Target::AtLeast(0.8));
    }
    if let [_, four, sixteen] = sizes.as_slice() {
        let given: Pairs<'_> = jobs_per_s(&as_given, &four.3.1, "fitted");
        report.ratio("mapped_as_given_ratio", &given, Target::Any);
        report.ratio("mapped_w16_vs_w4", &jobs_per_s(&sixteen.3.1, &four.3.1, "w4"), Target::AtLeast(0.9));
    }
    drop((sizes, given_team));
    for name in [FITTED, GIVEN] {
        server.run(&format!("DROP TABLE {name}"))?;
    }
    server.drop_tables(OURS)
}
