//! What the API server fills in besides what the published schemas say. Input: an object of a built-in kind. Output: the same
//! object, completed. It must not know requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::field::{is_empty, text};
use super::fill::{Default, Fill, at_mut, fill, object, set, visit};
use super::pod_default;
use crate::resource::Resource;
use crate::strategy::kind::pod_spec;

const DEPLOYMENT: &[Default] = &[
    ("spec.replicas", Fill::Number(1)),
    ("spec.strategy", Fill::Object),
    ("spec.strategy.type", Fill::Text("RollingUpdate")),
    ("spec.strategy(type=RollingUpdate).rollingUpdate", Fill::Object),
    ("spec.strategy(type=RollingUpdate).rollingUpdate.maxUnavailable", Fill::Text("25%")),
    ("spec.strategy(type=RollingUpdate).rollingUpdate.maxSurge", Fill::Text("25%")),
    ("spec.revisionHistoryLimit", Fill::Number(10)),
    ("spec.progressDeadlineSeconds", Fill::Number(600)),
];
const REPLICA_SET: &[Default] = &[("spec.replicas", Fill::Number(1))];
const DAEMON_SET: &[Default] = &[
    ("spec.updateStrategy", Fill::Object),
    ("spec.updateStrategy.type", Fill::Text("RollingUpdate")),
    ("spec.updateStrategy(type=RollingUpdate).rollingUpdate", Fill::Object),
    ("spec.updateStrategy(type=RollingUpdate).rollingUpdate.maxUnavailable", Fill::Number(1)),
    ("spec.updateStrategy(type=RollingUpdate).rollingUpdate.maxSurge", Fill::Number(0)),
    ("spec.revisionHistoryLimit", Fill::Number(10)),
];
const STATEFUL_SET: &[Default] = &[
    ("spec.podManagementPolicy", Fill::Text("OrderedReady")),
    ("spec.updateStrategy", Fill::Object),
    ("spec.updateStrategy(!type).rollingUpdate", Fill::Object),
    ("spec.updateStrategy.type", Fill::Text("RollingUpdate")),
    ("spec.updateStrategy(type=RollingUpdate).rollingUpdate.partition", Fill::Number(0)),
    ("spec.persistentVolumeClaimRetentionPolicy", Fill::Object),
    ("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", Fill::Text("Retain")),
    ("spec.persistentVolumeClaimRetentionPolicy.whenScaled", Fill::Text("Retain")),
    ("spec.replicas", Fill::Number(1)),
    ("spec.revisionHistoryLimit", Fill::Number(10)),
    ("spec.volumeClaimTemplates[].apiVersion", Fill::Text("v1")),
    ("spec.volumeClaimTemplates[].kind", Fill::Text("PersistentVolumeClaim")),
    ("spec.volumeClaimTemplates[].spec.volumeMode", Fill::Text("Filesystem")),
    ("spec.volumeClaimTemplates[].status", Fill::Object),
    ("spec.volumeClaimTemplates[].status.phase", Fill::Text("Pending")),
];
const JOB: &[Default] = &[
    ("spec(!parallelism).completions", Fill::Number(1)),
    ("spec.parallelism", Fill::Number(1)),
    ("spec(!backoffLimitPerIndex).backoffLimit", Fill::Number(6)),
    ("spec.backoffLimit", Fill::Number(2_147_483_647)),
    ("spec.completionMode", Fill::Text("NonIndexed")),
    ("spec.suspend", Fill::Flag(false)),
    ("spec(!podFailurePolicy).podReplacementPolicy", Fill::Text("TerminatingOrFailed")),
    ("spec.podReplacementPolicy", Fill::Text("Failed")),
    ("spec.podFailurePolicy.rules[].onPodConditions[].status", Fill::Text("True")),
    ("spec.manualSelector", Fill::Flag(false)),
];
const CRON_JOB: &[Default] = &[
    ("spec.concurrencyPolicy", Fill::Text("Allow")),
    ("spec.suspend", Fill::Flag(false)),
    ("spec.successfulJobsHistoryLimit", Fill::Number(3)),
    ("spec.failedJobsHistoryLimit", Fill::Number(1)),
];
const SERVICE: &[Default] = &[
    ("spec", Fill::Object),
    ("spec.sessionAffinity", Fill::Text("None")),
    ("spec(sessionAffinity=ClientIP).sessionAffinityConfig", Fill::Object),
    ("spec(sessionAffinity=ClientIP).sessionAffinityConfig.clientIP", Fill::Object),
    ("spec(sessionAffinity=ClientIP).sessionAffinityConfig.clientIP.timeoutSeconds", Fill::Number(10800)),
    ("spec.type", Fill::Text("ClusterIP")),
    ("spec.ports[].protocol", Fill::Text("TCP")),
    ("spec(type=NodePort).externalTrafficPolicy", Fill::Text("Cluster")),
    ("spec(type=LoadBalancer).externalTrafficPolicy", Fill::Text("Cluster")),
    ("spec(type=ClusterIP).internalTrafficPolicy", Fill::Text("Cluster")),
    ("spec(type=NodePort).internalTrafficPolicy", Fill::Text("Cluster")),
    ("spec(type=LoadBalancer).internalTrafficPolicy", Fill::Text("Cluster")),
    ("spec(type=LoadBalancer).allocateLoadBalancerNodePorts", Fill::Flag(true)),
    ("status.loadBalancer.ingress[].ipMode", Fill::Text("VIP")),
];
const CLAIM: &[Default] = &[("spec.volumeMode", Fill::Text("Filesystem")), ("status.phase", Fill::Text("Pending"))];
const VOLUME: &[Default] = &[
    ("spec.persistentVolumeReclaimPolicy", Fill::Text("Retain")),
    ("spec.volumeMode", Fill::Text("Filesystem")),
    ("spec.hostPath.type", Fill::Text("")),
    ("status.phase", Fill::Text("Pending")),
];
const SCALER: &[Default] = &[("spec.minReplicas", Fill::Number(1))];
const WEBHOOKS: &[Default] = &[
    ("webhooks[].failurePolicy", Fill::Text("Fail")),
    ("webhooks[].matchPolicy", Fill::Text("Equivalent")),
    ("webhooks[].namespaceSelector", Fill::Object),
    ("webhooks[].objectSelector", Fill::Object),
    ("webhooks[].timeoutSeconds", Fill::Number(10)),
    ("webhooks[].rules[].scope", Fill::Text("*")),
    ("webhooks[].clientConfig.service.port", Fill::Number(443)),
];
const MUTATING_WEBHOOKS: &[Default] = &[("webhooks[].reinvocationPolicy", Fill::Text("Never"))];
const ADMISSION_POLICY: &[Default] = &[
    ("spec.failurePolicy", Fill::Text("Fail")),
    ("spec.matchConstraints.matchPolicy", Fill::Text("Equivalent")),
    ("spec.matchConstraints.namespaceSelector", Fill::Object),
    ("spec.matchConstraints.objectSelector", Fill::Object),
    ("spec.matchConstraints.resourceRules[].scope", Fill::Text("*")),
    ("spec.matchConstraints.excludeResourceRules[].scope", Fill::Text("*")),
];
const POLICY_BINDING: &[Default] = &[
    ("spec.matchResources.matchPolicy", Fill::Text("Equivalent")),
    ("spec.matchResources.namespaceSelector", Fill::Object),
    ("spec.matchResources.objectSelector", Fill::Object),
    ("spec.matchResources.resourceRules[].scope", Fill::Text("*")),
    ("spec.matchResources.excludeResourceRules[].scope", Fill::Text("*")),
];
const SUBJECTS: &[Default] = &[
    ("roleRef.apiGroup", Fill::Text("rbac.authorization.k8s.io")),
    ("subjects[](kind=User).apiGroup", Fill::Text("rbac.authorization.k8s.io")),
    ("subjects[](kind=Group).apiGroup", Fill::Text("rbac.authorization.k8s.io")),
];
const CSI: &[Default] = &[
    ("spec.attachRequired", Fill::Flag(true)),
    ("spec.podInfoOnMount", Fill::Flag(false)),
    ("spec.storageCapacity", Fill::Flag(false)),
    ("spec.fsGroupPolicy", Fill::Text("ReadWriteOnceWithFSType")),
    ("spec.volumeLifecycleModes", Fill::List("Persistent")),
    ("spec.requiresRepublish", Fill::Flag(false)),
    ("spec.seLinuxMount", Fill::Flag(false)),
];
const PRIORITY_LEVEL: &[Default] = &[
    ("spec.exempt.nominalConcurrencyShares", Fill::Number(0)),
    ("spec.exempt.lendablePercent", Fill::Number(0)),
    ("spec.limited.nominalConcurrencyShares", Fill::Number(30)),
    ("spec.limited.lendablePercent", Fill::Number(0)),
    ("spec.limited.limitResponse.queuing.handSize", Fill::NonZero(8)),
    ("spec.limited.limitResponse.queuing.queues", Fill::NonZero(64)),
    ("spec.limited.limitResponse.queuing.queueLengthLimit", Fill::NonZero(50)),
];

/// The tables by group and kind.
const ALL: &[(&str, &str, &[Default])] = &[
    ("apps", "Deployment", DEPLOYMENT),
    ("apps", "ReplicaSet", REPLICA_SET),
    ("apps", "DaemonSet", DAEMON_SET),
    ("apps", "StatefulSet", STATEFUL_SET),
    ("batch", "Job", JOB),
    ("batch", "CronJob", CRON_JOB),
    ("", "ReplicationController", REPLICA_SET),
    ("", "Service", SERVICE),
    ("", "PersistentVolumeClaim", CLAIM),
    ("", "PersistentVolume", VOLUME),
    ("", "Secret", &[("type", Fill::Text("Opaque"))]),
    ("", "Endpoints", &[("subsets[].ports[].protocol", Fill::Text("TCP"))]),
    ("discovery.k8s.io", "EndpointSlice", &[("ports[].name", Fill::Text("")), ("ports[].protocol", Fill::Text("TCP"))]),
    ("autoscaling", "HorizontalPodAutoscaler", SCALER),
    ("scheduling.k8s.io", "PriorityClass", &[("preemptionPolicy", Fill::Text("PreemptLowerPriority"))]),
    ("networking.k8s.io", "IngressClass", &[("spec.parameters.scope", Fill::Text("Cluster"))]),
    ("rbac.authorization.k8s.io", "RoleBinding", SUBJECTS),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", SUBJECTS),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", WEBHOOKS),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", WEBHOOKS),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", MUTATING_WEBHOOKS),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", ADMISSION_POLICY),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", ADMISSION_POLICY),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", POLICY_BINDING),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", POLICY_BINDING),
    ("storage.k8s.io", "CSIDriver", CSI),
    (
        "storage.k8s.io",
        "StorageClass",
        &[("reclaimPolicy", Fill::Text("Delete")), ("volumeBindingMode", Fill::Text("Immediate"))],
    ),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", &[("spec.matchingPrecedence", Fill::NonZero(1000))]),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", PRIORITY_LEVEL),
];

/// How much of an object is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// All but the spec.
    BesidesSpec,
}

impl Extent {
    fn has(self, path: &str) -> bool {
        self == Self::Whole || !path.starts_with("spec")
    }
}

/// Fills in the defaults of a built-in kind.
pub(super) fn default(resource: &Resource, value: &mut Value, extent: Extent) {
    let (group, kind) = (&*resource.group, &*resource.kind);
    // A template is a part of the object, not a reference: it is there even if a client leaves it out.
    let spec = pod_spec(group, kind).filter(|path| extent.has(path));
    if let Some(spec) = spec.filter(|_| kind != "ReplicationController") {
        object(value, spec);
    }
    for (_, _, table) in ALL.iter().filter(|(of, name, _)| *of == group && *name == kind) {
        fill(value, table.iter().filter(|(path, _)| extent.has(path)));
    }
    if kind == "CronJob"
        && let Some(template) = at_mut(value, "spec.jobTemplate")
    {
        // What only a Job of its own has is not filled in.
        visit(template, "spec.podFailurePolicy.rules[].onPodConditions[].status", &mut |fields, name| {
            fields.entry(name).or_insert_with(|| "True".into());
        });
    }
    match (group, kind) {
        ("", "Secret") => secret(value),
        ("", "Service") => target_ports(value),
        ("", "Namespace") => namespace(value),
        ("", "Node") => node(value),
        ("", "LimitRange") => limit_range(value),
        ("", "ReplicationController") => replication_controller(value),
        ("batch", "Job") => labels_of_template(value),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(value),
        ("autoscaling", "HorizontalPodAutoscaler") if &*resource.version == "v2" => scaler(value),
        _ => {}
    }
    if let Some(spec) = spec.and_then(|path| at_mut(value, path)) {
        pod_default::spec(spec, kind == "Pod");
    }
}

/// `stringData` is written, and read as `data`.
fn secret(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    let Some(Value::Object(plain)) = fields.remove("stringData") else { return };
    if plain.is_empty() {
        return;
    }
    if let Some(data) = object(value, "data") {
        for (key, value) in plain {
            data.insert(key, STANDARD.encode(text(&value)).into());
        }
    }
}

fn target_ports(value: &mut Value) {
    let ports = at_mut(value, "spec.ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        let target = &port["targetPort"];
        let unset = target.is_null() || target == 0 || target == "";
        if let (true, Some(fields)) = (unset, port.as_object_mut()) {
            let number = fields.get("port").cloned().unwrap_or_else(|| 0.into());
            fields.insert("targetPort".to_owned(), number);
        }
    }
    let affinity = value["spec"]["sessionAffinity"] == "None";
    if affinity {
        set(value, "spec.sessionAffinityConfig", None);
    }
}

fn namespace(value: &mut Value) {
    let name = value["metadata"]["name"].clone();
    if !is_empty(&name)
        && let Some(labels) = object(value, "metadata.labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    }
}

fn node(value: &mut Value) {
    let status = &value["status"];
    if status["allocatable"].is_null() && !is_empty(&status["capacity"]) {
        let capacity = status["capacity"].clone();
        set(value, "status.allocatable", Some(capacity));
    }
}

fn limit_range(value: &mut Value) {
    visit(value, "spec.limits", &mut |fields, name| {
        let limits = fields.get_mut(name).and_then(Value::as_array_mut);
        for limit in limits.into_iter().flatten().filter(|limit| limit["type"] == "Container") {
            for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
                let from = limit[from].as_object().cloned().unwrap_or_default();
                if from.is_empty() {
                    continue;
                }
                let Some(to) = object(limit, to) else { continue };
                for (key, amount) in from {
                    to.entry(key).or_insert(amount);
                }
            }
        }
    });
}

fn replication_controller(value: &mut Value) {
    let labels = value["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() && is_empty(&value["spec"]["selector"]) {
        set(value, "spec.selector", Some(labels));
    }
    labels_of_template(value);
}

/// An object without labels has those of its template.
pub(super) fn labels_of_template(value: &mut Value) {
    let labels = &value["spec"]["template"]["metadata"]["labels"];
    if !is_empty(labels) && is_empty(&value["metadata"]["labels"]) {
        let labels = labels.clone();
        set(value, "metadata.labels", Some(labels));
    }
}

fn network_policy(value: &mut Value) {
    for path in ["spec.ingress[].ports[].protocol", "spec.egress[].ports[].protocol"] {
        fill(value, &[(path, Fill::Text("TCP"))]);
    }
    let spec = &value["spec"];
    if is_empty(&spec["policyTypes"]) {
        let types = if is_empty(&spec["egress"]) { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
        set(value, "spec.policyTypes", Some(types));
    }
}

fn scaler(value: &mut Value) {
    if is_empty(&value["spec"]["metrics"]) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        set(value, "spec.metrics", Some(json!([metric])));
    }
    if !value["spec"]["behavior"].is_object() {
        return;
    }
    let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
    let up = json!({
        "stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [policy("Pods", 4), policy("Percent", 100)],
    });
    let down = json!({"selectPolicy": "Max", "policies": [policy("Percent", 100)]});
    for (name, rules) in [("scaleUp", up), ("scaleDown", down)] {
        let Some(given) = object(value, &format!("spec.behavior.{name}")) else { continue };
        for (key, rule) in rules.as_object().into_iter().flatten() {
            if given.get(key).is_none_or(Value::is_null) {
                given.insert(key.clone(), rule.clone());
            }
        }
    }
}
