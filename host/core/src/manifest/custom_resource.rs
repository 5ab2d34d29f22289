//! `customResources` in a manifest: CRDs of the plugin's own kinds. This module reads the fields that the host needs;
//! the API server checks the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::place::{kind_at, refuse};
use super::protected::{is_builtin_group, is_of_kubernetes};
use crate::kind_pattern::is_label;
use crate::object::Kind;
use crate::refusal::Refusal;
use crate::well_known::{GROUP, PREFIX};

/// A CRD that a manifest brings.
#[derive(Clone, PartialEq, Debug)]
pub struct CustomResource {
    /// "podsets.app.example.com".
    pub name: Arc<str>,
    /// The resource's name in paths and RBAC.
    pub plural: Arc<str>,
    /// One kind per served version.
    pub kinds: Vec<Kind>,
    /// The names of all its versions.
    pub versions: Vec<Arc<str>>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The CRD's JSON text as the manifest has it.
    pub body: Arc<str>,
}

#[derive(Deserialize)]
struct RawCrd {
    kind: String,
    metadata: RawCrdMeta,
    spec: RawCrdSpec,
}

#[derive(Deserialize)]
struct RawCrdMeta {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct RawCrdSpec {
    group: String,
    scope: String,
    names: RawCrdNames,
    versions: Vec<RawCrdVersion>,
    #[serde(default)]
    conversion: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCrdNames {
    kind: String,
    plural: String,
    #[serde(default)]
    short_names: Vec<String>,
}

#[derive(Deserialize)]
struct RawCrdVersion {
    name: String,
    #[serde(default)]
    served: bool,
}

/// Who approved a kind in a group of Kubernetes' projects, or "unapproved" with a reason. The API server demands it (KEP-2337).
const APPROVAL: &str = "api-approved.kubernetes.io";

fn protected_group(crd: &RawCrd) -> Option<String> {
    let group = &crd.spec.group;
    if group == GROUP {
        return Some(format!("the group {GROUP:?} belongs to the host"));
    }
    if is_builtin_group(group) {
        return Some(format!("the group {group:?} belongs to Kubernetes; use a group in a domain of your own"));
    }
    let approval = crd.metadata.annotations.get(APPROVAL).is_some_and(|value| !value.is_empty());
    (is_of_kubernetes(group) && !approval).then(|| {
        format!(
            "the group {group:?} belongs to Kubernetes; use a group in a domain of your own, or say who approved the API in the \
             annotation {APPROVAL}"
        )
    })
}

/// Short names of Kubernetes' own kinds. A person who types one means those, whatever else a client finds first.
const KUBERNETES_SHORT_NAMES: [&str; 31] = [
    "cj", "cm", "crd", "crds", "cs", "csr", "deploy", "ds", "ep", "ev", "hpa", "ing", "ip", "limits", "netpol", "no",
    "ns", "pc", "pdb", "po", "pv", "pvc", "quota", "rc", "rs", "sa", "sc", "sts", "svc", "vac", "vap",
];

/// Why a definition cannot be posted by the host, also if it is granted: members and names that mean something to others.
fn meant_for_others(crd: &RawCrd) -> Option<String> {
    let RawCrdMeta { annotations, labels, others, .. } = &crd.metadata;
    let is_set = |(_, value): &(&String, &serde_json::Value)| !value.is_null();
    if let Some((member, _)) = others.iter().find(is_set) {
        return Some(format!("metadata.{member} is set; a definition has a name, labels and annotations"));
    }
    if let Some(key) = annotations.keys().chain(labels.keys()).find(|key| key.starts_with(PREFIX)) {
        return Some(format!("metadata has {key:?}: everything under {PREFIX} is the host's"));
    }
    let taken = |name: &&String| KUBERNETES_SHORT_NAMES.contains(&name.as_str());
    let name = crd.spec.names.short_names.iter().find(taken)?;
    Some(format!("spec.names.shortNames has {name:?}, which is Kubernetes'"))
}

pub(super) fn parse(index: usize, body: &str) -> Result<CustomResource, Refusal> {
    let place = format!("customResources[{index}]");
    let crd: RawCrd = serde_json::from_str(body).or_else(|error| refuse(format!("{place}: {error}")))?;
    // What is left out above is registered too: a number that no JSON number can hold would fail only then.
    serde_json::from_str::<serde_json::Value>(body).or_else(|error| refuse(format!("{place}: {error}")))?;
    if !body.starts_with('{') {
        return refuse(format!("{place}: it is not a JSON object"));
    }
    if crd.kind != "CustomResourceDefinition" {
        return refuse(format!("{place}: its kind is {:?}, expected CustomResourceDefinition", crd.kind));
    }
    let expected = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
    if crd.metadata.name != expected {
        return refuse(format!("{place}: its name is {:?}, but must be {expected:?}", crd.metadata.name));
    }
    if crd.spec.conversion.is_some() {
        return refuse(format!(
            "{place}: the host writes spec.conversion; leave it out, and name the kind under conversion if the plugin \
             converts it"
        ));
    }
    if let Some(why) = protected_group(&crd) {
        return Err(Refusal::new("ProtectedGroup", format!("{place}: {why}")));
    }
    if let Some(why) = meant_for_others(&crd) {
        return refuse(format!("{place}: {why}"));
    }
    if !is_label(&crd.spec.names.plural) {
        return refuse(format!("{place}: spec.names.plural {:?} is no name of a resource", crd.spec.names.plural));
    }
    let kind = |version: &RawCrdVersion| {
        kind_at(&place, &format!("{}/{}", crd.spec.group, version.name), &crd.spec.names.kind)
    };
    let all: Vec<(Kind, bool)> =
        crd.spec.versions.iter().map(|version| Ok((kind(version)?, version.served))).collect::<Result<_, Refusal>>()?;
    let kinds: Vec<Kind> = all.into_iter().filter_map(|(kind, served)| served.then_some(kind)).collect();
    if kinds.is_empty() {
        return refuse(format!("{place}: no version is served"));
    }
    Ok(CustomResource {
        name: crd.metadata.name.into(),
        plural: crd.spec.names.plural.into(),
        kinds,
        versions: crd.spec.versions.iter().map(|version| version.name.as_str().into()).collect(),
        namespaced: crd.spec.scope == "Namespaced",
        body: body.into(),
    })
}
