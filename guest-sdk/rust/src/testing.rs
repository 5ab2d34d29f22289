//! Runs a plugin natively against objects that a test writes down: no WebAssembly, no cluster, no host. Reads follow
//! the host's rules (only declared kinds, projected fields, label selectors, the same order), so what passes here
//! asks the same questions there; and an outcome that the host would refuse is refused, in the host's words.
//!
//! What this does not do is the host's and the API server's part: names, owner references, patches, schemas, quotas.

pub use admission::{Admitted, Refused};
pub use cluster::Cluster;

mod actions;
mod admission;
mod cluster;
mod conversion;
mod metadata;
mod refusals;
#[cfg(test)]
mod tests;
