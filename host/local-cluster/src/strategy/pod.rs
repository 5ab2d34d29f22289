//! What is special about Pods: their quality of service, how long they take to end, what an update may change. Input: Pods.
//! Output: Pods, and causes. It must not know kubelets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::field::{Causes, Path, is_empty, items, quantity, text};
use super::fill::{at_mut, set};
use crate::quantity::Quantity;

/// The seconds that a Pod that says nothing takes to end.
const GRACE: i64 = 30;

/// Sets the status of a new Pod.
pub(super) fn first_status(value: &mut Value) {
    let mut status = json!({"phase": "Pending", "qosClass": quality(&value["spec"])});
    if !is_empty(&value["spec"]["schedulingGates"])
        && let Some(fields) = status.as_object_mut()
    {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "lastTransitionTime": null, "message": "Scheduling is blocked due to non-empty scheduling gates",
        });
        fields.insert("conditions".to_owned(), json!([condition]));
    }
    set(value, "status", Some(status));
}

/// The quality of service that a Pod's requests and limits come to.
pub(crate) fn quality(spec: &Value) -> &'static str {
    let whole = &spec["resources"];
    let containers: Vec<&Value> = if whole.is_object() {
        vec![whole]
    } else {
        let all = items(&spec["containers"]).iter().chain(items(&spec["initContainers"]));
        all.map(|container| &container["resources"]).collect()
    };
    let mut guaranteed = true;
    let mut sums: [BTreeMap<&str, Quantity>; 2] = Default::default();
    for resources in containers {
        for (list, sums) in ["requests", "limits"].into_iter().zip(&mut sums) {
            let amounts = ["cpu", "memory"].map(|name| (name, quantity(&resources[list][name])));
            let mut found = 0;
            for (name, amount) in amounts {
                let Some(amount) = amount.filter(|amount| amount.sign() > 0) else { continue };
                found += 1;
                let sum = sums.get(name).map_or(amount, |sum| amount.plus(*sum));
                sums.insert(name, sum);
            }
            guaranteed &= list == "requests" || found == 2;
        }
    }
    let [requests, limits] = sums;
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let same = requests.iter().cmp(limits.iter()).is_eq();
    if guaranteed && same { "Guaranteed" } else { "Burstable" }
}

/// How many seconds the deletion of a Pod waits.
pub(crate) fn grace(value: &Value, wanted: Option<i64>) -> i64 {
    // A negative period is as good as none.
    let positive = |seconds: i64| if seconds < 0 { 1 } else { seconds };
    let metadata = &value["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        // A deletion that is under way can be made shorter only.
        let before = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        return wanted.map_or(before, |wanted| positive(wanted).min(before));
    }
    let finished = matches!(text(&value["status"]["phase"]), "Succeeded" | "Failed");
    if finished || is_empty(&value["spec"]["nodeName"]) {
        return 0;
    }
    let own = value["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(GRACE);
    positive(wanted.unwrap_or(own))
}

/// What an update of the status may not take away.
pub(super) fn keep_in_status(new: &mut Value, old: &Value) {
    for name in ["qosClass", "observedGeneration"] {
        if let (true, Some(kept)) = (is_empty(&new["status"][name]), old["status"].get(name)) {
            let kept = kept.clone();
            set(new, &format!("status.{name}"), Some(kept));
        }
    }
    let before = &old["status"]["conditions"];
    let conditions = at_mut(new, "status.conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let was = items(before).iter().find(|was| was["type"] == condition["type"]);
        let generation = was.and_then(|was| was.get("observedGeneration"));
        if let (Some(generation), true) = (generation, is_empty(&condition["observedGeneration"])) {
            set(condition, "observedGeneration", Some(generation.clone()));
        }
    }
}

/// `/resize` changes the resources of containers and nothing else.
pub(super) fn keep_all_but_resources(new: &mut Value, old: &Value) {
    let mut kept = old.clone();
    for name in ["containers", "initContainers"] {
        let Some(list) = kept.pointer_mut(&format!("/spec/{name}")).and_then(Value::as_array_mut) else { continue };
        for container in list {
            let wanted = items(&new["spec"][name]).iter().find(|wanted| wanted["name"] == container["name"]);
            for field in ["resources", "resizePolicy"] {
                if let Some(value) = wanted.and_then(|wanted| wanted.get(field)) {
                    set(container, field, Some(value.clone()));
                }
            }
        }
    }
    let metadata = new["metadata"].clone();
    set(&mut kept, "metadata", Some(metadata));
    *new = kept;
}

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                         `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                         `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Refuses what the update of a Pod may not change.
pub(super) fn check_update(new: &Value, old: &Value, causes: &mut Causes) {
    let root = Path::Root;
    let path = Path::Field(&root, "spec");
    let (spec, before) = (&new["spec"], &old["spec"]);
    if spec == before {
        return;
    }
    for name in ["containers", "initContainers"] {
        let place = Path::Field(&path, name);
        if items(&spec[name]).len() != items(&before[name]).len() {
            return causes.forbidden(&place, "pod updates may not add or remove containers");
        }
        for (index, container) in items(&spec[name]).iter().enumerate() {
            let image = text(&container["image"]);
            if image.trim() != image {
                let place = Path::Index(&place, index);
                let words = "must not have leading or trailing whitespace";
                causes.invalid(&Path::Field(&place, "image"), &container["image"], words);
            }
        }
    }
    if !deadline_is_fine(spec, before, &path, causes) {
        return;
    }
    let tolerated = |old: &Value| {
        items(&spec["tolerations"]).iter().any(|new| {
            let same = |name: &str| new[name] == old[name];
            ["key", "operator", "value", "effect"].into_iter().all(same)
        })
    };
    if !items(&before["tolerations"]).iter().all(tolerated) {
        let words = "existing toleration can not be modified except its tolerationSeconds";
        causes.forbidden(&Path::Field(&path, "tolerations"), words);
    }
    let gates = items(&before["schedulingGates"]);
    if items(&spec["schedulingGates"]).iter().any(|gate| !gates.contains(gate)) {
        let words = "only deletion is allowed, but found new scheduling gate";
        causes.forbidden(&Path::Field(&path, "schedulingGates"), words);
    }
    let munged = munged(spec, before, !gates.is_empty());
    if munged != *before {
        causes.forbidden(&path, &format!("{UPDATABLE}\n{}", super::diff::unified(before, &munged)));
    }
}

fn deadline_is_fine(spec: &Value, before: &Value, path: &Path<'_>, causes: &mut Causes) -> bool {
    let place = Path::Field(path, "activeDeadlineSeconds");
    let (seconds, old) = (spec["activeDeadlineSeconds"].as_i64(), before["activeDeadlineSeconds"].as_i64());
    match (seconds, old) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            causes.invalid(&place, &seconds.into(), "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(seconds), Some(old)) if seconds > old => {
            causes.invalid(&place, &seconds.into(), "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            causes.invalid(&place, &Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

/// The new spec with everything undone that may change.
fn munged(spec: &Value, before: &Value, gated: bool) -> Value {
    let mut munged = spec.clone();
    for name in ["containers", "initContainers"] {
        let list = munged.get_mut(name).and_then(Value::as_array_mut);
        for (container, old) in list.into_iter().flatten().zip(items(&before[name])) {
            set(container, "image", old.get("image").cloned());
        }
    }
    let mut kept = vec!["activeDeadlineSeconds", "tolerations", "schedulingGates"];
    if gated {
        kept.extend(["nodeSelector", "affinity"]);
    }
    let negative = before["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0);
    if negative && munged["terminationGracePeriodSeconds"] == 1 {
        kept.push("terminationGracePeriodSeconds");
    }
    for name in kept {
        set(&mut munged, name, before.get(name).cloned());
    }
    munged
}

/// Refuses what `/ephemeralcontainers` may not change: containers that are there.
pub(super) fn check_ephemeral(new: &Value, old: &Value, causes: &mut Causes) {
    let root = Path::Root;
    let list = Path::Field(&root, "spec.ephemeralContainers");
    let given = items(&new["spec"]["ephemeralContainers"]);
    for (index, before) in items(&old["spec"]["ephemeralContainers"]).iter().enumerate() {
        let name = text(&before["name"]);
        match given.iter().find(|container| container["name"] == before["name"]) {
            None => causes.forbidden(&list, &format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(container) if container != before => {
                let words = format!("existing ephemeral containers {name:?} may not be changed\n");
                causes.forbidden(&Path::Index(&list, index), &words);
            }
            Some(_) => {}
        }
    }
}
