//! The engine with many plugins. Costs are counted in effects, never in time.
//!
//! `Host` responds to every effect at once. Only deletes, patches and creates of children wait until the test ends
//! them. The scenarios and the simulation test the rest of the engine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Config, Engine, PluginHealth, WriteBudget};
use crate::admission::AdmissionBackend;
use crate::call::CallDone;
use crate::component::{Compiled, Offer};
use crate::contract::{self, CallResult, Child, Outcome};
use crate::crd::{CrdError, CrdOwner};
use crate::dependencies::Dependencies;
use crate::digest::Digest;
use crate::event::{Effect, Event};
use crate::object::{Interner, Kind, Name, Object, ObjectRef, ResourceVersion};
use crate::observation::Observation;
use crate::plugin_object;
use crate::rights::{Readable, Review};
use crate::scope::Slice;
use crate::time::{self, Now};
use crate::watch::WatchEvent;
use crate::write::{Write, WriteError, WriteErrorClass, WriteId, WriteOp, Written};

mod admission;
mod audit;
mod budget;
mod builtin;
mod conversion;
mod dynamic_kinds;
mod fairness;
mod finalizers;
mod grants;
mod host_crd;
mod hostile;
mod http;
mod identity;
mod leading;
mod memory;
mod names;
mod orphans;
mod other_hosts;
mod owners;
mod ownership;
mod pieces;
mod predicates;
mod requirements;
mod scopes;
mod status;
mod successors;
mod tracked;

impl Default for Engine {
    fn default() -> Self {
        Self::new(config())
    }
}

/// An engine and its cluster.
#[derive(Default)]
struct Host {
    engine: Engine,
    now_ms: u64,
    wake_at: Option<u64>,
    version: u64,
    objects: BTreeMap<ObjectRef, Value>,
    /// Deletes in flight, in order.
    deletes: Vec<(WriteId, ObjectRef)>,
    /// Creates of children in flight, with their plugins.
    creates: Vec<(WriteId, Arc<str>)>,
    /// The bodies of these creates.
    bodies: BTreeMap<WriteId, (ObjectRef, Value)>,
    /// Patches of finalizers and actions in flight.
    patches: Vec<(WriteId, ObjectRef, Value)>,
    watched: BTreeSet<Slice>,
    loaded: BTreeSet<Digest>,
    compiled: usize,
    /// Manifests of components that do not have the one of [`manifest`].
    manifests: BTreeMap<Digest, Arc<str>>,
    /// Established CRDs.
    crds: BTreeSet<Arc<str>>,
    /// Calls of guests so far.
    calls: usize,
    /// What guests saw of dynamic kinds: the lines of `dynamic_kinds.rs`.
    seen: Vec<String>,
    /// The guests' actions.
    actions: Vec<contract::Action>,
    /// The guests' status.
    status: Option<Arc<str>>,
    /// Writes of the guests' status have an unknown result.
    loses_statuses: bool,
    /// The kinds of written objects, with the ServiceAccount whose request it was, or "host".
    sent_as: BTreeSet<(Arc<str>, String)>,
    /// Reviews so far, and where ServiceAccounts may read kinds, if not everywhere.
    reviews: Vec<Review>,
    readable: BTreeMap<(String, Kind), Readable>,
    /// Reviews of identities so far, and the ServiceAccounts as which the host may not act.
    identity_reviews: usize,
    unlent: BTreeSet<String>,
    /// Live reads in flight.
    live_reads: Vec<ObjectRef>,
    /// If set, lists do not end, and what they list is here.
    held_lists: Option<Vec<Slice>>,
    /// Calls do not end, and their results are in `results`.
    slow_guests: bool,
    /// If set, compilations do not end, and their results are here.
    held_compilations: Option<Vec<Event>>,
    /// The removal of webhooks does not end.
    slow_webhooks: bool,
    results: Vec<Event>,
    /// Lists that were begun.
    listed: Vec<Kind>,
    /// Live lists in flight.
    audited: Vec<Slice>,
    observed: Vec<Observation>,
    /// The backends that were set, by plugin.
    admission: Vec<(Arc<str>, Option<Arc<AdmissionBackend>>)>,
    conversion: Vec<(Arc<str>, Option<Arc<crate::conversion::ConversionBackend>>)>,
    /// CRDs as they were last registered.
    definitions: BTreeMap<Arc<str>, Value>,
    /// Registrations so far.
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

/// A version of a plugin.
fn component(number: usize, version: usize) -> Digest {
    Digest(format!("sha256:{version:032}{number:032}").into())
}

fn plugin_object(name: &str) -> ObjectRef {
    ObjectRef { kind: plugin_object::kind(), name: Name::new("", name) }
}

fn source_of(name: &str) -> Arc<str> {
    format!("file {name}.wasm").into()
}

/// The kind that the plugin reads beside its own.
fn input_of(number: usize) -> Kind {
    Kind::new("example.com/v1", &format!("Kind{number:04}Input"))
}

/// The first object of the plugin's kind.
fn object_ref(number: usize) -> ObjectRef {
    ObjectRef { kind: kind_of(number), name: Name::new("default", "object-0") }
}

fn failed(class: WriteErrorClass) -> Result<Written, WriteError> {
    Err(WriteError { class, message: "no".to_owned() })
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

/// The manifest of a plugin that brings its own kind, reads another and owns ConfigMaps.
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
pub(super) fn merge(target: &mut Value, patch: &Value) {
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

/// One call at a time, and no leader election.
pub(super) fn config() -> Config {
    Config {
        instance: "mortise-0".into(),
        namespace: "mortise-system".into(),
        call_slots: 1,
        leader_election: false,
        write_budget: WriteBudget::default(),
        http_requests_per_minute: None,
        require_service_account: false,
        tenants: None,
        audit_interval_ms: 0,
    }
}

impl Host {
    /// A host that has started without plugins.
    fn started() -> Self {
        Self::started_as(config())
    }

    fn started_as(config: Config) -> Self {
        let mut host = Self::new(config);
        host.step(Event::Started);
        host.step(Event::SourcesListed);
        host
    }

    /// A host that has not started. Its clock does not begin at zero, which is before everything.
    fn new(config: Config) -> Self {
        Self { engine: Engine::new(config), now_ms: 1_000, version: 1, ..Self::default() }
    }

    /// A host that serves so many plugins, each with its Plugin object.
    fn serving(plugins: usize) -> Self {
        let mut host = Self::started();
        for number in 0..plugins {
            host.offer(number);
        }
        for number in 0..plugins {
            assert!(host.has_plugin_object(number), "of plugin {number}");
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
        self.step(Event::PluginFound(Offer::new(name, source, digest, "{}")));
    }

    /// Offers a version with this manifest.
    fn offer_manifest(&mut self, number: usize, version: usize, manifest: &Value) -> Digest {
        let digest = component(number, version);
        self.manifests.insert(digest.clone(), manifest.to_string().into());
        self.offer_component(number, digest.clone());
        digest
    }

    fn withdraw(&mut self, number: usize) {
        let name = plugin_name(number);
        let source = source_of(&name);
        self.step(Event::PluginGone { name, source });
    }

    fn health_of(&self, number: usize) -> Option<PluginHealth> {
        self.engine.health().plugins.into_iter().find(|plugin| plugin.name == plugin_name(number))
    }

    /// The reason and message of the Ready condition, if a plugin does not serve.
    fn why_unready(&self, number: usize) -> Option<String> {
        let plugin = self.health_of(number).filter(|plugin| !plugin.ready)?;
        Some(format!("{}: {}", plugin.reason, plugin.message))
    }

    fn has_plugin_object(&self, number: usize) -> bool {
        self.objects.contains_key(&plugin_object(&plugin_name(number)))
    }

    /// Status, reason and message of a condition of the Plugin object.
    fn condition(&self, number: usize, name: &str) -> Option<[String; 3]> {
        let object = &self.objects[&plugin_object(&plugin_name(number))];
        let found = object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)?;
        Some(["status", "reason", "message"].map(|field| found[field].as_str().unwrap_or_default().to_owned()))
    }

    /// Its reason.
    fn reason(&self, number: usize, name: &str) -> String {
        let [_, reason, _] = self.condition(number, name).expect("the condition is set");
        reason
    }

    fn count_observed(&self, is_counted: impl Fn(&Observation) -> bool) -> usize {
        self.observed.iter().filter(|observation| is_counted(observation)).count()
    }

    /// How often a key was taken from the queue.
    fn taken(&self) -> usize {
        self.count_observed(|observation| matches!(observation, Observation::Taken { .. }))
    }

    /// Processes an event and its consequences until there are none.
    fn step(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut effects = Vec::new();
            let now = Now { mono_ms: self.now_ms, unix_ms: 1_700_000_000_000 + self.now_ms };
            self.engine.step(now, event, &mut effects);
            for effect in effects {
                self.respond(effect, &mut events);
            }
            if events.is_empty() && self.wake_at.take_if(|due_ms| *due_ms <= self.now_ms).is_some() {
                events.push_back(Event::Tick);
            }
        }
    }

    /// Lets time pass, with the ticks that the engine requests.
    fn pass(&mut self, milliseconds: u64) {
        let end_ms = self.now_ms + milliseconds;
        while let Some(due_ms) = self.wake_at.take_if(|due_ms| *due_ms <= end_ms) {
            self.now_ms = self.now_ms.max(due_ms);
            self.step(Event::Tick);
        }
        self.now_ms = end_ms;
    }

    fn respond(&mut self, effect: Effect, events: &mut VecDeque<Event>) {
        match effect {
            Effect::StartWatch(slice) => {
                assert!(self.watched.insert(slice.clone()), "{slice} is watched twice");
                self.list(slice, events);
            }
            Effect::Relist(slice) => self.list(slice, events),
            Effect::Audit(slice) => self.audited.push(slice),
            Effect::WatchTenant(_) | Effect::StopTenant(_) => {}
            Effect::Compile(digest) => {
                assert!(self.loaded.insert(digest.clone()), "{digest} is compiled twice");
                self.compiled += 1;
                let number: usize = digest.0[digest.0.len() - 32..].parse().unwrap();
                let version: usize = digest.0[7..39].parse().unwrap();
                let other = self.manifests.get(&digest).cloned();
                let manifest = other.unwrap_or_else(|| manifest(&plugin_name(number), &kind_of(number), version));
                let compiled = Compiled { manifest, component_bytes: 1, compile_ms: 1, cached: false };
                let compiled = Event::Compiled(digest, Ok(compiled));
                match &mut self.held_compilations {
                    Some(held) => held.push(compiled),
                    None => events.push_back(compiled),
                }
            }
            Effect::RegisterCrd { plugin, crd, body, not_after_ms } => {
                self.registered += 1;
                self.definitions.insert(Arc::clone(&crd), parsed(&body));
                let may_write = not_after_ms.is_none_or(|not_after_ms| self.now_ms <= not_after_ms);
                let is_established = self.crds.contains(&crd) || (may_write && self.crds.insert(Arc::clone(&crd)));
                let unavailable = || CrdError::Unavailable("this host may not write".to_owned());
                let result = if is_established { Ok(CrdOwner::Plugin) } else { Err(unavailable()) };
                events.push_back(Event::CrdRegistered { plugin, crd, result });
            }
            Effect::Write(write) => self.write(*write, events),
            Effect::WakeAt(due_ms) => self.wake_at = Some(self.wake_at.map_or(due_ms, |before| before.min(due_ms))),
            Effect::Observe(observation) => self.observed.push(observation),
            Effect::Discard(garbage) => garbage.free(),
            Effect::StopWatch(slice) => assert!(self.watched.remove(&slice), "{slice} was not watched"),
            Effect::Unload(digest) => assert!(self.loaded.remove(&digest), "{digest} was not loaded"),
            Effect::ServeAdmission { plugin, backend } => {
                if backend.is_none() && !self.slow_webhooks {
                    events.push_back(Event::AdmissionEnded { plugin: Arc::clone(&plugin) });
                }
                self.admission.push((plugin, backend));
            }
            Effect::ServeConversion { plugin, backend } => self.conversion.push((plugin, backend)),
            Effect::Call(call) => {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap"}).to_string();
                let children = Some(vec![Child::new("only", object)]);
                // A controller that does not finalize is never called with a deleted object.
                let finalized = call.object.deleting;
                let (actions, status) = (self.actions.clone(), self.status.clone());
                let result = CallResult::Done(Outcome { children, actions, status, finalized, ..Outcome::default() });
                let (result, reads) = match dynamic_kinds::read(&call, &mut self.seen) {
                    Some((waits, reads)) => (waits.unwrap_or(result), reads),
                    None => (result, Dependencies::default()),
                };
                let conclusion = call.check.conclude(&call.object, result);
                let done = Event::CallDone(call.id, CallDone { conclusion, reads, elapsed_us: 1 });
                self.calls += 1;
                if self.slow_guests { self.results.push(done) } else { events.push_back(done) }
            }
            Effect::ReadLive(target) => self.live_reads.push(target.object),
            effect @ (Effect::Review(_) | Effect::ReviewIdentity(_)) => self.review(effect, events),
            Effect::Http(sending) => panic!("no plugin of these tests sends requests: {sending:?}"),
        }
    }

    fn review(&mut self, effect: Effect, events: &mut VecDeque<Event>) {
        match effect {
            Effect::Review(review) => {
                let place = (review.account.to_string(), review.kind.clone());
                let readable = self.readable.get(&place).cloned().unwrap_or(Readable::Everywhere);
                self.reviews.push((*review).clone());
                events.push_back(Event::Reviewed(*review, Ok(readable)));
            }
            Effect::ReviewIdentity(review) => {
                self.identity_reviews += 1;
                let may_act = !self.unlent.contains(&review.account.to_string());
                events.push_back(Event::IdentityReviewed(review, Ok(may_act)));
            }
            effect => panic!("this is no review: {effect:?}"),
        }
    }

    fn write(&mut self, write: Write, events: &mut VecDeque<Event>) {
        let may_write = write.not_after_ms.is_none_or(|not_after_ms| self.now_ms <= not_after_ms);
        assert!(may_write, "X7: this write is too late: {write:?}");
        let identity = write.service_account.as_ref().map_or_else(|| "host".to_owned(), ToString::to_string);
        self.sent_as.insert((Arc::clone(&write.op.target().kind.kind), identity));
        match write.op {
            WriteOp::Delete { target, .. } => self.deletes.push((write.id, target)),
            WriteOp::Create { target, body } | WriteOp::Apply { target, body, .. } if write.cause.is_some() => {
                let mut object = parsed(&body);
                // The API server notes who writes it.
                let manager = write.plugin.as_ref().map(|plugin| format!("mortise/{plugin}"));
                object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Update"}]);
                self.bodies.insert(write.id, (target, object));
                self.creates.extend(write.plugin.map(|plugin| (write.id, plugin)));
            }
            WriteOp::Create { target, body } | WriteOp::Apply { target, body, .. } => {
                let mut object = parsed(&body);
                object["metadata"]["uid"] = json!(format!("uid-{}", target.name));
                object["metadata"]["creationTimestamp"] = json!(time::seconds(1_700_000_000_000 + self.now_ms));
                self.written(write.id, target, object, events);
            }
            WriteOp::PatchStatus { .. } if write.cause.is_some() && self.loses_statuses => {
                events.push_back(Event::Wrote(write.id, failed(WriteErrorClass::Unknown)));
            }
            WriteOp::PatchStatus { target, body } => {
                let mut object = self.objects[&target].clone();
                merge(&mut object["status"], &parsed(&body)["status"]);
                self.written(write.id, target, object, events);
            }
            WriteOp::Patch { target, body, .. } => self.patches.push((write.id, target, parsed(&body))),
            op => panic!("these plugins have no {} of {}", op.verb(), op.target()),
        }
    }

    fn list(&mut self, slice: Slice, events: &mut VecDeque<Event>) {
        self.listed.push(slice.kind.clone());
        events.push_back(Event::Watch(slice.clone(), WatchEvent::Listing));
        match &mut self.held_lists {
            Some(held) => held.push(slice),
            None => events.push_back(Event::Watch(slice, WatchEvent::ListDone(ResourceVersion(self.version)))),
        }
    }

    fn written(&mut self, id: WriteId, target: ObjectRef, object: Value, events: &mut VecDeque<Event>) {
        let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
        let applied = self.stored(&target, object);
        events.push_back(self.succeeded(id, &uid));
        if target.kind == plugin_object::kind() {
            events.push_back(applied);
        }
    }

    /// The success of a write that made the newest version.
    fn succeeded(&self, id: WriteId, uid: &str) -> Event {
        Event::Wrote(id, Ok(Written { uid: uid.into(), resource_version: ResourceVersion(self.version) }))
    }

    /// Another client writes an object, and the watch shows it.
    fn store(&mut self, target: &ObjectRef, object: Value) {
        let event = self.stored(target, object);
        self.step(event);
    }

    /// Stores the next version of an object. Returns the event of its watch.
    fn stored(&mut self, target: &ObjectRef, mut object: Value) -> Event {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let event = WatchEvent::Applied(decoded(&object));
        self.objects.insert(target.clone(), object);
        Event::Watch(target.kind.clone().into(), event)
    }

    /// Another client creates so many objects of a plugin's kind. The guest wants one child for each.
    fn create_objects(&mut self, number: usize, count: usize) {
        self.create_objects_of(&kind_of(number), count);
    }

    fn create_objects_of(&mut self, kind: &Kind, count: usize) {
        for object in 0..count {
            let name = Name::new("default", &format!("object-{object}"));
            let object = json!({
                "apiVersion": &*kind.api_version, "kind": &*kind.kind,
                "metadata": {"name": &*name.name, "namespace": "default", "uid": format!("{kind}-{object}")},
            });
            self.store(&ObjectRef { kind: kind.clone(), name }, object);
        }
    }

    /// All creates in flight succeed, and the watch shows the objects.
    fn end_creates(&mut self) {
        for (id, _) in std::mem::take(&mut self.creates) {
            let (target, mut object) = self.bodies.remove(&id).unwrap();
            let uid = format!("uid-{}", target.name);
            object["metadata"]["uid"] = json!(uid);
            let shown = self.stored(&target, object);
            self.step(self.succeeded(id, &uid));
            self.step(shown);
        }
    }

    /// All creates in flight of these plugins fail.
    fn fail_creates(&mut self, class: WriteErrorClass, is_failed: impl Fn(&str) -> bool) {
        let (failing, others): (Vec<_>, Vec<_>) = self.creates.drain(..).partition(|(_, plugin)| is_failed(plugin));
        self.creates = others;
        failing.into_iter().for_each(|(id, _)| self.step(Event::Wrote(id, failed(class))));
    }

    /// Another client sets a field of an object's metadata.
    fn set_metadata(&mut self, target: &ObjectRef, field: &str, value: Value) {
        let mut object = self.objects[target].clone();
        object["metadata"][field] = value;
        self.store(target, object);
    }

    /// Another client changes a Plugin object.
    fn annotate(&mut self, number: usize) {
        let annotations = json!({"example.com/changed": self.version.to_string()});
        self.set_metadata(&plugin_object(&plugin_name(number)), "annotations", annotations);
    }

    /// Ends the delete of a Plugin object.
    fn end_delete(&mut self, number: usize, result: Result<(), WriteErrorClass>) {
        let target = plugin_object(&plugin_name(number));
        let at = self.deletes.iter().position(|(_, deleted)| *deleted == target).expect("its delete is in flight");
        let (id, _) = self.deletes.remove(at);
        self.step(match result {
            Ok(()) => self.succeeded(id, &format!("uid-{}", target.name)),
            Err(class) => Event::Wrote(id, failed(class)),
        });
    }

    /// The watch shows that a Plugin object is deleted.
    fn show_gone(&mut self, number: usize) {
        self.show_object_gone(&plugin_object(&plugin_name(number)));
    }

    fn show_object_gone(&mut self, target: &ObjectRef) {
        self.version += 1;
        let mut object = self.objects.remove(target).expect("it exists");
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.step(Event::Watch(target.kind.clone().into(), WatchEvent::Deleted(decoded(&object))));
    }
}
