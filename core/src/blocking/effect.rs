//! An effect on its way: the ledger is asked, the caller's functions are called, what they say is written down.

use super::Engine;
use super::claim::Job;
use super::registry::Local;
use super::wait::Patience;
use crate::claim::{Claimable, Finish};
use crate::effect::{EffectRecord, Once, OnceRequest, Receipt, Sent};
use crate::engine::effect::{Begun, Completes, EffectFilter, Settlement};
use crate::engine::lease::LeaseState;
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// An effect in the hands of its sender.
#[derive(Clone)]
pub struct Effect {
    state: Arc<LeaseState>,
}

impl Effect {
    /// The key: hand it to the provider as its idempotency key.
    pub fn key(&self) -> &str {
        &self.state.name
    }

    /// Which try this is, from 1.
    pub fn attempts(&self) -> i64 {
        self.state.fence
    }

    /// For how long the ledger surely holds it for this sender.
    pub fn valid_for(&self) -> Duration {
        self.state.valid_for()
    }
}

/// What the caller does next for an effect.
pub enum OnceStep {
    /// Send it, and [`OnceCall::answer`] what came of it.
    Send(Effect),
    /// Ask the provider whether an earlier try has happened: `Succeeded` with its response, `Failed` when it has not (it is
    /// sent then), `Unknown` when the provider cannot say.
    Ask(Effect),
    /// The end.
    Settled(Once),
}

/// One call of `once`, step by step: for bindings, whose functions are not Rust's.
pub struct OnceCall {
    local: Arc<Local>,
    request: OnceRequest,
    /// A row of a claim that is completed in the same transaction, and how to complete it when nothing is left to send.
    completes: Option<Joined>,
    patience: Patience,
    current: Option<(Arc<LeaseState>, Stage)>,
    settled: Option<Once>,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Asking,
    /// The provider has said that it has not happened.
    Told,
    Sending,
}

struct Joined {
    completes: Completes,
    alone: Box<dyn Fn() -> Result<Finish> + Send + Sync>,
    settled: Box<dyn Fn() + Send + Sync>,
}

impl OnceCall {
    pub(super) fn new(local: Arc<Local>, request: OnceRequest) -> Result<Self> {
        request.check().map_err(|e| e.during("once"))?;
        let patience = Patience::new(request.wait);
        Ok(OnceCall { local, request, completes: None, patience, current: None, settled: None })
    }

    /// Completes the job or row in the transaction that records the success; alone when the effect has happened before.
    ///
    /// # Errors
    /// `Invalid` after a fork, for a job of another engine, and for rows that recur: those set their next time themselves.
    pub fn completing<R: Claimable + Send + Sync + 'static>(mut self, job: &Job<R>) -> Result<Self> {
        if !Arc::ptr_eq(&job.local()?, &self.local) {
            let message = "the job was claimed through another engine, so one transaction cannot complete it; use the job's own";
            return Err(Error::invalid(message).during("once"));
        }
        let (alone, settled) = (job.clone(), job.clone());
        self.completes = Some(Joined {
            completes: job.completes()?,
            alone: Box::new(move || alone.complete()),
            settled: Box::new(move || settled.mark_finished()),
        });
        Ok(self)
    }

    /// What to do next. Waits, as long as was asked for, while another process sends the same effect.
    ///
    /// # Errors
    /// As [`super::Engine::once`].
    pub fn next_step(&mut self) -> Result<OnceStep> {
        match &mut self.current {
            Some((effect, stage)) => {
                let effect = Effect { state: Arc::clone(effect) };
                if *stage == Stage::Asking {
                    return Ok(OnceStep::Ask(effect));
                }
                *stage = Stage::Sending;
                return Ok(OnceStep::Send(effect));
            }
            None => {
                if let Some(once) = &self.settled {
                    return Ok(OnceStep::Settled(once.clone()));
                }
            }
        }
        loop {
            match self.local.wait(self.local.engine.begin_effect(&self.request))? {
                Begun::Ours(state, asks) => {
                    self.current = Some((state, if asks { Stage::Asking } else { Stage::Told }));
                    return self.next_step();
                }
                Begun::Settled(once @ Once::Busy(_)) => {
                    if !self.patience.pause("once")? {
                        return Ok(self.settle(once));
                    }
                }
                Begun::Settled(Once::Done(receipt)) => {
                    let is_completed = match &self.completes {
                        Some(joined) => Some((joined.alone)()? == Finish::Accepted),
                        None => None,
                    };
                    return Ok(self.settle(Once::Done(Receipt { is_completed, ..receipt })));
                }
                Begun::Settled(once) => return Ok(self.settle(once)),
            }
        }
    }

    fn settle(&mut self, once: Once) -> OnceStep {
        self.settled = Some(once.clone());
        OnceStep::Settled(once)
    }

    /// What came of sending or asking; durable when it returns.
    ///
    /// # Errors
    /// `Unavailable`: the background thread goes on trying to write it down; `Lost` when a person or another sender has decided
    /// meanwhile; `Invalid` when nothing was to be answered, and after a fork; `Interrupted`: it is written all the same, by the
    /// background thread when the wait was interrupted twice.
    pub fn answer(&mut self, sent: Sent) -> Result<()> {
        self.local.engine.shared.check_process()?;
        let Some((effect, stage)) = self.current.take() else {
            return Err(Error::invalid("there is nothing to answer: no effect is being sent").during("once"));
        };
        if stage == Stage::Asking && matches!(sent, Sent::Failed(_)) {
            self.current = Some((effect, Stage::Told));
            return Ok(());
        }
        let completes = self.completes.as_ref().map(|joined| joined.completes.clone());
        let settlement = Settlement { effect, sent, completes };
        let written = self.local.wait_through(self.local.engine.settle_effect(&settlement));
        if matches!(&written, Err(error) if error.kind() == ErrorKind::Interrupted) {
            // The caller waits no longer; what is known must not be lost with the wait.
            let background = self.local.engine.shared.background()?;
            background.forget_lease(&settlement.effect);
            settlement.effect.set_lost();
            background.settle(settlement)?;
        }
        let (once, interruption) = written?;
        if let (Some(joined), Once::Done(_)) = (&self.completes, &once) {
            (joined.settled)();
        }
        self.settled = Some(once);
        interruption
    }
}

impl<R: Claimable + Send + Sync + 'static> Job<R> {
    /// As [`Engine::begin_once`], for an effect that completes this job or row: see [`OnceCall::completing`].
    ///
    /// # Errors
    /// `Invalid` for a wrong request, after a fork, and for rows that recur.
    pub fn begin_once(&self, request: OnceRequest) -> Result<OnceCall> {
        OnceCall::new(self.local()?, request)?.completing(self)
    }
}

impl Drop for OnceCall {
    fn drop(&mut self) {
        if self.current.is_none() {
            return;
        }
        if self.local.engine.shared.is_foreign() {
            // The parent's: not a byte on its sockets.
            std::mem::forget(Arc::clone(&self.local));
            return;
        }
        let sent = match &self.current {
            Some((_, Stage::Told)) => Sent::Failed("ended before it was sent".to_owned()),
            _ => Sent::Unknown("the sender ended without an answer".to_owned()),
        };
        if let Err(error) = self.answer(sent) {
            log::warn!("{error}");
        }
    }
}

fn once(mut call: OnceCall, send: impl FnOnce(&Effect) -> Sent, ask: impl FnOnce(&Effect) -> Sent) -> Result<Once> {
    let (mut send, mut ask) = (Some(send), Some(ask));
    loop {
        let sent = match call.next_step()? {
            OnceStep::Settled(once) => return Ok(once),
            OnceStep::Send(effect) => send.take().map(|send| send(&effect)),
            OnceStep::Ask(effect) => ask.take().map(|ask| ask(&effect)),
        };
        call.answer(sent.unwrap_or_else(|| Sent::Unknown("asked twice".to_owned())))?;
    }
}

impl Engine {
    /// Has an effect happen once: calls `send` unless the ledger says that it has happened, and writes down what came of it.
    ///
    /// The key, with the digest of the request, is written down as *sending* before the call. When the process dies in between,
    /// a later call finds the effect unknown and does what [`OnceRequest::on_unknown`] says; `ask` is called only for
    /// [`crate::OnUnknown::Ask`].
    ///
    /// # Errors
    /// `Invalid` for a wrong key, and for another request than the key was used for before; `Schema`; `Unavailable`, also when it
    /// was sent and could not be written down (the background thread goes on trying); `Lost` when a person has decided meanwhile.
    pub fn once(
        &self,
        request: &OnceRequest,
        send: impl FnOnce(&Effect) -> Sent,
        ask: impl FnOnce(&Effect) -> Sent,
    ) -> Result<Once> {
        once(self.begin_once(request.clone())?, send, ask)
    }

    /// As [`Engine::once`], step by step.
    ///
    /// # Errors
    /// `Invalid` for a wrong request.
    pub fn begin_once(&self, request: OnceRequest) -> Result<OnceCall> {
        OnceCall::new(self.local()?, request)
    }

    /// See [`crate::Engine::effect`].
    ///
    /// # Errors
    /// As there.
    pub fn effect(&self, key: &str) -> Result<Option<EffectRecord>> {
        let local = self.local()?;
        local.wait(local.engine.effect(key))
    }

    /// See [`crate::Engine::effects`].
    ///
    /// # Errors
    /// As there.
    pub fn effects(&self, filter: &EffectFilter) -> Result<Vec<EffectRecord>> {
        let local = self.local()?;
        local.wait(local.engine.effects(filter))
    }

    /// See [`crate::Engine::resolve_effect`].
    ///
    /// # Errors
    /// As there.
    pub fn resolve_effect(&self, key: &str, has_happened: bool, response: Option<&str>) -> Result<bool> {
        let local = self.local()?;
        local.wait(local.engine.resolve_effect(key, has_happened, response))
    }
}
