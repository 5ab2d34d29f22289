//! Kinds and groups that belong to the host or to Kubernetes, and why no plugin has them.

use crate::object::Kind;
use crate::well_known::GROUP;

/// Kinds that the host has rights to for its own work, which are no plugin's to write.
pub(super) fn not_for_plugins(kind: &Kind) -> Option<&'static str> {
    match (kind.group(), &*kind.kind) {
        (GROUP, _) => Some("the host keeps it"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Some("a plugin's definitions stand in its manifest under customResources")
        }
        ("events.k8s.io" | "", "Event") => Some("a plugin's events stand in its outcome"),
        _ => None,
    }
}

/// Kinds that the host writes itself of what is reconciled, so that reconciling them would never end.
pub(super) fn not_for_reconciling(kind: &Kind) -> Option<&'static str> {
    match (kind.group(), &*kind.kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Some("the host registers definitions, and a plugin's stand in its manifest under customResources")
        }
        ("events.k8s.io" | "", "Event") => {
            Some("the host tells of what is reconciled by Events, so each would cause more")
        }
        _ => None,
    }
}

/// The groups that the API server itself serves, beside those without a dot. Other `*.k8s.io` groups are left to the
/// API server, which asks for an approval annotation on their CRDs.
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

pub(crate) fn is_builtin_group(group: &str) -> bool {
    !group.contains('.') || BUILTIN_GROUPS.contains(&group)
}
