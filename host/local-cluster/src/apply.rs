//! Server-side apply. Input: the live object, the applied one and who applies. Output: the merged object with its managed
//! fields, or a conflict. It must not know requests.

mod check;
mod merge;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::halt::{Halt, Status};
use crate::managed_fields::fields::Fields;
use crate::managed_fields::typed::{Shape, compare, field_set, shape, with_named};
use crate::managed_fields::{self, Managed, Manager, Operation, Owned, reset};
use crate::resource::{Resource, group_version};
use crate::schema::Place;
use crate::time;

/// Where `kubectl apply` keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager of what was there before the first apply to an object without managed fields.
const BEFORE: &str = "before-first-apply";

/// Who applies, and how.
pub(crate) struct Applier<'a> {
    pub(crate) manager: &'a str,
    pub(crate) force: bool,
    pub(crate) subresource: &'a str,
    pub(crate) now: Timestamp,
}

/// What others own that an apply would change, by its path.
type Conflicts = Vec<(Manager, Owned, Fields)>;

/// One apply: what does not change when it is tried again with force.
struct Apply<'a> {
    resource: &'a Resource,
    place: Place<'a>,
    live: &'a Value,
    applied: &'a Value,
    me: Manager,
    reset: Fields,
}

pub(crate) fn apply(
    resource: &Resource,
    live: Option<&Value>,
    applied: &Value,
    applier: &Applier<'_>,
) -> Result<Value, Halt> {
    check_version(resource, applied)?;
    let schema = resource.schema();
    let place = schema.root();
    let live = live.map_or_else(|| Cow::Owned(json!({})), Cow::Borrowed);
    let mut managed = managed_fields::decode(&live["metadata"]["managedFields"]).unwrap_or_default();
    let reset = reset::fields(resource, applier.subresource);
    let (version, now) = (resource.api_version(), applier.now);
    if managed.is_empty() {
        let before = managed_fields::before_creation(resource);
        let comparison = compare(before, &live, place).outside(&reset);
        let manager = Manager::new(BEFORE, Operation::Update, &version, applier.subresource);
        if live.get("metadata").is_some() {
            managed_fields::record(&mut managed, &comparison, manager, &version, now);
        }
    }
    if applied["metadata"].get("managedFields").is_some_and(|entries| !entries.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil").into());
    }
    check::check(resource, applied)?;
    let me = Manager::new(applier.manager, Operation::Apply, &version, applier.subresource);
    let apply = Apply { resource, place, live: &live, applied, me, reset };
    let (merged, mut managed) = apply.run(managed, applier.force, applier.manager == "kubectl")?;
    managed_fields::strip(&mut managed, &apply.me);
    let mut object = match merged {
        Some(merged) => {
            if let Some(owned) = managed.get_mut(&apply.me) {
                // Who sets replicas by `scale` is noted without a time.
                owned.time = (applier.subresource != "scale").then(|| time::seconds(now));
            }
            merged
        }
        None => live.into_owned(),
    };
    managed_fields::set(&mut object, &managed);
    if applier.manager == "kubectl" {
        keep_last_applied(&mut object, applied);
    }
    Ok(object)
}

/// An object with what a configuration sets: it is merged as by an apply, but nobody owns it. Or why that cannot be.
pub(crate) fn merged(resource: &Resource, object: &Value, configuration: &Value) -> Result<Value, String> {
    if let Some(faults) = check::faults(resource, configuration) {
        return Err(format!("failed to convert patch object to typed object: {faults}"));
    }
    let (place, mut found) = (resource.schema().root(), Vec::new());
    atomics(configuration, place, "", &mut found);
    if !found.is_empty() {
        let why = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs";
        return Err(format!("{why}: {}", found.join(", ")));
    }
    Ok(merge::merge(object, configuration, Some(place)))
}

/// The lists, maps and structs of a configuration that are one value each, by their paths.
fn atomics(value: &Value, place: Place<'_>, path: &str, found: &mut Vec<String>) {
    if (value.is_object() || value.is_array()) && matches!(shape(value, Some(place)), Shape::Leaf) {
        found.push(path.to_owned());
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        if let Some(place) = place.field(name) {
            atomics(value, place, &format!("{path}.{name}"), found);
        }
    }
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        if let Some(place) = place.items() {
            atomics(item, place, &format!("{path}[{at}]"), found);
        }
    }
}

fn check_version(resource: &Resource, applied: &Value) -> Result<(), Halt> {
    let text = |key: &str| applied[key].as_str().unwrap_or_default();
    if text("kind") == &*resource.kind && text("apiVersion") == resource.api_version() {
        return Ok(());
    }
    let (group, version) = group_version(text("apiVersion"));
    Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={}", text("kind"))).into())
}

impl Apply<'_> {
    /// Applies; of conflicts, those are forced that `kubectl apply` without `--server-side` left behind.
    fn run(&self, managed: Managed, force: bool, is_kubectl: bool) -> Result<(Option<Value>, Managed), Halt> {
        let conflicts = match self.merge(managed.clone(), force) {
            Ok(done) => return Ok(done),
            Err(conflicts) => conflicts,
        };
        let Some(allowed) = is_kubectl.then(|| self.last_applied()).flatten() else {
            return Err(refusal(&conflicts).into());
        };
        let left = conflicts.into_iter().map(|(manager, owned, fields)| (manager, owned, fields.difference(&allowed)));
        let left: Conflicts = left.filter(|(.., fields)| !fields.is_empty()).collect();
        if left.is_empty() {
            return self.merge(managed, true).map_err(|conflicts| refusal(&conflicts).into());
        }
        Err(refusal(&left).into())
    }

    /// The merged object, or none if nothing changes.
    fn merge(&self, mut managed: Managed, force: bool) -> Result<(Option<Value>, Managed), Conflicts> {
        let merged = merge::merge(self.live, self.applied, Some(self.place));
        let last = managed.remove(&self.me);
        let mine = field_set(self.applied, self.place).outside(&self.reset);
        let time = last.as_ref().and_then(|owned| owned.time.clone());
        let api_version = self.resource.api_version();
        managed.insert(self.me.clone(), Owned { api_version, time, fields: mine });
        let merged = match &last {
            Some(last) if !last.fields.is_empty() => self.prune(merged, &managed, &last.fields),
            _ => merged,
        };
        let comparison = compare(self.live, &merged, self.place).outside(&self.reset);
        if !force {
            let changed = comparison.modified.union(&comparison.added);
            let others = managed.iter().filter(|(manager, _)| **manager != self.me);
            let conflicts =
                others.map(|(manager, owned)| (manager.clone(), owned.clone(), owned.fields.intersection(&changed)));
            let conflicts: Conflicts = conflicts.filter(|(.., fields)| !fields.is_empty()).collect();
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        managed_fields::take(&mut managed, &comparison, Some(&self.me));
        let changed = *self.live != merged;
        Ok((changed.then_some(merged), managed))
    }

    /// Removes what this manager applied the last time, and neither it nor anybody else owns now.
    fn prune(&self, merged: Value, managed: &Managed, last: &Fields) -> Value {
        let named = |fields: &Fields| with_named(fields, Some(self.place));
        let set = |object: &Value| named(&field_set(object, self.place));
        let without = |fields: &Fields| {
            let mut object = merged.clone();
            merge::remove(&mut object, Some(self.place), fields);
            object
        };
        let last = named(last);
        let all = set(&merged);
        let owned = managed.values().fold(Fields::default(), |owned, other| owned.union(&other.fields));
        let left = set(&without(&last)).union(&named(&owned));
        let left = set(&without(&all.difference(&left)));
        without(&all.difference(&left).intersection(&last))
    }

    /// What `kubectl apply` without `--server-side` applied and is still so.
    fn last_applied(&self) -> Option<Fields> {
        let text = self.live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
        let object: Value = serde_json::from_str(text).ok()?;
        if object["apiVersion"].as_str()? != self.resource.api_version() {
            return None;
        }
        let comparison = compare(&object, self.live, self.place);
        let changed = comparison.modified.union(&comparison.added).union(&comparison.removed);
        Some(field_set(&object, self.place).difference(&changed))
    }
}

/// An annotation of `kubectl apply` follows what kubectl applies from the server's side.
fn keep_last_applied(object: &mut Value, applied: &Value) {
    let annotations = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    let Some(annotation) = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED)) else { return };
    if annotation.as_str().is_some_and(|text| !text.is_empty()) {
        let mut applied = applied.clone();
        if let Some(annotations) = applied["metadata"].get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                applied["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
            }
        }
        // The encoder ends its document with a line end.
        *annotation = format!("{applied}\n").into();
    }
}

fn refusal(conflicts: &Conflicts) -> Status {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for (manager, owned, fields) in conflicts {
        let manager = shown(manager, owned);
        lines.push(format!("conflicts with {manager}:"));
        for path in fields.paths() {
            lines.push(format!("- {path}"));
            let message = format!("conflict with {manager}");
            causes.push(json!({"reason": "FieldManagerConflict", "message": message, "field": path}));
        }
    }
    let message = match causes.as_slice() {
        [one] => {
            let text = |key: &str| one[key].as_str().unwrap_or_default();
            format!("Apply failed with 1 conflict: {}: {}", text("message"), text("field"))
        }
        many => format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n")),
    };
    Status { code: 409, reason: "Conflict", message, details: Some(json!({"causes": causes})) }
}

/// A manager as messages name it.
fn shown(manager: &Manager, owned: &Owned) -> String {
    let mut shown = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        shown += &format!(" with subresource {:?}", manager.subresource);
    }
    if manager.operation == Operation::Update {
        shown += &format!(" using {}", owned.api_version);
    }
    shown
}

#[cfg(test)]
mod tests;
