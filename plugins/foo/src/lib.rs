//! Foo, the Kubernetes sample-controller. A Foo and the Deployment that it owns go in; the desired Deployment, a status
//! and Events come out. The Deployment controller rolls the Pods.
#![allow(clippy::disallowed_names, reason = "the kind is named Foo")]

use mortise_sdk::prelude::*;

#[cfg(test)]
mod tests;

/// Keeps one Deployment of nginx.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "samplecontroller.k8s.io", version = "v1alpha1", kind = "Foo", status = FooStatus,
    annotation("api-approved.kubernetes.io", "unapproved, experimental-only; the sample-controller's own group"),
    column(name = "Deployment", path = ".spec.deploymentName"),
    column(name = "Desired", type = "integer", path = ".spec.replicas"),
    column(name = "Available", type = "integer", path = ".status.availableReplicas"),
    column(name = "Ready", path = ".status.conditions[?(@.type=='Ready')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Ready')].message", wide)
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// The name of the Deployment.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub deployment_name: String,
    /// How many Pods the Deployment has.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
}

fn one() -> i32 {
    1
}

/// The last observed state of a Foo.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// How many Pods of the Deployment are available.
    pub available_replicas: i32,
}

/// The fields of a Deployment that are read.
#[derive(Projection)]
#[projection("apps/v1/Deployment")]
struct Deployment<'a> {
    #[field("metadata.name")]
    name: &'a str,
    #[field("metadata.deletionTimestamp")]
    deleted_at: Option<&'a str>,
    #[field("spec.replicas")]
    replicas: Option<i32>,
    #[field("status.availableReplicas")]
    available_replicas: Option<i32>,
}

/// The longest value of a label; a Foo's name is one.
const MAX_LABEL_BYTES: usize = 63;

#[reconciler(owns(Deployment))]
fn reconcile(foo: &Foo, cx: &Context) -> Result<Outcome<FooStatus>, Failure> {
    let FooSpec { deployment_name, replicas } = &foo.spec;
    let owned: Vec<Deployment> = cx.owned()?;
    let ours = owned.iter().find(|deployment| deployment.name == deployment_name);
    let available = ours.and_then(|deployment| deployment.available_replicas).unwrap_or_default();
    let status = FooStatus { available_replicas: available };
    if let Some((reason, message)) = mistake(foo) {
        return Ok(Outcome::new().status(&status).ready(false, reason, message));
    }
    // A Foo that has its Deployment reads nothing beyond it.
    let namespace = foo.metadata.namespace.as_deref();
    if ours.is_none() && cx.get::<Deployment>(namespace, deployment_name)?.is_some() {
        // The sample-controller's message. A Deployment with an older name is kept until this name is free.
        let message = format!("Resource {deployment_name:?} already exists and is not managed by Foo");
        let event = Event::warning("ErrResourceExists", &message);
        return Ok(Outcome::new().status(&status).event(event).ready(false, "ErrResourceExists", message));
    }
    let outcome = Outcome::children([Child::new("deployment", deployment(foo))]).status(&status);
    let in_step = |deployment: &Deployment| deployment.deleted_at.is_none() && deployment.replicas == Some(*replicas);
    let outcome = match ours {
        Some(deployment) if in_step(deployment) => outcome.event(Event::normal("Synced", "Foo synced successfully")),
        _ => outcome,
    };
    let ready = available == *replicas;
    let reason = if ready { "DeploymentAvailable" } else { "DeploymentProgressing" };
    Ok(outcome.ready(ready, reason, format!("{available} of {replicas} replicas are available")))
}

/// Reason and message for a spec that gives no valid Deployment. The plugin's schema refuses most of these; another
/// definition of the kind, such as the sample-controller's own, may not.
fn mistake(foo: &Foo) -> Option<(&'static str, String)> {
    let (name, replicas) = (&foo.metadata.name, foo.spec.replicas);
    if foo.spec.deployment_name.is_empty() {
        return Some(("InvalidDeploymentName", "spec.deploymentName is empty; no Deployment is changed".to_owned()));
    }
    if !(1..=10).contains(&replicas) {
        let message = format!("spec.replicas is {replicas}, which is not within 1 and 10; no Deployment is changed");
        return Some(("InvalidReplicas", message));
    }
    if name.len() > MAX_LABEL_BYTES {
        let message = format!(
            "the name has {} letters, and as the label `controller` of the Deployment's Pods it can have {MAX_LABEL_BYTES}",
            name.len()
        );
        return Some(("NameTooLong", message));
    }
    None
}

fn deployment(foo: &Foo) -> Json {
    let labels = json!({"app": "nginx", "controller": foo.metadata.name});
    Json::new(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": foo.spec.deployment_name},
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    }))
}
