//! Default classes: of storage, of Ingresses, of priorities. Input: an object that may lack its class. Output: the object
//! with the default. It must not know who serves a class.

use serde_json::{Value, json};

use super::reading::{forbidden, kind, text};
use crate::Cluster;
use crate::attributes::Attributes;
use crate::halt::Halt;
use crate::resource::Storage;

/// The newest class with the annotation that makes it the default.
fn default(cluster: &Cluster, group: &str, plural: &str, annotation: &str) -> Option<String> {
    let storage = Storage::new(group, plural);
    let all = cluster.store.list(&storage, None, None);
    let defaults = all.filter(|class| class.value["metadata"]["annotations"][annotation] == "true");
    let newest = defaults.max_by_key(|class| {
        let made = class.value["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        (made, std::cmp::Reverse(class.name().to_owned()))
    });
    newest.map(|class| class.name().to_owned())
}

/// DefaultStorageClass.
pub(super) fn storage(cluster: &Cluster, claim: &mut Value) {
    let old_style = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    if !claim["spec"].is_object() || !claim["spec"]["storageClassName"].is_null() || !old_style.is_null() {
        return;
    }
    let annotation = "storageclass.kubernetes.io/is-default-class";
    if let Some(class) = default(cluster, "storage.k8s.io", "storageclasses", annotation) {
        claim["spec"]["storageClassName"] = class.into();
    }
}

/// DefaultIngressClass.
pub(super) fn ingress(cluster: &Cluster, ingress: &mut Value) {
    if ingress["spec"].is_null() {
        ingress["spec"] = json!({});
    }
    let old_style = &ingress["metadata"]["annotations"]["kubernetes.io/ingress.class"];
    if !ingress["spec"].is_object() || !ingress["spec"]["ingressClassName"].is_null() || !old_style.is_null() {
        return;
    }
    let annotation = "ingressclass.kubernetes.io/is-default-class";
    if let Some(class) = default(cluster, "networking.k8s.io", "ingressclasses", annotation) {
        ingress["spec"]["ingressClassName"] = class.into();
    }
}

/// Priority, of the classes themselves: at most one is the default.
pub(super) fn one_default_priority(cluster: &Cluster, attributes: &Attributes, class: &Value) -> Result<(), Halt> {
    if kind(attributes) != ("scheduling.k8s.io", "priorityclasses") || class["globalDefault"] != true {
        return Ok(());
    }
    let name = text(&class["metadata"], "name");
    let mut all = cluster.store.list(&attributes.resource.storage, None, None);
    match all.find(|other| other.value["globalDefault"] == true && other.name() != name) {
        Some(other) => {
            let other = other.name();
            let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
            Err(forbidden(attributes, class, &why))
        }
        None => Ok(()),
    }
}
