//! `mortise rbac`: prints the rights that a plugin, or the host itself, needs, as roles. The core derives rights by
//! kind; roles name resources. For kinds of the plugin's own CRDs the CRD has the name. Others are guessed as kube
//! guesses them, without a cluster: correct for Kubernetes' own kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use k8s_openapi::api::rbac::v1::{
    AggregationRule, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{ApiResource, GroupVersionKind};
use mortise_core::kind_pattern::Groups;
use mortise_core::manifest::Manifest;
use mortise_core::object::Kind;
use mortise_core::permission::{Permission, needed};
use mortise_core::well_known::{AGGREGATE_LABEL, GROUP, HOST, PART_OF_LABEL, WEBHOOK_SECRET};
use mortise_runtime::config::Namespace;

use crate::yaml::documents;

#[cfg(test)]
mod tests;

#[derive(Debug, Args)]
#[command(
    override_usage = "mortise rbac <FILE.wasm> [OPTIONS]\n       mortise rbac --host [OPTIONS]",
    after_long_help = "\
Examples:
  Let the host run a plugin:
      mortise rbac podset.wasm | kubectl apply -f -

  Set up the host's own rights, and the role that gathers those of all plugins:
      mortise rbac --host | kubectl apply -f -

A plugin's ClusterRole carries the label mortise.dev/aggregate-to-host=true, by which Kubernetes
aggregates its rules into the host's ClusterRole; delete it to revoke them. What a plugin declares in some
namespaces alone becomes a Role and a RoleBinding in each, for the host's ServiceAccount in the namespace
of -n; they need no ClusterRole. RBAC knows no labels, so a label selector narrows nothing here. For kinds without a CRD in
the plugin, the resource is the English plural of the kind, as with Kubernetes' own kinds; correct it
where another CRD has another plural."
)]
pub struct RbacArgs {
    /// The plugin
    #[arg(value_name = "FILE.wasm", required_unless_present = "host", conflicts_with = "host")]
    file: Option<PathBuf>,
    /// Print the host's own roles and bindings instead
    #[arg(long)]
    host: bool,
    /// Name of the plugin in the cluster [default: the file's name]
    #[arg(long, value_name = "NAME", conflicts_with = "host")]
    name: Option<String>,
    /// Namespace of the host
    #[arg(long, short, value_name = "NAMESPACE", default_value = "mortise-system")]
    namespace: Namespace,
    /// Folder for compiled plugins, as of `mortise run`
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

pub fn run(args: &RbacArgs) -> anyhow::Result<()> {
    let Some(file) = &args.file else {
        return crate::words::print(&host(args.namespace.as_str())?);
    };
    let name = crate::kubernetes::plugin_name(args.name.as_deref(), file)?;
    let component = crate::component::load(file, args.cache_dir.clone())?;
    let mut text = [unnamed_groups(&component.manifest), documents(&[plugin(&name, &component.manifest)])?].concat();
    for (role, binding) in in_namespaces(&name, &component.manifest, args.namespace.as_str()) {
        text = [text, documents(&[role])?, documents(&[binding])?].concat();
    }
    crate::words::print(&text)
}

/// The ClusterRole with the rights that one plugin needs everywhere. Kubernetes aggregates it into the host's role.
fn plugin(name: &str, manifest: &Manifest) -> ClusterRole {
    let metadata = aggregated(metadata(&role_name(name), None));
    ClusterRole { metadata, rules: Some(rules(manifest, None)), aggregation_rule: None }
}

/// A Role with the rights that it needs in one namespace alone, and its binding to the host's ServiceAccount, for each.
fn in_namespaces(name: &str, manifest: &Manifest, host_namespace: &str) -> Vec<(Role, RoleBinding)> {
    let namespaces: BTreeSet<_> = needed(manifest).into_iter().filter_map(|permission| permission.namespace).collect();
    let both = |namespace: &Arc<str>| {
        let here = || metadata(&role_name(name), Some(namespace));
        let role = Role { metadata: here(), rules: Some(rules(manifest, Some(namespace))) };
        let role_ref = RoleRef { name: role_name(name), ..role_named_as_the_host("Role") };
        let binding = RoleBinding { metadata: here(), role_ref, subjects: Some(vec![account(host_namespace)]) };
        (role, binding)
    };
    namespaces.iter().map(both).collect()
}

fn role_name(plugin: &str) -> String {
    format!("mortise-plugin-{plugin}")
}

/// The rules that a plugin needs in one namespace alone, or everywhere, sorted. Resources of one group that need the
/// same verbs share one rule.
fn rules(manifest: &Manifest, namespace: Option<&Arc<str>>) -> Vec<PolicyRule> {
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
const LIST: [&str; 2] = ["list", "watch"];

/// The kinds of patterns. Rules name groups, not versions of them.
fn of_patterns(manifest: &Manifest) -> impl Iterator<Item = PolicyRule> {
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
fn unnamed_groups(manifest: &Manifest) -> String {
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

fn resource(manifest: &Manifest, kind: &Kind) -> String {
    match manifest.custom_resources.iter().find(|crd| crd.kinds.contains(kind)) {
        Some(crd) => crd.plural.to_string(),
        None => ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind)).plural,
    }
}

/// The rights of the host without any plugin, in the cluster and in its own namespace; and the role that aggregates
/// them with every plugin's, bound to the host's ServiceAccount.
fn host(namespace: &str) -> anyhow::Result<String> {
    let label = LabelSelector { match_labels: Some(label(AGGREGATE_LABEL, "true")), ..LabelSelector::default() };
    let gathered = ClusterRole {
        metadata: metadata(HOST, None),
        aggregation_rule: Some(AggregationRule { cluster_role_selectors: Some(vec![label]) }),
        rules: None,
    };
    let (metadata_of_own, rules) = (aggregated(metadata("mortise-host", None)), Some(of_the_cluster()));
    let own = ClusterRole { metadata: metadata_of_own, rules, aggregation_rule: None };
    let binding = ClusterRoleBinding {
        metadata: metadata(HOST, None),
        role_ref: role_named_as_the_host("ClusterRole"),
        subjects: Some(vec![account(namespace)]),
    };
    let here = || metadata(HOST, Some(namespace));
    let own_here = Role { metadata: here(), rules: Some(of_the_namespace()) };
    let binding_here = RoleBinding {
        metadata: here(),
        role_ref: role_named_as_the_host("Role"),
        subjects: Some(vec![account(namespace)]),
    };
    let roles = [documents(&[gathered, own])?, documents(&[binding])?];
    Ok([roles.concat(), documents(&[own_here])?, documents(&[binding_here])?].concat())
}

fn of_the_cluster() -> Vec<PolicyRule> {
    vec![
        // Admission webhooks. The host writes only those with its own label.
        rule(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            &["list", "create", "update", "delete"],
        ),
        // No delete: the API server would delete all objects of a deleted CRD.
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get", "create", "update"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule(GROUP, &["plugins"], &["get", "list", "watch", "create", "delete"]),
        rule(GROUP, &["plugins/status"], &["patch"]),
    ]
}

fn of_the_namespace() -> Vec<PolicyRule> {
    // The webhooks' certificate. RBAC cannot restrict `create` by name, so it has a rule of its own.
    let of_secret = rule("", &["secrets"], &["get", "update"]);
    vec![
        rule("", &["configmaps"], &["get", "list", "watch"]),
        // For --leader-elect. Without a name, since RBAC cannot restrict `create` by name.
        rule("coordination.k8s.io", &["leases"], &["get", "list", "watch", "create", "update"]),
        PolicyRule { resource_names: Some(vec![WEBHOOK_SECRET.to_owned()]), ..of_secret },
        rule("", &["secrets"], &["create"]),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn role_named_as_the_host(kind: &str) -> RoleRef {
    RoleRef { api_group: Some("rbac.authorization.k8s.io".to_owned()), kind: kind.to_owned(), name: HOST.to_owned() }
}

fn account(namespace: &str) -> Subject {
    let (kind, name) = ("ServiceAccount".to_owned(), HOST.to_owned());
    Subject { kind, name, namespace: Some(namespace.to_owned()), api_group: None }
}

fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(label(PART_OF_LABEL, HOST)),
        ..ObjectMeta::default()
    }
}

fn aggregated(mut metadata: ObjectMeta) -> ObjectMeta {
    metadata.labels.get_or_insert_default().extend(label(AGGREGATE_LABEL, "true"));
    metadata
}

fn label(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}
