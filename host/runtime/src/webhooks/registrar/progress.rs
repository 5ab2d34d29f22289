//! How far the keeper has come: with the certificate that it shows, and with the configurations of each plugin. Values only.

use std::sync::Arc;

use mortise_core::admission::AdmissionBackend;
use mortise_core::refusal::Refusal;

/// What the certificate that is shown was made of.
#[derive(PartialEq, Eq)]
pub(super) enum Shown {
    /// Issued by the authority of this certificate, until it is to be renewed.
    Issued { authority: String, renew_at_ms: u64 },
    /// As it stands in files.
    Files { chain: Vec<u8>, key: Vec<u8> },
}

/// Plugins with the version that is to be asked about their objects; None: their configurations are to be deleted.
pub(super) type Due = Vec<(Arc<str>, Option<Arc<AdmissionBackend>>)>;

/// How far a plugin's configurations are.
#[derive(Debug)]
pub(super) enum Progress {
    /// As they are wanted.
    Done,
    /// One is somebody else's.
    Foreign(Refusal),
    /// One is to be written, and this host may not (X7).
    Held,
    /// One could not be read or written.
    Failed(Refusal),
}

impl Progress {
    /// Of two, the one that is further from done.
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
