//! `rowclaim recover`: take jobs and rows back from claims whose lease has run out.

use crate::config::Config;
use crate::fault::{OK, Outcome};
use crate::json::{self, RecoveredView};
use crate::{connect, mapped, screen};
use clap::Args;

/// Take jobs and rows back from claims whose lease has run out
///
/// Workers do this by themselves, about once a second, while any of them claims. This is for when none runs. With --table
/// also the rows that other code holds for longer than the mapping allows.
#[derive(Args)]
pub struct Recover {
    /// Also stale rows of other code in this mapped table; may be given more than once
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Recover {
    /// Mapped tables are named.
    pub fn reads_file(&self) -> bool {
        !self.table.is_empty()
    }

    pub fn run(&self, dsn: Option<&str>, config: Config) -> Outcome {
        let engine = connect::engine(dsn)?;
        let known = if self.table.is_empty() { Vec::new() } else { mapped::all(&engine, config)? };
        let find = |name: &String| known.iter().find(|mapped| mapped.name == *name).ok_or_else(|| mapped::unmapped(name));
        let tables = self.table.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let mut recovered = engine.recover()?;
        for mapped in tables {
            recovered += engine.table(&mapped.name, &mapped.mapping)?.recover()?;
        }
        if self.json {
            json::line(&RecoveredView::from(recovered))?;
        } else {
            let rowclaim::Recovered { claims, returned, dead, held } = recovered;
            let held = if held > 0 { format!(", {held} wait for a person") } else { String::new() };
            screen::line(format!("recovered {claims} claims: {returned} jobs or rows are ready again, {dead} are dead{held}"))?;
        }
        Ok(OK)
    }
}
