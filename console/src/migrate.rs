//! `rowclaim migrate`: make or upgrade the tables, or print their SQL.

use crate::connect;
use crate::fault::{OK, Outcome};
use crate::screen;
use clap::Args;

/// Make or upgrade the tables, or print their SQL
///
/// Safe to run as often as you like, and from several machines at once: one applies, the others wait and find nothing
/// to do. With --print nothing is changed and no connection is made: the DSN only says which dialect and prefix.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim migrate
  rowclaim --dsn mysql://localhost/any migrate --print > schema.sql
  rowclaim --dsn 'mysql://localhost/any?prefix=shop_' migrate --print")]
pub struct Migrate {
    /// Print the whole schema for your own migration tool; needs no server
    #[arg(long)]
    print: bool,
}

impl Migrate {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        if self.print {
            // The facade connects when it is made; the engine below it does not.
            let engine = rowclaim::Engine::new(rowclaim::Config::new(connect::required(dsn)?)?)?;
            screen::line(engine.schema_sql().trim_end())?;
            return Ok(OK);
        }
        let migrated = connect::engine(dsn)?.migrate()?;
        screen::line(match migrated.from {
            from if from == migrated.to => format!("nothing to do: the tables are at version {from}"),
            0 => format!("made the tables, version {}", migrated.to),
            from => format!("upgraded the tables from version {from} to {}", migrated.to),
        })?;
        Ok(OK)
    }
}
