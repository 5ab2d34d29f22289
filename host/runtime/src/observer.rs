//! What a process that embeds the host is shown of it, such as the screen of `mortise dev`. Input: the engine's events and
//! effects as they pass, and the ends of calls. It must not decide anything: the host is the same with and without one.

use std::sync::Arc;

use mortise_core::event::{Effect, Event};
use mortise_wasm::workers::JobDone;
use tokio::sync::oneshot;

/// Sees what the host does. The event loop and the workers call it, so it must not wait.
pub trait Observer: Send + Sync {
    /// An event, before the engine takes it.
    fn event(&self, event: &Event);
    /// An effect of the last event, before it is performed.
    fn effect(&self, effect: &Effect);
    /// A call that has ended, before its event.
    fn called(&self, done: &JobDone);
}

/// A process that embeds the host: it sees what happens and says when to end.
pub struct Attachment {
    /// Sees what the host does.
    pub observer: Arc<dyn Observer>,
    /// Ends the host when it is sent to or dropped.
    pub stop: oneshot::Receiver<()>,
}
