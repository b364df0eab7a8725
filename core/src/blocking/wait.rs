//! Waiting for an asynchronous verb in slices, so that the host language can run its signal handlers.

use super::registry::Local;
use crate::background::unwritten;
use crate::engine::Claimed;
use crate::engine::ahead::{Ahead, Progress};
use crate::error::{Error, ErrorKind, Result};
use std::sync::OnceLock;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How long a signal may have to wait for its handler.
const SLICE: Duration = Duration::from_millis(50);
/// The longest a flush waits for a database that is away.
const LONGEST_FLUSH: Duration = Duration::from_secs(60);

static HOOK: OnceLock<fn() -> bool> = OnceLock::new();

/// Has `hook` called about every 50 ms in a thread that waits; `false` from it ends the wait with `Interrupted`.
///
/// For bindings; the first call counts.
pub fn set_wait_hook(hook: fn() -> bool) {
    let _ = HOOK.set(hook);
}

/// Whether the host wants to go on.
pub(super) fn go_on() -> bool {
    HOOK.get().is_none_or(|hook| hook())
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "the wait was interrupted")
}

impl Local {
    pub(super) fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.wait_in_slices(work, false)?.0
    }

    /// As [`Local::wait`], for what must be written: an interruption is answered when it is done, beside the answer. Only a
    /// second one ends the wait.
    pub(super) fn wait_through<T>(&self, work: impl Future<Output = Result<T>>) -> Result<(T, Result<()>)> {
        let (answer, interruption) = self.wait_in_slices(work, true)?;
        Ok((answer?, interruption))
    }

    fn wait_in_slices<T>(&self, work: impl Future<Output = Result<T>>, is_patient: bool) -> Result<(Result<T>, Result<()>)> {
        if HOOK.get().is_none() {
            return Ok((self.runtime.block_on(work), Ok(())));
        }
        let mut work = Box::pin(work);
        let mut interruption = Ok(());
        loop {
            let slice = async { tokio::time::timeout(SLICE, work.as_mut()).await };
            match self.runtime.block_on(slice) {
                Ok(answer) => return Ok((answer, interruption)),
                Err(_) if go_on() => {}
                Err(_) if is_patient && interruption.is_ok() => interruption = Err(interrupted()),
                // Dropping the work closes its connection: the server rolls an open transaction back.
                Err(_) => return Err(interrupted()),
            }
        }
    }

    /// Waits for a claim that the background thread makes; makes it here when the thread could not.
    pub(super) fn claimed_ahead(&self, ahead: Ahead) -> Result<Option<Claimed>> {
        loop {
            match ahead.progress(SLICE) {
                Progress::Taken(taken) => return Ok(taken),
                Progress::Failed => return self.wait(self.engine.claim_again(ahead)),
                Progress::Awaited if !go_on() => return Err(interrupted()),
                Progress::Awaited => {}
            }
        }
    }

    pub(super) fn flush(&self) -> Result<()> {
        let Some(background) = self.engine.shared.background.get() else { return Ok(()) };
        let receiver = background.flush()?;
        let since = std::time::Instant::now();
        loop {
            match receiver.recv_timeout(SLICE) {
                Ok(pending) => return unwritten(pending),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if since.elapsed() > LONGEST_FLUSH => {
                    return Err(Error::unavailable("outcomes could not be written yet; they are still tried"));
                }
                Err(RecvTimeoutError::Timeout) if !go_on() => return Err(interrupted()),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Sleeps in slices; `false` when the host wants to stop.
pub(super) fn sleep(span: Duration, mut is_over: impl FnMut() -> bool) -> bool {
    let until = std::time::Instant::now() + span;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() || is_over() {
            return true;
        }
        std::thread::sleep(left.min(SLICE));
        if !go_on() {
            return false;
        }
    }
}

/// The waits of somebody who asks again and again for what another one holds.
pub(super) struct Patience {
    until: Option<Instant>,
    pause: Duration,
}

impl Patience {
    /// The longest pause between two looks.
    const LONGEST: Duration = Duration::from_millis(500);

    /// Lasts for `wait` from now on.
    pub(super) fn new(wait: Duration) -> Self {
        Patience { until: Instant::now().checked_add(wait), pause: Duration::from_millis(20) }
    }

    /// Pauses before the next look; false, at once, when the time is over.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(super) fn pause(&mut self, operation: &'static str) -> Result<bool> {
        let left = self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(false);
        }
        // Who waits together does not ask together.
        let jittered = self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        if !sleep(jittered.min(left), || false) {
            return Err(interrupted().during(operation));
        }
        self.pause = (self.pause * 2).min(Self::LONGEST);
        Ok(true)
    }
}
