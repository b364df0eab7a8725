//! Durations as people write and read them, and instants as text.

use rowclaim::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads `30s`, `5m`, `1h 30m`, `7d`; a bare number is seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let hint = "write it as 30s, 5m, 12h or 7d";
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| hint.to_owned()),
        Err(_) => humantime::parse_duration(text).map_err(|error| format!("{error}; {hint}")),
    }
}

/// `1m 5s`, to the second; below ten seconds to the millisecond.
pub fn human(span: Duration) -> String {
    let span = if span < Duration::from_secs(10) {
        Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(span.as_secs())
    };
    humantime::format_duration(span).to_string()
}

/// RFC 3339 in UTC with microseconds, for programs.
pub fn instant(at: Timestamp) -> String {
    system_time(at).map_or_else(|| unreadable(at), |time| humantime::format_rfc3339_micros(time).to_string())
}

/// RFC 3339 in UTC with milliseconds, for people.
pub fn shown(at: Timestamp) -> String {
    system_time(at).map_or_else(|| unreadable(at), |time| humantime::format_rfc3339_millis(time).to_string())
}

/// RFC 3339 in UTC, without a fraction where there is none: for planned times.
pub fn brief(at: Timestamp) -> String {
    if at.0 % 1_000_000 != 0 {
        return instant(at);
    }
    system_time(at).map_or_else(|| unreadable(at), |time| humantime::format_rfc3339_seconds(time).to_string())
}

/// The formatter knows the years 1970 to 9999.
fn system_time(at: Timestamp) -> Option<SystemTime> {
    let micros = u64::try_from(at.0).ok().filter(|_| at <= Timestamp::END)?;
    UNIX_EPOCH.checked_add(Duration::from_micros(micros))
}

fn unreadable(at: Timestamp) -> String {
    format!("{} s", at.as_unix_seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_and_without_units() {
        assert_eq!(parse("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(parse("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse("-1").is_err());
        assert!(parse("soon").is_err_and(|message| message.contains("7d")));
    }

    #[test]
    fn instants_are_written_in_utc() {
        assert_eq!(instant(Timestamp(1_000_001)), "1970-01-01T00:00:01.000001Z");
        assert_eq!(instant(Timestamp::END), "9999-12-31T23:59:59.999999Z");
        assert_eq!(shown(Timestamp(1_234_567)), "1970-01-01T00:00:01.234Z");
        assert_eq!(shown(Timestamp(-1_000_000)), "-1 s");
        assert_eq!(brief(Timestamp(60_000_000)), "1970-01-01T00:01:00Z");
        assert_eq!(brief(Timestamp(60_000_010)), "1970-01-01T00:01:00.000010Z");
    }
}
