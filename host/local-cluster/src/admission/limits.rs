//! LimitRanger: default resources of containers, and the least and the most that a namespace allows. Input: Pods and claims.
//! Output: the same, completed, or a refusal. It must not know quotas.

use std::sync::Arc;

use serde_json::{Value, json};

use super::reading::{all_of, array, forbidden, kind, text};
use crate::Cluster;
use crate::amounts::{Quantities, needs, quantities};
use crate::attributes::Attributes;
use crate::halt::Halt;
use crate::resource::Storage;
use crate::store::Object;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

fn ranges(cluster: &Cluster, namespace: &str) -> Vec<Arc<Object>> {
    cluster.store.list(&Storage::new("", "limitranges"), Some(namespace), None).cloned().collect()
}

/// Gives containers the resources that their namespace has defaults for.
pub(super) fn default(cluster: &Cluster, attributes: &Attributes, pod: &mut Value) {
    for range in ranges(cluster, &attributes.namespace) {
        let mut defaults = json!({"requests": {}, "limits": {}});
        for limit in array(&range.value["spec"], "limits").iter().filter(|limit| limit["type"] == "Container") {
            for (key, from) in [("requests", "defaultRequest"), ("limits", "default")] {
                for (name, amount) in limit[from].as_object().into_iter().flatten() {
                    defaults[key][name.as_str()] = amount.clone();
                }
            }
        }
        let mut set = Vec::new();
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                for (key, one) in [("requests", "request"), ("limits", "limit")] {
                    let names = fill(container, key, &defaults[key]);
                    if !names.is_empty() {
                        set.push(format!("{} {one} for {what} {}", names.join(", "), text(container, "name")));
                    }
                }
            }
        }
        if !set.is_empty() && pod["metadata"].is_object() {
            if !pod["metadata"]["annotations"].is_object() {
                pod["metadata"]["annotations"] = json!({});
            }
            let said = format!("LimitRanger plugin set: {}", set.join("; "));
            pod["metadata"]["annotations"][ANNOTATION] = said.into();
        }
    }
}

/// Adds the defaults that a container lacks, and gives their names.
fn fill(container: &mut Value, key: &str, defaults: &Value) -> Vec<String> {
    let mut names = Vec::new();
    let Some(container) = container.as_object_mut() else { return names };
    for (name, amount) in defaults.as_object().into_iter().flatten() {
        let resources = container.entry("resources").or_insert_with(|| json!({}));
        if !resources.is_object() || !(resources[key].is_object() || resources[key].is_null()) {
            return names;
        }
        if resources[key][name.as_str()].is_null() {
            resources[key][name.as_str()] = amount.clone();
            names.push(name.clone());
        }
    }
    names
}

/// Refuses what is outside of the limits.
pub(super) fn validate(
    cluster: &Cluster,
    attributes: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Halt> {
    let what = kind(attributes);
    let pods = what == ("", "pods") && old.is_none();
    let dies = old.is_some_and(|old| !old["metadata"]["deletionTimestamp"].is_null());
    if !pods && what != ("", "persistentvolumeclaims") || dies {
        return Ok(());
    }
    for range in ranges(cluster, &attributes.namespace) {
        let mut wrong = Vec::new();
        for limit in array(&range.value["spec"], "limits") {
            match (text(limit, "type"), pods) {
                ("Container", true) => {
                    for list in ["containers", "initContainers"] {
                        for container in array(&object["spec"], list) {
                            let of = |key: &str| quantities(&container["resources"][key]);
                            check(limit, &of("requests"), Some(&of("limits")), &mut wrong);
                        }
                    }
                }
                ("Pod", true) => {
                    let (requests, limits) = (needs(object, "requests"), needs(object, "limits"));
                    check(limit, &requests, Some(&limits), &mut wrong);
                }
                ("PersistentVolumeClaim", false) => {
                    check(limit, &quantities(&object["spec"]["resources"]["requests"]), None, &mut wrong);
                }
                _ => {}
            }
        }
        if !wrong.is_empty() {
            return Err(forbidden(attributes, object, &all_of(&wrong)));
        }
    }
    Ok(())
}

/// Checks one limit's minimum, maximum and ratio. Claims have requests alone.
fn check(limit: &Value, requests: &Quantities, limits: Option<&Quantities>, wrong: &mut Vec<String>) {
    let kind = text(limit, "type");
    let none = Quantities::new();
    let (has_limits, limits) = (limits.is_some(), limits.unwrap_or(&none));
    for (name, least) in quantities(&limit["min"]) {
        let start = format!("minimum {name} usage per {kind} is {}", least.text());
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => wrong.push(format!("{start}.  No request is specified")),
            (Some(request), _) if request.nano < least.nano => {
                wrong.push(format!("{start}, but request is {}", request.text()));
            }
            (_, Some(limit)) if limit.nano < least.nano => {
                wrong.push(format!("{start}, but limit is {}", limit.text()));
            }
            _ => {}
        }
    }
    for (name, most) in quantities(&limit["max"]) {
        let start = format!("maximum {name} usage per {kind} is {}", most.text());
        match (requests.get(&name), limits.get(&name)) {
            (_, None) if has_limits => wrong.push(format!("{start}.  No limit is specified")),
            (None, None) => wrong.push(format!("{start}.  No request is specified")),
            (_, Some(limit)) if limit.nano > most.nano => wrong.push(format!("{start}, but limit is {}", limit.text())),
            (Some(request), _) if request.nano > most.nano => {
                wrong.push(format!("{start}, but request is {}", request.text()));
            }
            _ => {}
        }
    }
    for (name, ratio) in quantities(&limit["maxLimitRequestRatio"]).into_iter().filter(|_| has_limits) {
        let start = format!("{name} max limit to request ratio per {kind} is {}", ratio.text());
        let nano = |amounts: &Quantities| amounts.get(&name).map_or(0, |amount| amount.nano);
        match (nano(requests), nano(limits)) {
            (0, _) => wrong.push(format!("{start}, but no request is specified or request is 0")),
            (_, 0) => wrong.push(format!("{start}, but no limit is specified or limit is 0")),
            (request, most) => {
                #[expect(clippy::cast_precision_loss, reason = "the API server compares ratios as floats, too")]
                let (found, allowed) = (most as f64 / request as f64, ratio.nano as f64 / 1e9);
                if found > allowed {
                    wrong.push(format!("{start}, but provided ratio is {found:.6}"));
                }
            }
        }
    }
}
