//! Admission: what a plugin is asked before an object is stored, what it answers, and what the API server is told of that.
//!
//! `admission/configuration.rs` says which webhooks a manifest means, `admission/review.rs` reads the API server's
//! questions and writes the answers, `admission/defaults.rs` turns a completed object into a JSON patch. Nothing here
//! serves anything, and no certificate is looked into: `kube/webhook.rs` and the runtime do that.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::GuestFault;
use crate::digest::Digest;
use crate::limits::CallLimits;
use crate::manifest::AdmissionSpec;
use crate::webhook::Purpose;

pub mod configuration;
mod defaults;
pub mod review;
#[cfg(test)]
mod tests;

/// What the API server asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed one.
    Update,
    /// One that is to be deleted.
    Delete,
}

/// One question, as the guest gets it. Objects are JSON text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmissionRequest {
    /// What is asked.
    pub purpose: Purpose,
    /// What is to happen.
    pub operation: Operation,
    /// The object as it is to be stored, or the one to be deleted.
    pub object: Arc<str>,
    /// What is stored.
    pub old: Option<Arc<str>>,
    /// The time of the question, which is the guest's clock.
    pub now_unix_ms: u64,
    /// The plugin's configuration.
    pub config: Arc<str>,
}

/// Why an object is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// "spec.image"; empty for the object as a whole.
    pub field: String,
    /// For a person.
    pub message: String,
}

/// How one question was answered.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// The object with its defaults.
    Completed(String),
    /// What a check found, or what keeps defaults from being filled in; nothing: it is admitted.
    Checked {
        /// Why not.
        violations: Vec<Violation>,
        /// What kubectl shows either way.
        warnings: Vec<String>,
    },
    /// The guest gave no usable answer.
    Fault(GuestFault),
    /// The host could not ask. One sentence for a person.
    HostFault(String),
}

/// A plugin's version that answers questions.
#[derive(Clone, PartialEq, Debug)]
pub struct AdmissionBackend {
    /// Which component.
    pub digest: Digest,
    /// Its configuration.
    pub config: Arc<str>,
    /// Bounds of one call.
    pub limits: CallLimits,
    /// What it is asked about.
    pub specs: Arc<[AdmissionSpec]>,
}

impl AdmissionBackend {
    /// How long the API server waits for an answer.
    pub fn timeout_seconds(&self) -> u64 {
        self.limits.deadline_ms.div_ceil(1_000).saturating_add(QUEUE_SECONDS).clamp(MIN_SECONDS, MAX_SECONDS)
    }

    /// How long the host may take for its answer: it says in words what took so long before the API server gives up.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds()) - MARGIN
    }
}

/// What a question may wait for a worker, beside the call itself.
const QUEUE_SECONDS: u64 = 5;
/// The API server's own default. A shorter one would only make a busy host look like a broken one.
const MIN_SECONDS: u64 = 10;
/// The most that the API server allows.
const MAX_SECONDS: u64 = 30;
/// For the way there and back.
const MARGIN: Duration = Duration::from_secs(1);
