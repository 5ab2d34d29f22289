//! Kubernetes' time formats. Times are arguments: nothing here reads a clock.

use jiff::Timestamp;

/// The time of one step, from the caller's clocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Now {
    /// Milliseconds of a monotonic clock, from an arbitrary zero.
    pub mono_ms: u64,
    /// Unix milliseconds.
    pub unix_ms: u64,
}

fn timestamp(unix_ms: u64) -> Timestamp {
    // RFC 3339 ends with the year 9999; later times are clamped.
    i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
}

/// metav1.Time: RFC 3339 to the second.
pub fn seconds(unix_ms: u64) -> String {
    timestamp(unix_ms).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// metav1.MicroTime: RFC 3339 with six digits, which the API server requires.
pub fn micros(unix_ms: u64) -> String {
    timestamp(unix_ms).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Unix milliseconds of a time in RFC 3339; None for another text.
pub fn parse(text: &str) -> Option<u64> {
    u64::try_from(text.parse::<Timestamp>().ok()?.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_have_kubernetes_formats() {
        assert_eq!(super::seconds(1_700_000_000_123), "2023-11-14T22:13:20Z");
        assert_eq!(super::micros(1_700_000_000_123), "2023-11-14T22:13:20.123000Z");
        assert_eq!(super::seconds(u64::MAX), "9999-12-30T22:00:00Z");
        assert_eq!(super::parse("2023-11-14T22:13:20Z"), Some(1_700_000_000_000));
        assert_eq!((super::parse("yesterday"), super::parse("1960-01-01T00:00:00Z")), (None, None));
    }
}
