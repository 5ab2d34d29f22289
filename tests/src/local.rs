//! The commands that need neither a cluster nor Go: `mortise cluster`, `mortise new` and `mortise dev`, as their users run
//! them.

mod access;
mod cluster;
mod program;
mod session;
