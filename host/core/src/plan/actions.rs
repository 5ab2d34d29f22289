//! Actions: writes to objects that are not children. [`prepare`] checks each against the manifest's `writes`; [`diff`]
//! keeps those that would change something (X5).
//!
//! An object of a kind that the controller does not read cannot be compared: its action is sent once, and again only
//! when its text changes. Deletes and evictions carry the UID that was seen (X4), so their kinds must be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::applied::{self, Applied, is_applied};
use super::fault::bad;
use super::found::Creates;
use super::metadata;
use super::parsing::Parsing;
use super::prepared::{Action, Body, PreparedAction, PreparedChild};
use crate::contract::{self, GuestFault, PatchKind};
use crate::digest::fingerprint;
use crate::eviction::Blocked;
use crate::json::compare::Comparison;
use crate::json::is_same;
use crate::limits::{MAX_ACTIONS, MAX_CHILD_BYTES, MAX_DELETES_PER_PLAN};
use crate::manifest::writes::{WriteVerb, allows, allows_subresource};
use crate::manifest::{ControllerSpec, is_builtin_group};
use crate::object::{Kind, Name, Object, ObjectRef, ResourceVersion, Verdict, is_object_name};
use crate::spared::Spared;
use crate::store::Snapshot;
use crate::well_known::PLUGIN;
use crate::write::{Precondition, WriteOp};

/// The fingerprint of the last patch of each object and subresource, and the version that it made.
pub type Sent = BTreeMap<(ObjectRef, Option<Arc<str>>), (u128, ResourceVersion)>;

/// Operations of a JSON patch times the bytes of its object, beyond which nobody tries what it would change: a hundred on a
/// large object, thousands on an ordinary one.
const MAX_OPERATED_BYTES: usize = 64 << 20;

/// Of an object of which a tree is built: the tree has a hundred times as much at most. A JSON patch of a larger one is sent
/// once for each of its versions.
const MAX_TREE_TEXT: usize = 64 << 10;

/// The results of earlier writes of a key.
#[derive(Debug)]
pub struct Memory<'a> {
    /// Applies, of children and in actions.
    pub applied: &'a mut Applied,
    /// The exact maps of children that have the wanted members alone, or lose no others.
    pub exact: &'a mut Applied,
    /// Patches.
    pub sent: &'a mut Sent,
    /// Evictions that a PodDisruptionBudget does not allow now.
    pub blocked: &'a Blocked,
    /// Creates of children that the view may not show.
    pub creates: Creates<'a>,
    /// Children that are not deleted for being unwanted.
    pub spared: Spared<'a>,
}

/// The actions that are missing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ActionDiff {
    /// Applies and patches. They are sent first: a node is cordoned before its Pods are evicted.
    pub changes: Vec<WriteOp>,
    /// Deletes and evictions.
    pub removals: Vec<WriteOp>,
    /// Objects to patch that do not exist.
    pub missing: Vec<ObjectRef>,
    /// Objects in the host's namespace, which are not written.
    pub reserved: Vec<ObjectRef>,
    /// ConfigMaps that bring plugins, which are not written.
    pub sources: Vec<ObjectRef>,
    /// The removals exceed [`MAX_DELETES_PER_PLAN`].
    pub more: bool,
    /// The JSON that was parsed for the comparison, for which the plugin is charged.
    pub parsing: Parsing,
}

impl ActionDiff {
    fn bound_removals(&mut self) {
        self.more = self.removals.len() > MAX_DELETES_PER_PLAN;
        self.removals.truncate(MAX_DELETES_PER_PLAN);
    }
}

pub(super) fn prepare(
    spec: &ControllerSpec,
    actions: &[contract::Action],
    children: Option<&[PreparedChild]>,
) -> Result<Vec<PreparedAction>, GuestFault> {
    if actions.len() > MAX_ACTIONS {
        return bad(format!("actions: there are {}, the most is {MAX_ACTIONS}", actions.len()));
    }
    let children: BTreeSet<&ObjectRef> = children.into_iter().flatten().map(|child| &child.target).collect();
    let mut seen = BTreeSet::new();
    let mut prepared = Vec::with_capacity(actions.len());
    for (at, action) in actions.iter().enumerate() {
        let next = prepare_one(spec, action).map_err(|why| GuestFault::bad_outcome(format!("actions[{at}]: {why}")))?;
        if children.contains(&next.target) {
            return bad(format!("actions[{at}]: {} is a child of this outcome", next.target));
        }
        let subresource = match &next.action {
            Action::Patch { subresource, .. } => subresource.clone(),
            _ => None,
        };
        if !seen.insert((next.target.clone(), subresource)) {
            return bad(format!("actions[{at}]: {} appears twice; put it into one action", next.target));
        }
        prepared.push(next);
    }
    Ok(prepared)
}

fn prepare_one(spec: &ControllerSpec, action: &contract::Action) -> Result<PreparedAction, String> {
    let (target, verb, action) = match action {
        contract::Action::Apply { object, force } => {
            let target = applied_object(object)?;
            (target, WriteVerb::Apply, Action::Apply { body: Body::new(Arc::clone(object)), force: *force })
        }
        contract::Action::Patch { target, patch_kind, body, subresource } => {
            let subresource = subresource.as_deref().map(Arc::from);
            let action = Action::Patch { patch_kind: *patch_kind, body: Body::new(Arc::clone(body)), subresource };
            (target.clone(), WriteVerb::Patch, action)
        }
        contract::Action::Delete { target, propagation } => {
            (target.clone(), WriteVerb::Delete, Action::Delete(*propagation))
        }
        contract::Action::Evict { target } => (target.clone(), WriteVerb::Evict, Action::Evict),
    };
    let kind = &target.kind;
    if !allows(&spec.writes, kind, verb) {
        return Err(format!("{} of {kind} is not declared under writes of the manifest", verb.as_str()));
    }
    if verb.needs_view() && !spec.sees(kind, &target.name.namespace) {
        let why = match spec.declares(kind, &target.name.namespace) {
            true => "the plugin's ServiceAccount may not read it there",
            false => "this controller does not declare the kind, or its namespace, under reads",
        };
        return Err(format!("{} of {kind} carries the UID that was seen, and {why}", verb.as_str()));
    }
    let Name { namespace, name } = &target.name;
    if !is_object_name(name) || !(namespace.is_empty() || is_object_name(namespace)) {
        return Err(format!("{:?} is not a name that Kubernetes accepts", target.name.to_string()));
    }
    if let Action::Patch { patch_kind, body, subresource } = &action {
        check_patch(spec, &target, *patch_kind, &body.text, subresource.as_deref())?;
    }
    let target = ObjectRef { kind: spec.declared_kind(kind).unwrap_or(kind).clone(), name: target.name };
    Ok(PreparedAction { target, action, is_reserved: false, spares_sources: false })
}

fn parsed(text: &str) -> Result<Value, String> {
    if text.len() > MAX_CHILD_BYTES {
        return Err(format!("it has {} bytes, the most is {MAX_CHILD_BYTES}", text.len()));
    }
    serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))
}

/// The object that an apply names.
fn applied_object(text: &str) -> Result<ObjectRef, String> {
    let object = parsed(text)?;
    let (Some(api_version), Some(kind)) = (object["apiVersion"].as_str(), object["kind"].as_str()) else {
        return Err("apiVersion and kind are missing".to_owned());
    };
    metadata::check(&object["metadata"])?;
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    Ok(ObjectRef { kind: Kind::new(api_version, kind), name: Name::new(text("namespace"), text("name")) })
}

fn check_patch(
    spec: &ControllerSpec,
    target: &ObjectRef,
    patch_kind: PatchKind,
    body: &str,
    subresource: Option<&str>,
) -> Result<(), String> {
    let kind = &target.kind;
    if let Some(subresource) = subresource {
        if !allows_subresource(&spec.writes, kind, subresource) {
            return Err(format!("patch of {kind} {subresource:?} is not declared under writes of the manifest"));
        }
        if subresource == "status" && spec.primary.is_same_resource(kind) {
            return Err(format!("the status of a {} is part of the outcome", kind.kind));
        }
    }
    let patch = parsed(body)?;
    match patch_kind {
        PatchKind::Json => metadata::check_operations(&patch, kind.is_secret()),
        PatchKind::Strategic if !is_builtin_group(kind.group()) => {
            Err(format!("{kind} is not a built-in kind, and only those take strategic patches; take merge"))
        }
        PatchKind::Merge | PatchKind::Strategic if patch.is_object() => metadata::check_patch(&patch),
        PatchKind::Merge | PatchKind::Strategic => Err("the body of a patch is an object".to_owned()),
    }
}

/// Compares the actions with a snapshot (X4, X5).
pub fn diff(
    actions: &[PreparedAction],
    spec: &ControllerSpec,
    manager: &str,
    snapshot: &Snapshot,
    memory: Memory<'_>,
    now_ms: u64,
) -> ActionDiff {
    let mut diff = ActionDiff::default();
    for PreparedAction { target, action, is_reserved, spares_sources } in actions {
        if *is_reserved {
            diff.reserved.push(target.clone());
            continue;
        }
        let is_watched = spec.sees(&target.kind, &target.name.namespace);
        let live = snapshot.get(&target.kind, &target.name).filter(|_| is_watched).map(|live| &**live);
        if *spares_sources && live.is_some_and(brings_plugin) {
            diff.sources.push(target.clone());
            continue;
        }
        match action {
            Action::Apply { body, force } => {
                let is_done = match live {
                    Some(live) => is_applied(live, body, &[], manager, memory.applied, &mut diff.parsing),
                    None => {
                        !is_watched && memory.applied.get(target).is_some_and(|(sent, _)| *sent == body.fingerprint)
                    }
                };
                if !is_done {
                    let (target, body) = (target.clone(), Arc::clone(&body.text));
                    let (force, only_if) = (*force, Precondition::None);
                    diff.changes.push(WriteOp::Apply { target, body, force, only_if, draws: None });
                }
            }
            Action::Patch { .. } if is_watched && live.is_none() => diff.missing.push(target.clone()),
            Action::Patch { patch_kind, body, subresource } => {
                let at = (target.clone(), subresource.clone());
                let sent = memory.sent.get(&at).filter(|(sent, _)| *sent == body.fingerprint);
                let is_done = match live {
                    Some(live) if sent.is_some_and(|(_, version)| *version == live.resource_version) => true,
                    Some(live) => {
                        let (subresource, parsing) = (subresource.as_deref(), &mut diff.parsing);
                        let is_done = is_patched_within(live, *patch_kind, body, subresource, parsing);
                        if is_done {
                            memory.sent.insert(at, (body.fingerprint, live.resource_version));
                        }
                        is_done
                    }
                    None => sent.is_some(),
                };
                if !is_done {
                    diff.changes.push(patch(target, *patch_kind, &body.text, subresource.as_ref(), live));
                }
            }
            Action::Delete(_) | Action::Evict => {
                let Some(live) = live.filter(|live| !live.deleting) else { continue };
                let (target, uid) = (target.clone(), Arc::clone(&live.uid));
                match action {
                    Action::Delete(propagation) => {
                        diff.removals.push(WriteOp::Delete { target, uid, propagation: *propagation });
                    }
                    _ if memory.blocked.may_try(&target, now_ms) => diff.removals.push(WriteOp::Evict { target, uid }),
                    _ => {}
                }
            }
        }
    }
    diff.bound_removals();
    diff
}

/// Whether an object is a ConfigMap of the host's namespace or of a tenant's with a plugin: who changes it has the plugin's
/// rights.
fn brings_plugin(live: &Object) -> bool {
    *live.kind.api_version == *"v1" && *live.kind.kind == *"ConfigMap" && live.label(PLUGIN).is_some()
}

/// The bytes that [`diff`] would parse for an action on an object of which nothing is remembered.
pub(super) fn bytes(action: &Action, live: &Object, manager: &str) -> usize {
    match action {
        Action::Apply { body, .. } => applied::bytes(live, body, manager),
        Action::Patch { patch_kind, body, subresource } => {
            let is_known = live.verdict(patch_fingerprint(*patch_kind, body, subresource.as_deref())).is_some();
            if is_known { 0 } else { live.json().len() + body.text.len() }
        }
        Action::Delete(_) | Action::Evict => 0,
    }
}

/// Compares an action, and lets the object remember the result.
pub(super) fn remember(action: &Action, live: &Object, manager: &str) {
    match action {
        Action::Apply { body, .. } => applied::remember(live, body, &[], manager),
        Action::Patch { patch_kind, body, subresource } if bytes(action, live, manager) > 0 => {
            let is_patched = is_patched(live, *patch_kind, &body.text, subresource.as_deref());
            let verdict = if is_patched { Verdict::Same } else { Verdict::Differs };
            live.remember_verdict(patch_fingerprint(*patch_kind, body, subresource.as_deref()), verdict);
        }
        Action::Patch { .. } | Action::Delete(_) | Action::Evict => {}
    }
}

/// The fingerprint of a patch of an object or one of its subresources.
fn patch_fingerprint(patch_kind: PatchKind, body: &Body, subresource: Option<&str>) -> u128 {
    let kind = match patch_kind {
        PatchKind::Merge => "merge",
        PatchKind::Strategic => "strategic",
        PatchKind::Json => "json",
    };
    body.fingerprint ^ fingerprint(&[kind, subresource.unwrap_or_default()])
}

/// [`is_patched`], as the object remembers it or as far as the budget allows.
fn is_patched_within(
    live: &Object,
    patch_kind: PatchKind,
    body: &Body,
    subresource: Option<&str>,
    parsing: &mut Parsing,
) -> bool {
    match live.verdict(patch_fingerprint(patch_kind, body, subresource)) {
        Some(verdict) => verdict == Verdict::Same,
        None => {
            parsing.allows(live.json().len() + body.text.len()) && is_patched(live, patch_kind, &body.text, subresource)
        }
    }
}

/// Whether a patch would change nothing of the live object. In doubt it is sent, and the API server makes no change.
fn is_patched(live: &Object, patch_kind: PatchKind, body: &str, subresource: Option<&str>) -> bool {
    // Other subresources, such as a scale, are not part of the cached object.
    if subresource.is_some_and(|subresource| subresource != "status") {
        return false;
    }
    match patch_kind {
        PatchKind::Strategic if !serde_json::from_str(body).is_ok_and(|patch| is_plain(&patch)) => false,
        PatchKind::Merge | PatchKind::Strategic => {
            let raw = |text| serde_json::from_str::<&RawValue>(text).ok();
            let texts = raw(live.json()).zip(raw(body));
            texts.is_some_and(|(before, patch)| {
                Comparison::new(before.get().len() + patch.get().len()).is_merged(before, patch)
            })
        }
        PatchKind::Json => is_operated(live, body),
    }
}

/// The same of a JSON patch, whose operations need a tree of the object.
fn is_operated(live: &Object, body: &str) -> bool {
    let Ok(operations) = serde_json::from_str::<json_patch::Patch>(body) else { return false };
    let is_long = operations.len().saturating_mul(live.json().len()) > MAX_OPERATED_BYTES;
    if is_long || live.json().len() > MAX_TREE_TEXT || operations.iter().any(multiplies) {
        return false;
    }
    let Ok(before) = serde_json::from_str::<Value>(live.json()) else { return false };
    let mut after = before.clone();
    json_patch::patch(&mut after, &operations).is_ok() && is_same(&before, &after)
}

/// Whether an operation makes more of what is there: forty copies of an object into itself have more bytes than any memory,
/// and a few that nest it end the host, since trees are cloned and dropped by recursion. The API server bounds them.
fn multiplies(operation: &json_patch::PatchOperation) -> bool {
    matches!(operation, json_patch::PatchOperation::Copy(_) | json_patch::PatchOperation::Move(_))
}

/// Whether a strategic patch is a merge patch: it has no lists, whose merging depends on the schema, and no directives.
fn is_plain(patch: &Value) -> bool {
    match patch {
        Value::Array(_) => false,
        Value::Object(members) => members.iter().all(|(name, value)| !name.starts_with('$') && is_plain(value)),
        _ => true,
    }
}

fn patch(
    target: &ObjectRef,
    patch_kind: PatchKind,
    body: &Arc<str>,
    subresource: Option<&Arc<str>>,
    live: Option<&Object>,
) -> WriteOp {
    // Other subresources, such as a scale, have no UID of their own to compare.
    let seen = live.filter(|_| subresource.is_none_or(|subresource| &**subresource == "status"));
    WriteOp::Patch {
        target: target.clone(),
        patch_kind,
        body: Arc::clone(body),
        subresource: subresource.cloned(),
        only_if: seen.map_or(Precondition::None, |live| Precondition::Is(Arc::clone(&live.uid))),
    }
}

/// The Pods to evict.
pub fn evictions(actions: &[PreparedAction]) -> impl Iterator<Item = &ObjectRef> {
    actions.iter().filter(|action| action.action == Action::Evict).map(|action| &action.target)
}
