//! RBAC permissions: those that a plugin needs by its manifest, everywhere or in some namespaces, and the rule that a 403
//! lacks, with the role to add it to. `mortise rbac` prints roles for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::manifest::Manifest;
use crate::manifest::writes::WriteVerb;
use crate::object::Kind;
use crate::scope::Scope;
use crate::service_account::ServiceAccount;
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
    /// The only namespace where it is needed; None: everywhere.
    pub namespace: Option<Arc<str>>,
}

/// The verbs of an informer; `get` is for live reads when the cache lags.
const READ: [&str; 3] = ["get", "list", "watch"];
/// The verb to act as a ServiceAccount.
pub const IMPERSONATE: &str = "impersonate";

/// The permissions that a plugin needs: to read its declared kinds, to write its children by their update strategy, its
/// declared writes, and the status of its primary kinds unless they are built-in. A permission that is needed everywhere
/// is not named again for a namespace. RBAC knows no labels, so a label selector narrows none of them.
pub fn needed(manifest: &Manifest) -> BTreeSet<Permission> {
    let mut needed = BTreeSet::new();
    let mut allow_in = |scope: &Scope, kind: &Kind, subresource: Option<&str>, verbs: &[&'static str]| {
        needed.extend(scope.places().flat_map(|namespace| {
            let permission = move |verb: &&'static str| Permission {
                kind: kind.clone(),
                verb,
                subresource: subresource.map(Arc::from),
                namespace: namespace.clone(),
            };
            verbs.iter().map(permission)
        }));
    };
    for controller in &manifest.controllers {
        for (kind, scope) in controller.scopes() {
            allow_in(&scope, &kind, None, &READ);
        }
        for owned in &controller.owns {
            allow_in(&owned.scope, &owned.kind, None, &["create", "delete"]);
            // A Secret with generated values is created by an apply.
            if owned.update.is_in_place() || owned.adopt || owned.kind.is_secret() {
                allow_in(&owned.scope, &owned.kind, None, &["patch"]);
            }
        }
    }
    let mut allow = |kind: &Kind, subresource: Option<&str>, verbs: &[&'static str]| {
        allow_in(&manifest.writes_in, kind, subresource, verbs);
    };
    for controller in &manifest.controllers {
        if !controller.builtin {
            allow(&controller.primary, Some("status"), &["patch"]);
        }
        if controller.has_finalizer() || controller.replaces_at_once() {
            // Finalizers, and the mark of successors, are metadata, which is part of the object itself.
            allow(&controller.primary, None, &["patch"]);
        }
        if controller.owns.iter().any(|owned| !owned.tracked) {
            // For blockOwnerDeletion: the admission plugin OwnerReferencesPermissionEnforcement, which OpenShift
            // enables, requires this verb.
            allow(&controller.primary, Some("finalizers"), &["update"]);
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
    let wide: BTreeSet<Permission> = needed.iter().filter(|each| each.namespace.is_none()).cloned().collect();
    needed.retain(|each| each.namespace.is_none() || !wide.contains(&Permission { namespace: None, ..each.clone() }));
    needed
}

/// What an authorizer denied, in the API server's own names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denial<'a> {
    user: &'a str,
    verb: &'a str,
    /// "pods", "pods/eviction".
    resource: &'a str,
    group: &'a str,
    /// None: at the cluster's scope.
    namespace: Option<&'a str>,
}

impl<'a> Denial<'a> {
    /// Parses the message of a 403; None when it is not an authorizer's. Quotas, admission and policies return 403 too,
    /// no RBAC rule helps against those, and only the message differs:
    /// `User "system:serviceaccount:a:b" cannot create resource "pods" in API group "" in the namespace "default"`
    pub fn read(message: &'a str) -> Option<Self> {
        let (_, after) = message.split_once("User \"")?;
        let (user, after) = after.split_once("\" cannot ")?;
        let (verb, after) = after.split_once(" resource \"")?;
        let (resource, after) = after.split_once("\" in API group \"")?;
        let (group, after) = after.split_once('"')?;
        let namespace = after.strip_prefix(" in the namespace \"").and_then(|after| after.split('"').next());
        Some(Self { user, verb, resource, group, namespace })
    }

    /// The message without names that nobody but the one who asked has chosen: the object's, and a namespace's that is not known.
    pub fn shown(&self, is_known: impl FnOnce(&str) -> bool) -> String {
        let Self { user, verb, resource, group, namespace } = self;
        let place = match namespace {
            Some(namespace) if is_known(namespace) => format!("in the namespace \"{namespace}\""),
            Some(_) => "in a namespace".to_owned(),
            None => "at the cluster scope".to_owned(),
        };
        format!("User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}")
    }

    /// Whether the host may not act as somebody. Kubernetes 1.36 names the first of several verbs that it has tried:
    /// "impersonate-on:serviceaccount:create".
    pub fn is_impersonation(&self) -> bool {
        self.verb.starts_with(IMPERSONATE)
    }
}

/// The command that prints the rights of a plugin as a host of the namespace runs it: of a tenant's plugin, those that the
/// tenant can give it.
pub fn printed_by(plugin: &str, account: Option<&ServiceAccount>, host_namespace: &str) -> String {
    let (tenant, name) = plugin.split_once('.').map_or((None, plugin), |(tenant, name)| (Some(tenant), name));
    // A tenant's plugin is its ConfigMap's namesake unless that names another ServiceAccount.
    let account = account.filter(|account| tenant.is_none() || &*account.name != name);
    let tenant = tenant.map(|tenant| format!(" --tenant {tenant}")).unwrap_or_default();
    let account = account.map(|account| format!(" --service-account {}", account.name)).unwrap_or_default();
    format!("mortise rbac FILE.wasm{tenant} --name {name}{account} -n {host_namespace}")
}

/// The rule that grants a denied permission, and where to add it: to a role of the ServiceAccount that lacks it, else of the
/// host; with the command that prints both. For a read it has all three verbs of reads, since the API server would deny the
/// next one otherwise.
pub fn missing_text(
    message: &str,
    permission: &Permission,
    account: Option<&ServiceAccount>,
    printed_by: &str,
) -> String {
    let Some(Denial { verb, resource, group, .. }) = Denial::read(message) else {
        let whose = account.map_or_else(|| "the host".to_owned(), |account| format!("the ServiceAccount {account}"));
        return format!(
            "{whose} needs the verb {} on {}; `{printed_by}` prints the rules",
            permission.verb, permission.kind
        );
    };
    let verbs: &[&str] = if READ.contains(&verb) { &READ } else { &[verb] };
    let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    if let Some(account) = account {
        return missing_of_account(account, verb, rule, permission.namespace.as_deref(), printed_by);
    }
    if let Some(namespace) = &permission.namespace {
        return format!(
            "add this rule to a Role of the namespace {namespace} that a RoleBinding gives the host (`{printed_by}` \
             prints both):\n- {rule}"
        );
    }
    format!(
        "add this rule to a ClusterRole labelled {AGGREGATE_LABEL}=true (`{printed_by}` prints the whole one):\n- {rule}"
    )
}

/// The host's right to act as the ServiceAccount, or a right that the ServiceAccount itself lacks.
fn missing_of_account(
    account: &ServiceAccount,
    verb: &str,
    rule: Value,
    namespace: Option<&str>,
    printed_by: &str,
) -> String {
    // Kubernetes 1.36 names the first of several verbs that it has tried: "impersonate-on:serviceaccount:create".
    if verb.starts_with(IMPERSONATE) {
        return acting_text(account, printed_by);
    }
    let role = match namespace {
        Some(namespace) => format!("a Role of the namespace {namespace} that a RoleBinding"),
        None => "a ClusterRole that a ClusterRoleBinding".to_owned(),
    };
    format!("add this rule to {role} gives the ServiceAccount {account} (`{printed_by}` prints both):\n- {rule}")
}

/// The rule by which the host may act as a ServiceAccount, and where to add it; with the command that prints both.
pub fn acting_text(account: &ServiceAccount, printed_by: &str) -> String {
    let rule = json!({
        "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": [IMPERSONATE], "resourceNames": [&*account.name],
    });
    format!(
        "add this rule to a Role of the namespace {} that a RoleBinding gives the host, so that it may act as the \
         ServiceAccount {account} (`{printed_by}` prints both):\n- {rule}",
        account.namespace
    )
}
