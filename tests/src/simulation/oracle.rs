//! The rules that hold at every step, under every fault. The oracle sees the cluster and the engine's effects; it
//! shares no bookkeeping with the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use mortise_core::call::{Call, CallId};
use mortise_core::contract::{Child, Handling};
use mortise_core::digest::Digest;
use mortise_core::limits::MAX_CHILDREN;
use mortise_core::object::{Kind, Object, ObjectRef};
use mortise_core::scope::{Scope, Slice};
use mortise_core::store::Snapshot;
use mortise_core::watch::WatchEvent;
use mortise_core::write::{Cause, Precondition, Write, WriteError, WriteId, WriteOp, Written};
use serde_json::Value;

use super::cluster::{Cluster, Owner, Record, owner_of};
use super::guests::tenant_kind;
use super::watch::Watch;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub rule: &'static str,
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.message)
    }
}

/// Bound of concurrent deletes of one object's children.
const MAX_DELETES_AT_ONCE: usize = 16;

/// Bound of repetitions of one request per second: backoff starts at 5 ms and doubles, so a few are normal.
const MAX_REPEATED: u32 = 40;

/// A reconciled object: the plugin, the name, and the UID. Another object of the same name has no writes yet.
type Primary = (Arc<str>, ObjectRef, Arc<str>);

#[derive(Clone, Debug)]
struct Seen {
    target: ObjectRef,
    uid: Arc<str>,
    /// None for a delete.
    version: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Oracle {
    /// Checks nothing, for runs that are too long and are checked at their end.
    pub is_asleep: bool,
    pub checks: BTreeMap<&'static str, u64>,
    expectations: BTreeMap<Primary, Vec<Seen>>,
    calls: BTreeMap<CallId, Primary>,
    writes: BTreeMap<WriteId, (Primary, WriteOp)>,
    /// The API server's results, whatever the engine receives.
    landed: BTreeMap<WriteId, (ObjectRef, Written)>,
    /// UIDs whose delete found nothing.
    missed: BTreeSet<Arc<str>>,
    /// Per request, the start of a second and the number of repetitions since.
    repeated: BTreeMap<String, (u64, u32)>,
    wanted: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// Children that every outcome of this digest keeps or creates once: the owner's UID and the key.
    untouchable: BTreeSet<(Digest, Arc<str>, String)>,
    shown: BTreeMap<ObjectRef, (Arc<str>, u64)>,
    /// What was listed completely since its watch started. A watch that takes over from one with other labels leaves what
    /// that one has listed in view until its own list is complete.
    listed: BTreeSet<Slice>,
    /// Watches that have failed, without an event since.
    lost: BTreeSet<Slice>,
    loaded: BTreeSet<Digest>,
    live_children: BTreeMap<(Arc<str>, Kind, String), BTreeSet<Arc<str>>>,
}

impl Oracle {
    pub fn check(
        &mut self,
        rule: &'static str,
        holds: bool,
        message: impl FnOnce() -> String,
    ) -> Result<(), Violation> {
        *self.checks.entry(rule).or_default() += 1;
        if holds { Ok(()) } else { Err(Violation { rule, message: message() }) }
    }

    /// The host has died and lost its state. Its views are kept, for R3.
    pub fn on_crash(&mut self) {
        self.expectations.clear();
        self.calls.clear();
        self.writes.clear();
        self.landed.clear();
        self.missed.clear();
        self.listed.clear();
        self.lost.clear();
        self.loaded.clear();
    }

    /// A plugin was removed, and with it the host's state of its objects.
    pub fn on_plugin_gone(&mut self, plugin: &str) {
        self.writes.retain(|_, ((owner, ..), _)| **owner != *plugin);
        self.missed.clear();
        self.expectations.retain(|(owner, ..), _| **owner != *plugin);
        self.calls.retain(|_, (owner, ..)| **owner != *plugin);
    }

    pub fn on_change(&mut self, record: &Record, cluster: &Cluster) -> Result<(), Violation> {
        if self.is_asleep {
            return Ok(());
        }
        self.check_ready(record)?;
        let life = &cluster.lives[&record.uid];
        let (Some(owner), Some(key)) = (&life.owner, &life.child_key) else { return Ok(()) };
        self.check("owner exists", cluster.lives.contains_key(&owner.uid), || {
            format!("{} is owned by {}, a UID that never existed", record.target, owner.uid)
        })?;
        let place = (Arc::clone(&owner.uid), record.target.kind.clone(), key.clone());
        let alive = self.live_children.entry(place).or_default();
        if record.deleting {
            alive.remove(&record.uid);
        } else {
            alive.insert(Arc::clone(&record.uid));
        }
        let alive = alive.clone();
        self.check("one child per key", alive.len() <= 1, || {
            format!("{} children of {} have the key {key:?}: {alive:?}", alive.len(), owner.target)
        })
    }

    /// A Plugin object is ready while a version serves, also beside a newer one that stalls.
    fn check_ready(&mut self, record: &Record) -> Result<(), Violation> {
        if !record.text.contains(r#""Stalled""#) || record.target.kind == mortise_core::plugin_object::kind() {
            return Ok(());
        }
        let object: Value = serde_json::from_str(&record.text).unwrap_or_default();
        let status = |name: &str| {
            let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            conditions.find(|condition| condition["type"] == name).map(|condition| condition["status"].clone())
        };
        let holds = status("Stalled").is_none() || status("Ready") == Some(Value::from("False"));
        self.check("X12 a stalled object is not ready", holds, || format!("{} is {}", record.target, record.text))
    }

    pub fn on_deleted(&mut self, op: &WriteOp, hit: &Written) -> Result<(), Violation> {
        let WriteOp::Delete { target, uid, .. } = op else { return Ok(()) };
        // Nothing was hit.
        if hit.uid.is_empty() {
            return Ok(());
        }
        self.check("X4 deletes carry the UID that was seen", *uid == hit.uid, || {
            format!("the delete of {target} was meant for {uid} and deleted {}", hit.uid)
        })
    }

    pub fn on_list_done(&mut self, slice: &Slice) {
        self.listed.retain(|before| !is_same_place(before, slice));
        self.listed.insert(slice.clone());
    }

    pub fn on_watch(&mut self, slice: &Slice, event: &WatchEvent) {
        match event {
            WatchEvent::Failed(_) => self.lost.insert(slice.clone()),
            // A list that has only started shows nothing yet.
            WatchEvent::Listing | WatchEvent::Listed(_) => false,
            _ => self.lost.remove(slice),
        };
    }

    pub fn on_watch_stopped(&mut self, slice: &Slice, watches: &BTreeMap<Slice, Watch>) {
        self.lost.remove(slice);
        if !watches.keys().any(|other| is_same_place(other, slice)) {
            self.listed.retain(|before| !is_same_place(before, slice));
        }
    }

    /// Whether some list has shown this part of a kind.
    fn has_listed(&self, kind: &Kind, scope: &Scope) -> bool {
        let labels = scope.labels_text();
        let shows = |slice: &Slice, place: &Option<Arc<str>>| {
            let is_there = slice.namespace.is_none() || slice.namespace == *place;
            slice.kind == *kind && is_there && (slice.labels.is_none() || slice.labels == labels)
        };
        scope.places().all(|place| self.listed.iter().any(|slice| shows(slice, &place)))
    }

    pub fn on_compile(&mut self, digest: &Digest) {
        self.loaded.insert(digest.clone());
    }

    pub fn on_unload(&mut self, digest: &Digest) {
        self.loaded.remove(digest);
    }

    /// The engine requests a call with this view.
    pub fn on_call(
        &mut self,
        call: &Call,
        readable: &[(Kind, Scope)],
        view: &Snapshot,
        cluster: &Cluster,
        watches: &BTreeMap<Slice, Watch>,
    ) -> Result<(), Violation> {
        let primary = (Arc::clone(&call.plugin), call.object.reference(), Arc::clone(&call.object.uid));
        let loaded = self.loaded.contains(&call.cause.digest);
        self.check("G3 only loaded components are called", loaded, || format!("{} is not loaded", call.cause.digest))?;
        let at_once = self.calls.values().any(|(plugin, name, _)| *plugin == primary.0 && *name == primary.1);
        self.check("Q1 one call per key", !at_once, || format!("{} is called twice at once", primary.1))?;
        let writing = self.writes.values().any(|(other, _)| *other == primary);
        self.check("Q1 no call while writes are in flight", !writing, || {
            format!("{} is called while it writes", primary.1)
        })?;
        let lost = self.lost.contains(&Slice::from(&call.object.kind));
        self.check("R5 no call while the watch of the primary is lost", !lost, || {
            format!("{} is called though its watch is lost", primary.1)
        })?;
        for (kind, scope) in readable {
            let listed = self.has_listed(kind, scope);
            self.check("R4 no call before all is listed", listed, || {
                format!("{kind} {scope} was not listed before a call")
            })?;
        }
        self.check_own_writes(&primary, view, cluster, watches)?;
        self.check_not_older(readable, view, cluster)?;
        self.calls.insert(call.id, primary);
        Ok(())
    }

    /// A call that did not end at one of these kinds has read them.
    pub fn on_dynamic_kinds<'a>(
        &mut self,
        kinds: impl Iterator<Item = &'a Kind>,
        view: &Snapshot,
        cluster: &Cluster,
    ) -> Result<(), Violation> {
        for kind in kinds.filter(|kind| cluster.serves(kind)) {
            let listed = self.has_listed(kind, &Scope::default());
            self.check("R4 no call reads a kind before it is listed", listed, || format!("{kind} was not listed"))?;
            self.check_not_older(&[(kind.clone(), Scope::default())], view, cluster)?;
        }
        Ok(())
    }

    fn check_own_writes(
        &mut self,
        primary: &Primary,
        view: &Snapshot,
        cluster: &Cluster,
        watches: &BTreeMap<Slice, Watch>,
    ) -> Result<(), Violation> {
        for write in self.expectations.get(primary).cloned().unwrap_or_default() {
            let live = view.get(&write.target.kind, &write.target.name);
            let delivered = watches.get(&Slice::from(&write.target.kind)).map_or(0, |watch| watch.delivered);
            let gone_at = cluster.lives.get(&write.uid).and_then(|life| life.deleted_at);
            let shown = match (live, write.version) {
                (Some(live), Some(version)) => live.resource_version.0 >= version,
                (Some(live), None) => live.uid != write.uid || live.deleting,
                (None, None) => true,
                // It may be missing only if the watch has delivered its deletion.
                (None, Some(_)) => gone_at.is_some_and(|gone_at| gone_at <= delivered),
            };
            self.check("R2 a view shows the key's own writes", shown, || {
                format!("{} is called though its view does not show {write:?} (it has {live:?})", primary.1)
            })?;
        }
        Ok(())
    }

    /// R3, for all that a call can read. What leaves the labels of a scope leaves the view, and so does what leaves a scope
    /// that narrows.
    fn check_not_older(
        &mut self,
        readable: &[(Kind, Scope)],
        view: &Snapshot,
        cluster: &Cluster,
    ) -> Result<(), Violation> {
        for (kind, scope) in readable {
            for object in view.list(kind, None, &scope.labels).filter(|object| scope.contains(object)) {
                let target = object.reference();
                let version = object.resource_version.0;
                let before = self.shown.insert(target.clone(), (Arc::clone(&object.uid), version));
                let newer = before.as_ref().is_none_or(|(_, before)| *before <= version);
                self.check("R3 no view is older than one before", newer, || {
                    format!("{target} was shown at {before:?} and is shown at {version} now")
                })?;
            }
            let missing: Vec<(ObjectRef, Arc<str>)> = self
                .shown
                .iter()
                .filter(|(target, _)| target.kind == *kind && view.get(kind, &target.name).is_none())
                .map(|(target, (uid, _))| (target.clone(), Arc::clone(uid)))
                .collect();
            for (target, uid) in missing {
                self.shown.remove(&target);
                if !scope.labels.is_everything() || !scope.has_namespace(&target.name.namespace) {
                    continue;
                }
                let gone = cluster.lives.get(&uid).is_some_and(|life| life.deleted_at.is_some());
                self.check("R6 what is missing from a view is gone", gone, || {
                    format!("{target} ({uid}) was shown before, exists, and is missing from a view")
                })?;
            }
        }
        Ok(())
    }

    pub fn on_call_done(&mut self, id: CallId) {
        self.calls.remove(&id);
    }

    /// A guest returned these children for the object of this UID.
    pub fn on_wanted(&mut self, uid: &Arc<str>, digest: &Digest, children: &[Child]) {
        if self.is_asleep {
            return;
        }
        for child in children {
            self.wanted.entry(Arc::clone(uid)).or_default().insert(child.key.to_string());
            if child.handling != Handling::Managed {
                self.untouchable.insert((digest.clone(), Arc::clone(uid), child.key.to_string()));
            }
        }
    }

    /// What is kept or was created once is neither changed nor deleted.
    fn check_untouchable(&mut self, write: &Write, cluster: &Cluster) -> Result<(), Violation> {
        let uid = match &write.op {
            WriteOp::Delete { uid, .. } => uid,
            WriteOp::Apply { only_if: Precondition::Is(uid), .. }
            | WriteOp::Patch { only_if: Precondition::Is(uid), .. } => uid,
            _ => return Ok(()),
        };
        let Some(cause) = &write.cause else { return Ok(()) };
        let place = cluster.lives.get(uid).and_then(|life| {
            Some((cause.digest.clone(), Arc::clone(&life.owner.as_ref()?.uid), life.child_key.clone()?))
        });
        let holds = place.is_none_or(|place| !self.untouchable.contains(&place));
        self.check("a child that is kept or created once stays as it is", holds, || {
            format!("{} of {}", write.op.verb(), write.op.target())
        })
    }

    /// The HTTP requests of an outcome are sent after its writes.
    pub fn check_written(&mut self, cause: &Cause) -> Result<(), Violation> {
        let writes = self.writes.values().any(|((_, object, _), _)| *object == cause.object);
        self.check("X1 HTTP requests after writes", !writes, || format!("{} has writes in flight", cause.object))
    }

    /// Any request: the same one without end would be a busy loop.
    pub fn on_request(&mut self, now_ms: u64, line: &str) -> Result<(), Violation> {
        if self.is_asleep {
            return Ok(());
        }
        let (since_ms, count) = self.repeated.get(line).copied().unwrap_or((now_ms, 0));
        let (since_ms, count) = if now_ms - since_ms < 1_000 { (since_ms, count + 1) } else { (now_ms, 1) };
        self.repeated.insert(line.to_owned(), (since_ms, count));
        self.check("no busy loops", count <= MAX_REPEATED, || format!("{count} times within a second: {line}"))
    }

    /// The engine requests a write.
    pub fn on_write(&mut self, write: &Write, cluster: &Cluster) -> Result<(), Violation> {
        if self.is_asleep {
            return Ok(());
        }
        let Some(plugin) = &write.plugin else { return Ok(()) };
        self.check_untouchable(write, cluster)?;
        let owner = match &write.op {
            WriteOp::Create { target, body } | WriteOp::Apply { target, body, .. } => {
                let Some((Owner { target: owner, uid, tracked }, key)) = owner_in(target, body) else { return Ok(()) };
                if tracked {
                    self.check_finalizer(target, &owner, &format!("mortise.dev/{plugin}"), cluster)?;
                }
                let wanted = self.wanted.get(&uid).is_some_and(|keys| keys.contains(&key));
                self.check("children are those of an outcome", wanted, || {
                    format!("{target} is written for {owner}, whose guest never returned the key {key:?}")
                })?;
                let prefix = |(of, kind, _): &&(Arc<str>, Kind, String)| *of == uid && *kind == target.kind;
                let alive = self.live_children.iter().filter(|(place, of)| prefix(place) && !of.is_empty()).count();
                self.check("X10 children within their cap", alive <= MAX_CHILDREN, || {
                    format!("{owner} has {alive} children and gets another one")
                })?;
                (owner, uid)
            }
            WriteOp::Delete { uid, target, .. } => {
                let missed = self.missed.contains(uid);
                self.check("X4 no second delete after NotFound", !missed, || {
                    format!("{target} ({uid}) is deleted again after a NotFound")
                })?;
                let Some(owner) = cluster.lives.get(uid).and_then(|life| life.owner.clone()) else {
                    if **plugin == *"keeper" {
                        // The only guest whose manifest declares deletes of other objects.
                        return self.on_action(write, cluster);
                    }
                    return self.check("only children are deleted", false, || format!("{target} is not a child"));
                };
                (owner.target, owner.uid)
            }
            WriteOp::PatchStatus { target, body } => {
                let body: Value = serde_json::from_str(body).unwrap_or_default();
                (target.clone(), body["metadata"]["uid"].as_str().unwrap_or_default().into())
            }
            // Their owner is in the write's cause.
            WriteOp::Patch { .. } | WriteOp::Evict { .. } => return self.on_action(write, cluster),
        };
        let primary = (Arc::clone(plugin), owner.0, owner.1);
        self.writes.insert(write.id, (primary.clone(), write.op.clone()));
        let deletes = self.writes.values().filter(|(of, op)| *of == primary && matches!(op, WriteOp::Delete { .. }));
        let deletes = deletes.count();
        self.check("deletes of one object go in batches", deletes <= MAX_DELETES_AT_ONCE, || {
            format!("{deletes} deletes of children of {} are in flight", primary.1)
        })
    }

    /// Before the first action of a plugin that finalizes, and before the first tracked child.
    fn check_finalizer(
        &mut self,
        target: &ObjectRef,
        owner: &ObjectRef,
        finalizer: &str,
        cluster: &Cluster,
    ) -> Result<(), Violation> {
        let kept = |record: &Record| record.target == *owner && record.text.contains(finalizer);
        self.check("X1 a finalizer comes first", cluster.history(&owner.kind.clone().into()).iter().any(kept), || {
            format!("{target} is written for {owner}, which has no finalizer")
        })
    }

    /// The engine requests a write to an object that is not a child.
    fn on_action(&mut self, write: &Write, cluster: &Cluster) -> Result<(), Violation> {
        let (Some(plugin), Some(cause)) = (&write.plugin, &write.cause) else {
            return self.check("actions belong to a reconcile", false, || format!("{} does not", write.op.target()));
        };
        if cause.object.kind == tenant_kind() && *write.op.target() != cause.object {
            self.check_finalizer(write.op.target(), &cause.object, "mortise.dev/tenant", cluster)?;
        }
        let uid = cluster.get(&cause.object).and_then(|live| live["metadata"]["uid"].as_str()).unwrap_or_default();
        let primary = (Arc::clone(plugin), cause.object.clone(), Arc::from(uid));
        self.writes.insert(write.id, (primary, write.op.clone()));
        Ok(())
    }

    /// The API server has accepted a write.
    pub fn on_landed(&mut self, id: WriteId, written: &Written, cluster: &Cluster) {
        let Some((_, op)) = self.writes.get(&id) else { return };
        // The response to an eviction does not say which Pod it was.
        let uid = if let WriteOp::Evict { uid, .. } = op { uid } else { &written.uid };
        if let Some(life) = cluster.lives.get(uid) {
            self.landed.insert(id, (life.target.clone(), written.clone()));
        }
    }

    /// The engine receives the result of a write.
    pub fn on_wrote(&mut self, id: WriteId, result: &Result<Written, WriteError>) {
        let Some((primary, op)) = self.writes.remove(&id) else { return };
        if let (WriteOp::Delete { uid, .. }, Ok(written)) = (&op, result)
            && written.uid.is_empty()
        {
            self.missed.insert(Arc::clone(uid));
        }
        let Some((target, written)) = self.landed.remove(&id).filter(|_| result.is_ok()) else { return };
        let seen = match &op {
            WriteOp::Delete { uid, .. } | WriteOp::Evict { uid, .. } => {
                Seen { target, uid: Arc::clone(uid), version: None }
            }
            _ => Seen { target, uid: written.uid, version: Some(written.resource_version.0) },
        };
        let list = self.expectations.entry(primary).or_default();
        list.retain(|before| before.target != seen.target);
        list.push(seen);
    }

    /// The host has read live: it stops waiting for writes of which nothing is left (R2).
    pub fn on_live_read(&mut self, target: &ObjectRef, live: Option<&Object>) {
        for list in self.expectations.values_mut() {
            list.retain(|write| {
                let same = live.filter(|live| live.uid == write.uid);
                let is_left =
                    if write.version.is_some() { same.is_some() } else { same.is_none_or(|live| live.deleting) };
                write.target != *target || is_left
            });
        }
        let live_uid = live.map(|live| &live.uid);
        self.missed.retain(|uid| Some(uid) != live_uid);
    }
}

/// Whether two watches are of the same namespace, or both of all.
fn is_same_place(one: &Slice, other: &Slice) -> bool {
    (&one.kind, &one.namespace) == (&other.kind, &other.namespace)
}

/// Owner and key of a child, from the body of the write.
fn owner_in(target: &ObjectRef, body: &str) -> Option<(Owner, String)> {
    let body: Value = serde_json::from_str(body).ok()?;
    let key = body["metadata"]["annotations"]["mortise.dev/child"].as_str()?.to_owned();
    Some((owner_of(&body, target)?, key))
}
