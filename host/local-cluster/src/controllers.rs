//! The controllers: each sees the changes of the kinds that it watches, keeps keys that wait, and looks at one key at a
//! time. Input: the log of changes and the time. Output: writes to the cluster, as requests make them. It must not know HTTP.

mod clean_up;
mod cluster_roles;
mod controller;
mod disruption;
mod endpoints;
mod garbage_collector;
mod in_use;
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

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::{SignedDuration, Timestamp};

use self::controller::{Controller, Key};
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
    in_use::CLAIM_PROTECTION,
    in_use::VOLUME_PROTECTION,
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

fn all_controllers() -> &'static [&'static Controller] {
    static CONTROLLERS: LazyLock<Vec<&Controller>> = LazyLock::new(|| ALL.iter().copied().flatten().collect());
    &CONTROLLERS
}

/// The places of the controllers that see changes of a storage.
fn watchers(storage: &Storage) -> &'static [usize] {
    static OF_ALL: LazyLock<Vec<usize>> = LazyLock::new(|| places(|watches| watches.is_empty()));
    static WATCHERS: LazyLock<BTreeMap<&str, BTreeMap<&str, Vec<usize>>>> = LazyLock::new(|| {
        let mut all = BTreeMap::<_, BTreeMap<_, _>>::new();
        for of in all_controllers().iter().flat_map(|controller| controller.watches) {
            let each = places(|watches| watches.is_empty() || watches.contains(of));
            all.entry(of.0).or_default().insert(of.1, each);
        }
        all
    });
    WATCHERS.get(&*storage.group).and_then(|plurals| plurals.get(&*storage.plural)).unwrap_or(&OF_ALL)
}

fn places(watches: impl Fn(&[(&str, &str)]) -> bool) -> Vec<usize> {
    let all = all_controllers().iter().enumerate();
    all.filter(|(_, controller)| watches(controller.watches)).map(|(at, _)| at).collect()
}

/// What `Options::controllers` may name.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    all_controllers().iter().map(|controller| controller.name)
}

/// The queues of the controllers that run, with nothing in them.
pub(crate) fn waiting(options: &Options) -> Controllers {
    let running = all_controllers().iter().enumerate().filter(|(_, controller)| options.runs(controller.name));
    Controllers::new(running.map(|(at, controller)| Queue::new(at, controller.batches)).collect())
}

fn of_queue(queue: &Queue) -> Option<&'static Controller> {
    all_controllers().get(queue.controller).copied()
}

/// When a step is made anew whose webhooks nobody has answered: their longest timeout has passed.
const ASKS_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// Gives new changes to the controllers, then lets the next one look at one key: the one that a webhook was asked for, or one
/// that is due. A key whose write needs a webhook's answer waits for it, and others have their turns.
pub(crate) fn step(cluster: &mut Cluster, answers: &[Answer], now: Timestamp) -> Reply<Step> {
    cluster.controllers.since.get_or_insert(now);
    see(cluster, now);
    let asked = answers.first().and_then(|answer| answer.call.step.clone());
    let Some((at, key)) = asked.or_else(|| take(cluster, now)) else {
        return Reply::Done(Step::Idle(cluster.controllers.next()));
    };
    let Some(controller) = cluster.controllers.queues.get(at).and_then(of_queue) else {
        return Reply::Done(Step::Worked);
    };
    let first = FirstTry::of(answers, cluster.made, now);
    let before = (cluster.store.clone(), cluster.definitions.clone(), cluster.made);
    cluster.made = first.made;
    cluster.controllers.queues[at].remove(&key);
    let mut context = Context::system(controller.user, answers, first.at);
    if controller.user.starts_with("system:serviceaccount:") {
        "kube-controller-manager".clone_into(&mut context.manager);
    }
    let halt = match (controller.reconcile)(cluster, &context, &key) {
        Ok(again) => {
            cluster.controllers.queues[at].settle(key, again, now);
            cluster.made = cluster.made.max(before.2);
            return Reply::Done(Step::Worked);
        }
        Err(halt) => halt,
    };
    // What it wrote before it failed never was.
    (cluster.store, cluster.definitions, cluster.made) = before;
    match halt {
        Halt::Call(mut call) => {
            cluster.made = cluster.made.max(first.reserved());
            cluster.controllers.queues[at].add(key.clone(), now + ASKS_AGAIN);
            (call.first_try, call.step) = (first, Some((at, key)));
            Reply::Call(call)
        }
        Halt::Status(_) => {
            cluster.controllers.queues[at].retry(key, now);
            Reply::Done(Step::Worked)
        }
    }
}

/// The next key that is due, with the place of its queue.
fn take(cluster: &mut Cluster, now: Timestamp) -> Option<(usize, Key)> {
    let controllers = &mut cluster.controllers;
    let at = controllers.due(now)?;
    controllers.steps += 1;
    controllers.turn = at + 1;
    Some((at, controllers.queues[at].take(now)?))
}

/// Puts the key off that is due next, as if its step had failed.
pub(crate) fn put_off(cluster: &mut Cluster, now: Timestamp) {
    see(cluster, now);
    if let Some((at, key)) = take(cluster, now) {
        cluster.controllers.queues[at].retry(key, now);
    }
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
        let watchers = watchers(&change.storage);
        for at in 0..cluster.controllers.queues.len() {
            let queue = &cluster.controllers.queues[at];
            let Some(controller) = of_queue(queue).filter(|_| watchers.contains(&queue.controller)) else { continue };
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
            bytes: 0,
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
    fn a_step_that_waits_for_a_webhook_or_is_put_off_is_not_in_the_way_of_others() {
        let mut cluster = cluster(&["replicaset-controller"]);
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
        let hook = json!({
            "name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": rules,
            "clientConfig": {"url": "https://a.b/c"}, "objectSelector": {"matchLabels": {"app": "a"}},
        });
        let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        post(&mut cluster, hooks, &json!({"metadata": {"name": "h"}, "webhooks": [hook]}));
        for name in ["a", "b"] {
            let template =
                json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template});
            let set = json!({"metadata": {"name": name}, "spec": spec});
            post(&mut cluster, "/apis/apps/v1/namespaces/default/replicasets", &set);
        }
        let pods = |cluster: &crate::Cluster| cluster.store.count(&PODS);
        let mut postponed = cluster.clone();
        let mut next = || cluster.step(&[], after(0));
        let call = std::iter::repeat_with(&mut next).take(10).find_map(|reply| match reply {
            Reply::Call(call) => Some(*call),
            Reply::Done(_) => None,
        });
        pass(&mut cluster, 1);
        assert_eq!(pods(&cluster), 1, "the set that no webhook looks at gets its Pod");
        let response = json!({"uid": call.as_ref().unwrap().review["request"]["uid"], "allowed": true});
        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        cluster.step(&[crate::Answer { call: call.unwrap(), result: Ok(review) }], after(1));
        assert_eq!(pods(&cluster), 2);

        postponed.put_off(after(0));
        while matches!(postponed.step(&[], after(0)), Reply::Done(Step::Worked)) {}
        assert_eq!(pods(&postponed), 1, "what was put off is not due yet");
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
