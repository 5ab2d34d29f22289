//! The controllers: each sees the changes of the kinds that it watches, keeps keys that wait, and looks at one key at a
//! time. Input: the log of changes and the time. Output: writes to the cluster, as requests make them. It must not know HTTP.

mod clean_up;
mod cluster_roles;
mod controller;
mod disruption;
mod endpoints;
mod garbage_collector;
mod kubelet;
mod namespace;
mod new_namespace;
mod node_lifecycle;
mod quota;
mod scheduler;
mod storages;
mod taint;
#[cfg(test)]
mod testing;
mod volumes;
mod workloads;
mod write;

use std::sync::Arc;

use jiff::Timestamp;

use self::controller::Controller;
use crate::Cluster;
use crate::context::Context;
use crate::halt::{Answer, FirstTry, Halt, Reply};
use crate::options::Options;
use crate::queue::{Controllers, Queue};
use crate::resource::Storage;
use crate::store::{Change, Event, Object};

/// What a step of the controllers came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something was looked at; there may be more.
    Worked,
    /// Nothing is to do before this time, or before the next request.
    Idle(Option<Timestamp>),
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

fn all_controllers() -> impl Iterator<Item = &'static Controller> {
    ALL.iter().copied().flatten()
}

/// The queues of the controllers that run, with nothing in them.
pub(crate) fn waiting(options: &Options) -> Controllers {
    let running = all_controllers().enumerate().filter(|(_, controller)| options.runs(controller.name));
    Controllers::new(running.map(|(at, controller)| Queue::new(at, controller.batches)).collect())
}

fn of_queue(queue: &Queue) -> Option<&'static Controller> {
    all_controllers().nth(queue.controller)
}

/// Gives new changes to the controllers, then lets the next one look at one key. A key whose write needs a webhook's answer
/// is not taken.
pub(crate) fn step(cluster: &mut Cluster, answers: &[Answer], now: Timestamp) -> Reply<Step> {
    cluster.controllers.since.get_or_insert(now);
    see(cluster, now);
    let Some(at) = cluster.controllers.due(now) else { return Reply::Done(Step::Idle(cluster.controllers.next())) };
    let first = FirstTry::of(answers, cluster.made, now);
    let mut next = cluster.clone();
    next.made = first.made;
    next.controllers.steps += 1;
    next.controllers.turn = at + 1;
    let Some(controller) = of_queue(&next.controllers.queues[at]) else { return Reply::Done(Step::Worked) };
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
            let Some(controller) = of_queue(&cluster.controllers.queues[at]).filter(|found| found.sees(change)) else {
                continue;
            };
            for key in (controller.keys)(cluster, change) {
                cluster.controllers.queues[at].add(key, now);
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
