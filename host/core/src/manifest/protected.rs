//! Kinds and groups that belong to the host or to Kubernetes.

use crate::object::Kind;
use crate::well_known::GROUP;

/// Why plugins may not write a kind, although the host has rights to it.
pub(super) fn not_for_plugins(kind: &Kind) -> Option<&'static str> {
    match (kind.group(), &*kind.kind) {
        (GROUP, _) => Some("it belongs to the host"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Some("put the CRD under customResources of the manifest")
        }
        ("events.k8s.io" | "", "Event") => Some("put the event into the outcome"),
        _ => None,
    }
}

/// Why a kind cannot be reconciled: the host itself writes objects of it for each reconcile, which would wake the key
/// again.
pub(super) fn not_for_reconciling(kind: &Kind) -> Option<&'static str> {
    match (kind.group(), &*kind.kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Some("the host registers CRDs from manifests; put yours under customResources")
        }
        ("events.k8s.io" | "", "Event") => {
            Some("the host records Events of what it reconciles, so each would cause more")
        }
        _ => None,
    }
}

/// Kinds by which a cluster is run or repaired, in groups that have others too, with the names of their resources. A plugin
/// that sees and changes what others write of them has nodes, traffic, credentials, or what a plugin is; one that refuses it
/// keeps administrators out. Nothing in such a list is a workload: Pods and their controllers, claims and Ingresses are
/// what plugins are for.
pub(super) const PROTECTED_RESOURCES: [(&str, &str, &str); 15] = [
    ("", "Binding", "bindings"),
    // Plugins, the authorities of clusters, the configuration of nodes and DNS.
    ("", "ConfigMap", "configmaps"),
    ("", "Endpoints", "endpoints"),
    ("", "Event", "events"),
    ("", "LimitRange", "limitranges"),
    ("", "Namespace", "namespaces"),
    ("", "Node", "nodes"),
    ("", "PersistentVolume", "persistentvolumes"),
    ("", "ResourceQuota", "resourcequotas"),
    ("", "Secret", "secrets"),
    ("", "Service", "services"),
    ("", "ServiceAccount", "serviceaccounts"),
    ("networking.k8s.io", "IPAddress", "ipaddresses"),
    ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    ("networking.k8s.io", "ServiceCIDR", "servicecidrs"),
];
/// The built-in groups with a dot of which [`PROTECTED_RESOURCES`] are protected and the others are not.
pub(super) const EXCEPT_GROUPS: [&str; 1] = ["networking.k8s.io"];

/// The groups all of whose kinds a cluster is run or repaired by.
pub(super) fn protected_groups() -> impl Iterator<Item = &'static str> {
    BUILTIN_GROUPS.into_iter().filter(|group| !EXCEPT_GROUPS.contains(group))
}

/// Why no plugin has a webhook for a kind. A policy of deploy/ holds the host to it.
pub(super) fn not_for_admission(kind: &Kind) -> Option<&'static str> {
    if kind.group() == GROUP {
        return Some("it belongs to the host");
    }
    let is_listed = PROTECTED_RESOURCES.iter().any(|(group, name, _)| (*group, *name) == (kind.group(), &*kind.kind));
    let is_protected = is_listed || protected_groups().any(|group| group == kind.group());
    is_protected.then_some("the cluster needs it to run or to be repaired")
}

/// The groups with a dot that the API server itself serves.
const BUILTIN_GROUPS: [&str; 19] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "metrics.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Whether a group is in a domain of Kubernetes' projects, whose CRDs the API server accepts with an approval alone (KEP-2337).
/// Their kinds can be read and owned.
pub(super) fn is_of_kubernetes(group: &str) -> bool {
    let is_in = |domain: &str| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    is_in("k8s.io") || is_in("kubernetes.io")
}

pub(crate) fn is_builtin_group(group: &str) -> bool {
    !group.contains('.') || BUILTIN_GROUPS.contains(&group)
}
