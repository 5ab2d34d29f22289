//! The [Pod Security Standards](https://kubernetes.io/docs/concepts/security/pod-security-standards/): a Pod or a template of
//! Pods in, what a level forbids of it out, in the words and the order of the API server's Pod Security admission. The local
//! cluster admits Pods by it, and a plugin can check a template before it wants Pods. It must not know namespaces, labels or
//! plugins; no clock, no I/O.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

use std::fmt;

mod checks;
mod level;
mod pod;
#[cfg(test)]
mod tests;
mod version;

pub use level::{LEVELS, Level};
pub use pod::{Pod, Violation};
pub use version::Version;

/// A level of a version of the standards. Displayed as messages name it: `restricted:latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standard {
    /// The level.
    pub level: Level,
    /// Whose rules for this level count.
    pub version: Version,
}

impl Standard {
    /// What it forbids of a Pod. What is no Pod by its types, such as containers that are no list, is not found here: the API
    /// server refuses it.
    ///
    /// ```
    /// use mortise_pod_security::{Level, Pod, Standard, Version};
    /// use serde_json::{Value, json};
    ///
    /// let spec = json!({"hostPID": true, "containers": [{"name": "web", "image": "nginx"}]});
    /// let standard = Standard { level: Level::Baseline, version: Version::LATEST };
    /// let found = standard.violations(Pod { metadata: &Value::Null, spec: &spec });
    /// assert_eq!(mortise_pod_security::details(&found), "host namespaces (hostPID=true)");
    /// ```
    #[must_use]
    pub fn violations(self, pod: Pod<'_>) -> Vec<Violation> {
        checks::violations(pod, self.level, self.version.minor())
    }
}

/// Violations as one text.
#[must_use]
pub fn details(found: &[Violation]) -> String {
    found.iter().map(Violation::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.name(), self.version)
    }
}
