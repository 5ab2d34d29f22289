//! The work queue: which key is worked on next (Q1, Q2). It holds keys and times, and knows nothing of objects.
//!
//! A key is in it at most once, so bursts coalesce. Each controller has three lanes, live before retry before resync, with
//! ageing, so that a higher lane slows a lower one down and never starves it. Among plugins the one that has used the least
//! measured time comes first, so a plugin that is slow pays with its own keys' patience (Q4); of those that have used the same,
//! the one whose last turn is the longest ago.
//!
//! Taking a key costs the logarithm of what waits. What may not run is found out when its turn comes: then it is parked, and
//! no take looks at it again before it is unparked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::object::Name;

/// A controller, by its place in the driver's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ControllerId(pub u32);

/// One object of one controller: the unit of work.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// Which controller.
    pub controller: ControllerId,
    /// Which object of its primary kind.
    pub name: Name,
}

/// Why a key waits, which decides how soon it is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Something happened just now.
    Live,
    /// It failed before, or asked to be called again.
    Retry,
    /// Nothing happened: a restart's first look, a reload, the periodic look.
    Resync,
}

const LANES: [Lane; 3] = [Lane::Live, Lane::Retry, Lane::Resync];
/// A key of a lower lane is taken before all others once it has waited this long. Half a second is below what a person
/// calls slow, and long enough that live work comes first in every ordinary burst.
const AGEING_MS: u64 = 500;

/// Whether a controller may run when its turn comes, as the caller of [`WorkQueue::take`] finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayRun {
    /// Its key is taken.
    Yes,
    /// Not this one, for it is not ready or has as many calls under way as it may: parked until [`WorkQueue::unpark`].
    NotThisController,
    /// None of its plugin, whose share of this is used up: parked until [`WorkQueue::unpark_plugin`].
    NotThisPlugin(Shared),
}

/// What the plugins share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Shared {
    /// Calls in flight.
    Calls,
    /// Keys that are being written.
    Writes,
    /// Each plugin has its own, so nothing that another one does changes it.
    Budget,
}

/// What [`WorkQueue::take`] hands out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The key to work on.
    pub key: Key,
    /// How long it stood in the queue.
    pub queued_ms: u64,
}

/// The queue of all plugins.
///
/// The caller of [`Self::take`] knows what may run, and says so when it is asked. What it has refused it has to unpark when that
/// may have changed; to unpark what may not run after all costs one question at the next take:
///
/// - [`Self::unpark`] a controller when a call of it has ended, when its concurrency was raised, and when it has become ready;
/// - [`Self::unpark_plugin`] when a call or the writes of it have ended, or its own bound has changed;
/// - [`Self::unpark_plugins`] when that leaves some of it to others.
#[derive(Default, Debug)]
pub struct WorkQueue {
    lines: BTreeMap<ControllerId, Line>,
    shares: BTreeMap<Arc<str>, Share>,
    /// The plugins with a key that may be taken, by what they have used and when they had their last turn.
    runnable: BTreeSet<(u64, u64, Arc<str>)>,
    /// The plugins that were refused, by what they have used up.
    parked: BTreeMap<Shared, BTreeSet<Arc<str>>>,
    /// What the plugin that was taken last had used by then.
    reached_us: u64,
    delayed: BTreeSet<(u64, Key)>,
    /// Numbers the keys that are added and the turns of plugins.
    tickets: u64,
}

/// The keys of one controller that wait to be taken.
#[derive(Debug)]
struct Line {
    plugin: Arc<str>,
    is_parked: bool,
    /// By lane and ticket, with the moment since which each waits.
    order: BTreeMap<(Lane, u64), (u64, Name)>,
    places: BTreeMap<Name, (Lane, u64)>,
    /// Keys that are to be added later, when, and to which lane.
    delays: BTreeMap<Name, (u64, Lane)>,
}

/// Since when the first key of each lane waits.
type Fronts = [Option<u64>; LANES.len()];

/// What a plugin has had, and what it waits for.
#[derive(Debug)]
struct Share {
    plugin: Arc<str>,
    /// Measured time in microseconds, on the queue's own virtual scale.
    used_us: u64,
    /// The ticket of its last turn.
    turn: u64,
    lines: usize,
    /// Its lines with a key.
    occupied: usize,
    /// The first keys of its lines that are not parked.
    fronts: BTreeSet<(Lane, u64, ControllerId)>,
    parked: Option<Shared>,
    /// Where it is in [`WorkQueue::runnable`].
    place: Option<(u64, u64)>,
}

impl WorkQueue {
    /// Puts a key in, or moves it to a higher lane when it is in a lower one. True when it was not in before.
    pub fn add(&mut self, now_ms: u64, plugin: &Arc<str>, key: Key, lane: Lane) -> bool {
        self.tickets += 1;
        let ticket = self.tickets;
        self.add_line(plugin, key.controller);
        self.change(key.controller, |line| line.add(now_ms, key.name, lane, ticket)).unwrap_or_default()
    }

    fn add_line(&mut self, plugin: &Arc<str>, controller: ControllerId) {
        let shares = &mut self.shares;
        self.lines.entry(controller).or_insert_with(|| {
            shares.entry(Arc::clone(plugin)).or_insert_with(|| Share::new(plugin)).lines += 1;
            Line::new(plugin)
        });
    }

    /// Changes a line, and puts its plugin where it belongs then.
    fn change<T>(&mut self, controller: ControllerId, work: impl FnOnce(&mut Line) -> T) -> Option<T> {
        let line = self.lines.get_mut(&controller)?;
        let share = self.shares.get_mut(&line.plugin)?;
        let (fronts, was_empty) = (line.fronts(), line.order.is_empty());
        let result = work(line);
        match (was_empty, line.order.is_empty()) {
            (true, false) => share.occupy(self.reached_us),
            (false, true) => {
                share.occupied -= 1;
                line.clear();
            }
            _ => {}
        }
        share.replace(controller, fronts, line.fronts());
        share.settle(&mut self.runnable);
        Some(result)
    }

    /// Puts a key in at a later moment; an earlier moment replaces a later one.
    pub fn add_at(&mut self, due_ms: u64, plugin: &Arc<str>, key: Key, lane: Lane) {
        self.add_line(plugin, key.controller);
        let Some(line) = self.lines.get_mut(&key.controller) else { return };
        if line.delays.get(&key.name).is_some_and(|(before_ms, _)| *before_ms <= due_ms) {
            return;
        }
        if let Some((before_ms, _)) = line.delays.insert(key.name.clone(), (due_ms, lane)) {
            self.delayed.remove(&(before_ms, key.clone()));
        }
        self.delayed.insert((due_ms, key));
    }

    /// Forgets the delayed entry of a key.
    pub fn cancel_delay(&mut self, key: &Key) {
        let delay = self.lines.get_mut(&key.controller).and_then(|line| line.delays.remove(&key.name));
        if let Some((due_ms, _)) = delay {
            self.delayed.remove(&(due_ms, key.clone()));
        }
    }

    /// Moves every delayed key that is due into its lane and returns them, with their lanes.
    pub fn release(&mut self, now_ms: u64) -> Vec<(Key, Lane)> {
        let mut released = Vec::new();
        while self.delayed.first().is_some_and(|(due_ms, _)| *due_ms <= now_ms) {
            let (_, key) = self.delayed.pop_first().expect("its first entry was just seen");
            let line = self.lines.get_mut(&key.controller).expect("a delayed key has a line");
            let (_, lane) = line.delays.remove(&key.name).expect("every delayed key has its delay");
            let plugin = Arc::clone(&line.plugin);
            self.add(now_ms, &plugin, key.clone(), lane);
            released.push((key, lane));
        }
        released
    }

    /// When the next delayed key is due.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.delayed.first().map(|(due_ms, _)| *due_ms)
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &Key) {
        self.cancel_delay(key);
        self.change(key.controller, |line| line.remove(&key.name));
    }

    /// Forgets a controller with all its keys.
    pub fn remove_controller(&mut self, controller: ControllerId) {
        self.change(controller, Line::clear);
        let Some(line) = self.lines.remove(&controller) else { return };
        for (name, (due_ms, _)) in line.delays {
            self.delayed.remove(&(due_ms, Key { controller, name }));
        }
        if let Some(share) = self.shares.get_mut(&line.plugin) {
            share.lines -= 1;
            if share.lines == 0 {
                let share = self.shares.remove(&line.plugin);
                let parked = share.and_then(|share| self.parked.get_mut(&share.parked?));
                parked.map(|parked| parked.remove(&line.plugin));
            }
        }
    }

    /// Charges a plugin for what its call took.
    pub fn charge(&mut self, plugin: &str, elapsed_us: u64) {
        if let Some(share) = self.shares.get_mut(plugin) {
            share.used_us = share.used_us.saturating_add(elapsed_us.max(1));
            share.settle(&mut self.runnable);
        }
    }

    /// The next key, or None when there is none that may run. The plugin that has used the least comes first; among its
    /// controllers the lane and the age of what waits decide, as within one.
    ///
    /// Who may not run is asked about once, and not again before it is unparked.
    pub fn take(&mut self, now_ms: u64, mut may_run: impl FnMut(ControllerId) -> MayRun) -> Option<Taken> {
        loop {
            let (used_us, _, plugin) = self.runnable.first()?;
            let (used_us, plugin) = (*used_us, Arc::clone(plugin));
            let share = self.shares.get_mut(&plugin)?;
            let (lane, controller) = share.most_urgent(now_ms)?;
            match may_run(controller) {
                MayRun::Yes => {
                    self.tickets += 1;
                    share.turn = self.tickets;
                    self.reached_us = used_us;
                    let (since_ms, name) = self.change(controller, |line| line.take(lane))??;
                    let queued_ms = now_ms.saturating_sub(since_ms);
                    return Some(Taken { key: Key { controller, name }, queued_ms });
                }
                MayRun::NotThisController => _ = self.change(controller, |line| line.is_parked = true),
                MayRun::NotThisPlugin(shared) => {
                    share.parked = Some(shared);
                    share.settle(&mut self.runnable);
                    self.parked.entry(shared).or_default().insert(plugin);
                }
            }
        }
    }

    /// The controller may run again, perhaps.
    pub fn unpark(&mut self, controller: ControllerId) {
        if self.lines.get(&controller).is_some_and(|line| line.is_parked) {
            self.change(controller, |line| line.is_parked = false);
        }
    }

    /// The plugin may run again, perhaps.
    pub fn unpark_plugin(&mut self, plugin: &str) {
        if let Some(share) = self.shares.get_mut(plugin)
            && let Some(shared) = share.parked.take()
        {
            self.parked.get_mut(&shared).map(|parked| parked.remove(plugin));
            share.settle(&mut self.runnable);
        }
    }

    /// Every plugin that was refused because of this may run again, perhaps. Costs as much as they are.
    pub fn unpark_plugins(&mut self, shared: Shared) {
        while let Some(plugin) = self.parked.get(&shared).and_then(BTreeSet::first).cloned() {
            self.unpark_plugin(&plugin);
        }
    }

    /// Keys of one controller that wait to be taken.
    pub fn depth(&self, controller: ControllerId) -> usize {
        self.lines.get(&controller).map_or(0, |line| line.order.len())
    }

    /// True when no key waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.shares.values().all(|share| share.occupied == 0)
    }
}

impl Line {
    fn new(plugin: &Arc<str>) -> Self {
        let (order, places, delays) = Default::default();
        Self { plugin: Arc::clone(plugin), is_parked: false, order, places, delays }
    }

    fn add(&mut self, now_ms: u64, name: Name, lane: Lane, ticket: u64) -> bool {
        let before = self.places.get(&name).copied();
        if before.is_some_and(|(before, _)| before <= lane) {
            return false;
        }
        let waits = before.and_then(|place| self.order.remove(&place));
        let since_ms = waits.map_or(now_ms, |(since_ms, _)| since_ms);
        self.order.insert((lane, ticket), (since_ms, name.clone()));
        self.places.insert(name, (lane, ticket));
        before.is_none()
    }

    fn take(&mut self, lane: Lane) -> Option<(u64, Name)> {
        let place = *self.order.range((lane, 0)..).next()?.0;
        let (since_ms, name) = self.order.remove(&place)?;
        self.places.remove(&name);
        Some((since_ms, name))
    }

    fn remove(&mut self, name: &Name) {
        if let Some(place) = self.places.remove(name) {
            self.order.remove(&place);
        }
    }

    /// Also gives back what an empty tree keeps.
    fn clear(&mut self) {
        self.order.clear();
        self.places.clear();
    }

    fn fronts(&self) -> Fronts {
        let first = |lane| self.order.range((lane, 0)..=(lane, u64::MAX)).next();
        LANES.map(|lane| first(lane).filter(|_| !self.is_parked).map(|(_, (since_ms, _))| *since_ms))
    }
}

impl Share {
    fn new(plugin: &Arc<str>) -> Self {
        let plugin = Arc::clone(plugin);
        Self { plugin, used_us: 0, turn: 0, lines: 0, occupied: 0, fronts: BTreeSet::new(), parked: None, place: None }
    }

    /// One more of its lines has a key. A plugin that had nothing to do until now does not bring along credit from its idle
    /// time: it begins where the queue is.
    fn occupy(&mut self, reached_us: u64) {
        if self.occupied == 0 {
            self.used_us = self.used_us.max(reached_us);
        }
        self.occupied += 1;
    }

    /// The first keys of a line are others now.
    fn replace(&mut self, controller: ControllerId, before: Fronts, after: Fronts) {
        for ((lane, before), after) in LANES.into_iter().zip(before).zip(after) {
            if before != after {
                before.map(|since_ms| self.fronts.remove(&(lane, since_ms, controller)));
                after.map(|since_ms| self.fronts.insert((lane, since_ms, controller)));
            }
        }
        if self.fronts.is_empty() {
            // An empty tree keeps a node otherwise.
            self.fronts.clear();
        }
    }

    /// Puts the plugin where it belongs among those with a key that may be taken.
    fn settle(&mut self, runnable: &mut BTreeSet<(u64, u64, Arc<str>)>) {
        let place = (self.parked.is_none() && !self.fronts.is_empty()).then_some((self.used_us, self.turn));
        if place != self.place {
            self.place.map(|(used_us, turn)| runnable.remove(&(used_us, turn, Arc::clone(&self.plugin))));
            place.map(|(used_us, turn)| runnable.insert((used_us, turn, Arc::clone(&self.plugin))));
            self.place = place;
        }
    }

    /// The lane and the controller of the most urgent key: what has aged by the time it waits, then lane by lane.
    fn most_urgent(&self, now_ms: u64) -> Option<(Lane, ControllerId)> {
        let urgency = |lane: Lane, since_ms: u64| match now_ms.saturating_sub(since_ms) {
            AGEING_MS.. => Urgency::Aged(since_ms),
            _ => Urgency::Fresh(lane, since_ms),
        };
        let oldest = |lane: Lane| self.fronts.range((lane, 0, ControllerId(0))..).next();
        let fronts = LANES.into_iter().filter_map(oldest);
        let fronts = fronts.map(|(lane, since_ms, controller)| (urgency(*lane, *since_ms), *controller, *lane));
        fronts.min().map(|(_, controller, lane)| (lane, controller))
    }
}

/// What decides between two keys of one plugin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Urgency {
    Aged(u64),
    Fresh(Lane, u64),
}

#[cfg(test)]
mod tests;
