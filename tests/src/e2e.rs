//! The host as a user meets it: the real binary, the real API server, real clients. Every test takes the one control
//! plane for itself, with a host, a namespace and a clean cluster of its own.
//!
//! Counts that take long (kills, reloads) are small here and can be raised by environment variables that each test names.

mod admission;
mod conversion;
mod crash;
mod crontab;
mod crontab_storm;
mod drain;
mod eru;
mod failover;
mod foo;
mod hostile;
mod isolation;
mod kinds;
mod lifecycle;
mod mydaemonset;
mod neighbours;
mod node_storm;
mod observe;
mod outage;
mod pods;
mod quiet;
mod refusals;
mod reload;
mod restore;
mod rights;
mod shutdown;
mod world;
mod writes;
