//! The status of a reconciled object: compares the guest's status and conditions with the live ones and makes the
//! smallest JSON merge patch, or none if nothing would change (X5). The host stamps times and observedGeneration (X6).

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::conditions::{Conditions, Live};
use self::difference::difference;
use crate::contract::{Condition, ConditionStatus};
use crate::json::level::{Level, Member, member};
use crate::json::object_text::ObjectText;
use crate::manifest::CustomResource;
use crate::object::{Kind, Object};
use crate::time::{self, Now};

mod conditions;
mod difference;

/// The host's condition of an object that makes no progress, as in kstatus; absent otherwise.
pub const STALLED: &str = "Stalled";
/// The host's condition, as in kstatus, while the guest's `Ready` is not True and the object is not stalled; it has the
/// reason and message of `Ready`. A guest may set its own instead.
pub const RECONCILING: &str = "Reconciling";
/// The reason of the host's [`READY`] while an object that was stalled is retried.
const RETRYING: &str = "Retrying";
/// The guest's summary of an object. The host sets it False while the object is stalled, so that nobody who waits for it
/// takes a stalled object for a ready one.
const READY: &str = "Ready";
/// The host's condition while evictions wait for a PodDisruptionBudget; absent otherwise.
pub const EVICTING: &str = "Evicting";
/// Its reason.
const BLOCKED: &str = "DisruptionBudget";

/// Whether only the host may set a condition of this type.
pub fn is_of_host(name: &str) -> bool {
    name == STALLED || name == EVICTING
}

/// The host's own fields that the schema of a kind's status has. The API server would prune other fields, and the host
/// would write them again for ever.
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
    /// status.conditions is a map by type, so that the API server records the manager of each condition.
    pub conditions_by_type: bool,
}

impl StatusShape {
    /// Reads the shape from the CRD that serves a kind.
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

/// The wanted status.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a> {
    /// The guest's fields; None leaves them alone.
    pub fields: Option<&'a Map<String, Value>>,
    /// The guest's conditions; None leaves them alone.
    pub conditions: Option<&'a [Condition]>,
    /// No conditions but these.
    pub is_whole: bool,
    /// Reason and message of [`STALLED`], or None.
    pub stalled: Option<(&'a str, &'a str)>,
    /// Why the guest's call is retried, or None. An object that was stalled is not ready before its next outcome.
    pub retrying: Option<&'a str>,
    /// Whether the host sets [`RECONCILING`] for a `Ready` that is not True.
    pub reports_progress: bool,
    /// The message of [`EVICTING`], which names Pods and budgets, or None.
    pub evicting: Option<&'a str>,
    /// The generation of the object that the guest saw.
    pub generation: i64,
    /// A change of the object since this version is a conflict.
    pub at_version: bool,
}

/// The merge patch from the live status to the wanted one, or None if they are equal.
pub fn patch(primary: &Object, manager: &str, shape: StatusShape, wanted: &Wanted<'_>, now: Now) -> Option<Arc<str>> {
    if !shape.subresource {
        return None;
    }
    let live = live_status(primary);
    // Most calls want what is there, so that nothing asks who owns it.
    let owned = LazyCell::new(|| Owned::of(primary, manager));
    let mut changes: BTreeMap<&str, String> = BTreeMap::new();
    if let Some(fields) = wanted.fields {
        let is_of_guest = |name: &str| name != "conditions" && name != "observedGeneration";
        for (name, value) in fields.iter().filter(|(name, _)| is_of_guest(name)) {
            if let Some(change) = difference(member(&live, name), value) {
                changes.insert(name, change);
            }
        }
        for (name, _) in live.iter().filter(|(name, _)| is_of_guest(name) && !fields.contains_key(&**name)) {
            if owned.has_field(name) {
                changes.insert(name, "null".to_owned());
            }
        }
        let (has, generation) = (member(&live, "observedGeneration").map(RawValue::get), wanted.generation.to_string());
        if shape.observed_generation && has != Some(&*generation) {
            changes.insert("observedGeneration", generation);
        }
    }
    let mut replaces_others = false;
    if shape.conditions || wanted.conditions.is_some_and(|conditions| !conditions.is_empty()) {
        let guests = wanted.conditions.into_iter().flatten().map(|condition| &*condition.name);
        let before = Conditions::of(&live, guests.chain([STALLED, READY, RECONCILING, EVICTING]));
        let generation = shape.condition_generation.then_some(wanted.generation);
        if let Some(after) = changed(&before, |name| owned.has_condition(name), wanted, generation, now) {
            changes.insert("conditions", after);
            // A merge patch replaces the whole list, so another writer's change must be a conflict.
            replaces_others = has_foreign_condition(&before, &owned, wanted);
        }
    }
    let mut status = ObjectText::default();
    changes.iter().for_each(|(name, change)| status.push(name, change));
    let status = status.finish()?;
    let mut metadata = json!({"uid": &*primary.uid});
    if wanted.at_version || replaces_others {
        metadata["resourceVersion"] = json!(primary.resource_version.0.to_string());
    }
    Some(format!(r#"{{"metadata":{metadata},"status":{status}}}"#).into())
}

/// Whether another manager has a condition on this object.
fn has_foreign_condition(live: &Conditions<'_>, owned: &Owned<'_>, wanted: &Wanted<'_>) -> bool {
    let is_ours = |name: &str| {
        is_of_host(name) || owned.has_condition(name) || wanted.conditions.into_iter().flatten().any(|c| c.name == name)
    };
    live.any(|condition| !is_ours(&condition.name))
}

/// Whether the object has the condition [`STALLED`] with this reason and message.
pub fn shows_stalled(primary: &Object, reason: &str, message: &str) -> bool {
    Conditions::of(&live_status(primary), [STALLED]).find(STALLED).is_some_and(|condition| {
        (&*condition.status, &*condition.reason, &*condition.message) == ("True", reason, message)
    })
}

/// The members of the live status, each as text: who may write it may write anything.
fn live_status(primary: &Object) -> Vec<Member<'_>> {
    primary.status().map_or_else(Vec::new, members_of)
}

fn members_of(text: &str) -> Vec<Member<'_>> {
    let members = |text| Level::of(text, usize::MAX).into_members();
    serde_json::from_str(text).ok().and_then(members).unwrap_or_default()
}

/// The field set of our manager in the status.
#[derive(Default)]
struct Owned<'a> {
    fields: Vec<Member<'a>>,
    /// Types.
    conditions: BTreeSet<String>,
}

impl<'a> Owned<'a> {
    fn of(primary: &'a Object, manager: &str) -> Self {
        let entry = primary.own_fields.iter().find(|own| &*own.subresource == "status" && &*own.manager == manager);
        let all = entry.map_or_else(Vec::new, |own| members_of(&own.fields));
        let within =
            |members: &[Member<'a>], name| member(members, name).map_or_else(Vec::new, |of| members_of(of.get()));
        let fields = within(&all, "f:status");
        let keys = within(&fields, "f:conditions");
        let name = |key: &str| Some(serde_json::from_str::<Keys>(key.strip_prefix("k:")?).ok()?.name);
        Self { conditions: keys.iter().filter_map(|(key, _)| name(key)).collect(), fields }
    }

    fn has_field(&self, name: &str) -> bool {
        member(&self.fields, &format!("f:{name}")).is_some()
    }

    /// Whether it has the condition of this type.
    fn has_condition(&self, name: &str) -> bool {
        self.conditions.contains(name)
    }
}

/// What identifies a condition in a field set.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(rename = "type")]
    name: String,
}

/// The wanted conditions, or None when they are those `before`.
fn changed(
    before: &Conditions<'_>,
    owned: impl Fn(&str) -> bool,
    wanted: &Wanted<'_>,
    generation: Option<i64>,
    now: Now,
) -> Option<String> {
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
    let unready = unready_by_host(before, &owned, wanted)
        .map(|(reason, message)| of_host(READY, ConditionStatus::False, reason, message));
    let guests = wanted.conditions.into_iter().flatten().filter(|guest| unready.is_none() || guest.name != READY);
    let all: Vec<&Condition> = guests.chain(&unready).chain(&reconciling).chain(&stalled).chain(&evicting).collect();
    // A failed call leaves the guest's conditions alone; the host's own always follow the state.
    let has_hosts_ready = wanted.stalled.is_none() && is_unready_by_host(before);
    let is_obsolete = |condition: &Live<'_>| {
        let name = &*condition.name;
        let follows_state = name == EVICTING || (name == RECONCILING && wanted.stalled.is_some());
        let may_be_ours = follows_state || wanted.conditions.is_some();
        let is_hosts = match name {
            STALLED => true,
            // Where the list is not a map by type, the API server does not say whose a condition is.
            EVICTING => condition.reason == BLOCKED,
            READY => has_hosts_ready,
            _ => false,
        };
        !all.iter().any(|found| found.name == name) && (wanted.is_whole || is_hosts || (may_be_ours && owned(name)))
    };
    let is_there = |condition: &&Condition| {
        before.find(&condition.name).is_some_and(|live| is_stamped(live, condition, generation))
    };
    if all.iter().all(is_there) && !before.any(is_obsolete) {
        return None;
    }
    let (mut after, mut rest) = (String::from("["), all.clone());
    let mut push = |text: &str| {
        if after.len() > 1 {
            after.push(',');
        }
        after.push_str(text);
    };
    // Each takes the place of the first of its type.
    before.each(|live, text| match rest.iter().position(|condition| condition.name == live.name) {
        Some(place) => push(&stamp(rest.remove(place), Some(live), generation, now).to_string()),
        None if is_obsolete(live) => {}
        None => push(text.get()),
    });
    rest.into_iter().for_each(|condition| push(&stamp(condition, None, generation, now).to_string()));
    after.push(']');
    Some(after)
}

/// Reason and message of the [`READY`] that the host sets for a stalled object, and until the next outcome when that is
/// retried: unless the guest's own is False already, or it is another manager's.
fn unready_by_host<'a>(
    before: &Conditions<'_>,
    owned: impl Fn(&str) -> bool,
    wanted: &Wanted<'a>,
) -> Option<(&'a str, &'a str)> {
    let live = before.find(READY);
    let is_hosts = is_unready_by_host(before);
    let own = wanted.conditions.and_then(|guests| guests.iter().find(|guest| guest.name == READY));
    let guests_is_false = match (wanted.conditions, own) {
        (Some(_), own) => own.is_some_and(|guest| guest.status == ConditionStatus::False),
        (None, _) => live.is_some_and(|ready| ready.status == "False") && !is_hosts,
    };
    // The API server records managers of single conditions only where the list is a map.
    let is_anothers = live.is_some() && own.is_none() && !is_hosts && wanted.reports_progress && !owned(READY);
    let retrying = wanted.retrying.filter(|_| is_hosts).map(|message| (RETRYING, message));
    wanted.stalled.or(retrying).filter(|_| !guests_is_false && !is_anothers)
}

/// Whether the host has set the live [`READY`]: it has the reason and message of [`STALLED`] beside it, or is of a retry
/// after that.
fn is_unready_by_host(live: &Conditions<'_>) -> bool {
    let is_of_stall = |ready: &Live<'_>| {
        live.find(STALLED).is_some_and(|stalled| (&ready.reason, &ready.message) == (&stalled.reason, &stalled.message))
    };
    let is_hosts = |ready: &Live<'_>| ready.status == "False" && (ready.reason == RETRYING || is_of_stall(ready));
    live.find(READY).is_some_and(is_hosts)
}

/// Whether [`stamp`] would change nothing.
fn is_stamped(
    live: &Live<'_>,
    Condition { name, status, reason, message }: &Condition,
    generation: Option<i64>,
) -> bool {
    let wanted = (&**name, status.as_str(), &**reason, &**message);
    (&*live.name, &*live.status, &*live.reason, &*live.message) == wanted
        && live.generation == generation
        && live.is_plain
}

/// The guest's `Ready` for which the host sets [`RECONCILING`].
fn unready<'a>(wanted: &Wanted<'a>) -> Option<&'a Condition> {
    let guests = wanted.conditions.unwrap_or_default();
    let is_set_by_host = wanted.reports_progress
        && wanted.stalled.is_none()
        && !guests.iter().any(|condition| condition.name == RECONCILING);
    let is_unready = |condition: &&Condition| condition.name == READY && condition.status != ConditionStatus::True;
    guests.iter().find(is_unready).filter(|_| is_set_by_host)
}

/// The JSON of a condition. One of unchanged status keeps its time, so that it equals the live one.
fn stamp(condition: &Condition, live: Option<&Live<'_>>, generation: Option<i64>, now: Now) -> Value {
    let same_status = live.filter(|live| live.status == condition.status.as_str());
    let since = same_status.and_then(|live| live.since.as_deref()).map(str::to_owned);
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
