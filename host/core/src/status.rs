//! The status of a reconciled object: what the guest wants merged with what stands there, as the smallest JSON merge
//! patch, or nothing when nothing would change (X5). The host stamps times and observedGeneration (X6).

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::contract::{Condition, ConditionStatus};
use crate::json::is_same;
use crate::manifest::CustomResource;
use crate::object::{Kind, Object};
use crate::time;
use crate::time::Now;

/// The condition by which the host says that an object gets no further; absent while all is well, as kstatus has it.
pub const STALLED: &str = "Stalled";
/// The condition by which the host says that an object is on its way, with what `Ready` says: present while the guest's
/// `Ready` is not True and the object is not stalled, as kstatus has it. A guest may state one of its own instead.
pub const RECONCILING: &str = "Reconciling";
/// The condition that a guest sums up an object by.
const READY: &str = "Ready";
/// The condition by which the host says that evictions wait for a PodDisruptionBudget; absent while none does.
pub const EVICTING: &str = "Evicting";
/// Its reason.
const BLOCKED: &str = "DisruptionBudget";

/// Whether a condition of this type is the host's own, so that no guest states it.
pub fn is_of_host(name: &str) -> bool {
    name == STALLED || name == EVICTING
}

/// Which of the host's own fields a kind's status can hold. What the schema does not name would be pruned by the API
/// server, and the host would write it again for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatusShape {
    /// The kind has a status subresource.
    pub subresource: bool,
    /// status.observedGeneration.
    pub observed_generation: bool,
    /// status.conditions.
    pub conditions: bool,
    /// status.conditions[].observedGeneration.
    pub condition_generation: bool,
    /// status.conditions is a map by type, so that the API server records whose each condition is.
    pub conditions_by_type: bool,
}

impl StatusShape {
    /// Reads the shape out of the CRD that serves a kind.
    pub fn of(crd: &CustomResource, kind: &Kind) -> Self {
        let Ok(body) = serde_json::from_str::<Value>(&crd.body) else { return Self::default() };
        let versions = body["spec"]["versions"].as_array();
        let Some(version) = versions.into_iter().flatten().find(|version| version["name"] == *kind.version()) else {
            return Self::default();
        };
        let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"];
        let open = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == true;
        let has = |schema: &Value, name: &str| open(schema) || !schema["properties"][name].is_null();
        let list = &status["properties"]["conditions"];
        let item = &list["items"];
        Self {
            subresource: version["subresources"]["status"].is_object(),
            observed_generation: has(status, "observedGeneration"),
            conditions: has(status, "conditions"),
            condition_generation: open(status) || has(item, "observedGeneration"),
            conditions_by_type: list["x-kubernetes-list-type"] == "map"
                && list["x-kubernetes-list-map-keys"] == json!(["type"]),
        }
    }
}

/// What a status is made of.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a> {
    /// The guest's fields; None leaves them alone.
    pub fields: Option<&'a Map<String, Value>>,
    /// The guest's conditions; None leaves them alone.
    pub conditions: Option<&'a [Condition]>,
    /// The host's own condition: the reason and message of [`STALLED`], or None when the object is not stalled.
    pub stalled: Option<(&'a str, &'a str)>,
    /// Whether the host's own condition [`RECONCILING`] goes with a `Ready` that is not True.
    pub tells_progress: bool,
    /// The host's own condition [`EVICTING`]: which Pods wait for which budget, or None when none does.
    pub evicting: Option<&'a str>,
    /// The generation of the object that the guest was given, which the status is about.
    pub generation: i64,
}

/// The merge patch that turns the live status into the wanted one, or None when it stands already.
pub fn patch(primary: &Object, manager: &str, shape: StatusShape, wanted: &Wanted<'_>, now: Now) -> Option<Arc<str>> {
    if !shape.subresource {
        return None;
    }
    let live = live_status(primary);
    let owned = owned_fields(primary, manager);
    let mut changes = Map::new();
    if let Some(fields) = wanted.fields {
        for (name, value) in fields {
            if name == "conditions" || name == "observedGeneration" {
                continue;
            }
            difference(live.get(name), value, name, &mut changes);
        }
        for name in owned.keys().filter_map(|key| key.strip_prefix("f:")) {
            let host_owned = name == "conditions" || name == "observedGeneration";
            if !host_owned && !fields.contains_key(name) && live.contains_key(name) {
                changes.insert(name.to_owned(), Value::Null);
            }
        }
    }
    if shape.observed_generation
        && wanted.fields.is_some()
        && live.get("observedGeneration") != Some(&json!(wanted.generation))
    {
        changes.insert("observedGeneration".to_owned(), json!(wanted.generation));
    }
    if shape.conditions || wanted.conditions.is_some_and(|conditions| !conditions.is_empty()) {
        let before = live.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let after = conditions(before, &owned, wanted, shape.condition_generation.then_some(wanted.generation), now);
        if after != before {
            changes.insert("conditions".to_owned(), Value::Array(after));
        }
    }
    if changes.is_empty() {
        return None;
    }
    let mut metadata = json!({"uid": &*primary.uid});
    if changes.contains_key("conditions") && has_foreign_condition(&live, &owned, wanted) {
        // A merge patch replaces the list as a whole, so it has to be the list that was seen.
        metadata["resourceVersion"] = json!(primary.resource_version.0.to_string());
    }
    Some(json!({"metadata": metadata, "status": changes}).to_string().into())
}

/// Whether somebody else has a condition on this object.
fn has_foreign_condition(live: &Map<String, Value>, owned: &Map<String, Value>, wanted: &Wanted<'_>) -> bool {
    let ours = |name: &str| {
        is_of_host(name) || is_owned(owned, name) || wanted.conditions.into_iter().flatten().any(|c| c.name == name)
    };
    let conditions = live.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| !ours(condition["type"].as_str().unwrap_or_default()))
}

/// Whether the field set that is recorded for our writes has the condition of this type.
fn is_owned(owned: &Map<String, Value>, name: &str) -> bool {
    owned.get("f:conditions").is_some_and(|set| !set[format!("k:{}", json!({"type": name}))].is_null())
}

/// Whether the object says already that it is stalled for this reason.
pub fn says_stalled(primary: &Object, reason: &str, message: &str) -> bool {
    let live = live_status(primary);
    let conditions = live.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == STALLED
            && condition["status"] == "True"
            && condition["reason"] == reason
            && condition["message"] == message
    })
}

fn live_status(primary: &Object) -> Map<String, Value> {
    #[derive(Deserialize)]
    struct WithStatus<'a> {
        #[serde(borrow)]
        status: Option<&'a RawValue>,
    }
    let text = serde_json::from_str::<WithStatus<'_>>(primary.json()).ok().and_then(|object| object.status);
    text.and_then(|text| serde_json::from_str(text.get()).ok()).unwrap_or_default()
}

/// The `f:status` part of the field set that the API server has recorded for our writes of this status.
fn owned_fields(primary: &Object, manager: &str) -> Map<String, Value> {
    let entry = primary.own_fields.iter().find(|own| &*own.subresource == "status" && &*own.manager == manager);
    let fields = entry.and_then(|own| serde_json::from_str::<Value>(&own.fields).ok());
    match fields.and_then(|mut fields| fields.get_mut("f:status").map(Value::take)) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Adds to `changes` what makes `live` equal to `wanted` under `name`. A null in `wanted` means absent, because a merge
/// patch cannot say anything else by it.
fn difference(live: Option<&Value>, wanted: &Value, name: &str, changes: &mut Map<String, Value>) {
    match (live, wanted) {
        (None | Some(Value::Null), Value::Null) => {}
        (Some(Value::Object(live)), Value::Object(wanted)) => {
            let mut inner = Map::new();
            for (name, value) in wanted {
                difference(live.get(name), value, name, &mut inner);
            }
            for name in live.keys().filter(|name| !wanted.contains_key(*name)) {
                inner.insert(name.clone(), Value::Null);
            }
            if !inner.is_empty() {
                changes.insert(name.to_owned(), Value::Object(inner));
            }
        }
        (Some(live), wanted) if is_same(live, wanted) => {}
        _ => {
            changes.insert(name.to_owned(), wanted.clone());
        }
    }
}

fn conditions(
    before: &[Value],
    owned: &Map<String, Value>,
    wanted: &Wanted<'_>,
    generation: Option<i64>,
    now: Now,
) -> Vec<Value> {
    let of_host = |name: &str, status, reason: &str, message: &str| Condition {
        name: name.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let stalled = wanted.stalled.map(|(reason, message)| of_host(STALLED, ConditionStatus::True, reason, message));
    let evicting = wanted.evicting.map(|message| of_host(EVICTING, ConditionStatus::False, BLOCKED, message));
    let reconciling =
        unready(wanted).map(|ready| of_host(RECONCILING, ConditionStatus::True, &ready.reason, &ready.message));
    let guests = wanted.conditions.into_iter().flatten();
    let all: Vec<&Condition> = guests.chain(&reconciling).chain(&stalled).chain(&evicting).collect();
    // A guest that leaves its conditions alone (it failed) keeps them; the host's own always follow the state.
    let is_left_over = |condition: &Value| {
        let name = condition["type"].as_str().unwrap_or_default();
        let ours = is_owned(owned, name);
        let follows_state = name == EVICTING || (name == RECONCILING && wanted.stalled.is_some());
        let is_over = name == STALLED || (ours && (follows_state || wanted.conditions.is_some()));
        !all.iter().any(|wanted| wanted.name == name) && is_over
    };
    let mut after: Vec<Value> = before.iter().filter(|condition| !is_left_over(condition)).cloned().collect();
    for condition in all {
        let place = after.iter().position(|found| found["type"] == condition.name);
        let live = place.map(|place| &after[place]);
        let stamped = stamp(condition, live, generation, now);
        match place {
            Some(place) => after[place] = stamped,
            None => after.push(stamped),
        }
    }
    after
}

/// The guest's `Ready` of an object that is on its way.
fn unready<'a>(wanted: &Wanted<'a>) -> Option<&'a Condition> {
    let stated = wanted.conditions.unwrap_or_default();
    let is_told = wanted.stalled.is_none() && !stated.iter().any(|condition| condition.name == RECONCILING);
    let is_unready = |condition: &&Condition| condition.name == READY && condition.status != ConditionStatus::True;
    stated.iter().find(is_unready).filter(|_| wanted.tells_progress && is_told)
}

/// A condition as it is written: unchanged conditions keep their time, and so compare equal to what stands there.
pub fn stamp(condition: &Condition, live: Option<&Value>, generation: Option<i64>, now: Now) -> Value {
    let same_status = live.filter(|live| live["status"] == condition.status.as_str());
    let since = same_status.and_then(|live| live["lastTransitionTime"].as_str()).map(str::to_owned);
    let mut stamped = json!({
        "type": condition.name,
        "status": condition.status.as_str(),
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since.unwrap_or_else(|| time::seconds(now.unix_ms)),
    });
    if let Some(generation) = generation {
        stamped["observedGeneration"] = json!(generation);
    }
    stamped
}

#[cfg(test)]
mod tests;
