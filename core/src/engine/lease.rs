//! Leases by name: one holder at a time, by the database's clock. Every write carries owner and fence; busy is an answer.
//!
//! A lease is one row and stays when it is given back, so that its fence only ever grows. A row that was deleted is put back
//! by its holder's next renewal; a lease that begins anew takes its fence from the clock, in milliseconds, and so stands above
//! every fence before it. The idea is ShedLock's, with the fence of Kleppmann's "How to do distributed locking".

use super::{Engine, Shared};
use crate::bounds::{MAX_KEY, check_length, check_limit};
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::plain;
use crate::time::{Timestamp, boottime, micros};
use crate::validity::Validity;
use crate::value::{Row, Value};
use rowclaim_migrations::Flavor;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// What a lease asks for.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// 1 to 191 bytes; the same name is the same lease, byte for byte.
    pub name: String,
    /// How long it is held without a renewal; at least 1 second.
    pub lease: Duration,
    /// Wait so long for another holder to go.
    pub wait: Duration,
}

impl LeaseRequest {
    /// A lease that is taken or not, without waiting.
    pub fn new(name: impl Into<String>, lease: Duration) -> Self {
        LeaseRequest { name: name.into(), lease, wait: Duration::ZERO }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_length("the lease's name", &self.name, MAX_KEY)?;
        crate::claim::check_lease(self.lease, None)
    }
}

/// Which leases to list.
#[derive(Clone, Debug)]
pub struct LeaseFilter {
    /// At most so many; 1 to 10,000.
    pub limit: usize,
}

impl Default for LeaseFilter {
    fn default() -> Self {
        LeaseFilter { limit: 100 }
    }
}

/// Who holds a lease now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// For people.
    pub holder: String,
    /// Until when, unless it is renewed; on the database's clock.
    pub until: Timestamp,
}

/// The answer to an acquisition.
pub(crate) enum Acquired {
    Lease(Arc<LeaseState>),
    Busy(Busy),
}

/// Where a lease is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A row of its own.
    Leases,
    /// In the row of the effect that its holder sends.
    Effects,
}

/// A lease as its holder's process sees it.
#[derive(Debug)]
pub(crate) struct LeaseState {
    /// The lease's name, or the effect's key.
    pub name: String,
    pub owner: Uuid,
    pub fence: i64,
    pub holder: String,
    pub place: Place,
    pub validity: Validity,
}

impl std::ops::Deref for LeaseState {
    type Target = Validity;
    fn deref(&self) -> &Validity {
        &self.validity
    }
}

/// A lease as it stands in the table.
#[derive(Clone, Debug)]
pub struct LeaseRecord {
    /// Its name.
    pub name: String,
    /// Who holds or last held it, for people.
    pub holder: String,
    /// The last fence.
    pub fence: i64,
    /// When it was last acquired.
    pub acquired_at: Timestamp,
    /// Until when it is or was held.
    pub lease_until: Timestamp,
    /// Held now.
    pub is_held: bool,
}

impl Engine {
    /// One try to take a lease.
    ///
    /// # Errors
    /// `Invalid` for a wrong name or time; `Schema`, `Unavailable`.
    pub(crate) async fn acquire(&self, request: &LeaseRequest) -> Result<Acquired> {
        request.check().map_err(|e| e.during("lease"))?;
        let owner = Uuid::new_v4();
        let holder = self.shared.worker.clone();
        let started = boottime();
        let taken = self
            .run("lease", async |shared, statements, session, tries| {
                if tries.losses > 0
                    && let Some(row) = look(statements, session, &request.name).await?
                    && row.owner == Some(owner)
                {
                    return Ok(Ok(row.fence));
                }
                take(shared, statements, session, request, owner, &holder).await
            })
            .await?;
        let fence = match taken {
            Ok(fence) => fence,
            Err(busy) => return Ok(Acquired::Busy(busy)),
        };
        let validity = Validity::new(request.lease, None, started);
        let place = Place::Leases;
        let state = Arc::new(LeaseState { name: request.name.clone(), owner, fence, holder, place, validity });
        if self.shared.config.heartbeat {
            self.shared.background()?.watch_lease(&state);
        }
        Ok(Acquired::Lease(state))
    }

    /// Extends a lease now. False when it is lost.
    ///
    /// # Errors
    /// `Unavailable`; it stays valid until its last known time.
    pub(crate) async fn renew_lease(&self, lease: &Arc<LeaseState>) -> Result<bool> {
        self.run_without_tables("renew", async |shared, session, _| extend(shared, session, lease).await).await
    }

    /// Gives a lease back. False when it was lost before.
    ///
    /// # Errors
    /// `Unavailable`; it ends by itself then.
    pub(crate) async fn release_lease(&self, lease: &LeaseState) -> Result<bool> {
        let values = vec![lease.name.as_str().into(), lease.owner.as_bytes().as_slice().into(), lease.fence.into()];
        let matched = self
            .run("release", async |_, statements, session, tries| {
                let released = session.execute(&plain(&statements.release_lease, values.clone())).await?.matched == 1;
                // After a lost connection the first try may have given it back.
                Ok(released || tries.losses > 0)
            })
            .await?;
        lease.set_lost();
        Ok(matched)
    }

    /// Leases in the order of their names.
    ///
    /// # Errors
    /// `Invalid` for a wrong limit; `Schema`, `Unavailable`.
    pub async fn leases(&self, filter: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        let limit: Value = check_limit("limit", filter.limit).map_err(|e| e.during("leases"))?.into();
        self.run("leases", async |_, statements, session, _| {
            let rows = session.query(&plain(&statements.list_leases, vec![limit.clone()])).await?;
            let read = |row: &Row| {
                Ok(LeaseRecord {
                    name: row.text(0)?,
                    holder: row.text(1)?,
                    fence: row.int(2)?,
                    acquired_at: row.time(3)?,
                    lease_until: row.time(4)?,
                    is_held: row.int(5)? == 1,
                })
            };
            rows.iter().map(read).collect()
        })
        .await
    }
}

/// A lease as it was read.
struct Standing {
    owner: Option<Uuid>,
    holder: String,
    fence: i64,
    until: Timestamp,
    is_held: bool,
}

async fn look(statements: &Statements, session: &mut Session, name: &str) -> Result<Option<Standing>> {
    let rows = session.query(&plain(&statements.lease, vec![name.into()])).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let owner = row.opt(0, Row::bytes)?.and_then(|bytes| Uuid::from_slice(&bytes).ok());
    Ok(Some(Standing { owner, holder: row.text(1)?, fence: row.int(2)?, until: row.time(3)?, is_held: row.int(4)? == 1 }))
}

pub(super) async fn take(
    shared: &Shared,
    statements: &Statements,
    session: &mut Session,
    request: &LeaseRequest,
    owner: Uuid,
    holder: &str,
) -> Result<std::result::Result<i64, Busy>> {
    let lease = micros(request.lease);
    let values: Vec<Value> =
        vec![owner.as_bytes().as_slice().into(), holder.into(), lease.into(), lease.into(), request.name.as_str().into()];
    let executed = session.execute(&plain(&statements.take_lease, values.clone())).await?;
    if executed.matched == 1 && shared.flavor() == Flavor::MySql {
        return Ok(Ok(executed.last_id));
    }
    match look(statements, session, &request.name).await? {
        Some(standing) if standing.owner == Some(owner) => return Ok(Ok(standing.fence)),
        Some(standing) if standing.is_held => return Ok(Err(Busy { holder: standing.holder, until: standing.until })),
        // It ended between the two statements.
        Some(_) => return Err(Error::new(ErrorKind::Contention, "the lease ended just now")),
        None => {}
    }
    match session.execute(&plain(&statements.first_lease, values)).await {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Duplicate => {
            return Err(Error::new(ErrorKind::Contention, "the lease is being taken for the first time"));
        }
        Err(error) => return Err(error),
    }
    let standing = look(statements, session, &request.name).await?;
    let standing = standing.ok_or_else(|| Error::new(ErrorKind::Contention, "the lease was deleted just now"))?;
    Ok(Ok(standing.fence))
}

/// The holder's renewal; also puts a row back that was deleted meanwhile.
pub(crate) async fn extend(shared: &Shared, session: &mut Session, lease: &LeaseState) -> Result<bool> {
    let started = boottime();
    if lease.is_past_max_run() {
        lease.set_lost();
        return Ok(false);
    }
    let statements = shared.statements(session).await?;
    let mut named: Vec<Value> = vec![lease.name.as_str().into(), lease.owner.as_bytes().as_slice().into()];
    if lease.place == Place::Effects {
        let is_ours = session.execute(&plain(&statements.ledger.renew_effect, named)).await?.matched == 1;
        // An effect that was settled meanwhile is not lost: whoever settled it knows.
        if is_ours {
            lease.renewed(started);
        }
        return Ok(is_ours);
    }
    named.push(lease.fence.into());
    let mut is_ours = session.execute(&plain(&statements.renew_lease, named.clone())).await?.matched == 1;
    if !is_ours && look(statements, session, &lease.name).await?.is_none() {
        let span = Value::Int(micros(lease.lease));
        let values = [named, vec![lease.holder.as_str().into(), span.clone(), span]].concat();
        is_ours = match session.execute(&plain(&statements.restore_lease, values)).await {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::Duplicate => false,
            Err(error) => return Err(error),
        };
    }
    if is_ours {
        lease.renewed(started);
    } else {
        lease.set_lost();
    }
    Ok(is_ours)
}
