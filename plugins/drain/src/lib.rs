//! NodeMaintenance, the draining of a node: an object goes in with the node, its Pods and their budgets; out come a patch of
//! the node, evictions and a status. Which evictions a budget allows is the API server's to say, and trying again the host's.

use mortise_sdk::prelude::*;

use budget::Budget;

mod budget;
#[cfg(test)]
mod tests;

/// Empties a node for as long as it exists.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
#[resource(
    group = "maintenance.mortise.dev", version = "v1alpha1", kind = "NodeMaintenance", status = NodeMaintenanceStatus,
    short_name = "nm", cluster,
    column(name = "Node", path = ".spec.nodeName"),
    column(name = "Cordoned", type = "boolean", path = ".status.cordoned"),
    column(name = "Pods", type = "integer", path = ".status.podsLeft"),
    column(name = "Drained", path = ".status.conditions[?(@.type=='Ready')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Ready')].message", wide),
    column(name = "Reason", path = ".spec.reason", wide)
)]
pub struct NodeMaintenanceSpec {
    /// Which node. Another node is another NodeMaintenance.
    #[schemars(
        length(min = 1),
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "it cannot be changed; create another NodeMaintenance"}])
    )]
    pub node_name: String,
    /// Why, for people.
    #[serde(default)]
    pub reason: Option<String>,
}

/// What was last observed of a NodeMaintenance.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct NodeMaintenanceStatus {
    /// Whether this NodeMaintenance has cordoned the node, so that it is this one that uncordons it.
    pub cordoned: bool,
    /// Pods that are on the node and are to go.
    pub pods_left: usize,
}

/// Who has cordoned a node. It is written in the same patch as the cordon itself, so that a crash cannot part the two; the
/// status tells it to people.
const CORDONED_BY: &str = "maintenance.mortise.dev/cordoned-by";

/// Evictions of one outcome, which takes 500 actions and no more; as Pods go, the next are asked for.
const EVICTIONS: usize = 400;

/// What matters about the node.
#[derive(Deserialize)]
struct Node {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
}

#[derive(Deserialize, Default)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

impl Resource for Node {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "Node";
}

impl Node {
    fn is_cordoned_by(&self, maintenance: &str) -> bool {
        self.metadata.annotations.get(CORDONED_BY).is_some_and(|by| by == maintenance)
    }
}

/// What matters about a Pod.
#[derive(Projection)]
#[projection("v1/Pod")]
struct Pod<'a> {
    #[field("metadata.namespace")]
    namespace: &'a str,
    #[field("metadata.name")]
    name: &'a str,
    #[field("metadata.labels")]
    labels: Option<Labels>,
    #[field("metadata.ownerReferences")]
    owners: Option<Vec<Owner>>,
    #[field("metadata.annotations[\"kubernetes.io/config.mirror\"]")]
    mirror: Option<&'a str>,
}

type Labels = std::collections::BTreeMap<String, String>;

#[derive(Deserialize)]
struct Owner {
    kind: String,
    #[serde(default)]
    controller: bool,
}

impl Pod<'_> {
    /// It would come back: a kubelet runs it from a file, or a DaemonSet of any group wants it on each node.
    fn stays(&self) -> bool {
        let owners = self.owners.iter().flatten();
        self.mirror.is_some() || owners.into_iter().any(|owner| owner.controller && owner.kind.ends_with("DaemonSet"))
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::of::<Pod>(Some(self.namespace), self.name)
    }
}

/// Another NodeMaintenance, which may be of the same node.
#[derive(Projection)]
#[projection("maintenance.mortise.dev/v1alpha1/NodeMaintenance")]
struct Other<'a> {
    #[field("metadata.name")]
    name: &'a str,
    #[field("metadata.deletionTimestamp")]
    deleted_at: Option<&'a str>,
}

#[reconciler(
    reads(Node, "v1/Pod", "policy/v1/PodDisruptionBudget"),
    writes("v1/Node", "patch"),
    writes("v1/Pod", "evict"),
    finalize
)]
fn reconcile(maintenance: &NodeMaintenance, cx: &Context) -> Result<Outcome, Failure> {
    let name = &maintenance.spec.node_name;
    let node: Option<Node> = cx.get(None, name)?;
    match node {
        _ if maintenance.metadata.is_being_deleted() => give_back(maintenance, node.as_ref(), cx),
        None => {
            let status = NodeMaintenanceStatus { cordoned: false, pods_left: 0 };
            Ok(Outcome::new().status(&status).ready(false, "NodeNotFound", format!("there is no node {name}")))
        }
        Some(node) => drain(maintenance, &node, cx),
    }
}

/// Cordons the node, then asks for its Pods to go.
fn drain(maintenance: &NodeMaintenance, node: &Node, cx: &Context) -> Result<Outcome, Failure> {
    let own = &maintenance.metadata.name;
    let is_ours = node.is_cordoned_by(own);
    let on_node = Query::<Pod>::new().field("spec.nodeName", &node.metadata.name);
    let pods: Vec<Pod> = cx.list(&on_node)?.into_iter().filter(|pod| !pod.stays()).collect();
    let status = NodeMaintenanceStatus { cordoned: is_ours || !node.spec.unschedulable, pods_left: pods.len() };
    let mut outcome = Outcome::new().status(&status);
    if !node.spec.unschedulable {
        // A node that somebody else has cordoned is left as it was found, also afterwards.
        outcome = outcome
            .action(cordon(node, Some(own)))
            .event(Event::normal("Cordoned", format!("node {} takes no new Pods", node.metadata.name)));
    }
    if pods.is_empty() {
        let message = format!("no Pod is left on {} but those that run on every node", node.metadata.name);
        return Ok(outcome.ready(true, "Drained", message));
    }
    outcome = pods.iter().take(EVICTIONS).fold(outcome, |outcome, pod| outcome.action(Action::evict(pod.key())));
    let left = format!("{} Pods are left on {}", pods.len(), node.metadata.name);
    let budgets: Vec<Budget> = cx.list(&Query::<Budget>::new())?;
    let in_the_way = |pod: &Pod| budgets.iter().find(|budget| budget.holds_back(pod.namespace, pod.labels.as_ref()));
    match pods.iter().find_map(|pod| Some((pod, in_the_way(pod)?))) {
        Some((pod, budget)) => {
            let (namespace, pod, budget) = (pod.namespace, pod.name, budget.name);
            let message = format!(
                "{left}; {namespace}/{pod} waits for the PodDisruptionBudget {namespace}/{budget}, which allows no disruption now"
            );
            Ok(outcome.ready(false, "WaitingForBudget", message))
        }
        None => Ok(outcome.ready(false, "Draining", left)),
    }
}

/// Leaves the node as it was found, or to another NodeMaintenance of the same node.
fn give_back(maintenance: &NodeMaintenance, node: Option<&Node>, cx: &Context) -> Result<Outcome, Failure> {
    let own = &maintenance.metadata.name;
    let Some(node) = node.filter(|node| node.is_cordoned_by(own)) else { return Ok(Outcome::new().finalized()) };
    let others: Vec<Other> = cx.list(&Query::<Other>::new().field("spec.nodeName", &node.metadata.name))?;
    let takes_over = |other: &&Other| other.name != own && other.deleted_at.is_none();
    let heir = others.iter().find(takes_over).map(|other| other.name);
    Ok(Outcome::new().action(cordon(node, heir)).finalized())
}

/// Cordons a node in somebody's name, or uncordons it in nobody's.
fn cordon(node: &Node, by: Option<&str>) -> Patch {
    let body = json!({
        "metadata": {"annotations": {CORDONED_BY: by}},
        "spec": {"unschedulable": by.map(|_| true)},
    });
    Patch::merge(ObjectKey::of::<Node>(None, &node.metadata.name), &body)
}
