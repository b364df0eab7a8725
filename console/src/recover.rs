//! `rowclaim recover`: take jobs back from claims whose lease has run out.

use crate::fault::{OK, Outcome};
use crate::json::{self, RecoveredView};
use crate::{connect, screen};
use clap::Args;

/// Take jobs back from claims whose lease has run out
///
/// Workers do this by themselves, about once a second, while any of them claims. This is for when none runs.
#[derive(Args)]
pub struct Recover {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Recover {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        let recovered = connect::engine(dsn)?.recover()?;
        if self.json {
            json::line(&RecoveredView::from(recovered))?;
        } else {
            let (claims, returned, dead) = (recovered.claims, recovered.returned, recovered.dead);
            screen::line(format!("recovered {claims} claims: {returned} jobs are ready again, {dead} are dead"))?;
        }
        Ok(OK)
    }
}
