//! What must hold for data, storage, nodes, limits and events. Input: such an object. Output: causes. It must not know Pods.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::super::diff::unified;
use super::super::field::{Causes, Path, is_empty, items, quantity, text};
use super::super::fill::set;
use super::super::format;
use super::super::rule::{Check, Rule, check};

/// How many bytes a ConfigMap's or a Secret's values may have together.
const MAX_DATA: usize = 1024 * 1024;

pub(super) const CONFIG_MAP: &[Rule] = &[("", Check::Code(config_map))];
pub(super) const SECRET: &[Rule] = &[("", Check::Code(secret))];
const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(super) const CLAIM: &[Rule] = &[
    ("spec.accessModes", Check::Required("at least 1 access mode is required")),
    ("spec.selector", Check::Selector),
    ("spec.accessModes", Check::Code(access_modes)),
    ("spec", Check::Code(claim_size)),
    ("spec.storageClassName", Check::Text(format::subdomain)),
    ("spec.volumeMode", Check::OneOf(&["Block", "Filesystem"])),
];
pub(super) const VOLUME: &[Rule] = &[
    ("spec.accessModes", Check::Required("")),
    ("spec.accessModes", Check::Code(access_modes)),
    ("spec.capacity", Check::Required("")),
    ("spec.capacity", Check::Quantities),
    ("spec.persistentVolumeReclaimPolicy", Check::OneOf(&["Delete", "Recycle", "Retain"])),
    ("spec.storageClassName", Check::Text(format::subdomain)),
    ("spec.volumeMode", Check::OneOf(&["Block", "Filesystem"])),
];
pub(super) const QUOTA: &[Rule] = &[("spec.hard", Check::Quantities)];
pub(super) const LIMIT_RANGE: &[Rule] = &[
    ("spec.limits", Check::Each(&[("type", Check::Required("")), ("", Check::Code(limit))])),
    ("spec.limits", Check::Unique("type")),
];
const TAINT: &[Rule] = &[
    ("key", Check::Code(|value, path, causes| causes.invalid_text(path, text(value), format::qualified(text(value))))),
    ("value", Check::Text(format::label_value)),
    ("effect", Check::Required("")),
    ("effect", Check::OneOf(&["NoSchedule", "PreferNoSchedule", "NoExecute"])),
];
pub(super) const NODE: &[Rule] = &[("spec.taints", Check::Code(taints))];
pub(super) const EVENT: &[Rule] = &[("", Check::Code(event))];

fn config_map(value: &Value, root: &Path<'_>, causes: &mut Causes) {
    let mut size = 0;
    for name in ["data", "binaryData"] {
        let place = Path::Field(root, name);
        for (key, content) in value[name].as_object().into_iter().flatten() {
            causes.invalid_text(&Path::Key(&place, key), key, format::config_key(key));
            if name == "data" && value["binaryData"].get(key).is_some() {
                let words = "duplicate of key present in binaryData";
                causes.invalid(&Path::Key(&place, key), &key.as_str().into(), words);
            }
            size += if name == "data" { text(content).len() } else { decoded_length(content) };
        }
    }
    if size > MAX_DATA {
        // Its field is a path without a name.
        causes.too_long(&Path::Key(root, ""), MAX_DATA);
    }
}

/// What a namespace waits for has a domain, or is Kubernetes' own. At an update the API server says which one is wrong.
pub(super) fn namespace_finalizers(value: &Value, indexed: bool, causes: &mut Causes) {
    let path = Path::Field(&Path::Root, "spec.finalizers");
    for (at, finalizer) in value["spec"]["finalizers"].as_array().into_iter().flatten().enumerate() {
        let name = text(finalizer);
        let place = Path::Index(&path, at);
        let place = if indexed { &place } else { &path };
        causes.invalid_text(place, name, format::qualified(name));
        if !name.contains('/') && name != "kubernetes" {
            causes.invalid(place, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
        }
    }
}

/// A namespace's phase says whether it is being deleted.
pub(super) fn namespace_phase(value: &Value, causes: &mut Causes) {
    let phase = Some(text(&value["status"]["phase"])).filter(|phase| !phase.is_empty()).unwrap_or("Active");
    let ends = !value["metadata"]["deletionTimestamp"].is_null();
    let (wanted, not) = if ends { ("Terminating", "not ") } else { ("Active", "") };
    if phase != wanted {
        let words = format!("may only be '{wanted}' if `deletionTimestamp` is {not}empty");
        causes.invalid(&Path::Field(&Path::Root, "status.Phase"), &phase.into(), &words);
    }
}

fn decoded_length(content: &Value) -> usize {
    let text = text(content).trim_end_matches('=');
    text.len() * 3 / 4
}

fn secret(value: &Value, root: &Path<'_>, causes: &mut Causes) {
    let (data, place) = (&value["data"], Path::Field(root, "data"));
    let mut size = 0;
    for (key, content) in data.as_object().into_iter().flatten() {
        causes.invalid_text(&Path::Key(&place, key), key, format::config_key(key));
        size += decoded_length(content);
    }
    if size > MAX_DATA {
        causes.too_long(&place, MAX_DATA);
    }
    let mut need = |key: &str| {
        if data.get(key).is_none() {
            causes.required(&Path::Key(&place, key), "");
        }
    };
    let json = match text(&value["type"]) {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if is_empty(&value["metadata"]["annotations"][name]) {
                causes.required(&Path::Key(&Path::Field(root, "metadata.annotations"), name), "");
            }
            return;
        }
        "kubernetes.io/dockercfg" => ".dockercfg",
        "kubernetes.io/dockerconfigjson" => ".dockerconfigjson",
        "kubernetes.io/basic-auth" => {
            if data.get("username").is_none() && data.get("password").is_none() {
                need("username");
                need("password");
            }
            return;
        }
        "kubernetes.io/ssh-auth" => return need("ssh-privatekey"),
        "kubernetes.io/tls" => {
            need("tls.crt");
            return need("tls.key");
        }
        _ => return,
    };
    need(json);
    let Some(content) = data.get(json) else { return };
    let bytes = STANDARD.decode(text(content)).unwrap_or_default();
    let parsed: Result<serde_json::Map<String, Value>, _> = serde_json::from_slice(&bytes);
    if let Err(error) = parsed {
        let words = if bytes.is_empty() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
        causes.invalid(&Path::Key(&place, json), &"<secret contents redacted>".into(), &words);
    }
}

/// A ConfigMap or Secret that is immutable stays so.
pub(super) fn immutable(new: &Value, old: &Value, causes: &mut Causes) {
    if old["immutable"] != true {
        return;
    }
    let same = |name: &str| new[name] == old[name] || is_empty(&new[name]) && is_empty(&old[name]);
    for name in ["immutable", "data", "binaryData"].into_iter().filter(|name| !same(name)) {
        causes.forbidden(&Path::Field(&Path::Root, name), "field is immutable when `immutable` is set");
    }
}

fn access_modes(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    for mode in items(value).iter().filter(|mode| !ACCESS_MODES.contains(&text(mode))) {
        causes.not_supported(path, mode, ACCESS_MODES);
    }
    let alone = |mode: &&Value| **mode == "ReadWriteOncePod";
    if items(value).iter().any(|mode| alone(&mode)) && !items(value).iter().all(|mode| alone(&mode)) {
        causes.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn claim_size(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    let resources = Path::Field(path, "resources");
    let place = Path::Key(&resources, "storage");
    let amount = &spec["resources"]["requests"]["storage"];
    match quantity(amount) {
        None => causes.required(&place, ""),
        Some(size) if size.sign() <= 0 => causes.invalid(&place, amount, "must be greater than zero"),
        Some(_) => {}
    }
}

/// A claim keeps its spec; one that is bound may ask for more room.
pub(super) fn claim_update(new: &Value, old: &Value, causes: &mut Causes) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    let root = Path::Field(&Path::Root, "spec");
    let mut munged = spec.clone();
    if is_empty(&before["volumeName"]) {
        set(&mut munged, "volumeName", before.get("volumeName").cloned());
    }
    if is_empty(&before["storageClassName"]) && before.get("storageClassName").is_none() {
        set(&mut munged, "storageClassName", None);
    }
    if new["status"]["phase"] == "Bound" {
        if munged["resources"]["requests"].is_object() {
            set(&mut munged, "resources.requests.storage", before["resources"]["requests"].get("storage").cloned());
        }
        set(&mut munged, "volumeAttributesClassName", before.get("volumeAttributesClassName").cloned());
    }
    if munged != *before {
        let words =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.forbidden(&root, &format!("{words}\n{}", unified(before, &munged)));
    }
    let size = |value: &Value| quantity(&value["storage"]);
    let (is, was) = (size(&spec["resources"]["requests"]), size(&before["resources"]["requests"]));
    if is < was && is <= size(&old["status"]["capacity"]) {
        let words = "field can not be less than status.capacity";
        causes.forbidden(&Path::Field(&root, "resources.requests.storage"), words);
    }
}

fn limit(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    if value["type"] == "Pod" {
        for name in ["default", "defaultRequest"].into_iter().filter(|name| !is_empty(&value[*name])) {
            causes.forbidden(&Path::Field(path, name), "may not be specified when `type` is 'Pod'");
        }
    }
    let amount = |list: &str, key: &str| value[list].get(key).and_then(quantity);
    let lists = ["max", "min", "default", "defaultRequest"];
    let mut keys: Vec<&String> =
        lists.iter().filter_map(|list| value[*list].as_object()).flat_map(|list| list.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        for (low, low_word, high, high_word, field) in [
            ("min", "min", "max", "max", "min"),
            ("min", "min", "defaultRequest", "default request", "defaultRequest"),
            ("defaultRequest", "default request", "max", "max", "defaultRequest"),
            ("defaultRequest", "default request", "default", "default limit", "defaultRequest"),
            ("min", "min", "default", "default", "default"),
            ("default", "default", "max", "max", "default"),
        ] {
            let (Some(less), Some(more)) = (amount(low, key), amount(high, key)) else { continue };
            if less > more {
                let words = format!("{low_word} value {less} is greater than {high_word} value {more}");
                let shown = if field == "defaultRequest" && low == "min" { more } else { less };
                let list = Path::Field(path, field);
                causes.invalid(&Path::Key(&list, key), &shown.to_string().into(), &words);
            }
        }
    }
}

fn taints(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    check(value, path, &[("", Check::Each(TAINT))], causes);
    for (index, taint) in items(value).iter().enumerate() {
        let same = |other: &&Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
        if items(value).iter().take(index).any(|other| same(&other)) {
            causes.duplicate(&Path::Index(path, index), taint);
        }
    }
}

pub(super) fn node_update(new: &Value, old: &Value, causes: &mut Causes) {
    for (name, also) in [("podCIDRs", "podCIDR"), ("providerID", "providerID")] {
        let (is, was) = (&new["spec"][name], &old["spec"][name]);
        if !is_empty(was) && is != was {
            let words = format!("node updates may not change {also} except from \"\" to valid");
            causes.forbidden(&Path::Field(&Path::Field(&Path::Root, "spec"), name), &words);
        }
    }
}

/// An Event is in the namespace of its object.
fn event(value: &Value, root: &Path<'_>, causes: &mut Causes) {
    // events.k8s.io has the object under another name; its messages have this one.
    let object = if value["involvedObject"].is_object() { &value["involvedObject"] } else { &value["regarding"] };
    let (own, of) = (text(&value["metadata"]["namespace"]), text(&object["namespace"]));
    let new = !is_empty(&value["eventTime"]);
    let fits = match (of.is_empty(), new) {
        (true, false) => own == "default",
        (true, true) => matches!(own, "default" | "kube-system"),
        (false, false) => own == of,
        (false, true) => true,
    };
    if !fits {
        causes.invalid(&Path::Field(root, "involvedObject.namespace"), &of.into(), "does not match event.namespace");
    }
    if !new {
        return;
    }
    let controller =
        if value.get("reportingController").is_some() { "reportingController" } else { "reportingComponent" };
    for name in [controller, "reportingInstance", "action", "reason"] {
        if is_empty(&value[name]) {
            causes.required(&Path::Field(root, name), "");
        }
    }
}
