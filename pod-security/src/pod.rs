//! What is checked, and what is found. It must not know levels.

use std::fmt;

use serde_json::Value;

/// A Pod, or the template of Pods.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    /// Its metadata; an annotation can set an AppArmor profile.
    pub metadata: &'a Value,
    /// Its spec.
    pub spec: &'a Value,
}

/// Something that a standard forbids. Displayed with its detail in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule: `hostPath volumes`.
    pub reason: String,
    /// What is wrong, and often what to do: `volume "logs"`.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.detail)
    }
}
