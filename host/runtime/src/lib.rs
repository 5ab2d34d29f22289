//! A running host: the pure driver of `mortise-core` between the crates that do things. Read `event_loop.rs` first: it is
//! the only loop; `effects.rs` is what it does, `host.rs` how everything is started and ended.
//!
//! This crate decides nothing about plugins or objects, and knows neither wasmtime nor the Kubernetes API itself.

mod components;
pub mod config;
mod effects;
mod election;
mod event_loop;
mod host;
mod http;
pub mod loader;
pub mod log;
pub mod metrics;
pub mod probes;
mod server;
mod sources;
mod state;
mod supervise;
mod webhooks;

pub use host::run;
