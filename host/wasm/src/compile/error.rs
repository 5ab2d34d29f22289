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
        /// What was being done, to what.
        doing: String,
        /// What the operating system said.
        source: io::Error,
    },
}

pub(super) fn host_error(doing: String, source: io::Error) -> CompileError {
    CompileError::Host { doing, source }
}
