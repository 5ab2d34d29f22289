//! Conversion of objects between the versions of their kind.
//!
//! `conversion/review.rs` reads ConversionReviews and writes the responses; `crd/conversion.rs` registers the webhook.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::GuestFault;
use crate::digest::Digest;
use crate::limits::CallLimits;
use crate::manifest::ConversionSpec;
use crate::object::Kind;

pub mod review;
#[cfg(test)]
mod tests;

/// The host's timeout for one request. The API server's is 30 s and fixed; one second is left for the network.
pub const TIMEOUT: Duration = Duration::from_secs(29);

/// The conversion of one object, as the guest gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConversionRequest {
    /// The object, as JSON text.
    pub object: Arc<str>,
    /// The wanted version, "example.com/v2".
    pub to_api_version: Arc<str>,
    /// The time of the request, which is the guest's clock.
    pub now_unix_ms: u64,
    /// The plugin's configuration.
    pub config: Arc<str>,
}

/// The result of one conversion.
#[derive(Clone, PartialEq, Debug)]
pub enum Conversion {
    /// The converted object, not checked yet.
    Object(String),
    /// The guest's reason why it cannot be converted.
    Refused(String),
    /// The guest returned no usable result.
    Fault(GuestFault),
    /// The host could not call the guest. One sentence for a person.
    HostFault(String),
}

impl Conversion {
    /// The text that it keeps.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Object(text) | Self::Refused(text) | Self::HostFault(text) => text.len(),
            // Cut to some KiB.
            Self::Fault(_) => 0,
        }
    }
}

/// The version of a plugin that serves its conversions.
#[derive(Clone, PartialEq, Debug)]
pub struct ConversionBackend {
    /// Its component.
    pub digest: Digest,
    /// Its configuration.
    pub config: Arc<str>,
    /// Bounds of one call.
    pub limits: CallLimits,
    /// The kinds that it converts.
    pub specs: Arc<[ConversionSpec]>,
}

impl ConversionBackend {
    /// Whether it converts the kind.
    pub fn converts(&self, kind: &Kind) -> bool {
        self.specs.iter().any(|spec| spec.kind.is_same_resource(kind))
    }
}
