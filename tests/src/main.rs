//! Every test that needs more than one crate, in one binary.
//!
//! `simulation` runs the real driver against a model API server with faults, `scenarios` runs it through short stories
//! that are written as data, `e2e` runs the host on a real control plane, `outcomes` holds the native tests of the SDK to the
//! rules of the host, `tidy` the repository to its own.
#![allow(clippy::unwrap_used, reason = "tests")]

mod checkout;
mod e2e;
mod outcomes;
mod scenarios;
mod simulation;
mod tidy;
