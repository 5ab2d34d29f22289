//! Every test that needs more than one crate, in one binary.
//!
//! `simulation` runs the real driver against a model API server with faults, `scenarios` runs it through short stories
//! that are written as data, `e2e` runs the host on a real control plane, `tidy` holds the repository to its own rules.
#![allow(clippy::unwrap_used, reason = "tests")]

mod e2e;
mod scenarios;
mod simulation;
mod tidy;
