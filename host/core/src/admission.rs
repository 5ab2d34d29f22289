//! Admission: the requests that a plugin receives before an object is stored or deleted, and its results.
//!
//! `admission/configuration.rs` plans the webhook configurations, `admission/review.rs` reads AdmissionReviews and
//! writes the responses, `admission/defaults.rs` turns a defaulted object into a JSON patch. Serving and certificates
//! belong to `kube/webhook.rs` and the runtime.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::GuestFault;
use crate::digest::Digest;
use crate::limits::CallLimits;
use crate::manifest::AdmissionSpec;
use crate::text::{DENIAL, FIELD, WARNING};
use crate::webhook::Purpose;

pub mod configuration;
mod defaults;
pub mod review;
#[cfg(test)]
mod tests;

/// The operation that the API server is about to perform.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an object.
    Update,
    /// A deletion.
    Delete,
}

/// One request, as the guest gets it. Objects are JSON text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmissionRequest {
    /// Defaulting or validation.
    pub purpose: Purpose,
    /// The operation.
    pub operation: Operation,
    /// The object to store or to delete.
    pub object: Arc<str>,
    /// The stored object.
    pub old: Option<Arc<str>>,
    /// The time of the request, which is the guest's clock.
    pub now_unix_ms: u64,
    /// The plugin's configuration.
    pub config: Arc<str>,
}

/// Violations in one response. A person fixes the first few and applies again.
const MAX_VIOLATIONS: usize = 64;
/// Warnings in one response; kubectl prints each on a line of its own. As many of the longest are what the API server passes
/// on of all.
const MAX_WARNINGS: usize = 16;

/// Why an object is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// "spec.image"; empty for the object as a whole.
    field: String,
    /// For a person.
    message: String,
}

impl Violation {
    /// A violation as a guest words it.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: FIELD.own(field.into()), message: DENIAL.own(message.into()) }
    }
}

/// What a guest has checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// The reasons for a refusal.
    violations: Vec<Violation>,
    /// Shown by kubectl in either case.
    warnings: Vec<String>,
}

impl Checked {
    /// The violations, each as field and message, and the warnings; of more than a response may have, the first.
    pub fn new(violations: impl IntoIterator<Item = Violation>, warnings: impl IntoIterator<Item = String>) -> Self {
        let warnings = warnings.into_iter().take(MAX_WARNINGS).map(|warning| WARNING.own(warning));
        Self { violations: violations.into_iter().take(MAX_VIOLATIONS).collect(), warnings: warnings.collect() }
    }
}

/// The result of one request.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// The object with its defaults.
    Completed(String),
    /// The result of validation, or of defaulting that failed; without violations the object is admitted.
    Checked(Checked),
    /// The guest returned no usable result.
    Fault(GuestFault),
    /// The host could not call the guest. One sentence for a person.
    HostFault(String),
}

impl Verdict {
    /// The texts that it keeps.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Completed(text) | Self::HostFault(text) => text.len(),
            Self::Checked(Checked { violations, warnings }) => {
                let violations = violations.iter().map(|Violation { field, message }| field.len() + message.len());
                violations.chain(warnings.iter().map(String::len)).sum()
            }
            // Cut to some KiB.
            Self::Fault(_) => 0,
        }
    }
}

/// The version of a plugin that serves its webhooks.
#[derive(Clone, PartialEq, Debug)]
pub struct AdmissionBackend {
    /// Its component.
    pub digest: Digest,
    /// Its configuration.
    pub config: Arc<str>,
    /// Bounds of one call.
    pub limits: CallLimits,
    /// The kinds that it admits.
    pub specs: Arc<[AdmissionSpec]>,
}

impl AdmissionBackend {
    /// The webhook's `timeoutSeconds`.
    pub fn timeout_seconds(&self) -> u64 {
        self.limits.deadline_ms.div_ceil(1_000).saturating_add(QUEUE_SECONDS).clamp(MIN_SECONDS, MAX_SECONDS)
    }

    /// The host's own timeout. It is shorter than the API server's, so that the response can name the cause.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds()) - MARGIN
    }
}

/// Longest wait of a request for a worker, beside the call itself.
const QUEUE_SECONDS: u64 = 5;
/// The API server's default. With a shorter timeout a busy host would look broken.
const MIN_SECONDS: u64 = 10;
/// The API server's maximum.
const MAX_SECONDS: u64 = 30;
/// Network time of a request and its response.
const MARGIN: Duration = Duration::from_secs(1);
