//! The time as the engine takes it.

use std::time::{SystemTime, UNIX_EPOCH};

use mortise_core::time::Now;
use mortise_kube::clock;

/// The time, by the clock that claims are measured by.
pub(crate) fn now() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { mono_ms: clock::now_ms(), unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX) }
}
