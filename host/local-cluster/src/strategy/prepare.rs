//! What a write may not change, and what the API server sets in it: status, generation, what belongs to one kind. Input: an
//! object before it is checked. Output: the same object. It must not know managed fields and admission.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::default::labels_of_template;
use super::field::{is_empty, text};
use super::fill::{object, set};
use super::kind::{Counts, counts, status_keeps_metadata};
use super::pod;
use crate::context::Context;
use crate::resource::Resource;
use crate::time;

/// The annotation that shows a DaemonSet's old counter of templates.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The status that a new object of a kind has. It is what Go's zero value looks like.
fn first_status(resource: &Resource, now: Timestamp) -> Value {
    match (&*resource.group, &*resource.kind) {
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "PersistentVolumeClaim") => json!({"phase": "Pending"}),
        ("", "PersistentVolume") => json!({"phase": "Pending", "lastPhaseTransitionTime": time::seconds(now)}),
        ("", "Service") | ("networking.k8s.io", "Ingress") => json!({"loadBalancer": {}}),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => json!({"replicas": 0}),
        ("apps", "StatefulSet") => json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "DaemonSet") => json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
        }),
        ("policy", "PodDisruptionBudget") => {
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})
        }
        ("autoscaling", "HorizontalPodAutoscaler") if &*resource.version == "v1" => {
            json!({"currentReplicas": 0, "desiredReplicas": 0})
        }
        ("autoscaling", "HorizontalPodAutoscaler") => json!({"desiredReplicas": 0, "currentMetrics": null}),
        ("storage.k8s.io", "VolumeAttachment") => json!({"attached": false}),
        _ => json!({}),
    }
}

/// Sets what a new object of a built-in kind begins with.
pub(crate) fn create(resource: &Resource, value: &mut Value, context: &Context<'_>) {
    let (group, kind) = (&*resource.group, &*resource.kind);
    if counts(group, kind) != Counts::Nothing {
        set(value, "metadata.generation", Some(1.into()));
    }
    // A kubelet registers its Node with its status.
    if resource.has_status() && kind != "Node" {
        set(value, "status", Some(first_status(resource, context.now)));
    }
    match (group, kind) {
        ("", "Pod") => pod::first_status(value),
        ("", "Namespace") => finalizer(value),
        ("batch", "Job") => job_labels(value),
        ("apps", "DaemonSet") => template_generation(value, 1),
        ("certificates.k8s.io", "CertificateSigningRequest") => requester(value, context),
        _ => {}
    }
}

/// A request for a certificate says who made it.
fn requester(value: &mut Value, context: &Context<'_>) {
    let user = &context.user;
    let extra: serde_json::Map<String, Value> =
        user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
    for (name, given) in [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", extra.into()),
    ] {
        set(value, &format!("spec.{name}"), Some(given).filter(|given| !is_empty(given)));
    }
}

fn finalizer(value: &mut Value) {
    let Some(spec) = object(value, "spec") else { return };
    let list = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut().filter(|list| list.iter().all(|name| name != "kubernetes")) {
        list.push("kubernetes".into());
    }
}

/// A Job selects its Pods by its own UID, unless its owner says otherwise.
fn job_labels(value: &mut Value) {
    if value["spec"]["manualSelector"] != true {
        let (name, uid) = (value["metadata"]["name"].clone(), value["metadata"]["uid"].clone());
        if let Some(labels) = object(value, "spec.template.metadata.labels") {
            for (key, label) in [
                ("job-name", &name),
                ("batch.kubernetes.io/job-name", &name),
                ("controller-uid", &uid),
                ("batch.kubernetes.io/controller-uid", &uid),
            ] {
                labels.entry(key).or_insert_with(|| label.clone());
            }
        }
        if let Some(labels) = object(value, "spec.selector.matchLabels") {
            labels.entry("batch.kubernetes.io/controller-uid").or_insert(uid);
        }
    }
    labels_of_template(value);
}

fn template_generation(value: &mut Value, least: i64) {
    let found = text(&value["metadata"]["annotations"][TEMPLATE_GENERATION]).parse::<i64>().unwrap_or(0);
    if let Some(annotations) = object(value, "metadata.annotations") {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), found.max(least).to_string().into());
    }
}

/// Keeps what an update of a built-in kind may not change, and counts the generation.
pub(crate) fn update(resource: &Resource, subresource: &str, new: &mut Value, old: &Value, now: Timestamp) {
    match subresource {
        "status" => status(resource, new, old, now),
        "approval" => {
            let conditions = new["status"]["conditions"].clone();
            keep(new, old, &["spec", "status"]);
            set(new, "status.conditions", Some(conditions));
        }
        "ephemeralcontainers" => {
            let containers = new["spec"]["ephemeralContainers"].clone();
            keep(new, old, &["spec", "status"]);
            keep_metadata(new, old);
            set(new, "spec.ephemeralContainers", Some(containers).filter(|list| !is_empty(list)));
        }
        "resize" => pod::keep_all_but_resources(new, old),
        _ => {
            if resource.has_status() {
                keep(new, old, &["status"]);
            }
            whole(resource, subresource, new, old);
        }
    }
    if subresource == "ephemeralcontainers" || subresource == "resize" {
        keep_metadata(new, old);
    }
    // A Deployment's annotations count, but its controller writes them with the status.
    if subresource != "status" && changed(counts(&resource.group, &resource.kind), new, old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        set(new, "metadata.generation", Some((generation + 1).into()));
    }
}

fn whole(resource: &Resource, subresource: &str, new: &mut Value, old: &Value) {
    match (&*resource.group, &*resource.kind) {
        ("", "Namespace") if subresource != "finalize" => {
            let kept = old["spec"].get("finalizers").cloned();
            set(new, "spec.finalizers", kept);
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => keep(new, old, &["spec"]),
        ("apps", "DaemonSet") => {
            let kept = old["metadata"]["annotations"].get(TEMPLATE_GENERATION).cloned();
            if let (Some(annotations), Some(kept)) = (object(new, "metadata.annotations"), kept) {
                annotations.insert(TEMPLATE_GENERATION.to_owned(), kept);
            }
            let count = text(&old["metadata"]["annotations"][TEMPLATE_GENERATION]).parse::<i64>().unwrap_or(0);
            let differs = new["spec"]["template"] != old["spec"]["template"];
            template_generation(new, count + i64::from(differs));
        }
        ("batch", "Job") => labels_of_template(new),
        _ => {}
    }
}

/// An update of the status leaves the rest, and some of the metadata.
fn status(resource: &Resource, new: &mut Value, old: &Value, now: Timestamp) {
    let (group, kind) = (&*resource.group, &*resource.kind);
    let fields = old.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let others: Vec<&str> =
        fields.filter(|name| !["apiVersion", "kind", "metadata", "status"].contains(name)).collect();
    keep(new, old, &others);
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|name, _| old.get(name).is_some() || name == "status");
        fields.entry("status").or_insert_with(|| json!({}));
    }
    if status_keeps_metadata(group, kind) {
        keep_metadata(new, old);
    }
    match (group, kind) {
        ("apps", "Deployment") => set(new, "metadata.labels", old["metadata"].get("labels").cloned()),
        ("", "Pod") => {
            set(new, "metadata.ownerReferences", old["metadata"].get("ownerReferences").cloned());
            pod::keep_in_status(new, old);
        }
        ("", "PersistentVolume") => {
            let (was, is) = (&old["status"], &new["status"]);
            let time = &is["lastPhaseTransitionTime"];
            let at = if was["phase"] == is["phase"] {
                time.is_null().then(|| was["lastPhaseTransitionTime"].clone())
            } else {
                (time.is_null() || *time == was["lastPhaseTransitionTime"]).then(|| time::seconds(now).into())
            };
            if let Some(at) = at {
                set(new, "status.lastPhaseTransitionTime", Some(at));
            }
        }
        _ => {}
    }
}

/// Sets top-level fields to what they were.
fn keep(new: &mut Value, old: &Value, names: &[&str]) {
    for name in names {
        // An update that says the same, as most do, copies nothing.
        if new.get(name) != old.get(name) {
            set(new, name, old.get(name).cloned());
        }
    }
}

fn keep_metadata(new: &mut Value, old: &Value) {
    for name in ["labels", "annotations", "finalizers", "ownerReferences"] {
        set(new, &format!("metadata.{name}"), old["metadata"].get(name).cloned());
    }
}

fn changed(counts: Counts, new: &Value, old: &Value) -> bool {
    match counts {
        Counts::Nothing | Counts::Never => false,
        Counts::Field(name) => new[name] != old[name],
        Counts::SpecAndAnnotations => {
            let (is, was) = (&new["metadata"]["annotations"], &old["metadata"]["annotations"]);
            new["spec"] != old["spec"] || is != was && !(is_empty(is) && is_empty(was))
        }
        Counts::LabelsAndContent => {
            let content = |value: &Value| -> Vec<(String, Value)> {
                let fields = value.as_object().into_iter().flatten();
                let fields = fields.filter(|(name, _)| *name != "metadata");
                fields.map(|(name, value)| (name.clone(), value.clone())).collect()
            };
            new["metadata"]["labels"] != old["metadata"]["labels"] || content(new) != content(old)
        }
    }
}
