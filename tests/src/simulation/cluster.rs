//! A model of the API server: objects with UIDs, versions and generations, the writes that mortise sends, and the
//! history that watches read. It has the rules that the engine relies on, as Kubernetes documents them, and knows
//! nothing of the engine. `cluster/fields.rs` has the field sets of server-side apply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use json_patch::merge;
use mortise_core::object::{Kind, Name, ObjectRef, ResourceVersion};
use mortise_core::write::{Precondition, WriteError, WriteErrorClass, Written};
use serde_json::{Value, json};

mod fields;

/// By how much a restore may raise versions, as etcd's manual advises.
const RAISED_BY: u64 = 1_000_000;

/// One change of one object, as a watch reports it.
#[derive(Clone, Debug)]
pub struct Record {
    pub version: u64,
    pub target: ObjectRef,
    pub uid: Arc<str>,
    pub deleted: bool,
    pub text: Arc<str>,
}

/// The record of an object that exists or existed.
#[derive(Clone, Debug)]
pub struct Life {
    pub target: ObjectRef,
    pub owner: Option<Owner>,
    pub child_key: Option<String>,
    pub deleted_at: Option<u64>,
}

/// The controller reference of an object, or what marks it as a tracked child, which nothing collects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    pub target: ObjectRef,
    pub uid: Arc<str>,
    pub tracked: bool,
}

#[derive(Debug, Default)]
pub struct Cluster {
    objects: BTreeMap<ObjectRef, Value>,
    version: u64,
    history: BTreeMap<Kind, Vec<Record>>,
    /// Every object that exists or existed, by its UID; but see [`Cluster::forget`].
    pub lives: BTreeMap<Arc<str>, Life>,
    born: u64,
    /// Kinds of CRDs that are established; built-in kinds are always served.
    pub served: BTreeSet<Kind>,
    /// Kinds that RBAC does not let the host read.
    pub unreadable: BTreeSet<Kind>,
    /// Kinds that RBAC does not let the host write.
    pub unwritable: BTreeSet<Kind>,
    /// The number of Pods per value of the label `app` that evictions must leave.
    pub budgets: BTreeMap<String, usize>,
    unread: Vec<Record>,
}

pub fn pod() -> Kind {
    Kind::new("v1", "Pod")
}

pub fn job() -> Kind {
    Kind::new("batch/v1", "Job")
}

pub fn config_map() -> Kind {
    Kind::new("v1", "ConfigMap")
}

pub fn reference(object: &Value) -> ObjectRef {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    ObjectRef {
        kind: Kind::new(&text(&object["apiVersion"]), &text(&object["kind"])),
        name: Name::new(&text(&metadata["namespace"]), &text(&metadata["name"])),
    }
}

fn error<T>(class: WriteErrorClass, message: String) -> Result<T, WriteError> {
    Err(WriteError { class, message })
}

impl Cluster {
    pub fn get(&self, target: &ObjectRef) -> Option<&Value> {
        self.objects.get(target)
    }

    pub fn list(&self, kind: &Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(target, _)| target.kind == *kind).map(|(_, object)| object)
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// The changes of a kind, oldest first.
    pub fn history(&self, kind: &Kind) -> &[Record] {
        self.history.get(kind).map_or(&[], Vec::as_slice)
    }

    /// Drops the history of all objects, and returns the deleted ones. For runs of days, while nothing watches: watches
    /// count records from the start.
    pub fn forget(&mut self) -> Vec<Life> {
        for (kind, records) in &mut self.history {
            let is_last = |record: &Record| {
                let live = self.objects.get(&record.target);
                live.is_some_and(|live| written(live).resource_version.0 == record.version)
            };
            records.retain(|record| record.target.kind == *kind && is_last(record));
        }
        let (gone, live) = std::mem::take(&mut self.lives).into_iter().partition(|(_, life)| life.deleted_at.is_some());
        self.lives = live;
        let gone: BTreeMap<Arc<str>, Life> = gone;
        gone.into_values().collect()
    }

    /// Restores the store of an earlier version, as from a backup of etcd. Versions are assigned a second time, UIDs
    /// are not. With `raised`, as etcd's manual advises, new versions are above all assigned ones, and objects keep
    /// theirs.
    pub fn restore(&mut self, version: u64, raised: bool) {
        let kinds: Vec<Kind> = self.history.keys().cloned().collect();
        let records: Vec<Record> = kinds.iter().flat_map(|kind| self.list_at(kind, version)).collect();
        let parse = |text: &str| serde_json::from_str(text).expect("the model stores JSON");
        self.objects = records.into_iter().map(|record| (record.target, parse(&record.text))).collect();
        for records in self.history.values_mut() {
            records.retain(|record| record.version <= version);
        }
        let known: BTreeSet<&Arc<str>> = self.history.values().flatten().map(|record| &record.uid).collect();
        self.lives.retain(|uid, _| known.contains(uid));
        for life in self.lives.values_mut() {
            life.deleted_at = life.deleted_at.filter(|deleted_at| *deleted_at <= version);
        }
        // CRDs are part of the backup.
        self.served.extend(self.objects.keys().map(|target| target.kind.clone()));
        self.version = if raised { self.version + RAISED_BY } else { version };
        self.unread.clear();
    }

    /// The last record of every existing object.
    pub fn live_records(&self) -> Vec<Record> {
        self.history.keys().flat_map(|kind| self.list_at(kind, u64::MAX)).collect()
    }

    pub fn take_changes(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.unread)
    }

    /// The objects of a kind at a version: the last record of each up to there.
    pub fn list_at(&self, kind: &Kind, version: u64) -> Vec<Record> {
        let mut last = BTreeMap::new();
        for record in self.history(kind).iter().take_while(|record| record.version <= version) {
            last.insert(record.target.clone(), record.clone());
        }
        last.into_values().filter(|record| !record.deleted).collect()
    }

    /// Whether the API server has an endpoint for a kind.
    pub fn serves(&self, kind: &Kind) -> bool {
        let is_custom = kind.group().contains('.') && kind.group() != "events.k8s.io";
        !is_custom || self.served.contains(kind)
    }

    /// A user creates an object.
    pub fn put(&mut self, object: Value) -> Result<Written, WriteError> {
        let target = reference(&object);
        self.create(&target, object)
    }

    /// POST.
    pub fn create(&mut self, target: &ObjectRef, mut object: Value) -> Result<Written, WriteError> {
        self.check_writable(target, "create")?;
        if self.objects.contains_key(target) {
            return error(WriteErrorClass::AlreadyExists, format!("{target} already exists"));
        }
        self.born += 1;
        let uid: Arc<str> = format!("uid-{}", self.born).into();
        if target.kind == pod() {
            object["status"] = json!({"phase": "Pending"});
        } else if target.kind.group().contains('.') {
            object.as_object_mut().map(|object| object.remove("status"));
        }
        object["metadata"]["uid"] = json!(&*uid);
        object["metadata"]["generation"] = json!(1);
        self.lives.insert(uid, Life { target: target.clone(), owner: None, child_key: None, deleted_at: None });
        Ok(self.commit(target, object))
    }

    pub fn apply(
        &mut self,
        target: &ObjectRef,
        manager: &str,
        wanted: &Value,
        force: bool,
        only_if: &Precondition,
    ) -> Result<Written, WriteError> {
        self.check_writable(target, "patch")?;
        let Some(live) = self.objects.get(target) else {
            if let Precondition::Is(uid) | Precondition::Unchanged { uid, .. } = only_if {
                return error(
                    WriteErrorClass::Conflict,
                    format!("{target} does not exist and should have the UID {uid}"),
                );
            }
            let mut object = wanted.clone();
            fields::record_apply(&mut object, manager, wanted);
            return self.create(target, object);
        };
        match only_if {
            Precondition::Absent => {
                return error(WriteErrorClass::AlreadyExists, format!("{target} exists already"));
            }
            Precondition::Is(uid) | Precondition::Unchanged { uid, .. } if live["metadata"]["uid"] != **uid => {
                return error(WriteErrorClass::Conflict, format!("the UID of {target} is not {uid}"));
            }
            Precondition::Unchanged { version, .. } if written(live).resource_version != *version => {
                return error(WriteErrorClass::Conflict, format!("the version of {target} is not {}", version.0));
            }
            _ => {}
        }
        if !force && let Some(conflict) = fields::conflict(live, manager, wanted) {
            return error(WriteErrorClass::FieldConflict, conflict);
        }
        let after = fields::applied(live, manager, wanted);
        Ok(self.replace(target, after))
    }

    /// A user's merge patch: takes over the ownership of the fields that it changes.
    pub fn edit(&mut self, target: &ObjectRef, patch: &Value) -> bool {
        let Some(live) = self.objects.get(target) else { return false };
        let mut after = live.clone();
        merge(&mut after, patch);
        fields::record_edit(&mut after, "kubectl-edit", patch);
        let before = self.version;
        self.replace(target, after);
        self.version > before
    }

    /// JSON merge patch of the status subresource; the patch's metadata.uid is a precondition.
    pub fn patch_status(&mut self, target: &ObjectRef, manager: &str, patch: &Value) -> Result<Written, WriteError> {
        self.check_writable(target, "patch")?;
        let Some(live) = self.objects.get(target) else {
            return error(WriteErrorClass::NotFound, format!("{target} not found"));
        };
        if patch["metadata"]["uid"].is_string() && patch["metadata"]["uid"] != live["metadata"]["uid"] {
            return error(WriteErrorClass::Conflict, format!("the UID of {target} is another one"));
        }
        let mut after = live.clone();
        if after["status"].is_null() {
            after["status"] = json!({});
        }
        merge(&mut after["status"], &patch["status"]);
        fields::record_status(&mut after, manager, &patch["status"]);
        Ok(self.replace(target, after))
    }

    /// JSON merge patch of an object; a UID or a version in its metadata is a precondition. Removes a deleted object
    /// with its last finalizer.
    pub fn patch(
        &mut self,
        target: &ObjectRef,
        manager: &str,
        patch: &Value,
        only_if: &Precondition,
    ) -> Result<Written, WriteError> {
        self.check_writable(target, "patch")?;
        let Some(live) = self.objects.get(target) else {
            return error(WriteErrorClass::NotFound, format!("{target} not found"));
        };
        let mut patch = patch.clone();
        if let Precondition::Is(uid) = only_if {
            patch["metadata"]["uid"] = json!(&**uid);
        }
        for field in ["uid", "resourceVersion"] {
            let named = &patch["metadata"][field];
            if !named.is_null() && *named != live["metadata"][field] {
                return error(WriteErrorClass::Conflict, format!("the {field} of {target} is another one"));
            }
        }
        if let Some(metadata) = patch["metadata"].as_object_mut() {
            metadata.retain(|field, _| field != "uid" && field != "resourceVersion");
        }
        let mut after = live.clone();
        merge(&mut after, &patch);
        fields::record_edit(&mut after, manager, &patch);
        if is_deleting(&after) && !has_finalizers(&after) && has_finalizers(live) {
            let result = written(live);
            self.remove(target);
            return Ok(result);
        }
        Ok(self.replace(target, after))
    }

    /// An eviction, if the budget of the Pod's label `app` allows it.
    pub fn evict(&mut self, target: &ObjectRef, uid: &str) -> Result<Written, WriteError> {
        let app = self.objects.get(target).map(|pod| pod["metadata"]["labels"]["app"].clone());
        let needed = app.as_ref().and_then(Value::as_str).and_then(|app| self.budgets.get(app));
        if let (Some(app), Some(needed)) = (&app, needed) {
            let pods = pod();
            let alive = self.list(&pods).filter(|pod| pod["metadata"]["labels"]["app"] == *app && !is_deleting(pod));
            let alive = alive.count();
            if alive <= *needed {
                let message =
                    format!("The disruption budget {app} needs {needed} healthy pods and has {alive} currently");
                return error(WriteErrorClass::Blocked, message);
            }
        }
        self.delete(target, Some(uid))
    }

    /// DELETE, with an optional UID precondition. A Pod terminates gracefully and is removed later; an object with
    /// finalizers is removed with the last of them.
    pub fn delete(&mut self, target: &ObjectRef, uid: Option<&str>) -> Result<Written, WriteError> {
        self.check_writable(target, "delete")?;
        let Some(live) = self.objects.get(target) else {
            return error(WriteErrorClass::NotFound, format!("{target} not found"));
        };
        let live_uid: Arc<str> = live["metadata"]["uid"].as_str().unwrap_or_default().into();
        if uid.is_some_and(|uid| uid != &*live_uid) {
            return error(WriteErrorClass::Conflict, format!("the UID in the precondition is not that of {target}"));
        }
        if target.kind == pod() || has_finalizers(live) {
            let mut after = live.clone();
            after["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            return Ok(self.replace(target, after));
        }
        self.remove(target);
        Ok(Written { uid: live_uid, resource_version: ResourceVersion(self.version) })
    }

    pub fn remove(&mut self, target: &ObjectRef) {
        let Some(mut object) = self.objects.remove(target) else { return };
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let record = self.record(target, &object, true);
        if let Some(life) = self.lives.get_mut(&record.uid) {
            life.deleted_at = Some(self.version);
        }
    }

    /// Stores a changed object; an unchanged one keeps its version.
    pub fn replace(&mut self, target: &ObjectRef, mut after: Value) -> Written {
        let before = &self.objects[target];
        if *before == after {
            return written(before);
        }
        let generation = before["metadata"]["generation"].as_i64().unwrap_or_default();
        let spec_changed = before["spec"] != after["spec"] || is_deleting(before) != is_deleting(&after);
        after["metadata"]["generation"] = json!(generation + i64::from(spec_changed));
        self.commit(target, after)
    }

    fn commit(&mut self, target: &ObjectRef, mut object: Value) -> Written {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let record = self.record(target, &object, false);
        if let Some(life) = self.lives.get_mut(&record.uid) {
            life.owner = owner_of(&object, target);
            life.child_key = object["metadata"]["annotations"]["mortise.dev/child"].as_str().map(str::to_owned);
        }
        let result = written(&object);
        self.objects.insert(target.clone(), object);
        result
    }

    fn record(&mut self, target: &ObjectRef, object: &Value, deleted: bool) -> Record {
        let record = Record {
            version: self.version,
            target: target.clone(),
            uid: object["metadata"]["uid"].as_str().unwrap_or_default().into(),
            deleted,
            text: object.to_string().into(),
        };
        self.history.entry(target.kind.clone()).or_default().push(record.clone());
        self.unread.push(record.clone());
        record
    }

    fn check_writable(&self, target: &ObjectRef, verb: &str) -> Result<(), WriteError> {
        if !self.serves(&target.kind) {
            return error(WriteErrorClass::NotFound, format!("the server serves no {}", target.kind));
        }
        if self.unwritable.contains(&target.kind) {
            let (resource, group) = (format!("{}s", target.kind.kind.to_lowercase()), target.kind.group());
            let message = format!("User \"mortise\" cannot {verb} resource {resource:?} in API group {group:?}");
            return error(WriteErrorClass::Denied, message);
        }
        Ok(())
    }
}

pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

fn written(object: &Value) -> Written {
    let metadata = &object["metadata"];
    let version = metadata["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
    Written { uid: metadata["uid"].as_str().unwrap_or_default().into(), resource_version: ResourceVersion(version) }
}

/// The owner of an object, or of the body of a write.
pub fn owner_of(object: &Value, child: &ObjectRef) -> Option<Owner> {
    let metadata = &object["metadata"];
    let mut references = metadata["ownerReferences"].as_array().into_iter().flatten();
    if let Some(owner) = references.find(|owner| owner["controller"] == true) {
        return Some(Owner {
            target: ObjectRef {
                kind: Kind::new(owner["apiVersion"].as_str()?, owner["kind"].as_str()?),
                name: Name::new(&child.name.namespace, owner["name"].as_str()?),
            },
            uid: owner["uid"].as_str()?.into(),
            tracked: false,
        });
    }
    let mark = metadata["annotations"]["mortise.dev/owner"].as_str()?;
    let mark = mark.strip_suffix(&format!(" owns {child}"))?;
    let (kind, name) = mark.split_once(' ')?;
    let ((api_version, kind), (namespace, name)) = (kind.rsplit_once('/')?, name.split_once('/')?);
    Some(Owner {
        target: ObjectRef { kind: Kind::new(api_version, kind), name: Name::new(namespace, name) },
        uid: metadata["labels"]["mortise.dev/owner-uid"].as_str()?.into(),
        tracked: true,
    })
}
