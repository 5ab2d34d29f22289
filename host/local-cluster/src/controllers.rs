//! The controllers: each sees every change, keeps keys that wait, and looks at one key at a time. Input: the log of changes
//! and the time. Output: writes to the cluster, as requests make them. It must not know HTTP.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use jiff::{SignedDuration, Timestamp};

use crate::halt::{Answer, Halt};
use crate::options::Options;
use crate::rest::Context;
use crate::store::{Change, Event};
use crate::{Cluster, Reply, Step};

/// The first wait of a key that failed; it doubles up to [`LAST_WAIT`].
const FIRST_WAIT: SignedDuration = SignedDuration::from_millis(5);
const LAST_WAIT: SignedDuration = SignedDuration::from_secs(60);

/// The namespace and name of what a controller looks at, as its own choice of kind has it.
pub(crate) type Key = (Arc<str>, Arc<str>);

/// What a controller does next with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Nothing until something changes.
    No,
    /// Look again then.
    At(Timestamp),
}

/// One controller: functions, without state of its own.
pub(crate) struct Controller {
    /// Its name, as kube-controller-manager's `--controllers` has it.
    pub(crate) name: &'static str,
    /// The user that it writes as.
    pub(crate) user: &'static str,
    /// The keys that a change concerns.
    pub(crate) keys: fn(&Cluster, &Change) -> Vec<Key>,
    /// Looks at a key, and writes what is missing.
    pub(crate) reconcile: fn(&mut Cluster, &Context<'_>, &Key) -> Result<Again, Halt>,
}

/// All controllers in the order they take turns in.
const ALL: &[Controller] = &[];

/// The queues of the controllers that run.
#[derive(Clone, Debug)]
pub(crate) struct Controllers {
    queues: Vec<Queue>,
    /// All changes up to this version were seen.
    seen: u64,
    /// Whose turn is next.
    turn: usize,
}

/// The keys of one controller that wait.
#[derive(Clone, Debug)]
struct Queue {
    /// Its place in [`ALL`].
    controller: usize,
    due: OrdSet<(Timestamp, Key)>,
    at: OrdMap<Key, Timestamp>,
    failures: OrdMap<Key, u32>,
}

impl Queue {
    /// Looks at a key then, or earlier if it waits already.
    fn add(&mut self, key: Key, at: Timestamp) {
        if let Some(known) = self.at.get(&key) {
            if *known <= at {
                return;
            }
            self.due.remove(&(*known, key.clone()));
        }
        self.due.insert((at, key.clone()));
        self.at.insert(key, at);
    }

    fn take(&mut self, now: Timestamp) -> Option<Key> {
        let (at, key) = self.due.get_min().filter(|(at, _)| *at <= now).cloned()?;
        self.due.remove(&(at, key.clone()));
        self.at.remove(&key);
        Some(key)
    }
}

impl Controllers {
    pub(crate) fn new(options: &Options) -> Self {
        let running = ALL.iter().enumerate().filter(|(_, controller)| options.runs(controller.name));
        let queue =
            |(controller, _)| Queue { controller, due: OrdSet::new(), at: OrdMap::new(), failures: OrdMap::new() };
        Self { queues: running.map(queue).collect(), seen: 0, turn: 0 }
    }

    fn next(&self) -> Option<Timestamp> {
        self.queues.iter().filter_map(|queue| queue.due.get_min()).map(|(at, _)| *at).min()
    }
}

/// Gives new changes to the controllers, then lets the next one look at one key. A key whose write needs a webhook's answer
/// is not taken.
pub(crate) fn step(cluster: &mut Cluster, answers: &[Answer], now: Timestamp) -> Reply<Step> {
    see(cluster, now);
    let count = cluster.controllers.queues.len();
    for offset in 0..count {
        let at = (cluster.controllers.turn + offset) % count;
        let mut next = cluster.clone();
        let Some(key) = next.controllers.queues[at].take(now) else { continue };
        let controller = &ALL[next.controllers.queues[at].controller];
        next.controllers.turn = at + 1;
        let context = Context::system(controller.user, answers, now);
        match (controller.reconcile)(&mut next, &context, &key) {
            Ok(again) => {
                let queue = &mut next.controllers.queues[at];
                queue.failures.remove(&key);
                if let Again::At(time) = again {
                    queue.add(key, time);
                }
                *cluster = next;
            }
            Err(Halt::Call(call)) => return Reply::Call(call),
            Err(Halt::Status(_)) => {
                // What it wrote before the refusal stays undone; the key is tried again, later each time.
                let queue = &mut cluster.controllers.queues[at];
                queue.take(now);
                let failures = queue.failures.get(&key).copied().unwrap_or(0);
                let wait = FIRST_WAIT.saturating_mul(1 << failures.min(14)).min(LAST_WAIT);
                queue.failures.insert(key.clone(), failures + 1);
                queue.add(key, now + wait);
                cluster.controllers.turn = at + 1;
            }
        }
        return Reply::Done(Step::Worked);
    }
    Reply::Done(Step::Idle(cluster.controllers.next()))
}

/// Gives every object to the controllers as if it was just added: after a cluster was restored there is no log.
pub(crate) fn see_all(cluster: &mut Cluster, now: Timestamp) {
    for (storage, objects) in cluster.store.all() {
        for object in objects {
            let change = Change {
                revision: object.revision,
                storage: storage.clone(),
                event: Event::Added,
                object,
                previous: None,
            };
            for queue in 0..cluster.controllers.queues.len() {
                let keys = (ALL[cluster.controllers.queues[queue].controller].keys)(cluster, &change);
                for key in keys {
                    cluster.controllers.queues[queue].add(key, now);
                }
            }
        }
    }
    cluster.controllers.seen = cluster.store.revision();
}

fn see(cluster: &mut Cluster, now: Timestamp) {
    if cluster.controllers.seen == cluster.store.revision() {
        return;
    }
    let mut found = Vec::new();
    for change in cluster.store.changes(cluster.controllers.seen) {
        for (at, queue) in cluster.controllers.queues.iter().enumerate() {
            let keys = (ALL[queue.controller].keys)(cluster, change);
            found.extend(keys.into_iter().map(|key| (at, key)));
        }
    }
    for (at, key) in found {
        cluster.controllers.queues[at].add(key, now);
    }
    cluster.controllers.seen = cluster.store.revision();
}
