//! The fault of an outcome that breaks a rule of the contract.

use crate::contract::GuestFault;

pub(super) fn bad<T>(message: impl Into<String>) -> Result<T, GuestFault> {
    Err(GuestFault::bad_outcome(message))
}

/// A guest's text, shortened for a message.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}
