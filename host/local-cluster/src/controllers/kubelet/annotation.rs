//! The annotations that say how the containers and nodes of this cluster behave. Input: a Pod or a node. Output: what it says.
//! It must not know what follows from it.

use jiff::SignedDuration;

use crate::store::Object;

/// `"false"` on a Pod: its containers are not ready. On a node: its kubelet is gone.
pub(super) const READY: &str = "local-cluster.mortise.dev/ready";
/// The exit code of a Pod's containers; it makes them end.
pub(super) const EXIT_CODE: &str = "local-cluster.mortise.dev/exit-code";
/// How long a Pod's containers run before they end.
pub(super) const EXIT_AFTER: &str = "local-cluster.mortise.dev/exit-after";
/// How long a Pod's containers take to stop after SIGTERM.
pub(super) const STOPS_AFTER: &str = "local-cluster.mortise.dev/stops-after";

pub(super) fn annotation<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    object.value["metadata"]["annotations"].get(name)?.as_str()
}

pub(super) fn is_ready(object: &Object) -> bool {
    annotation(object, READY) != Some("false")
}

/// A duration such as `30s` or `1m30s`, in whole seconds, rounded up.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    let exact: SignedDuration = text.parse().ok()?;
    let more = i64::from(exact.subsec_nanos() > 0);
    Some(SignedDuration::from_secs(exact.as_secs().saturating_add(more).clamp(0, i64::from(i32::MAX))))
}
