//! RBAC permissions: those that a plugin needs by its manifest, and the one that a 403 names. `mortise rbac` prints
//! roles for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use crate::manifest::Manifest;
use crate::manifest::writes::WriteVerb;
use crate::object::Kind;
use crate::well_known::AGGREGATE_LABEL;

#[cfg(test)]
mod tests;

/// One verb on one kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Permission {
    /// The kind.
    pub kind: Kind,
    /// "create", "patch", "delete".
    pub verb: &'static str,
    /// "status", "eviction"; None is the object itself.
    pub subresource: Option<Arc<str>>,
}

/// The verbs of an informer; `get` is for live reads when the cache lags.
const READ: [&str; 3] = ["get", "list", "watch"];

/// The permissions that a plugin needs: to read its declared kinds, to write its children by their update strategy, its
/// declared writes, and the status of its primary kinds unless they are built-in.
pub fn needed(manifest: &Manifest) -> BTreeSet<Permission> {
    let mut needed = BTreeSet::new();
    let mut allow = |kind: &Kind, subresource: Option<&str>, verbs: &[&'static str]| {
        needed.extend(verbs.iter().map(|verb| Permission {
            kind: kind.clone(),
            verb,
            subresource: subresource.map(Arc::from),
        }));
    };
    for controller in &manifest.controllers {
        for kind in controller.readable() {
            allow(&kind, None, &READ);
        }
        if !controller.builtin {
            allow(&controller.primary, Some("status"), &["patch"]);
        }
        if controller.has_finalizer() {
            // Finalizers are metadata, which is part of the object itself.
            allow(&controller.primary, None, &["patch"]);
        }
        if controller.owns.iter().any(|owned| !owned.tracked) {
            // For blockOwnerDeletion: the admission plugin OwnerReferencesPermissionEnforcement, which OpenShift
            // enables, requires this verb.
            allow(&controller.primary, Some("finalizers"), &["update"]);
        }
        for owned in &controller.owns {
            allow(&owned.kind, None, &["create", "delete"]);
            // A Secret with generated values is created by an apply.
            if owned.update.is_in_place() || owned.adopt || owned.kind.is_secret() {
                allow(&owned.kind, None, &["patch"]);
            }
        }
    }
    for rule in manifest.writes.iter() {
        for verb in &rule.verbs {
            match verb {
                // An apply may create the object.
                WriteVerb::Apply => allow(&rule.kind, None, &["create", "patch"]),
                WriteVerb::Patch => allow(&rule.kind, None, &["patch"]),
                WriteVerb::Delete => allow(&rule.kind, None, &["delete"]),
                WriteVerb::Evict => allow(&rule.kind, Some("eviction"), &["create"]),
            }
        }
        for subresource in &rule.subresources {
            allow(&rule.kind, Some(subresource), &["patch"]);
        }
    }
    needed
}

/// What an authorizer denied, in the API server's own names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denial<'a> {
    verb: &'a str,
    /// "pods", "pods/eviction".
    resource: &'a str,
    group: &'a str,
}

impl<'a> Denial<'a> {
    /// Parses the message of a 403; None when it is not an authorizer's. Quotas, admission and policies return 403 too,
    /// no RBAC rule helps against those, and only the message differs:
    /// `User "system:serviceaccount:a:b" cannot create resource "pods" in API group "" in the namespace "default"`
    pub fn read(message: &'a str) -> Option<Self> {
        let (_, after) = message.split_once("User \"")?;
        let (_, after) = after.split_once("\" cannot ")?;
        let (verb, after) = after.split_once(" resource \"")?;
        let (resource, after) = after.split_once("\" in API group \"")?;
        let (group, _) = after.split_once('"')?;
        Some(Self { verb, resource, group })
    }
}

/// The rule that grants a denied permission, and where to add it. For a read it has all three verbs of reads, since the
/// API server would deny the next one otherwise.
pub fn missing_text(message: &str, permission: &Permission) -> String {
    let Some(Denial { verb, resource, group }) = Denial::read(message) else {
        return format!(
            "the host needs the verb {} on {}; `mortise rbac FILE.wasm` prints the rules of a plugin",
            permission.verb, permission.kind
        );
    };
    let verbs: &[&str] = if READ.contains(&verb) { &READ } else { &[verb] };
    let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    format!(
        "add this rule to a ClusterRole labelled {AGGREGATE_LABEL}=true (`mortise rbac FILE.wasm` prints the whole one):\n- {rule}"
    )
}
