//! Random numbers that nobody can guess. They must not know what follows from them.

use anyhow::{Context as _, Result};

/// What UIDs follow from, or what ServiceAccount tokens are signed with.
pub(crate) fn random() -> Result<u64> {
    getrandom::u64().context("get a random number from the system")
}
