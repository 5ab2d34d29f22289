//! The rights that the API server checks: those that a plugin needs, from its manifest, and the one that a refusal is about.
//! Whether a right is held is the API server's to say; `mortise rbac` makes roles of those that are needed.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use crate::manifest::Manifest;
use crate::manifest::writes::WriteVerb;
use crate::object::Kind;
use crate::well_known::AGGREGATE_LABEL;

#[cfg(test)]
mod tests;

/// One right: what an API server asks for when something is read or written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Permission {
    /// Of which kind.
    pub kind: Kind,
    /// "create", "patch", "delete".
    pub verb: &'static str,
    /// "status", "eviction"; None is the object itself.
    pub subresource: Option<Arc<str>>,
}

/// What a watch needs: `get` is for the live read after a view that stays behind.
const READ: [&str; 3] = ["get", "list", "watch"];

/// The rights that a plugin needs: to read every kind that its guests may see, to write its children as their update strategy
/// does, what it declares to write besides, and the status of what it reconciles unless Kubernetes writes that.
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
        if controller.finalize {
            // Finalizers are metadata, which is part of the object itself.
            allow(&controller.primary, None, &["patch"]);
        }
        if !controller.owns.is_empty() {
            // Children block their owner's foreground deletion. Where OwnerReferencesPermissionEnforcement is on, as in
            // OpenShift, the API server lets only those say so who could keep the owner by a finalizer as well.
            allow(&controller.primary, Some("finalizers"), &["update"]);
        }
        for owned in &controller.owns {
            // An apply creates what is absent, for which the API server asks for `create` beside `patch`.
            let wanted: &[&str] =
                if owned.update.is_in_place() { &["create", "patch", "delete"] } else { &["create", "delete"] };
            allow(&owned.kind, None, wanted);
        }
    }
    for rule in manifest.writes.iter() {
        for verb in &rule.verbs {
            match verb {
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

/// What an authorizer refused, in the API server's own names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denial<'a> {
    verb: &'a str,
    /// "pods", "pods/eviction".
    resource: &'a str,
    group: &'a str,
}

impl<'a> Denial<'a> {
    /// Reads the message of a 403; None when it is not an authorizer's. Quotas, admission and policies answer 403 too, no
    /// rule helps against those, and nothing but the message tells them apart:
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

/// What to do about a refused right: the rule that gives it, with where to add it. A read that is refused asks for all three
/// verbs of reads, so that granting them one by one is not a game of patience.
pub fn missing_text(message: &str, permission: &Permission) -> String {
    let Some(Denial { verb, resource, group }) = Denial::read(message) else {
        return format!(
            "the host needs the verb {} on {}; `mortise rbac FILE.wasm` prints the rules of a plugin",
            permission.verb, permission.kind
        );
    };
    let verbs: &[&str] = if READ.contains(&verb) { &READ } else { &[verb] };
    format!(
        "add this rule to a ClusterRole labelled {AGGREGATE_LABEL}=true (`mortise rbac FILE.wasm` prints the whole one):\n- {}",
        json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
    )
}
