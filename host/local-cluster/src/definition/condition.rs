//! The conditions of definitions: whether their names are free and whether they are established. Input: the definitions of
//! the store. Output: their status, written. It must not know what they serve.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::check::{Approval, approval};
use super::field::{array, holds, storage, text};
use super::served;
use crate::Cluster;
use crate::managed_fields::{self, Operation};
use crate::resource::Resource;
use crate::store::Object;
use crate::time;

/// One condition without its time: type, status, reason and message.
pub(super) struct Condition(pub(super) &'static str, pub(super) bool, pub(super) &'static str, pub(super) String);

/// Sets a condition. Its time is that of the last change of its status.
pub(super) fn set(definition: &mut Value, condition: &Condition, now: Timestamp) {
    let Condition(kind, status, reason, message) = condition;
    let status = if *status { "True" } else { "False" };
    let mut entry = json!({
        "type": kind, "status": status, "lastTransitionTime": time::seconds(now), "reason": reason, "message": message,
    });
    let mut conditions = array(&definition["status"], "conditions").to_vec();
    match conditions.iter_mut().find(|known| known["type"] == *kind) {
        Some(known) => {
            if known["status"] == status {
                entry["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = entry;
        }
        None => conditions.push(entry),
    }
    if let Some(fields) = definition.as_object_mut() {
        let status = fields.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert("conditions".to_owned(), conditions.into());
        }
    }
}

/// Writes a definition as the API server itself does, if anything changed, and serves what it says.
pub(super) fn write(cluster: &mut Cluster, resource: &Resource, old: &Arc<Object>, mut new: Value, now: Timestamp) {
    if new != *old.value {
        managed_fields::update(
            resource,
            Some(&old.value),
            &mut new,
            "kube-apiserver",
            Operation::Update,
            "status",
            now,
        );
        let stored = cluster.store.put(&storage(), new);
        served::changed(cluster, resource, &stored);
    }
}

/// Accepts the names of a definition where they are free, and establishes it.
pub(super) fn settle(cluster: &mut Cluster, resource: &Resource, name: &str, now: Timestamp) {
    let Some(object) = cluster.store.get(&storage(), "", name).cloned() else { return };
    served::changed(cluster, resource, &object);
    let mut definition = object.value.clone();
    let (spec, status) = (&object.value["spec"], &object.value["status"]);
    if spec["names"] != status["acceptedNames"] || array(status, "conditions").is_empty() {
        let (names, accepted) = accept(cluster, &object.value);
        if let Some(status) = definition.get_mut("status").and_then(Value::as_object_mut) {
            status.insert("acceptedNames".to_owned(), names);
        }
        set(&mut definition, &accepted, now);
        if !holds(&definition, "Established") {
            let established = if accepted.1 {
                Condition("Established", false, "Installing", "the initial names have been accepted".to_owned())
            } else {
                Condition("Established", false, "NotAccepted", "not all names are accepted".to_owned())
            };
            set(&mut definition, &established, now);
        }
        approve(&mut definition, now);
        write(cluster, resource, &object, definition, now);
    }
    let Some(object) = cluster.store.get(&storage(), "", name).cloned() else { return };
    if holds(&object.value, "NamesAccepted") && !holds(&object.value, "Established") {
        let mut definition = object.value.clone();
        let words = "the initial names have been accepted".to_owned();
        set(&mut definition, &Condition("Established", true, "InitialNamesAccepted", words), now);
        write(cluster, resource, &object, definition, now);
    }
}

/// Looks again at the definitions of a group of which one gave names up.
pub(super) fn reconsider(cluster: &mut Cluster, group: &str, now: Timestamp) {
    let Some(resource) = cluster.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned() else {
        return;
    };
    let all = cluster.store.list(&storage(), None, None);
    let waiting =
        all.filter(|object| text(&object.value["spec"], "group") == group && !holds(&object.value, "NamesAccepted"));
    let names: Vec<String> = waiting.map(|object| object.name().to_owned()).collect();
    for name in names {
        settle(cluster, &resource, &name, now);
    }
}

/// The names that a definition may have now, and the condition that says so.
fn accept(cluster: &Cluster, definition: &Value) -> (Value, Condition) {
    let spec = &definition["spec"];
    let (wanted, accepted) = (&spec["names"], &definition["status"]["acceptedNames"]);
    let (mut resources, mut kinds) = (Vec::new(), Vec::new());
    for other in cluster.store.list(&storage(), None, None) {
        if other.value["spec"]["group"] == spec["group"] {
            let names = &other.value["status"]["acceptedNames"];
            resources.extend([&names["plural"], &names["singular"]]);
            resources.extend(array(names, "shortNames"));
            kinds.extend([&names["kind"], &names["listKind"]]);
        }
    }
    let taken = |name: &Value, own: &Value, used: &[&Value]| {
        let free = name == own || !used.contains(&name) || name.as_str().is_none_or(str::is_empty);
        (!free).then(|| format!("{name} is already in use"))
    };
    let mut names = accepted.as_object().cloned().unwrap_or_default();
    let mut condition = Condition("NamesAccepted", true, "NoConflicts", "no conflicts found".to_owned());
    let mut decide = |key: &str, reason: &'static str, conflict: Option<String>| match conflict {
        Some(message) => condition = Condition("NamesAccepted", false, reason, message),
        None if wanted[key].is_null() => drop(names.remove(key)),
        None => drop(names.insert(key.to_owned(), wanted[key].clone())),
    };
    for (key, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        decide(key, reason, taken(&wanted[key], &accepted[key], &resources));
    }
    let own = array(accepted, "shortNames");
    let fresh = array(wanted, "shortNames").iter().filter(|name| !own.contains(name));
    let conflicts: Vec<String> = fresh.filter_map(|name| taken(name, &Value::Null, &resources)).collect();
    let conflict = match conflicts.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    };
    decide("shortNames", "ShortNamesConflict", conflict);
    for (key, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        decide(key, reason, taken(&wanted[key], &accepted[key], &kinds));
    }
    decide("categories", "", None);
    (names.into(), condition)
}

/// Says of a group that belongs to Kubernetes whether its definition was approved.
fn approve(definition: &mut Value, now: Timestamp) {
    let Some((state, message)) = approval(definition) else { return };
    let (status, reason) = match state {
        Approval::Approved => (true, "ApprovedAnnotation"),
        Approval::Bypassed => (false, "UnapprovedAnnotation"),
        Approval::Missing => (false, "MissingAnnotation"),
        Approval::Invalid => (false, "InvalidAnnotation"),
    };
    set(definition, &Condition("KubernetesAPIApprovalPolicyConformant", status, reason, message), now);
}
