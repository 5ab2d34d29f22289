//! Checks an outcome and names its children (X3, X6, X10). Nothing here reads the cluster.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::fault::{bad, shown};
use super::prepared::{Body, Prepared, PreparedChild};
use super::{actions, body, exact, generated, metadata, name, requests};
use crate::contract::{Child, Condition, GuestEvent, GuestFault, Handling, Outcome};
use crate::digest::content_hash;
use crate::limits::{
    MAX_CHILD_BYTES, MAX_CHILDREN, MAX_CONDITIONS, MAX_EVENTS, MAX_REQUEUE_MS, MAX_STATUS_BYTES, MIN_REQUEUE_MS,
};
use crate::manifest::{ControllerSpec, OwnedKind, Replace, Update};
use crate::object::{Kind, Name, Object, ObjectRef, is_object_name, is_path_segment};
use crate::status::{STALLED, is_of_host};
use crate::text::{CONDITION, EVENT_NOTE};

/// The longest key: as long as a name, because keys are often names of nodes.
const MAX_KEY_BYTES: usize = 253;
/// Bytes of a checked outcome in memory: six times what a guest may return. A child has its text twice, once with what the host
/// adds, and five thousand of them take 14 MiB. Each call and each plan under way may have as many.
const MAX_OUTCOME_BYTES: usize = 24 << 20;
/// The fields of a child that is kept as it is.
const IDENTITY: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Checks an outcome and names its children (X3, X6, X10). `before` is the last prepared outcome of the same version of
/// the plugin for this object: children with the same text are not checked again.
///
/// # Errors
/// The outcome breaks a rule of the contract; the message names the child, the field and the rule.
pub fn prepare(
    spec: &ControllerSpec,
    primary: &Object,
    outcome: &Outcome,
    before: Option<&Prepared>,
) -> Result<Prepared, GuestFault> {
    if outcome.finalized && !spec.finalize {
        return bad("finalized: the manifest declares no finalizer for this kind");
    }
    if outcome.finalized && !primary.deleting {
        return bad("finalized: the object is not being deleted");
    }
    if outcome.finalized && !outcome.requests.is_empty() {
        return bad("finalized: nobody reads the responses of its requests; return it when they are there");
    }
    if spec.builtin && (outcome.status.is_some() || !outcome.conditions.is_empty()) {
        let field = if outcome.status.is_some() { "status" } else { "conditions" };
        return bad(format!(
            "{field}: {} is a built-in kind, whose status Kubernetes writes; return neither status nor conditions, \
             and say what matters in an event or in the status of a kind of your own",
            spec.primary
        ));
    }
    let before = before.and_then(|before| before.children.as_deref()).unwrap_or_default();
    let children =
        outcome.children.as_ref().map(|children| prepare_children(spec, primary, children, before)).transpose()?;
    let actions = actions::prepare(spec, &outcome.actions, children.as_deref())?;
    outcome.status.as_deref().map_or(Ok(()), check_status)?;
    let mut prepared = Prepared {
        children,
        actions,
        finalized: outcome.finalized,
        status: outcome.status.clone(),
        conditions: prepare_conditions(&outcome.conditions)?,
        events: prepare_events(spec, &outcome.events)?,
        requeue_after_ms: outcome.requeue_after_ms.map(|ms| u64::from(ms).clamp(MIN_REQUEUE_MS, MAX_REQUEUE_MS)),
        requests: requests::prepare(spec, primary, &outcome.requests)?,
        bytes: 0,
    };
    prepared.bytes = prepared.count_bytes();
    if prepared.bytes > MAX_OUTCOME_BYTES {
        return bad(format!(
            "it takes {} bytes of the host's memory, the most is {MAX_OUTCOME_BYTES}: want fewer children, or fewer generated values",
            prepared.bytes
        ));
    }
    Ok(prepared)
}

fn check_status(text: &str) -> Result<(), GuestFault> {
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
        Ok(Value::Object(_)) => Ok(()),
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
        let Condition { name, reason, .. } = condition;
        if name == STALLED {
            return bad(format!("conditions: {STALLED} is the host's own; return a failure when the object is stuck"));
        }
        if is_of_host(name) {
            return bad(format!("conditions: {name}: the host sets this condition for blocked evictions"));
        }
        if !is_condition_type(name) || !is_reason(reason) {
            return bad(format!("conditions: {name:?} with reason {reason:?}: both have to be CamelCase words"));
        }
        if !names.insert(&condition.name) {
            return bad(format!("conditions: {:?} appears twice", condition.name));
        }
    }
    let shown = |condition: &Condition| Condition {
        message: CONDITION.text(&condition.message).into_owned(),
        ..condition.clone()
    };
    Ok(conditions.iter().map(shown).collect())
}

fn prepare_events(spec: &ControllerSpec, events: &[GuestEvent]) -> Result<Vec<GuestEvent>, GuestFault> {
    if events.len() > MAX_EVENTS {
        return bad(format!("events: there are {}, the most is {MAX_EVENTS}", events.len()));
    }
    let regarding = events.iter().filter_map(|event| event.regarding.as_ref());
    if let Some(foreign) = regarding.into_iter().find(|target| !spec.sees(&target.kind, &target.name.namespace)) {
        return bad(format!("events: one is about {foreign}, which the manifest does not declare"));
    }
    if let Some(event) = events.iter().find(|event| !is_reason(&event.reason)) {
        return bad(format!("events: the reason {:?} is not a CamelCase word", event.reason));
    }
    events.iter().map(|event| prepare_event(spec, event)).collect()
}

/// What is kept shares the text of a declared kind, and has a copy of nothing that a guest could make long.
fn prepare_event(spec: &ControllerSpec, event: &GuestEvent) -> Result<GuestEvent, GuestFault> {
    let GuestEvent { warning, reason, message, regarding } = event;
    let regarding = match regarding {
        Some(ObjectRef { kind, name }) if is_path_segment(&name.name) && has_namespace_name(name) => {
            Some(ObjectRef { kind: spec.declared_kind(kind).unwrap_or(kind).clone(), name: name.clone() })
        }
        Some(ObjectRef { kind, name }) => {
            let name = shown(&name.to_string());
            return bad(format!(
                "events: one is about {} {name:?}, which is not a name that Kubernetes accepts",
                kind.kind
            ));
        }
        None => None,
    };
    let message = EVENT_NOTE.text(message).into_owned();
    Ok(GuestEvent { warning: *warning, reason: reason.clone(), message, regarding })
}

fn has_namespace_name(name: &Name) -> bool {
    name.namespace.is_empty() || is_object_name(&name.namespace)
}

/// Whether the API server accepts it as a condition's reason.
fn is_reason(reason: &str) -> bool {
    reason.starts_with(|first: char| first.is_ascii_alphabetic())
        && reason.len() <= 128
        && reason.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether the API server accepts it as a condition's type: a CamelCase word, with or without a domain
/// ("example.com/Synced").
fn is_condition_type(name: &str) -> bool {
    let (domain, word) = name.rsplit_once('/').map_or((None, name), |(domain, word)| (Some(domain), word));
    is_reason(word) && domain.is_none_or(is_object_name) && name.len() <= 316
}

/// A child's parsed text, shared among children with the same text.
#[derive(Clone)]
struct Parsed {
    kind: Kind,
    update: Update,
    replace: Replace,
    tracked: bool,
    name: Option<String>,
    namespace: Arc<str>,
    object: Arc<str>,
    hash: Arc<str>,
}

fn prepare_children(
    spec: &ControllerSpec,
    primary: &Object,
    children: &[Child],
    before: &[PreparedChild],
) -> Result<Vec<PreparedChild>, GuestFault> {
    if children.len() > MAX_CHILDREN {
        return bad(format!("children: there are {}, one object may have {MAX_CHILDREN}", children.len()));
    }
    let mut parsed: BTreeMap<(Handling, Arc<str>), Parsed> = BTreeMap::new();
    let (mut keys, mut targets) = (BTreeSet::new(), BTreeSet::new());
    let mut prepared: Vec<PreparedChild> = Vec::with_capacity(children.len());
    let mut by_group: Vec<&Child> = children.iter().collect();
    by_group.sort_by_key(|child| child.group);
    for (at, child) in by_group.into_iter().enumerate() {
        let known = before.get(at).filter(|known| is_same(known, child));
        let next = match known {
            Some(known) => known.clone(),
            None => prepare_child(spec, primary, child, &mut parsed)?,
        };
        if !keys.insert((next.target.kind.clone(), Arc::clone(&next.key))) {
            return bad(format!("child {:?}: the key appears twice for {}", child.key, next.target.kind));
        }
        if !targets.insert(next.target.clone()) {
            return bad(format!("child {:?}: {} appears twice", child.key, next.target));
        }
        prepared.push(next);
    }
    Ok(prepared)
}

/// The same text, key and handling give the same result for one owner.
fn is_same(known: &PreparedChild, child: &Child) -> bool {
    let handling = (known.handling, known.or_skip, known.adopt, known.group);
    known.key == child.key
        && known.object == child.object
        && handling == (child.handling, child.or_skip, child.adopt, child.group)
        && known.exact.paths.is_empty()
        && child.exact.is_empty()
        && known.generated.is_empty()
        && child.generated.is_empty()
}

fn prepare_child(
    spec: &ControllerSpec,
    primary: &Object,
    child: &Child,
    parsed: &mut BTreeMap<(Handling, Arc<str>), Parsed>,
) -> Result<PreparedChild, GuestFault> {
    if child.key.is_empty() || child.key.len() > MAX_KEY_BYTES {
        return bad(format!("child {:?}: a key has 1 to {MAX_KEY_BYTES} bytes", shown(&child.key)));
    }
    let text = (child.handling, Arc::clone(&child.object));
    let parsed = match parsed.entry(text) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(unknown) => unknown.insert(parse_child(spec, primary, child)?),
    };
    if child.adopt {
        check_adoption(spec, child, parsed)?;
    }
    let Parsed { kind, update, replace, tracked, name, namespace, object, hash } = parsed.clone();
    let is_named = name.is_some();
    let name = name.unwrap_or_else(|| name::derived(primary, &kind, &child.key, &[]));
    let names = [Some(&*name), Some(&*namespace).filter(|namespace| !namespace.is_empty())];
    if let Some(wrong) = names.into_iter().flatten().find(|name| !is_object_name(name)) {
        return bad(format!("child {:?}: {wrong:?} is not a name that Kubernetes accepts", child.key));
    }
    let target = ObjectRef { kind, name: Name { namespace, name: name.into() } };
    let is_applied = child.handling == Handling::Managed && update.is_in_place();
    let exact = exact::parse(child, is_applied)?;
    let generated = generated::parse(child, &target.kind, is_applied)?;
    let Child { handling, or_skip, adopt, group, .. } = *child;
    let key = Arc::clone(&child.key);
    let mut prepared = PreparedChild {
        target,
        is_named,
        key,
        update,
        replace,
        object,
        hash,
        body: None,
        handling,
        or_skip,
        adopt,
        tracked,
        is_reserved: false,
        group,
        exact,
        generated,
    };
    prepared.body = is_applied.then(|| Body::with(body::of(&prepared, primary, None), &prepared.generated));
    Ok(prepared)
}

fn check_adoption(spec: &ControllerSpec, child: &Child, parsed: &Parsed) -> Result<(), GuestFault> {
    let kind = &parsed.kind;
    if !spec.owned(kind).is_some_and(|owned| owned.adopt) {
        return bad(format!(
            "child {:?}: adopt: the manifest does not let objects of {kind} be adopted; write \"adopt\": true at {kind} \
             under owns",
            child.key
        ));
    }
    if parsed.name.is_none() {
        return bad(format!("child {:?}: adopt: metadata.name has to say which object is adopted", child.key));
    }
    if child.handling == Handling::Keep {
        return bad(format!("child {:?}: adopt: a child that is kept as it is cannot be adopted", child.key));
    }
    Ok(())
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
    let Some(&OwnedKind { kind: ref declared, update, replace, tracked, ref scope, .. }) = spec.owned(&kind) else {
        return at(format!("{kind} is not among the kinds that the manifest declares under owns"));
    };
    if let Err(why) = metadata::check(&object["metadata"]) {
        return at(why);
    }
    let extra = object.as_object().and_then(|object| object.keys().find(|field| !IDENTITY.contains(&field.as_str())));
    if let Some(field) = extra.filter(|_| child.handling == Handling::Keep) {
        return at(format!("{field}: a child that is kept as it is has only apiVersion, kind and metadata"));
    }
    let metadata = &object["metadata"];
    let namespace = match metadata["namespace"].as_str() {
        None => Arc::clone(&primary.name.namespace),
        Some(namespace) if tracked || primary.name.namespace.is_empty() || *primary.name.namespace == *namespace => {
            namespace.into()
        }
        Some(namespace) => {
            return at(format!(
                "metadata.namespace is {namespace:?}: a child lives in its owner's namespace, {:?}; for children elsewhere \
                 write \"namespaces\": \"any\" at {kind} under owns",
                &*primary.name.namespace
            ));
        }
    };
    if !scope.has_namespace(&namespace) {
        return at(format!("{kind} would be in the namespace {namespace:?}, and is owned {scope} alone"));
    }
    Ok(Parsed {
        kind: declared.clone(),
        update,
        replace,
        tracked,
        name: metadata["name"].as_str().map(str::to_owned),
        namespace,
        object: Arc::clone(&child.object),
        hash: content_hash(&[&object.to_string()]).into(),
    })
}
