//! The next batch, claimed by the background thread while the worker is still busy with the last jobs of this one.
//!
//! The thread makes one try; whatever goes wrong is left to the foreground, which makes the same claim again under the same
//! token: a claim whose COMMIT had arrived is found, and none is made twice.

use super::claim::{Claimed, take};
use super::finish::write;
use super::run::Tries;
use super::{Engine, Shared};
use crate::claim::{ClaimRequest, ClaimState, Claimable, HeldRows, Outcome};
use crate::driver::Session;
use crate::error::Result;
use crate::plan::claim::NewClaim;
use crate::plan::finish::Held;
use crate::plan::ids::Ids;
use crate::time::boottime;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// What the thread is asked for.
pub(crate) struct Order {
    request: ClaimRequest,
    claim: Arc<NewClaim>,
    /// Answered with nothing when the try failed.
    answer: SyncSender<Option<Taken>>,
}

/// The rows of a claim, or that nothing waits.
type Taken = Option<Claimed>;

/// A claim on its way.
pub(crate) struct Ahead {
    request: ClaimRequest,
    claim: Arc<NewClaim>,
    answer: Receiver<Option<Taken>>,
}

/// How far a claim on its way has come.
pub(crate) enum Progress {
    /// Not answered yet.
    Awaited,
    /// The answer.
    Taken(Taken),
    /// The thread could not: [`Engine::claim_again`].
    Failed,
}

impl Ahead {
    /// Waits for the answer, `limit` at most.
    pub(crate) fn progress(&self, limit: Duration) -> Progress {
        match self.answer.recv_timeout(limit) {
            Ok(Some(taken)) => Progress::Taken(taken),
            Err(RecvTimeoutError::Timeout) => Progress::Awaited,
            Ok(None) | Err(RecvTimeoutError::Disconnected) => Progress::Failed,
        }
    }
}

impl Engine {
    /// Has the background thread make a claim. The request must have been checked.
    ///
    /// # Errors
    /// `Unexpected` when the thread has ended.
    pub(crate) fn claim_ahead(&self, request: ClaimRequest) -> Result<Ahead> {
        let claim = Arc::new(self.new_claim(&request));
        let (answer, receiver) = sync_channel(1);
        let order = Order { request: request.clone(), claim: Arc::clone(&claim), answer };
        self.shared.background()?.claim(order)?;
        Ok(Ahead { request, claim, answer: receiver })
    }

    /// Makes a claim that was ordered again: what the thread sent may have arrived.
    ///
    /// # Errors
    /// As [`Engine::claim`].
    pub(crate) async fn claim_again(&self, ahead: Ahead) -> Result<Taken> {
        self.claim_as(&ahead.request, &ahead.claim, true).await
    }
}

/// The background thread's part, on its own session.
pub(crate) async fn carry_out(shared: &Arc<Shared>, session: &mut Session, order: Order) -> Result<()> {
    let started = boottime();
    let taken = async {
        let statements = shared.statements(session).await?;
        take(shared, statements, session, &order.request, &order.claim, Tries::begin()).await
    };
    let taken = match taken.await {
        Ok(taken) => taken,
        Err(error) => {
            let _ = order.answer.send(None);
            // The foreground finds out what it was; the beat and the outcomes of this thread go on.
            if error.drops_connection() {
                return Err(error);
            }
            return session.rollback().await;
        }
    };
    let Some((id, jobs)) = taken else {
        let _ = order.answer.send(Some(None));
        return Ok(());
    };
    let state = Arc::new(ClaimState::new(id, &order.claim, HeldRows::Jobs, jobs.len(), started));
    if shared.config.heartbeat {
        shared.background()?.watch(&state);
    }
    let held: Vec<Held> = jobs.iter().map(|job| job.control().into()).collect();
    if order.answer.send(Some(Some(Claimed { state: Arc::clone(&state), jobs }))).is_err() {
        // Nobody waits any more.
        write(shared, session, &state, &held, &Outcome::Release { delay: Duration::ZERO }).await?;
        state.finished(held.len());
        shared.close_claims(session, &Ids::from_iter([id])).await?;
    }
    Ok(())
}
