//! Timestamps as objects have them. It must not know clocks.

use jiff::Timestamp;
use serde_json::Value;

/// `metav1.Time`: whole seconds in UTC.
pub(crate) fn seconds(now: Timestamp) -> String {
    format!("{}", Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// `metav1.MicroTime`: six digits of a second.
pub(crate) fn micro(now: Timestamp) -> String {
    format!("{now:.6}")
}

/// The time in a field, if it has one.
pub(crate) fn read(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
