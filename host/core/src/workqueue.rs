//! The work queue: which key is worked on next (Q1, Q2). It holds keys and times, and knows nothing of objects.
//!
//! A key stands in it at most once, so bursts coalesce. Three lanes per plugin, live before retry before resync, with
//! ageing, so that a lower lane is slowed by a higher one but never starved. Among plugins the one that has used the
//! least measured time goes first, so a plugin that is slow pays with its own keys' patience (Q4).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
/// calls slow, and long enough that live work goes first in every ordinary burst.
const AGEING_MS: u64 = 500;
/// Empty places of a lane that are not worth a sweep.
const SWEPT_PLACES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    lane: Lane,
    since_ms: u64,
    ticket: u64,
}

/// The keys of one controller that wait to be taken.
#[derive(Debug)]
struct Line {
    plugin: Arc<str>,
    lanes: [VecDeque<(u64, Name)>; 3],
    entries: BTreeMap<Name, Entry>,
}

/// What a plugin has had, and what it waits for.
#[derive(Debug, Default)]
struct Share {
    /// Measured time in microseconds, on the queue's own virtual scale.
    used_us: u64,
    /// Its lines in which somebody stands.
    occupied: usize,
    /// Its lines.
    lines: usize,
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
#[derive(Default, Debug)]
pub struct WorkQueue {
    lines: BTreeMap<ControllerId, Line>,
    /// Lines in which somebody stands: most plugins are idle most of the time, and cost nothing then.
    occupied: BTreeSet<ControllerId>,
    shares: BTreeMap<Arc<str>, Share>,
    /// Where the plugin that was taken last stood on that scale.
    reached_us: u64,
    delayed: BTreeSet<(u64, Key)>,
    delays: BTreeMap<Key, (u64, Lane, Arc<str>)>,
    tickets: u64,
}

impl WorkQueue {
    /// Puts a key in, or moves it to a higher lane when it stands in a lower one. True when it was not in before.
    pub fn add(&mut self, now_ms: u64, plugin: &Arc<str>, key: Key, lane: Lane) -> bool {
        let (lines, shares) = (&mut self.lines, &mut self.shares);
        let line = lines.entry(key.controller).or_insert_with(|| {
            shares.entry(Arc::clone(plugin)).or_default().lines += 1;
            Line::new(plugin)
        });
        let before = line.entries.get(&key.name).copied();
        if before.is_some_and(|entry| entry.lane <= lane) {
            return false;
        }
        self.tickets += 1;
        let since_ms = before.map_or(now_ms, |entry| entry.since_ms);
        line.entries.insert(key.name.clone(), Entry { lane, since_ms, ticket: self.tickets });
        line.lanes[lane as usize].push_back((self.tickets, key.name));
        line.sweep(lane);
        self.occupy(key.controller);
        before.is_none()
    }

    /// Somebody stands in this line. A plugin that had nothing to do until now does not bring along credit from its idle
    /// time: it begins where the queue is.
    fn occupy(&mut self, controller: ControllerId) {
        if !self.occupied.insert(controller) {
            return;
        }
        let share = self.lines.get(&controller).and_then(|line| self.shares.get_mut(&line.plugin));
        let Some(share) = share else { return };
        if share.occupied == 0 {
            share.used_us = share.used_us.max(self.reached_us);
        }
        share.occupied += 1;
    }

    /// Somebody has left this line: perhaps the last one.
    fn vacate(&mut self, controller: ControllerId) {
        let Some(line) = self.lines.get(&controller) else { return };
        if line.entries.is_empty()
            && self.occupied.remove(&controller)
            && let Some(share) = self.shares.get_mut(&line.plugin)
        {
            share.occupied -= 1;
        }
    }

    /// Puts a key in at a later moment; an earlier moment replaces a later one.
    pub fn add_at(&mut self, due_ms: u64, plugin: &Arc<str>, key: Key, lane: Lane) {
        if let Some((before_ms, _, _)) = self.delays.get(&key) {
            if *before_ms <= due_ms {
                return;
            }
            self.delayed.remove(&(*before_ms, key.clone()));
        }
        self.delayed.insert((due_ms, key.clone()));
        self.delays.insert(key, (due_ms, lane, Arc::clone(plugin)));
    }

    /// Forgets the delayed entry of a key.
    pub fn cancel_delay(&mut self, key: &Key) {
        if let Some((due_ms, _, _)) = self.delays.remove(key) {
            self.delayed.remove(&(due_ms, key.clone()));
        }
    }

    /// Moves every delayed key that is due into its lane and returns them, with their lanes.
    pub fn release(&mut self, now_ms: u64) -> Vec<(Key, Lane)> {
        let mut released = Vec::new();
        while self.delayed.first().is_some_and(|(due_ms, _)| *due_ms <= now_ms) {
            let (_, key) = self.delayed.pop_first().expect("its first entry was just seen");
            let (_, lane, plugin) = self.delays.remove(&key).expect("every delayed key has its delay");
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
        if let Some(line) = self.lines.get_mut(&key.controller) {
            line.entries.remove(&key.name);
            self.vacate(key.controller);
        }
    }

    /// Forgets a controller with all its keys.
    pub fn remove_controller(&mut self, controller: ControllerId) {
        if let Some(line) = self.lines.get_mut(&controller) {
            line.entries.clear();
        }
        self.vacate(controller);
        if let Some(line) = self.lines.remove(&controller)
            && let Some(share) = self.shares.get_mut(&line.plugin)
        {
            share.lines -= 1;
            if share.lines == 0 {
                self.shares.remove(&line.plugin);
            }
        }
        let first = Key { controller, name: Name::new("", "") };
        let delays = self.delays.range(first..).map(|(key, _)| key);
        let gone: Vec<Key> = delays.take_while(|key| key.controller == controller).cloned().collect();
        for key in gone {
            self.cancel_delay(&key);
        }
    }

    /// Charges a plugin for what its call took.
    pub fn charge(&mut self, plugin: &str, elapsed_us: u64) {
        if let Some(share) = self.shares.get_mut(plugin) {
            share.used_us = share.used_us.saturating_add(elapsed_us.max(1));
        }
    }

    /// The next key of those controllers that `may_run`, or None when there is none. The plugin that has used the least
    /// goes first; among its own controllers the lane and the age of what waits decide, as within one.
    pub fn take(&mut self, now_ms: u64, may_run: impl Fn(ControllerId) -> bool) -> Option<Taken> {
        let (_, _, controller, lane) = self
            .occupied
            .iter()
            .filter(|controller| may_run(**controller))
            .filter_map(|controller| {
                let line = self.lines.get_mut(controller)?;
                let (urgency, lane) = line.front(now_ms)?;
                let used_us = self.shares.get(&line.plugin).map_or(0, |share| share.used_us);
                Some((used_us, urgency, *controller, lane))
            })
            .min()?;
        let line = self.lines.get_mut(&controller)?;
        let (name, queued_ms) = line.take(lane, now_ms)?;
        self.reached_us = self.shares.get(&line.plugin).map_or(0, |share| share.used_us);
        self.vacate(controller);
        Some(Taken { key: Key { controller, name }, queued_ms })
    }

    /// Keys of one controller that wait to be taken.
    pub fn depth(&self, controller: ControllerId) -> usize {
        self.lines.get(&controller).map_or(0, |line| line.entries.len())
    }

    /// True when no key waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.occupied.is_empty()
    }
}

impl Line {
    fn new(plugin: &Arc<str>) -> Self {
        Self { plugin: Arc::clone(plugin), lanes: Default::default(), entries: BTreeMap::new() }
    }

    /// How urgent the most urgent key is, smaller being more so, and its lane: what has aged by the time it waits, then lane
    /// by lane.
    fn front(&mut self, now_ms: u64) -> Option<(Urgency, Lane)> {
        // A promoted or removed key leaves its place in the old lane behind; it is swept when it comes to the front.
        for lane in &mut self.lanes {
            while lane.front().is_some_and(|(ticket, name)| self.entries.get(name).is_none_or(|e| e.ticket != *ticket))
            {
                lane.pop_front();
            }
        }
        let urgency = |lane: &Lane| {
            let (_, name) = self.lanes[*lane as usize].front()?;
            let since_ms = self.entries.get(name)?.since_ms;
            let aged = now_ms.saturating_sub(since_ms) >= AGEING_MS;
            Some((if aged { Urgency::Aged(since_ms) } else { Urgency::Fresh(*lane, since_ms) }, *lane))
        };
        LANES.iter().filter_map(urgency).min()
    }

    /// Drops the places that nobody stands at any more once they are most of the lane: a controller that may not run for
    /// long does not come to sweep them one by one.
    fn sweep(&mut self, lane: Lane) {
        let lane = &mut self.lanes[lane as usize];
        if lane.len() > 2 * self.entries.len() + SWEPT_PLACES {
            lane.retain(|(ticket, name)| self.entries.get(name).is_some_and(|entry| entry.ticket == *ticket));
        }
    }

    fn take(&mut self, lane: Lane, now_ms: u64) -> Option<(Name, u64)> {
        let (_, name) = self.lanes[lane as usize].pop_front()?;
        let entry = self.entries.remove(&name)?;
        Some((name, now_ms.saturating_sub(entry.since_ms)))
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
