//! The engine as the host of many plugins: what each event costs is counted in effects, never in time.
//!
//! `Host` answers every effect at once, as a cluster would that is never busy; only deletes, and the creates of children,
//! wait for the test to say how they end. What other things the engine does is for the scenarios and the simulation to tell.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Config, Engine, WriteBudget};
use crate::admission::AdmissionBackend;
use crate::call::CallDone;
use crate::component::{Compiled, Offer};
use crate::contract::{self, CallResult, Child, Outcome};
use crate::crd::CrdError;
use crate::dependencies::Dependencies;
use crate::digest::Digest;
use crate::event::{Effect, Event};
use crate::object::{Interner, Kind, Name, Object, ObjectRef, ResourceVersion};
use crate::observation::Observation;
use crate::plugin_object;
use crate::time::{self, Now};
use crate::watch::WatchEvent;
use crate::write::{Write, WriteError, WriteErrorClass, WriteId, WriteOp, Written};

mod admission;
mod audit;
mod budget;
mod builtin;
mod conversion;
mod fairness;
mod finalizers;
mod host_crd;
mod leading;
mod names;
mod orphans;
mod other_hosts;
mod ownership;
mod predicates;
mod requirements;
mod status;

/// An engine and the cluster that it believes in.
struct Host {
    engine: Engine,
    now_ms: u64,
    wake_at: Option<u64>,
    version: u64,
    /// Plugin objects and Events, by what they are.
    objects: BTreeMap<ObjectRef, Value>,
    /// Deletes that were asked for and not answered yet, in their order.
    deletes: Vec<(WriteId, ObjectRef)>,
    /// Creates of children that are under way, with the plugins that want them.
    creates: Vec<(WriteId, Arc<str>)>,
    /// What they are to make.
    bodies: BTreeMap<WriteId, (ObjectRef, Value)>,
    /// Patches that put finalizers on and take them off, asked for and not answered yet.
    patches: Vec<(WriteId, ObjectRef, Value)>,
    watched: BTreeSet<Kind>,
    loaded: BTreeSet<Digest>,
    compiled: usize,
    /// What components say that are not made by [`manifest`].
    manifests: BTreeMap<Digest, Arc<str>>,
    /// CRDs that are there.
    crds: BTreeSet<Arc<str>>,
    /// Calls of guests so far.
    calls: usize,
    /// What guests want done to objects that are no children.
    actions: Vec<contract::Action>,
    /// What guests say of their objects.
    status: Option<Arc<str>>,
    /// What becomes of a status of theirs is not heard.
    loses_statuses: bool,
    /// Objects that the host has asked for, and that the test tells of.
    live_reads: Vec<ObjectRef>,
    /// Kinds whose list ends only when the test says so, for as long as lists are held.
    held_lists: Option<Vec<Kind>>,
    /// Calls are answered only when the test says so.
    slow_guests: bool,
    /// Webhooks are gone only when the test says so.
    slow_webhooks: bool,
    answers: Vec<Event>,
    /// Lists that were begun.
    listed: Vec<Kind>,
    /// Kinds that were to be listed live.
    audited: Vec<Kind>,
    observed: Vec<Observation>,
    /// Who was to answer for whom.
    admission: Vec<(Arc<str>, Option<Arc<AdmissionBackend>>)>,
    /// Who was to convert for whom.
    conversion: Vec<(Arc<str>, Option<Arc<crate::conversion::ConversionBackend>>)>,
    /// Definitions as they were last registered.
    definitions: BTreeMap<Arc<str>, Value>,
    /// Registrations that were begun.
    registered: usize,
}

fn plugin_name(number: usize) -> Arc<str> {
    format!("plugin-{number:04}").into()
}

fn kind_of(number: usize) -> Kind {
    Kind::new("example.com/v1", &format!("Kind{number:04}"))
}

/// Versions from this one on have admission.
const ADMITTING: usize = 100;

/// A version of a plugin: what reconciles its kind.
fn component(number: usize, version: usize) -> Digest {
    Digest(format!("sha256:{version:032}{number:032}").into())
}

fn plugin_object(name: &str) -> ObjectRef {
    ObjectRef { kind: plugin_object::kind(), name: Name::new("", name) }
}

fn source_of(name: &str) -> Arc<str> {
    format!("file {name}.wasm").into()
}

/// What the plugin reads beside its own kind.
fn input_of(number: usize) -> Kind {
    Kind::new("example.com/v1", &format!("Kind{number:04}Input"))
}

/// The manifest of a plugin that brings a kind of its own, reads another and owns one that all share.
fn manifest(name: &str, kind: &Kind, version: usize) -> Arc<str> {
    let plural = format!("{}s", kind.kind.to_lowercase());
    let admission = json!([{"apiVersion": &*kind.api_version, "kind": &*kind.kind, "validate": true}]);
    let manifest = json!({
        "admission": if version >= ADMITTING { admission } else { json!([]) },
        "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": name, "version": "0.1.0",
        "customResources": [{
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": &*kind.kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}}],
            },
        }],
        "controllers": [{
            "for": {"apiVersion": &*kind.api_version, "kind": &*kind.kind},
            "owns": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            "reads": [{"apiVersion": "example.com/v1", "kind": format!("{}Input", kind.kind)}],
        }],
    });
    manifest.to_string().into()
}

fn decoded(object: &Value) -> Box<Object> {
    Box::new(Object::decode(object.to_string().as_bytes(), &mut Interner::default()).unwrap())
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(field);
        } else {
            merge(&mut target[field], value);
        }
    }
}

/// A host that calls one guest at a time and knows of no other host.
fn config() -> Config {
    Config {
        instance: "mortise-0".into(),
        namespace: "mortise-system".into(),
        call_slots: 1,
        leader_election: false,
        write_budget: WriteBudget::default(),
        audit_interval_ms: 0,
    }
}

impl Host {
    /// A host that has begun and knows that it has no plugin yet.
    fn started() -> Self {
        Self::started_as(config())
    }

    fn started_as(config: Config) -> Self {
        let mut host = Self::new(config);
        host.step(Event::Started);
        host.step(Event::SourcesListed);
        host
    }

    /// One that has not begun.
    fn new(config: Config) -> Self {
        let engine = Engine::new(config);
        Self {
            engine,
            // Not the zero of the clock, which is before everything.
            now_ms: 1_000,
            wake_at: None,
            version: 1,
            objects: BTreeMap::new(),
            deletes: Vec::new(),
            creates: Vec::new(),
            bodies: BTreeMap::new(),
            patches: Vec::new(),
            watched: BTreeSet::new(),
            loaded: BTreeSet::new(),
            compiled: 0,
            manifests: BTreeMap::new(),
            crds: BTreeSet::new(),
            calls: 0,
            actions: Vec::new(),
            status: None,
            loses_statuses: false,
            live_reads: Vec::new(),
            held_lists: None,
            slow_guests: false,
            slow_webhooks: false,
            answers: Vec::new(),
            listed: Vec::new(),
            audited: Vec::new(),
            observed: Vec::new(),
            admission: Vec::new(),
            conversion: Vec::new(),
            definitions: BTreeMap::new(),
            registered: 0,
        }
    }

    /// One that serves so many plugins, each with its Plugin object.
    fn serving(plugins: usize) -> Self {
        let mut host = Self::started();
        for number in 0..plugins {
            host.offer(number);
        }
        for number in 0..plugins {
            assert!(host.objects.contains_key(&plugin_object(&plugin_name(number))), "plugin {number} is not told of");
        }
        let ready = host.engine.health().plugins.iter().filter(|plugin| plugin.ready).count();
        assert_eq!(ready, plugins, "every plugin serves");
        host
    }

    fn offer(&mut self, number: usize) {
        self.offer_component(number, component(number, 1));
    }

    fn offer_component(&mut self, number: usize, digest: Digest) {
        let name = plugin_name(number);
        let source = source_of(&name);
        self.step(Event::PluginFound(Offer { name, source, digest, config: "{}".into() }));
    }

    fn withdraw(&mut self, number: usize) {
        let name = plugin_name(number);
        let source = source_of(&name);
        self.step(Event::PluginGone { name, source });
    }

    /// Takes an event in and answers what follows from it until nothing does.
    fn step(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut effects = Vec::new();
            let now = Now { mono_ms: self.now_ms, unix_ms: 1_700_000_000_000 + self.now_ms };
            self.engine.step(now, event, &mut effects);
            for effect in effects {
                self.answer(effect, &mut events);
            }
        }
    }

    /// Lets time pass, with every moment that the engine asked to be woken at.
    fn pass(&mut self, milliseconds: u64) {
        let end_ms = self.now_ms + milliseconds;
        while let Some(due_ms) = self.wake_at.take_if(|due_ms| *due_ms <= end_ms) {
            self.now_ms = self.now_ms.max(due_ms);
            self.step(Event::Tick);
        }
        self.now_ms = end_ms;
    }

    fn answer(&mut self, effect: Effect, events: &mut VecDeque<Event>) {
        match effect {
            Effect::StartWatch(kind) => {
                assert!(self.watched.insert(kind.clone()), "{kind} is watched twice");
                self.list(kind, events);
            }
            Effect::Relist(kind) => self.list(kind, events),
            Effect::Audit(kind) => self.audited.push(kind),
            Effect::Compile(digest) => {
                assert!(self.loaded.insert(digest.clone()), "{digest} is compiled twice");
                self.compiled += 1;
                let number: usize = digest.0[digest.0.len() - 32..].parse().unwrap();
                let version: usize = digest.0[7..39].parse().unwrap();
                let other = self.manifests.get(&digest).cloned();
                let manifest = other.unwrap_or_else(|| manifest(&plugin_name(number), &kind_of(number), version));
                let compiled = Compiled { manifest, component_bytes: 1, compile_ms: 1, cached: false };
                events.push_back(Event::Compiled(digest, Ok(compiled)));
            }
            Effect::RegisterCrd { plugin, crd, body, not_after_ms } => {
                self.registered += 1;
                self.definitions.insert(Arc::clone(&crd), serde_json::from_str(&body).unwrap());
                let may_write = not_after_ms.is_none_or(|not_after_ms| self.now_ms <= not_after_ms);
                let is_there = self.crds.contains(&crd) || (may_write && self.crds.insert(Arc::clone(&crd)));
                let result = if is_there { Ok(()) } else { Err(CrdError::Unavailable("not mine to write".to_owned())) };
                events.push_back(Event::CrdRegistered { plugin, crd, result });
            }
            Effect::Write(write) => self.write(*write, events),
            Effect::WakeAt(due_ms) => self.wake_at = Some(self.wake_at.map_or(due_ms, |before| before.min(due_ms))),
            Effect::Observe(observation) => self.observed.push(observation),
            Effect::StopWatch(kind) => assert!(self.watched.remove(&kind), "{kind} was not watched"),
            Effect::Unload(digest) => assert!(self.loaded.remove(&digest), "{digest} was not loaded"),
            Effect::ServeAdmission { plugin, backend: serving } => self.serve_admission(plugin, serving, events),
            Effect::ServeConversion { plugin, backend: serving } => self.conversion.push((plugin, serving)),
            Effect::Call(call) => {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap"}).to_string().into();
                let children = Some(vec![Child { key: "only".into(), object }]);
                // Only a controller that finalizes is called with an object that is being deleted.
                let finalized = call.object.deleting;
                let (actions, status) = (self.actions.clone(), self.status.clone());
                let result = CallResult::Done(Outcome { children, actions, status, finalized, ..Outcome::default() });
                let conclusion = call.check.conclude(&call.object, result);
                let done =
                    Event::CallDone(call.id, CallDone { conclusion, reads: Dependencies::default(), elapsed_us: 1 });
                self.calls += 1;
                if self.slow_guests { self.answers.push(done) } else { events.push_back(done) }
            }
            Effect::ReadLive(target) => self.live_reads.push(target),
        }
    }

    fn write(&mut self, write: Write, events: &mut VecDeque<Event>) {
        let may_write = write.not_after_ms.is_none_or(|not_after_ms| self.now_ms <= not_after_ms);
        assert!(may_write, "X7: a write is sent that may not be: {write:?}");
        match write.op {
            WriteOp::Delete { target, .. } => self.deletes.push((write.id, target)),
            WriteOp::Create { target, body } | WriteOp::Apply { target, body, .. } if write.cause.is_some() => {
                self.bodies.insert(write.id, (target, serde_json::from_str(&body).unwrap()));
                self.creates.extend(write.plugin.map(|plugin| (write.id, plugin)));
            }
            WriteOp::Create { target, body } | WriteOp::Apply { target, body, .. } => {
                let mut object: Value = serde_json::from_str(&body).unwrap();
                object["metadata"]["uid"] = json!(format!("uid-{}", target.name));
                object["metadata"]["creationTimestamp"] = json!(time::seconds(1_700_000_000_000 + self.now_ms));
                self.written(write.id, target, object, events);
            }
            WriteOp::PatchStatus { .. } if write.cause.is_some() && self.loses_statuses => {
                let error = WriteError { class: WriteErrorClass::Unknown, message: "no answer".to_owned() };
                events.push_back(Event::Wrote(write.id, Err(error)));
            }
            WriteOp::PatchStatus { target, body } => self.patch_status(write.id, target, &body, events),
            WriteOp::Patch { target, body, .. } => {
                self.patches.push((write.id, target, serde_json::from_str(&body).unwrap()));
            }
            op => panic!("these plugins have no {} of {}", op.verb(), op.target()),
        }
    }

    fn patch_status(&mut self, id: WriteId, target: ObjectRef, body: &str, events: &mut VecDeque<Event>) {
        let patch: Value = serde_json::from_str(body).unwrap();
        let mut object = self.objects[&target].clone();
        merge(&mut object["status"], &patch["status"]);
        self.written(id, target, object, events);
    }

    fn list(&mut self, kind: Kind, events: &mut VecDeque<Event>) {
        self.listed.push(kind.clone());
        events.push_back(Event::Watch(kind.clone(), WatchEvent::Listing));
        match &mut self.held_lists {
            Some(held) => held.push(kind),
            None => events.push_back(Event::Watch(kind, WatchEvent::ListDone(ResourceVersion(self.version)))),
        }
    }

    fn serve_admission(
        &mut self,
        plugin: Arc<str>,
        serving: Option<Arc<AdmissionBackend>>,
        events: &mut VecDeque<Event>,
    ) {
        if serving.is_none() && !self.slow_webhooks {
            events.push_back(Event::AdmissionEnded { plugin: Arc::clone(&plugin) });
        }
        self.admission.push((plugin, serving));
    }

    fn written(&mut self, id: WriteId, target: ObjectRef, object: Value, events: &mut VecDeque<Event>) {
        let uid = object["metadata"]["uid"].as_str().unwrap().into();
        let applied = self.stored(&target, object);
        events.push_back(Event::Wrote(id, Ok(Written { uid, resource_version: ResourceVersion(self.version) })));
        if target.kind == plugin_object::kind() {
            events.push_back(applied);
        }
    }

    /// The version of an object in the namespace "default".
    fn objects_version(&self, name: &str) -> u64 {
        let object = self.objects.iter().find(|(target, _)| target.name == Name::new("default", name)).unwrap().1;
        object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }

    /// Gives an object its next version, and the event of its watch.
    fn stored(&mut self, target: &ObjectRef, mut object: Value) -> Event {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let event = WatchEvent::Applied(decoded(&object));
        self.objects.insert(target.clone(), object);
        Event::Watch(target.kind.clone(), event)
    }

    /// Somebody creates so many objects of a plugin's kind; each wants one child.
    fn create_objects(&mut self, number: usize, count: usize) {
        self.create_objects_of(&kind_of(number), count);
    }

    /// Somebody creates so many objects of a kind.
    fn create_objects_of(&mut self, kind: &Kind, count: usize) {
        for object in 0..count {
            let name = Name::new("default", &format!("object-{object}"));
            let object = json!({
                "apiVersion": &*kind.api_version, "kind": &*kind.kind,
                "metadata": {"name": &*name.name, "namespace": "default", "uid": format!("{kind}-{object}")},
            });
            let event = self.stored(&ObjectRef { kind: kind.clone(), name }, object);
            self.step(event);
        }
    }

    /// The creates that are under way all succeed, and the watch shows what they made.
    fn end_creates(&mut self) {
        for (id, _) in std::mem::take(&mut self.creates) {
            let (target, mut object) = self.bodies.remove(&id).unwrap();
            let uid: Arc<str> = format!("uid-{}", target.name).into();
            object["metadata"]["uid"] = json!(&*uid);
            let shown = self.stored(&target, object);
            self.step(Event::Wrote(id, Ok(Written { uid, resource_version: ResourceVersion(self.version) })));
            self.step(shown);
        }
    }

    /// Somebody else changes a Plugin object in a way that is no business of the host's.
    fn touch(&mut self, number: usize) {
        let target = plugin_object(&plugin_name(number));
        let mut object = self.objects[&target].clone();
        object["metadata"]["annotations"] = json!({"example.com/touched": self.version.to_string()});
        let event = self.stored(&target, object);
        self.step(event);
    }

    /// Ends a delete that was asked for, and takes it off the list.
    fn end_delete(&mut self, number: usize, result: Result<(), WriteErrorClass>) {
        let target = plugin_object(&plugin_name(number));
        let at = self.deletes.iter().position(|(_, asked)| *asked == target).expect("its delete was asked for");
        let (id, _) = self.deletes.remove(at);
        let uid = Arc::from(format!("uid-{}", target.name));
        let result = result.map(|()| Written { uid, resource_version: ResourceVersion(self.version) });
        self.step(Event::Wrote(id, result.map_err(|class| WriteError { class, message: "no".to_owned() })));
    }

    /// The watch tells that a Plugin object is gone.
    fn show_gone(&mut self, number: usize) {
        self.show_object_gone(&plugin_object(&plugin_name(number)));
    }

    fn show_object_gone(&mut self, target: &ObjectRef) {
        self.version += 1;
        let mut object = self.objects.remove(target).expect("it is there");
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.step(Event::Watch(target.kind.clone(), WatchEvent::Deleted(decoded(&object))));
    }

    /// A Plugin object of the same name takes the place of the one that is there, between two looks of the watch.
    fn replace(&mut self, number: usize, uid: &str) {
        let target = plugin_object(&plugin_name(number));
        let mut object = self.objects[&target].clone();
        object["metadata"]["uid"] = json!(uid);
        let event = self.stored(&target, object);
        self.step(event);
    }
}
