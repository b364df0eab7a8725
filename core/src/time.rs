//! Time as data: instants of the database, spans, the back-off, and the process's own clock.
//!
//! No comparison anywhere uses a client clock: instants come from the database and go back to it.
//! The one clock read here is CLOCK_BOOTTIME, for the deadline guard; it runs on through SIGSTOP and suspend.

use crate::error::{Error, Result};
use std::time::Duration;

/// An instant on the database's clock: microseconds since 1970-01-01T00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Before everything that is stored.
    pub(crate) const BEGINNING: Timestamp = Timestamp(-30_610_224_000_000_000); // 1000-01-01
    /// After everything that is stored: the end of DATETIME's range.
    pub const END: Timestamp = Timestamp(253_402_300_799_999_999); // 9999-12-31T23:59:59.999999Z

    /// From whole or broken seconds since 1970 (UTC).
    ///
    /// # Errors
    /// `Invalid` outside of the years 1000 to 9999.
    pub fn from_unix_seconds(seconds: f64) -> Result<Self> {
        let micros = seconds * 1e6;
        if !(Self::BEGINNING.0 as f64..=Self::END.0 as f64).contains(&micros) {
            return Err(Error::invalid("run_at is outside of the years 1000 to 9999"));
        }
        Ok(Timestamp(micros.round() as i64))
    }

    /// Seconds since 1970 (UTC), broken.
    pub fn as_unix_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

/// Microseconds of `span`, saturating.
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// A span given in seconds by a binding.
///
/// # Errors
/// `Invalid`, naming `option`, when it is negative, not finite, or over a thousand years.
pub fn span_from_seconds(option: &str, seconds: f64) -> Result<Duration> {
    if !seconds.is_finite() || !(0.0..=3.2e10).contains(&seconds) {
        return Err(Error::invalid(format!("{option} must be a number of seconds from 0 up, not {seconds}")));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Microseconds on CLOCK_BOOTTIME, which counts stopped and suspended time too.
pub(crate) fn boottime() -> i64 {
    #[cfg(target_os = "linux")]
    let clock = nix::time::ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    // The clock exists on every supported system; 0 would only make the guard renew more often.
    nix::time::clock_gettime(clock).map_or(0, |t| t.tv_sec() * 1_000_000 + t.tv_nsec() / 1_000)
}

/// How long a failed job waits before its next attempt: `min(cap, base × 2^(attempt−1))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The wait after the first failed attempt.
    pub base: Duration,
    /// The longest wait.
    pub cap: Duration,
    /// Spread the wait over [base, computed] so that failures do not come back together.
    pub jitter: bool,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(3600), jitter: false }
    }
}

impl Backoff {
    /// The wait after attempt number `attempt` (from 1). Saturates; with jitter it never leaves [base, cap].
    pub fn delay(&self, attempt: i64) -> Duration {
        let doublings = attempt.saturating_sub(1).clamp(0, 63);
        let grown = self.base.as_micros().saturating_mul(1u128 << doublings);
        let micros = grown.min(self.cap.as_micros());
        let wait = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        if self.jitter && wait > self.base {
            let spread = (wait - self.base).as_secs_f64() * fastrand::f64();
            return self.base + Duration::from_secs_f64(spread);
        }
        wait
    }
}
