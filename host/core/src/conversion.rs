//! Conversion: objects of one kind in another of its versions, which the API server asks for whenever an object is wanted in
//! a version that it is not stored in.
//!
//! `conversion/review.rs` reads the API server's questions and writes the answers. Here is what goes into a definition so
//! that it asks, and how a live one is seen to trust the host. Nothing here serves anything.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::contract::GuestFault;
use crate::digest::Digest;
use crate::limits::CallLimits;
use crate::manifest::ConversionSpec;

pub mod review;
#[cfg(test)]
mod tests;

/// How long the host may take for one request. The API server waits for 30 s, which nobody can change; the rest is for the
/// way there and back.
pub const PATIENCE: Duration = Duration::from_secs(29);

/// One object that is wanted in another version, as the guest gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConversionRequest {
    /// The object, as JSON text.
    pub object: Arc<str>,
    /// The version, "example.com/v2".
    pub to_api_version: Arc<str>,
    /// The time of the question, which is the guest's clock.
    pub now_unix_ms: u64,
    /// The plugin's configuration.
    pub config: Arc<str>,
}

/// How one question was answered.
#[derive(Clone, PartialEq, Debug)]
pub enum Conversion {
    /// The object in the other version, as far as the guest says the truth.
    Object(String),
    /// It cannot be converted, in the guest's words.
    Refused(String),
    /// The guest gave no usable answer.
    Fault(GuestFault),
    /// The host could not ask. One sentence for a person.
    HostFault(String),
}

/// A plugin's version that converts.
#[derive(Clone, PartialEq, Debug)]
pub struct ConversionBackend {
    /// Which component.
    pub digest: Digest,
    /// Its configuration.
    pub config: Arc<str>,
    /// Bounds of one call.
    pub limits: CallLimits,
    /// Whose objects it converts.
    pub specs: Arc<[ConversionSpec]>,
}

impl ConversionBackend {
    /// Whether an object is of a kind that it converts, in whichever version.
    pub fn converts(&self, object: &Value) -> bool {
        let group = object["apiVersion"].as_str().and_then(|api_version| api_version.split_once('/'));
        let is_of = |spec: &ConversionSpec| {
            object["kind"] == *spec.kind.kind && group.is_some_and(|(group, _)| group == spec.kind.group())
        };
        self.specs.iter().any(is_of)
    }
}
