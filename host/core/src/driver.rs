//! The driver: the one state machine that sees everything. [`Driver::step`] is its only entry; it never waits, never
//! reads a clock and never touches the cluster.
//!
//! `driver/leading.rs` knows whether anything may be written at all, `driver/keys.rs` holds what is known of each object
//! under reconciliation, `driver/wake.rs` decides who wakes when something changes, `driver/reconcile.rs` takes a key to its
//! call and back, `driver/carry_out.rs` turns what came of it into writes, as many at once as `driver/in_flight.rs` counts,
//! `driver/finalizers.rs` keeps objects until their plugins have cleaned up after them, `driver/plugins.rs` takes a plugin
//! from its offer to serving, `driver/crds.rs` registers what it brings, `driver/conversion.rs` has their versions
//! converted, `driver/admission.rs` has it asked before objects are stored, `driver/needs.rs` keeps what it needs,
//! `driver/kinds.rs` says what a watch that works or fails means for it, `driver/neighbours.rs` leaves other hosts what is
//! theirs, `driver/timers.rs` knows what is due, `driver/troubles.rs` remembers what keeps plugins from their work,
//! `driver/report.rs` tells of all that through their Plugin objects, which `driver/orphans.rs` deletes when their plugins are
//! gone, and `driver/status.rs` through the objects that they reconcile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use crate::call::CallId;
use crate::dependency_index::DependencyIndex;
use crate::digest::Digest;
use crate::event::{Effect, Event};
use crate::finalizer;
use crate::kube_event::EventLog;
use crate::lease::Claim;
use crate::limits::CallLimits;
use crate::manifest::ControllerSpec;
use crate::object::{Kind, Object, ObjectRef};
use crate::observation::Observation;
use crate::status::StatusShape;
use crate::store::Store;
use crate::time::Now;
use crate::view::Access;
use crate::watch::{WatchError, WatchEvent};
use crate::workqueue::{ControllerId, Key, WorkQueue};
use crate::write::{Cause, Write, WriteId, WriteOp};

mod admission;
mod carry_out;
mod conversion;
mod crds;
mod finalizers;
mod health;
mod in_flight;
mod keys;
mod kinds;
mod leading;
mod needs;
mod neighbours;
mod orphans;
mod plugins;
mod reconcile;
mod report;
mod status;
mod timers;
mod troubles;
mod wake;
mod writes;

pub use health::{Health, PluginHealth};

use crds::Registration;
use in_flight::InFlight;
use keys::KeyState;
use needs::Claims;
use orphans::Orphan;
use plugins::{Component, PluginState};
use reconcile::CallInputs;
use timers::{Timer, Timers};

/// A map whose order depends on its history alone, so that a simulated run is repeatable to the letter.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// Keys that may be between their first and their last write at once. The API server's own budget for one client is
/// some hundred requests in flight; more keys would only wait there instead of here, where they are sorted.
const MAX_KEYS_WRITING: usize = 64;

/// What the driver has to be told about the host it runs in.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the host signs the Events it sends: its pod's name.
    pub instance: Arc<str>,
    /// Where it looks for plugins: what tells it from the cluster's other hosts.
    pub namespace: Arc<str>,
    /// Guest calls that may be under way at once: the workers, and a few more so that none of them waits.
    pub call_slots: usize,
    /// Other hosts may be there: nothing is written before [`Event::LeaseChanged`] has given the right to. Without, this host
    /// has it for ever.
    pub leader_election: bool,
}

/// One controller of one active plugin.
#[derive(Debug)]
struct Controller {
    plugin: Arc<str>,
    /// "podset/PodSet".
    label: Arc<str>,
    manager: String,
    /// What keeps its objects from going until they are cleaned up after, whether it declares that or an earlier version did.
    finalizer: String,
    digest: Digest,
    config: Arc<str>,
    spec: Arc<ControllerSpec>,
    access: Arc<Access>,
    limits: CallLimits,
    shape: StatusShape,
    /// Every kind it reads is listed, and none is forbidden.
    ready: bool,
    calls: u32,
}

impl Controller {
    /// Whether an object of its kind is its to look at: one that it selects, and one that waits for it before it may go,
    /// selected still or not.
    fn reconciles(&self, object: &Object) -> bool {
        self.spec.selects(object) || (object.deleting && finalizer::is_on(object, &self.finalizer))
    }
}

/// What is known of a watched kind, apart from its objects.
#[derive(Debug, Default)]
struct KindState {
    error: Option<WatchError>,
    /// Plugins that read it, and the host under its own name; it is watched for as long as there is one.
    readers: BTreeSet<Arc<str>>,
}

/// Whose write an answer belongs to.
#[derive(Clone, Debug)]
enum WriteFor {
    Key(Key, WriteOp),
    Plugin(Arc<str>, WriteOp),
    /// The delete of a Plugin object whose plugin is gone.
    Orphan(Arc<str>, WriteOp),
    /// An Event: nobody waits for it.
    Nobody(ObjectRef),
}

/// What one key wants to know by a live read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ReadFor {
    /// Whose object stands in the way of its create (X3); its plan waits for the answer.
    Create,
    /// Whether its own write is still there, which the view does not show (R2).
    View,
    /// What has become of an object that a write may have changed of which nobody knows what became of it (X1).
    Landed,
}

/// A live read that is under way.
#[derive(Debug, Default)]
struct LiveRead {
    asked_ms: u64,
    by: BTreeSet<(Key, ReadFor)>,
}

/// The state machine. See the module's own words.
#[derive(Debug)]
pub struct Driver {
    config: Config,
    now: Now,
    claim: Claim,
    /// There was a moment without the right to write, so what was to be written then is still to be.
    held_back: bool,
    store: Store,
    queue: WorkQueue,
    events: EventLog,
    controllers: BTreeMap<ControllerId, Controller>,
    /// Who reconciles a kind: one at most, but any number of plugins one of Kubernetes itself (L2).
    primaries: Map<Kind, Arc<[ControllerId]>>,
    keys: Map<Key, KeyState>,
    index: DependencyIndex,
    plugins: BTreeMap<Arc<str>, PluginState>,
    /// Plugin objects of plugins that are gone and that are being deleted, by name.
    orphans: BTreeMap<Arc<str>, Orphan>,
    components: BTreeMap<Digest, Component>,
    claims: Claims,
    kinds: BTreeMap<Kind, KindState>,
    calls: Map<CallId, Key>,
    call_inputs: Map<CallId, CallInputs>,
    calling: InFlight,
    /// Keys that are being written.
    writing: InFlight,
    writes: Map<WriteId, WriteFor>,
    live_reads: BTreeMap<ObjectRef, LiveRead>,
    /// CRDs whose registration is under way, by plugin and name.
    registrations: BTreeMap<(Arc<str>, Arc<str>), Registration>,
    timers: Timers,
    /// Keys that wait for the view to show their own writes.
    gated: BTreeSet<Key>,
    last_id: u64,
    last_controller: u32,
    /// Kinds whose first list is known to be complete.
    listed: BTreeSet<Kind>,
    host_crd_established: bool,
    /// Why the host's own CRD is not there.
    host_crd_error: Option<String>,
    sources_listed: bool,
    draining: bool,
    wake_at: Option<u64>,
}

impl Driver {
    /// A driver that knows nothing yet; its first event has to be [`Event::Started`].
    pub fn new(config: Config) -> Self {
        Self {
            events: EventLog::new(Arc::clone(&config.instance)),
            claim: if config.leader_election { Claim::None } else { Claim::Everlasting },
            held_back: false,
            config,
            now: Now::default(),
            store: Store::default(),
            queue: WorkQueue::default(),
            controllers: BTreeMap::new(),
            primaries: Map::default(),
            keys: Map::default(),
            index: DependencyIndex::default(),
            plugins: BTreeMap::new(),
            orphans: BTreeMap::new(),
            components: BTreeMap::new(),
            claims: Claims::default(),
            kinds: BTreeMap::new(),
            calls: Map::default(),
            call_inputs: Map::default(),
            calling: InFlight::default(),
            writing: InFlight::default(),
            writes: Map::default(),
            live_reads: BTreeMap::new(),
            registrations: BTreeMap::new(),
            timers: Timers::default(),
            gated: BTreeSet::new(),
            last_id: 0,
            last_controller: 0,
            listed: BTreeSet::new(),
            host_crd_established: false,
            host_crd_error: None,
            sources_listed: false,
            draining: false,
            wake_at: None,
        }
    }

    /// Takes one event in and appends what is to be done. Time never goes back.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.now = Now { mono_ms: now.mono_ms.max(self.now.mono_ms), unix_ms: now.unix_ms };
        self.held_back |= !self.may_write();
        match event {
            Event::Started => self.start(effects),
            Event::Watch(kind, event) => self.on_watch(&kind, event, effects),
            Event::PluginFound(offer) => self.on_plugin_found(offer, effects),
            Event::PluginUnreadable { name, source, refusal } => {
                self.on_plugin_unreadable(name, source, refusal, effects)
            }
            Event::PluginGone { name, source } => self.on_plugin_gone(&name, &source, effects),
            Event::SourcesListed => self.on_sources_listed(effects),
            Event::Compiled(digest, result) => self.on_compiled(digest, result, effects),
            Event::CrdRegistered { plugin, crd, result } => self.on_crd_registered(&plugin, &crd, result, effects),
            Event::AdmissionServed { plugin, digest, result } => {
                self.on_admission_served(&plugin, &digest, result, effects);
            }
            Event::AdmissionEnded { plugin } => self.on_admission_ended(&plugin, effects),
            Event::ConversionServed { plugin, digest, result } => {
                self.on_conversion_served(&plugin, &digest, result, effects);
            }
            Event::CallDone(id, done) => self.on_call_done(id, done, effects),
            Event::Wrote(id, result) => self.on_wrote(id, result, effects),
            Event::LiveRead(target, result) => self.on_live_read(&target, result, effects),
            Event::LeaseChanged { claim_until_ms } => self.on_lease_changed(claim_until_ms, effects),
            Event::Tick => self.wake_at = None,
            Event::Shutdown => self.draining = true,
        }
        self.run_timers(effects);
        self.run_queue(effects);
        self.set_wake(effects);
    }

    /// True after [`Event::Shutdown`] once nothing is in flight.
    pub fn is_drained(&self) -> bool {
        self.draining && self.writes.is_empty() && self.registrations.is_empty()
    }

    /// The store, for reading: objects cached, kinds listed.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Keys that wait in the queue, per controller label.
    pub fn queue_depths(&self) -> Vec<(Arc<str>, usize)> {
        let depth =
            |(id, controller): (&ControllerId, &Controller)| (Arc::clone(&controller.label), self.queue.depth(*id));
        self.controllers.iter().map(depth).collect()
    }

    fn on_watch(&mut self, kind: &Kind, event: WatchEvent, effects: &mut Vec<Effect>) {
        if !self.kinds.contains_key(kind) {
            // A watch that was stopped may still have something in flight.
            return;
        }
        match event {
            WatchEvent::Listing => self.store.begin_list(kind),
            WatchEvent::Listed(object) => {
                let change = self.store.list_item(*object);
                self.on_change(&change, true, effects);
            }
            WatchEvent::ListDone(version) => {
                for change in self.store.end_list(kind, version) {
                    self.on_change(&change, true, effects);
                }
                self.on_kind_served(kind, effects);
                self.wake_gated(kind, effects);
            }
            WatchEvent::Applied(object) => {
                let change = self.store.apply(*object);
                self.on_change(&change, false, effects);
                self.on_kind_served(kind, effects);
            }
            WatchEvent::Deleted(object) => {
                let change = self.store.remove(kind, &object.name, object.resource_version);
                self.on_change(&change, false, effects);
                self.on_kind_served(kind, effects);
            }
            WatchEvent::Progress(version) => {
                self.store.progress(kind, version);
                self.on_kind_served(kind, effects);
                self.wake_gated(kind, effects);
            }
            WatchEvent::Failed(error) => self.on_watch_failed(kind, error, effects),
            WatchEvent::Undecodable { message } => {
                effects.push(Effect::Observe(Observation::Undecodable { kind: kind.clone(), message }));
            }
        }
    }

    fn run_timers(&mut self, effects: &mut Vec<Effect>) {
        while let Some(timer) = self.timers.take_due(self.now.mono_ms) {
            match timer {
                Timer::RegisterCrd(plugin, crd) => self.register_crd(&plugin, &crd, effects),
                Timer::Report(plugin) => self.report(&plugin, effects),
                Timer::Orphan(name) => self.delete_orphan(&name, effects),
                Timer::Refused(plugin) => self.retry_refused(&plugin, effects),
                Timer::GiveWay(plugin) => self.give_way(&plugin, effects),
                Timer::Claims => self.retry_claims(effects),
            }
        }
    }

    /// Asks to be woken at the earliest moment that matters, and says so only when that moment has changed.
    fn set_wake(&mut self, effects: &mut Vec<Effect>) {
        let due_ms = [self.timers.next_due_ms(), self.queue.next_due_ms()].into_iter().flatten().min();
        if let Some(due_ms) = due_ms
            && self.wake_at.is_none_or(|wake_at| due_ms < wake_at)
        {
            self.wake_at = Some(due_ms);
            effects.push(Effect::WakeAt(due_ms));
        }
    }

    /// Sets a timer; of two moments for the same one the earlier stands.
    fn arm(&mut self, delay_ms: u64, timer: Timer) {
        self.timers.arm(self.now.mono_ms.saturating_add(delay_ms), timer);
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn send(&mut self, plugin: Option<Arc<str>>, op: WriteOp, whose: WriteFor, effects: &mut Vec<Effect>) -> WriteId {
        let id = WriteId(self.next_id());
        let cause = match &whose {
            WriteFor::Key(key, _) => self.cause(key),
            WriteFor::Plugin(..) | WriteFor::Orphan(..) | WriteFor::Nobody(_) => None,
        };
        self.writes.insert(id, whose);
        let not_after_ms = self.claim.not_after_ms();
        effects.push(Effect::Write(Box::new(Write { id, plugin, cause, op, not_after_ms })));
        id
    }

    /// What a key's turn is called outside.
    fn cause(&self, key: &Key) -> Option<Cause> {
        let controller = self.controllers.get(&key.controller)?;
        let object = ObjectRef { kind: controller.spec.primary.clone(), name: key.name.clone() };
        Some(Cause { controller: Arc::clone(&controller.label), object })
    }
}

#[cfg(test)]
mod tests;
