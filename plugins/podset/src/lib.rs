//! PodSet keeps replicas of a Pod. An object and the Pods that it owns go in, the desired Pods and a status come out.
//! The host names, creates and deletes Pods and sets their owner references. An administrator's configuration says which
//! Pods it refuses.

use mortise_sdk::MAX_CHILDREN;
use mortise_sdk::prelude::*;

mod pod_security;
#[cfg(test)]
mod tests;

use pod_security::Config;

/// Keeps a number of Pods running.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "app.example.com", version = "v1alpha1", kind = "PodSet", status = PodSetStatus, short_name = "ps",
    scale(spec = ".spec.replicas", status = ".status.replicas"),
    column(name = "Desired", type = "integer", path = ".spec.replicas"),
    column(name = "Current", type = "integer", path = ".status.replicas"),
    column(name = "Ready", path = ".status.conditions[?(@.type=='Ready')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Ready')].message", wide)
)]
pub struct PodSetSpec {
    /// How many Pods there should be.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// The template of each Pod; one busybox container that sleeps unless given.
    #[serde(default)]
    pub template: Option<PodTemplate>,
    /// What the Pods are for. The field comes with the feature `next`, as in a later version of the kind.
    #[cfg(feature = "next")]
    #[serde(default)]
    pub purpose: Option<String>,
}

/// The last observed state of a PodSet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct PodSetStatus {
    /// How many Pods are pending or running and not being deleted.
    pub replicas: i32,
    /// Their names.
    pub pod_names: Vec<String>,
}

/// The fields of a Pod that are read.
#[derive(Projection)]
#[projection("v1/Pod")]
struct Pod<'a> {
    #[field(child_key)]
    key: Option<&'a str>,
    #[field("metadata.name")]
    name: &'a str,
    #[field("metadata.deletionTimestamp")]
    deleted_at: Option<&'a str>,
    #[field("status.phase")]
    phase: Option<&'a str>,
}

impl Pod<'_> {
    /// It has ended and is not being deleted.
    fn is_finished(&self) -> bool {
        self.deleted_at.is_none() && matches!(self.phase, Some("Failed" | "Succeeded"))
    }

    /// Running or about to run. A new Pod has no phase yet.
    fn is_active(&self) -> bool {
        self.deleted_at.is_none() && matches!(self.phase, None | Some("Pending" | "Running"))
    }
}

/// The Pod of a set without a template.
const SLEEPER: &str = concat!(
    r#"{"apiVersion":"v1","kind":"Pod","#,
    r#""spec":{"containers":[{"name":"busybox","image":"busybox","command":["sleep","3600"]}]}}"#
);
/// A part of the condition's message. It differs in the feature `next`, to show which build wrote it.
const ACTIVE: &str = if cfg!(feature = "next") { "up" } else { "pending or running" };

#[reconciler(owns("v1/Pod", update = "recreate", replace = "at-once"))]
fn reconcile(set: &PodSet, cx: &Context) -> Result<Outcome<PodSetStatus>, Failure> {
    let pods: Vec<Pod> = cx.owned()?;
    let pod_names: Vec<String> = pods.iter().filter(|pod| pod.is_active()).map(|pod| pod.name.to_owned()).collect();
    let (wanted, active) = (set.spec.replicas, pod_names.len() as i32);
    let status = PodSetStatus { replicas: active, pod_names };
    if !(0..=MAX_CHILDREN as i32).contains(&wanted) {
        let message = format!("spec.replicas is {wanted}, which is not within 0 and {MAX_CHILDREN}; no Pod is changed");
        return Ok(Outcome::new().status(&status).ready(false, "InvalidReplicas", message));
    }
    let pod = match &set.spec.template {
        Some(template) => Json::of_kind("v1", "Pod", template),
        None => Json::raw(SLEEPER),
    };
    // What exists stays, as with Pod Security admission. A set that wants no Pods has none to refuse.
    let config: Config = cx.config()?;
    let refusal = if wanted > 0 { config.refusal(&pod)? } else { None };
    if let Some(why) = refusal {
        return Ok(Outcome::new().status(&status).ready(false, "PodSecurity", format!("{why}; no Pod is changed")));
    }
    // An outcome without the key of a Pod that has ended makes the host delete it; the next outcome has the key again.
    let finished: Vec<&str> = pods.iter().filter(|pod| pod.is_finished()).filter_map(|pod| pod.key).collect();
    let keys = (0..wanted).map(|n| n.to_string()).filter(|key| !finished.contains(&key.as_str()));
    let children = keys.map(|key| Child::new(key, pod.clone()));
    let reason = if active == wanted { "AllPodsActive" } else { "PodsMissing" };
    let message = format!("{active} of {wanted} Pods are {ACTIVE}");
    Ok(Outcome::children(children).status(&status).ready(active == wanted, reason, message))
}
