//! The simulation: the real engine against a model API server with one thread, one clock and one seed, under every
//! fault that a host meets. It must not know tokio, a socket or a real clock.
//!
//! `world.rs` is the loop, `shell.rs` performs the engine's effects, `cluster.rs` is the API server, `environment.rs`
//! changes the cluster as others would, `http.rs` answers requests, `oracle.rs` checks every step and `converged.rs`
//! the end. `recovery.rs` has what no watch reports: lost events, and a restored etcd. `election.rs` simulates several
//! hosts with one Lease; `crontabs.rs` runs the real crontab for days, with a host that dies; in `successors.rs` it
//! dies while it replaces Pods. In `narrowed.rs` plugins read parts of kinds, which change with their versions;
//! `hostile.rs` has plugins, controllers and policies that never rest.

pub mod cluster;
pub mod component;
pub mod converged;
#[cfg(test)]
mod crontabs;
pub mod election;
pub mod environment;
pub mod faults;
pub mod guests;
#[cfg(test)]
mod hostile;
pub mod http;
#[cfg(test)]
mod narrowed;
pub mod oracle;
pub mod random;
#[cfg(test)]
mod recovery;
pub mod shell;
#[cfg(test)]
mod successors;
#[cfg(test)]
mod tests;
pub mod watch;
pub mod world;
