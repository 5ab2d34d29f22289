//! Why a component was not compiled: the component's fault, or the machine's.

use std::io;

use mortise_core::refusal::Refusal;

/// Why there is no artifact.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The component is at fault; trying again changes nothing.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The machine is at fault; trying again may help.
    #[error("cannot {doing}: {source}")]
    Host {
        /// The operation and its subject.
        doing: String,
        /// The operating system's error.
        source: io::Error,
    },
}

pub(super) fn host_error(doing: String, source: io::Error) -> CompileError {
    CompileError::Host { doing, source }
}
