//! `rowclaim tables`: which tables are mapped, and how.

use crate::config::Config;
use crate::fault::{OK, Outcome};
use crate::mapped::{self, Mapped};
use crate::{connect, json, screen};
use clap::Args;
use serde_json::value::RawValue;

/// List the mapped tables
///
/// Those of the configuration file, and those that claims were made from in this database.
#[derive(Args)]
pub struct Tables {
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// A mapped table, for programs.
#[derive(serde::Serialize)]
struct View<'a> {
    name: &'a str,
    origin: &'a str,
    fits: bool,
    problem: Option<String>,
    mapping: Box<RawValue>,
}

impl Tables {
    pub fn run(&self, dsn: Option<&str>, config: Config) -> Outcome {
        let engine = connect::engine(dsn)?;
        let found = mapped::all(&engine, config)?;
        let problem = |mapped: &Mapped| engine.table(&mapped.name, &mapped.mapping).err().map(|error| error.message().to_owned());
        if self.json {
            for mapped in &found {
                let problem = problem(mapped);
                let mapping = RawValue::from_string(mapped.mapping.to_json()).map_err(std::io::Error::from)?;
                let view = View { name: &mapped.name, origin: mapped.origin, fits: problem.is_none(), problem, mapping };
                json::line(&view)?;
            }
            return Ok(OK);
        }
        if found.is_empty() {
            screen::line("no mapped tables")?;
            return Ok(OK);
        }
        let mut table = screen::table(["table", "known from", "key", "status", "token", "fits"]);
        for mapped in &found {
            table.add_row([
                screen::text(&mapped.name),
                screen::text(mapped.origin),
                screen::text(mapped.mapping.key.as_deref().unwrap_or("(primary)")),
                screen::text(&mapped.mapping.status),
                screen::text(&mapped.mapping.token),
                screen::text(&problem(mapped).unwrap_or_else(|| "yes".to_owned())),
            ]);
        }
        screen::show(&table)?;
        Ok(OK)
    }
}
