//! The simulation: the real driver against a model API server on one thread, one clock and one seed, with every fault
//! that a host meets. It must not know tokio, a socket or a real clock.
//!
//! `world.rs` is the loop, `shell.rs` performs the driver's effects, `cluster.rs` is the API server, `environment.rs` what
//! others do to the cluster, `oracle.rs` what must hold at each step and `converged.rs` what must hold at the end.
//! `recovery.rs` is what no watch tells of: lost events, and a restored etcd. `election.rs` is a simulation of its own, of
//! several hosts that ask for one Lease; `crontabs.rs` is days of the real crontab, with a host that dies.

pub mod cluster;
pub mod component;
pub mod converged;
#[cfg(test)]
mod crontabs;
pub mod election;
pub mod environment;
pub mod faults;
pub mod guests;
pub mod oracle;
pub mod random;
#[cfg(test)]
mod recovery;
pub mod shell;
#[cfg(test)]
mod tests;
pub mod watch;
pub mod world;
