//! Fuzz targets: functions that take any bytes, call what reads text of others, and panic when a property of the result does
//! not hold. `main.rs` gives them to libFuzzer, and `tests/corpus.rs` calls them with the inputs that git has.
//!
//! A target must not know time, files or randomness: an input that fails once fails again.

use serde_json::Value;

mod admission;
#[path = "../../../host/core/src/allocations.rs"]
mod allocations;
mod config_map;
mod conversion;
mod cost;
mod http_response;
mod manifest;
mod outcome;
mod tree_bytes;
mod watch;
mod worst;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name on the command line, and the folder of its corpus.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 7] = [
    Target { name: "config-map", run: config_map::run },
    Target { name: "outcome", run: outcome::run },
    Target { name: "admission", run: admission::run },
    Target { name: "conversion", run: conversion::run },
    Target { name: "watch", run: watch::run },
    Target { name: "manifest", run: manifest::run },
    Target { name: "http-response", run: http_response::run },
];

/// The target of a name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// What the host writes for people is bounded, and cannot move a terminal's cursor.
#[track_caller]
fn check_message(message: &str) {
    assert!(message.len() <= 16 << 10, "a message of {} bytes", message.len());
    let is_line_or_tab = |char| char == '\n' || char == '\t';
    assert!(
        !message.chars().any(|char| char.is_control() && !is_line_or_tab(char)),
        "control characters in {message:?}"
    );
}

/// A text that the host made must be JSON.
#[track_caller]
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// The lines of an input: what the target reads first, and what follows it.
fn two_lines(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &[]),
    }
}
