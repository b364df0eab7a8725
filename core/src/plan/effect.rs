//! Effects: how the ledger's rows are read, and what a new try finds.

use crate::effect::{EffectRecord, EffectState, OnUnknown};
use crate::error::{Error, Result};
use crate::value::Row;
use uuid::Uuid;

/// An effect with what only its senders need to know.
pub(crate) struct Standing {
    pub record: EffectRecord,
    pub digest: Vec<u8>,
    pub owner: Option<Uuid>,
    /// As the row says: a sender whose lease is over is still `Sending` here.
    pub stored: EffectState,
}

pub(crate) fn standing(row: &Row) -> Result<Standing> {
    let stored = EffectState::parse(&row.text(1)?).map_err(|e| Error::decode(e.message()))?;
    let has_lapsed = row.int(9)? == 1;
    let record = EffectRecord {
        id: row.int(13)?,
        key: row.text(0)?,
        state: if has_lapsed { EffectState::Unknown } else { stored },
        attempts: row.int(5)?,
        holder: row.text(4)?,
        response: row.opt(6, Row::text)?,
        error: row.opt(7, Row::text)?.or_else(|| has_lapsed.then(|| "the sender was lost".to_owned())),
        lease_until: row.time(8)?,
        created_at: row.time(10)?,
        started_at: row.time(11)?,
        finished_at: row.opt(12, Row::time)?,
    };
    let owner = row.opt(3, Row::bytes)?.and_then(|bytes| Uuid::from_slice(&bytes).ok());
    Ok(Standing { record, digest: row.bytes(2)?, owner, stored })
}

/// What may be done with an effect that stands in the ledger.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It has happened.
    Done,
    /// Somebody sends it.
    Busy,
    /// Nobody knows, and a person must say.
    Held,
    /// Its sender is gone: that is written down first.
    Lapse,
    /// It may be sent.
    Send,
    /// The provider must be asked first.
    Ask,
}

pub(crate) fn next(standing: &Standing, on_unknown: OnUnknown) -> Next {
    match (standing.stored, standing.record.state) {
        (EffectState::Sending, EffectState::Unknown) => Next::Lapse,
        (EffectState::Sending, _) => Next::Busy,
        (EffectState::Succeeded, _) => Next::Done,
        (EffectState::Pending | EffectState::Failed, _) => Next::Send,
        (EffectState::Unknown, _) => match on_unknown {
            OnUnknown::Hold => Next::Held,
            OnUnknown::Ask => Next::Ask,
            OnUnknown::Retry => Next::Send,
        },
    }
}
