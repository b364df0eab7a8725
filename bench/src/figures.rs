//! What is measured, a function a figure. Each makes its own tables and drops them.

use crate::bindings::Bindings;
use crate::floor::Floor;
use crate::report::{Pairs, Report, Target, median};
use crate::server::{ONE_INSTANT, Server};
use crate::taken::{Taken, jobs_per_s};
use crate::workers::{CLAIM_LIMIT, CLAIMS, Team};
use crate::{Effort, Result, laravel, ours};
use rowclaim::ClaimRequest;
use rowclaim::blocking::Engine;
use std::time::{Duration, Instant};

/// The figures by name.
pub const NAMES: [&str; 9] = ["floors", "snapshot", "create", "mapped", "leases", "laravel", "claims", "locked", "sqlite"];

/// Takes one of [`NAMES`].
pub fn measure(name: &str, server: &mut Server, report: &mut Report, bindings: &Bindings, effort: Effort) -> Result<()> {
    match name {
        "floors" => floors(server, report, effort),
        "snapshot" => snapshots(server, report, effort),
        "create" => create(server, report, effort),
        "mapped" => crate::mapped::measure(server, report, effort),
        "leases" => crate::leases::measure(server, report, effort),
        "laravel" => beside_laravel(server, report, bindings, effort),
        "claims" => claims(server, report, bindings, effort),
        "locked" => locked(server, report),
        _ => sqlite(report, effort),
    }
}

const OURS: &str = "bench_ours_";
const THEIRS: &str = "bench_floor_";

fn team(kind: &str, server: &Server, prefix: &str, workers: usize, batch: usize) -> Result<Team> {
    let one = |worker| Team::own(kind, &server.dsn(prefix, &format!("&worker=bench{worker}")), batch);
    Team::start((0..workers).map(one).collect::<Result<Vec<_>>>()?)
}

/// One size of the comparison with the floor.
struct Size {
    name: &'static str,
    batch: usize,
    jobs: usize,
    ours: Team,
    floor: Team,
    taken: (Taken, Taken),
}

/// Claim and complete beside the same statements sent by hand.
fn floors(server: &mut Server, report: &mut Report, effort: Effort) -> Result<()> {
    server.make_tables(OURS)?;
    server.make_tables(THEIRS)?;
    let plan = [
        ("floor_ratio_b100_w1", 100, 1, effort.jobs),
        ("floor_ratio_b100_w4", 100, 4, effort.jobs * 3 / 2),
        ("floor_ratio_b100_w16", 100, 16, effort.jobs * 3),
        ("floor_ratio_b1000", 1_000, 1, effort.jobs * 5 / 2),
    ];
    let mut sizes = Vec::new();
    for (name, batch, workers, jobs) in plan {
        let ours = team("engine", server, OURS, workers, batch)?;
        let floor = team("floor", server, THEIRS, workers, batch)?;
        sizes.push(Size { name, batch, jobs, ours, floor, taken: <(Taken, Taken)>::default() });
    }
    let mut looping = team("work", server, OURS, 1, 100)?;
    let mut looped = Taken::default();
    for round in 0..=effort.rounds {
        server.empty_tables(OURS)?;
        server.empty_tables(THEIRS)?;
        for size in &mut sizes {
            size.taken.0.round(server, &mut size.ours, OURS, size.jobs, size.batch)?;
            size.taken.1.round(server, &mut size.floor, THEIRS, size.jobs, size.batch)?;
        }
        looped.round(server, &mut looping, OURS, effort.jobs, 100)?;
        if round == 0 {
            // The first one only warms up.
            sizes.iter_mut().for_each(|size| size.taken = Default::default());
            looped = Taken::default();
        }
    }
    for size in &sizes {
        report.ratio(size.name, &jobs_per_s(&size.taken.0, &size.taken.1, "floor"), Target::AtLeast(0.8));
        size.taken.0.aside(report, size.name, "ours");
        size.taken.1.aside(report, size.name, "floor");
    }
    if let [one, four, sixteen, _] = sizes.as_slice() {
        report.ratio("w16_vs_w4", &jobs_per_s(&sixteen.taken.0, &four.taken.0, "w4"), Target::AtLeast(0.8));
        let floor = median(&sixteen.taken.1.per_second) / median(&four.taken.1.per_second);
        report.value("w16_vs_w4.floor", floor, "for the floor alone: what the server has to do with it");
        report.ratio("work_ratio_b100_w1", &jobs_per_s(&looped, &one.taken.1, "floor"), Target::AtLeast(0.8));
        looped.aside(report, "work_ratio_b100_w1", "ours");
    }
    drop((sizes, looping));
    server.drop_tables(OURS)?;
    server.drop_tables(THEIRS)
}

/// With a consistent snapshot open in another session, as during a backup, and without; of jobs that were created one after
/// the other, and of as many that became ready at one instant.
fn snapshots(server: &mut Server, report: &mut Report, effort: Effort) -> Result<()> {
    snapshot(server, report, effort, "snapshot_ratio")?;
    let together = std::mem::replace(&mut server.together, ONE_INSTANT);
    let measured = snapshot(server, report, effort, "snapshot_ratio_one_instant");
    server.together = together;
    measured
}

fn snapshot(server: &mut Server, report: &mut Report, effort: Effort, name: &str) -> Result<()> {
    server.make_tables(OURS)?;
    let mut team = team("engine", server, OURS, 4, 100)?;
    let mut other = Server::connect()?;
    let jobs = effort.jobs * 5 / 2;
    let (mut with, mut without) = (Taken::default(), Taken::default());
    Taken::default().round(server, &mut team, OURS, effort.jobs, 100)?;
    for _ in 0..effort.rounds.div_ceil(2) {
        server.empty_tables(OURS)?;
        without.round(server, &mut team, OURS, jobs, 100)?;
        server.empty_tables(OURS)?;
        other.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        other.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        with.round(server, &mut team, OURS, jobs, 100)?;
        other.run("ROLLBACK")?;
    }
    report.ratio(name, &jobs_per_s(&with, &without, "without"), Target::AtLeast(0.7));
    with.aside(report, name, "with");
    without.aside(report, name, "without");
    drop(team);
    server.drop_tables(OURS)
}

/// `create_many` beside multi-row INSERTs of the same rows.
fn create(server: &mut Server, report: &mut Report, effort: Effort) -> Result<()> {
    server.make_tables(OURS)?;
    server.make_tables(THEIRS)?;
    let engine = Engine::connect(&server.dsn(OURS, ""))?;
    let mut floor = Floor::connect(server.base_dsn(), THEIRS)?;
    let plan = [
        ("create_ratio", 2_000, false),
        ("create_ratio_500", 500, false),
        ("create_keyed_ratio", 2_000, true),
        ("create_keyed_ratio_500", 500, true),
    ];
    let mut made = 0;
    for (name, count, with_keys) in plan {
        let (mut ours, mut theirs) = (Taken::default(), Taken::default());
        server.empty_tables(OURS)?;
        server.empty_tables(THEIRS)?;
        // The first ones only warm up. Small creations are noisy: more of them.
        let pairs = effort.rounds * 4_000 / count;
        for pair in 0..pairs + 2 {
            let jobs = ours::new_jobs(made, count, with_keys);
            made += count;
            if pair == 2 {
                (ours, theirs) = Default::default();
            }
            let created = ours.creation(server, count, || Ok(engine.create_many(&jobs)?))?;
            if created.len() != count || created.iter().any(|created| created.exists) {
                return Err("jobs were not created".into());
            }
            theirs.creation(server, count, || floor.create(&jobs))?;
        }
        let rows = |server: &mut Server, prefix: &str| server.number(&format!("SELECT COUNT(*) FROM {prefix}jobs"));
        if rows(server, OURS)? != rows(server, THEIRS)? {
            return Err("the two sides created different numbers of jobs".into());
        }
        report.ratio(name, &jobs_per_s(&ours, &theirs, "INSERT"), Target::AtLeast(0.8));
        ours.aside(report, name, "ours");
        theirs.aside(report, name, "INSERT");
    }
    engine.close(Duration::from_secs(5))?;
    server.drop_tables(OURS)?;
    server.drop_tables(THEIRS)
}

/// The engine from Rust, and `work` from PHP and Python, beside Laravel's database queue.
fn beside_laravel(server: &mut Server, report: &mut Report, bindings: &Bindings, effort: Effort) -> Result<()> {
    const FIGURES: [&str; 4] =
        ["laravel_ratio_b100_w1", "laravel_ratio_b100_w4", "loop_php_vs_laravel", "loop_python_vs_laravel"];
    if let Some(why) = laravel::missing() {
        report.skipped(&FIGURES, &why);
        return Ok(());
    }
    server.make_tables(OURS)?;
    laravel::make_table(server)?;
    let workers = |number: usize, server: &Server| Team::start((0..number).map(|_| laravel::worker(server)));
    let mut theirs = [(workers(1, server)?, 300), (workers(4, server)?, 600)];
    let mut sides = vec![Some(team("engine", server, OURS, 1, 100)?), Some(team("engine", server, OURS, 4, 100)?)];
    let dsn = server.dsn(OURS, "&worker=bench");
    for worker in [bindings.php_worker("work", &dsn, 100, 0), bindings.python_worker("work", &dsn, 100, 0)] {
        match worker {
            Ok(command) => sides.push(Some(Team::start([command])?)),
            Err(why) => {
                report.skipped(&FIGURES[sides.len()..=sides.len()], &why);
                sides.push(None);
            }
        }
    }
    let mut ours: [Taken; 4] = Default::default();
    let mut laravel: [Taken; 2] = Default::default();
    for round in 0..=effort.rounds.div_ceil(2) {
        server.empty_tables(OURS)?;
        for ((team, jobs), taken) in theirs.iter_mut().zip(&mut laravel) {
            team.ask_one(&format!("fill {jobs}"))?;
            server.settle()?;
            taken.add(&team.round("go")?, *jobs)?;
            laravel::check_done(server)?;
        }
        for (team, taken) in sides.iter_mut().zip(&mut ours) {
            if let Some(team) = team {
                taken.round(server, team, OURS, effort.jobs, 100)?;
            }
        }
        if round == 0 {
            ours = Default::default();
            laravel = Default::default();
        }
    }
    let counterparts = [(0, 10.0), (1, 10.0), (0, 10.0), (0, 10.0)];
    for (position, (at, bound)) in counterparts.into_iter().enumerate() {
        if sides[position].is_some() {
            report.ratio(FIGURES[position], &jobs_per_s(&ours[position], &laravel[at], "Laravel"), Target::AtLeast(bound));
            ours[position].aside(report, FIGURES[position], "ours");
        }
    }
    drop((sides, theirs));
    laravel::drop_table(server)?;
    server.drop_tables(OURS)
}

/// A claim of 100 jobs from PHP and Python beside one from Rust.
fn claims(server: &mut Server, report: &mut Report, bindings: &Bindings, effort: Effort) -> Result<()> {
    server.make_tables(OURS)?;
    let mut rust = team("claims", server, OURS, 1, CLAIM_LIMIT)?;
    let dsn = server.dsn(OURS, "&worker=bench");
    let languages = [
        ("php_vs_rust", bindings.php_worker("claims", &dsn, CLAIM_LIMIT, CLAIMS)),
        ("python_vs_rust", bindings.python_worker("claims", &dsn, CLAIM_LIMIT, CLAIMS)),
    ];
    for (name, command) in languages {
        let command = match command {
            Ok(command) => command,
            Err(why) => {
                report.skipped(&[name], &why);
                continue;
            }
        };
        let mut other = Team::start([command])?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=effort.rounds * 2 {
            server.empty_tables(OURS)?;
            let mut times = [0.0, 0.0];
            for (time, team) in times.iter_mut().zip([&mut other, &mut rust]) {
                server.fill(OURS, CLAIMS * CLAIM_LIMIT)?;
                server.settle()?;
                let answer = team.round("go")?.answers.concat();
                if answer.len() != CLAIMS {
                    return Err(format!("{} claims were made of {CLAIMS}", answer.len()).into());
                }
                *time = median(&answer);
                server.check_done(OURS)?;
            }
            if round > 0 {
                ours.push(times[0]);
                theirs.push(times[1]);
            }
        }
        let pairs = Pairs { ours: &ours, counterpart: &theirs, counterpart_is: "Rust", unit: "us a claim" };
        report.ratio(name, &pairs, Target::AtMost(1.3));
    }
    drop(rust);
    server.drop_tables(OURS)
}

/// Rows that one claim of 100 locks in a table with 30,000 finished and 30,000 waiting ones.
fn locked(server: &mut Server, report: &mut Report) -> Result<()> {
    server.make_tables(OURS)?;
    server.fill(OURS, 30_000)?;
    server
        .run(&format!("UPDATE {OURS}jobs SET state = 'done', ready_at = NULL, finished_at = UTC_TIMESTAMP(6), attempts = 1"))?;
    server.fill(OURS, 30_000)?;
    server.run(&format!("ANALYZE TABLE {OURS}jobs"))?;
    // A pause in the transaction of the claim, in which the server can be asked.
    server.run(&format!(
        "CREATE TRIGGER {OURS}slow BEFORE INSERT ON {OURS}claims FOR EACH ROW SET NEW.worker = CONCAT('w', SLEEP(1))"
    ))?;
    let engine = Engine::connect(&server.dsn(OURS, "&heartbeat=0"))?;
    let most = std::thread::scope(|scope| -> Result<i64> {
        let claim = scope.spawn(|| engine.claim(&ClaimRequest::new("q").limit(100)).map(|claim| claim.len()));
        let mut most = 0;
        while !claim.is_finished() {
            let asked = format!(
                "SELECT COALESCE(MAX(trx_rows_locked), 0) FROM information_schema.innodb_trx WHERE trx_query LIKE '%{OURS}claims%'"
            );
            most = most.max(server.number(&asked)?);
            // The server answers from a copy that it renews when nobody has asked for 0.1 seconds.
            std::thread::sleep(Duration::from_millis(130));
        }
        match claim.join() {
            Ok(Ok(100)) => Ok(most),
            other => Err(format!("the claim of 100 answered {other:?}").into()),
        }
    })?;
    engine.close(Duration::from_secs(5))?;
    if most < 100 {
        return Err(format!("only {most} locked rows were seen").into());
    }
    report.value("locked_rows_per_claim_100", most as f64, "rows, target <= 216");
    server.drop_tables(OURS)
}

/// Claim and complete on a SQLite file, for orientation.
fn sqlite(report: &mut Report, effort: Effort) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("rowclaim-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = (|| -> Result<Vec<f64>> {
        let engine = Engine::connect(&format!("sqlite://{}/jobs.db", folder.display()))?;
        let mut per_second = Vec::new();
        for _ in 0..effort.rounds {
            engine.create_many(&ours::new_jobs(0, effort.jobs, false))?;
            let since = Instant::now();
            let done = ours::work_off(&engine, 100)?;
            per_second.push(done as f64 / since.elapsed().as_secs_f64());
            if done != effort.jobs {
                return Err(format!("{done} jobs were done of {}", effort.jobs).into());
            }
        }
        engine.close(Duration::from_secs(5))?;
        Ok(per_second)
    })();
    std::fs::remove_dir_all(&folder)?;
    report.value("sqlite_jobs_per_s", median(&measured?), "jobs/s, one worker, batches of 100");
    Ok(())
}
