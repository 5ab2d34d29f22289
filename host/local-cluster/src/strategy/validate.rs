//! What must hold for objects of built-in kinds. Input: an object, and what it was before an update. Output: causes, in the API
//! server's words and order. It must not know the store.

mod access;
mod core;
mod network;
mod pod_spec;
mod workload;

use serde_json::Value;

use super::field::{Causes, Path, at, is_empty, items, text};
use super::pod;
use super::rule::{Check, Rule, check};
use crate::resource::Resource;

const STORAGE_CLASS: &[Rule] = &[
    ("provisioner", Check::Required("")),
    ("reclaimPolicy", Check::OneOf(&["Delete", "Retain"])),
    ("volumeBindingMode", Check::Required("")),
    ("volumeBindingMode", Check::OneOf(&["Immediate", "WaitForFirstConsumer"])),
];
const LEASE: &[Rule] = &[(
    "spec",
    Check::Code(|spec, path, causes| {
        for (name, least, words) in [
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        ] {
            if spec[name].as_i64().is_some_and(|number| number < least) {
                causes.invalid(&Path::Field(path, name), &spec[name], words);
            }
        }
    }),
)];
const PRIORITY_CLASS: &[Rule] =
    &[("", Check::Code(priority_class)), ("preemptionPolicy", Check::OneOf(&["PreemptLowerPriority", "Never"]))];

/// The rules by group and kind.
const ALL: &[(&str, &str, &[Rule])] = &[
    ("", "Pod", pod_spec::POD),
    ("", "PodTemplate", workload::POD_TEMPLATE),
    ("", "ReplicationController", workload::REPLICATION_CONTROLLER),
    ("", "Service", network::SERVICE),
    ("", "Endpoints", network::ENDPOINTS),
    ("", "ConfigMap", core::CONFIG_MAP),
    ("", "Secret", core::SECRET),
    ("", "PersistentVolumeClaim", core::CLAIM),
    ("", "PersistentVolume", core::VOLUME),
    ("", "ResourceQuota", core::QUOTA),
    ("", "LimitRange", core::LIMIT_RANGE),
    ("", "Node", core::NODE),
    ("", "Event", core::EVENT),
    ("apps", "Deployment", workload::DEPLOYMENT),
    ("apps", "ReplicaSet", workload::REPLICA_SET),
    ("apps", "DaemonSet", workload::DAEMON_SET),
    ("apps", "StatefulSet", workload::STATEFUL_SET),
    ("apps", "ControllerRevision", &[("revision", Check::AtLeast(0))]),
    ("batch", "Job", workload::JOB),
    ("batch", "CronJob", workload::CRON_JOB),
    ("policy", "PodDisruptionBudget", access::BUDGET),
    ("autoscaling", "HorizontalPodAutoscaler", access::SCALER),
    ("networking.k8s.io", "Ingress", network::INGRESS),
    ("networking.k8s.io", "NetworkPolicy", network::NETWORK_POLICY),
    ("rbac.authorization.k8s.io", "Role", access::ROLE),
    ("rbac.authorization.k8s.io", "ClusterRole", access::CLUSTER_ROLE),
    ("rbac.authorization.k8s.io", "RoleBinding", access::ROLE_BINDING),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", access::CLUSTER_ROLE_BINDING),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", access::WEBHOOKS),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", access::WEBHOOKS),
    ("storage.k8s.io", "StorageClass", STORAGE_CLASS),
    ("coordination.k8s.io", "Lease", LEASE),
    ("scheduling.k8s.io", "PriorityClass", PRIORITY_CLASS),
];

/// How a field that may not change is refused.
enum Fixed {
    /// With its new value: `field is immutable`, or other words.
    Invalid(&'static str),
    /// Without its value.
    Forbidden(&'static str),
}

/// Paths of fields that may not change.
type FixedFields = &'static [(&'static str, Fixed)];

const IMMUTABLE: Fixed = Fixed::Invalid("field is immutable");

/// Fields that may not change.
const FIXED: &[(&str, &str, FixedFields)] = &[
    ("apps", "Deployment", &[("spec.selector", IMMUTABLE)]),
    ("apps", "ReplicaSet", &[("spec.selector", IMMUTABLE)]),
    ("apps", "DaemonSet", &[("spec.selector", IMMUTABLE)]),
    ("apps", "ControllerRevision", &[("data", IMMUTABLE)]),
    (
        "batch",
        "Job",
        &[
            ("spec.selector", IMMUTABLE),
            ("spec.completionMode", IMMUTABLE),
            ("spec.podFailurePolicy", IMMUTABLE),
            ("spec.backoffLimitPerIndex", IMMUTABLE),
            ("spec.managedBy", IMMUTABLE),
            ("spec.successPolicy", IMMUTABLE),
        ],
    ),
    ("", "Secret", &[("type", IMMUTABLE)]),
    ("rbac.authorization.k8s.io", "RoleBinding", &[("roleRef", Fixed::Invalid("cannot change roleRef"))]),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", &[("roleRef", Fixed::Invalid("cannot change roleRef"))]),
    (
        "storage.k8s.io",
        "StorageClass",
        &[
            ("parameters", IMMUTABLE),
            ("provisioner", IMMUTABLE),
            ("reclaimPolicy", IMMUTABLE),
            ("volumeBindingMode", IMMUTABLE),
        ],
    ),
    (
        "scheduling.k8s.io",
        "PriorityClass",
        &[("value", Fixed::Forbidden("may not be changed in an update.")), ("preemptionPolicy", IMMUTABLE)],
    ),
    ("discovery.k8s.io", "EndpointSlice", &[("addressType", IMMUTABLE)]),
    ("networking.k8s.io", "IngressClass", &[("spec.controller", IMMUTABLE)]),
    ("node.k8s.io", "RuntimeClass", &[("handler", IMMUTABLE)]),
];

/// Numbers of a kind's status that are not greater than its `replicas`.
fn counted(kind: &str) -> &'static [&'static str] {
    match kind {
        "StatefulSet" => &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        "Deployment" => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        _ => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    }
}

/// Finds what is wrong with a new object.
pub(super) fn create(resource: &Resource, value: &Value, causes: &mut Causes) {
    let kind = (&*resource.group, &*resource.kind);
    content(kind, value, causes);
    match kind {
        ("", "Namespace") => core::namespace_finalizers(value, false, causes),
        ("", "Pod") if !is_empty(&value["spec"]["ephemeralContainers"]) => {
            causes.forbidden(&Path::Field(&Path::Root, "spec.ephemeralContainers"), "cannot be set on create");
        }
        ("batch", "CronJob") if text(&value["metadata"]["name"]).len() > 52 => {
            let name = &value["metadata"]["name"];
            let words = "must be no more than 52 characters";
            causes.invalid(&Path::Field(&Path::Root, "metadata.name"), name, words);
        }
        _ => {}
    }
}

fn content((group, kind): (&str, &str), value: &Value, causes: &mut Causes) {
    let rules = ALL.iter().find(|(of, name, _)| *of == group && *name == kind);
    if let Some((_, _, rules)) = rules {
        check(value, &Path::Root, rules, causes);
    }
}

/// Finds what is wrong with an update.
pub(super) fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value, causes: &mut Causes) {
    let kind = (&*resource.group, &*resource.kind);
    match (subresource, kind) {
        ("ephemeralcontainers", _) => {
            content(kind, new, causes);
            pod::check_ephemeral(new, old, causes);
        }
        ("status", ("apps", _) | ("", "ReplicationController")) => counts(kind, &new["status"], causes),
        ("finalize", ("", "Namespace")) => core::namespace_finalizers(new, true, causes),
        ("status", ("", "Namespace")) => core::namespace_phase(new, causes),
        ("status", ("", "Service")) => {
            let address = !is_empty(&new["status"]["loadBalancer"]["ingress"]);
            if address && new["spec"]["type"] != "LoadBalancer" {
                let path = Path::Field(&Path::Root, "status.loadBalancer.ingress");
                causes.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
            }
        }
        ("status", ("", "Pod")) if new["status"]["qosClass"] != old["status"]["qosClass"] => {
            let path = Path::Field(&Path::Root, "status.qosClass");
            causes.invalid(&path, &new["status"]["qosClass"], "field is immutable");
        }
        ("" | "scale", _) => {
            before(kind, new, old, causes);
            // What a client did not touch was right when it came.
            if new["spec"] != old["spec"] || new.get("spec").is_none() {
                content(kind, new, causes);
            }
            fixed(kind, new, old, causes);
            match kind {
                ("", "Pod") => pod::check_update(new, old, causes),
                ("apps", "StatefulSet") => workload::stateful_set_update(new, old, causes),
                ("batch", "Job") => workload::job_update(new, old, causes),
                ("", "PersistentVolumeClaim") => core::claim_update(new, old, causes),
                ("", "Node") => core::node_update(new, old, causes),
                _ => {}
            }
        }
        _ => {}
    }
}

/// Changes that are refused before the rest is looked at.
fn before(kind: (&str, &str), new: &Value, old: &Value, causes: &mut Causes) {
    match kind {
        ("", "ConfigMap" | "Secret") => core::immutable(new, old, causes),
        ("", "Service") => network::addresses_update(new, old, causes),
        _ => {}
    }
}

fn fixed((group, kind): (&str, &str), new: &Value, old: &Value, causes: &mut Causes) {
    let fields = FIXED.iter().find(|(of, name, _)| *of == group && *name == kind);
    for (path, how) in fields.into_iter().flat_map(|(_, _, fields)| fields.iter()) {
        let (is, was) = (at(new, path), at(old, path));
        if is == was || is_empty(is) && is_empty(was) {
            continue;
        }
        let place = Path::Field(&Path::Root, path);
        match how {
            Fixed::Invalid(words) => causes.invalid(&place, is, words),
            Fixed::Forbidden(words) => causes.forbidden(&place, words),
        }
    }
}

/// A workload's status counts no less than nothing and no more than there is.
fn counts((_, kind): (&str, &str), status: &Value, causes: &mut Causes) {
    if kind == "DaemonSet" || !status.is_object() {
        return;
    }
    let path = Path::Field(&Path::Root, "status");
    let number = |name: &str| status[name].as_i64().unwrap_or(0);
    for name in counted(kind).iter().chain(&["replicas", "observedGeneration", "unavailableReplicas", "collisionCount"])
    {
        check(status, &path, &[(name, Check::AtLeast(0))], causes);
    }
    for name in counted(kind) {
        if number(name) > number("replicas") {
            let words = "cannot be greater than status.replicas";
            causes.invalid(&Path::Field(&path, name), &number(name).into(), words);
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        let words = match kind {
            "StatefulSet" => "cannot be greater than status.readyReplicas",
            _ => "cannot be greater than readyReplicas",
        };
        causes.invalid(&Path::Field(&path, "availableReplicas"), &status["availableReplicas"], words);
    }
}

/// What users' own classes come to at most.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

fn priority_class(value: &Value, _: &Path<'_>, causes: &mut Causes) {
    let (name, priority) = (text(&value["metadata"]["name"]), value["value"].as_i64().unwrap_or(0));
    let system = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
    match system.iter().find(|(known, _)| *known == name) {
        Some((_, wanted)) if priority == *wanted => {}
        _ if name.starts_with("system-") => {
            let words = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known \
                 system priority class"
            );
            causes.forbidden(&Path::Field(&Path::Root, "metadata.name"), &words);
        }
        _ if priority > HIGHEST_PRIORITY => {
            let words = format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}");
            causes.forbidden(&Path::Field(&Path::Root, "value"), &words);
        }
        _ => {}
    }
}
