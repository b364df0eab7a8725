//! The one background thread of an engine: heartbeat, group finish, closing of claims.
//!
//! It has its own runtime and its own connection, so it goes on while the foreground sits in a handler, in
//! curl, or in a held interpreter lock. The one thing to know: the heartbeat comes before everything else.

mod writer;

use crate::claim::{ClaimState, Outcome};
use crate::engine::Shared;
use crate::engine::ahead::Order;
use crate::engine::effect::Settlement;
use crate::engine::lease::LeaseState;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::finish::Held;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use uuid::Uuid;
use writer::Writer;

pub(crate) use writer::Pending;

/// What the foreground tells the thread.
enum Command {
    Watch(Arc<ClaimState>),
    Forget(i64),
    WatchLease(Arc<LeaseState>),
    ForgetLease(Uuid),
    Finish {
        claim: Arc<ClaimState>,
        job: Held,
        outcome: Outcome,
    },
    Close(i64),
    Claim(Box<Order>),
    Settle(Box<Settlement>),
    /// Answered when everything before it is written, or with how many outcomes are not.
    Flush {
        answer: SyncSender<usize>,
    },
    Stop {
        limit: Duration,
        answer: SyncSender<usize>,
    },
}

/// The foreground's end of the thread.
pub(crate) struct Background {
    commands: UnboundedSender<Command>,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let (commands, inbox) = unbounded_channel();
        // The thread must not keep the engine alive: it ends when the last handle is dropped.
        let weak = Arc::downgrade(shared);
        let body = move || Writer::run(&weak, inbox);
        let thread = with_signals_blocked(|| std::thread::Builder::new().name("rowclaim".to_owned()).spawn(body))
            .map_err(|e| Error::new(ErrorKind::Unexpected, format!("the background thread cannot be started: {e}")))?;
        Ok(Background { commands, thread: std::sync::Mutex::new(Some(thread)) })
    }

    /// Renews the claim from now on.
    pub(crate) fn watch(&self, claim: &Arc<ClaimState>) {
        let _ = self.commands.send(Command::Watch(Arc::clone(claim)));
    }

    /// Renews the claim no more; it expires.
    pub(crate) fn forget(&self, claim: &ClaimState) {
        let _ = self.commands.send(Command::Forget(claim.id));
    }

    /// Renews the lease from now on.
    pub(crate) fn watch_lease(&self, lease: &Arc<LeaseState>) {
        let _ = self.commands.send(Command::WatchLease(Arc::clone(lease)));
    }

    /// Renews the lease no more; it ends.
    pub(crate) fn forget_lease(&self, lease: &LeaseState) {
        let _ = self.commands.send(Command::ForgetLease(lease.owner));
    }

    /// Writes an outcome soon, together with others.
    ///
    /// # Errors
    /// `Unexpected` when the thread has ended.
    pub(crate) fn finish(&self, claim: &Arc<ClaimState>, job: Held, outcome: Outcome) -> Result<()> {
        self.commands.send(Command::Finish { claim: Arc::clone(claim), job, outcome }).map_err(|_| gone())
    }

    /// Closes a claim whose rows are all finished, soon.
    pub(crate) fn close_claim(&self, claim: &ClaimState) {
        let _ = self.commands.send(Command::Close(claim.id));
    }

    /// Makes a claim soon.
    ///
    /// # Errors
    /// `Unexpected` when the thread has ended.
    pub(crate) fn claim(&self, order: Order) -> Result<()> {
        self.commands.send(Command::Claim(Box::new(order))).map_err(|_| gone())
    }

    /// Goes on trying to write down what an effect came to.
    ///
    /// # Errors
    /// `Unexpected` when the thread has ended.
    pub(crate) fn settle(&self, settlement: Settlement) -> Result<()> {
        self.commands.send(Command::Settle(Box::new(settlement))).map_err(|_| gone())
    }

    /// Asks for everything sent before to be written. The receiver answers with the number of outcomes that are not.
    ///
    /// # Errors
    /// `Unexpected` when the thread has ended.
    pub(crate) fn flush(&self) -> Result<std::sync::mpsc::Receiver<usize>> {
        let (answer, receiver) = sync_channel(1);
        self.commands.send(Command::Flush { answer }).map_err(|_| gone())?;
        Ok(receiver)
    }

    /// Writes what is pending, then ends the thread. The heartbeat is the last to stop.
    ///
    /// # Errors
    /// `Unavailable` when outcomes are left unwritten.
    pub(crate) fn stop(&self, limit: Duration) -> Result<()> {
        let thread = crate::engine::lock(&self.thread).take();
        let Some(thread) = thread else { return Ok(()) };
        let (answer, receiver) = sync_channel(1);
        let pending = match self.commands.send(Command::Stop { limit, answer }) {
            Ok(()) => receiver.recv_timeout(limit + Duration::from_secs(1)).unwrap_or(0),
            Err(_) => 0,
        };
        if thread.is_finished() || !limit.is_zero() {
            let _ = thread.join();
        }
        unwritten(pending)
    }
}

pub(crate) fn unwritten(pending: usize) -> Result<()> {
    match pending {
        0 => Ok(()),
        n => Err(Error::new(
            ErrorKind::Unavailable,
            format!("{n} outcomes could not be written; their jobs come back when the lease ends"),
        )),
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Unexpected, "the background thread has ended")
}

/// Runs `work` with all signals blocked, so that threads it starts never run the host's signal handlers.
/// Faults of the thread itself stay deliverable.
pub(crate) fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut all = SigSet::all();
    for fault in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGABRT] {
        all.remove(fault);
    }
    let mut before = SigSet::empty();
    let blocked = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&all), Some(&mut before)).is_ok();
    let answer = work();
    if blocked {
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    }
    answer
}
