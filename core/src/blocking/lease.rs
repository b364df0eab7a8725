//! A lease in its holder's hands. Dropped, it is given back; in a forked child it is the parent's and left alone.

use super::registry::Local;
use super::wait::Patience;
use crate::engine::guard::GuardedWrite;
use crate::engine::lease::{Acquired, Busy, LeaseRequest, LeaseState};
use crate::error::Result;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The answer to [`super::Engine::lease`].
pub enum Leased {
    /// It is ours.
    Acquired(Lease),
    /// Somebody else holds it.
    Busy(Busy),
}

/// A lease that is held; renewed in the background until it is released or dropped.
pub struct Lease {
    local: Arc<Local>,
    state: Arc<LeaseState>,
}

pub(super) fn acquire(local: &Arc<Local>, request: &LeaseRequest) -> Result<Leased> {
    let mut patience = Patience::new(request.wait);
    loop {
        let busy = match local.wait(local.engine.acquire(request))? {
            Acquired::Lease(state) => return Ok(Leased::Acquired(Lease { local: Arc::clone(local), state })),
            Acquired::Busy(busy) => busy,
        };
        if !patience.pause("lease")? {
            return Ok(Leased::Busy(busy));
        }
    }
}

impl Lease {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The token of this holding: 128 random bits.
    pub fn token(&self) -> Uuid {
        self.state.owner
    }

    /// A number above that of every earlier holder; for writes that late holders must not make.
    pub fn fence(&self) -> i64 {
        self.state.fence
    }

    /// True once a renewal was refused, or after it was released: somebody else may hold it now.
    pub fn is_lost(&self) -> bool {
        self.state.is_lost()
    }

    /// For how long it is surely held from now on; zero when lost.
    pub fn valid_for(&self) -> Duration {
        self.state.valid_for()
    }

    /// Renews it now; false when it is lost.
    ///
    /// # Errors
    /// `Invalid` after a fork or close; `Unavailable`: it stays valid for [`Lease::valid_for`].
    pub fn renew(&self) -> Result<bool> {
        // A row that was deleted meanwhile would be put back.
        if self.is_lost() {
            return Ok(false);
        }
        self.local.wait(self.local.engine.renew_lease(&self.state))
    }

    /// Gives it back; false when it was lost before. Giving back twice is allowed.
    ///
    /// # Errors
    /// `Invalid` after a fork or close; `Unavailable`: it ends by itself then.
    pub fn release(&self) -> Result<bool> {
        if self.is_lost() {
            return Ok(false);
        }
        if let Some(background) = self.local.engine.shared.background.get() {
            background.forget_lease(&self.state);
        }
        self.local.wait(self.local.engine.release_lease(&self.state))
    }

    /// Makes a write with this lease's fence, whatever the write's own is; false when a later holder has written before.
    ///
    /// # Errors
    /// As [`super::Engine::guard`]; `Invalid` after a fork or close.
    pub fn guard(&self, write: &GuardedWrite) -> Result<bool> {
        let write = GuardedWrite { fence: self.fence(), ..write.clone() };
        self.local.wait(self.local.engine.guard(&write))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.local.engine.shared.is_foreign() {
            // The parent's: not a byte on its sockets.
            std::mem::forget(Arc::clone(&self.local));
            return;
        }
        if let Err(error) = self.release() {
            log::warn!("{error}");
        }
    }
}
