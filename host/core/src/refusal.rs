//! Why the host does not accept a component.

use crate::text::REFUSAL;

/// A refusal, which becomes a condition, an Event and a metric.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}{}{said}", if said.is_empty() { "" } else { ": " })]
pub struct Refusal {
    /// One CamelCase word: the condition's reason.
    pub reason: &'static str,
    /// What, where, why and what to do.
    pub message: String,
    /// What the component said itself, for its author: nothing that others read shows it.
    pub said: String,
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
    /// A refusal at [`RefusedAt::Compile`]. The message may repeat what the component declares.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: REFUSAL.own(message.into()), said: String::new(), at: RefusedAt::Compile }
    }

    /// The same with what the component said.
    #[must_use]
    pub fn with_words(self, said: impl Into<String>) -> Self {
        Self { said: REFUSAL.own(said.into()), ..self }
    }

    /// A refusal at [`RefusedAt::Bytes`].
    pub fn of_bytes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { at: RefusedAt::Bytes, ..Self::new(reason, message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_the_lines_of_a_trap_and_nothing_that_acts_on_a_terminal() {
        let message = Refusal::new("ManifestFailed", "it trapped: no\u{1b}[2J\0\n  0: \u{202e}main\r\n").message;
        assert_eq!(message, "it trapped: no \n  0: main\n".trim_end());
        let most = 16 << 10;
        assert_eq!(Refusal::new("ManifestFailed", "x".repeat(most)).message.len(), most);
        assert_eq!(Refusal::new("ManifestFailed", "ä".repeat(most)).message, format!("{}…", "ä".repeat(most / 2 - 2)));
    }
}
