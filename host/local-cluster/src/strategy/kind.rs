//! What is different between built-in kinds, as tables. Input: a group and a kind. Output: facts. It must not know objects'
//! values.

use super::format::{self, Format};
use crate::resource::Resource;

/// What of an object its generation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// There is no generation.
    Nothing,
    /// Changes of this top-level field.
    Field(&'static str),
    /// Changes of the spec and of annotations.
    SpecAndAnnotations,
    /// Changes of labels and of all besides the metadata.
    LabelsAndContent,
    /// It begins and stays at one.
    Never,
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const DRA: &str = "resource.k8s.io";

const SPEC: &[(&str, &str)] = &[
    ("", "Pod"),
    ("", "ReplicationController"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("policy", "PodDisruptionBudget"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    (ADMISSION, "ValidatingAdmissionPolicy"),
    (ADMISSION, "MutatingAdmissionPolicy"),
    (ADMISSION, "ValidatingAdmissionPolicyBinding"),
    (ADMISSION, "MutatingAdmissionPolicyBinding"),
    (DRA, "ResourceSlice"),
    (DRA, "DeviceClass"),
    (DRA, "DeviceTaintRule"),
];

/// The warning of a deprecated kind.
pub(crate) fn deprecation(resource: &Resource) -> Option<&'static str> {
    match (&*resource.group, &*resource.kind) {
        ("", "Endpoints") => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}

/// What a kind's generation counts.
pub(crate) fn counts(group: &str, kind: &str) -> Counts {
    match (group, kind) {
        ("apps", "Deployment") => Counts::SpecAndAnnotations,
        ("discovery.k8s.io", "EndpointSlice") => Counts::LabelsAndContent,
        ("", "PodTemplate") => Counts::Field("template"),
        ("scheduling.k8s.io", "PriorityClass") => Counts::Never,
        (ADMISSION, "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => Counts::Field("webhooks"),
        of if SPEC.contains(&of) => Counts::Field("spec"),
        _ => Counts::Nothing,
    }
}

/// Where a kind has the spec of a Pod.
pub(crate) fn pod_spec(group: &str, kind: &str) -> Option<&'static str> {
    match (group, kind) {
        ("", "Pod") => Some("spec"),
        ("", "PodTemplate") => Some("template.spec"),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job") => Some("spec.template.spec"),
        ("batch", "CronJob") => Some("spec.jobTemplate.spec.template.spec"),
        _ => None,
    }
}

/// The form of a kind's names.
pub(crate) fn name_format(group: &str, kind: &str) -> Format {
    match (group, kind) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => format::label,
        (RBAC, _)
        | ("" | "events.k8s.io", "Event")
        | ("policy", "PodDisruptionBudget")
        | ("apiregistration.k8s.io", _) => format::path_segment,
        _ => format::subdomain,
    }
}

/// Whether `/status` of a kind leaves labels, annotations, finalizers and owners as they are.
pub(crate) fn status_keeps_metadata(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("apiextensions.k8s.io", "CustomResourceDefinition")
            | (ADMISSION, "ValidatingAdmissionPolicy")
            | ("networking.k8s.io", "ServiceCIDR")
            | ("storage.k8s.io", "VolumeAttachment")
            | (DRA, "ResourceClaim" | "DeviceTaintRule")
    )
}

/// Whether an update of a kind must say which version it was made from (`AllowUnconditionalUpdate` is false).
pub(crate) fn needs_version(group: &str, kind: &str) -> bool {
    match (group, kind) {
        (ADMISSION | "apiextensions.k8s.io" | "apiregistration.k8s.io" | "coordination.k8s.io" | "node.k8s.io", _) => {
            true
        }
        ("policy", "PodDisruptionBudget") => true,
        ("storage.k8s.io", kind) => matches!(kind, "CSIDriver" | "CSIStorageCapacity" | "CSINode" | "VolumeAttachment"),
        _ => false,
    }
}

/// Whether a deletion answers with the object that is gone (`ReturnDeletedObject`).
pub(crate) fn returns_deleted(group: &str, kind: &str) -> bool {
    match (group, kind) {
        ("", kind) => matches!(
            kind,
            "Pod"
                | "Service"
                | "Namespace"
                | "ServiceAccount"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "PodTemplate"
                | "ResourceQuota"
        ),
        ("storage.k8s.io", kind) => kind != "CSIStorageCapacity",
        (group, _) => group == DRA,
    }
}

/// Fields and where their values are.
type Fields = &'static [(&'static str, &'static str)];

/// Fields that objects can be selected by besides name and namespace: the field's path, and where its value is. A place is a
/// path; others after `|` are for objects that lack the first; a text after `=` is for those that have none.
const SELECTABLE: &[(&str, &str, Fields)] = &[
    (
        "",
        "Pod",
        &[
            ("spec.nodeName", "spec.nodeName"),
            ("spec.host", "spec.nodeName"),
            ("spec.restartPolicy", "spec.restartPolicy"),
            ("spec.schedulerName", "spec.schedulerName"),
            ("spec.serviceAccountName", "spec.serviceAccountName"),
            ("spec.hostNetwork", "spec.hostNetwork|=false"),
            ("status.phase", "status.phase"),
            ("status.podIP", "status.podIP"),
            ("status.podIPs", "status.podIP"),
            ("status.nominatedNodeName", "status.nominatedNodeName"),
        ],
    ),
    ("", "Event", EVENT),
    ("events.k8s.io", "Event", NEW_EVENT),
    ("", "Node", &[("spec.unschedulable", "spec.unschedulable|=false")]),
    ("", "Namespace", &[("status.phase", "status.phase")]),
    ("", "Secret", &[("type", "type")]),
    ("", "Service", &[("spec.clusterIP", "spec.clusterIP"), ("spec.type", "spec.type")]),
    ("", "ReplicationController", &[("status.replicas", "status.replicas|=0")]),
    ("batch", "Job", &[("status.successful", "status.succeeded|=0")]),
    ("certificates.k8s.io", "CertificateSigningRequest", &[("spec.signerName", "spec.signerName")]),
    (DRA, "ResourceSlice", &[("spec.nodeName", "spec.nodeName"), ("spec.driver", "spec.driver")]),
];
const EVENT: Fields = &[
    ("involvedObject.kind", "involvedObject.kind"),
    ("involvedObject.namespace", "involvedObject.namespace"),
    ("involvedObject.name", "involvedObject.name"),
    ("involvedObject.uid", "involvedObject.uid"),
    ("involvedObject.apiVersion", "involvedObject.apiVersion"),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion"),
    ("involvedObject.fieldPath", "involvedObject.fieldPath"),
    ("reason", "reason"),
    ("reportingComponent", "reportingComponent"),
    ("source", "source.component|reportingComponent"),
    ("type", "type"),
];
const NEW_EVENT: Fields = &[
    ("regarding.kind", "regarding.kind"),
    ("regarding.namespace", "regarding.namespace"),
    ("regarding.name", "regarding.name"),
    ("regarding.uid", "regarding.uid"),
    ("regarding.apiVersion", "regarding.apiVersion"),
    ("regarding.resourceVersion", "regarding.resourceVersion"),
    ("regarding.fieldPath", "regarding.fieldPath"),
    ("reason", "reason"),
    ("reportingController", "reportingController"),
    ("type", "type"),
];

/// Where the value is that objects of a kind are selected by, or why they cannot be.
pub(crate) fn selectable(group: &str, kind: &str, path: &str) -> Result<String, String> {
    let known = SELECTABLE.iter().find(|(of, name, _)| *of == group && *name == kind).map(|(_, _, fields)| *fields);
    let cluster_scoped = matches!((group, kind), ("", "Node" | "Namespace") | ("certificates.k8s.io", _) | (DRA, _));
    if path == "metadata.name" || path == "metadata.namespace" && !(known.is_some() && cluster_scoped) {
        return Ok(path.to_owned());
    }
    let Some(fields) = known else {
        return Err(format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""));
    };
    let found = fields.iter().find(|(name, _)| *name == path).map(|(_, place)| (*place).to_owned());
    found.ok_or_else(|| match (group, kind) {
        ("batch", "Job") => format!("field label {path:?} not supported for Job"),
        (DRA, kind) => format!("field label not supported for {DRA}/v1, Kind={kind}: {path}"),
        _ => format!("field label not supported: {path}"),
    })
}
