//! The effect ledger: *sending* is written down before the provider is called, the outcome after it.
//!
//! What lies between is unknown, and nothing here sends it again blindly. One sender at a time: it holds a lease in the
//! effect's own row, renewed in the background. The idea is the idempotency key of payment providers, kept on the caller's
//! side too.

use super::lease::{LeaseState, Place};
use super::{Engine, Shared};
use crate::bounds::{check_effect_key, check_limit};
use crate::claim::{ClaimState, Finish, Outcome};
use crate::dialect::Statements;
use crate::driver::Session;
use crate::effect::{EffectRecord, EffectState, MAX_RESPONSE, OnUnknown, Once, OnceRequest, Receipt, Sent};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::effect::{self as plan, Next, Standing};
use crate::plan::finish::{Held, stored_error};
use crate::plan::plain;
use crate::time::{boottime, micros};
use crate::validity::Validity;
use crate::value::Value;
use std::sync::Arc;
use uuid::Uuid;

/// What [`Engine::begin_effect`] found.
pub(crate) enum Begun {
    /// It is ours to send, or, with `true`, to ask about first.
    Ours(Arc<LeaseState>, bool),
    /// There is nothing to do.
    Settled(Once),
}

/// A row of a claim that an effect completes, in the same transaction.
#[derive(Clone)]
pub(crate) struct Completes {
    pub claim: Arc<ClaimState>,
    pub job: Held,
}

/// What became of a try, on its way into the ledger.
#[derive(Clone)]
pub(crate) struct Settlement {
    pub effect: Arc<LeaseState>,
    pub sent: Sent,
    pub completes: Option<Completes>,
}

/// Which effects are listed.
#[derive(Clone, Debug)]
pub struct EffectFilter {
    /// Only of this state.
    pub state: Option<EffectState>,
    /// Only those before this id.
    pub before: Option<i64>,
    /// At most so many; 1 to 10,000.
    pub limit: usize,
}

impl Default for EffectFilter {
    fn default() -> Self {
        EffectFilter { state: None, before: None, limit: 100 }
    }
}

impl Engine {
    /// Begins an effect: after this the ledger says that it is being sent, durably.
    ///
    /// # Errors
    /// `Invalid` for a wrong key, a request that is not JSON, and another request than the key was used for; `Schema`,
    /// `Unavailable`.
    pub(crate) async fn begin_effect(&self, request: &OnceRequest) -> Result<Begun> {
        let digest = request.check().map_err(|e| e.during("once"))?;
        let owner = Uuid::new_v4();
        let started = boottime();
        let begun = self
            .run("once", async |shared, statements, session, tries| {
                let begin = Begin { shared, statements, request, digest, owner };
                begin.step(session, tries.losses > 0).await
            })
            .await?;
        let (attempts, asks) = match begun {
            Ok(ours) => ours,
            Err(once) => return Ok(Begun::Settled(once)),
        };
        let state = Arc::new(LeaseState {
            name: request.key.clone(),
            owner,
            fence: attempts,
            holder: self.shared.worker.clone(),
            place: Place::Effects,
            validity: Validity::new(request.lease, None, started),
        });
        if self.shared.config.heartbeat {
            self.shared.background()?.watch_lease(&state);
        }
        Ok(Begun::Ours(state, asks))
    }

    /// Writes down what a try came to, and completes the job with it where there is one.
    ///
    /// While the database is away the background thread goes on trying after this has given up, as long as the process lives.
    ///
    /// # Errors
    /// `Unavailable`: it is being tried further; `Lost` when another sender or a person has decided meanwhile.
    pub(crate) async fn settle_effect(&self, settlement: &Settlement) -> Result<Once> {
        let effect = &settlement.effect;
        let settled = self.run_without_tables("once", async |shared, session, _| settle(shared, session, settlement).await).await;
        if let Some(background) = self.shared.background.get() {
            background.forget_lease(effect);
        }
        effect.set_lost();
        if let Err(error) = &settled
            && error.is_retryable()
        {
            self.shared.background()?.settle(settlement.clone())?;
        }
        let is_completed = settled?;
        if let Some(completes) = &settlement.completes
            && is_completed.is_some()
        {
            self.settle(&completes.claim, 1);
        }
        match &settlement.sent {
            Sent::Succeeded(response) => Ok(Once::Done(Receipt {
                key: effect.name.clone(),
                response: Some(response.clone()),
                attempts: effect.fence,
                is_fresh: true,
                is_completed,
            })),
            sent => {
                let record = self.effect(&effect.name).await?.ok_or_else(|| gone(&effect.name))?;
                Ok(if matches!(sent, Sent::Unknown(_)) { Once::Unknown(record) } else { Once::Failed(record) })
            }
        }
    }

    /// One effect by its key.
    ///
    /// # Errors
    /// `Invalid` for a wrong key; `Schema`, `Unavailable`.
    pub async fn effect(&self, key: &str) -> Result<Option<EffectRecord>> {
        check_effect_key(key).map_err(|e| e.during("effect"))?;
        self.run("effect", async |_, statements, session, _| Ok(look(statements, session, key).await?.map(|s| s.record))).await
    }

    /// Effects, newest first.
    ///
    /// # Errors
    /// `Invalid` for a wrong limit; `Schema`, `Unavailable`.
    pub async fn effects(&self, filter: &EffectFilter) -> Result<Vec<EffectRecord>> {
        let limit: Value = check_limit("limit", filter.limit).map_err(|e| e.during("effects"))?.into();
        let before = Value::Int(filter.before.unwrap_or(i64::MAX));
        self.run("effects", async |_, statements, session, _| {
            let statement = match filter.state {
                None => plain(&statements.ledger.list_effects, vec![before.clone(), limit.clone()]),
                Some(state) => {
                    // A sender whose lease is over is shown as unknown, so it is written down as that first.
                    lapse_all(statements, session).await?;
                    plain(&statements.ledger.list_effects_of_state, vec![state.name().into(), before.clone(), limit.clone()])
                }
            };
            session.query(&statement).await?.iter().map(|row| Ok(plan::standing(row)?.record)).collect()
        })
        .await
    }

    /// A person's word on an effect that is unknown: it has happened, with its response as JSON text where that is known, or it
    /// has not, and the next [`crate::blocking::Engine::once`] sends it. `false` when it does not stand so any more.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a response that is not JSON or over 1 MB; `Schema`, `Unavailable`.
    pub async fn resolve_effect(&self, key: &str, has_happened: bool, response: Option<&str>) -> Result<bool> {
        check_effect_key(key).map_err(|e| e.during("resolve"))?;
        if let Some(response) = response {
            if !has_happened {
                return Err(Error::invalid("only an effect that has happened has a response").during("resolve"));
            }
            let checked = serde_json::from_str::<&serde_json::value::RawValue>(response);
            checked.map_err(|e| Error::invalid(format!("the response is not JSON: {e}")).during("resolve"))?;
            if response.len() > MAX_RESPONSE {
                return Err(Error::invalid("the response is over 1 MB").during("resolve"));
            }
        }
        let (state, note) =
            if has_happened { (EffectState::Succeeded, None) } else { (EffectState::Pending, Some("resolved as not sent")) };
        let found = self
            .run("resolve", async |_, statements, session, _| {
                let values = vec![state.name().into(), response.into(), note.into(), key.into()];
                if session.execute(&plain(&statements.ledger.resolve_effect, values)).await?.matched == 1 {
                    return Ok(Some(true));
                }
                Ok(look(statements, session, key).await?.map(|_| false))
            })
            .await?;
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no effect {key}")).during("resolve"))
    }
}

fn gone(key: &str) -> Error {
    Error::new(ErrorKind::Lost, format!("effect {key} was deleted meanwhile"))
}

async fn look(statements: &Statements, session: &mut Session, key: &str) -> Result<Option<Standing>> {
    let rows = session.query(&plain(&statements.ledger.effect, vec![key.into()])).await?;
    rows.first().map(plan::standing).transpose()
}

/// One try to begin an effect.
struct Begin<'a> {
    shared: &'a Shared,
    statements: &'a Statements,
    request: &'a OnceRequest,
    digest: [u8; 32],
    owner: Uuid,
}

/// Which attempt it is, and whether the provider is asked first; or what the ledger says already.
type Step = std::result::Result<(i64, bool), Once>;

impl Begin<'_> {
    async fn step(&self, session: &mut Session, was_cut_off: bool) -> Result<Step> {
        let request = self.request;
        let Some(standing) = look(self.statements, session, &request.key).await? else { return self.insert(session).await };
        let record = &standing.record;
        if standing.digest != self.digest {
            let message = format!("effect {} was begun with another request; use another key", record.key);
            return Err(Error::invalid(message));
        }
        if was_cut_off && standing.owner == Some(self.owner) && standing.stored == EffectState::Sending {
            // Asking once more is always safe; a first attempt has nothing to ask about.
            return Ok(Ok((record.attempts, request.on_unknown == OnUnknown::Ask && record.attempts > 1)));
        }
        let asks = match plan::next(&standing, request.on_unknown) {
            Next::Done => {
                return Ok(Err(Once::Done(Receipt {
                    key: standing.record.key,
                    response: standing.record.response,
                    attempts: standing.record.attempts,
                    is_fresh: false,
                    is_completed: None,
                })));
            }
            Next::Busy => return Ok(Err(Once::Busy(standing.record))),
            Next::Held => return Ok(Err(Once::Unknown(standing.record))),
            Next::Lapse => {
                session.execute(&plain(&self.statements.ledger.lapse_effect, vec![request.key.as_str().into()])).await?;
                return Err(Error::new(ErrorKind::Contention, "the effect's sender is gone"));
            }
            Next::Send => false,
            Next::Ask => true,
        };
        let span: Value = micros(request.lease).into();
        let values = vec![
            self.owner.as_bytes().as_slice().into(),
            self.shared.worker.as_str().into(),
            span.clone(),
            span,
            request.key.as_str().into(),
            record.attempts.into(),
            standing.stored.name().into(),
        ];
        if session.execute(&plain(&self.statements.ledger.take_effect, values)).await?.matched == 0 {
            return Err(Error::new(ErrorKind::Contention, "another process has begun the effect"));
        }
        Ok(Ok((record.attempts + 1, asks)))
    }

    async fn insert(&self, session: &mut Session) -> Result<Step> {
        let span: Value = micros(self.request.lease).into();
        let values = vec![
            self.request.key.as_str().into(),
            self.digest.as_slice().into(),
            self.owner.as_bytes().as_slice().into(),
            self.shared.worker.as_str().into(),
            span.clone(),
            span,
        ];
        match session.execute(&plain(&self.statements.ledger.insert_effect, values)).await {
            Ok(_) => Ok(Ok((1, false))),
            Err(error) if error.kind() == ErrorKind::Duplicate => {
                Err(Error::new(ErrorKind::Contention, "another process has begun the effect"))
            }
            Err(error) => Err(error),
        }
    }
}

/// Writes what a try came to; whether the job it completes was still ours.
pub(crate) async fn settle(shared: &Shared, session: &mut Session, settlement: &Settlement) -> Result<Option<bool>> {
    let statements = shared.statements(session).await?;
    let Settlement { effect, sent, completes } = settlement;
    let too_large = |response: &str| {
        (response.len() > MAX_RESPONSE).then(|| format!("its response of {} bytes was too large to be kept", response.len()))
    };
    let (response, error) = match sent {
        Sent::Succeeded(response) => match too_large(response) {
            None => (Some(response.as_str()), None),
            note => (None, note),
        },
        Sent::Failed(error) | Sent::Unknown(error) => (None, Some(stored_error(error))),
    };
    let values = vec![
        sent.state().name().into(),
        response.into(),
        error.into(),
        effect.name.as_str().into(),
        effect.owner.as_bytes().as_slice().into(),
    ];
    let completes = completes.as_ref().filter(|_| matches!(sent, Sent::Succeeded(_)));
    if completes.is_some() {
        session.begin().await?;
    }
    if session.execute(&plain(&statements.ledger.settle_effect, values)).await?.matched == 0 {
        let standing = look(statements, session, &effect.name).await?.ok_or_else(|| gone(&effect.name))?;
        // A repeat after a lost connection finds its own word.
        if standing.owner != Some(effect.owner) || standing.stored != sent.state() {
            let message = format!("effect {} was decided meanwhile: it is {}", effect.name, standing.stored.name());
            return Err(Error::new(ErrorKind::Lost, message));
        }
    }
    let Some(Completes { claim, job }) = completes else { return Ok(None) };
    let answers = super::finish::write(shared, session, claim, std::slice::from_ref(job), &Outcome::Complete).await?;
    session.commit().await?;
    for answer in &answers {
        claim.tally.count(&Outcome::Complete, *answer);
    }
    Ok(Some(answers.first() == Some(&Finish::Accepted)))
}

/// Effects looked at in one pass.
const EFFECTS_A_PASS: i64 = 100;

/// Marks effects whose sender is gone as unknown; how many.
pub(super) async fn lapse_all(statements: &Statements, session: &mut Session) -> Result<u64> {
    let mut lapsed = 0;
    loop {
        let rows = session.query(&plain(&statements.ledger.lapsed_effects, vec![EFFECTS_A_PASS.into()])).await?;
        for row in &rows {
            let statement = plain(&statements.ledger.lapse_effect, vec![row.text(0)?.into()]);
            lapsed += session.execute(&statement).await?.matched;
        }
        if rows.len() < EFFECTS_A_PASS as usize {
            return Ok(lapsed);
        }
    }
}
