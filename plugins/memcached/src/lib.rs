//! Memcached keeps a Deployment of memcached. An object, its Deployment and the Deployment's Pods go in; the desired
//! Deployment, the names of the Pods and conditions come out. A deleted Memcached exists until its Pods are gone.

use mortise_sdk::prelude::*;

#[cfg(test)]
mod tests;

/// Keeps a number of memcached servers running.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "cache.example.com", version = "v1alpha1", kind = "Memcached", status = MemcachedStatus,
    plural = "memcacheds",
    scale(spec = ".spec.size", status = ".status.size"),
    column(name = "Size", type = "integer", path = ".spec.size"),
    column(name = "Available", path = ".status.conditions[?(@.type=='Available')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Available')].message", wide)
)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedSpec {
    /// How many servers there are.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub size: i32,
    /// The image of memcached.
    #[serde(default = "image")]
    #[schemars(length(min = 1))]
    pub image: String,
    /// The port on which memcached listens.
    #[serde(default = "port")]
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: i32,
}

fn one() -> i32 {
    1
}

fn image() -> String {
    "memcached:1.6-alpine".to_owned()
}

fn port() -> i32 {
    11211
}

/// The last observed state of a Memcached.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct MemcachedStatus {
    /// How many Pods there are.
    pub size: usize,
    /// Their names.
    pub nodes: Vec<String>,
}

#[derive(Projection)]
#[projection("apps/v1/Deployment")]
struct Deployment {
    #[field("metadata.generation")]
    generation: Option<i64>,
    #[field("status.observedGeneration")]
    observed: Option<i64>,
    #[field("status.updatedReplicas")]
    updated: Option<i32>,
    #[field("status.availableReplicas")]
    available: Option<i32>,
    #[field("status.conditions")]
    conditions: Option<Conditions>,
}

#[derive(Projection)]
#[projection("v1/Pod")]
struct Pod {
    #[field("metadata.name")]
    name: String,
}

#[reconciler(owns(Deployment), reads(Pod), finalize)]
fn reconcile(memcached: &Memcached, cx: &Context) -> Result<Outcome<MemcachedStatus>, Failure> {
    let labels = labels(memcached);
    // The Pods are children of the Deployment's ReplicaSet, so the labels find them.
    let pods = Query::<Pod>::new().namespace_of(&memcached.metadata).selector(labels.text()?);
    let nodes: Vec<String> = cx.list(&pods)?.into_iter().map(|pod| pod.name).collect();
    let size = nodes.len();
    let status = MemcachedStatus { size, nodes };
    if memcached.metadata.is_being_deleted() {
        return Ok(drain(memcached, &labels, &status));
    }
    let deployments = cx.children::<Deployment>()?;
    let (available, degraded) = observed(deployments.get("deployment"));
    let wanted = memcached.spec.size;
    let is_available = available == wanted && degraded.is_none();
    let reason = if is_available { "AllAvailable" } else { "Progressing" };
    let message = format!("{available} of {wanted} servers are available");
    let is_degraded = degraded.is_some();
    let why = degraded.unwrap_or_else(|| "the Deployment reports no error".to_owned());
    Ok(Outcome::children([deployment(memcached, &labels, wanted)])
        .status(&status)
        .ready(is_available, reason, &message)
        .condition(Condition::new("Available", is_available, reason, message))
        .condition(Condition::new("Degraded", is_degraded, if is_degraded { "Failing" } else { "AsExpected" }, why)))
}

/// The servers that are available, and why the Deployment makes no progress, if it says so.
fn observed(deployment: Option<&Deployment>) -> (i32, Option<String>) {
    let Some(deployment) = deployment else { return (0, None) };
    let conditions = deployment.conditions.clone().unwrap_or_default();
    let failure = conditions.iter().find(|condition| match condition.name.as_str() {
        "ReplicaFailure" => condition.status == true.into(),
        "Progressing" => condition.status == false.into(),
        _ => false,
    });
    // Until its controller has seen the newest generation, and while Pods are old, what is available says nothing.
    let (updated, available) = (deployment.updated.unwrap_or_default(), deployment.available.unwrap_or_default());
    let available = if deployment.observed >= deployment.generation { updated.min(available) } else { 0 };
    (available, failure.map(|condition| condition.message.clone()))
}

/// Scales the Deployment to nothing. When the last Pod is gone, the Memcached may be deleted.
fn drain(memcached: &Memcached, labels: &LabelSelector, status: &MemcachedStatus) -> Outcome<MemcachedStatus> {
    if status.nodes.is_empty() {
        let message = format!("no server of {} is left", memcached.metadata.name);
        return Outcome::new().event(Event::normal("Drained", message)).finalized();
    }
    Outcome::children([deployment(memcached, labels, 0)]).status(status).ready(
        false,
        "Draining",
        format!("{} servers are left", status.nodes.len()),
    )
}

/// The labels of the Pods. A UID fits a label, which a long name does not.
fn labels(memcached: &Memcached) -> LabelSelector {
    let label = |name: &str, value: &str| (format!("app.kubernetes.io/{name}"), value.to_owned());
    let match_labels = [label("name", "memcached"), label("instance", &memcached.metadata.uid)].into();
    LabelSelector { match_labels, ..LabelSelector::default() }
}

fn deployment(memcached: &Memcached, labels: &LabelSelector, replicas: i32) -> Child {
    let MemcachedSpec { image, container_port, .. } = &memcached.spec;
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": memcached.metadata.name},
        "spec": {
            "replicas": replicas,
            "selector": labels,
            "template": {
                "metadata": {"labels": labels.match_labels},
                "spec": {"containers": [{
                    "name": "memcached",
                    "image": image,
                    "command": ["memcached", "--memory-limit=64", "-o", "modern", "-p", container_port.to_string()],
                    "ports": [{"name": "memcached", "containerPort": container_port}],
                }]},
            },
        },
    });
    Child::new("deployment", deployment)
}
