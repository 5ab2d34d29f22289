//! What is due at a time of a story.

use std::sync::Arc;

use mortise_core::event::Event;
use mortise_core::scope::Slice;

/// What is due.
pub(super) enum Due {
    /// An event for the engine of this incarnation of the host.
    Event(u32, Box<Event>),
    /// A slice is listed, for the watch of this epoch.
    List(Slice, u64),
    /// Whether a definition is established, until this time.
    Established { incarnation: u32, plugin: Arc<str>, crd: Arc<str>, until_ms: u64 },
}
