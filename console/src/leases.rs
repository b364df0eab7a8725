//! `rowclaim leases`: who holds which lease by name, and until when.

use crate::fault::{OK, Outcome};
use crate::{connect, json, screen, span};
use clap::Args;
use comfy_table::Cell;
use rowclaim::{LeaseFilter, LeaseRecord};
use serde::Serialize;

/// List leases in the order of their names
///
/// Those that were given back or have run out are listed too, with their last holder.
#[derive(Args)]
pub struct Leases {
    /// Leases at most, 1 to 10,000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// A lease, for programs.
#[derive(Serialize)]
struct View<'a> {
    name: &'a str,
    holder: &'a str,
    fence: i64,
    acquired_at: String,
    lease_until: String,
    is_held: bool,
}

impl<'a> From<&'a LeaseRecord> for View<'a> {
    fn from(lease: &'a LeaseRecord) -> Self {
        View {
            name: &lease.name,
            holder: &lease.holder,
            fence: lease.fence,
            acquired_at: span::instant(lease.acquired_at),
            lease_until: span::instant(lease.lease_until),
            is_held: lease.is_held,
        }
    }
}

impl Leases {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        let leases = connect::engine(dsn)?.leases(&LeaseFilter { limit: self.limit })?;
        if self.json {
            leases.iter().try_for_each(|lease| json::line(&View::from(lease)))?;
            return Ok(OK);
        }
        if leases.is_empty() {
            screen::line("no leases")?;
            return Ok(OK);
        }
        let mut table = screen::table(["name", "holder", "fence", "acquired", "until", "held"]);
        for lease in &leases {
            table.add_row([
                screen::text(&lease.name),
                screen::text(&lease.holder),
                Cell::new(lease.fence),
                Cell::new(span::shown(lease.acquired_at)),
                Cell::new(span::shown(lease.lease_until)),
                Cell::new(if lease.is_held { "yes" } else { "no" }),
            ]);
        }
        screen::show(&table)?;
        Ok(OK)
    }
}
