//! Why the host does not accept a component.

/// A refusal, which becomes a condition, an Event and a metric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// One CamelCase word: the condition's reason.
    pub reason: &'static str,
    /// What, where, why and what to do.
    pub message: String,
    /// The step that failed.
    pub at: RefusedAt,
}

/// The step at which a component was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedAt {
    /// The scan of its bytes, which are not a component of the contract.
    Bytes,
    /// A later step: compilation, trial instantiation, or the check of its manifest.
    Compile,
}

impl Refusal {
    /// A refusal at [`RefusedAt::Compile`].
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), at: RefusedAt::Compile }
    }

    /// A refusal at [`RefusedAt::Bytes`].
    pub fn of_bytes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { at: RefusedAt::Bytes, ..Self::new(reason, message) }
    }
}
