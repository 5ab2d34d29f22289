//! The words in which an outcome that breaks a rule is refused.

use crate::contract::GuestFault;

/// The outcome breaks a rule of the contract.
pub(super) fn bad<T>(message: impl Into<String>) -> Result<T, GuestFault> {
    Err(GuestFault::BadOutcome { message: message.into() })
}

/// As much of a guest's text as a message has room for.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}
