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
