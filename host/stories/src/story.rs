//! One run of a story: the real engine, the cluster and others on one virtual clock. Input: acts of others, and time. Output:
//! objects, requests of the host, and a transcript.
//!
//! What the runtime does with threads and sockets happens here at once, or by a queue of what is due. Nothing is concurrent,
//! so a seed gives the same run each time. The files in `story/` have the parts: effects, watches, writes, definitions,
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use mortise_core::component::Offer;
use mortise_core::contract::CallResult;
use mortise_core::digest;
use mortise_core::engine::{Config, Engine, WriteBudget};
use mortise_core::event::Event;
use mortise_core::object::{Interner, ObjectRef};
use mortise_core::scope::Slice;
use mortise_local_cluster::{Options, Step};
use serde_json::Value;

use self::due::Due;
use self::others::Reaction;
use self::wakes::Wakes;
use self::watches::Open;
use crate::api::{Api, Client};
use crate::clock::{now, since_begin};
use crate::guest::Guest;
use crate::webhooks::{NAMESPACE, Webhooks};

mod definitions;
mod due;
mod effects;
mod generated;
mod others;
#[cfg(test)]
mod tests;
mod wakes;
mod watches;
mod writes;

pub use self::effects::Http;
pub use self::writes::Denial;

/// Nothing but heartbeats for this long is idle. Longer than the 30 s in which a host that has started replaces no child.
const QUIET_MS: u64 = 40_000;
/// The longest wait for idleness: a plugin that writes all the time never is.
const LONGEST_MS: u64 = 900_000;
/// Time for the plugin to serve: its definitions are there within a second.
const START_MS: u64 = 60_000;
/// What one run may process: days with an object that changes every second, and an end for what never ends.
const MAX_STEPS: u64 = 20_000_000;
/// What may be done at one moment: a rollout of thousands of Pods takes less. More is a fight without pauses.
const MAX_AT_ONCE: u64 = 200_000;
/// How often other controllers may change something at one moment, for the same reason.
const MAX_REACTIONS_AT_ONCE: u64 = 1_000;
/// How often the cluster forgets its log, as etcd does.
const COMPACT_MS: u64 = 300_000;
/// Resources that change by themselves.
const HEARTBEATS: [&str; 2] = ["leases", "events"];
/// How long the leases of nodes last: a day. What a heartbeat changes no story looks at, and of ten days they were most of the
/// work.
const NODE_LEASE_SECONDS: u32 = 24 * 60 * 60;
/// Guest calls in flight at once.
const CALL_SLOTS: usize = 8;
/// HTTP requests of a plugin in a minute, and the minutes between two audits: as of the host.
const HTTP_PER_MINUTE: u32 = 600;
const AUDIT_MS: u64 = 60 * 60_000;

/// How a run differs from others of the same story.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The plugin's configuration; an object.
    pub config: Value,
    /// How the cluster is set up. Its seed decides UIDs, drawn names and, unless it is 0, which of two things is first.
    pub cluster: Options,
    /// Lists come in the opposite order.
    pub reversed: bool,
    /// The host ends when it has sent so many writes, without their responses, and starts again at once.
    pub crash_after: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            config: Value::Object(serde_json::Map::new()),
            cluster: Options { node_lease_seconds: NODE_LEASE_SECONDS, ..Options::default() },
            reversed: false,
            crash_after: None,
        }
    }
}

/// A plugin in a cluster.
pub struct Story {
    api: Api<Webhooks>,
    engine: Engine,
    settings: Settings,
    offer: Offer,
    manifest: Arc<str>,
    incarnation: u32,
    queue: BTreeMap<(u64, u64), Due>,
    entries: u64,
    tick_ms: Option<u64>,
    watches: BTreeMap<Slice, Open>,
    epochs: u64,
    random: u64,
    interner: Interner,
    /// The version up to which the controllers have worked, and when they have something to do without a change.
    worked: (u64, Option<u64>),
    /// The version up to which changes were looked at.
    looked: u64,
    compact_at: u64,
    reactions: Vec<Reaction>,
    http: BTreeMap<String, Http>,
    denials: Vec<Denial>,
    /// Writes of all incarnations.
    sent: u64,
    crashes: bool,
    /// The lines of the plugin's writes since the start.
    requests: Vec<String>,
    calls: u64,
    wakes: Wakes,
    log: Vec<String>,
    /// Whether the plugin serves, or why not.
    serves: Option<Result<(), String>>,
    /// When something other than a heartbeat changed last.
    notable_ms: u64,
    steps: u64,
    /// The moment, the steps until then, and how often other controllers changed something since.
    moment: (u64, u64, u64),
}

impl std::fmt::Debug for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Story")
            .field("plugin", &self.offer.name)
            .field("now_ms", &self.api.now_ms)
            .finish_non_exhaustive()
    }
}

impl Story {
    /// A cluster at rest, with a host that has not started yet.
    pub fn new(guest: Rc<dyn Guest>, settings: Settings) -> Self {
        let manifest = guest.manifest();
        let digest = digest::of(manifest.as_bytes());
        let name = serde_json::from_str::<Value>(&manifest).unwrap_or_default();
        let name: Arc<str> = name["name"].as_str().unwrap_or("plugin").into();
        let source = format!("the story of {name}");
        let offer = Offer::new(name, source, digest, settings.config.to_string());
        let mut story = Self {
            api: Api::new(settings.cluster.clone(), Webhooks::new(guest)),
            engine: engine(),
            offer,
            manifest,
            incarnation: 0,
            queue: BTreeMap::new(),
            entries: 0,
            tick_ms: None,
            watches: BTreeMap::new(),
            epochs: 0,
            random: settings.cluster.seed,
            interner: Interner::default(),
            worked: (0, Some(0)),
            looked: 0,
            compact_at: COMPACT_MS,
            reactions: Vec::new(),
            http: BTreeMap::new(),
            denials: Vec::new(),
            sent: 0,
            crashes: false,
            requests: Vec::new(),
            calls: 0,
            wakes: Wakes::default(),
            log: Vec::new(),
            serves: None,
            notable_ms: 0,
            steps: 0,
            moment: (0, 0, 0),
            settings,
        };
        story.run_until(1_000).expect("a cluster comes to rest within a second");
        story
    }

    /// Starts the host, and waits until the plugin serves.
    ///
    /// # Errors
    /// Why it does not.
    pub fn start(&mut self) -> Result<(), String> {
        self.serves = None;
        self.begin();
        let until_ms = self.now_ms() + START_MS;
        while self.serves.is_none() {
            if !self.step(until_ms)? {
                return Err(self.not_serving());
            }
        }
        self.serves.clone().unwrap_or(Ok(()))
    }

    fn begin(&mut self) {
        self.deliver(Event::Started);
        self.deliver(Event::PluginFound(self.offer.clone()));
        self.deliver(Event::SourcesListed);
    }

    /// What the Plugin object says.
    fn not_serving(&mut self) -> String {
        let target = mortise_core::plugin_object::of(&self.offer.name);
        let shown = self.api.get(Client::Others, &target).ok().flatten().unwrap_or_default();
        let conditions = shown["status"]["conditions"].as_array().into_iter().flatten();
        let unmet = conditions.filter(|condition| condition["status"] != "True");
        let words = unmet.map(|condition| format!("{}: {}", condition["type"], condition["message"]));
        let words = words.collect::<Vec<_>>().join("; ");
        format!("the plugin {} does not serve within {} s: {words}", self.offer.name, START_MS / 1_000)
    }

    /// Milliseconds since the beginning.
    pub fn now_ms(&self) -> u64 {
        self.api.now_ms
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// When the story does not come to an end, see [`Story::run_until_idle`].
    pub fn advance(&mut self, ms: u64) -> Result<(), String> {
        self.run_until(self.now_ms().saturating_add(ms))
    }

    /// Lets time pass until nothing but heartbeats was written for 40 s; 15 minutes at most.
    ///
    /// # Errors
    /// When millions of things happen meanwhile: a plugin and another controller undo each other's changes at one moment.
    pub fn run_until_idle(&mut self) -> Result<(), String> {
        let end_ms = self.now_ms().saturating_add(LONGEST_MS);
        self.notable_ms = self.now_ms();
        while self.step((self.notable_ms + QUIET_MS).min(end_ms))? {}
        self.api.now_ms = self.now_ms().max((self.notable_ms + QUIET_MS).min(end_ms));
        Ok(())
    }

    fn run_until(&mut self, until_ms: u64) -> Result<(), String> {
        while self.step(until_ms)? {}
        self.api.now_ms = self.now_ms().max(until_ms);
        Ok(())
    }

    /// The host ends without finishing anything, and starts again at once. Its requests have taken effect; their responses are
    /// lost.
    pub fn crash_host(&mut self) {
        self.log.push("the host crashes and starts again".to_owned());
        self.crash();
    }

    fn crash(&mut self) {
        self.crashes = false;
        self.incarnation += 1;
        self.engine = engine();
        self.watches.clear();
        self.api.webhooks.admission.clear();
        self.queue.retain(|_, due| !matches!(due, Due::Event(..) | Due::List(..) | Due::Established { .. }));
        self.tick_ms = None;
        self.begin();
    }

    /// Does one thing that is due until then; false when there is none.
    fn step(&mut self, until_ms: u64) -> Result<bool, String> {
        self.steps += 1;
        if self.moment.0 != self.now_ms() {
            self.moment = (self.now_ms(), self.steps, 0);
        }
        let (_, before, reactions) = self.moment;
        if self.steps > MAX_STEPS || self.steps - before > MAX_AT_ONCE || reactions > MAX_REACTIONS_AT_ONCE {
            let (at, calls) = (self.now_ms(), self.calls);
            return Err(format!("the story does not end: {} steps and {calls} calls until {at} ms", self.steps));
        }
        if self.crashes {
            self.crash();
            return Ok(true);
        }
        if self.work() {
            return Ok(true);
        }
        self.look();
        let next = self.queue.first_key_value().map(|((due_ms, _), _)| *due_ms);
        let poll = self.next_poll();
        let due = [next, self.tick_ms, self.worked.1, poll].into_iter().flatten().min();
        let Some(due_ms) = due.filter(|due_ms| *due_ms <= until_ms) else { return Ok(false) };
        self.api.now_ms = self.now_ms().max(due_ms);
        if next == Some(due_ms) {
            if let Some((_, due)) = self.queue.pop_first() {
                self.process(due);
            }
        } else if poll == Some(due_ms) {
            self.poll();
        } else if self.tick_ms == Some(due_ms) {
            self.tick_ms = None;
            self.deliver(Event::Tick);
        }
        Ok(true)
    }

    /// Lets the cluster's controllers do one thing that is due; false when there is none.
    fn work(&mut self) -> bool {
        let revision = self.api.cluster.revision();
        let (worked, due_ms) = self.worked;
        if worked == revision && due_ms.is_none_or(|due_ms| due_ms > self.now_ms()) {
            return false;
        }
        match self.api.step() {
            Step::Worked => true,
            Step::Idle(next) => {
                self.worked = (self.api.cluster.revision(), next.map(since_begin));
                // What is due in a part of this millisecond is done in the next.
                self.worked.1 = self.worked.1.map(|next_ms| next_ms.max(self.now_ms() + 1));
                let reacted = self.react();
                self.moment.2 += u64::from(reacted);
                reacted
            }
        }
    }

    /// Looks at what changed: whether it counts, and whether kinds did.
    fn look(&mut self) {
        let revision = self.api.cluster.revision();
        if self.looked == revision {
            return;
        }
        let (mut changed, mut notable) = (BTreeSet::new(), false);
        for [_, plural, _, _] in self.api.cluster.changed_since(self.looked) {
            notable |= !HEARTBEATS.contains(&plural);
            if !changed.contains(plural) {
                changed.insert(plural.to_owned());
            }
        }
        self.looked = revision;
        if notable {
            self.notable_ms = self.now_ms();
        }
        let definitions = changed.contains("customresourcedefinitions");
        if definitions {
            self.api.forget_resources();
        }
        self.wake_watches(|plural| definitions || changed.contains(plural));
        if self.now_ms() >= self.compact_at && self.read_all() {
            self.compact_at = self.now_ms() + COMPACT_MS;
            self.api.cluster.compact();
        }
    }

    fn process(&mut self, due: Due) {
        match due {
            Due::Event(incarnation, event) if incarnation == self.incarnation => self.deliver(*event),
            Due::Event(..) => {}
            Due::List(slice, epoch) => self.list(&slice, epoch),
            Due::Established { incarnation, plugin, crd, until_ms } if incarnation == self.incarnation => {
                self.look_for_definition(plugin, crd, until_ms);
            }
            Due::Established { .. } => {}
        }
    }

    fn schedule(&mut self, delay_ms: u64, due: Due) {
        self.entries += 1;
        self.queue.insert((self.now_ms() + delay_ms, self.entries), due);
    }

    /// Delivers the result of an effect soon.
    fn respond_with(&mut self, event: Event) {
        let delay_ms = self.soon();
        self.schedule(delay_ms, Due::Event(self.incarnation, Box::new(event)));
    }

    /// A millisecond; with another seed than 0, one to sixteen.
    fn soon(&mut self) -> u64 {
        if self.settings.cluster.seed == 0 {
            return 1;
        }
        // A step of a linear congruential generator by Knuth; its high bits are the better ones.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (self.random >> 60)
    }

    /// Steps the engine and performs its effects. None of them delivers an event at once.
    fn deliver(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.engine.step(now(self.now_ms()), event, &mut effects);
        for effect in effects {
            // A host that has crashed does nothing more.
            if !self.crashes {
                self.perform(effect);
            }
        }
    }

    /// The lines of the plugin's writes since the start: "create Pod default/a". Without those of Events.
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    /// How many writes the host has sent, its own among them.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// How often the plugin was called.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// How many things were done so far: the time that the run took, on any machine.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What the host did since the last time, as lines.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// The changes that the host saw between an object's last call and the one before it, of all that concerns the object:
    /// itself, its children, and the kinds that its call before had read.
    pub fn woken_by(&self, object: &ObjectRef) -> Vec<ObjectRef> {
        self.wakes.of(object)
    }

    /// The plugin's manifest.
    pub fn manifest(&self) -> &Arc<str> {
        &self.manifest
    }

    fn note_fault(&mut self, object: &ObjectRef, result: &CallResult) {
        match result {
            CallResult::Fault(fault) => self.log.push(format!("fault {object}: {}", fault.message())),
            CallResult::Failed(failure) => self.log.push(format!("failure {object}: {failure:?}")),
            CallResult::HostFault(message) => self.log.push(format!("fault of the host {object}: {message}")),
            CallResult::Done(_) | CallResult::Waits(_) => {}
        }
    }
}

fn engine() -> Engine {
    Engine::new(Config {
        instance: "mortise-0".into(),
        namespace: NAMESPACE.into(),
        call_slots: CALL_SLOTS,
        leader_election: false,
        write_budget: WriteBudget::default(),
        http_requests_per_minute: Some(HTTP_PER_MINUTE),
        require_service_account: false,
        tenants: None,
        audit_interval_ms: AUDIT_MS,
    })
}
