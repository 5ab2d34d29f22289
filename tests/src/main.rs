//! Every test that needs more than one crate, in one binary.
//!
//! `simulation` runs the real engine against a model API server with faults, `scenarios` runs it through short tests
//! that are data, `e2e` runs the host on a real control plane, `local` runs the commands that need none, `outcomes`
//! compares the rules of the SDK's native tests with the host's, `tidy` checks the repository.
#![allow(clippy::unwrap_used, reason = "tests")]

mod checkout;
mod e2e;
mod local;
mod outcomes;
mod scenarios;
mod simulation;
mod tidy;
