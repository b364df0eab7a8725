//! The body of the background thread: a loop over commands, beats and writes.

use super::Command;
use crate::claim::{ClaimState, Outcome};
use crate::driver::Session;
use crate::engine::ahead::{self, Order};
use crate::engine::effect::{self, Settlement};
use crate::engine::lease::LeaseState;
use crate::engine::renew::unless_permanent;
use crate::engine::{Shared, group};
use crate::error::Result;
use crate::plan::finish::Held;
use crate::plan::ids::Ids;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use uuid::Uuid;

/// Claims that have nothing left are closed together, at the latest after this time.
const CLOSE_AFTER: Duration = Duration::from_secs(1);
/// Outcomes at most in one transaction.
const GROUP: usize = 2_000;
/// The longest pause after a failed write or beat; shorter while short leases must be renewed.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A write that waits for a row lock must not hold up the next beat.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// An outcome that waits to be written.
pub(crate) struct Pending {
    pub claim: Arc<ClaimState>,
    pub job: Held,
    pub outcome: Outcome,
}

#[derive(Default)]
pub(super) struct Writer {
    watched: BTreeMap<i64, Arc<ClaimState>>,
    leases: BTreeMap<Uuid, Arc<LeaseState>>,
    pending: Vec<Pending>,
    /// Outcomes given up since somebody last asked.
    refused: usize,
    closing: BTreeSet<i64>,
    orders: Vec<Order>,
    settlements: Vec<Settlement>,
    close_at: Option<Instant>,
    beat_at: Option<Instant>,
    flushes: Vec<SyncSender<usize>>,
    stop: Option<(Instant, SyncSender<usize>)>,
    session: Option<Session>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Writer {
    /// Runs until told to stop, or until the last handle of the engine is gone.
    pub(super) fn run(shared: &Weak<Shared>, mut inbox: UnboundedReceiver<Command>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return log::error!("the background thread has no runtime: {error}"),
        };
        runtime.block_on(async {
            let mut writer = Writer::default();
            loop {
                let is_open = writer.receive(&mut inbox).await;
                let Some(shared) = shared.upgrade() else { break };
                writer.step(&shared).await;
                if writer.is_done(is_open) {
                    break;
                }
            }
            if let Some((_, answer)) = writer.stop.take() {
                let _ = answer.send(writer.unwritten());
            }
            if let Some(session) = writer.session.take() {
                session.close(Duration::from_secs(1)).await;
            }
        });
    }

    /// Waits for the next command or the next thing to do; false when no more commands can come.
    async fn receive(&mut self, inbox: &mut UnboundedReceiver<Command>) -> bool {
        let due = self.next_due();
        let first = match due {
            Some(at) => tokio::time::timeout_at(at, inbox.recv()).await,
            None => Ok(inbox.recv().await),
        };
        match first {
            Ok(Some(command)) => self.take(command),
            Ok(None) => return false,
            Err(_) => {}
        }
        while self.pending.len() < GROUP {
            let Ok(command) = inbox.try_recv() else { break };
            self.take(command);
        }
        true
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Watch(claim) => {
                self.beat_within(claim.lease / 3);
                self.watched.insert(claim.id, claim);
            }
            Command::Forget(id) => {
                self.watched.remove(&id);
            }
            Command::WatchLease(lease) => {
                self.beat_within(lease.lease / 3);
                self.leases.insert(lease.owner, lease);
            }
            Command::ForgetLease(owner) => {
                self.leases.remove(&owner);
            }
            Command::Finish { claim, job, outcome } => self.pending.push(Pending { claim, job, outcome }),
            Command::Close(id) => self.close(id),
            Command::Claim(order) => self.orders.push(*order),
            Command::Settle(settlement) => self.settlements.push(*settlement),
            Command::Flush { answer } => self.flushes.push(answer),
            Command::Stop { limit, answer } => self.stop = Some((Instant::now() + limit, answer)),
        }
    }

    fn beat_within(&mut self, span: Duration) {
        let beat = Instant::now() + span;
        self.beat_at = Some(self.beat_at.map_or(beat, |at| at.min(beat)));
    }

    /// Outcomes that wait for the database, or were refused by it.
    fn unwritten(&self) -> usize {
        self.pending.len() + self.settlements.len() + self.refused
    }

    fn has_writes(&self) -> bool {
        !self.pending.is_empty() || !self.settlements.is_empty()
    }

    fn watches(&self) -> bool {
        !self.watched.is_empty() || !self.leases.is_empty()
    }

    /// The shortest lease that must be renewed.
    fn shortest(&self) -> Option<Duration> {
        let claims = self.watched.values().map(|claim| claim.lease);
        claims.chain(self.leases.values().map(|lease| lease.lease)).min()
    }

    fn close(&mut self, id: i64) {
        self.watched.remove(&id);
        self.closing.insert(id);
        self.close_at.get_or_insert_with(|| Instant::now() + CLOSE_AFTER);
    }

    /// When there is something to do next without a command.
    fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let has_work = self.has_writes() || !self.orders.is_empty() || !self.flushes.is_empty() || self.stop.is_some();
        let work = has_work.then_some(now);
        let beat = self.beat_at.filter(|_| self.watches());
        let next = [work, beat, self.close_at].into_iter().flatten().min()?;
        Some(self.not_before.map_or(next, |earliest| next.max(earliest)))
    }

    fn is_done(&self, is_open: bool) -> bool {
        let is_written = !self.has_writes() && self.closing.is_empty();
        match &self.stop {
            Some((until, _)) => is_written || Instant::now() >= *until,
            None => !is_open && is_written,
        }
    }

    /// Does what is due: the beat first, then outcomes, then closings.
    async fn step(&mut self, shared: &Arc<Shared>) {
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            // Nobody waits for a claim behind a database that is away: the foreground finds out itself.
            self.orders.clear();
            return;
        }
        match self.work(shared).await {
            Ok(()) => {
                self.failures = 0;
                self.not_before = None;
                if !self.has_writes() && !self.flushes.is_empty() {
                    let refused = std::mem::take(&mut self.refused);
                    self.flushes.drain(..).for_each(|answer| {
                        let _ = answer.send(refused);
                    });
                }
            }
            Err(error) => {
                log::warn!("background: {error}");
                let is_usable = match self.session.as_mut() {
                    Some(session) => !error.drops_connection() && session.rollback().await.is_ok(),
                    None => false,
                };
                if !is_usable {
                    self.session = None;
                }
                let pause = Duration::from_millis(20) * (1 << self.failures.min(8));
                self.failures += 1;
                let shortest = self.shortest().map(|lease| lease / 6);
                self.not_before = Some(Instant::now() + pause.min(shortest.unwrap_or(LONGEST_PAUSE)).min(LONGEST_PAUSE));
                self.give_up(shared);
            }
        }
    }

    /// Outcomes whose claims are over cannot be accepted for sure any more: they are left to recovery.
    fn give_up(&mut self, shared: &Shared) {
        if self.failures < 10 {
            return;
        }
        let left = self.unwritten();
        for answer in self.flushes.drain(..) {
            let _ = answer.send(left);
        }
        log::error!("{}: {left} outcomes wait for the database", shared.worker);
    }

    async fn work(&mut self, shared: &Arc<Shared>) -> Result<()> {
        let now = Instant::now();
        self.watched.retain(|_, claim| !claim.is_lost() && !claim.is_finished());
        self.leases.retain(|_, lease| !lease.is_lost());
        let must_beat = self.watches() && self.beat_at.is_some_and(|at| at <= now);
        let must_close = !self.closing.is_empty()
            && (self.close_at.is_some_and(|at| at <= now)
                || self.closing.len() >= 50
                || !self.flushes.is_empty()
                || self.stop.is_some());
        if !must_beat && !must_close && !self.has_writes() && self.orders.is_empty() {
            return Ok(());
        }
        if self.session.is_none() {
            self.session = Some(shared.driver.open(&shared.config, LOCK_TIMEOUT).await?);
        }
        let shortest = self.shortest();
        let Some(session) = self.session.as_mut() else { return Ok(()) };
        if must_beat {
            let claims: Vec<_> = self.watched.values().cloned().collect();
            shared.beat(session, &claims, self.leases.values()).await?;
            self.beat_at = shortest.map(|lease| Instant::now() + lease / 3);
        }
        if !self.pending.is_empty() {
            let written = group::write(shared, session, &mut self.pending).await?;
            for id in written.finished {
                self.watched.remove(&id);
                self.closing.insert(id);
                self.close_at.get_or_insert(now + CLOSE_AFTER);
            }
            for (id, outcomes) in written.refused {
                // Renewed no more, so that its rows come back.
                self.watched.remove(&id);
                self.refused += outcomes;
            }
        }
        while let Some(settlement) = self.settlements.last() {
            match effect::settle(shared, session, settlement).await {
                Ok(Some(_)) => {
                    let claim = settlement.completes.as_ref().map(|completes| Arc::clone(&completes.claim));
                    if let Some(claim) = claim.filter(|claim| claim.finished(1)) {
                        self.closing.insert(claim.id);
                        self.close_at.get_or_insert(now + CLOSE_AFTER);
                    }
                }
                Ok(None) => {}
                Err(error) if !error.is_permanent() => return Err(error),
                Err(error) => unless_permanent(session, Err(error)).await?,
            }
            self.settlements.pop();
        }
        for order in std::mem::take(&mut self.orders) {
            ahead::carry_out(shared, session, order).await?;
        }
        let must_close = must_close || (!self.closing.is_empty() && (!self.flushes.is_empty() || self.stop.is_some()));
        if must_close {
            let ids: Ids = self.closing.iter().copied().collect();
            // What cannot be closed is left to recovery.
            let closed = shared.close_claims(session, &ids).await;
            unless_permanent(session, closed).await?;
            self.closing.clear();
            self.close_at = None;
        }
        Ok(())
    }
}
