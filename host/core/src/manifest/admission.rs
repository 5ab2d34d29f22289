//! `admission` in a manifest: the kinds with admission webhooks of the plugin. This module checks the entries;
//! [`crate::admission`] makes webhooks of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::controller::ControllerSpec;
use super::custom_resource::CustomResource;
use super::place::{kind_at, refuse};
use super::protected::not_for_admission;
use crate::object::Kind;
use crate::refusal::Refusal;

/// The admission of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmissionSpec {
    /// The kind, in the version in which the plugin sees the objects.
    pub kind: Kind,
    /// The plural name, "mydaemonsets", of a kind that the plugin brings; discovery knows those of other kinds.
    pub resource: Option<Arc<str>>,
    /// The operations that are reviewed.
    pub operations: Operations,
    /// The plugin sets defaults.
    pub mutate: bool,
    /// The plugin validates.
    pub validate: bool,
}

/// Operations of the API server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operations {
    /// CREATE.
    pub create: bool,
    /// UPDATE.
    pub update: bool,
    /// DELETE.
    pub delete: bool,
}

impl AdmissionSpec {
    /// Whether the plugin brings the kind. Then nothing else can validate its objects.
    pub fn is_own(&self) -> bool {
        self.resource.is_some()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Raw {
    api_version: String,
    kind: String,
    #[serde(default)]
    operations: Option<Vec<String>>,
    #[serde(default)]
    mutate: bool,
    #[serde(default)]
    validate: bool,
}

pub(super) fn specs(
    raw: Vec<Raw>,
    crds: &[CustomResource],
    controllers: &[ControllerSpec],
) -> Result<Vec<AdmissionSpec>, Refusal> {
    let mut resources = BTreeSet::new();
    let mut specs = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let place = format!("admission[{index}]");
        let spec = spec(&place, &raw, crds, controllers)?;
        if !resources.insert((spec.kind.group().to_owned(), Arc::clone(&spec.kind.kind))) {
            return refuse(format!(
                "{place}: {} has two entries; the API server converts other versions to the one in the entry",
                spec.kind
            ));
        }
        specs.push(spec);
    }
    Ok(specs)
}

fn spec(
    place: &str,
    raw: &Raw,
    crds: &[CustomResource],
    controllers: &[ControllerSpec],
) -> Result<AdmissionSpec, Refusal> {
    let kind = kind_at(place, &raw.api_version, &raw.kind)?;
    let crd = crds.iter().find(|crd| crd.kinds.contains(&kind));
    if crd.is_none() && !controllers.iter().any(|controller| controller.primary == kind) {
        return refuse(format!(
            "{place}: this plugin neither brings nor reconciles {kind}, so it may not refuse its objects"
        ));
    }
    if let Some(why) = not_for_admission(&kind) {
        return Err(Refusal::new("ProtectedKind", format!("{place}: {kind} has no admission by plugins: {why}")));
    }
    let operations = operations(place, raw.operations.as_deref())?;
    if !raw.mutate && !raw.validate {
        return refuse(format!("{place}: neither mutate nor validate is true, so there is nothing to call"));
    }
    if raw.mutate && !(operations.create || operations.update) {
        return refuse(format!("{place}.mutate: a deleted object takes no defaults"));
    }
    if operations.delete && !raw.validate {
        return refuse(format!("{place}.operations: \"delete\" is only validated, and validate is not true"));
    }
    let resource = crd.map(|crd| Arc::clone(&crd.plural));
    Ok(AdmissionSpec { kind, resource, operations, mutate: raw.mutate, validate: raw.validate })
}

fn operations(place: &str, raw: Option<&[String]>) -> Result<Operations, Refusal> {
    let Some(raw) = raw else { return Ok(Operations { create: true, update: true, delete: false }) };
    let mut operations = Operations::default();
    for operation in raw {
        match operation.as_str() {
            "create" => operations.create = true,
            "update" => operations.update = true,
            "delete" => operations.delete = true,
            other => {
                return refuse(format!(
                    "{place}.operations: {other:?} is none of \"create\", \"update\" and \"delete\""
                ));
            }
        }
    }
    if operations == Operations::default() {
        return refuse(format!("{place}.operations: there is none, so there is nothing to call"));
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::protected::{EXCEPT_GROUPS, PROTECTED_RESOURCES, protected_groups};
    use crate::manifest::Manifest;
    use crate::well_known::GROUP;

    fn quoted(words: impl IntoIterator<Item = String>) -> String {
        format!("[{}]", words.into_iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn the_policy_of_webhooks_refuses_what_manifests_may_not_have() {
        let policies = include_str!("../../../../deploy/base/admission-policy.yaml");
        let policies = policies.split_whitespace().collect::<Vec<_>>().join(" ");
        let groups = ["*", GROUP].into_iter().chain(protected_groups()).map(str::to_owned);
        let resources = PROTECTED_RESOURCES.map(|(group, _, plural)| format!("{group}/{plural}"));
        let expression = format!(
            "r.resources.all(s, s.matches('^[a-z0-9]+$') && r.apiGroups.all(g, !(g in {}) && !((g + '/' + s) in {}))))",
            quoted(groups),
            quoted(resources),
        );
        assert!(policies.contains(&expression), "the policy mortise-host-webhooks needs: {expression}");
        let others = format!("!g.contains('.') || g in {}", quoted(EXCEPT_GROUPS.map(str::to_owned)));
        assert!(policies.contains(&others), "the policy mortise-host-webhooks needs: {others}");
    }

    #[test]
    fn g10_kinds_by_which_a_cluster_is_run_or_repaired_have_no_admission_by_plugins() {
        let admits = |api_version: &str, kind: &str| {
            let kind = json!({"apiVersion": api_version, "kind": kind});
            let mut admission = kind.clone();
            admission["validate"] = json!(true);
            let manifest = json!({
                "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "a",
                "controllers": [{"for": kind}], "admission": [admission],
            });
            match Manifest::parse(&manifest.to_string()) {
                Ok(_) => true,
                Err(refusal) => {
                    assert_eq!(refusal.reason, "ProtectedKind", "{}", refusal.message);
                    false
                }
            }
        };
        for (group, kind, _) in PROTECTED_RESOURCES {
            let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
            assert!(!admits(&api_version, kind), "{api_version} {kind}");
        }
        for (api_version, kind) in [
            ("certificates.k8s.io/v1", "CertificateSigningRequest"),
            ("storage.k8s.io/v1", "VolumeAttachment"),
            ("storage.k8s.io/v1", "CSINode"),
            ("discovery.k8s.io/v1", "EndpointSlice"),
            ("scheduling.k8s.io/v1", "PriorityClass"),
            ("node.k8s.io/v1", "RuntimeClass"),
            ("rbac.authorization.k8s.io/v1", "Role"),
        ] {
            assert!(!admits(api_version, kind), "{api_version} {kind}");
        }
        for (api_version, kind) in [
            ("v1", "Pod"),
            ("v1", "PersistentVolumeClaim"),
            ("apps/v1", "Deployment"),
            ("networking.k8s.io/v1", "Ingress"),
            ("example.com/v1", "Web"),
        ] {
            assert!(admits(api_version, kind), "{api_version} {kind}");
        }
    }
}
