//! What a manifest says under `customResources`: definitions of the plugin's own kinds. The JSON of each comes in, what the
//! host needs to know of it goes out; the API server checks the rest.

use std::sync::Arc;

use serde::Deserialize;

use super::place::refuse;
use super::protected::is_builtin_group;
use crate::object::Kind;
use crate::refusal::Refusal;

/// A CRD that a manifest brings.
#[derive(Clone, PartialEq, Debug)]
pub struct CustomResource {
    /// "podsets.app.example.com".
    pub name: Arc<str>,
    /// The plural, which is the resource's name in paths and RBAC.
    pub plural: Arc<str>,
    /// Every kind it serves, one per served version.
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
struct RawCrdNames {
    kind: String,
    plural: String,
}

#[derive(Deserialize)]
struct RawCrdVersion {
    name: String,
    #[serde(default)]
    served: bool,
}

/// Reads one definition.
pub(super) fn parse(index: usize, body: &str) -> Result<CustomResource, Refusal> {
    let place = format!("customResources[{index}]");
    let crd: RawCrd = match serde_json::from_str(body) {
        Ok(crd) => crd,
        Err(error) => return refuse(format!("{place}: {error}")),
    };
    if crd.kind != "CustomResourceDefinition" {
        return refuse(format!("{place}: its kind is {:?}, expected CustomResourceDefinition", crd.kind));
    }
    let expected = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
    if crd.metadata.name != expected {
        return refuse(format!("{place}: its name is {:?}, it has to be {expected:?}", crd.metadata.name));
    }
    if crd.spec.conversion.is_some() {
        return refuse(format!(
            "{place}: spec.conversion is the host's to write; leave it out, and name the kind under conversion if the plugin \
             converts it"
        ));
    }
    if is_builtin_group(&crd.spec.group) {
        return Err(Refusal::new(
            "ProtectedGroup",
            format!("{place}: the group {:?} belongs to Kubernetes; take a group of a domain of yours", crd.spec.group),
        ));
    }
    let kinds: Vec<Kind> = crd
        .spec
        .versions
        .iter()
        .filter(|version| version.served)
        .map(|version| Kind::new(&format!("{}/{}", crd.spec.group, version.name), &crd.spec.names.kind))
        .collect();
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
