//! Why something that a plugin or its source offers is not accepted: one reason and one explanation.

/// Why something that a plugin or its source offers is not accepted. Becomes a condition, an Event and a metric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// One CamelCase word: the condition's reason.
    pub reason: &'static str,
    /// What, where, why and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal with its reason and its explanation.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}
