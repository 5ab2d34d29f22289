//! The ConfigMaps and Secrets that a Pod needs before its containers start. Input: a Pod. Output: what is missing, in the
//! kubelet's words. It must not know statuses.

use serde_json::Value;

use crate::Cluster;
use crate::controllers::storages::{CONFIG_MAPS, SECRETS};
use crate::resource::Storage;
use crate::store::Object;

/// Where a reference leads to: the storage, and the kind in messages.
type Target = (&'static std::sync::LazyLock<Storage>, &'static str);

const CONFIG_MAP: Target = (&CONFIG_MAPS, "configmap");
const SECRET: Target = (&SECRETS, "secret");

/// The first volume whose source is missing: its name, and why it cannot be mounted.
pub(super) fn missing_volume(cluster: &Cluster, pod: &Object) -> Option<(String, String)> {
    for volume in list(&pod.value["spec"]["volumes"]) {
        let mut sources = vec![volume];
        sources.extend(list(&volume["projected"]["sources"]));
        for source in sources {
            for (target, field, name) in [(CONFIG_MAP, "configMap", "name"), (SECRET, "secret", "secretName")] {
                let of = &source[field];
                // A projected secret says `name`.
                let name = of[name].as_str().or_else(|| of["name"].as_str());
                if let Some(message) = name.and_then(|name| missing(cluster, pod, target, name, of)) {
                    return Some((volume["name"].as_str().unwrap_or_default().to_owned(), message));
                }
            }
        }
    }
    None
}

/// Why a container cannot be created: a variable that is not there.
pub(super) fn missing_variable(cluster: &Cluster, pod: &Object, container: &Value) -> Option<String> {
    for from in list(&container["envFrom"]) {
        for (target, field) in [(CONFIG_MAP, "configMapRef"), (SECRET, "secretRef")] {
            let name = from[field]["name"].as_str();
            if let Some(message) = name.and_then(|name| missing(cluster, pod, target, name, &from[field])) {
                return Some(message);
            }
        }
    }
    for variable in list(&container["env"]) {
        for (target, field) in [(CONFIG_MAP, "configMapKeyRef"), (SECRET, "secretKeyRef")] {
            let of = &variable["valueFrom"][field];
            let (Some(name), Some(key)) = (of["name"].as_str(), of["key"].as_str()) else { continue };
            if let Some(message) = missing(cluster, pod, target, name, of) {
                return Some(message);
            }
            let object = cluster.store.get(target.0, pod.namespace(), name);
            let has = |object: &Object, part: &str| object.value[part].get(key).is_some();
            let found = object.is_some_and(|object| has(object, "data") || has(object, "binaryData"));
            if !found && of["optional"] != true {
                let kind = if target.1 == "secret" { "Secret" } else { "ConfigMap" };
                return Some(format!("couldn't find key {key} in {kind} {}/{name}", pod.namespace()));
            }
        }
    }
    None
}

fn missing(cluster: &Cluster, pod: &Object, (storage, kind): Target, name: &str, of: &Value) -> Option<String> {
    let found = of["optional"] == true || cluster.store.get(storage, pod.namespace(), name).is_some();
    (!found).then(|| format!("{kind} {name:?} not found"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
