//! The API server: the local cluster, to which the engine's writes and the changes of others are requests, and what its
//! watches have shown since the beginning: the histories that the engine's watches read late, twice or not at all, and the
//! lives that the oracle looks at. It knows nothing of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_core::crd::{CrdError, CrdOwner};
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::response::Refused;
use mortise_core::scope::Slice;
use mortise_core::write::{Write, WriteError, WriteErrorClass, Written};
use mortise_local_cluster::{Cluster as LocalCluster, Method, Options, Step, Watch};
use mortise_stories::api::{Api, Ask, Client, NoWebhooks, Seen};
use serde_json::{Value, json};

/// By how much a restore may raise versions, as etcd's manual advises.
const RAISED_BY: u64 = 1_000_000;
/// The controllers that the model has no accidents of its own for.
const CONTROLLERS: [&str; 2] = ["garbage-collector-controller", "disruption-controller"];
/// Namespaces beside those that a cluster has.
const NAMESPACES: [&str; 5] = ["north", "south", "west", "elsewhere", "mortise-system"];
const MERGE: &str = "application/merge-patch+json";

/// One change of one object, as a watch reports it.
#[derive(Clone, Debug)]
pub struct Record {
    pub version: u64,
    pub target: ObjectRef,
    pub uid: Arc<str>,
    /// It is being deleted, or was.
    pub deleting: bool,
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

/// What a watch of the local cluster has shown, oldest first.
#[derive(Clone, Debug, Default)]
struct Feed {
    plural: String,
    /// None where its kind is not served.
    watch: Option<Box<Watch>>,
    history: Vec<Record>,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    api: Api<NoWebhooks>,
    options: Options,
    /// Of every kind that was mentioned, and of the parts of kinds that the engine has watched.
    feeds: BTreeMap<Slice, Feed>,
    /// They have shown everything up to this version.
    seen: u64,
    objects: BTreeMap<ObjectRef, Value>,
    /// Every object that exists or existed, by its UID; but see [`Cluster::forget`].
    pub lives: BTreeMap<Arc<str>, Life>,
    /// Kinds that RBAC does not let the host read.
    pub unreadable: BTreeSet<Kind>,
    /// Kinds that RBAC does not let the host write.
    pub unwritable: BTreeSet<Kind>,
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

fn definition() -> Kind {
    Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition")
}

pub fn reference(object: &Value) -> ObjectRef {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    ObjectRef {
        kind: Kind::new(&text(&object["apiVersion"]), &text(&object["kind"])),
        name: Name::new(&text(&metadata["namespace"]), &text(&metadata["name"])),
    }
}

impl Cluster {
    /// A cluster whose UIDs follow from the seed.
    pub fn new(seed: u64) -> Self {
        let controllers = CONTROLLERS.map(str::to_owned).to_vec();
        let options = Options { nodes: 0, controllers, seed, ..Options::default() };
        let mut cluster = Self {
            api: Api::new(options.clone(), NoWebhooks),
            options,
            feeds: BTreeMap::new(),
            seen: 0,
            objects: BTreeMap::new(),
            lives: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            unwritable: BTreeSet::new(),
            unread: Vec::new(),
        };
        for name in NAMESPACES {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            cluster.put(namespace).expect("it is free");
        }
        cluster.follow(&definition().into());
        cluster
    }

    /// Sets the clock.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.api.now_ms = now_ms;
    }

    pub fn get(&self, target: &ObjectRef) -> Option<&Value> {
        self.objects.get(target)
    }

    pub fn list(&self, kind: &Kind) -> impl Iterator<Item = &Value> {
        let first = ObjectRef { kind: kind.clone(), name: Name::new("", "") };
        self.objects.range(first..).take_while(move |(target, _)| target.kind == *kind).map(|(_, object)| object)
    }

    pub fn version(&self) -> u64 {
        self.api.cluster.revision()
    }

    /// The changes of a kind, or of a part of one, oldest first. What leaves the part is deleted there.
    pub fn history(&self, slice: &Slice) -> &[Record] {
        self.feeds.get(slice).map_or(&[], |feed| &feed.history)
    }

    /// Drops the history of all objects, and returns the deleted ones. For runs of days, while nothing watches: watches
    /// count records from the start.
    pub fn forget(&mut self) -> Vec<Life> {
        for feed in self.feeds.values_mut() {
            let is_last = |record: &Record| {
                self.objects.get(&record.target).is_some_and(|live| version_of(live) == record.version)
            };
            feed.history.retain(is_last);
        }
        let (gone, live) = std::mem::take(&mut self.lives).into_iter().partition(|(_, life)| life.deleted_at.is_some());
        self.lives = live;
        let gone: BTreeMap<Arc<str>, Life> = gone;
        gone.into_values().collect()
    }

    /// Restores a backup: the cluster as it was. Versions are assigned a second time, UIDs are not. With `raised`, as etcd's
    /// manual advises, new versions are above all assigned ones, and objects keep theirs.
    pub fn restore(&mut self, backup: &Self, raised: bool) {
        let mut saved = backup.api.cluster.saved();
        if raised {
            saved.push(json!({"revision": self.version() + RAISED_BY}));
        }
        let mut next = backup.clone();
        next.options.seed = self.options.seed + (1 << 32);
        let restored = LocalCluster::restore(next.options.clone(), saved);
        next.api.cluster = restored.expect("what was saved is a cluster");
        next.api.now_ms = self.api.now_ms;
        next.api.forget_resources();
        next.unreadable = std::mem::take(&mut self.unreadable);
        next.unwritable = std::mem::take(&mut self.unwritable);
        next.unread.clear();
        next.seen = next.version();
        let slices: Vec<Slice> = next.feeds.keys().cloned().collect();
        slices.iter().for_each(|slice| next.open(slice, next.seen));
        *self = next;
    }

    /// The last record of every existing object.
    pub fn live_records(&self) -> Vec<Record> {
        let kinds = self.feeds.keys().filter(|slice| is_whole(slice));
        kinds.flat_map(|slice| self.list_at(slice, u64::MAX)).collect()
    }

    pub fn take_changes(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.unread)
    }

    /// The objects of a kind, or of a part of one, at a version: the last record of each up to there.
    pub fn list_at(&self, slice: &Slice, version: u64) -> Vec<Record> {
        let mut last = BTreeMap::new();
        for record in self.history(slice).iter().take_while(|record| record.version <= version) {
            last.insert(record.target.clone(), record.clone());
        }
        last.into_values().filter(|record| !record.deleted).collect()
    }

    /// Whether the API server has an endpoint for a kind.
    pub fn serves(&self, kind: &Kind) -> bool {
        let is_custom = kind.group().contains('.') && !kind.group().ends_with(".k8s.io");
        !is_custom || self.list(&definition()).any(|definition| is_of(definition, kind))
    }

    /// Creates or changes a definition, as the host does.
    pub fn define(&mut self, plugin: &str, crd: &str, body: &str) -> Result<CrdOwner, CrdError> {
        self.api.define(crd, body)?;
        self.pull();
        self.api.established(plugin, crd).expect("the local cluster establishes a definition or refuses it at once")
    }

    /// Deletes the definition of a kind, and with it all objects; false when there is none.
    pub fn undefine(&mut self, kind: &Kind) -> bool {
        let found = self.list(&definition()).find(|definition| is_of(definition, kind)).map(reference);
        found.is_some_and(|target| {
            self.remove(&target);
            self.api.forget_resources();
            true
        })
    }

    /// A write of the engine arrives.
    pub fn execute(&mut self, write: &Write) -> Result<Written, WriteError> {
        let target = write.op.target();
        self.check_writable(target, write.op.verb())?;
        self.follow(&target.kind.clone().into());
        let result = self.api.execute(write, None);
        self.pull();
        result
    }

    /// What the host reads of an object.
    pub fn read(&mut self, target: &ObjectRef) -> Result<Option<Value>, WriteError> {
        self.api.get(Client::Host, target).map_err(|refused| refused.to_write_error())
    }

    /// A user creates an object.
    pub fn put(&mut self, object: Value) -> Result<Value, Refused> {
        let target = reference(&object);
        self.follow(&target.kind.clone().into());
        let [_, collection] = self.api.path(&target)?;
        self.ask(Method::Post, collection, "application/json", &object)
    }

    /// A user's merge patch: takes over the ownership of the fields that it changes. False when nothing changes.
    pub fn edit(&mut self, target: &ObjectRef, patch: &Value) -> bool {
        let before = self.version();
        self.change(Method::Patch, target, "", patch).is_ok() && self.version() > before
    }

    /// A merge patch of the status, by what runs the object.
    pub fn patch_status(&mut self, target: &ObjectRef, status: &Value) -> Result<Value, Refused> {
        self.change(Method::Patch, target, "/status", &json!({"status": status}))
    }

    /// A Pod gets its node.
    pub fn bind(&mut self, pod: &ObjectRef) -> Result<Value, Refused> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": &*pod.name.name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-0"},
        });
        self.change(Method::Post, pod, "/binding", &binding)
    }

    /// A user deletes an object. A Pod that has a node terminates gracefully and is removed later; an object with finalizers
    /// is removed with the last of them.
    pub fn delete(&mut self, target: &ObjectRef) -> Result<Value, Refused> {
        self.change(Method::Delete, target, "", &json!({}))
    }

    /// The same, with what becomes of what it owns: "Foreground" deletes that first, "Orphan" keeps it.
    pub fn delete_with(&mut self, target: &ObjectRef, propagation: &str) -> Result<Value, Refused> {
        self.change(Method::Delete, target, "", &json!({"propagationPolicy": propagation}))
    }

    /// Without a grace period.
    pub fn remove(&mut self, target: &ObjectRef) {
        let _ = self.change(Method::Delete, target, "", &json!({"gracePeriodSeconds": 0}));
    }

    /// The controllers do one thing.
    pub fn step(&mut self) -> Step {
        let step = self.api.step();
        self.pull();
        step
    }

    fn change(&mut self, method: Method, target: &ObjectRef, at: &str, body: &Value) -> Result<Value, Refused> {
        self.follow(&target.kind.clone().into());
        let [object, _] = self.api.path(target)?;
        let content_type = if method == Method::Patch { MERGE } else { "application/json" };
        self.ask(method, format!("{object}{at}"), content_type, body)
    }

    fn ask(
        &mut self,
        method: Method,
        path: String,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Value, Refused> {
        let body = body.to_string();
        let ask = Ask { method, content_type, body: body.as_bytes(), ..Ask::get(path) };
        let result = self.api.json(Client::Others, ask);
        self.pull();
        result
    }

    /// Watches a kind, or a part of one, from its first mention on.
    pub fn follow(&mut self, slice: &Slice) {
        if !is_whole(slice) {
            self.follow(&slice.kind.clone().into());
        }
        match self.feeds.get(slice) {
            Some(Feed { watch: Some(_), .. }) => return,
            Some(_) => self.open(slice, self.version()),
            None => self.open(slice, 0),
        }
        self.read_feed(slice);
    }

    fn open(&mut self, slice: &Slice, version: u64) {
        let watch = self.api.watch(slice, version).ok();
        // A kind that is not served has no objects: its first watch will show all.
        if watch.is_some() || version > 0 {
            let feed = self.feeds.entry(slice.clone()).or_default();
            feed.watch = watch;
            if let Ok(resource) = self.api.resource(&slice.kind) {
                feed.plural = resource.plural;
            }
        }
    }

    /// Reads what has changed, in the order of its versions.
    fn pull(&mut self) {
        if self.seen == self.version() {
            return;
        }
        let place = |[group, plural, _, _]: [&str; 4]| (group.to_owned(), plural.to_owned());
        let changed: BTreeSet<(String, String)> = self.api.cluster.changed_since(self.seen).map(place).collect();
        // A definition that is gone ends the watches of its kind.
        let is_any = changed.iter().any(|(_, plural)| plural == "customresourcedefinitions");
        let has_changed = |(slice, feed): &(&Slice, &Feed)| {
            is_any || changed.contains(&(slice.kind.group().to_owned(), feed.plural.clone()))
        };
        let slices: Vec<Slice> = self.feeds.iter().filter(has_changed).map(|(slice, _)| slice.clone()).collect();
        let before = self.unread.len();
        self.seen = self.version();
        slices.iter().for_each(|slice| self.read_feed(slice));
        self.unread[before..].sort_by_key(|record| record.version);
    }

    fn read_feed(&mut self, slice: &Slice) {
        while let Some(watch) = self.feeds.get_mut(slice).and_then(|feed| feed.watch.as_mut()) {
            let frames = self.api.poll(watch);
            if frames.is_empty() {
                return;
            }
            for frame in frames {
                match frame {
                    Some(seen) if seen.event != "BOOKMARK" => self.record(slice, &seen),
                    Some(_) => {}
                    // Its time is over, or its kind is served no more.
                    None => self.open(slice, self.version()),
                }
            }
        }
    }

    fn record(&mut self, slice: &Slice, seen: &Seen) {
        let (object, deleted) = (seen.tree(), seen.event == "DELETED");
        let target = reference(&object);
        let record = Record {
            version: version_of(&object),
            target: target.clone(),
            uid: object["metadata"]["uid"].as_str().unwrap_or_default().into(),
            deleting: deleted || is_deleting(&object),
            deleted,
            text: seen.object.get().into(),
        };
        self.feeds.entry(slice.clone()).or_default().history.push(record.clone());
        if !is_whole(slice) {
            return;
        }
        let new = || Life { target: target.clone(), owner: None, child_key: None, deleted_at: None };
        let life = self.lives.entry(Arc::clone(&record.uid)).or_insert_with(new);
        if deleted {
            life.deleted_at = Some(record.version);
            self.objects.remove(&target);
        } else {
            life.owner = owner_of(&object, &target);
            life.child_key = object["metadata"]["annotations"]["mortise.dev/child"].as_str().map(str::to_owned);
            self.objects.insert(target, object);
        }
        self.unread.push(record);
    }

    fn check_writable(&self, target: &ObjectRef, verb: &str) -> Result<(), WriteError> {
        if !self.unwritable.contains(&target.kind) {
            return Ok(());
        }
        let (resource, group) = (format!("{}s", target.kind.kind.to_lowercase()), target.kind.group());
        let message = format!("User \"mortise\" cannot {verb} resource {resource:?} in API group {group:?}");
        Err(WriteError { class: WriteErrorClass::Denied, message })
    }
}

fn is_whole(slice: &Slice) -> bool {
    slice.namespace.is_none() && slice.labels.is_none()
}

/// Whether a definition serves a kind.
fn is_of(definition: &Value, kind: &Kind) -> bool {
    let spec = &definition["spec"];
    spec["group"] == *kind.group() && spec["names"]["kind"] == *kind.kind
}

pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
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
