//! MyDaemonSet keeps one Pod on each Node. An object, the Nodes and the Pods that it owns go in; the desired Pods and a
//! status come out. Each Pod names its Node, so the scheduler has nothing to do.

use std::collections::BTreeMap;

use mortise_sdk::MAX_CHILDREN;
use mortise_sdk::prelude::*;

mod admission;
mod taints;
#[cfg(test)]
mod tests;

use admission::{check, complete};
use taints::{Taint, Toleration, daemon_tolerations, is_tolerated};

/// Keeps one Pod on every Node.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "apps.zhongmingmao.io", version = "v1beta1", kind = "MyDaemonSet", status = MyDaemonSetStatus,
    column(name = "Image", path = ".spec.image"),
    column(name = "Available", type = "integer", path = ".status.availableReplicas"),
    column(name = "Ready", path = ".status.conditions[?(@.type=='Ready')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Ready')].message", wide)
)]
#[serde(rename_all = "camelCase")]
pub struct MyDaemonSetSpec {
    /// The image of the one container, `app`. It is required; without it, no Pods are created.
    #[serde(default)]
    pub image: String,
    /// When the image is pulled; Kubernetes' own default unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Only Nodes with these labels; all of them unless given.
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of the Pods, besides those of a DaemonSet's Pods.
    #[serde(default)]
    pub tolerations: Vec<Toleration>,
}

/// When an image is pulled.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug)]
pub enum ImagePullPolicy {
    /// At every start of the container.
    Always,
    /// When the Node does not have it.
    IfNotPresent,
    /// Never: the Node has to have it.
    Never,
}

/// The last observed state of a MyDaemonSet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct MyDaemonSetStatus {
    /// How many Pods are ready.
    pub available_replicas: usize,
}

/// The fields of a Node that are read.
#[derive(Projection)]
#[projection("v1/Node")]
struct Node<'a> {
    #[field("metadata.name")]
    name: &'a str,
    #[field("spec.taints")]
    taints: Option<Vec<Taint<'a>>>,
}

/// The fields of a Pod that are read.
#[derive(Projection)]
#[projection("v1/Pod")]
struct Pod<'a> {
    #[field(child_key)]
    node: Option<&'a str>,
    #[field("metadata.deletionTimestamp")]
    deleted_at: Option<&'a str>,
    #[field("status.phase")]
    phase: Option<&'a str>,
    #[field("status.conditions")]
    conditions: Option<Vec<PodCondition<'a>>>,
}

#[derive(Deserialize)]
struct PodCondition<'a> {
    r#type: &'a str,
    status: &'a str,
}

impl Pod<'_> {
    /// It has ended and is not being deleted.
    fn is_finished(&self) -> bool {
        self.deleted_at.is_none() && matches!(self.phase, Some("Failed" | "Succeeded"))
    }

    fn is_ready(&self) -> bool {
        let ready = |condition: &PodCondition| condition.r#type == "Ready" && condition.status == "True";
        self.deleted_at.is_none() && self.conditions.iter().flatten().any(ready)
    }
}

/// A desired Pod. It borrows what all Pods of a set share.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WantedPod<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: WantedMetadata,
    spec: WantedSpec<'a>,
}

#[derive(Serialize)]
struct WantedMetadata {
    name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WantedSpec<'a> {
    node_name: &'a str,
    containers: [WantedContainer<'a>; 1],
    tolerations: &'a [Toleration],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WantedContainer<'a> {
    name: &'a str,
    image: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_pull_policy: Option<ImagePullPolicy>,
}

#[reconciler(
    owns("v1/Pod", update = "recreate"),
    reads("v1/Node"),
    admission(mutate = complete, validate = check)
)]
fn reconcile(set: &MyDaemonSet, cx: &Context) -> Result<Outcome<MyDaemonSetStatus>, Failure> {
    let pods: Vec<Pod> = cx.owned()?;
    let available = pods.iter().filter(|pod| pod.is_ready()).count();
    let status = MyDaemonSetStatus { available_replicas: available };
    let unchanged = |reason: &str, message: String| Ok(Outcome::new().status(&status).ready(false, reason, message));
    if set.spec.image.trim().is_empty() {
        return unchanged(
            "ImageMissing",
            "spec.image is empty; no Pod is created or changed until it is set".to_owned(),
        );
    }
    let selector = match label_selector(&set.spec.node_selector) {
        Ok(selector) => selector,
        Err(why) => return unchanged("InvalidNodeSelector", format!("spec.nodeSelector: {why}; no Pod is changed")),
    };
    let tolerations = [daemon_tolerations(), set.spec.tolerations.clone()].concat();
    let mut nodes: Vec<Node> = cx.list(&Query::new().selector(&selector))?;
    nodes.retain(|node| is_tolerated(node.taints.as_deref().unwrap_or_default(), &tolerations));
    let wanted = nodes.len();
    if wanted > MAX_CHILDREN {
        let message = format!("{wanted} Nodes match, the most is {MAX_CHILDREN}; no Pod is changed");
        return unchanged("TooManyNodes", message);
    }
    // An outcome without the key of a Pod that has ended makes the host delete it; the next outcome has the key again.
    let finished: Vec<&str> = pods.iter().filter(|pod| pod.is_finished()).filter_map(|pod| pod.node).collect();
    let children = nodes
        .iter()
        .filter(|node| !finished.contains(&node.name))
        .map(|node| Child::new(node.name, &pod(set, node.name, &tolerations)));
    let ready = available == wanted;
    let reason = if ready { "AllPodsReady" } else { "PodsNotReady" };
    let message = format!("{available} of {wanted} Nodes have a ready Pod");
    Ok(Outcome::children(children).status(&status).ready(ready, reason, message))
}

/// The Pod of a Node. Its name follows from the set and the Node, so a stale view cannot lead to a second Pod: the API
/// server has one object of a name.
fn pod<'a>(set: &'a MyDaemonSet, node: &'a str, tolerations: &'a [Toleration]) -> WantedPod<'a> {
    let MyDaemonSetSpec { image, image_pull_policy, .. } = &set.spec;
    WantedPod {
        api_version: "v1",
        kind: "Pod",
        metadata: WantedMetadata { name: child_name(node, &[&set.metadata.uid, node]) },
        spec: WantedSpec {
            node_name: node,
            containers: [WantedContainer { name: "app", image, image_pull_policy: *image_pull_policy }],
            tolerations,
        },
    }
}

/// The labels as a label selector.
fn label_selector(labels: &BTreeMap<String, String>) -> Result<String, String> {
    let is_of = |text: &str, more: &[char]| text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(&c));
    let mut terms = Vec::new();
    for (key, value) in labels {
        // An invalid label could change the meaning of the selector.
        if key.is_empty() || !is_of(key, &['-', '_', '.', '/']) || !is_of(value, &['-', '_', '.']) {
            return Err(format!("{key:?}: {value:?} is no label"));
        }
        terms.push(format!("{key}={value}"));
    }
    Ok(terms.join(","))
}
