//! From an outcome and a snapshot to the writes that are missing.
//!
//! [`prepare`] checks an outcome once and gives every child its name; [`diff`] compares what was prepared with a
//! snapshot, as often as wanted. Both are pure; neither knows queues, retries or what was written before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::contract::{Child, Condition, GuestEvent, GuestFault, Outcome};
use crate::digest::{content_hash, name_hash};
use crate::event::{Precondition, WriteOp};
use crate::limits::{
    MAX_CHILD_BYTES, MAX_CHILDREN, MAX_CONDITIONS, MAX_DELETES_PER_PLAN, MAX_EVENTS, MAX_REQUEUE_MS, MAX_STATUS_BYTES,
    MIN_REQUEUE_MS,
};
use crate::manifest::{ControllerSpec, Update};
use crate::object::{CHILD_KEY_ANNOTATION, DESIRED_ANNOTATION, Kind, Name, Object, ObjectRef, ResourceVersion};
use crate::own_fields::is_applied;
use crate::store::Snapshot;

/// Everything of ours in labels and annotations begins with this.
const OWN_PREFIX: &str = "mortise.dev/";
/// Kubernetes' common label for who takes care of an object, and our value of it.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "mortise");
/// The longest key: as long as a name, because a key may well be the name of a node.
const MAX_KEY_BYTES: usize = 253;
/// The longest name that every kind accepts: Pods and Services keep to a DNS label.
const MAX_DERIVED_NAME: usize = 63;

/// An outcome that has been checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Prepared {
    /// The desired set with its names; None leaves children alone.
    pub children: Option<Vec<PreparedChild>>,
    /// The guest's status fields.
    pub status: Option<Map<String, Value>>,
    /// The guest's conditions.
    pub conditions: Vec<Condition>,
    /// The guest's events.
    pub events: Vec<GuestEvent>,
    /// When to call again though nothing changes, within the host's bounds.
    pub requeue_after_ms: Option<u64>,
}

/// A child that has been checked and named.
#[derive(Clone, PartialEq, Debug)]
pub struct PreparedChild {
    /// The object it is.
    pub target: ObjectRef,
    /// The guest's key.
    pub key: Arc<str>,
    /// How it is changed.
    pub update: Update,
    /// The guest's own text, shared among children that are alike.
    pub object: Arc<str>,
    /// Hash of that text's content.
    pub hash: Arc<str>,
}

/// What is missing between a snapshot and an outcome.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Diff {
    /// Creates and applies, in the guest's order.
    pub children: Vec<WriteOp>,
    /// Deletes: children that are not wanted, or that make place for what is wanted.
    pub deletes: Vec<WriteOp>,
    /// A wanted child's name is still taken by one that is going away.
    pub waits: bool,
    /// More is to be deleted than one plan may.
    pub more_deletes: bool,
    /// Wanted children whose names belong to objects of someone else.
    pub taken: Vec<ObjectRef>,
}

impl Diff {
    /// True when the children do not stand as wanted yet, so a status computed beforehand is about to be outdated.
    pub fn changes_children(&self) -> bool {
        !self.children.is_empty() || !self.deletes.is_empty() || self.waits || self.more_deletes
    }
}

fn bad<T>(message: impl Into<String>) -> Result<T, GuestFault> {
    Err(GuestFault::BadOutcome { message: message.into() })
}

/// Checks an outcome and names its children (X3, X6, X10).
///
/// # Errors
/// The guest broke a rule of the contract; the message names the child, the field and the rule.
pub fn prepare(spec: &ControllerSpec, primary: &Object, outcome: &Outcome) -> Result<Prepared, GuestFault> {
    if let Some(action) = outcome.actions.first() {
        return bad(format!("actions: this version of mortise writes only children and status, not {action:?}"));
    }
    if outcome.finalized {
        return bad("finalized: the manifest declares no finalizer for this kind");
    }
    let children = outcome.children.as_ref().map(|children| prepare_children(spec, primary, children)).transpose()?;
    Ok(Prepared {
        children,
        status: outcome.status.as_deref().map(prepare_status).transpose()?,
        conditions: prepare_conditions(&outcome.conditions)?,
        events: prepare_events(&outcome.events)?,
        requeue_after_ms: outcome.requeue_after_ms.map(|ms| u64::from(ms).clamp(MIN_REQUEUE_MS, MAX_REQUEUE_MS)),
    })
}

fn prepare_status(text: &str) -> Result<Map<String, Value>, GuestFault> {
    if text.len() > MAX_STATUS_BYTES {
        return bad(format!("status: it has {} bytes, the most is {MAX_STATUS_BYTES}", text.len()));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) if fields.contains_key("observedGeneration") => {
            bad("status.observedGeneration: the host writes it")
        }
        Ok(Value::Object(fields)) if fields.contains_key("conditions") => {
            bad("status.conditions: return conditions in the outcome's own list, the host merges and stamps them")
        }
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => bad(format!("status: expected a JSON object, found {}", shown(&other.to_string()))),
        Err(error) => bad(format!("status: it is not JSON: {error}")),
    }
}

fn prepare_conditions(conditions: &[Condition]) -> Result<Vec<Condition>, GuestFault> {
    if conditions.len() > MAX_CONDITIONS {
        return bad(format!("conditions: there are {}, the most is {MAX_CONDITIONS}", conditions.len()));
    }
    let mut names = BTreeSet::new();
    for condition in conditions {
        if condition.name.is_empty() || !is_reason(&condition.reason) {
            let Condition { name, reason, .. } = condition;
            return bad(format!("conditions: {name:?} with reason {reason:?}: both have to be CamelCase words"));
        }
        if !names.insert(&condition.name) {
            return bad(format!("conditions: {:?} is there twice", condition.name));
        }
    }
    Ok(conditions.to_vec())
}

fn prepare_events(events: &[GuestEvent]) -> Result<Vec<GuestEvent>, GuestFault> {
    if events.len() > MAX_EVENTS {
        return bad(format!("events: there are {}, the most is {MAX_EVENTS}", events.len()));
    }
    match events.iter().find(|event| !is_reason(&event.reason)) {
        Some(event) => bad(format!("events: the reason {:?} is not a CamelCase word", event.reason)),
        None => Ok(events.to_vec()),
    }
}

/// What the API server accepts as a condition's reason.
fn is_reason(reason: &str) -> bool {
    reason.starts_with(|first: char| first.is_ascii_alphabetic())
        && reason.len() <= 128
        && reason.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What a child's text says, apart from the name that the host gives. Shared among children of the same text.
#[derive(Clone)]
struct Parsed {
    kind: Kind,
    update: Update,
    name: Option<String>,
    namespace: Arc<str>,
    object: Arc<str>,
    hash: Arc<str>,
}

fn prepare_children(
    spec: &ControllerSpec,
    primary: &Object,
    children: &[Child],
) -> Result<Vec<PreparedChild>, GuestFault> {
    if children.len() > MAX_CHILDREN {
        return bad(format!("children: there are {}, one object may have {MAX_CHILDREN}", children.len()));
    }
    let mut parsed: BTreeMap<Arc<str>, Parsed> = BTreeMap::new();
    let (mut keys, mut targets) = (BTreeSet::new(), BTreeSet::new());
    let mut prepared = Vec::with_capacity(children.len());
    for child in children {
        if child.key.is_empty() || child.key.len() > MAX_KEY_BYTES {
            return bad(format!("child {:?}: a key has 1 to {MAX_KEY_BYTES} bytes", shown(&child.key)));
        }
        if !parsed.contains_key(&child.object) {
            parsed.insert(Arc::clone(&child.object), parse_child(spec, primary, child)?);
        }
        let found = parsed[&child.object].clone();
        let name = match found.name {
            Some(name) => name,
            None => derived_name(primary, &found.kind, &child.key),
        };
        if !is_object_name(&name) {
            return bad(format!("child {:?}: {name:?} is not a name that Kubernetes accepts", child.key));
        }
        let target = ObjectRef { kind: found.kind, name: Name { namespace: found.namespace, name: name.into() } };
        if !keys.insert((target.kind.clone(), Arc::clone(&child.key))) {
            return bad(format!("child {:?}: the key is there twice for {}", child.key, target.kind));
        }
        if !targets.insert(target.clone()) {
            return bad(format!("child {:?}: {target} is there twice", child.key));
        }
        prepared.push(PreparedChild {
            target,
            key: Arc::clone(&child.key),
            update: found.update,
            object: found.object,
            hash: found.hash,
        });
    }
    Ok(prepared)
}

fn parse_child(spec: &ControllerSpec, primary: &Object, child: &Child) -> Result<Parsed, GuestFault> {
    let at = |message: String| bad(format!("child {:?}: {message}", child.key));
    if child.object.len() > MAX_CHILD_BYTES {
        return at(format!("it has {} bytes, the most is {MAX_CHILD_BYTES}", child.object.len()));
    }
    let object: Value = match serde_json::from_str(&child.object) {
        Ok(object) => object,
        Err(error) => return at(format!("it is not JSON: {error}")),
    };
    let (Some(api_version), Some(kind)) = (object["apiVersion"].as_str(), object["kind"].as_str()) else {
        return at("apiVersion and kind are missing".to_owned());
    };
    let kind = Kind::new(api_version, kind);
    let Some(update) = spec.update_of(&kind) else {
        return at(format!("{kind} is not among the kinds that the manifest declares under owns"));
    };
    let metadata = &object["metadata"];
    if !metadata.is_object() && !metadata.is_null() {
        return at("metadata is not an object".to_owned());
    }
    const HOST_FIELDS: [&str; 9] = [
        "ownerReferences",
        "uid",
        "resourceVersion",
        "generation",
        "generateName",
        "managedFields",
        "creationTimestamp",
        "deletionTimestamp",
        "finalizers",
    ];
    if let Some(field) = HOST_FIELDS.iter().find(|field| !metadata[**field].is_null()) {
        return at(format!("metadata.{field} is set: it belongs to the host or to the API server"));
    }
    for map in ["labels", "annotations"] {
        let own = metadata[map].as_object().and_then(|map| map.keys().find(|key| key.starts_with(OWN_PREFIX)));
        if let Some(key) = own {
            return at(format!("metadata.{map}[{key:?}] is set: everything under {OWN_PREFIX} is the host's"));
        }
    }
    let namespace = match metadata["namespace"].as_str() {
        None => Arc::clone(&primary.name.namespace),
        Some(namespace) if primary.name.namespace.is_empty() || *primary.name.namespace == *namespace => {
            namespace.into()
        }
        Some(namespace) => {
            return at(format!(
                "metadata.namespace is {namespace:?}: a child lives in its owner's namespace, {:?}",
                &*primary.name.namespace
            ));
        }
    };
    Ok(Parsed {
        kind,
        update,
        name: metadata["name"].as_str().map(str::to_owned),
        namespace,
        object: Arc::clone(&child.object),
        hash: content_hash(&[&object.to_string()]).into(),
    })
}

/// X3: the name follows from (owner UID, kind, key) alone, so that a repeated create meets its own first try. The owner's
/// name and the key come first, for people.
fn derived_name(primary: &Object, kind: &Kind, key: &str) -> String {
    let hash = name_hash(&[&primary.uid, &kind.kind, key]);
    let readable = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
    };
    let mut name = format!("{}-{}", readable(&primary.name.name), readable(key));
    name.truncate(MAX_DERIVED_NAME - hash.len() - 1);
    format!("{}-{hash}", name.trim_matches('-'))
}

/// RFC 1123 subdomain: what the API server accepts as a name for nearly every kind, and stricter kinds say so themselves.
fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The last apply of each child, as it was sent, and the version that it led to. A value that the API server rewrites (a
/// quantity of "0.5" becomes "500m") never looks applied; as long as nobody has touched the object since, it is.
pub type Applied = BTreeMap<ObjectRef, (Arc<str>, ResourceVersion)>;

/// What is missing between the snapshot and what was prepared (X4, X5).
pub fn diff(
    prepared: &Prepared,
    spec: &ControllerSpec,
    primary: &Object,
    manager: &str,
    snapshot: &Snapshot,
    applied: &Applied,
) -> Diff {
    let mut diff = Diff::default();
    let Some(children) = &prepared.children else { return diff };
    for child in children {
        let Some(live) = snapshot.get(&child.target.kind, &child.target.name) else {
            diff.children.push(create(child, primary));
            continue;
        };
        if live.controller.as_ref().is_none_or(|controller| controller.uid != primary.uid) {
            diff.taken.push(child.target.clone());
        } else if live.deleting {
            diff.waits = true;
        } else {
            match child.update {
                Update::Recreate if live.desired.as_deref() == Some(&*child.hash) => {}
                Update::Recreate => diff.deletes.push(delete(live)),
                Update::Apply => diff.children.extend(apply(child, primary, live, manager, applied)),
            }
        }
    }
    let wanted: BTreeSet<&ObjectRef> = children.iter().map(|child| &child.target).collect();
    for owned in &spec.owns {
        for live in snapshot.owned(&owned.kind, &primary.uid) {
            if !live.deleting && !wanted.contains(&live.reference()) {
                diff.deletes.push(delete(live));
            }
        }
    }
    if diff.deletes.len() > MAX_DELETES_PER_PLAN {
        diff.deletes.truncate(MAX_DELETES_PER_PLAN);
        diff.more_deletes = true;
    }
    diff
}

fn delete(live: &Object) -> WriteOp {
    WriteOp::Delete { target: live.reference(), uid: Arc::clone(&live.uid) }
}

fn create(child: &PreparedChild, primary: &Object) -> WriteOp {
    let target = child.target.clone();
    match child.update {
        Update::Recreate => {
            let body = child_body(child, primary, Some(&child.hash)).to_string().into();
            WriteOp::Create { target, body }
        }
        Update::Apply => {
            let body = child_body(child, primary, None).to_string().into();
            WriteOp::Apply { target, body, force: false, only_if: Precondition::Absent }
        }
    }
}

fn apply(child: &PreparedChild, primary: &Object, live: &Object, manager: &str, applied: &Applied) -> Option<WriteOp> {
    let wanted = child_body(child, primary, None);
    let body: Arc<str> = wanted.to_string().into();
    if applied.get(&child.target).is_some_and(|(sent, version)| *sent == body && *version == live.resource_version) {
        return None;
    }
    let own = live.own_fields.iter().find(|own| own.applied && own.subresource.is_empty() && &*own.manager == manager);
    let fields = own.and_then(|own| serde_json::from_str::<Value>(&own.fields).ok());
    let stands: Option<Value> = serde_json::from_str(live.json()).ok();
    if let (Some(fields), Some(stands)) = (fields, stands)
        && is_applied(&wanted, &stands, &fields)
    {
        return None;
    }
    let only_if = Precondition::Is(Arc::clone(&live.uid));
    Some(WriteOp::Apply { target: child.target.clone(), body, force: false, only_if })
}

/// The guest's object with what the host writes into every child: name, namespace, owner, key.
fn child_body(child: &PreparedChild, primary: &Object, hash: Option<&str>) -> Value {
    let mut object: Value = serde_json::from_str(&child.object).expect("prepare has parsed this text");
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(&*child.target.name.name);
    if !child.target.name.namespace.is_empty() {
        metadata["namespace"] = json!(&*child.target.name.namespace);
    }
    metadata["ownerReferences"] = json!([{
        "apiVersion": &*primary.kind.api_version,
        "kind": &*primary.kind.kind,
        "name": &*primary.name.name,
        "uid": &*primary.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    metadata["annotations"][CHILD_KEY_ANNOTATION] = json!(&*child.key);
    if let Some(hash) = hash {
        metadata["annotations"][DESIRED_ANNOTATION] = json!(hash);
    }
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    if metadata["labels"][MANAGED_BY.0].is_null() {
        metadata["labels"][MANAGED_BY.0] = json!(MANAGED_BY.1);
    }
    object
}

#[cfg(test)]
mod tests;
