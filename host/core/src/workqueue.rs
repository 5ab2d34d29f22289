//! The work queue: which key is reconciled next (Q1, Q2). It holds keys and times, and knows nothing of objects.
//!
//! A key is queued at most once, so bursts coalesce. Each controller has three lanes, live before retry before resync,
//! with ageing, so that a higher lane slows a lower one and never starves it. Plugins, or the plugins of a tenant together, take
//! turns of [`QUANTUM_US`], the one that had used the least measured time first, so a slow plugin delays its own keys (Q4);
//! among equals, the plugin whose last turn is the longest ago. A plugin that has more to do than resyncs is ahead of
//! those that have not.
//!
//! A take costs the logarithm of the queued keys. A controller or plugin that may not run when its turn comes is
//! parked, and no take visits it before it is unparked.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;

use crate::map::Map;
use crate::object::Name;

/// A controller, by its index in the engine's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ControllerId(pub u32);

/// One object of one controller: the unit of work.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The controller.
    pub controller: ControllerId,
    /// The object of its primary kind.
    pub name: Name,
}

/// Why a key is queued, which decides how soon it is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// An event of its object or of a dependency.
    Live,
    /// A failure, or a requeue that the guest requested.
    Retry,
    /// A restart, a new version of the plugin, or the periodic resync.
    Resync,
}

const LANES: [Lane; 3] = [Lane::Live, Lane::Retry, Lane::Resync];
/// A key that has waited this long precedes those of higher lanes. Half a second does not feel slow to a person, and is
/// long enough that live keys come first in an ordinary burst.
const AGEING_MS: u64 = 500;

/// Measured time of a plugin's turn: some fifty small calls. After a round of a thousand plugins, one finds nothing of
/// its own in the processor's caches and no warm memory for its calls, so calls in a row cost half as much.
const QUANTUM_US: u64 = 4_000;
/// How far plugins with resyncs alone are behind the others. A plugin that just had its turn is one quantum behind.
const BEHIND_US: u64 = 2 * QUANTUM_US;

/// Whether a controller may run when its turn comes, decided by the caller of [`WorkQueue::take`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayRun {
    /// Its key is taken.
    Yes,
    /// The controller is not ready or at its concurrency: parked until [`WorkQueue::unpark`].
    NotThisController,
    /// Its share has used up its part of this: parked until [`WorkQueue::unpark_shares`] or
    /// [`WorkQueue::unpark_share`].
    NotThisShare(ParkedFor),
}

/// What a parked share has used up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ParkedFor {
    /// Its share of the calls in flight.
    Calls,
    /// Its share of the keys that are being written.
    Writes,
    /// Its own write budget, which no other plugin's end of a call or a write refills.
    Budget,
}

/// The result of [`WorkQueue::take`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The key to reconcile.
    pub key: Key,
    /// How long it was queued.
    pub queued_ms: u64,
}

/// The queue of all plugins.
///
/// The caller of [`Self::take`] decides what may run, and must unpark what it has refused when that may have changed. A
/// needless unpark costs one check at the next take. Call
///
/// - [`Self::unpark`] when a call of the controller ends, when its concurrency is raised, and when it becomes ready;
/// - [`Self::unpark_shares`] when a call or the writes of a plugin end, which leaves room for it or for others;
/// - [`Self::unpark_share`] when the plugin's own budget is refilled.
#[derive(Default, Debug)]
pub struct WorkQueue {
    controllers: BTreeMap<ControllerId, ControllerQueue>,
    shares: Map<Arc<str>, Share>,
    /// The plugins with a key that may be taken, by their used time when their turn began and what they are behind, then
    /// by their last turn.
    runnable: BTreeSet<(u64, u64, Arc<str>)>,
    /// The parked plugins, by what they have used up.
    parked: BTreeMap<ParkedFor, BTreeSet<Arc<str>>>,
    /// The place of the last plugin whose key was taken: its used time when its turn began, and what it is behind.
    virtual_time_us: u64,
    /// The controllers with delayed keys, by the time of the first one.
    delayed: BTreeSet<(u64, ControllerId)>,
    /// Numbers added keys and the turns of plugins.
    tickets: u64,
}

/// The queued keys of one controller.
#[derive(Default, Debug)]
struct ControllerQueue {
    plugin: Arc<str>,
    is_parked: bool,
    /// By lane and ticket, with the time since which each is queued.
    order: BTreeMap<(Lane, u64), (u64, Name)>,
    places: BTreeMap<Name, (Lane, u64)>,
    /// The times and lanes of delayed keys.
    delays: BTreeMap<Name, (u64, Lane)>,
    /// The same keys by time. Each controller has its own order, because a hundred thousand keys of a thousand
    /// controllers in one order have no place in the processor's caches.
    due: BTreeSet<(u64, Name)>,
}

/// The time since which the first key of each lane is queued.
type Heads = [Option<u64>; LANES.len()];

/// The used time of a plugin, and its next keys.
#[derive(Default, Debug)]
struct Share {
    plugin: Arc<str>,
    /// Measured time in microseconds, raised to about the queue's virtual time after idleness.
    used_us: u64,
    /// Its used time when its turn began.
    began_us: u64,
    /// The ticket of its last turn's end.
    turn: u64,
    /// The number of its controllers.
    controllers: usize,
    /// How many of them have a queued key.
    occupied: usize,
    /// The first keys of its controllers that are not parked.
    heads: BTreeSet<(Lane, u64, ControllerId)>,
    parked: Option<ParkedFor>,
    /// Its entry in [`WorkQueue::runnable`].
    place: Option<(u64, u64)>,
}

impl WorkQueue {
    /// Adds a key, or moves it to a higher lane. True if it was not queued before. `now_ms` is since when it waits.
    pub fn add(&mut self, now_ms: u64, plugin: &Arc<str>, key: Key, lane: Lane) -> bool {
        self.tickets += 1;
        let ticket = self.tickets;
        self.add_controller(plugin, key.controller);
        self.change(key.controller, |queue| queue.add(now_ms, key.name, lane, ticket)).unwrap_or_default()
    }

    fn add_controller(&mut self, plugin: &Arc<str>, controller: ControllerId) {
        let shares = &mut self.shares;
        self.controllers.entry(controller).or_insert_with(|| {
            let share = || Share { plugin: Arc::clone(plugin), ..Share::default() };
            shares.entry(Arc::clone(plugin)).or_insert_with(share).controllers += 1;
            ControllerQueue { plugin: Arc::clone(plugin), ..ControllerQueue::default() }
        });
    }

    /// Changes the queue of a controller, and updates the share of its plugin.
    fn change<T>(&mut self, controller: ControllerId, work: impl FnOnce(&mut ControllerQueue) -> T) -> Option<T> {
        let queue = self.controllers.get_mut(&controller)?;
        let share = self.shares.get_mut(&queue.plugin)?;
        let (heads, was_empty) = (queue.heads(), queue.order.is_empty());
        let result = work(queue);
        match (was_empty, queue.order.is_empty()) {
            (true, false) => share.occupied += 1,
            (false, true) => {
                share.occupied -= 1;
                queue.clear();
            }
            _ => {}
        }
        share.replace(controller, heads, queue.heads());
        share.update_place(self.virtual_time_us, &mut self.runnable);
        Some(result)
    }

    /// Adds a key at a later time; an earlier time replaces a later one.
    pub fn add_at(&mut self, due_ms: u64, plugin: &Arc<str>, key: Key, lane: Lane) {
        self.add_controller(plugin, key.controller);
        let Some(queue) = self.controllers.get_mut(&key.controller) else { return };
        let Key { controller, name } = key;
        queue.change_delays(controller, &mut self.delayed, |queue| {
            match queue.delays.entry(name.clone()) {
                Entry::Occupied(delay) if delay.get().0 <= due_ms => return,
                Entry::Occupied(mut delay) => {
                    let (before_ms, _) = delay.insert((due_ms, lane));
                    queue.due.remove(&(before_ms, name.clone()));
                }
                Entry::Vacant(none) => _ = none.insert((due_ms, lane)),
            }
            queue.due.insert((due_ms, name));
        });
    }

    /// Removes the delay of a key.
    pub fn cancel_delay(&mut self, key: &Key) {
        if let Some(queue) = self.controllers.get_mut(&key.controller) {
            queue.change_delays(key.controller, &mut self.delayed, |queue| _ = queue.remove_delay(&key.name));
        }
    }

    /// Moves delayed keys that are due into their lanes and returns them, with their lanes: about `most` of them, and as
    /// many of each controller. The others are still due.
    pub fn release(&mut self, now_ms: u64, most: usize) -> Vec<(Key, Lane)> {
        let due = self.delayed.range(..=(now_ms, ControllerId(u32::MAX)));
        let due: Vec<ControllerId> = due.take(most).map(|(_, controller)| *controller).collect();
        let of_each = most.div_ceil(due.len().max(1));
        let mut released = Vec::new();
        for controller in due {
            let queue = self.controllers.get_mut(&controller).expect("a delayed key has a controller");
            let plugin = Arc::clone(&queue.plugin);
            let names = queue.change_delays(controller, &mut self.delayed, |queue| queue.take_due(now_ms, of_each));
            for (name, lane) in names {
                let key = Key { controller, name };
                self.add(now_ms, &plugin, key.clone(), lane);
                released.push((key, lane));
            }
        }
        released
    }

    /// When the next delayed key is due.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.delayed.first().map(|(due_ms, _)| *due_ms)
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &Key) {
        self.cancel_delay(key);
        self.change(key.controller, |queue| queue.remove(&key.name));
    }

    /// Removes a controller with all its keys. What is returned may take long to be freed.
    pub fn remove_controller(&mut self, controller: ControllerId) -> impl Send + 'static + use<> {
        let queued = self.change(controller, |queue| (take(&mut queue.order), take(&mut queue.places)));
        let queue = self.controllers.remove(&controller)?;
        if let Some((due_ms, _)) = queue.due.first() {
            self.delayed.remove(&(*due_ms, controller));
        }
        if let Some(share) = self.shares.get_mut(&queue.plugin) {
            share.controllers -= 1;
            if share.controllers == 0 {
                let share = self.shares.remove(&queue.plugin);
                let parked = share.and_then(|share| self.parked.get_mut(&share.parked?));
                parked.map(|parked| parked.remove(&queue.plugin));
            }
        }
        Some((queued, queue))
    }

    /// Charges a plugin for measured time.
    pub fn charge(&mut self, plugin: &str, elapsed_us: u64) {
        if let Some(share) = self.shares.get_mut(plugin) {
            share.used_us = share.used_us.saturating_add(elapsed_us.max(1));
            if share.used_us >= share.began_us.saturating_add(QUANTUM_US) {
                self.tickets += 1;
                (share.began_us, share.turn) = (share.used_us, self.tickets);
            }
            share.update_place(self.virtual_time_us, &mut self.runnable);
        }
    }

    #[cfg(test)]
    pub(crate) fn used_us(&self, plugin: &str) -> u64 {
        self.shares[plugin].used_us
    }

    /// The next key of the plugin whose turn it is, or None if none may run. Among the keys of its controllers, lane and
    /// age decide.
    ///
    /// `may_run` is called once for what may not run, and not again before it is unparked.
    pub fn take(&mut self, now_ms: u64, mut may_run: impl FnMut(ControllerId) -> MayRun) -> Option<Taken> {
        loop {
            let (place_us, plugin) =
                self.runnable.first().map(|(place_us, _, plugin)| (*place_us, Arc::clone(plugin)))?;
            let share = self.shares.get_mut(&plugin)?;
            let (lane, controller) = share.most_urgent(now_ms)?;
            match may_run(controller) {
                MayRun::Yes => {
                    self.virtual_time_us = place_us;
                    let (since_ms, name) = self.change(controller, |queue| queue.take(lane))??;
                    let queued_ms = now_ms.saturating_sub(since_ms);
                    return Some(Taken { key: Key { controller, name }, queued_ms });
                }
                MayRun::NotThisController => _ = self.change(controller, |queue| queue.is_parked = true),
                MayRun::NotThisShare(parked_for) => {
                    share.parked = Some(parked_for);
                    share.update_place(self.virtual_time_us, &mut self.runnable);
                    self.parked.entry(parked_for).or_default().insert(plugin);
                }
            }
        }
    }

    /// The controller may be able to run again.
    pub fn unpark(&mut self, controller: ControllerId) {
        if self.controllers.get(&controller).is_some_and(|queue| queue.is_parked) {
            self.change(controller, |queue| queue.is_parked = false);
        }
    }

    /// The plugin may be able to run again.
    pub fn unpark_share(&mut self, plugin: &str) {
        if let Some(share) = self.shares.get_mut(plugin)
            && let Some(parked_for) = share.parked.take()
        {
            self.parked.get_mut(&parked_for).map(|parked| parked.remove(plugin));
            share.update_place(self.virtual_time_us, &mut self.runnable);
        }
    }

    /// Unparks the plugins that are parked for this and may run again. The cost grows with the parked plugins only.
    pub fn unpark_shares(&mut self, parked_for: ParkedFor, mut may_run: impl FnMut(&str) -> bool) {
        let parked = self.parked.get(&parked_for).into_iter().flatten();
        let unparked: Vec<Arc<str>> = parked.filter(|plugin| may_run(plugin)).cloned().collect();
        unparked.iter().for_each(|plugin| self.unpark_share(plugin));
    }

    /// Whether some key may be taken, as far as the queue knows.
    pub fn is_ready(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// The number of queued keys of a controller.
    pub fn depth(&self, controller: ControllerId) -> usize {
        self.controllers.get(&controller).map_or(0, |queue| queue.order.len())
    }

    /// Whether no key is queued.
    pub fn is_empty(&self) -> bool {
        self.shares.values().all(|share| share.occupied == 0)
    }
}

impl ControllerQueue {
    fn add(&mut self, now_ms: u64, name: Name, lane: Lane, ticket: u64) -> bool {
        let before = self.places.get(&name).copied();
        if before.is_some_and(|(before, _)| before <= lane) {
            return false;
        }
        let moved = before.and_then(|place| self.order.remove(&place));
        let since_ms = moved.map_or(now_ms, |(since_ms, _)| since_ms);
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

    /// Also frees the node that an empty tree keeps.
    fn clear(&mut self) {
        self.order.clear();
        self.places.clear();
    }

    fn remove_delay(&mut self, name: &Name) -> Option<Lane> {
        let (due_ms, lane) = self.delays.remove(name)?;
        self.due.remove(&(due_ms, name.clone()));
        Some(lane)
    }

    fn take_due(&mut self, now_ms: u64, most: usize) -> Vec<(Name, Lane)> {
        let due = self.due.iter().take(most).take_while(|(due_ms, _)| *due_ms <= now_ms);
        let names: Vec<Name> = due.map(|(_, name)| name.clone()).collect();
        let with_lane = |name: Name| {
            let lane = self.remove_delay(&name).expect("every delayed key has its delay");
            (name, lane)
        };
        names.into_iter().map(with_lane).collect()
    }

    /// Changes the delayed keys, and the controller's place among those with delayed keys.
    fn change_delays<T>(
        &mut self,
        controller: ControllerId,
        delayed: &mut BTreeSet<(u64, ControllerId)>,
        change: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let first_ms = |queue: &Self| queue.due.first().map(|(due_ms, _)| *due_ms);
        let before = first_ms(self);
        let result = change(self);
        let after = first_ms(self);
        if before != after {
            before.map(|due_ms| delayed.remove(&(due_ms, controller)));
            after.map(|due_ms| delayed.insert((due_ms, controller)));
        }
        result
    }

    fn heads(&self) -> Heads {
        let first = |lane| self.order.range((lane, 0)..=(lane, u64::MAX)).next();
        LANES.map(|lane| first(lane).filter(|_| !self.is_parked).map(|(_, (since_ms, _))| *since_ms))
    }
}

impl Share {
    /// Replaces the first keys of a controller.
    fn replace(&mut self, controller: ControllerId, before: Heads, after: Heads) {
        for ((lane, before), after) in LANES.into_iter().zip(before).zip(after) {
            if before != after {
                before.map(|since_ms| self.heads.remove(&(lane, since_ms, controller)));
                after.map(|since_ms| self.heads.insert((lane, since_ms, controller)));
            }
        }
        if self.heads.is_empty() {
            // Frees the node that an empty tree keeps.
            self.heads.clear();
        }
    }

    /// Moves the plugin to its place among the runnable ones. One that was idle or parked keeps a turn of credit at most.
    fn update_place(&mut self, virtual_time_us: u64, runnable: &mut BTreeSet<(u64, u64, Arc<str>)>) {
        let lane = self.heads.first().filter(|_| self.parked.is_none()).map(|(lane, ..)| *lane);
        let behind_us = if lane == Some(Lane::Resync) { BEHIND_US } else { 0 };
        if self.place.is_none() && lane.is_some() {
            self.began_us = self.began_us.max(virtual_time_us.saturating_sub(behind_us + QUANTUM_US));
            self.used_us = self.used_us.max(self.began_us);
        }
        let place = lane.map(|_| (self.began_us + behind_us, self.turn));
        if place != self.place {
            self.place.map(|(place_us, turn)| runnable.remove(&(place_us, turn, Arc::clone(&self.plugin))));
            place.map(|(place_us, turn)| runnable.insert((place_us, turn, Arc::clone(&self.plugin))));
            self.place = place;
        }
    }

    /// The lane and the controller of the most urgent key: aged keys by age, then lane by lane.
    fn most_urgent(&self, now_ms: u64) -> Option<(Lane, ControllerId)> {
        let urgency = |lane: Lane, since_ms: u64| match now_ms.saturating_sub(since_ms) {
            AGEING_MS.. => Urgency::Aged(since_ms),
            _ => Urgency::Fresh(lane, since_ms),
        };
        let oldest = |lane: Lane| self.heads.range((lane, 0, ControllerId(0))..).next();
        let heads = LANES.into_iter().filter_map(oldest);
        let heads = heads.map(|(lane, since_ms, controller)| (urgency(*lane, *since_ms), *controller, *lane));
        heads.min().map(|(_, controller, lane)| (lane, controller))
    }
}

/// The order of two keys of one plugin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Urgency {
    Aged(u64),
    Fresh(Lane, u64),
}

#[cfg(test)]
mod tests;
