//! What a mapping must have so that rows that were begun can be held.

use super::Table;
use crate::claim::OnLost;
use crate::error::{Error, Result};

impl Table {
    /// What `on_lost` hold needs.
    pub(super) fn check_held(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::config(format!("{}: {text}", self.name.shown())));
        let others = [Some(&self.pending), Some(&self.processing), Some(&self.done), self.failed.as_ref()];
        if self.held.is_some() && others.contains(&self.held.as_ref()) {
            return refuse("held must differ from pending, processing, done and failed");
        }
        match (self.mapping.on_lost, &self.held) {
            // Rows that are held from before can still be resolved.
            (OnLost::Retry, _) => Ok(()),
            (OnLost::Hold, None) => refuse("on_lost hold needs held, the status of rows that wait for a person"),
            (OnLost::Hold, Some(_)) if !self.mapping.registry => {
                refuse("on_lost hold needs the registry, where it is written which rows were begun; leave registry off out")
            }
            (OnLost::Hold, Some(_)) if self.recurs() => {
                refuse("on_lost hold is for rows that end: done must differ from pending")
            }
            (OnLost::Hold, Some(_)) => Ok(()),
        }
    }
}
