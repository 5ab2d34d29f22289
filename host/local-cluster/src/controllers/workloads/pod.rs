//! Pods as their controllers see them: active, ready, available; made from templates; which to delete first. It must not
//! know the controllers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::condition;
use super::field::{after, int, list, text};
use crate::store::Object;
use crate::time;

pub(super) fn phase(pod: &Object) -> &str {
    text(&pod.value["status"]["phase"])
}

/// Whether all its containers have ended.
pub(super) fn is_finished(pod: &Object) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(super) fn is_active(pod: &Object) -> bool {
    !is_finished(pod) && !pod.terminates()
}

pub(super) fn is_ready(pod: &Object) -> bool {
    condition::is_true(&pod.value["status"], "Ready")
}

/// When it is available, if it stays ready.
pub(super) fn available_at(pod: &Object, min_ready_seconds: i64) -> Option<Timestamp> {
    if !is_ready(pod) {
        return None;
    }
    match (min_ready_seconds, condition::since(&pod.value["status"], "Ready")) {
        (0, _) => Some(Timestamp::MIN),
        (seconds, since) => since.map(|since| after(since, seconds)),
    }
}

pub(super) fn is_available(pod: &Object, min_ready_seconds: i64, now: Timestamp) -> bool {
    available_at(pod, min_ready_seconds).is_some_and(|at| at <= now)
}

/// When the next of these Pods becomes available.
pub(super) fn next_available<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Object>>,
    min_ready_seconds: i64,
    now: Timestamp,
) -> Option<Timestamp> {
    pods.into_iter().filter_map(|pod| available_at(pod, min_ready_seconds)).filter(|at| *at > now).min()
}

/// A Pod of a template, without a name.
pub(super) fn from_template(template: &Value, owner: &Object, reference: Value) -> Value {
    let mut pod = json!({
        "metadata": {"generateName": format!("{}-", owner.name()), "ownerReferences": [reference]},
        "spec": template["spec"],
    });
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(key).filter(|value| !value.is_null()) {
            pod["metadata"][key] = value.clone();
        }
    }
    pod
}

/// Sorts active Pods: those to delete first are first. Pods that share a node with many of `related` go before others, and
/// ages count by their powers of two.
pub(super) fn rank(pods: &mut [Arc<Object>], related: &[Arc<Object>], now: Timestamp) {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        *on_node.entry(text(&pod.value["spec"]["nodeName"])).or_default() += 1;
    }
    let age = |since: Option<Timestamp>| {
        let age = since.map_or(0, |since| now.duration_since(since).as_nanos());
        u128::try_from(age).ok().and_then(u128::checked_ilog2).map_or(-1, i64::from)
    };
    pods.sort_by_cached_key(|pod| {
        let (spec, status) = (&pod.value["spec"], &pod.value["status"]);
        let node = text(&spec["nodeName"]);
        let phase = match phase(pod) {
            "Pending" => 0,
            "Unknown" => 1,
            _ => 2,
        };
        let cost = &pod.value["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"];
        let cost: i32 = text(cost).parse().unwrap_or(0);
        let restarts = list(&status["containerStatuses"]).iter().map(|container| int(&container["restartCount"]));
        (
            (!node.is_empty(), phase, is_ready(pod), cost),
            Reverse(on_node.get(node).copied().unwrap_or(0)),
            if is_ready(pod) { age(condition::since(status, "Ready")) } else { -1 },
            Reverse(restarts.max().unwrap_or(0)),
            age(time::read(&pod.value["metadata"]["creationTimestamp"])),
            pod.uid().to_owned(),
        )
    });
}
