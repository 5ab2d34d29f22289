//! The rights of a plugin with an identity of its own: what its ServiceAccount may do, what the host may watch for it, that
//! the host may act as it, and the Plugin object that names it and grants what it asks for.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use mortise_core::grants;
use mortise_core::manifest::Manifest;
use mortise_core::permission::IMPERSONATE;
use mortise_core::well_known::API_VERSION;
use serde_json::{Value, json};

use super::rules::{
    LIST, account, aggregated, label, metadata, named_namespaces, role_name, role_ref, rule, rules, unnamed_groups,
};
use crate::yaml::documents;

/// Kubernetes aggregates ClusterRoles with it into its role `admin`.
const ADMIN_LABEL: &str = "rbac.authorization.k8s.io/aggregate-to-admin";

/// A plugin in a host's namespace, and the ServiceAccount there that it is to be.
pub struct Identified<'a> {
    pub plugin: &'a str,
    pub manifest: &'a Manifest,
    pub namespace: &'a str,
    pub service_account: &'a str,
}

impl Identified<'_> {
    /// All of it, for `kubectl apply`.
    pub fn documents(&self) -> anyhow::Result<String> {
        Ok(self.rights()? + &documents(&[self.plugin_object()])?)
    }

    /// All but the Plugin object.
    pub fn rights(&self) -> anyhow::Result<String> {
        let service_account =
            ServiceAccount { metadata: metadata(self.service_account, Some(self.namespace)), ..Default::default() };
        let mut text = [unnamed_groups(self.manifest), documents(&[service_account])?].concat();
        let (own, own_binding) = self.everywhere();
        text += &[documents(&[own])?, documents(&[own_binding])?, documents(&[self.watched()])?].concat();
        for namespace in named_namespaces(self.manifest) {
            let own = rules(self.manifest, Some(&namespace));
            let watched = watching(&own);
            let (plugins, hosts) = (role_name(self.plugin), self.watch_name());
            for (name, rules, subject) in [(plugins, own, self.subject()), (hosts, watched, account(self.namespace))] {
                text += &bound_role(&name, &namespace, rules, subject)?;
            }
        }
        Ok(text + &self.acting()?)
    }

    /// What the plugin may do everywhere, Events of its objects among it.
    fn everywhere(&self) -> (ClusterRole, ClusterRoleBinding) {
        let name = role_name(self.plugin);
        let mut rules = rules(self.manifest, None);
        rules.push(rule("events.k8s.io", &["events"], &["create", "patch"]));
        let role = ClusterRole { metadata: metadata(&name, None), rules: Some(rules), aggregation_rule: None };
        let role_ref = role_ref("ClusterRole", &name);
        let binding =
            ClusterRoleBinding { metadata: metadata(&name, None), role_ref, subjects: Some(vec![self.subject()]) };
        (role, binding)
    }

    /// The host watches what plugins read, once for all of them.
    fn watched(&self) -> ClusterRole {
        let rules = watching(&rules(self.manifest, None));
        let metadata = aggregated(metadata(&self.watch_name(), None));
        ClusterRole { metadata, rules: Some(rules), aggregation_rule: None }
    }

    /// The host may act as this ServiceAccount and as no other.
    fn acting(&self) -> anyhow::Result<String> {
        let name = format!("{}-identity", role_name(self.plugin));
        let names = Some(vec![self.service_account.to_owned()]);
        let rule = PolicyRule { resource_names: names, ..rule("", &["serviceaccounts"], &[IMPERSONATE]) };
        bound_role(&name, self.namespace, vec![rule], account(self.namespace))
    }

    fn plugin_object(&self) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": "Plugin", "metadata": {"name": self.plugin},
            "spec": {"serviceAccountName": self.service_account, "grants": grants::asked(self.manifest)},
        })
    }

    fn watch_name(&self) -> String {
        format!("{}-watch", role_name(self.plugin))
    }

    fn subject(&self) -> Subject {
        Subject { name: self.service_account.to_owned(), ..account(self.namespace) }
    }
}

/// A plugin of a tenant, with what a person of its namespace may apply there.
pub struct OfTenant<'a> {
    /// The ConfigMap's name.
    pub name: &'a str,
    /// As [`Manifest::of_tenant`] leaves it.
    pub manifest: &'a Manifest,
    pub tenant: &'a str,
    /// The host's namespace.
    pub host_namespace: &'a str,
    pub service_account: &'a str,
}

impl OfTenant<'_> {
    /// The ServiceAccount with its Role, and the Role by which the host reads what the plugin reads, its ConfigMap among it, and
    /// acts as this ServiceAccount.
    pub fn documents(&self) -> anyhow::Result<String> {
        let (name, here) = (role_name(self.name), Some(self.tenant));
        let service_account = ServiceAccount { metadata: metadata(self.service_account, here), ..Default::default() };
        let mut own = rules(self.manifest, Some(&self.tenant.into()));
        let mut of_host = watching(&own);
        own.push(rule("events.k8s.io", &["events"], &["create", "patch"]));
        let names = Some(vec![self.service_account.to_owned()]);
        of_host.push(rule("", &["configmaps"], &["get", "list", "watch"]));
        of_host.push(PolicyRule { resource_names: names, ..rule("", &["serviceaccounts"], &[IMPERSONATE]) });
        let subject = Subject { name: self.service_account.to_owned(), ..account(self.tenant) };
        let roles = [
            bound_role(&name, self.tenant, own, subject)?,
            bound_role(&format!("{name}-host"), self.tenant, of_host, account(self.host_namespace))?,
        ];
        Ok(documents(&[service_account])? + &roles.concat())
    }
}

/// The verbs of those who have a plugin, on objects of its own kinds: as Kubernetes' role `admin` has them on its kinds.
const ALL: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The subresources of a definition that people use, with their verbs. The plugin writes the status, and `kubectl scale` the scale.
const SUBRESOURCES: [(&str, &[&str]); 2] = [("scale", &["get", "patch", "update"]), ("status", &["get"])];

/// What the administrators of namespaces have to have beside Kubernetes' role `admin`, to grant what a plugin needs: rights to
/// the kinds of its own definitions, and to Events.
pub fn for_tenants(plugin: &str, manifest: &Manifest) -> ClusterRole {
    let own: BTreeSet<String> = manifest.custom_resources.iter().map(|crd| crd.name.to_string()).collect();
    let is_own = |rule: &PolicyRule| {
        let named = |group: &String, resource: &String| {
            own.contains(&format!("{}.{group}", resource.split('/').next().unwrap_or_default()))
        };
        let (groups, resources) = (rule.api_groups.iter().flatten(), rule.resources.iter().flatten());
        groups.into_iter().any(|group| resources.clone().any(|resource| named(group, resource)))
    };
    let mut rules: Vec<PolicyRule> = rules(manifest, None).into_iter().filter(is_own).collect();
    for crd in &manifest.custom_resources {
        let Some((plural, group)) = crd.name.split_once('.') else { continue };
        // Those who have the plugin write its objects too.
        rules.push(rule(group, &[plural], &ALL));
        for (subresource, verbs) in SUBRESOURCES {
            if has_subresource(&crd.body, subresource) {
                rules.push(rule(group, &[&format!("{plural}/{subresource}")], verbs));
            }
        }
    }
    rules.push(rule("events.k8s.io", &["events"], &["create", "patch"]));
    let mut metadata = metadata(&format!("mortise-tenants-{plugin}"), None);
    metadata.labels.get_or_insert_default().extend(label(ADMIN_LABEL, "true"));
    ClusterRole { metadata, rules: Some(rules), aggregation_rule: None }
}

/// Whether a version of the definition has this subresource.
fn has_subresource(definition: &str, name: &str) -> bool {
    let definition: Value = serde_json::from_str(definition).unwrap_or_default();
    let mut versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions.any(|version| version["subresources"].get(name).is_some())
}

/// A Role, and its binding to a subject.
fn bound_role(name: &str, namespace: &str, rules: Vec<PolicyRule>, subject: Subject) -> anyhow::Result<String> {
    let here = || metadata(name, Some(namespace));
    let role = Role { metadata: here(), rules: Some(rules) };
    let role_ref: RoleRef = role_ref("Role", name);
    let binding = RoleBinding { metadata: here(), role_ref, subjects: Some(vec![subject]) };
    Ok([documents(&[role])?, documents(&[binding])?].concat())
}

/// What of these rules an informer needs.
fn watching(rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let lists = |rule: &&PolicyRule| LIST.iter().all(|verb| rule.verbs.iter().any(|has| has == verb));
    let verbs = || LIST.map(str::to_owned).to_vec();
    rules.iter().filter(lists).map(|rule| PolicyRule { verbs: verbs(), ..rule.clone() }).collect()
}
