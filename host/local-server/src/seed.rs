//! The seed of a new cluster. It must not know what follows from it.

use anyhow::{Context as _, Result};

/// What UIDs and ServiceAccount tokens follow from: nobody must be able to guess it.
pub(crate) fn random() -> Result<u64> {
    getrandom::u64().context("get a random number from the system")
}
