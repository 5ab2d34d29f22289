//! ConfigMapReplica copies a ConfigMap into every Namespace that a selector matches. An object, its source and the
//! Namespaces go in, one copy for each Namespace comes out. The host marks the copies, removes those of Namespaces that
//! do not match any more, and all of them with their ConfigMapReplica.

use std::collections::BTreeMap;

use mortise_sdk::prelude::*;

#[cfg(test)]
mod tests;

/// Copies a ConfigMap into other Namespaces.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "replication.mortise.dev", version = "v1alpha1", kind = "ConfigMapReplica", status = ConfigMapReplicaStatus,
    short_name = "cmr",
    column(name = "Source", path = ".spec.source"),
    column(name = "Copies", type = "integer", path = ".status.copies"),
    column(name = "Ready", path = ".status.conditions[?(@.type=='Ready')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Ready')].message", wide)
)]
pub struct ConfigMapReplicaSpec {
    /// The name of a ConfigMap in this object's own namespace. Its copies have the same name.
    pub source: String,
    /// The Namespaces that get a copy, by their labels. This object's own is never one of them.
    pub namespaces: LabelSelector,
}

/// The last observed state of a ConfigMapReplica.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct ConfigMapReplicaStatus {
    /// How many copies exist.
    pub copies: usize,
}

/// A ConfigMap, as a source and as a copy.
#[derive(Projection)]
#[projection("v1/ConfigMap")]
struct ConfigMap {
    #[field("data")]
    data: Option<BTreeMap<String, String>>,
    #[field("binaryData")]
    binary_data: Option<BTreeMap<String, String>>,
}

/// The fields of a copy that are read.
#[derive(Projection)]
#[projection("v1/ConfigMap")]
struct Replicated<'a> {
    #[field("metadata.namespace")]
    namespace: &'a str,
}

#[derive(Projection)]
#[projection("v1/Namespace")]
struct Namespace<'a> {
    #[field("metadata.name")]
    name: &'a str,
    #[field("status.phase")]
    phase: Option<&'a str>,
}

#[reconciler(owns("v1/ConfigMap", namespaces = "any"), reads("v1/Namespace"))]
fn reconcile(replica: &ConfigMapReplica, cx: &Context) -> Result<Outcome<ConfigMapReplicaStatus>, Failure> {
    let ConfigMapReplicaSpec { source: name, namespaces } = &replica.spec;
    let own = replica.metadata.namespace.as_deref().unwrap_or_default();
    let Some(source) = cx.get::<ConfigMap>(Some(own), name)? else {
        // The copies stay as they are: a source that is replaced is absent for a moment.
        return Ok(Outcome::new().ready(false, "SourceNotFound", format!("there is no ConfigMap {name} to copy")));
    };
    let selected = cx.list(&Query::<Namespace>::new().selector(namespaces.text()?))?;
    // Nothing can be created in a Namespace that is being deleted.
    let is_open = |namespace: &&Namespace| namespace.name != own && namespace.phase != Some("Terminating");
    let wanted: Vec<&str> = selected.iter().filter(is_open).map(|namespace| namespace.name).collect();
    let copy = |namespace: &&str| {
        let metadata = json!({"name": name, "namespace": namespace});
        let mut copy = json!({"metadata": metadata});
        for (field, map) in [("data", &source.data), ("binaryData", &source.binary_data)] {
            if let Some(map) = map {
                copy[field] = json!(map);
            }
        }
        Child::new(*namespace, Json::of_kind("v1", "ConfigMap", &copy)).exact("data").exact("binaryData")
    };
    let copies: Vec<Replicated> = cx.owned()?;
    let done = copies.iter().filter(|copy| wanted.contains(&copy.namespace)).count();
    let is_ready = done == wanted.len() && copies.len() == done;
    let message = format!("{done} of {} Namespaces have a copy", wanted.len());
    Ok(Outcome::children(wanted.iter().map(copy)).status(&ConfigMapReplicaStatus { copies: copies.len() }).ready(
        is_ready,
        if is_ready { "Copied" } else { "Copying" },
        message,
    ))
}
