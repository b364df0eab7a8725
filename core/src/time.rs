//! Time as data: instants of the database, spans, the back-off, and the process's own clock.
//!
//! No comparison anywhere uses a client clock: instants come from the database and go back to it.
//! The one clock read here is CLOCK_BOOTTIME, for the deadline guard; it runs on through SIGSTOP and suspend.

use crate::error::{Error, Result};
use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use std::time::Duration;

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// The zone of DATETIME columns: `UTC`, an offset such as `+08:00`, or a name such as `Asia/Shanghai`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zone(TimeZone);

impl Zone {
    /// # Errors
    /// `Config` for a text that is neither.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let unknown =
            || Error::config(format!("zone {text} is neither an offset such as +08:00 nor a name such as Asia/Shanghai"));
        let zone = match text.as_bytes() {
            [b'+' | b'-', h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|digit| digit.is_ascii_digit()) => {
                let number = |tens: &u8, ones: &u8| i32::from(tens - b'0') * 10 + i32::from(ones - b'0');
                let seconds = number(h1, h2) * 3_600 + number(m1, m2) * 60;
                let signed = if text.starts_with('-') { -seconds } else { seconds };
                if number(m1, m2) > 59 || seconds > 14 * 3_600 {
                    return Err(unknown());
                }
                TimeZone::fixed(jiff::tz::Offset::from_seconds(signed).map_err(|_| unknown())?)
            }
            b"UTC" | b"Z" => TimeZone::UTC,
            _ => TimeZone::get(text).map_err(|_| unknown())?,
        };
        Ok(Zone(zone))
    }

    pub(crate) fn time_zone(&self) -> TimeZone {
        self.0.clone()
    }

    /// Seconds from UTC of a zone that never changes.
    pub(crate) fn fixed_offset(&self) -> Option<i32> {
        self.0.to_fixed_offset().ok().map(jiff::tz::Offset::seconds)
    }

    /// The instant of a local time: the first one of an hour that comes twice, and as much later in an hour that is skipped.
    pub(crate) fn instant_of(&self, local: DateTime) -> Option<Timestamp> {
        let at = self.0.to_ambiguous_timestamp(local).compatible().ok()?;
        Some(Timestamp(at.as_microsecond()))
    }

    /// Seconds from UTC at an instant.
    pub(crate) fn offset_at(&self, at: Timestamp) -> i32 {
        jiff::Timestamp::from_microsecond(at.0).map_or(0, |at| self.0.to_offset(at).seconds())
    }
}

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

    /// From a text as in RFC 3339, such as `2026-11-30T08:00:00Z` or `2026-11-30T16:00:00+08:00`.
    ///
    /// # Errors
    /// `Invalid` for any other text, in particular one without a zone.
    pub fn from_rfc3339(option: &str, text: &str) -> Result<Self> {
        let at: jiff::Timestamp = text.parse().map_err(|_| {
            Error::invalid(format!("{option} {text:?} is not an instant with its zone, such as 2026-11-30T08:00:00Z or …+08:00"))
        })?;
        let at = Timestamp(at.as_microsecond());
        if !(Self::BEGINNING..=Self::END).contains(&at) {
            return Err(Error::invalid(format!("{option} is outside of the years 1000 to 9999")));
        }
        Ok(at)
    }

    /// The calendar form at an offset from UTC in seconds; `None` outside of the years 1000 to 9999.
    pub(crate) fn civil(self, offset: i32) -> Option<DateTime> {
        let shifted = self.0.checked_add(i64::from(offset) * 1_000_000)?;
        let civil = EPOCH.checked_add(SignedDuration::from_micros(shifted)).ok()?;
        (1_000..=9_999).contains(&civil.year()).then_some(civil)
    }

    /// The instant of a calendar form at an offset from UTC in seconds.
    pub(crate) fn of_civil(civil: DateTime, offset: i32) -> Self {
        let micros = i64::try_from(civil.duration_since(EPOCH).as_micros()).unwrap_or(i64::MAX);
        Timestamp(micros.saturating_sub(i64::from(offset) * 1_000_000))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The doubling never overflows into a short or negative wait, and jitter stays within base and cap.
    #[test]
    fn the_back_off_doubles_saturates_and_keeps_its_bounds() {
        let mut backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(3_600), jitter: false };
        let expected = [(1, 1), (2, 2), (3, 4), (4, 8), (12, 2_048), (13, 3_600), (40, 3_600), (62, 3_600), (63, 3_600)];
        let more = [(64, 3_600), (65, 3_600), (119, 3_600), (1 << 31, 3_600), (i64::MAX, 3_600), (0, 1), (i64::MIN, 1)];
        for (attempt, seconds) in expected.into_iter().chain(more) {
            assert_eq!(backoff.delay(attempt), Duration::from_secs(seconds), "attempt {attempt}");
        }
        backoff.jitter = true;
        for attempt in 1..200 {
            let wait = backoff.delay(attempt);
            assert!(wait >= backoff.base && wait <= backoff.cap, "attempt {attempt}: {wait:?}");
        }
        let none = Backoff { base: Duration::ZERO, cap: Duration::ZERO, jitter: true };
        assert_eq!(none.delay(5), Duration::ZERO);
    }

    #[test]
    fn spans_and_instants_out_of_range_are_refused() {
        for seconds in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert!(span_from_seconds("delay", seconds).is_err(), "{seconds}");
        }
        for seconds in [f64::NAN, 1e15, -1e15] {
            assert!(Timestamp::from_unix_seconds(seconds).is_err(), "{seconds}");
        }
        assert_eq!(Timestamp::from_unix_seconds(1_590_285_600.25).unwrap(), Timestamp(1_590_285_600_250_000));
    }
}
