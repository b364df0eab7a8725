//! Workers are processes: this binary again, PHP, or Python. They connect, say `ready`, and do one round per line they
//! are sent, so that a figure's rounds find warm connections and prepared statements.
//!
//! A line is `go` or `fill N`; the answer is one line of numbers. A worker ends when its input does.

use crate::floor::Floor;
use crate::server::cpu_of;
use crate::{Result, mapped, ours};
use rowclaim::blocking::Engine;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Claims of one round of `claims`.
pub const CLAIMS: usize = 20;
/// Jobs of one of these claims.
pub const CLAIM_LIMIT: usize = 100;

/// Some processes that do the same.
pub struct Team {
    workers: Vec<Worker>,
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What a round took.
#[derive(Clone, Debug, Default)]
pub struct Round {
    pub seconds: f64,
    /// Processor time of the workers, in seconds.
    pub cpu: f64,
    /// The numbers each worker answered with.
    pub answers: Vec<Vec<f64>>,
}

impl Round {
    /// Jobs done by all workers.
    pub fn jobs(&self) -> f64 {
        self.answers.iter().filter_map(|answer| answer.first()).sum()
    }
}

impl Team {
    /// Starts the processes and waits until all are ready.
    pub fn start(commands: impl IntoIterator<Item = Command>) -> Result<Team> {
        let workers = commands.into_iter().map(Worker::start).collect::<Result<Vec<_>>>()?;
        let mut team = Team { workers };
        for worker in &mut team.workers {
            if worker.line()? != "ready" {
                return Err("a worker did not get ready; its message is above".into());
            }
        }
        Ok(team)
    }

    /// One worker of this binary.
    pub fn own(kind: &str, dsn: &str, batch: usize) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", kind, dsn, &batch.to_string()]);
        Ok(command)
    }

    /// Sends one line to every worker and waits for all answers.
    pub fn round(&mut self, line: &str) -> Result<Round> {
        let cpu = self.cpu();
        let since = Instant::now();
        for worker in &mut self.workers {
            worker.send(line)?;
        }
        let answers = self.workers.iter_mut().map(Worker::numbers).collect::<Result<_>>()?;
        let seconds = since.elapsed().as_secs_f64();
        Ok(Round { seconds, cpu: self.cpu() - cpu, answers })
    }

    /// Sends a line to the first worker alone.
    pub fn ask_one(&mut self, line: &str) -> Result<()> {
        let Some(worker) = self.workers.first_mut() else { return Ok(()) };
        worker.send(line)?;
        worker.numbers().map(drop)
    }

    fn cpu(&self) -> f64 {
        self.workers.iter().map(|worker| cpu_of(worker.child.id())).sum()
    }
}

impl Worker {
    fn start(mut command: Command) -> Result<Worker> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker has no pipes".into());
        };
        Ok(Worker { child, input: Some(input), output: BufReader::new(output) })
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or("the worker was told to end")?;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a worker ended early; its message is above".into());
        }
        Ok(line.trim().to_owned())
    }

    fn numbers(&mut self) -> Result<Vec<f64>> {
        let line = self.line()?;
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|number| number.parse().ok()).collect();
        numbers.ok_or_else(|| format!("a worker answered: {line}").into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.input = None;
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(5) {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of a worker of this binary: `KIND DSN BATCH`.
pub fn serve(arguments: &[String]) -> Result<()> {
    let [kind, dsn, batch] = arguments else { return Err("usage: worker KIND DSN BATCH".into()) };
    let batch: usize = batch.parse()?;
    match kind.as_str() {
        "floor" => {
            let prefix = dsn.split_once("prefix=").map(|(_, rest)| rest.split('&').next().unwrap_or(rest));
            let mut floor = Floor::connect(dsn, prefix.ok_or("the DSN has no prefix")?)?;
            rounds(|| Ok(floor.work_off(batch)?.to_string()))
        }
        "engine" => {
            let engine = ready_engine(dsn)?;
            rounds(|| Ok(ours::work_off(&engine, batch)?.to_string()))
        }
        kind if kind.starts_with("mapped:") => {
            let engine = ready_engine(dsn)?;
            let table = engine.table(kind.trim_start_matches("mapped:"), &mapped::mapping()?)?;
            rounds(|| Ok(mapped::work_off(&table, &engine, batch)?.to_string()))
        }
        "work" => {
            let engine = ready_engine(dsn)?;
            rounds(|| Ok(ours::work_loop(&engine, batch)?.to_string()))
        }
        "claims" => {
            let engine = ready_engine(dsn)?;
            rounds(|| {
                let times = ours::time_claims(&engine, CLAIMS, batch)?;
                Ok(times.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
            })
        }
        _ => Err(format!("unknown worker {kind}").into()),
    }
}

fn ready_engine(dsn: &str) -> Result<Engine> {
    Ok(Engine::connect(dsn)?)
}

fn rounds(mut round: impl FnMut() -> Result<String>) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "ready")?;
    output.flush()?;
    for line in std::io::stdin().lines() {
        line?;
        writeln!(output, "{}", round()?)?;
        output.flush()?;
    }
    Ok(())
}
