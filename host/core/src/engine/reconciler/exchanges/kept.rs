//! The bytes of requests and replies that are kept, and how many more a plugin may have (Q4).
//!
//! Nothing here knows a request.

use std::sync::Arc;

use super::PluginCounts;
use crate::http::{Failure, FailureClass};

/// Bytes of one plugin: sixty-four of the largest responses, or two hundred thousand requests without body.
pub(super) const MAX_PLUGIN_BYTES: usize = 64 << 20;
/// Bytes of all plugins: an eighth of the memory limit of the Deployment in deploy/.
pub(super) const MAX_TOTAL_BYTES: usize = 256 << 20;
/// Bytes that a plugin has to itself, so that others that keep much do not take all.
const OWN_BYTES: usize = 2 << 20;

#[derive(Debug, Default)]
pub(super) struct Kept(PluginCounts);

impl Kept {
    /// Whether a plugin may keep so many more bytes.
    pub fn fits(&self, plugin: &str, bytes: usize) -> bool {
        let (own, total) = (self.0.of(plugin) + bytes, self.0.total() + bytes);
        own <= OWN_BYTES || (own <= MAX_PLUGIN_BYTES && total <= MAX_TOTAL_BYTES)
    }

    pub fn add(&mut self, plugin: &Arc<str>, bytes: usize) {
        self.0.add(plugin, bytes);
    }

    pub fn subtract(&mut self, plugin: &str, bytes: usize) {
        self.0.subtract(plugin, bytes);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.total() == 0
    }
}

/// Why something is not kept.
pub(super) fn no_room(what: &str) -> String {
    format!(
        "there is no room for {what}: the requests of one plugin and their responses may have {} MiB together, and {} MiB \
         those of all; request less at once, or for fewer objects",
        MAX_PLUGIN_BYTES >> 20,
        MAX_TOTAL_BYTES >> 20
    )
}

/// The failure of a request whose response is not kept.
pub(super) fn response_without_room() -> Failure {
    Failure { class: FailureClass::TooLarge, message: no_room("the response").into() }
}
