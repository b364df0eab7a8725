//! `make bench`: what Rowclaim costs beside bare SQL, beside Laravel's database queue, and from PHP and Python.
//!
//! Every figure stands beside its counterpart, taken in the same run on the same server: A B A B, in several short
//! rounds, on tables in the same state; a ratio is the median of the ratios of the pairs. After every round it is proven
//! that each job was done, once. Times are reported, never judged by the exit status: 1 means that something broke.
//!
//! In reading order: `figures` (what is measured), `taken` (what a side of it took), `ours` and `floor` (the two sides),
//! `workers` (processes), `bindings` and `laravel` (other languages), `server`, `report`.

mod bindings;
mod figures;
mod floor;
mod laravel;
mod leases;
mod mapped;
mod ours;
mod report;
mod server;
mod taken;
mod workers;

use bindings::Bindings;
use report::Report;
use server::Server;

/// Anything that breaks ends the run with its message.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How long the figures are measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Pairs of rounds.
    pub rounds: usize,
    /// Jobs of a round with one worker; others take a multiple.
    pub jobs: usize,
}

const FULL: Effort = Effort { rounds: 7, jobs: 8_000 };
const QUICK: Effort = Effort { rounds: 3, jobs: 4_000 };

const USAGE: &str = "usage: bench [--quick] [FIGURE ...]
FIGURE: floors snapshot create mapped leases laravel claims locked sqlite; all when none is named.
The server is the one that ROWCLAIM_TEST_MARIADB names; tests/servers.py starts one.";

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, rest)) if first == "worker" => workers::serve(rest),
        _ => run(&arguments),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let mut effort = FULL;
    let mut wanted: Vec<&str> = Vec::new();
    for argument in arguments {
        match argument.as_str() {
            "--quick" => effort = QUICK,
            name if figures::NAMES.contains(&name) => wanted.push(name),
            _ => return Err(USAGE.into()),
        }
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
    let bindings = match ["laravel", "claims"].into_iter().any(is_wanted) {
        true => Bindings::find(),
        false => Bindings::none(),
    };
    let since = std::time::Instant::now();
    let mut server = Server::connect()?;
    let mut report = Report::default();
    report.text("server", &server.version()?);
    for name in figures::NAMES {
        if is_wanted(name) {
            figures::measure(name, &mut server, &mut report, &bindings, effort)?;
        }
    }
    report.value("seconds", since.elapsed().as_secs_f64(), "seconds of measuring");
    println!("{}", report.json());
    Ok(())
}
