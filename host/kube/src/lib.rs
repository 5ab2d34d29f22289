//! All traffic with the API server: connections, watches, writes, CRD registration, the host's Lease and its webhook
//! configurations. It performs what the core decided and returns results in the core's types.
//!
//! It knows no plugin, no queue and no cache. Read `client.rs` first, then `watch.rs`.

mod access_review;
#[cfg(test)]
#[path = "../../core/src/allocations.rs"]
mod allocations;
mod answers;
pub mod audit;
pub mod client;
pub mod client_review;
pub mod clock;
mod connections;
pub mod counts;
pub mod crd;
pub mod discovery;
pub mod execute;
mod failure;
mod generated;
mod identity_review;
pub mod leadership;
pub mod lease;
pub mod limiter;
mod page;
mod retry;
pub mod sink;
#[cfg(test)]
mod testing;
pub mod tls;
mod traffic;
pub mod watch;
pub mod webhook;
