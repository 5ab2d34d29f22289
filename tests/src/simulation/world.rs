//! One run: the real engine, the local cluster, and everything around them, on one clock.
//!
//! A queue has all future events, ordered by time; a step takes the first, and the engine's effects become new entries
//! (`shell.rs`). Nothing is concurrent, so a seed gives the same run each time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mortise_core::component::Offer;
use mortise_core::engine::{Config, Engine, WriteBudget};
use mortise_core::event::{Effect, Event};
use mortise_core::limits::WRITE_TIMEOUT_MS;
use mortise_core::object::{Interner, Kind, ObjectRef, ResourceVersion};
use mortise_core::scope::{Scope, Slice};
use mortise_core::time::Now;
use mortise_core::watch::{WatchError, WatchEvent};
use mortise_core::write::{Write, WriteError, WriteErrorClass};
use mortise_local_cluster::Step;
use mortise_stories::clock::since_begin;
use serde_json::json;

use super::cluster::{Cluster, Record, is_deleting, job, pod};
use super::faults::{Fault, Faults};
use super::guests::Guest;
use super::http::Requests;
use super::oracle::{Oracle, Violation};
use super::random::Random;
use super::watch::{Notice, Watch};

/// Unix time at the start of every run.
pub const BEGIN_UNIX_MS: u64 = 1_767_225_600_000;
/// Bound of concurrent guest calls.
const CALL_SLOTS: usize = 4;
/// Delay before a failed watch is tried again.
pub const WATCH_RETRY_MS: u64 = 1_000;

/// A mistake in the runtime's part, to show that the simulation finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    None,
    /// Every response carries version 0, so no view is ever behind the host's writes.
    NoOwnWrites,
    GeneratedNames,
    NoUidPrecondition,
    /// A write of unknown result is reported as one that has failed.
    UnknownIsFailed,
    /// A list shows no object's mark of successors, as if the host that has died had never set one.
    ListsWithoutMark,
}
pub enum Upcoming {
    /// An event for the engine of this incarnation of the host.
    Engine(u32, Box<Event>),
    /// A source reports the plugin of a name.
    Source(u32, String),
    /// A write arrives at the API server; the response comes this much later, if at all.
    Lands {
        incarnation: u32,
        write: Box<Write>,
        reply_ms: Option<u64>,
    },
    /// A watch delivers its next event.
    Pump(Slice, u64),
    Connect(Slice, u64),
    Kubelet(ObjectRef, Arc<str>),
    JobEnds(ObjectRef),
    /// The controllers of the cluster do something.
    Controllers,
    /// The registration of a CRD arrives, of the plugin and the CRD of these names.
    Define {
        incarnation: u32,
        plugin: Arc<str>,
        crd: Arc<str>,
        body: Arc<str>,
    },
    /// Users, other programs and accidents change something.
    Environment,
}
pub struct World {
    pub cluster: Cluster,
    pub engine: Engine,
    audit_interval_ms: u64,
    pub oracle: Oracle,
    pub http: Requests,
    pub faults: Faults,
    pub random: Random,
    pub mutant: Mutant,
    pub now_ms: u64,
    pub incarnation: u32,
    pub watches: BTreeMap<Slice, Watch>,
    pub offers: BTreeMap<String, Offer>,
    /// What guests that were called declare.
    pub readable: BTreeMap<Guest, Vec<(Kind, Scope)>>,
    /// The plugins' writes, without Events.
    pub requests: Vec<String>,
    pub calls: u64,
    /// Those of the calls that ended at a dynamic kind.
    pub waits: u64,
    pub steps: u64,
    /// The API server's refusals without a fault.
    pub refused: Vec<String>,
    /// A scenario's responses instead of the API server's.
    pub responses: VecDeque<super::shell::Response>,
    /// The lines of a scenario's text.
    pub log: Option<Vec<String>>,
    pub trace: Option<VecDeque<String>>,
    trace_lines: usize,
    pub interner: Interner,
    queue: BTreeMap<(u64, u64), Upcoming>,
    entries: u64,
    tick_ms: Option<u64>,
    /// When the controllers have their next turn.
    controllers_ms: Option<u64>,
    epochs: u64,
    /// Names that the mutant has generated.
    pub made_up: u64,
}

impl World {
    pub fn new(seed: u64, mutant: Mutant) -> Self {
        Self {
            cluster: Cluster::new(seed),
            audit_interval_ms: 0,
            engine: new_engine(0),
            oracle: Oracle::default(),
            http: Requests::default(),
            faults: Faults::default(),
            random: Random::new(seed),
            mutant,
            now_ms: 0,
            incarnation: 0,
            watches: BTreeMap::new(),
            offers: BTreeMap::new(),
            readable: BTreeMap::new(),
            requests: Vec::new(),
            calls: 0,
            waits: 0,
            steps: 0,
            refused: Vec::new(),
            responses: VecDeque::new(),
            log: None,
            trace: None,
            trace_lines: 0,
            interner: Interner::default(),
            queue: BTreeMap::new(),
            entries: 0,
            tick_ms: None,
            controllers_ms: None,
            epochs: 0,
            made_up: 0,
        }
    }

    pub fn auditing(mut self, interval_ms: u64) -> Self {
        self.audit_interval_ms = interval_ms;
        self.engine = new_engine(interval_ms);
        self
    }

    /// Keeps the last lines of a trace.
    pub fn traced(mut self, lines: usize) -> Self {
        self.trace = Some(VecDeque::new());
        self.trace_lines = lines;
        self
    }

    /// A line for the scenario's text.
    pub fn log(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(line());
        }
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let now_ms = self.now_ms;
        if let Some(trace) = &mut self.trace {
            if trace.len() == self.trace_lines {
                trace.pop_front();
            }
            trace.push_back(format!("{now_ms:>8} {}", line()));
        }
    }

    pub fn start(&mut self) -> Result<(), Violation> {
        self.deliver(Event::Started)?;
        let names: Vec<String> = self.offers.keys().cloned().collect();
        for name in names {
            let delay = self.random.between(1, 30);
            self.schedule(delay, Upcoming::Source(self.incarnation, name));
        }
        self.deliver_in(31, Event::SourcesListed);
        Ok(())
    }

    /// The host dies and restarts at once.
    pub fn crash(&mut self) -> Result<(), Violation> {
        self.die();
        self.start()
    }

    /// The host dies. Its requests in flight take effect, now or later, or are lost.
    pub fn die(&mut self) {
        self.note(|| "CRASH".to_owned());
        self.faults.count(Fault::Crash);
        self.incarnation += 1;
        self.engine = new_engine(self.audit_interval_ms);
        self.watches.clear();
        self.tick_ms = None;
        self.oracle.on_crash();
        self.http.on_crash();
        let pending = std::mem::take(&mut self.queue);
        for ((due_ms, entry), upcoming) in pending {
            match upcoming {
                Upcoming::Engine(..) | Upcoming::Source(..) | Upcoming::Pump(..) | Upcoming::Connect(..) => {}
                Upcoming::Lands { incarnation, write, .. } if incarnation + 1 == self.incarnation => {
                    let late_ms = [None, Some(0), Some(self.random.between(50, 5_000))];
                    if let Some(late_ms) = self.random.pick(&late_ms).flatten() {
                        let due_ms = (due_ms + late_ms).min(self.now_ms + WRITE_TIMEOUT_MS);
                        let upcoming = Upcoming::Lands { incarnation, write, reply_ms: None };
                        self.queue.insert((due_ms, entry), upcoming);
                    }
                }
                other => {
                    self.queue.insert((due_ms, entry), other);
                }
            }
        }
    }

    /// Offers a plugin, or another version or configuration of it.
    pub fn offer(&mut self, guest: Guest, config: &str) {
        self.offer_as(guest.name(), guest, config);
    }

    pub fn offer_as(&mut self, name: &str, guest: Guest, config: &str) {
        let offer = Offer::new(name, source_of(name), guest.digest(), config);
        self.offers.insert(name.to_owned(), offer);
        self.schedule(1, Upcoming::Source(self.incarnation, name.to_owned()));
    }

    pub fn withdraw(&mut self, name: &str) {
        self.offers.remove(name);
        self.schedule(1, Upcoming::Source(self.incarnation, name.to_owned()));
    }

    /// A source reports the plugin of a name.
    fn source(&mut self, name: &str) -> Result<(), Violation> {
        match self.offers.get(name).cloned() {
            Some(offer) => self.deliver(Event::PluginFound(offer)),
            None => self.deliver(Event::PluginGone { name: name.into(), source: source_of(name) }),
        }
    }

    pub fn schedule(&mut self, delay_ms: u64, upcoming: Upcoming) {
        self.entries += 1;
        self.queue.insert((self.now_ms + delay_ms, self.entries), upcoming);
    }

    /// Delivers an event to the engine later, unless the host dies.
    pub fn deliver_in(&mut self, delay_ms: u64, event: Event) {
        self.schedule(delay_ms, Upcoming::Engine(self.incarnation, Box::new(event)));
    }

    /// Sets the engine's next timer.
    pub fn wake_at(&mut self, due_ms: u64) {
        self.tick_ms = Some(self.tick_ms.map_or(due_ms, |before| before.min(due_ms)));
    }

    /// Processes the first event up to `until_ms`; false when there is none.
    pub fn step(&mut self, until_ms: u64) -> Result<bool, Violation> {
        // Changes by the test between two steps.
        self.react()?;
        let next_ms = self.queue.first_key_value().map(|((due_ms, _), _)| *due_ms);
        let tick_first = self.tick_ms.is_some_and(|tick_ms| next_ms.is_none_or(|next_ms| tick_ms < next_ms));
        let due_ms = if tick_first { self.tick_ms } else { next_ms };
        let Some(due_ms) = due_ms.filter(|due_ms| *due_ms <= until_ms) else { return Ok(false) };
        self.steps += 1;
        self.advance(self.now_ms.max(due_ms));
        if tick_first {
            self.tick_ms = None;
            self.deliver(Event::Tick)?;
        } else if let Some((_, upcoming)) = self.queue.pop_first() {
            self.process(upcoming)?;
        }
        self.react()?;
        Ok(true)
    }

    /// Sets the clock.
    pub fn advance(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.cluster.set_now_ms(now_ms);
    }

    fn process(&mut self, upcoming: Upcoming) -> Result<(), Violation> {
        match upcoming {
            Upcoming::Engine(incarnation, event) if incarnation == self.incarnation => self.deliver(*event)?,
            Upcoming::Source(incarnation, name) if incarnation == self.incarnation => self.source(&name)?,
            Upcoming::Engine(..) | Upcoming::Source(..) => {}
            Upcoming::Lands { incarnation, write, reply_ms } => self.land(incarnation, *write, reply_ms)?,
            Upcoming::Pump(slice, epoch) => self.pump(&slice, epoch)?,
            Upcoming::Connect(slice, epoch) => self.connect(&slice, epoch)?,
            Upcoming::Kubelet(target, uid) => self.kubelet(&target, &uid),
            Upcoming::JobEnds(target) => self.job_ends(&target),
            Upcoming::Controllers => self.controllers(),
            Upcoming::Define { incarnation, plugin, crd, body } => {
                let result = self.cluster.define(&plugin, &crd, &body);
                if incarnation == self.incarnation {
                    self.deliver(Event::CrdRegistered { plugin, crd, result })?;
                }
            }
            Upcoming::Environment => self.environment()?,
        }
        Ok(())
    }

    /// Delivers an event to the engine and performs its effects.
    pub fn deliver(&mut self, event: Event) -> Result<(), Violation> {
        match &event {
            Event::CallDone(id, _) => self.oracle.on_call_done(*id),
            Event::Wrote(id, result) => self.oracle.on_wrote(*id, result),
            Event::LiveRead(target, Ok(live)) => self.oracle.on_live_read(&target.object, live.as_deref()),
            Event::PluginGone { name, .. } => self.oracle.on_plugin_gone(name),
            Event::Watch(slice, event) => self.oracle.on_watch(slice, event),
            Event::HttpDone(id, sent) => self.http.on_done(*id, sent),
            _ => {}
        }
        self.note(|| format!("> {}", super::shell::shown_event(&event)));
        let now = Now { mono_ms: self.now_ms, unix_ms: BEGIN_UNIX_MS + self.now_ms };
        let mut effects: Vec<Effect> = Vec::new();
        self.engine.step(now, event, &mut effects);
        effects.into_iter().try_for_each(|effect| self.perform(effect))
    }

    /// The reactions of the rest of the cluster to changes.
    fn react(&mut self) -> Result<(), Violation> {
        for record in self.cluster.take_changes() {
            self.note(|| {
                let what = if record.deleted { "gone" } else { "is" };
                format!("  {} {what} ({}, version {})", record.target, record.uid, record.version)
            });
            self.oracle.on_change(&record, &self.cluster)?;
            self.react_to(&record);
            self.wake_watches(&record.target.kind);
            self.wake_controllers(60);
        }
        Ok(())
    }

    fn react_to(&mut self, record: &Record) {
        if record.deleted {
            return;
        }
        if record.target.kind == pod() {
            let delay = self.random.between(10, 200);
            self.schedule(delay, Upcoming::Kubelet(record.target.clone(), Arc::clone(&record.uid)));
        }
        if record.target.kind == job() {
            let delay = self.random.between(500, 50_000);
            self.schedule(delay, Upcoming::JobEnds(record.target.clone()));
        }
    }

    /// Binds Pods and starts them, and ends terminating ones.
    fn kubelet(&mut self, target: &ObjectRef, uid: &str) {
        let Some(live) = self.cluster.get(target) else { return };
        if live["metadata"]["uid"] != uid {
            return;
        }
        if is_deleting(live) {
            // Some take their grace period.
            if self.faults.on && self.random.chance(400) {
                let delay = self.random.between(500, 20_000);
                return self.schedule(delay, Upcoming::Kubelet(target.clone(), uid.into()));
            }
            self.cluster.remove(target);
        } else if live["spec"]["nodeName"].is_null() {
            self.cluster.bind(target).expect("it has no node");
        } else if live["status"]["phase"] == "Pending" {
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let status = json!({"phase": "Running", "conditions": ready});
            self.cluster.patch_status(target, &status).expect("a Pod runs once it has a node");
        }
    }

    /// The Job controller sets the condition, once.
    fn job_ends(&mut self, target: &ObjectRef) {
        let Some(live) = self.cluster.get(target) else { return };
        if is_deleting(live) || !live["status"]["conditions"].is_null() {
            return;
        }
        let at = mortise_core::time::seconds(BEGIN_UNIX_MS + self.now_ms);
        let condition = |name| json!({"type": name, "status": "True", "lastTransitionTime": at, "lastProbeTime": at});
        let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
        let status = json!({"conditions": conditions, "startTime": at, "completionTime": at, "succeeded": 1});
        self.cluster.patch_status(target, &status).expect("a Job may end");
    }

    /// Gives the controllers a turn within so many milliseconds.
    fn wake_controllers(&mut self, within_ms: u64) {
        let due_ms = self.now_ms + self.random.between(1, within_ms);
        self.turn_controllers_at(due_ms);
    }

    fn turn_controllers_at(&mut self, due_ms: u64) {
        if self.controllers_ms.is_none_or(|before| before > due_ms) {
            self.controllers_ms = Some(due_ms);
            self.schedule(due_ms - self.now_ms, Upcoming::Controllers);
        }
    }

    /// They do one thing, and the next a little later.
    fn controllers(&mut self) {
        if self.controllers_ms != Some(self.now_ms) {
            return;
        }
        self.controllers_ms = None;
        match self.cluster.step() {
            Step::Worked => self.wake_controllers(20),
            Step::Idle(Some(at)) => self.turn_controllers_at(since_begin(at).max(self.now_ms + 1)),
            Step::Idle(None) => {}
        }
    }

    pub fn next_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }

    fn connect(&mut self, slice: &Slice, epoch: u64) -> Result<(), Violation> {
        if self.watches.get(slice).is_none_or(|watch| watch.epoch != epoch) {
            return Ok(());
        }
        self.cluster.follow(slice);
        if let Some(error) = self.watch_error(&slice.kind) {
            self.schedule(WATCH_RETRY_MS, Upcoming::Connect(slice.clone(), epoch));
            return self.deliver(Event::Watch(slice.clone(), WatchEvent::Failed(error)));
        }
        let mut version = self.cluster.version();
        if let Some(watch) = self.watches.get_mut(slice).filter(|watch| watch.delivered > version) {
            let (before, now) = (ResourceVersion(watch.rewind()), ResourceVersion(version));
            self.deliver(Event::Watch(slice.clone(), WatchEvent::Restored { before, now }))?;
            if self.watches.get(slice).is_none_or(|watch| watch.epoch != epoch) {
                return Ok(());
            }
        }
        let first = self.watches.get(slice).and_then(|watch| watch.first);
        if let Some(first) = first
            && self.faults.hit(&mut self.random, Fault::StaleList)
        {
            version = version.saturating_sub(self.random.between(1, 20)).max(first);
        }
        if let Some(watch) = self.watches.get_mut(slice) {
            watch.relist(&self.cluster, version);
        }
        self.wake_watch(slice);
        Ok(())
    }

    fn wake_watches(&mut self, kind: &Kind) {
        let of_kind = self.watches.keys().filter(|slice| slice.kind == *kind);
        for slice in of_kind.cloned().collect::<Vec<_>>() {
            self.wake_watch(&slice);
        }
    }

    /// Schedules the next delivery of a watch with pending events.
    fn wake_watch(&mut self, slice: &Slice) {
        let Some(watch) = self.watches.get(slice) else { return };
        if !watch.connected || watch.pumping || !watch.has_more(&self.cluster) {
            return;
        }
        let lagging = self.faults.hit(&mut self.random, Fault::Lag);
        let lag_ms = if lagging { self.random.between(200, 20_000) } else { 0 };
        let delay = self.random.between(1, 6) + lag_ms;
        if let Some(watch) = self.watches.get_mut(slice) {
            watch.pumping = true;
            let epoch = watch.epoch;
            self.schedule(delay, Upcoming::Pump(slice.clone(), epoch));
        }
    }

    fn pump(&mut self, slice: &Slice, epoch: u64) -> Result<(), Violation> {
        if self.watches.get(slice).is_none_or(|watch| watch.epoch != epoch) {
            return Ok(());
        }
        if self.faults.hit(&mut self.random, Fault::WatchLost) {
            let away_ms = self.random.between(1, 5_000);
            return self.lose_watch(slice, away_ms);
        }
        if self.faults.hit(&mut self.random, Fault::WatchClosed) {
            // It resumes; only time is lost.
            let delay = self.random.between(50, 2_000);
            self.schedule(delay, Upcoming::Pump(slice.clone(), epoch));
            return Ok(());
        }
        let Some(watch) = self.watches.get_mut(slice) else { return Ok(()) };
        watch.pumping = false;
        if watch.can_skip(&self.cluster) && self.faults.hit(&mut self.random, Fault::Coalesced) {
            watch.skip();
        }
        if watch.can_lose(&self.cluster) && self.faults.hit(&mut self.random, Fault::EventLost) {
            watch.skip();
        }
        let mut notices: Vec<Notice> = watch.next(&self.cluster).into_iter().collect();
        if watch.listed && self.faults.hit(&mut self.random, Fault::Duplicate) {
            notices.extend(watch.earlier(&self.cluster, self.random.below(6)));
        }
        if watch.listed && !watch.has_more(&self.cluster) && self.random.chance(200) {
            notices.push(Notice::Progress(self.cluster.version()));
        }
        for mut notice in notices {
            if self.mutant == Mutant::ListsWithoutMark {
                notice.unmark();
            }
            let Some(watch) = self.watches.get_mut(slice) else { return Ok(()) };
            watch.note(&notice);
            if matches!(notice, Notice::ListDone(_)) {
                self.oracle.on_list_done(slice);
            }
            let event = notice.event(&mut self.interner);
            self.deliver(Event::Watch(slice.clone(), event))?;
        }
        self.wake_watch(slice);
        Ok(())
    }

    /// Restores etcd to an earlier state: every connection breaks, and writes in flight are lost. No rule about views
    /// holds until the host has noticed, so from here on only the end is checked.
    pub fn restore(&mut self, backup: &Cluster, raised: bool) -> Result<(), Violation> {
        self.react()?;
        self.note(|| format!("RESTORE to version {}, raised: {raised}", backup.version()));
        self.faults.count(Fault::Restored);
        self.oracle.is_asleep = true;
        self.cluster.restore(backup, raised);
        for ((due_ms, entry), upcoming) in std::mem::take(&mut self.queue) {
            let Upcoming::Lands { incarnation, write, reply_ms } = upcoming else {
                self.queue.insert((due_ms, entry), upcoming);
                continue;
            };
            if reply_ms.is_some() && incarnation == self.incarnation {
                let error =
                    WriteError { class: WriteErrorClass::Unknown, message: "the connection was lost".to_owned() };
                self.deliver_in(1, Event::Wrote(write.id, Err(error)));
            }
        }
        for record in self.cluster.live_records() {
            self.react_to(&record);
        }
        self.wake_controllers(60);
        for slice in self.watches.keys().cloned().collect::<Vec<_>>() {
            let away_ms = self.random.between(1, 5_000);
            self.lose_watch(&slice, away_ms)?;
        }
        Ok(())
    }

    /// A watch fails: the engine gets an error, and the slice is listed again later.
    pub fn lose_watch(&mut self, slice: &Slice, away_ms: u64) -> Result<(), Violation> {
        let epoch = self.next_epoch();
        let Some(watch) = self.watches.get_mut(slice) else { return Ok(()) };
        watch.disconnect(epoch);
        self.schedule(away_ms, Upcoming::Connect(slice.clone(), epoch));
        let error = WatchError::Unavailable("the connection was lost".to_owned());
        self.deliver(Event::Watch(slice.clone(), WatchEvent::Failed(error)))
    }
}

fn source_of(name: &str) -> Arc<str> {
    format!("ConfigMap mortise-system/{name}").into()
}

fn new_engine(audit_interval_ms: u64) -> Engine {
    Engine::new(Config {
        instance: "mortise-0".into(),
        namespace: "mortise-system".into(),
        call_slots: CALL_SLOTS,
        leader_election: false,
        write_budget: WriteBudget::default(),
        http_requests_per_minute: Some(600),
        require_service_account: false,
        tenants: None,
        audit_interval_ms,
    })
}
