//! `admission` in a manifest: the kinds with admission webhooks of the plugin. This module checks the entries;
//! [`crate::admission`] makes webhooks of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::controller::ControllerSpec;
use super::custom_resource::CustomResource;
use super::place::{kind_at, refuse};
use crate::object::Kind;
use crate::refusal::Refusal;
use crate::well_known::GROUP;

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
    if let Some(why) = protected(&kind) {
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

/// The groups and the kinds of the core group that administrators need to repair a cluster or a broken webhook. No plugin has a
/// webhook for them. A policy of deploy/ holds the host to it.
const PROTECTED_GROUPS: [&str; 8] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "rbac.authorization.k8s.io",
    "coordination.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];
const PROTECTED_KINDS: [&str; 6] = ["Namespace", "Node", "Event", "Secret", "ServiceAccount", "Binding"];

fn protected(kind: &Kind) -> Option<&'static str> {
    let is_protected = match kind.group() {
        GROUP => return Some("it belongs to the host"),
        "" => PROTECTED_KINDS.contains(&&*kind.kind),
        "events.k8s.io" => &*kind.kind == "Event",
        group => PROTECTED_GROUPS.contains(&group),
    };
    is_protected.then_some("the cluster needs it to run or to be repaired")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_of_webhooks_refuses_what_manifests_may_not_have() {
        let policies = include_str!("../../../../deploy/base/admission-policy.yaml");
        let plurals = PROTECTED_KINDS.map(|kind| format!("{}s", kind.to_lowercase()));
        let groups = PROTECTED_GROUPS.into_iter().chain([GROUP, "events.k8s.io"]);
        for word in groups.chain(plurals.iter().map(String::as_str)) {
            assert!(policies.contains(&format!("'{word}'")), "{word}");
        }
    }
}
