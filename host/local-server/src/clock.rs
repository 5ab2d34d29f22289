//! The time, which the cluster takes as an argument. It must not know who asks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Now, to the microsecond.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

/// How long it is until then; nothing if it is past.
pub(crate) fn until(then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now())).unwrap_or_default()
}
