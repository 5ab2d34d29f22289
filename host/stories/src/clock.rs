//! Virtual time: milliseconds since the beginning of a story, which is the same for all.

use jiff::Timestamp;
use mortise_core::time::Now;

/// 2026-01-01T00:00:00Z, in Unix milliseconds.
const BEGIN_UNIX_MS: u64 = 1_767_225_600_000;

/// A time of a story in the engine's clocks.
pub fn now(now_ms: u64) -> Now {
    Now { mono_ms: now_ms, unix_ms: BEGIN_UNIX_MS + now_ms }
}

/// A time of a story in the cluster's.
pub fn timestamp(now_ms: u64) -> Timestamp {
    let unix_ms = i64::try_from(now(now_ms).unix_ms).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(unix_ms).unwrap_or(Timestamp::MAX)
}

/// The milliseconds since the beginning at which a time of the cluster has come, rounded up.
pub fn since_begin(time: Timestamp) -> u64 {
    let unix_ms = time.as_nanosecond().max(0).unsigned_abs().div_ceil(1_000_000);
    u64::try_from(unix_ms).unwrap_or(u64::MAX).saturating_sub(BEGIN_UNIX_MS)
}
