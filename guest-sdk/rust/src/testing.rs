//! Runs a plugin natively against the objects of a test, without WebAssembly, cluster or host. Reads follow the host's
//! rules (declared kinds only, projected fields, selectors, order). An outcome that the host would refuse is refused,
//! with the host's message.
//!
//! A [`Cluster`] is for one call: nothing is written, and what the API server does is not covered, such as schemas (except that
//! a status has no field that its schema lacks), defaults and quotas. With the feature `stories` a `Story` runs the same
//! function with the real engine on a model of the API server and its controllers, in virtual time.

pub use admission::{Admitted, Refused};
pub use cluster::Cluster;
#[cfg(feature = "stories")]
pub use story::Story;

mod actions;
mod admission;
mod cluster;
mod conversion;
mod generated;
mod metadata;
mod pruned;
mod refusals;
mod requests;
#[cfg(feature = "stories")]
mod story;
#[cfg(test)]
mod tests;
