//! A running host: connects the pure engine of mortise-core with the crates that do I/O. Read `event_loop.rs` first: it
//! is the only loop. `effects.rs` performs the engine's effects, `host.rs` starts and ends the parts.
//!
//! This crate decides nothing about plugins or objects, and knows neither wasmtime nor the Kubernetes API.

#[cfg(test)]
#[path = "../../core/src/allocations.rs"]
mod allocations;
mod clock;
mod components;
pub mod config;
mod effects;
mod election;
mod event_loop;
mod host;
mod http_client;
mod input;
mod inputs;
mod lag;
pub mod loader;
pub mod log;
mod memory;
mod metrics;
mod monitoring;
pub mod observer;
mod probes;
mod server;
mod sources;
mod state;
mod supervise;
mod tenancy;
#[cfg(test)]
mod testing;
mod webhooks;

pub use host::{run, run_attached};
