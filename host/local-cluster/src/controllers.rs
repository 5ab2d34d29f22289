//! The controllers: each sees the changes of the kinds that it watches, keeps keys that wait, and looks at one key at a
//! time. Input: the log of changes and the time. Output: writes to the cluster, as requests make them. It must not know HTTP.

mod clean_up;
mod cluster_roles;
mod condition;
mod disruption;
mod endpoints;
mod garbage_collector;
mod kubelet;
mod namespace;
mod new_namespace;
mod node_lifecycle;
mod placement;
mod quota;
mod resources;
mod scheduler;
mod storages;
mod taint;
#[cfg(test)]
mod testing;
mod volumes;
mod workloads;
mod write;

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use jiff::{SignedDuration, Timestamp};

use self::placement::Placement;
use crate::halt::{Answer, FirstTry, Halt};
use crate::options::Options;
use crate::resource::Storage;
use crate::rest::Context;
use crate::store::{Change, Event, Object};
use crate::{Cluster, Reply, Step};

/// The first wait of a key that failed; it doubles up to [`LAST_WAIT`].
const FIRST_WAIT: SignedDuration = SignedDuration::from_millis(5);
const LAST_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// After so many steps the controllers that batch get a turn even though others are busy: rare enough to batch well, often
/// enough that a busy cluster does not starve them.
const STEPS_OF_A_BATCH: u64 = 1_000;

/// The namespace and name of what a controller looks at, as its own choice of kind has it.
pub(crate) type Key = (Arc<str>, Arc<str>);

/// An object's own key.
fn key(object: &Object) -> Key {
    (object.namespace().into(), object.name().into())
}

/// Whether an update left these fields as they were; each is a JSON pointer.
fn unchanged(before: &Object, after: &Object, fields: &[&str]) -> bool {
    fields.iter().all(|field| before.value.pointer(field) == after.value.pointer(field))
}

/// What a controller does next with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Nothing until something changes.
    No,
    /// Look again then.
    At(Timestamp),
    /// Something failed that was written down: what was written stays, and the key is tried again, later each time.
    Later,
}

/// One controller: functions, without state of its own.
pub(crate) struct Controller {
    /// Its name, as kube-controller-manager's `--controllers` has it.
    pub(crate) name: &'static str,
    /// The user that it writes as.
    pub(crate) user: &'static str,
    /// The group and plural of the kinds whose changes it sees; with none it sees all.
    pub(crate) watches: &'static [(&'static str, &'static str)],
    /// Whether it waits until no other controller has anything to do, so that it looks once after many changes.
    pub(crate) batches: bool,
    /// The keys that a change concerns.
    pub(crate) keys: fn(&Cluster, &Change) -> Vec<Key>,
    /// Looks at a key, and writes what is missing. An error undoes what it wrote; the key is tried again, later each time.
    pub(crate) reconcile: fn(&mut Cluster, &Context<'_>, &Key) -> Result<Again, Halt>,
}

/// All controllers in the order they take turns in.
const ALL: &[&[Controller]] = &[CLUSTER, workloads::WORKLOADS];

/// Those that look after the cluster as a whole, and the models of its nodes.
const CLUSTER: &[Controller] = &[
    kubelet::CONTROLLER,
    scheduler::CONTROLLER,
    node_lifecycle::CONTROLLER,
    node_lifecycle::EVICTION,
    volumes::CONTROLLER,
    new_namespace::SERVICE_ACCOUNT,
    new_namespace::ROOT_CERTIFICATE,
    garbage_collector::CONTROLLER,
    namespace::CONTROLLER,
    endpoints::CONTROLLER,
    endpoints::SLICE_CONTROLLER,
    disruption::CONTROLLER,
    quota::CONTROLLER,
    cluster_roles::CONTROLLER,
    clean_up::FINISHED_JOBS,
    clean_up::LOST_PODS,
    clean_up::OLD_EVENTS,
];

/// The queues of the controllers that run.
#[derive(Clone, Debug)]
pub(crate) struct Controllers {
    queues: Vec<Queue>,
    /// All changes up to this version were seen.
    seen: u64,
    /// How many steps were made.
    steps: u64,
    /// Whose turn is next.
    turn: usize,
    /// Which Pods are where.
    placement: Placement,
}

/// The keys of one controller that wait.
#[derive(Clone, Debug)]
struct Queue {
    controller: &'static Controller,
    due: OrdSet<(Timestamp, Key)>,
    at: OrdMap<Key, Timestamp>,
    failures: OrdMap<Key, u32>,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Controller {
    fn sees(&self, change: &Change) -> bool {
        let (group, plural) = (&*change.storage.group, &*change.storage.plural);
        self.watches.is_empty() || self.watches.contains(&(group, plural))
    }
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

    fn next(&self) -> Option<Timestamp> {
        self.due.get_min().map(|(at, _)| *at)
    }

    fn take(&mut self, now: Timestamp) -> Option<Key> {
        let (at, key) = self.due.get_min().filter(|(at, _)| *at <= now).cloned()?;
        self.due.remove(&(at, key.clone()));
        self.at.remove(&key);
        Some(key)
    }

    fn retry(&mut self, key: Key, now: Timestamp) {
        let failures = self.failures.get(&key).copied().unwrap_or(0);
        let wait = FIRST_WAIT.saturating_mul(1 << failures.min(14)).min(LAST_WAIT);
        self.failures.insert(key.clone(), failures + 1);
        self.add(key, now + wait);
    }

    /// Remembers what came of a key.
    fn settle(&mut self, key: Key, again: Again, now: Timestamp) {
        match again {
            Again::Later => return self.retry(key, now),
            Again::At(time) => self.add(key.clone(), time),
            Again::No => {}
        }
        self.failures.remove(&key);
    }
}

impl Controllers {
    pub(crate) fn new(options: &Options) -> Self {
        let running = ALL.iter().copied().flatten().filter(|controller| options.runs(controller.name));
        let queue = |controller| Queue { controller, due: OrdSet::new(), at: OrdMap::new(), failures: OrdMap::new() };
        Self { queues: running.map(queue).collect(), seen: 0, steps: 0, turn: 0, placement: Placement::default() }
    }

    fn next(&self) -> Option<Timestamp> {
        self.queues.iter().filter_map(Queue::next).min()
    }

    /// The queue whose turn it is, of those that have a key that is due.
    fn due(&self, now: Timestamp) -> Option<usize> {
        let count = self.queues.len();
        let turns = (0..count).map(|offset| (self.turn + offset) % count);
        let mut due = turns.filter(|at| self.queues[*at].next().is_some_and(|next| next <= now)).peekable();
        let first = due.peek().copied()?;
        if self.steps.is_multiple_of(STEPS_OF_A_BATCH) {
            return Some(first);
        }
        due.find(|at| !self.queues[*at].controller.batches).or(Some(first))
    }
}

/// Gives new changes to the controllers, then lets the next one look at one key. A key whose write needs a webhook's answer
/// is not taken.
pub(crate) fn step(cluster: &mut Cluster, answers: &[Answer], now: Timestamp) -> Reply<Step> {
    see(cluster, now);
    let Some(at) = cluster.controllers.due(now) else { return Reply::Done(Step::Idle(cluster.controllers.next())) };
    let first = FirstTry::of(answers, cluster.made, now);
    let mut next = cluster.clone();
    next.made = first.made;
    next.controllers.steps += 1;
    next.controllers.turn = at + 1;
    let controller = next.controllers.queues[at].controller;
    let Some(key) = next.controllers.queues[at].take(now) else { return Reply::Done(Step::Worked) };
    let mut context = Context::system(controller.user, answers, first.at);
    if controller.user.starts_with("system:serviceaccount:") {
        "kube-controller-manager".clone_into(&mut context.manager);
    }
    match (controller.reconcile)(&mut next, &context, &key) {
        Ok(again) => {
            next.controllers.queues[at].settle(key, again, now);
            next.made = next.made.max(cluster.made);
            *cluster = next;
        }
        Err(Halt::Call(mut call)) => {
            cluster.made = cluster.made.max(first.reserved());
            call.first_try = first;
            return Reply::Call(call);
        }
        Err(Halt::Status(_)) => {
            let controllers = &mut cluster.controllers;
            controllers.steps += 1;
            controllers.turn = at + 1;
            let queue = &mut controllers.queues[at];
            queue.take(now);
            queue.retry(key, now);
        }
    }
    Reply::Done(Step::Worked)
}

/// Gives the controllers what changed since they last looked; all objects, if the log does not reach back so far.
fn see(cluster: &mut Cluster, now: Timestamp) {
    let (seen, revision) = (cluster.controllers.seen, cluster.store.revision());
    if seen == revision {
        return;
    }
    let changes: Vec<Change> =
        if seen < cluster.store.compacted() { all(cluster) } else { cluster.store.changes(seen).cloned().collect() };
    for change in &changes {
        cluster.controllers.placement.learn(change);
        for at in 0..cluster.controllers.queues.len() {
            let controller = cluster.controllers.queues[at].controller;
            if controller.sees(change) {
                for key in (controller.keys)(cluster, change) {
                    cluster.controllers.queues[at].add(key, now);
                }
            }
        }
    }
    cluster.controllers.seen = revision;
}

fn all(cluster: &Cluster) -> Vec<Change> {
    let added = |(storage, objects): (_, Vec<_>)| {
        let change = move |object: Arc<Object>| Change {
            revision: object.revision,
            storage: Storage::clone(&storage),
            event: Event::Added,
            object,
            previous: None,
        };
        objects.into_iter().map(change)
    };
    cluster.store.all().into_iter().flat_map(added).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::storages::{ENDPOINTS, PODS};
    use super::testing::{after, cluster, pass, pod, post};
    use crate::Method::Delete;
    use crate::testing::ask;
    use crate::{Reply, Step};

    #[test]
    fn many_pods_take_few_steps_each_and_batches_look_once() {
        const COUNT: usize = 300;
        let mut cluster = cluster(&["scheduler", "kubelet", "endpoints-controller"]);
        for at in 1..4 {
            post(&mut cluster, "/api/v1/nodes", &json!({"metadata": {"name": format!("node-{at}")}}));
        }
        let service = json!({
            "metadata": {"name": "s"}, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80, "protocol": "TCP"}]},
        });
        post(&mut cluster, "/api/v1/namespaces/default/services", &service);
        for at in 0..COUNT {
            let mut pod = pod(&format!("p{at}"));
            pod["metadata"]["labels"] = json!({"app": "a"});
            post(&mut cluster, "/api/v1/namespaces/default/pods", &pod);
        }
        let before = cluster.revision();
        pass(&mut cluster, 2);
        let changes: Vec<_> = cluster.store.changes(before).collect();
        let of =
            |storage: &crate::resource::Storage| changes.iter().filter(|change| change.storage == *storage).count();
        // Bound, ContainerCreating, Running.
        assert_eq!(of(&PODS), 3 * COUNT);
        assert!(of(&ENDPOINTS) <= 3, "{}", of(&ENDPOINTS));
        assert!(cluster.controllers.steps < 12 * COUNT as u64, "{}", cluster.controllers.steps);
    }

    #[test]
    fn controllers_that_are_behind_the_log_look_at_all_objects() {
        let mut cluster = cluster(&["garbage-collector-controller"]);
        let maps = "/api/v1/namespaces/default/configmaps";
        let owner = post(&mut cluster, maps, &json!({"metadata": {"name": "a"}}));
        let reference =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner["metadata"]["uid"]}]);
        post(&mut cluster, maps, &json!({"metadata": {"name": "b", "ownerReferences": reference}}));
        ask(&mut cluster, Delete, &format!("{maps}/a"), &json!(null));
        cluster.compact();
        pass(&mut cluster, 1);
        assert!(cluster.store.list(&crate::resource::Storage::new("", "configmaps"), None, None).next().is_none());
    }

    #[test]
    fn a_key_that_fails_is_tried_again_later_each_time() {
        let mut cluster = cluster(&["garbage-collector-controller"]);
        let unknown = json!([{"apiVersion": "example.com/v1", "kind": "Gone", "name": "a", "uid": "x"}]);
        let map = json!({"metadata": {"name": "b", "ownerReferences": unknown}});
        post(&mut cluster, "/api/v1/namespaces/default/configmaps", &map);
        let mut now = after(0);
        let mut waits = Vec::new();
        while waits.len() < 16 {
            if let Reply::Done(Step::Idle(next)) = cluster.step(&[], now) {
                let next = next.unwrap();
                waits.push(next.duration_since(now).as_millis());
                now = next;
            }
        }
        assert_eq!((waits[0], waits[1], waits[2], waits[15]), (5, 10, 20, 60_000));
    }
}
