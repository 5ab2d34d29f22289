//! Everything that speaks to the API server: the connection, watches, writes, CRD registration and the host's Lease. It performs what
//! the core decided and reports what came of it in the core's own types.
//!
//! Nothing here decides: no plugin, no queue and no cache is known here. Read `client.rs` first, then `watch.rs`.

pub mod client;
pub mod clock;
pub mod counts;
pub mod crd;
pub mod discovery;
pub mod execute;
mod failure;
mod frames;
pub mod lease;
mod retry;
mod rooms;
#[cfg(test)]
mod testing;
pub mod watch;

// Named so that its feature, which chooses the Kubernetes version of kube's own types, is chosen in this crate.
use k8s_openapi as _;
