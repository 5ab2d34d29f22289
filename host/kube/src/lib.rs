//! Everything that speaks to the API server: the connection, watches, writes, CRD registration, the host's Lease and its webhook
//! configurations. It performs what the core decided and reports what came of it in the core's own types.
//!
//! Nothing here decides: no plugin, no queue and no cache is known here. Read `client.rs` first, then `watch.rs`.

pub mod audit;
pub mod client;
pub mod clock;
mod connections;
pub mod counts;
pub mod crd;
pub mod discovery;
pub mod execute;
mod failure;
mod frames;
pub mod lease;
mod limiter;
mod retry;
#[cfg(test)]
mod testing;
pub mod watch;
pub mod webhook;
