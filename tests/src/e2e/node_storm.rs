//! Nodes that are created, deleted and changed at random for a while, with failing and deleted Pods and changing
//! images, and an independent watcher: never two Pods of one MyDaemonSet on a Node, and in the end exactly the wanted
//! ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::mydaemonset::set;
use super::world::{World, count_from_env};
use crate::simulation::random::Random;

/// Nodes that are created and deleted. `MORTISE_E2E_NODES` raises it.
const NODES: usize = 10;
/// Seconds of changes. `MORTISE_E2E_NODES_S` raises it.
const NODES_S: usize = 15;
/// The seed, which repeats a run up to the cluster's timing. `MORTISE_E2E_NODES_SEED` sets another.
const SEED: usize = 1;
/// Bound of the convergence afterwards; ten times what it takes on an idle machine.
const TO_SETTLE: Duration = Duration::from_secs(60);

/// The existing Pods of each set on each Node, terminating or not.
#[derive(Default)]
struct Seen {
    there: BTreeMap<(String, String), BTreeSet<String>>,
    ever: BTreeSet<String>,
    doubles: Vec<String>,
}

impl Seen {
    fn place(pod: &Pod) -> (String, String) {
        let owner = pod.owner_references().first().map(|owner| owner.name.clone()).unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        (owner, node)
    }

    fn apply(&mut self, pod: &Pod) {
        let (place, uid) = (Self::place(pod), pod.uid().unwrap_or_default());
        self.ever.insert(uid.clone());
        let there = self.there.entry(place.clone()).or_default();
        if there.insert(uid) && there.len() > 1 {
            self.doubles.push(format!("{place:?}: {there:?}"));
        }
    }

    fn forget(&mut self, pod: &Pod) {
        if let Some(there) = self.there.get_mut(&Self::place(pod)) {
            there.remove(&pod.uid().unwrap_or_default());
        }
    }
}

fn watch(world: &World) -> (Arc<Mutex<Seen>>, tokio::task::JoinHandle<()>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let into = Arc::clone(&seen);
    let task = world.follow(pods, move |event| {
        let mut seen = into.lock().unwrap();
        match event {
            // A new list replaces everything.
            watcher::Event::Init => seen.there.clear(),
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => seen.apply(&pod),
            watcher::Event::Delete(pod) => seen.forget(&pod),
            watcher::Event::InitDone => {}
        }
    });
    (seen, task)
}

/// Taints of Nodes. The sets of the test tolerate none, and `dedicated`.
const TAINTS: [&[(&str, &str)]; 6] = [
    &[],
    &[],
    &[("dedicated", "NoSchedule")],
    &[("dedicated", "NoExecute")],
    &[("maintenance", "NoSchedule"), ("dedicated", "NoExecute")],
    &[("maintenance", "PreferNoSchedule"), ("node.kubernetes.io/memory-pressure", "NoSchedule")],
];

struct Storm<'a> {
    world: &'a World,
    random: Random,
    nodes: Api<Node>,
    pods: Api<Pod>,
    names: Vec<String>,
    images: usize,
    changes: usize,
}

impl Storm<'_> {
    /// One change. It does nothing if its object does not exist, or exists already.
    fn change(&mut self) {
        self.changes += 1;
        let name = self.random.pick(&self.names).expect("there are Nodes");
        match self.random.below(100) {
            0..30 => {
                let node: Node = serde_json::from_value(self.world.node(&name)).unwrap();
                let _ = self.world.block_on(self.nodes.create(&PostParams::default(), &node));
            }
            30..50 => {
                let _ = self.world.block_on(self.nodes.delete(&name, &DeleteParams::default()));
            }
            50..75 => {
                let taints = self.random.pick(&TAINTS).expect("there are taints");
                let taints = taints.iter().map(|(key, effect)| json!({"key": key, "value": "x", "effect": effect}));
                self.patch_node(&name, json!({"spec": {"taints": taints.collect::<Value>()}}));
            }
            75..85 => {
                let disk = self.random.pick(&["ssd", "hdd"]).expect("there are disks");
                self.patch_node(&name, json!({"metadata": {"labels": {"disk": disk}}}));
            }
            85..97 => self.hit_a_pod(),
            _ => {
                self.images += 1;
                apply_sets(self.world, self.images);
            }
        }
    }

    fn patch_node(&self, name: &str, patch: Value) {
        let _ = self.world.block_on(self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)));
    }

    /// Deletes a Pod, with or without a grace period, or makes it fail.
    fn hit_a_pod(&mut self) {
        let pods = self.world.block_on(self.pods.list(&ListParams::default())).unwrap().items;
        let names: Vec<String> = pods.iter().map(|pod| pod.name_any()).collect();
        let Some(name) = self.random.pick(&names) else { return };
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
        self.world.block_on(async {
            match self.random.below(3) {
                0 => drop(self.pods.delete(&name, &DeleteParams::default()).await),
                1 => drop(self.pods.delete(&name, &at_once).await),
                _ => drop(self.pods.patch_status(&name, &PatchParams::default(), &failed).await),
            }
        });
    }
}

fn image(number: usize) -> String {
    format!("nginx:{number}")
}

/// Two sets: one for Nodes without taints, one for those with an ssd, which tolerates `dedicated`.
fn apply_sets(world: &World, number: usize) {
    world.apply(&set(world, "plain", json!({"image": image(number)})));
    let tolerations = json!([{"key": "dedicated", "operator": "Exists"}]);
    let picky = json!({"image": image(number), "nodeSelector": {"disk": "ssd"}, "tolerations": tolerations});
    world.apply(&set(world, "picky", picky));
}

/// Whether a set wants a Pod on a Node, computed independently of the plugin.
fn belongs(set: &str, node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let has_taint = |key: &str| taints.iter().any(|taint| taint.key == key && taint.effect != "PreferNoSchedule");
    match set {
        "plain" => !has_taint("dedicated") && !has_taint("maintenance"),
        _ => !has_taint("maintenance") && node.labels().get("disk").is_some_and(|disk| disk == "ssd"),
    }
}

/// Describes the first deviation from convergence; None when there is none.
fn deviation(world: &World, nodes: &Api<Node>, pods: &Api<Pod>, image: &str) -> Option<String> {
    let (nodes, pods) = world.block_on(async {
        let (nodes, pods) = (nodes.list(&ListParams::default()).await, pods.list(&ListParams::default()).await);
        (nodes.unwrap().items, pods.unwrap().items)
    });
    let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
    for set in ["plain", "picky"] {
        let on = nodes.iter().filter(|node| belongs(set, node));
        wanted.extend(on.map(|node| (set.to_owned(), node.name_any())));
    }
    let mut found = BTreeSet::new();
    for pod in &pods {
        let place = Seen::place(pod);
        // Without its Node only the garbage collector removes a deleted Pod, forty seconds later.
        if pod.metadata.deletion_timestamp.is_some() && nodes.iter().all(|node| node.name_any() != place.1) {
            continue;
        }
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone());
            conditions.into_iter().flatten().any(|each| each.type_ == "Ready" && each.status == "True")
        };
        let runs = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref()) == Some(image);
        if pod.metadata.deletion_timestamp.is_some() || !is_ready(pod) || !runs {
            let (metadata, status) = (&pod.metadata, pod.status.as_ref());
            let deleted = metadata.deletion_timestamp.as_ref();
            return Some(format!("{place:?} is not ready with {image}, or is terminating: {deleted:?}, {status:?}"));
        }
        if !found.insert(place.clone()) {
            return Some(format!("there are two Pods of {place:?}"));
        }
    }
    (found != wanted).then(|| {
        let (missing, extra) = (wanted.difference(&found), found.difference(&wanted));
        format!("missing {:?}, too many {:?}", missing.collect::<Vec<_>>(), extra.collect::<Vec<_>>())
    })
}

#[test]
fn nodes_at_random_never_have_two_pods_of_one_set_and_in_the_end_exactly_theirs() {
    let world = World::with_plugin("mds-storm", "mydaemonset");
    let count = count_from_env("MORTISE_E2E_NODES", NODES);
    let seconds = count_from_env("MORTISE_E2E_NODES_S", NODES_S);
    let seed = count_from_env("MORTISE_E2E_NODES_SEED", SEED);
    println!("storm: {count} nodes, {seconds} s, seed {seed}");
    let (seen, task) = watch(&world);
    apply_sets(&world, 0);
    let mut storm = Storm {
        world: &world,
        random: Random::new(seed as u64),
        nodes: Api::all(world.client.clone()),
        pods: Api::namespaced(world.client.clone(), &world.namespace),
        names: (0..count).map(|number| format!("storm-{number}")).collect(),
        images: 0,
        changes: 0,
    };
    let until = Instant::now() + Duration::from_secs(seconds as u64);
    while Instant::now() < until {
        storm.change();
        std::thread::sleep(Duration::from_millis(storm.random.between(5, 60)));
    }
    let (nodes, pods, image) = (storm.nodes.clone(), storm.pods.clone(), image(storm.images));
    let settling = Instant::now();
    while let Some(wrong) = deviation(&world, &nodes, &pods, &image) {
        assert!(settling.elapsed() < TO_SETTLE, "seed {seed}: after {TO_SETTLE:?} {wrong}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let format = "jsonpath={range .items[*]}{.metadata.name} {.status.availableReplicas}{\"\\n\"}{end}";
    world.until("the statuses count exactly the existing Pods", || {
        let mut there = world.block_on(pods.list(&ListParams::default())).unwrap().items;
        there.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        let of = |set: &str| there.iter().filter(|pod| Seen::place(pod).0 == set).count();
        let status = world.kubectl_here(&["get", "mydaemonsets", "-o", format]);
        (status == format!("picky {}\nplain {}\n", of("picky"), of("plain"))).then_some(())
    });
    task.abort();
    let seen = seen.lock().unwrap();
    assert!(seen.doubles.is_empty(), "seed {seed}: {:#?}", seen.doubles);
    println!(
        "storm: {} changes, {} Pods in all, never two of one set on a node; converged after {:.1} s",
        storm.changes,
        seen.ever.len(),
        settling.elapsed().as_secs_f64(),
    );
}
