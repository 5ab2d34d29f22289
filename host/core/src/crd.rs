//! Whether a plugin's CustomResourceDefinition is created, updated, left alone or refused (L4). The live and the wanted
//! definition come in as JSON text, a plan comes out; `kube/crd.rs` performs it. `crd/narrowing.rs` defines narrowing.
//!
//! Nothing here reads a cluster: whether objects exist is an argument.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use self::managed_by::{annotation, is_managed_for, managed_by};
use crate::digest::content_hash;
use crate::refusal::Refusal;
use crate::well_known::{DESIRED_ANNOTATION, FORMER_ANNOTATION, HOST, MANAGED_BY_LABEL, PLUGIN};

pub mod conversion;
mod managed_by;
mod narrowing;
#[cfg(test)]
mod tests;

/// Why a CRD is not established.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CrdError {
    /// Trying again does not help: it narrows the live definition, or somebody else manages that.
    Refused(Refusal),
    /// RBAC refuses.
    Denied(String),
    /// Try again later.
    Unavailable(String),
}

/// Whom a live definition was made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrdOwner {
    /// The plugin that registers it.
    Plugin,
    /// Somebody else, whose definition the plugin uses as it is.
    Another,
}

/// How many former definitions a plugin can go back to. Each takes 17 bytes of an annotation.
const MAX_FORMER: usize = 20;

/// Narrowings in the message of one refusal. A person fixes the first few and tries again.
const MAX_SHOWN: usize = 5;

/// The plan for one CRD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CrdPlan {
    /// The live definition suffices.
    Nothing(CrdOwner),
    /// POST this.
    Create(Arc<str>),
    /// PUT this; it carries the resourceVersion of the definition that was compared.
    Update(Arc<str>),
    /// Write nothing.
    Refuse(Refusal),
    /// The shell checks whether objects exist, and plans again if there are none.
    Narrows {
        /// Why nothing is written, unless there is something to keep.
        refusal: Refusal,
        /// PUT this if objects exist: the live definition, which widened the wanted one. A plugin that is rolled back to a former
        /// version serves with it.
        kept: Option<Arc<str>>,
    },
}

/// The state of a live CRD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Establishment {
    /// The API server serves it.
    Established,
    /// The API server has not accepted or refused it yet.
    Pending,
    /// It is being deleted; its successor has to wait.
    Terminating,
    /// Another definition has its names.
    Refused(Refusal),
}

/// Adds the conversion, a hash of the definition, the host's label and the plugin's name to a manifest's CRD. Text that
/// is no JSON object is returned unchanged, and `plan` refuses it.
pub fn prepare(plugin: &str, body: &str, conversion: Option<Value>) -> Arc<str> {
    let Ok(Value::Object(mut crd)) = serde_json::from_str::<Value>(body) else {
        return body.into();
    };
    // Without the conversion, whose certificates change.
    let own = content_hash(&[&Value::Object(crd.clone()).to_string()]);
    if let Some(conversion) = conversion {
        object_at(&mut crd, "spec").insert("conversion".into(), conversion);
    }
    let hash = content_hash(&[&Value::Object(crd.clone()).to_string()]);
    let metadata = object_at(&mut crd, "metadata");
    object_at(metadata, "labels").insert(MANAGED_BY_LABEL.into(), HOST.into());
    let annotations = object_at(metadata, "annotations");
    annotations.insert(PLUGIN.into(), plugin.into());
    annotations.insert(DESIRED_ANNOTATION.into(), hash.into());
    annotations.insert(FORMER_ANNOTATION.into(), own.into());
    Value::Object(crd).to_string().into()
}

/// Plans one CRD. `wanted` comes from [`prepare`]. `objects_exist` may be true as long as it is unknown: only
/// [`CrdPlan::Narrows`] depends on it.
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
    if !is_managed_for(&live_crd, annotation(&wanted_crd, PLUGIN)) {
        return plan_with_foreign(&live_crd, &wanted_crd);
    }
    if annotation(&live_crd, DESIRED_ANNOTATION) == annotation(&wanted_crd, DESIRED_ANNOTATION) {
        return CrdPlan::Nothing(CrdOwner::Plugin);
    }
    let narrowings = narrowing::narrowings(&live_crd, &wanted_crd);
    let own = annotation(&wanted_crd, FORMER_ANNOTATION).to_owned();
    if narrowings.is_empty() {
        let former = with_former(own, &live_crd);
        return CrdPlan::Update(updated(live_crd, &wanted_crd, former));
    }
    if !objects_exist {
        return CrdPlan::Update(updated(live_crd, &wanted_crd, own));
    }
    let refusal = Refusal::new("CrdNarrows", narrows_message(name(&wanted_crd), &narrowings));
    CrdPlan::Narrows { refusal, kept: kept(live_crd, wanted_crd, own) }
}

/// The live definition for a plugin that is rolled back to a definition that it widened; None if it did not, or if nobody would
/// convert the objects.
fn kept(live: Value, wanted: Value, own: String) -> Option<Arc<str>> {
    let is_former = former(&live).any(|former| former == own);
    if !is_former || conversion::is_by_webhook(&live) && !conversion::is_by_webhook(&wanted) {
        return None;
    }
    let mut wide = wanted.clone();
    wide["spec"] = live["spec"].clone();
    if conversion::is_by_webhook(&wanted) {
        wide["spec"]["conversion"] = wanted["spec"]["conversion"].clone();
    }
    // A person may have changed it since.
    let is_wide = narrowing::narrowings(&wanted, &wide).is_empty();
    let former = with_former(own, &live);
    is_wide.then(|| updated(live, &wide, former))
}

/// The hashes of the definitions that a live one allows. Without a webhook a definition has its own hash.
fn former(live: &Value) -> impl Iterator<Item = &str> {
    let known = annotation(live, FORMER_ANNOTATION).split(' ').filter(|hash| !hash.is_empty());
    known.chain([annotation(live, DESIRED_ANNOTATION)])
}

/// A definition's own hash, then those of the live one, newest first.
fn with_former(own: String, live: &Value) -> String {
    let mut all = vec![own.as_str()];
    for hash in former(live) {
        if !hash.is_empty() && !all.contains(&hash) {
            all.push(hash);
        }
    }
    all.truncate(MAX_FORMER);
    all.join(" ")
}

/// Whom a live definition was made for, if this plugin registers it.
pub fn owner(live: &str, plugin: &str) -> CrdOwner {
    match parse(live) {
        Some(live) if is_managed_for(&live, plugin) => CrdOwner::Plugin,
        _ => CrdOwner::Another,
    }
}

/// Reads the state of a live CRD from its conditions.
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

/// A definition that somebody else manages is used when it serves what the plugin wants, and never written.
fn plan_with_foreign(live: &Value, wanted: &Value) -> CrdPlan {
    let served = narrowing::served_versions(live);
    let missing: Vec<&str> =
        narrowing::served_versions(wanted).into_iter().filter(|version| !served.contains(version)).collect();
    let converts = !conversion::is_by_webhook(wanted) || conversion::calls(live, annotation(wanted, PLUGIN));
    if missing.is_empty() && converts {
        return CrdPlan::Nothing(CrdOwner::Another);
    }
    let lacking = if converts {
        format!("does not serve {}", missing.join(", "))
    } else {
        "does not call the plugin for conversion".to_owned()
    };
    let owner = match (managed_by(live), annotation(live, PLUGIN)) {
        (HOST, plugin) if !plugin.is_empty() => format!("belongs to the plugin {plugin:?}"),
        ("", _) => "was not created by mortise".to_owned(),
        (other, _) => format!("is managed by {other:?}"),
    };
    refuse(
        "CrdForeign",
        format!(
            "CRD {}: it exists, {owner} and {lacking}; mortise does not change it. Change it there, or hand it over to \
             mortise with the label {MANAGED_BY_LABEL}={HOST} and the annotation {PLUGIN}={}",
            name(wanted),
            annotation(wanted, PLUGIN),
        ),
    )
}

/// The first difference that no update can make: another scope or group is refused, another kind orphans objects.
fn different_kind(live: &Value, wanted: &Value) -> Option<String> {
    let parts = [("/spec/names/kind", "kind"), ("/spec/scope", "scope"), ("/spec/group", "group")];
    parts.into_iter().find_map(|(pointer, part)| {
        let [live, wanted] = [live, wanted].map(|crd| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
        let difference = format!("it exists with the {part} {live:?}, the plugin wants {wanted:?}");
        (live != wanted).then(|| difference + "; delete it, or rename the plugin's")
    })
}

/// The live object with the wanted spec, which allows these definitions. Labels, annotations and finalizers of others stay;
/// the resourceVersion makes the PUT fail when somebody else changed the definition since it was read.
fn updated(mut live: Value, wanted: &Value, former: String) -> Arc<str> {
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
        object_at(metadata, "annotations").insert(FORMER_ANNOTATION.into(), former.into());
    }
    live.to_string().into()
}

fn narrows_message(name: &str, narrowings: &[String]) -> String {
    let mut shown = narrowings[..narrowings.len().min(MAX_SHOWN)].join("; ");
    if narrowings.len() > MAX_SHOWN {
        shown.push_str(&format!("; and {} more", narrowings.len() - MAX_SHOWN));
    }
    format!(
        "CRD {name}: objects of it exist and the new definition narrows what they may hold: {shown}. Serve the change \
         as a new version beside the old one, or delete the objects first"
    )
}

fn refuse(reason: &'static str, message: String) -> CrdPlan {
    CrdPlan::Refuse(Refusal::new(reason, message))
}

/// A CRD that has a name; nothing else can be compared.
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

/// The object under a key, inserted when it is missing or is no object.
fn object_at<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(key).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("it was made an object on the line above")
}
