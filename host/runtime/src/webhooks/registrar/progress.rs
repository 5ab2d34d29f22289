//! The registrar's progress with the certificate and with each plugin's configurations. Values only.

use std::sync::Arc;

use mortise_core::admission::AdmissionBackend;
use mortise_core::refusal::Refusal;

/// The source of the serving certificate.
#[derive(PartialEq, Eq)]
pub(super) enum Shown {
    /// Issued by the authority with this certificate.
    Issued {
        authority: String,
        renew_at_ms: u64,
    },
    Files {
        chain: Vec<u8>,
        key: Vec<u8>,
    },
}

/// Plugins with their backends; None: delete the configurations.
pub(super) type Due = Vec<(Arc<str>, Option<Arc<AdmissionBackend>>)>;

/// The progress of a plugin's configurations.
#[derive(Debug)]
pub(super) enum Progress {
    Done,
    /// Another owner has a configuration of this name.
    Foreign(Refusal),
    /// A write is missing, and this host does not lead (X7).
    Held,
    /// One could not be read or written.
    Failed(Refusal),
}

impl Progress {
    /// The one that is further from done.
    pub(super) fn and(self, other: Self) -> Self {
        let rank = |progress: &Self| match progress {
            Self::Done => 0,
            Self::Foreign(_) => 1,
            Self::Held => 2,
            Self::Failed(_) => 3,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}
