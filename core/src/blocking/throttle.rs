//! Waiting for a place within a limit that all workers share.

use super::Engine;
use super::wait::sleep;
use crate::engine::throttle::{Place, ThrottleRequest};
use crate::error::{Error, ErrorKind, Result};

impl Engine {
    /// Waits until the next one of a limit may go, then answers true; false at once when that is farther away than
    /// [`ThrottleRequest::wait`]. All workers with the same name share the limit, by the database's clock.
    ///
    /// # Errors
    /// `Invalid`, naming the option; `Schema`, `Unavailable`; `Interrupted` while waiting: the place is given up.
    pub fn throttle(&self, request: &ThrottleRequest) -> Result<bool> {
        let local = self.local()?;
        match local.wait(local.engine.reserve(request))? {
            Place::TooFar => Ok(false),
            Place::After(time) if sleep(time, || false) => Ok(true),
            Place::After(_) => Err(Error::new(ErrorKind::Interrupted, "the wait was interrupted").during("throttle")),
        }
    }
}
