//! The only place that retries, with two budgets: many short tries for contention, few longer ones for lost connections.
//!
//! A failed attempt is rolled back explicitly (after a lock wait time-out the transaction is still open), and a
//! connection whose state is unknown is closed. The work is told which attempt it is, so that after a lost
//! connection it can look for what it may have written already.

use super::{Engine, Shared};
use crate::dialect::Statements;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// Deadlocks and lock waits that are tried again, and for how long at most: a row may be locked by a person for hours.
const CONTENTION_TRIES: u32 = 30;
const CONTENTION_TIME: Duration = Duration::from_secs(20);
/// Pauses after lost connections.
const RECONNECT_PAUSES: [Duration; 4] =
    [Duration::from_millis(20), Duration::from_millis(200), Duration::from_millis(800), Duration::from_secs(2)];

/// Which attempt of a step this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tries {
    since: Instant,
    pub contention: u32,
    /// Attempts that ended with a lost connection: what they wrote is unknown.
    pub losses: u32,
}

impl Tries {
    pub(super) fn begin() -> Self {
        Tries { since: Instant::now(), contention: 0, losses: 0 }
    }

    /// The pause before the next attempt, or `None` when `error` must be reported.
    fn next(&mut self, error: &Error) -> Option<Duration> {
        match error.kind() {
            ErrorKind::Contention if self.contention < CONTENTION_TRIES && self.since.elapsed() < CONTENTION_TIME => {
                self.contention += 1;
                let longest = 2_000u64 << self.contention.min(6);
                Some(Duration::from_micros(fastrand::u64(200..longest)))
            }
            ErrorKind::Unavailable => {
                let pause = RECONNECT_PAUSES.get(self.losses as usize).copied();
                self.losses += 1;
                pause
            }
            _ => None,
        }
    }
}

impl Engine {
    /// Runs one step of a verb on a session of the pool, again where that is safe.
    pub(super) async fn run<T>(
        &self,
        operation: &'static str,
        mut step: impl AsyncFnMut(&Shared, &Statements, &mut Session, Tries) -> Result<T>,
    ) -> Result<T> {
        self.run_without_tables(operation, async |shared, session, tries| {
            let statements = shared.statements(session).await?;
            step(shared, statements, session, tries).await
        })
        .await
    }

    /// As [`Engine::run`], where the own tables need not be there.
    pub(super) async fn run_without_tables<T>(
        &self,
        operation: &'static str,
        mut step: impl AsyncFnMut(&Shared, &mut Session, Tries) -> Result<T>,
    ) -> Result<T> {
        let shared = &self.shared;
        let mut tries = Tries::begin();
        loop {
            let attempt = async {
                shared.check_process()?;
                let _permit = shared.permits.acquire().await.map_err(|_| Error::invalid("the engine is closed"))?;
                let mut session = shared.session().await?;
                match step(shared, &mut session, tries).await {
                    Ok(answer) => {
                        shared.give_back(session);
                        Ok(answer)
                    }
                    Err(error) => {
                        if !error.drops_connection() && session.rollback().await.is_ok() {
                            shared.give_back(session);
                        }
                        Err(error)
                    }
                }
            };
            let error = match attempt.await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match tries.next(&error) {
                Some(pause) => {
                    log::debug!("{operation}: {error}; again in {pause:?}");
                    tokio::time::sleep(pause).await;
                }
                None => return Err(error.during(operation)),
            }
        }
    }
}
