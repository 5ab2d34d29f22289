//! What a manifest says under `admission`: the kinds whose objects a plugin checks or completes before they are stored.
//! Raw entries come in, checked ones go out. Which webhooks that means is said in [`crate::admission`].

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::controller::ControllerSpec;
use super::custom_resource::CustomResource;
use super::place::{kind_at, refuse};
use crate::object::Kind;
use crate::refusal::Refusal;
use crate::well_known::GROUP;

/// One kind whose objects a plugin is asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmissionSpec {
    /// The kind, in the version in which the plugin sees the objects.
    pub kind: Kind,
    /// The name of its resource, "mydaemonsets", when the plugin brings the kind; discovery names the others'.
    pub resource: Option<Arc<str>>,
    /// What is asked about.
    pub operations: Operations,
    /// The plugin fills in defaults.
    pub mutate: bool,
    /// The plugin checks.
    pub validate: bool,
}

/// Operations of the API server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operations {
    /// A new object.
    pub create: bool,
    /// A changed one.
    pub update: bool,
    /// One that is to be deleted.
    pub delete: bool,
}

impl AdmissionSpec {
    /// Whether the plugin brings the kind: without the plugin nobody can say what a good object of it is.
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

/// Checks every entry.
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
                "{place}: {} is there twice; the API server converts other versions to the one that is named",
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
            "{place}: {kind} is neither brought nor reconciled by this plugin, and what is others' is not its to refuse"
        ));
    }
    if let Some(why) = protected(&kind) {
        return Err(Refusal::new("ProtectedKind", format!("{place}: {kind} has no admission by plugins: {why}")));
    }
    let operations = operations(place, raw.operations.as_deref())?;
    if !raw.mutate && !raw.validate {
        return refuse(format!("{place}: neither mutate nor validate is true, so there is nothing to ask"));
    }
    if raw.mutate && !(operations.create || operations.update) {
        return refuse(format!("{place}.mutate: what is deleted has no defaults to fill in"));
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
        return refuse(format!("{place}.operations: there is none, so nothing is ever asked"));
    }
    Ok(operations)
}

/// Kinds by which a cluster, or a webhook that went wrong, is mended. No webhook of a plugin stands before them.
fn protected(kind: &Kind) -> Option<&'static str> {
    match (kind.group(), &*kind.kind) {
        (GROUP, _) => Some("the host keeps it"),
        (
            "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "authentication.k8s.io"
            | "authorization.k8s.io"
            | "rbac.authorization.k8s.io"
            | "coordination.k8s.io"
            | "flowcontrol.apiserver.k8s.io",
            _,
        )
        | ("", "Namespace" | "Node" | "Event" | "Secret" | "ServiceAccount" | "Binding")
        | ("events.k8s.io", "Event") => Some("clusters are run and mended by it"),
        _ => None,
    }
}
