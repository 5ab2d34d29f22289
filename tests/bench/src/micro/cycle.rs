//! The engine with everything around it: guests for its calls, and a few lines that act as the API server for its
//! writes. Nothing is measured here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context, Result, bail};
use mortise_core::call::{Call, CallDone};
use mortise_core::component::{Compiled, Offer};
use mortise_core::crd::CrdOwner;
use mortise_core::digest::Digest;
use mortise_core::engine::{Config, Engine, WriteBudget};
use mortise_core::event::{Effect, Event};
use mortise_core::object::{Interner, Kind, Object, ObjectRef, ResourceVersion};
use mortise_core::time::Now;
use mortise_core::watch::WatchEvent;
use mortise_core::write::{Write, WriteOp, Written};
use serde_json::{Value, json};

/// Bound of steps, many times what a hundred thousand objects need: more is a loop.
const MAX_STEPS: usize = 10_000_000;
/// A timer later than this is the resync's: the engine is idle.
const QUIET_MS: u64 = 60_000;

pub(crate) trait Guests {
    fn offers(&self) -> Vec<Offer>;
    fn compiled(&self, digest: &Digest) -> Compiled;
    fn call(&self, call: Call) -> CallDone;
}

/// An engine with its API server and guests.
pub(crate) struct Cycle<'a> {
    guests: &'a dyn Guests,
    engine: Engine,
    now: Now,
    wake_at: Option<u64>,
    version: u64,
    interner: Interner,
    watched: BTreeSet<Kind>,
    objects: BTreeMap<Kind, BTreeMap<ObjectRef, Value>>,
    events: VecDeque<Event>,
    writes: usize,
}

impl<'a> Cycle<'a> {
    /// An engine that has started and serves the plugins. The given objects exist from the start.
    pub(crate) fn start(guests: &'a dyn Guests, objects: impl IntoIterator<Item = Value>) -> Result<Self> {
        let mut cycle = Self::new(guests, objects)?;
        cycle.settle()?;
        Ok(cycle)
    }

    /// The same before its first step.
    pub(crate) fn new(guests: &'a dyn Guests, objects: impl IntoIterator<Item = Value>) -> Result<Self> {
        let mut cycle = Self {
            guests,
            engine: Engine::new(Config {
                instance: "bench".into(),
                namespace: "mortise-system".into(),
                call_slots: 4,
                leader_election: false,
                // The benchmark creates a hundred thousand Pods at once.
                http_requests_per_minute: None,
                write_budget: WriteBudget { writes_per_minute: u32::MAX, creates_per_minute: u32::MAX },
                require_service_account: false,
                tenants: None,
                audit_interval_ms: 0,
            }),
            now: Now { mono_ms: 0, unix_ms: 1_767_323_045_000 },
            wake_at: None,
            version: 0,
            interner: Interner::default(),
            watched: BTreeSet::new(),
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            writes: 0,
        };
        for object in objects {
            cycle.put(object)?;
        }
        cycle.events.push_back(Event::Started);
        cycle.events.extend(guests.offers().into_iter().map(Event::PluginFound));
        cycle.events.push_back(Event::SourcesListed);
        Ok(cycle)
    }

    pub(crate) fn writes(&self) -> usize {
        self.writes
    }

    pub(crate) fn objects(&self, kind: &Kind) -> impl Iterator<Item = &Value> {
        self.objects.get(kind).into_iter().flat_map(BTreeMap::values)
    }

    /// Stores an object under a new version, and returns its watch event.
    pub(crate) fn changed(&mut self, mut object: Value) -> Result<Event> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let decoded = Object::decode(object.to_string().as_bytes(), &mut self.interner)?;
        self.objects.entry(decoded.kind.clone()).or_default().insert(decoded.reference(), object);
        Ok(Event::Watch(decoded.kind.clone().into(), WatchEvent::Applied(Box::new(decoded))))
    }

    /// Steps once, without performing the effects.
    pub(crate) fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        self.engine.step(self.now, event, effects);
    }

    /// Performs effects, and steps until the engine is idle.
    pub(crate) fn finish(&mut self, effects: Vec<Effect>) -> Result<()> {
        for effect in effects {
            self.perform(effect)?;
        }
        self.settle()
    }

    /// Runs the guest of a call effect.
    pub(crate) fn run_guest(&self, call: Call) -> Event {
        Event::CallDone(call.id, self.guests.call(call))
    }

    fn put(&mut self, object: Value) -> Result<()> {
        let event = self.changed(object)?;
        // An object of an unwatched kind is found by the list.
        if matches!(&event, Event::Watch(slice, _) if self.watched.contains(&slice.kind)) {
            self.events.push_back(event);
        }
        Ok(())
    }

    pub(crate) fn settle(&mut self) -> Result<()> {
        for _ in 0..MAX_STEPS {
            let event = match (self.events.pop_front(), self.wake_at) {
                (Some(event), _) => event,
                (None, Some(wake_at)) if wake_at < self.now.mono_ms + QUIET_MS => {
                    let passed_ms = wake_at.saturating_sub(self.now.mono_ms);
                    self.now = Now { mono_ms: wake_at.max(self.now.mono_ms), unix_ms: self.now.unix_ms + passed_ms };
                    self.wake_at = None;
                    Event::Tick
                }
                (None, _) => return Ok(()),
            };
            let mut effects = Vec::new();
            self.step(event, &mut effects);
            for effect in effects {
                self.perform(effect)?;
            }
        }
        bail!("the engine was not idle after {MAX_STEPS} steps")
    }

    fn perform(&mut self, effect: Effect) -> Result<()> {
        match effect {
            // Its plugins read whole kinds.
            Effect::StartWatch(slice) | Effect::Relist(slice) => self.list(slice.kind)?,
            Effect::WatchTenant(_) | Effect::StopTenant(_) => {}
            Effect::Compile(digest) => {
                let compiled = self.guests.compiled(&digest);
                self.events.push_back(Event::Compiled(digest, Ok(compiled)));
            }
            Effect::RegisterCrd { plugin, crd, .. } => {
                self.events.push_back(Event::CrdRegistered { plugin, crd, result: Ok(CrdOwner::Plugin) });
            }
            Effect::Call(call) => {
                let done = self.run_guest(*call);
                self.events.push_back(done);
            }
            Effect::Write(write) => self.write(*write)?,
            Effect::WakeAt(wake_at) => self.wake_at = Some(wake_at),
            Effect::Review(review) => bail!("no plugin has a ServiceAccount: {review:?}"),
            Effect::ReviewIdentity(review) => bail!("no plugin has a ServiceAccount: {review:?}"),
            Effect::ReadLive(target) => bail!("the engine requests a live read of {target:?}"),
            Effect::Http(sending) => bail!("the engine sends a request of {}", sending.cause.controller),
            Effect::StopWatch(_)
            | Effect::Audit(_)
            | Effect::Unload(_)
            | Effect::ServeAdmission { .. }
            | Effect::ServeConversion { .. }
            | Effect::Observe(_)
            | Effect::Discard(_) => {}
        }
        Ok(())
    }

    fn list(&mut self, kind: Kind) -> Result<()> {
        self.events.push_back(Event::Watch(kind.clone().into(), WatchEvent::Listing));
        for object in self.objects.get(&kind).into_iter().flat_map(BTreeMap::values) {
            let object = Object::decode(object.to_string().as_bytes(), &mut self.interner)?;
            self.events.push_back(Event::Watch(kind.clone().into(), WatchEvent::Listed(vec![object])));
        }
        let version = ResourceVersion(self.version);
        self.events.push_back(Event::Watch(kind.clone().into(), WatchEvent::ListDone(version)));
        self.watched.insert(kind);
        Ok(())
    }

    fn write(&mut self, write: Write) -> Result<()> {
        self.writes += 1;
        let object = match &write.op {
            // The engine creates Pods and the Plugin object, and applies Events.
            WriteOp::Create { target, body } | WriteOp::Apply { target, body, .. } => self.created(target, body)?,
            WriteOp::PatchStatus { target, body } => {
                let found = self.objects.get(&target.kind).and_then(|objects| objects.get(target));
                let mut object = found.cloned().with_context(|| format!("find {target}"))?;
                json_patch::merge(&mut object, &serde_json::from_str(body)?);
                object
            }
            other => bail!("unexpected {} of {}", other.verb(), other.target()),
        };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().into();
        if object["type"] == "Warning" {
            bail!("a Warning event: {object}");
        }
        self.put(object)?;
        let written = Written { uid, resource_version: ResourceVersion(self.version) };
        self.events.push_back(Event::Wrote(write.id, Ok(written)));
        Ok(())
    }

    fn created(&mut self, target: &ObjectRef, body: &str) -> Result<Value> {
        let mut object: Value = serde_json::from_str(body)?;
        object["metadata"]["uid"] = format!("uid-{}", self.version + 1).into();
        if &*target.kind.kind == "Pod" {
            object["status"] = json!({"phase": "Running"});
        }
        Ok(object)
    }
}
