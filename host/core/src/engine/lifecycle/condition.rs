//! Constructors of conditions.

use crate::contract::{Condition, ConditionStatus};

fn condition(name: &str, status: ConditionStatus, reason: &str, message: impl Into<String>) -> Condition {
    Condition { name: name.to_owned(), status, reason: reason.to_owned(), message: message.into() }
}

pub(super) fn yes(name: &str, reason: &str, message: impl Into<String>) -> Condition {
    condition(name, ConditionStatus::True, reason, message)
}

pub(super) fn no(name: &str, reason: &str, message: impl Into<String>) -> Condition {
    condition(name, ConditionStatus::False, reason, message)
}

pub(super) fn unknown(name: &str, reason: &str, message: impl Into<String>) -> Condition {
    condition(name, ConditionStatus::Unknown, reason, message)
}
