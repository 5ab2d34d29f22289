//! The rules of roles: what a manifest needs, as RBAC says it. The core derives rights by kind; roles name resources. For kinds
//! of the plugin's own CRDs the CRD has the name. Others are guessed as kube guesses them, without a cluster: correct for
//! Kubernetes' own kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};
use mortise_core::kind_pattern::Groups;
use mortise_core::manifest::Manifest;
use mortise_core::object::Kind;
use mortise_core::permission::{Permission, needed};
use mortise_core::well_known::{AGGREGATE_LABEL, HOST, PART_OF_LABEL};

/// The namespaces where the plugin needs something that it does not need everywhere.
pub(super) fn named_namespaces(manifest: &Manifest) -> BTreeSet<Arc<str>> {
    needed(manifest).into_iter().filter_map(|permission| permission.namespace).collect()
}

pub(super) fn role_name(plugin: &str) -> String {
    format!("mortise-plugin-{plugin}")
}

/// The rules that a plugin needs in one namespace alone, or everywhere, sorted. Resources of one group that need the
/// same verbs share one rule.
pub(super) fn rules(manifest: &Manifest, namespace: Option<&Arc<str>>) -> Vec<PolicyRule> {
    let mut verbs: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
    let of_namespace = needed(manifest).into_iter().filter(|permission| permission.namespace.as_ref() == namespace);
    for Permission { kind, verb, subresource, .. } in of_namespace {
        let subresource = subresource.map(|subresource| format!("/{subresource}")).unwrap_or_default();
        let resource = resource(manifest, &kind) + &subresource;
        verbs.entry((kind.group().to_owned(), resource)).or_default().insert(verb);
    }
    let mut resources: BTreeMap<(String, BTreeSet<&str>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in verbs {
        resources.entry((group, verbs)).or_default().push(resource);
    }
    let mut rules: Vec<_> = resources
        .into_iter()
        .map(|((group, verbs), resources)| {
            let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
            rule(&group, &resources, &verbs.into_iter().collect::<Vec<_>>())
        })
        .collect();
    if namespace.is_none() {
        rules.extend(of_patterns(manifest).chain(sent_secrets(manifest)));
    }
    rules.sort_by_key(|rule| (rule.api_groups.clone(), rule.resources.clone(), rule.resource_names.clone()));
    rules
}

/// The resources of the core group that a pattern has: all that can be listed but Secrets. No resource is added to the core
/// group any more, so this is all of it; a wildcard would grant Secrets too.
const CORE_RESOURCES: [&str; 15] = [
    "componentstatuses",
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "serviceaccounts",
    "services",
];

/// The verbs of an informer alone: for all resources of a group, `get` has subresources too, such as a Pod's `exec`.
pub(super) const LIST: [&str; 2] = ["list", "watch"];

/// The kinds of patterns. Rules name groups, not versions of them.
pub(super) fn of_patterns(manifest: &Manifest) -> impl Iterator<Item = PolicyRule> {
    let patterns = manifest.controllers.iter().flat_map(|controller| &controller.patterns);
    let groups: BTreeSet<&str> = patterns
        .filter_map(|pattern| match &pattern.groups {
            Groups::One(group) => Some(&**group),
            Groups::Below(_) => None,
        })
        .collect();
    groups.into_iter().map(|group| match group {
        "" => rule(group, &CORE_RESOURCES, &LIST),
        group => rule(group, &["*"], &LIST),
    })
}

/// Comments for the patterns that no rule can say.
pub(super) fn unnamed_groups(manifest: &Manifest) -> String {
    let patterns = manifest.controllers.iter().flat_map(|controller| &controller.patterns);
    let domains: BTreeSet<&str> = patterns
        .filter_map(|pattern| match &pattern.groups {
            Groups::One(_) => None,
            Groups::Below(domain) => Some(&**domain),
        })
        .collect();
    let comment = |domain: &str| {
        format!(
            "# The plugin reads kinds of the groups *.{domain} that its objects name. RBAC cannot name groups by a suffix, so \
             add\n# a rule for each group that it may read. Objects that name others are stalled with reason Forbidden.\n\
             # - {{apiGroups: [\"GROUP.{domain}\"], resources: [\"*\"], verbs: [\"list\", \"watch\"]}}\n"
        )
    };
    domains.into_iter().map(comment).collect()
}

/// The host reads the Secrets whose values HTTP requests carry, in any namespace, and no others.
fn sent_secrets(manifest: &Manifest) -> Option<PolicyRule> {
    let names: BTreeSet<&str> = manifest.http.iter().flat_map(|rule| &rule.secrets).map(|name| &**name).collect();
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    (!names.is_empty()).then(|| PolicyRule { resource_names: Some(names), ..rule("", &["secrets"], &["get"]) })
}

pub(super) fn resource(manifest: &Manifest, kind: &Kind) -> String {
    let mut crds = manifest.custom_resources.iter().chain(&manifest.described_resources);
    match crds.find(|crd| crd.kinds.contains(kind)) {
        Some(crd) => crd.plural.to_string(),
        None => ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind)).plural,
    }
}

pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

pub(super) fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some("rbac.authorization.k8s.io".to_owned()), kind: kind.to_owned(), name: name.to_owned() }
}

pub(super) fn account(namespace: &str) -> Subject {
    let (kind, name) = ("ServiceAccount".to_owned(), HOST.to_owned());
    Subject { kind, name, namespace: Some(namespace.to_owned()), api_group: None }
}

pub(super) fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(label(PART_OF_LABEL, HOST)),
        ..ObjectMeta::default()
    }
}

pub(super) fn aggregated(mut metadata: ObjectMeta) -> ObjectMeta {
    metadata.labels.get_or_insert_default().extend(label(AGGREGATE_LABEL, "true"));
    metadata
}

pub(super) fn label(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}
