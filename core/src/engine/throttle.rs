//! A limit that all workers share: so many in a time, on the database's clock.
//!
//! Places are handed out one behind the other at equal distances, so that no window of that time holds more than the limit. A
//! place whose worker dies is not used again. The idea is the virtual scheduling algorithm of ATM networks (GCRA), without bursts.

use super::Engine;
use crate::bounds::{MAX_KEY, check_length};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::plain;
use crate::time::micros;
use crate::value::Value;
use std::time::Duration;

/// A limit, and how long a caller would wait.
#[derive(Clone, Debug)]
pub struct ThrottleRequest {
    /// 1 to 191 bytes: the same name is the same limit.
    pub name: String,
    /// At most so many, 1 to 1,000,000.
    pub limit: i64,
    /// In any window of this length, 1 millisecond to 1 day.
    pub per: Duration,
    /// Wait at most so long for a place.
    pub wait: Duration,
}

impl ThrottleRequest {
    /// `limit` a second, without waiting longer than a minute.
    pub fn new(name: impl Into<String>, limit: i64) -> Self {
        ThrottleRequest { name: name.into(), limit, per: Duration::from_secs(1), wait: Duration::from_secs(60) }
    }

    fn check(&self) -> Result<()> {
        check_length("the limit's name", &self.name, MAX_KEY)?;
        if !(1..=1_000_000).contains(&self.limit) {
            return Err(Error::invalid(format!("limit must be from 1 to 1000000, not {}", self.limit)));
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&self.per) {
            return Err(Error::invalid("per must be from 1 millisecond to 1 day"));
        }
        Ok(())
    }

    /// The distance of two places, never too short.
    fn distance(&self) -> i64 {
        micros(self.per).saturating_add(self.limit - 1) / self.limit
    }
}

/// The answer of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Reserved: it comes after this time.
    After(Duration),
    /// The next one is farther away than the caller would wait.
    TooFar,
}

impl Engine {
    /// Reserves the next place of a limit.
    ///
    /// # Errors
    /// `Invalid`, naming the option; `Schema`, `Unavailable`.
    pub(crate) async fn reserve(&self, request: &ThrottleRequest) -> Result<Place> {
        request.check().map_err(|e| e.during("throttle"))?;
        let (distance, name): (Value, Value) = (request.distance().into(), request.name.as_str().into());
        let wait: Value = micros(request.wait.min(Duration::from_secs(86_400))).into();
        self.run("throttle", async |_, statements, session, _| {
            session.begin().await?;
            let values = vec![distance.clone(), name.clone(), wait.clone()];
            let is_ours = session.execute(&plain(&statements.ledger.reserve, values)).await?.matched == 1;
            let rows = session.query(&plain(&statements.ledger.reserved, vec![name.clone()])).await?;
            let Some(row) = rows.first() else {
                let values = vec![name.clone(), distance.clone()];
                return match session.execute(&plain(&statements.ledger.insert_limit, values)).await {
                    Ok(_) => session.commit().await.map(|()| Place::After(Duration::ZERO)),
                    Err(error) if error.kind() == ErrorKind::Duplicate => {
                        Err(Error::new(ErrorKind::Contention, "another process has recorded the limit"))
                    }
                    Err(error) => Err(error),
                };
            };
            session.commit().await?;
            if !is_ours {
                return Ok(Place::TooFar);
            }
            let until = row.int(0)?.saturating_sub(request.distance());
            Ok(Place::After(Duration::from_micros(u64::try_from(until).unwrap_or(0))))
        })
        .await
    }
}
