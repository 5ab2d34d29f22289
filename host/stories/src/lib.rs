//! Stories: a plugin, the real engine and a model of the cluster in one process, on a virtual clock. Input: a guest and acts of
//! others, or a story file. Output: the objects, the host's requests, and what does not hold. It must not know tokio, sockets
//! and the machine's clock, so that a story is the same everywhere and waits for nothing.
//!
//! `story.rs` is one run; `script.rs` reads story files and runs each several times: with the host started again, in other
//! orders, and with a crash after each write.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

pub mod api;
pub mod clock;
mod diff;
mod guest;
pub mod report;
pub mod script;
mod state;
mod story;
#[cfg(test)]
mod testing;
mod webhooks;

pub use guest::Guest;
pub use state::{difference, state};
pub use story::{Denial, Http, Settings, Story};
