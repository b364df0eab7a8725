//! The operator's command line of Rowclaim: look at jobs, mend them, and see a bulk send survive its accidents.
//!
//! One file a command. What they share: [`connect`] (the DSN), [`config`] (the file), [`fault`] (errors and exit codes), [`screen`] (tables
//! and text on stdout), [`json`] (the same for programs), [`progress`] (bars on stderr). No command knows SQL: all
//! go through `rowclaim::blocking::Engine`.

mod claims;
mod config;
mod connect;
mod create;
mod demo;
mod doctor;
mod fault;
mod jobs;
mod json;
mod leases;
mod mapped;
mod migrate;
mod progress;
mod prune;
mod recover;
mod rows;
mod screen;
mod span;
mod stats;
mod tables;

use clap::{Parser, Subcommand};
use config::Config;
use fault::Outcome;
use std::path::PathBuf;
use std::process::ExitCode;

const ABOUT: &str = "\
Rowclaim hands out rows of a database table to workers so that a row has at most one valid owner
at a time, a dead owner's rows come back, a late owner's writes are refused, and the same job is
created once.

This is the console for its jobs table on MySQL, MariaDB or SQLite.";

const AFTER: &str = "\
Databases:
  mysql://user:password@host:3306/shop    MySQL; options follow: ?prefix=shop_&connect_timeout=2
  mariadb://user@host/shop                MariaDB
  sqlite:///var/lib/shop/jobs.db          an SQLite file, absolute; sqlite:jobs.db is relative

  A password in --dsn can be seen in the list of processes; in ROWCLAIM_DSN it cannot.
  Without either, the dsn of the configuration file counts; see --config.

Examples:
  export ROWCLAIM_DSN=mysql://app:secret@127.0.0.1/shop
  rowclaim migrate                                   make or upgrade the tables
  rowclaim create mail '{\"to\": 7}' --key mail:7      create a job once, however often this runs
  rowclaim doctor                                    what is wrong with server and tables, and what mends it
  rowclaim stats --watch 2                           what waits, runs and is dead, again and again
  rowclaim jobs list --state dead --queue mail       who waits for a person
  rowclaim jobs show 4711                            one job with its failed attempts
  rowclaim jobs retry --dead --queue mail            put them all back
  rowclaim jobs resolve 4711 --sent                  what became of a job that was begun, and is held
  rowclaim tables                                    which of your own tables are mapped, and how
  rowclaim rows list xxx_task_target --status 1      rows of a mapped table
  rowclaim claims show 4711                          which rows a claim took, and how each ended
  rowclaim leases                                    who holds which lease by name, and until when
  rowclaim recover --table xxx_task_target           take back what other code has left behind
  rowclaim prune --older-than 7d                     delete what ended over a week ago
  rowclaim demo                                      a bulk send with accidents, accounted for

Exit codes:
  0    ok
  1    a fault, or the answer is no (a job could not be retried; the demo found a loss)
  2    wrong use: an unknown command, option or value
  3    not found: there is no such job
  4    unavailable: the database cannot be reached, or stays locked
  5    configuration or schema: wrong DSN, password or option; tables missing or of another version
  130  the demo was interrupted, and has cleaned up

RUST_LOG sets what is logged to stderr, for example RUST_LOG=rowclaim=debug; the default is warn.";

#[derive(Parser)]
#[command(name = "rowclaim", version, about = "The console of Rowclaim, the claim engine for batch work in database tables")]
#[command(long_about = ABOUT, after_long_help = AFTER, after_help = "`rowclaim --help` has examples and exit codes.")]
struct Console {
    /// The database; see `rowclaim --help` for its forms.
    #[arg(long, global = true, env = "ROWCLAIM_DSN", hide_env_values = true, value_name = "DSN")]
    dsn: Option<String>,
    /// A JSON file with the database and its mapped tables: {"dsn": "…", "tables": {"name": {mapping}}}; otherwise
    /// rowclaim.json, where there is one
    #[arg(long, global = true, env = "ROWCLAIM_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

// The help of a command is at its struct.
#[derive(Subcommand)]
enum Command {
    Migrate(migrate::Migrate),
    Doctor(doctor::Doctor),
    Stats(stats::Stats),
    #[command(subcommand)]
    Jobs(jobs::Jobs),
    Create(create::Create),
    Tables(tables::Tables),
    #[command(subcommand)]
    Rows(rows::Rows),
    #[command(subcommand)]
    Claims(claims::Claims),
    Release(claims::Release),
    Leases(leases::Leases),
    Recover(recover::Recover),
    Prune(prune::Prune),
    Demo(demo::Demo),
    /// A worker of the demo without PHP or Python
    #[command(hide = true)]
    DemoWorker,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let console = match Console::try_parse() {
        Ok(console) => console,
        Err(error) => return refuse(&error),
    };
    let code = match run(&console) {
        Ok(code) => code,
        Err(fault) => fault.report(),
    };
    rowclaim::blocking::close_all(std::time::Duration::from_secs(5));
    ExitCode::from(code)
}

/// Prints help, or what is wrong with the arguments: without the password of a DSN in the wrong place.
fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    if error.use_stderr() && text.contains("://") {
        progress::say(connect::redacted(&text).trim_end());
    } else {
        // As clap itself: a reader that left early is no fault.
        let _ = error.print();
    }
    ExitCode::from(if error.use_stderr() { fault::USAGE } else { fault::OK })
}

/// The commands that look at mapped tables.
fn reads_file(command: &Command) -> bool {
    match command {
        Command::Doctor(_) | Command::Tables(_) | Command::Rows(_) | Command::Release(_) => true,
        Command::Recover(command) => command.reads_file(),
        _ => false,
    }
}

fn run(console: &Console) -> Outcome {
    let dsn = console.dsn.as_deref();
    // A broken file in the current folder is nothing to a command that does not need it, and the demo runs on a database
    // of its own unless it is told otherwise on the command line.
    let is_demo = matches!(console.command, Command::Demo(_) | Command::DemoWorker);
    let needs_file = !is_demo && (dsn.is_none() || console.config.is_some() || reads_file(&console.command));
    let config = if needs_file { Config::load(console.config.as_deref())? } else { Config::default() };
    let named = config.dsn.clone();
    let dsn = dsn.or(named.as_deref());
    match &console.command {
        Command::Doctor(command) => command.run(dsn, config),
        Command::Migrate(command) => command.run(dsn),
        Command::Stats(command) => command.run(dsn),
        Command::Jobs(command) => command.run(dsn),
        Command::Create(command) => command.run(dsn),
        Command::Tables(command) => command.run(dsn, config),
        Command::Rows(command) => command.run(dsn, config),
        Command::Claims(command) => command.run(dsn),
        Command::Leases(command) => command.run(dsn),
        Command::Release(command) => command.run(dsn, config),
        Command::Recover(command) => command.run(dsn, config),
        Command::Prune(command) => command.run(dsn),
        Command::Demo(command) => command.run(dsn),
        Command::DemoWorker => demo::rust_worker::run(dsn),
    }
}
