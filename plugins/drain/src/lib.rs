//! NodeMaintenance drains a node. An object, its node, the node's Pods and their budgets go in; a patch of the node,
//! evictions and a status come out. The API server decides which evictions the budgets allow, and the host retries.

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
    /// The name of the node. It cannot be changed.
    #[schemars(
        length(min = 1),
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "it cannot be changed; create another NodeMaintenance"}])
    )]
    pub node_name: String,
    /// The reason, for people.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The last observed state of a NodeMaintenance.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct NodeMaintenanceStatus {
    /// Whether this NodeMaintenance cordoned the node, and so uncordons it.
    pub cordoned: bool,
    /// Pods on the node that have to be evicted.
    pub pods_left: usize,
}

/// The NodeMaintenance that cordoned a node. It is part of the patch that cordons, so that no crash can separate the
/// two.
const CORDONED_BY: &str = "maintenance.mortise.dev/cordoned-by";

/// Evictions of one outcome, which may have 500 actions. The next ones follow when Pods are gone.
const EVICTIONS: usize = 400;

/// The fields of the node that are read.
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

/// The fields of a Pod that are read.
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
    /// Eviction is useless: a kubelet runs it from a file, or a DaemonSet of any group would create it again.
    fn stays(&self) -> bool {
        let owners = self.owners.iter().flatten();
        self.mirror.is_some() || owners.into_iter().any(|owner| owner.controller && owner.kind.ends_with("DaemonSet"))
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::of::<Pod>(Some(self.namespace), self.name)
    }
}

/// Another NodeMaintenance of the same node.
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
fn reconcile(maintenance: &NodeMaintenance, cx: &Context) -> Result<Outcome<NodeMaintenanceStatus>, Failure> {
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

/// Cordons the node and evicts its Pods.
fn drain(maintenance: &NodeMaintenance, node: &Node, cx: &Context) -> Result<Outcome<NodeMaintenanceStatus>, Failure> {
    let own = &maintenance.metadata.name;
    let is_ours = node.is_cordoned_by(own);
    let on_node = Query::<Pod>::new().field("spec.nodeName", &node.metadata.name);
    let pods: Vec<Pod> = cx.list(&on_node)?.into_iter().filter(|pod| !pod.stays()).collect();
    let status = NodeMaintenanceStatus { cordoned: is_ours || !node.spec.unschedulable, pods_left: pods.len() };
    let mut outcome = Outcome::new().status(&status);
    if !node.spec.unschedulable {
        // A node that somebody else cordoned stays cordoned afterwards.
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
    let blocking = |pod: &Pod| budgets.iter().find(|budget| budget.blocks(pod.namespace, pod.labels.as_ref()));
    match pods.iter().find_map(|pod| Some((pod, blocking(pod)?))) {
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

/// Uncordons the node, or hands it over to another NodeMaintenance of the same node.
fn give_back(
    maintenance: &NodeMaintenance,
    node: Option<&Node>,
    cx: &Context,
) -> Result<Outcome<NodeMaintenanceStatus>, Failure> {
    let own = &maintenance.metadata.name;
    let Some(node) = node.filter(|node| node.is_cordoned_by(own)) else { return Ok(Outcome::new().finalized()) };
    let others: Vec<Other> = cx.list(&Query::<Other>::new().field("spec.nodeName", &node.metadata.name))?;
    let takes_over = |other: &&Other| other.name != own && other.deleted_at.is_none();
    let successor = others.iter().find(takes_over).map(|other| other.name);
    Ok(Outcome::new().action(cordon(node, successor)).finalized())
}

/// Cordons a node in the name of a NodeMaintenance; uncordons it without one.
fn cordon(node: &Node, by: Option<&str>) -> Patch {
    let body = json!({
        "metadata": {"annotations": {CORDONED_BY: by}},
        "spec": {"unschedulable": by.map(|_| true)},
    });
    Patch::merge(ObjectKey::of::<Node>(None, &node.metadata.name), &body)
}
