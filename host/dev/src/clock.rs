//! The time of a session. It must not know what happens in it.

use std::time::Instant;

/// Milliseconds since the start.
pub(crate) fn since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}
