//! Why something that a plugin or its source offers is not accepted.

/// A refusal: one reason and one explanation. Becomes a condition, an Event and a metric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// One CamelCase word: the condition's reason.
    pub reason: &'static str,
    /// What, where, why and what to do.
    pub message: String,
    /// How far a component had come.
    pub at: RefusedAt,
}

/// How far a component had come when it was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedAt {
    /// Its bytes are no component of the contract.
    Bytes,
    /// They are, and it does not compile, or its manifest is not accepted.
    Compile,
}

impl Refusal {
    /// A refusal with its reason and its explanation.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), at: RefusedAt::Compile }
    }

    /// The refusal of bytes that are no component of the contract.
    pub fn of_bytes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { at: RefusedAt::Bytes, ..Self::new(reason, message) }
    }
}
