//! Whether a plugin's CustomResourceDefinition is created, changed, left alone or refused (L4). The live definition and
//! the wanted one come in as JSON text, a decision goes out; `kube/crd.rs` performs it. What counts as narrowing is in
//! `crd/narrowing.rs`.
//!
//! Nothing here reads a cluster: whether objects exist is an argument.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use self::keeper::{annotation, is_kept_for, keeper_label};
use crate::digest::content_hash;
use crate::refusal::Refusal;
use crate::well_known::{DESIRED_ANNOTATION, HOST, MANAGED_BY_LABEL, PLUGIN};

pub mod conversion;
mod keeper;
mod narrowing;
#[cfg(test)]
mod tests;

/// Why a CRD is not established.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CrdError {
    /// It never will be as it stands: it narrows what exists, or belongs to someone else and differs.
    Refused(Refusal),
    /// RBAC refuses.
    Denied(String),
    /// Try again later.
    Unavailable(String),
}

/// The reason of a refusal that holds only while objects exist: the shell asks whether there are any, and plans again.
pub const NARROWS: &str = "CrdNarrows";

/// Narrowings that one refusal spells out. A message is read by a person, who mends the first few and tries again.
const SPELLED_OUT: usize = 5;

/// What to do about one CRD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CrdPlan {
    /// What is there serves.
    Nothing,
    /// POST this.
    Create(Arc<str>),
    /// PUT this; it carries the resourceVersion of the definition that was compared.
    Update(Arc<str>),
    /// Leave the cluster as it is.
    Refuse(Refusal),
}

/// How far a CRD that exists has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Establishment {
    /// The API server serves it.
    Established,
    /// The API server has not yet decided.
    Pending,
    /// Somebody deletes it; what comes after it has to wait.
    Terminating,
    /// Its names are taken by another definition.
    Refused(Refusal),
}

/// Puts the host's label, the plugin's name, who converts its objects, and the hash of what is wanted onto a manifest's CRD.
/// Text that is no JSON object comes back as it is, and `plan` refuses it.
pub fn prepare(plugin: &str, body: &str, conversion: Option<Value>) -> Arc<str> {
    let Ok(Value::Object(mut crd)) = serde_json::from_str::<Value>(body) else {
        return body.into();
    };
    if let Some(conversion) = conversion {
        object_at(&mut crd, "spec").insert("conversion".into(), conversion);
    }
    let hash = content_hash(&[&Value::Object(crd.clone()).to_string()]);
    let metadata = object_at(&mut crd, "metadata");
    object_at(metadata, "labels").insert(MANAGED_BY_LABEL.into(), HOST.into());
    let annotations = object_at(metadata, "annotations");
    annotations.insert(PLUGIN.into(), plugin.into());
    annotations.insert(DESIRED_ANNOTATION.into(), hash.into());
    Value::Object(crd).to_string().into()
}

/// Decides what to do. `wanted` comes from [`prepare`]; `objects_exist` may be true when nobody has looked yet, since
/// only a refusal with the reason [`NARROWS`] depends on it.
pub fn plan(live: Option<&str>, wanted: &str, objects_exist: bool) -> CrdPlan {
    let Some(wanted_crd) = parse(wanted) else {
        return refuse("CrdInvalid", "the plugin's CustomResourceDefinition is not a JSON object with a name".into());
    };
    let Some(live) = live else {
        return CrdPlan::Create(wanted.into());
    };
    let Some(live_crd) = parse(live) else {
        return refuse("CrdInvalid", format!("CRD {}: the API server's copy cannot be read", name(&wanted_crd)));
    };
    if let Some(difference) = different_kind(&live_crd, &wanted_crd) {
        return refuse("CrdConflict", format!("CRD {}: {difference}", name(&wanted_crd)));
    }
    if !same_keeper(&live_crd, &wanted_crd) {
        return plan_beside_a_foreign_one(&live_crd, &wanted_crd);
    }
    if annotation(&live_crd, DESIRED_ANNOTATION) == annotation(&wanted_crd, DESIRED_ANNOTATION) {
        return CrdPlan::Nothing;
    }
    let narrowings = if objects_exist { narrowing::narrowings(&live_crd, &wanted_crd) } else { Vec::new() };
    if !narrowings.is_empty() {
        return refuse(NARROWS, narrows_message(name(&wanted_crd), &narrowings));
    }
    CrdPlan::Update(updated(live_crd, &wanted_crd))
}

/// Reads the conditions of a live CRD.
pub fn establishment(live: &str) -> Establishment {
    let Some(crd) = parse(live) else { return Establishment::Pending };
    if crd.pointer("/metadata/deletionTimestamp").is_some() {
        return Establishment::Terminating;
    }
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let condition = |name: &str| conditions.iter().find(|condition| text(condition, "type") == name);
    if condition("Established").is_some_and(|established| text(established, "status") == "True") {
        return Establishment::Established;
    }
    match condition("NamesAccepted") {
        Some(names) if text(names, "status") == "False" => Establishment::Refused(Refusal::new(
            "CrdNamesNotAccepted",
            format!(
                "CRD {}: the API server does not accept its names: {}; rename the kind, or remove the other definition",
                name(&crd),
                text(names, "message")
            ),
        )),
        _ => Establishment::Pending,
    }
}

/// A definition that somebody else keeps is used as it is when it serves what the plugin asks for, and never written.
fn plan_beside_a_foreign_one(live: &Value, wanted: &Value) -> CrdPlan {
    let served = narrowing::served_versions(live);
    let missing: Vec<&str> =
        narrowing::served_versions(wanted).into_iter().filter(|version| !served.contains(version)).collect();
    let is_asked = !conversion::is_by_webhook(wanted) || conversion::asks(live, annotation(wanted, PLUGIN));
    if missing.is_empty() && is_asked {
        return CrdPlan::Nothing;
    }
    let lacking = if is_asked {
        format!("does not serve {}", missing.join(", "))
    } else {
        "does not have the plugin convert between its versions".to_owned()
    };
    let keeper = match (keeper_label(live), annotation(live, PLUGIN)) {
        (HOST, plugin) if !plugin.is_empty() => format!("belongs to the plugin {plugin:?}"),
        ("", _) => "was not created by mortise".to_owned(),
        (keeper, _) => format!("is kept by {keeper:?}"),
    };
    refuse(
        "CrdForeign",
        format!(
            "CRD {}: it exists, {keeper} and {lacking}; mortise leaves it alone. Change that there, or hand the definition \
             over with the label {MANAGED_BY_LABEL}={HOST} and the annotation {PLUGIN}={}",
            name(wanted),
            annotation(wanted, PLUGIN),
        ),
    )
}

/// Kind and scope never change under a name: the API server itself lets nobody change the scope, and another kind would
/// orphan every object that exists.
fn different_kind(live: &Value, wanted: &Value) -> Option<String> {
    [("/spec/names/kind", "kind"), ("/spec/scope", "scope"), ("/spec/group", "group")].into_iter().find_map(
        |(pointer, what)| {
            let live = live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let wanted = wanted.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            (live != wanted).then(|| {
                format!(
                    "it exists with the {what} {live:?}, the plugin wants {wanted:?}; delete it, or rename the plugin's"
                )
            })
        },
    )
}

fn same_keeper(live: &Value, wanted: &Value) -> bool {
    is_kept_for(live, annotation(wanted, PLUGIN))
}

/// The live object with the wanted spec: others' labels, annotations and finalizers stay, and its resourceVersion makes
/// the PUT fail when somebody changed the definition after it was compared.
fn updated(mut live: Value, wanted: &Value) -> Arc<str> {
    if let Some(live) = live.as_object_mut() {
        live.remove("status");
        live.insert("spec".into(), wanted["spec"].clone());
        let metadata = object_at(live, "metadata");
        metadata.remove("managedFields");
        for part in ["labels", "annotations"] {
            let kept = object_at(metadata, part);
            if let Some(ours) = wanted["metadata"][part].as_object() {
                kept.extend(ours.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
        }
    }
    live.to_string().into()
}

fn narrows_message(name: &str, narrowings: &[String]) -> String {
    let mut message = format!(
        "CRD {name}: objects of it exist and the new definition narrows what they may hold: {}",
        narrowings[..narrowings.len().min(SPELLED_OUT)].join("; ")
    );
    if narrowings.len() > SPELLED_OUT {
        message.push_str(&format!("; and {} more", narrowings.len() - SPELLED_OUT));
    }
    message.push_str(". Serve the change as a new version beside the old one, or delete the objects first");
    message
}

fn refuse(reason: &'static str, message: String) -> CrdPlan {
    CrdPlan::Refuse(Refusal::new(reason, message))
}

/// A CRD that has a name; anything else is nothing that could be compared.
fn parse(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (!name(&value).is_empty()).then_some(value)
}

fn name(crd: &Value) -> &str {
    crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The object under a key, made when it is missing or is no object.
fn object_at<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(key).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("it was made an object on the line above")
}
