//! BlueGreenDeployment keeps one ReplicaSet in use, and beside it the next one until that is available. An object, its
//! ReplicaSets and its Service go in; ReplicaSets, the Service with the colour that it selects, and a status come out.
//!
//! The Service is the only memory: it selects the ReplicaSet in use by colour and by a hash of the template.

use mortise_sdk::prelude::*;
use mortise_sdk::IntOrString;

#[cfg(test)]
mod tests;

/// Replaces all Pods of an application at once, when the new ones are available.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "ctl.enisoc.com", version = "v1", kind = "BlueGreenDeployment", status = BlueGreenStatus,
    short_name = "bgd",
    scale(spec = ".spec.replicas", status = ".status.availableReplicas"),
    column(name = "Active", path = ".status.activeColor"),
    column(name = "Available", type = "integer", path = ".status.availableReplicas"),
    column(name = "Ready", path = ".status.conditions[?(@.type=='Ready')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Ready')].message", wide)
)]
#[serde(rename_all = "camelCase")]
pub struct BlueGreenDeploymentSpec {
    /// How many Pods a ReplicaSet has.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// How many seconds a Pod has to be ready before it counts as available.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: i32,
    /// The template of each Pod. A change of it brings a new ReplicaSet.
    pub template: PodTemplate,
    /// The port of the Service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The port of the Pods, by number or by name; that of the Service unless given.
    #[serde(default)]
    pub target_port: Option<IntOrString>,
}

fn one() -> i32 {
    1
}

/// The last observed state of a BlueGreenDeployment.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct BlueGreenStatus {
    /// The colour that the Service selects.
    pub active_color: String,
    /// How many Pods of it are available.
    pub available_replicas: i32,
    /// How many Pods of the other colour are available, while there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview_replicas: Option<i32>,
}

#[derive(Projection)]
#[projection("apps/v1/ReplicaSet")]
struct ReplicaSet {
    #[field("status.availableReplicas")]
    available: Option<i32>,
}

#[derive(Projection)]
#[projection("v1/Service")]
struct Service<'a> {
    #[field("spec.selector[\"ctl.enisoc.com/color\"]")]
    color: Option<&'a str>,
    #[field("spec.selector[\"ctl.enisoc.com/template\"]")]
    template: Option<&'a str>,
}

/// A ReplicaSet of a BlueGreenDeployment. Its key is made of both, so a template that changes during a rollout has a
/// ReplicaSet of its own, since a ReplicaSet does not replace its Pods.
#[derive(Clone, PartialEq)]
struct Revision {
    color: String,
    template: String,
}

impl Revision {
    fn key(&self) -> String {
        [&self.color, "-", &self.template].concat()
    }

    fn other_color(&self) -> &'static str {
        if self.color == "blue" { "green" } else { "blue" }
    }
}

#[reconciler(owns(ReplicaSet, Service))]
fn reconcile(bg: &BlueGreenDeployment, cx: &Context) -> Result<Outcome<BlueGreenStatus>, Failure> {
    let wanted = bg.spec.replicas;
    let template = stable_hash(&bg.spec.template);
    let sets = cx.children::<ReplicaSet>()?;
    let available = |of: &Revision| sets.get(of.key().as_str()).map(|set| set.available.unwrap_or_default());
    let services = cx.children::<Service>()?;
    let in_use = services.get("service").and_then(|service| {
        Some(Revision { color: service.color?.to_owned(), template: service.template?.to_owned() })
    });
    let active = in_use.unwrap_or_else(|| Revision { color: "blue".to_owned(), template: template.clone() });
    if active.template == template {
        let count = available(&active).unwrap_or_default();
        let status =
            BlueGreenStatus { active_color: active.color.clone(), available_replicas: count, preview_replicas: None };
        let message = format!("{count} of {wanted} Pods are available and in use");
        let is_ready = count >= wanted;
        return Ok(Outcome::children([replica_set(bg, &active)?, service(bg, &active)]).status(&status).ready(
            is_ready,
            if is_ready { "InUse" } else { "PodsNotAvailable" },
            message,
        ));
    }
    let next = Revision { color: active.other_color().to_owned(), template };
    let count = available(&next);
    let may_switch = count.is_some_and(|count| count >= wanted);
    let status = BlueGreenStatus {
        active_color: active.color.clone(),
        available_replicas: available(&active).unwrap_or_default(),
        preview_replicas: count,
    };
    let message = format!("{} of {wanted} Pods of {} are available", count.unwrap_or_default(), next.color);
    // The old ReplicaSet stays for one more call, until the Service is seen to select the new one.
    let old = Child::keep_of::<ReplicaSet>(active.key());
    let outcome =
        Outcome::children([replica_set(bg, &next)?, old, service(bg, if may_switch { &next } else { &active })])
            .status(&status)
            .ready(false, "RollingOut", message);
    Ok(if may_switch { outcome.event(Event::normal("Switched", format!("{} is in use", next.color))) } else { outcome })
}

/// The labels by which a ReplicaSet finds its Pods, and a Service those in use.
fn labels(bg: &BlueGreenDeployment, revision: &Revision) -> Value {
    json!({
        "ctl.enisoc.com/owner": bg.metadata.uid,
        "ctl.enisoc.com/color": revision.color,
        "ctl.enisoc.com/template": revision.template,
    })
}

fn replica_set(bg: &BlueGreenDeployment, revision: &Revision) -> Result<Child, Failure> {
    let labels = labels(bg, revision);
    let mut template: Value = bg.spec.template.0.parse()?;
    for (name, value) in labels.as_object().into_iter().flatten() {
        template["metadata"]["labels"][name] = value.clone();
    }
    let spec = json!({
        "replicas": bg.spec.replicas,
        "minReadySeconds": bg.spec.min_ready_seconds,
        "selector": {"matchLabels": labels},
        "template": template,
    });
    Ok(Child::new(revision.key(), Json::of_kind("apps/v1", "ReplicaSet", &json!({"spec": spec}))))
}

fn service(bg: &BlueGreenDeployment, revision: &Revision) -> Child {
    let mut port = json!({"port": bg.spec.port});
    if let Some(target) = &bg.spec.target_port {
        port["targetPort"] = json!(target);
    }
    let spec = json!({"selector": labels(bg, revision), "ports": [port]});
    let service = json!({"metadata": {"name": bg.metadata.name}, "spec": spec});
    Child::new("service", Json::of_kind("v1", "Service", &service))
}
