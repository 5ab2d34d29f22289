//! Temporary, for development only.
#![allow(clippy::unwrap_used, reason = "tests")]
mod scenarios;
mod simulation;
mod tidy;
