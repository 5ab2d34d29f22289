//! Which rights the API server has to give: a plugin's from its manifest, the host's own, and the rule that is missing
//! when the API server says no. Text and data only; whether a right is held is the API server's to say.
//!
//! A manifest names kinds and RBAC names resources. For the kinds of a manifest's own CRDs the plural stands there; for
//! all others it is derived from the kind by [`plural`], as `kubectl` did before discovery existed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::manifest::Manifest;
use crate::manifest::writes::WriteVerb;
use crate::object::Kind;
use crate::permission::Permission;
use crate::plural::plural;
use crate::well_known::{AGGREGATE_LABEL, GROUP, HOST, WEBHOOK_SECRET};

#[cfg(test)]
mod tests;

/// What a watch needs: `get` is for the live read after a view that stays behind.
const READ: [&str; 3] = ["get", "list", "watch"];

/// One RBAC rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// API groups; "" is the core group.
    pub api_groups: Vec<String>,
    /// Plural resource names, "pods" or "pods/status".
    pub resources: Vec<String>,
    /// API verbs.
    pub verbs: Vec<String>,
    /// The only objects that it is about; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
}

impl PolicyRule {
    fn new(group: &str, resources: &[&str], verbs: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Self {
            api_groups: vec![group.to_owned()],
            resources: owned(resources),
            verbs: owned(verbs),
            resource_names: Vec::new(),
        }
    }

    /// The rule as an item of a YAML list, in one flow style line a field, as people write it in a ClusterRole.
    pub fn to_yaml(&self) -> String {
        let list = |texts: &[String]| texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ");
        format!(
            "- apiGroups: [{}]\n  resources: [{}]\n  verbs: [{}]\n",
            list(&self.api_groups),
            list(&self.resources),
            list(&self.verbs)
        )
    }
}

/// A ClusterRole, a Role or a binding, ready to be written as YAML or JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RbacObject {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregation_rule: Option<AggregationRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role_ref: Option<RoleRef>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subjects: Vec<Subject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<PolicyRule>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Metadata {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    labels: BTreeMap<&'static str, &'static str>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AggregationRule {
    cluster_role_selectors: Vec<LabelSelector>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LabelSelector {
    match_labels: BTreeMap<&'static str, &'static str>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RoleRef {
    api_group: &'static str,
    kind: &'static str,
    name: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Subject {
    kind: &'static str,
    name: String,
    namespace: String,
}

impl RbacObject {
    fn new(kind: &'static str, name: &str, namespace: Option<&str>) -> Self {
        Self {
            api_version: "rbac.authorization.k8s.io/v1",
            kind,
            metadata: Metadata {
                name: name.to_owned(),
                namespace: namespace.map(str::to_owned),
                labels: BTreeMap::from([("app.kubernetes.io/part-of", HOST)]),
            },
            aggregation_rule: None,
            role_ref: None,
            subjects: Vec::new(),
            rules: None,
        }
    }

    fn with_rules(mut self, rules: Vec<PolicyRule>) -> Self {
        self.rules = Some(rules);
        self
    }

    fn aggregated(mut self) -> Self {
        self.metadata.labels.insert(AGGREGATE_LABEL, "true");
        self
    }

    fn binding(kind: &'static str, role: &'static str, namespace: Option<&str>, account_namespace: &str) -> Self {
        let mut binding = Self::new(kind, HOST, namespace);
        binding.role_ref = Some(RoleRef { api_group: "rbac.authorization.k8s.io", kind: role, name: HOST.to_owned() });
        binding.subjects =
            vec![Subject { kind: "ServiceAccount", name: HOST.to_owned(), namespace: account_namespace.to_owned() }];
        binding
    }
}

/// The exact rules that a plugin needs, merged and sorted: reads of every kind that its guests may see, writes of its
/// children as their update strategy needs them, what it declares to write besides, and the status of what it reconciles
/// unless Kubernetes writes that.
pub fn rules(manifest: &Manifest) -> Vec<PolicyRule> {
    let mut verbs: BTreeMap<(String, String), BTreeSet<&'static str>> = BTreeMap::new();
    let mut allow = |kind: &Kind, subresource: &str, wanted: &[&'static str]| {
        let resource = format!("{}{subresource}", plural_in(manifest, kind));
        verbs.entry((kind.group().to_owned(), resource)).or_default().extend(wanted);
    };
    for controller in &manifest.controllers {
        for kind in controller.readable() {
            allow(&kind, "", &READ);
        }
        if !controller.builtin {
            allow(&controller.primary, "/status", &["patch"]);
        }
        if controller.finalize {
            // Finalizers are metadata, which is part of the object itself.
            allow(&controller.primary, "", &["patch"]);
        }
        if !controller.owns.is_empty() {
            // Children block their owner's foreground deletion. Where OwnerReferencesPermissionEnforcement is on, as in
            // OpenShift, the API server lets only those say so who could keep the owner by a finalizer as well.
            allow(&controller.primary, "/finalizers", &["update"]);
        }
        for owned in &controller.owns {
            // An apply creates what is absent, for which the API server asks for `create` beside `patch`.
            let wanted: &[&str] =
                if owned.update.is_in_place() { &["create", "patch", "delete"] } else { &["create", "delete"] };
            allow(&owned.kind, "", wanted);
        }
    }
    for rule in manifest.writes.iter() {
        for verb in &rule.verbs {
            match verb {
                WriteVerb::Apply => allow(&rule.kind, "", &["create", "patch"]),
                WriteVerb::Patch => allow(&rule.kind, "", &["patch"]),
                WriteVerb::Delete => allow(&rule.kind, "", &["delete"]),
                WriteVerb::Evict => allow(&rule.kind, "/eviction", &["create"]),
            }
        }
        for subresource in &rule.subresources {
            allow(&rule.kind, &format!("/{subresource}"), &["patch"]);
        }
    }
    merged(verbs)
}

/// Resources of one group that need the same verbs share a rule.
fn merged(verbs: BTreeMap<(String, String), BTreeSet<&'static str>>) -> Vec<PolicyRule> {
    let mut resources: BTreeMap<(String, BTreeSet<&'static str>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in verbs {
        resources.entry((group, verbs)).or_default().push(resource);
    }
    let mut rules: Vec<PolicyRule> = resources
        .into_iter()
        .map(|((group, verbs), resources)| {
            let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
            PolicyRule::new(&group, &resources, &verbs.into_iter().collect::<Vec<_>>())
        })
        .collect();
    rules.sort();
    rules
}

/// The ClusterRole that gives the host what one plugin needs, labelled so that Kubernetes adds it to the host's role.
pub fn cluster_role(name: &str, manifest: &Manifest) -> RbacObject {
    RbacObject::new("ClusterRole", &format!("mortise-plugin-{name}"), None).aggregated().with_rules(rules(manifest))
}

/// What the host itself needs, without any plugin: its Plugin objects, the CRDs that plugins bring, webhook configurations,
/// Events, and in its own namespace the ConfigMaps, its Lease and the one Secret that it keeps; and the role that gathers
/// this and every plugin's role, bound to its account.
pub fn host(namespace: &str) -> Vec<RbacObject> {
    let own = vec![
        // By which the API server knows that a plugin is to be asked. They carry the host's label; others' are left alone.
        PolicyRule::new(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            &["list", "create", "update", "delete"],
        ),
        // CRDs are never deleted: their objects would go with them.
        PolicyRule::new("apiextensions.k8s.io", &["customresourcedefinitions"], &["get", "create", "update"]),
        PolicyRule::new("events.k8s.io", &["events"], &["create", "patch"]),
        PolicyRule::new(GROUP, &["plugins"], &["get", "list", "watch", "create", "delete"]),
        PolicyRule::new(GROUP, &["plugins/status"], &["patch"]),
    ];
    // The key by which the API server knows the host's webhooks. A rule that names an object cannot allow to create it.
    let mut authority = PolicyRule::new("", &["secrets"], &["get", "update"]);
    authority.resource_names = vec![WEBHOOK_SECRET.to_owned()];
    let in_namespace = vec![
        PolicyRule::new("", &["configmaps"], &READ),
        // For --leader-elect. RBAC cannot bind `create` to a name, so the Lease's name is left open.
        PolicyRule::new("coordination.k8s.io", &["leases"], &["get", "list", "watch", "create", "update"]),
        authority,
        PolicyRule::new("", &["secrets"], &["create"]),
    ];
    let mut gathered = RbacObject::new("ClusterRole", HOST, None);
    gathered.aggregation_rule = Some(AggregationRule {
        cluster_role_selectors: vec![LabelSelector { match_labels: BTreeMap::from([(AGGREGATE_LABEL, "true")]) }],
    });
    vec![
        gathered,
        RbacObject::new("ClusterRole", "mortise-host", None).aggregated().with_rules(own),
        RbacObject::binding("ClusterRoleBinding", "ClusterRole", None, namespace),
        RbacObject::new("Role", HOST, Some(namespace)).with_rules(in_namespace),
        RbacObject::binding("RoleBinding", "Role", Some(namespace), namespace),
    ]
}

/// Whether a 403 is an authorizer's: quotas, admission and policies answer 403 too, and no rule helps against those.
/// `User "system:serviceaccount:a:b" cannot create resource "pods" in API group "" in the namespace "default"`
pub fn is_refused_by_rbac(message: &str) -> bool {
    let Some((_, after)) = message.split_once("User \"") else { return false };
    after.split_once("\" cannot ").is_some_and(|(_, what)| what.contains(" resource \""))
}

/// The rule to add when the API server refuses `verb` on objects of `kind`, with where to add it. A read that is
/// refused asks for all three read verbs, so that granting them one by one is not a game of patience.
pub fn missing_rule_text(kind: &Kind, verb: &str) -> String {
    let verbs: &[&str] = if READ.contains(&verb) { &READ } else { &[verb] };
    missing(kind, &plural(&kind.kind), verbs)
}

/// The rule to add when the API server refuses a write.
pub fn missing_permission_text(Permission { kind, verb, subresource }: &Permission) -> String {
    match subresource {
        Some(subresource) => missing(kind, &format!("{}/{subresource}", plural(&kind.kind)), &[verb]),
        None => missing_rule_text(kind, verb),
    }
}

fn missing(kind: &Kind, resource: &str, verbs: &[&str]) -> String {
    format!(
        "add this rule to a ClusterRole labelled {AGGREGATE_LABEL}=true (`mortise rbac FILE.wasm` prints the whole \
         one):\n{}",
        PolicyRule::new(kind.group(), &[resource], verbs).to_yaml()
    )
}

fn plural_in(manifest: &Manifest, kind: &Kind) -> String {
    let own = manifest.custom_resources.iter().find(|crd| crd.kinds.contains(kind));
    own.map_or_else(|| plural(&kind.kind), |crd| crd.plural.to_string())
}
