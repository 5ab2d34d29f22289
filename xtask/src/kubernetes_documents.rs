//! What kube-apiserver publishes about itself, packed for the local cluster: the discovery document and the OpenAPI v3
//! documents of released versions. Input: the module k8s.io/kubernetes that the control plane is built from. Output:
//! host/local-cluster/data/kubernetes.zst. It must not know how the local cluster reads it, besides the format.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::Path;

use anyhow::{Context, Result, bail};
use mortise_control_plane::module_dir;
use serde_json::{Map, Value, json};

use crate::checkout::Checkout;

/// Where the packed documents are.
pub(crate) const FILE: &str = "host/local-cluster/data/kubernetes.zst";
/// The file that says which version they are of.
const READER: &str = "host/local-cluster/src/published.rs";
/// The file is read once for each start of a local cluster and stored in git: it is made as small as it can be.
const LEVEL: i32 = 19;

/// The documents, not packed yet: for each a line with its name and length, then its bytes and a line end.
pub(crate) fn print(checkout: &Checkout) -> Result<Vec<u8>> {
    let module = module_dir(&checkout.path("tests/control-plane/kubernetes"), "k8s.io/kubernetes")?;
    let version = module.to_string_lossy().rsplit('@').next().unwrap_or_default().to_owned();
    let reader = fs::read_to_string(checkout.path(READER)).with_context(|| format!("read {READER}"))?;
    if !reader.contains(&format!("KUBERNETES: &str = \"{version}\"")) {
        bail!(
            "{READER} does not say that its documents are those of Kubernetes {version}: change its constant KUBERNETES"
        );
    }
    let mut out = Vec::new();
    add(&mut out, "discovery", &discovery(&module.join("api/discovery"))?);
    let dir = module.join("api/openapi-spec/v3");
    let entries = fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.with_context(|| format!("list {}", dir.display()))?.file_name();
        files.extend(file.into_string());
    }
    files.sort();
    for file in files {
        let Some(name) = file.strip_suffix("_openapi.json") else { continue };
        let name = name.replace("__", "/");
        let parts: Vec<&str> = name.split('/').collect();
        // The local cluster has no OpenID configuration, the one document with a point in front.
        let is_served = match parts.as_slice() {
            [_, _, version] => is_released(version),
            _ => !name.starts_with('.'),
        };
        if is_served {
            add(&mut out, &name, &read(&dir.join(&file))?);
        }
    }
    Ok(out)
}

pub(crate) fn pack(documents: &[u8]) -> Result<Vec<u8>> {
    zstd::encode_all(Cursor::new(documents), LEVEL).context("pack the documents")
}

pub(crate) fn unpack(file: &Path) -> Result<Vec<u8>> {
    let packed = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    zstd::decode_all(Cursor::new(packed)).with_context(|| format!("unpack {}", file.display()))
}

fn add(out: &mut Vec<u8>, name: &str, document: &Value) {
    let text = sorted(document).to_string();
    out.extend(format!("{name} {}\n{text}\n", text.len()).into_bytes());
}

/// The same value with the members of objects in order, whatever map serde_json was built with.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, Value> = fields.iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(fields.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn read(file: &Path) -> Result<Value> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", file.display()))
}

/// Whether a version is served without being asked for: `v1`, not `v1beta1`.
fn is_released(version: &str) -> bool {
    version.strip_prefix('v').is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The aggregated discovery document with the released versions, the core group among them.
fn discovery(dir: &Path) -> Result<Value> {
    let mut items = vec![core(&read(&dir.join("api__v1.json"))?)];
    let mut document = read(&dir.join("aggregated_v2.json"))?;
    for group in document["items"].as_array_mut().context("the discovery document has no items")? {
        let versions = group["versions"].as_array().into_iter().flatten();
        let released = versions.filter(|version| version["version"].as_str().is_some_and(is_released));
        let released: Vec<Value> = released.cloned().collect();
        if !released.is_empty() {
            items.push(json!({"metadata": group["metadata"], "versions": released}));
        }
    }
    Ok(json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    }))
}

/// The core group, of which Kubernetes publishes the plain document alone, as an item of the aggregated one.
fn core(list: &Value) -> Value {
    let mut resources: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for entry in list["resources"].as_array().into_iter().flatten() {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let kind = json!({"group": text("group"), "version": text("version"), "kind": text("kind")});
        let verbs = &entry["verbs"];
        match text("name").split_once('/') {
            Some((name, part)) => {
                let resource = resources.entry(name.to_owned()).or_default();
                let parts = resource.entry("subresources").or_insert_with(|| json!([]));
                let part = json!({"subresource": part, "responseKind": kind, "verbs": verbs});
                parts.as_array_mut().into_iter().for_each(|parts| parts.push(part.clone()));
            }
            None => {
                let resource = resources.entry(text("name").to_owned()).or_default();
                let scope = if entry["namespaced"] == true { "Namespaced" } else { "Cluster" };
                let mut fields = json!({
                    "resource": text("name"), "responseKind": kind, "scope": scope,
                    "singularResource": text("singularName"), "verbs": verbs,
                });
                for key in ["shortNames", "categories"].into_iter().filter(|key| entry[*key].is_array()) {
                    fields[key] = entry[key].clone();
                }
                resource.extend(fields.as_object().cloned().unwrap_or_default());
            }
        }
    }
    let resources: Vec<Map<String, Value>> = resources.into_values().collect();
    let version = json!({"freshness": "Current", "version": "v1", "resources": resources});
    json!({"metadata": {"name": ""}, "versions": [version]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_released_versions_are_kept() {
        let cases = [("v1", true), ("v12", true), ("v1beta1", false), ("v", false), ("apps", false)];
        for (version, wanted) in cases {
            assert_eq!(is_released(version), wanted, "{version}");
        }
    }

    #[test]
    fn subresources_of_the_core_group_belong_to_their_resource() {
        let list = json!({"resources": [
            {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["get"], "shortNames": ["po"]},
            {"name": "pods/eviction", "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]},
        ]});
        let found = core(&list);
        let pods = &found["versions"][0]["resources"][0];
        assert_eq!(
            (&pods["resource"], &pods["scope"], &pods["shortNames"]),
            (&json!("pods"), &json!("Namespaced"), &json!(["po"]))
        );
        let wanted = json!([{"subresource": "eviction", "verbs": ["create"],
            "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"}}]);
        assert_eq!(pods["subresources"], wanted);
    }

    #[test]
    fn packed_documents_are_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.zst");
        fs::write(&file, pack(b"discovery 2\n{}\n").unwrap()).unwrap();
        assert_eq!(unpack(&file).unwrap(), b"discovery 2\n{}\n");
    }
}
