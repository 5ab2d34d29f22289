//! What both rounds of the local cluster share: how much is asked of it, and what is measured. It must not know how it is served.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sample;

/// How many Pods the cluster gets.
pub(super) const PODS: usize = 20_000;
/// Where they are.
pub(super) const PATH: &str = "/api/v1/namespaces/default/pods";
/// How many objects clients ask for at a time.
pub(super) const PAGE: usize = 500;

/// What one round measured of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) elapsed: Duration,
    /// How many were made, listed or seen.
    pub(super) count: usize,
    /// How many bytes the answers had together.
    pub(super) bytes: usize,
}

/// Operations by name, in the order of a round.
pub(super) type Round = Vec<(&'static str, Sample)>;

impl Sample {
    /// What took the time since then.
    pub(super) fn since(began: Instant, count: usize, bytes: usize) -> Self {
        Self { elapsed: began.elapsed(), count, bytes }
    }
}

/// A Pod as a client creates it, with 1.1 KB of JSON.
pub(super) fn pod(number: usize) -> Value {
    let mut pod = sample::template();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = format!("pod-{number:05}").into();
    pod
}
