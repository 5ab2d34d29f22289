//! The host's checks of an outcome: an outcome and its object go in, the first broken rule comes out, with the host's
//! message. A test of the workspace compares these rules with the host's.
//!
//! What the API server checks (a schema, a quota, a kind's own rules for names) is not checked here.

use std::collections::BTreeSet;

use serde_json::Value;

use super::actions::{self, Allowed};
use super::generated;
use super::metadata::{MAX_CHILD_BYTES, Refused, is_builtin, is_object_name, json, shown, whole_metadata};
use super::requests;
use crate::action::Action;
use crate::conditions::Condition;
use crate::error::Failure;
use crate::json::Json;
use crate::manifest::{Owned, Update};
use crate::object::ObjectKey;
use crate::outcome::{Child, Event, Handling, MAX_CHILDREN, Outcome};
use crate::view::native::fields;
use crate::view::native::scope::{Scope, place};
use crate::view::native::tree::{key_of, namespace_of, text};

/// Bytes of everything that one call returns. Four MiB is eight of the largest children.
const MAX_OUTPUT_BYTES: usize = 4 << 20;
/// Bytes of a status.
const MAX_STATUS_BYTES: usize = 256 << 10;
/// Bytes of a child's key: as long as a name, because a key may be the name of a node.
const MAX_KEY_BYTES: usize = 253;
/// Bytes of a condition's or Event's reason: the API server's bound for Events.
const MAX_REASON_BYTES: usize = 128;
/// Bytes of a condition's type: the API server's bound.
const MAX_CONDITION_TYPE_BYTES: usize = 316;
/// The host's condition of an object that makes no progress.
const STALLED: &str = "Stalled";
/// The host's condition of evictions that wait for a budget.
const EVICTING: &str = "Evicting";
/// The fields of a child that is kept as it is.
const IDENTITY: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// Exact maps of one child, and members of one path to them.
const MAX_EXACT: usize = 16;
/// The fields of an object that others own members of.
const SHARED: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// Conditions of one outcome.
const MAX_CONDITIONS: usize = 32;
/// Events of one outcome. client-go allows a burst of 25 per object; a reconcile needs far fewer.
const MAX_EVENTS: usize = 16;

/// Checks an outcome about `primary` of a controller that owns, may read and may write these kinds.
///
/// # Errors
/// A terminal failure that names the broken rule, the child and the field.
pub(super) fn check(
    outcome: &Outcome<Value>,
    owns: &[&Owned],
    allowed: &Allowed<'_>,
    primary: &Value,
) -> Result<(), Failure> {
    let checked = output_bytes(outcome)
        .and_then(|()| finalized(outcome, allowed, primary))
        .and_then(|()| foreign_status(outcome, primary))
        .and_then(|()| children(outcome.children.as_deref().unwrap_or_default(), owns, primary))
        .and_then(|()| actions::check(&outcome.actions, allowed, &named_children(outcome, primary)))
        .and_then(|()| outcome.status.as_ref().map_or(Ok(()), status))
        .and_then(|()| conditions(&outcome.conditions))
        .and_then(|()| events(&outcome.events, allowed.readable))
        .and_then(|()| requests::check(&outcome.requests, allowed.http, primary));
    checked.map_err(|why| Failure::terminal(format!("the host would refuse this outcome: {why}")))
}

/// The host counts a few bytes more for each list, so it refuses everything that this refuses.
fn output_bytes(outcome: &Outcome<Value>) -> Refused {
    let json = |json: &Json| json.text().map_or(0, str::len);
    let exact = |child: &Child| child.exact.iter().map(String::len).sum::<usize>();
    let children = outcome.children.iter().flatten();
    let children = children.map(|child| child.key.len() + json(&child.object) + exact(child) + generated::bytes(child));
    let conditions = outcome.conditions.iter().map(|each| each.name.len() + each.reason.len() + each.message.len());
    let events = outcome.events.iter().map(|each| each.reason.len() + each.message.len());
    let actions = outcome.actions.iter().map(|action| match action {
        Action::Apply(apply) => json(&apply.object),
        Action::Patch(patch) => json(&patch.body),
        Action::Delete(_) | Action::Evict(_) => 0,
    });
    let requests = outcome.requests.iter().map(|request| request.url().len() + request.content().len());
    let bytes = children.chain(actions).chain(conditions).chain(events).chain(requests).sum::<usize>()
        + outcome.status.as_ref().map_or(0, json);
    match bytes {
        ..=MAX_OUTPUT_BYTES => Ok(()),
        _ => Err(format!("the outcome is larger than {MAX_OUTPUT_BYTES} bytes")),
    }
}

/// A plugin must not write the status of a built-in kind.
fn foreign_status(outcome: &Outcome<Value>, primary: &Value) -> Refused {
    let (api_version, kind) = (text(primary, "/apiVersion"), text(primary, "/kind"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if !is_builtin(group) || (outcome.status.is_none() && outcome.conditions.is_empty()) {
        return Ok(());
    }
    let field = if outcome.status.is_some() { "status" } else { "conditions" };
    Err(format!(
        "{field}: {api_version}/{kind} is a built-in kind, whose status Kubernetes writes; return neither status nor \
         conditions, and say what matters in an event or in the status of a kind of your own"
    ))
}

fn children(children: &[Child], owns: &[&Owned], primary: &Value) -> Refused {
    if children.len() > MAX_CHILDREN {
        return Err(format!("children: there are {}, one object may have {MAX_CHILDREN}", children.len()));
    }
    let (mut keys, mut targets) = (BTreeSet::new(), BTreeSet::new());
    for child in children {
        let key = &child.key;
        let at = |why: String| format!("child {:?}: {why}", shown(key));
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(at(format!("a key has 1 to {MAX_KEY_BYTES} bytes")));
        }
        let object = json(&child.object, MAX_CHILD_BYTES).map_err(at)?;
        metadata(&object, owns, primary).map_err(at)?;
        handling(child, &object, owns).map_err(at)?;
        let (api_version, kind) = (text(&object, "/apiVersion").to_owned(), text(&object, "/kind").to_owned());
        // A name that the host derives is valid, and as unique as the key.
        let name = object.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
        let namespace = namespace_of(&object, primary);
        if let Some(wrong) = name.iter().chain(&namespace).find(|name| !is_object_name(name)) {
            return Err(at(format!("{wrong:?} is not a name that Kubernetes accepts")));
        }
        if !keys.insert((api_version.clone(), kind.clone(), key)) {
            return Err(at(format!("the key appears twice for {api_version}/{kind}")));
        }
        let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        if let Some(name) = name
            && !targets.insert((api_version, kind.clone(), place.clone(), name.clone()))
        {
            return Err(at(format!("{kind} {place}{name} appears twice")));
        }
    }
    Ok(())
}

fn finalized(outcome: &Outcome<Value>, allowed: &Allowed<'_>, primary: &Value) -> Refused {
    if outcome.finalized && !allowed.finalize {
        return Err("finalized: the manifest declares no finalizer for this kind".to_owned());
    }
    if outcome.finalized && primary["metadata"]["deletionTimestamp"].is_null() {
        return Err("finalized: the object is not being deleted".to_owned());
    }
    if outcome.finalized && !outcome.requests.is_empty() {
        return Err("finalized: nobody reads the responses of its requests; return it when they are there".to_owned());
    }
    Ok(())
}

/// The children that have a name of their own, as objects in the cluster.
fn named_children(outcome: &Outcome<Value>, primary: &Value) -> BTreeSet<ObjectKey> {
    let named = |child: &Child| {
        let object = child.object.value().ok()?;
        let key = ObjectKey { namespace: namespace_of(&object, primary), ..key_of(&object) };
        (!key.name.is_empty()).then_some(key)
    };
    outcome.children.iter().flatten().filter_map(named).collect()
}

/// Checks kind and metadata of a child.
fn metadata(object: &Value, owns: &[&Owned], primary: &Value) -> Refused {
    let (Some(api_version), Some(kind)) = (object["apiVersion"].as_str(), object["kind"].as_str()) else {
        return Err("apiVersion and kind are missing".to_owned());
    };
    let Some(owned) = owned(object, owns) else {
        return Err(format!("{api_version}/{kind} is not among the kinds that the manifest declares under owns"));
    };
    let metadata = &object["metadata"];
    whole_metadata(metadata)?;
    let own = text(primary, "/metadata/namespace");
    match metadata["namespace"].as_str() {
        Some(namespace) if !own.is_empty() && own != namespace && !owned.tracked => Err(format!(
            "metadata.namespace is {namespace:?}: a child lives in its owner's namespace, {own:?}; for children elsewhere \
             write \"namespaces\": \"any\" at {api_version}/{kind} under owns"
        )),
        own_namespace => {
            let namespace = own_namespace.unwrap_or(own);
            match place(owned.namespaces).filter(|_| !owned.namespaces.contains(&namespace)) {
                Some(place) => Err(format!(
                    "{api_version}/{kind} would be in the namespace {namespace:?}, and is owned {place} alone"
                )),
                None => Ok(()),
            }
        }
    }
}

fn owned<'a>(object: &Value, owns: &[&'a Owned]) -> Option<&'a Owned> {
    owns.iter()
        .find(|owned| owned.kind.api_version == object["apiVersion"] && owned.kind.kind == object["kind"])
        .copied()
}

/// Checks what a child says beside its fields.
fn handling(child: &Child, object: &Value, owns: &[&Owned]) -> Refused {
    let extra = object.as_object().and_then(|object| object.keys().find(|field| !IDENTITY.contains(&field.as_str())));
    if let Some(field) = extra.filter(|_| child.handling == Handling::Keep) {
        return Err(format!("{field}: a child that is kept as it is has only apiVersion, kind and metadata"));
    }
    let owned = owned(object, owns);
    if child.adopt {
        let kind = format!("{}/{}", text(object, "/apiVersion"), text(object, "/kind"));
        if !owned.is_some_and(|owned| owned.adopt) {
            return Err(format!(
                "adopt: the manifest does not let objects of {kind} be adopted; write \"adopt\": true at {kind} under owns"
            ));
        }
        if object["metadata"]["name"].is_null() {
            return Err("adopt: metadata.name has to say which object is adopted".to_owned());
        }
        if child.handling == Handling::Keep {
            return Err("adopt: a child that is kept as it is cannot be adopted".to_owned());
        }
    }
    let update = owned.and_then(|owned| owned.update).unwrap_or(Update::Apply);
    if !child.exact.is_empty() && (child.handling != Handling::Managed || update != Update::Apply) {
        return Err("only a child that is changed in place (`update` \"apply\") owns a map exactly".to_owned());
    }
    if child.exact.len() > MAX_EXACT {
        return Err(format!("exact: there are {} paths, the most is {MAX_EXACT}", child.exact.len()));
    }
    for path in &child.exact {
        let members = fields::parse(path)?;
        if members.len() > MAX_EXACT {
            return Err(format!("exact: a path has {} members, the most is {MAX_EXACT}", members.len()));
        }
        if let Some(first) = members.first().filter(|first| SHARED.contains(&first.as_str())) {
            return Err(format!("{path}: others have members of {first} too"));
        }
    }
    generated::check(child, object, update)
}

fn status(status: &Json) -> Refused {
    match json(status, MAX_STATUS_BYTES).map_err(|why| format!("status: {why}"))? {
        Value::Object(fields) if fields.contains_key("observedGeneration") => {
            Err("status.observedGeneration: the host writes it".to_owned())
        }
        Value::Object(fields) if fields.contains_key("conditions") => {
            Err("status.conditions: return conditions in the outcome's own list, the host merges and stamps them"
                .to_owned())
        }
        Value::Object(_) => Ok(()),
        other => Err(format!("status: expected a JSON object, found {}", shown(&other.to_string()))),
    }
}

fn conditions(conditions: &[Condition]) -> Refused {
    if conditions.len() > MAX_CONDITIONS {
        return Err(format!("conditions: there are {}, the most is {MAX_CONDITIONS}", conditions.len()));
    }
    let mut names = BTreeSet::new();
    for Condition { name, reason, .. } in conditions {
        if name == STALLED {
            return Err(format!("conditions: {STALLED} is the host's own; return a failure when the object is stuck"));
        }
        if name == EVICTING {
            return Err(format!("conditions: {EVICTING}: the host sets this condition for blocked evictions"));
        }
        if !is_condition_type(name) || !is_reason(reason) {
            return Err(format!("conditions: {name:?} with reason {reason:?}: both have to be CamelCase words"));
        }
        if !names.insert(name) {
            return Err(format!("conditions: {name:?} appears twice"));
        }
    }
    Ok(())
}

fn events(events: &[Event], readable: &[Scope]) -> Refused {
    if events.len() > MAX_EVENTS {
        return Err(format!("events: there are {}, the most is {MAX_EVENTS}", events.len()));
    }
    for about in events.iter().filter_map(|event| event.regarding.as_ref()) {
        let namespace = about.namespace.as_deref().unwrap_or_default();
        let sees = |scope: &Scope| scope.is_of(&about.api_version, &about.kind) && scope.has_namespace(namespace);
        if !readable.iter().any(sees) {
            let place = about.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            let object = format!("{} {place}{}", about.kind, about.name);
            return Err(format!("events: one is about {object}, which the manifest does not declare"));
        }
    }
    if let Some(event) = events.iter().find(|event| !is_reason(&event.reason)) {
        return Err(format!("events: the reason {:?} is not a CamelCase word", event.reason));
    }
    let mut regarding = events.iter().filter_map(|event| event.regarding.as_ref());
    match regarding.find(|about| !may_exist(about)) {
        Some(about) => {
            let place = about.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            let name = shown(&format!("{place}{}", about.name));
            Err(format!("events: one is about {} {name:?}, which is not a name that Kubernetes accepts", about.kind))
        }
        None => Ok(()),
    }
}

/// Whether an object of some kind may have this name: what a segment of a path can be, in a namespace.
fn may_exist(about: &ObjectKey) -> bool {
    let ObjectKey { namespace, name, .. } = about;
    let is_segment =
        (1..=MAX_KEY_BYTES).contains(&name.len()) && name != "." && name != ".." && !name.contains(['/', '%']);
    is_segment && namespace.as_deref().is_none_or(|namespace| namespace.is_empty() || is_object_name(namespace))
}

/// What the API server accepts as a condition's type: a CamelCase word, which may have a domain as a prefix.
fn is_condition_type(name: &str) -> bool {
    let (domain, word) = name.rsplit_once('/').map_or((None, name), |(domain, word)| (Some(domain), word));
    is_reason(word) && domain.is_none_or(is_object_name) && name.len() <= MAX_CONDITION_TYPE_BYTES
}

/// What the API server accepts as a condition's reason.
fn is_reason(reason: &str) -> bool {
    reason.starts_with(|first: char| first.is_ascii_alphabetic())
        && reason.len() <= MAX_REASON_BYTES
        && reason.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
