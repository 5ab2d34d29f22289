//! Rollouts in a small seeded simulation: Pods become ready and are deleted at random, and the view shows both late. It
//! always shows the plan's own writes (R2).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::contract::{Child, Outcome};
use crate::eviction::Blocked;
use crate::manifest::{ControllerSpec, OwnedKind, Predicate, Replace, Update};
use crate::object::{Kind, Object, tests};
use crate::plan::{Applied, Creates, Diff, Memory, Sent, UnknownCreates, diff, prepare};
use crate::scope::Scope;
use crate::spared::Spared;
use crate::store::Snapshot;
use crate::write::WriteOp;

/// More turns than a rollout of these sizes takes.
const MAX_TURNS: usize = 2_000;

fn decode(value: &Value) -> Object {
    tests::decode(&value.to_string())
}

fn primary() -> Object {
    decode(&json!({
        "apiVersion": "example.com/v1", "kind": "Crowd",
        "metadata": {"name": "c", "namespace": "n", "uid": "u-1", "resourceVersion": "1"},
    }))
}

fn spec(update: Update) -> ControllerSpec {
    ControllerSpec {
        primary: Kind::new("example.com/v1", "Crowd"),
        scope: Scope::default(),
        builtin: false,
        selection: Predicate::default(),
        owns: vec![OwnedKind {
            kind: Kind::new("v1", "Pod"),
            update,
            replace: Replace::WhenGone,
            tracked: false,
            adopt: false,
            scope: Scope::default(),
        }],
        reads: Vec::new(),
        patterns: Vec::new(),
        writes: [].into(),
        http: [].into(),
        finalize: false,
        concurrency: 1,
        visible: Vec::new(),
    }
}

/// An outcome that wants `count` Pods of an image.
fn wanted(count: usize, image: &str) -> Outcome {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": image}]}});
    let child = |key: usize| Child::new(key.to_string(), pod.to_string());
    Outcome { children: Some((0..count).map(child).collect()), ..Outcome::default() }
}

fn missing(update: Update, outcome: &Outcome, view: &BTreeMap<String, Value>) -> Diff {
    let prepared = prepare(&spec(update), &primary(), outcome, None).unwrap();
    let snapshot = Snapshot::of(&[Kind::new("v1", "Pod")], view.values().map(decode));
    let creates = Creates { inherited: false, unknown: &UnknownCreates::new() };
    let (applied, exact, sent) = (&mut Applied::new(), &mut Applied::new(), &mut Sent::new());
    let memory = Memory { applied, exact, sent, blocked: &Blocked::default(), creates, spared: Spared::default() };
    diff(&prepared, &spec(update), &primary(), "mortise/crowd", &snapshot, memory, 0)
}

/// A seeded generator, so that failures repeat.
struct Random(u64);

impl Random {
    fn one_in(&mut self, of: u64) -> bool {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33).is_multiple_of(of)
    }
}

/// The Pods, and the Pods that the view shows.
#[derive(Default)]
struct World {
    pods: BTreeMap<String, Value>,
    view: BTreeMap<String, Value>,
    created: usize,
}

impl World {
    fn execute(&mut self, diff: &Diff) {
        for op in &diff.children {
            let WriteOp::Create { target, body } = op else { panic!("{op:?}") };
            let mut pod: Value = serde_json::from_str(body).unwrap();
            self.created += 1;
            pod["metadata"]["uid"] = json!(format!("p-{}", self.created));
            pod["metadata"]["resourceVersion"] = json!(self.created.to_string());
            assert!(self.pods.insert(target.name.to_string(), pod).is_none(), "{target} exists already");
        }
        for op in &diff.deletes {
            let WriteOp::Delete { target, .. } = op else { panic!("{op:?}") };
            self.pods.get_mut(&target.name.to_string()).unwrap()["metadata"]["deletionTimestamp"] =
                json!("2026-01-01T00:00:00Z");
        }
        let written = diff.children.iter().chain(&diff.deletes).map(|op| op.target().name.to_string());
        for name in written {
            self.view.insert(name.clone(), self.pods[&name].clone());
        }
    }

    /// Some Pods become ready, some deletions complete, and the view shows some of that.
    fn pass(&mut self, random: &mut Random) {
        for (name, mut pod) in std::mem::take(&mut self.pods) {
            let is_deleting = !pod["metadata"]["deletionTimestamp"].is_null();
            if is_deleting && random.one_in(3) {
                continue;
            }
            if !is_deleting && random.one_in(4) {
                pod["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            }
            self.pods.insert(name, pod);
        }
        let names: Vec<String> = self.pods.keys().chain(self.view.keys()).cloned().collect();
        for name in names {
            if random.one_in(3) {
                match self.pods.get(&name) {
                    Some(pod) => self.view.insert(name, pod.clone()),
                    None => self.view.remove(&name),
                };
            }
        }
    }

    fn available(&self) -> usize {
        let is_available = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null() && !pod["status"].is_null();
        self.pods.values().filter(is_available).count()
    }

    fn serving(&self, image: &str) -> usize {
        let serves = |pod: &&Value| !pod["status"].is_null() && pod["spec"]["containers"][0]["image"] == image;
        self.pods.values().filter(serves).count()
    }
}

#[test]
fn never_more_than_max_unavailable_are_unavailable() {
    let mut turns = 0;
    for seed in 0..200 {
        let mut random = Random(seed);
        let count = 1 + (seed % 7) as usize;
        let max_unavailable = 1 + (seed % 3) as u32;
        let update = Update::RollingRecreate { max_unavailable };
        let mut world = World::default();
        let (before, after) = (wanted(count, "a"), wanted(count, "b"));
        world.execute(&missing(update, &before, &world.view));
        while world.serving("a") < count || world.view != world.pods {
            world.pass(&mut random);
        }
        let least = count.saturating_sub(max_unavailable as usize);
        let mut left = MAX_TURNS;
        while world.serving("b") < count {
            world.execute(&missing(update, &after, &world.view));
            assert!(world.available() >= least, "seed {seed}: {} of {count} serve", world.available());
            world.pass(&mut random);
            left = left.checked_sub(1).unwrap_or_else(|| panic!("seed {seed}: the rollout does not end"));
        }
        turns += MAX_TURNS - left;
        world.view.clone_from(&world.pods);
        assert_eq!(missing(update, &after, &world.view), Diff::default(), "seed {seed}: at rest");
    }
    assert!(turns > 1_000, "the rollouts took only {turns} turns");
}

#[test]
fn a_version_that_never_becomes_available_stops_the_rollout_at_max_unavailable() {
    let update = Update::RollingRecreate { max_unavailable: 2 };
    let mut world = World::default();
    let mut random = Random(7);
    world.execute(&missing(update, &wanted(6, "a"), &world.view));
    while world.available() < 6 || world.view != world.pods {
        world.pass(&mut random);
    }
    for _ in 0..50 {
        world.execute(&missing(update, &wanted(6, "broken"), &world.view));
        world.pods.retain(|_, pod| pod["metadata"]["deletionTimestamp"].is_null());
        world.view.clone_from(&world.pods);
    }
    assert_eq!((world.serving("a"), world.pods.len()), (4, 6));
    // The next version replaces unavailable Pods first and at once.
    let next = missing(update, &wanted(6, "b"), &world.view);
    let idle = next.deletes.iter().filter(|op| world.pods[&op.target().name.to_string()]["status"].is_null());
    assert_eq!((idle.count(), next.deletes.len()), (2, 2));
}

#[test]
fn on_delete_replaces_a_child_once_somebody_deletes_it() {
    let mut world = World::default();
    world.execute(&missing(Update::OnDelete, &wanted(3, "a"), &world.view));
    assert_eq!(missing(Update::OnDelete, &wanted(3, "b"), &world.view), Diff::default());
    let first = world.view.keys().next().unwrap().clone();
    world.pods.remove(&first);
    world.view.remove(&first);
    let diff = missing(Update::OnDelete, &wanted(3, "b"), &world.view);
    world.execute(&diff);
    assert_eq!(world.pods[&first]["spec"]["containers"][0]["image"], "b");
    assert_eq!((diff.children.len(), diff.deletes.len()), (1, 0));
    // Children that are not wanted are deleted as always.
    assert_eq!(missing(Update::OnDelete, &wanted(1, "b"), &world.view).deletes.len(), 2);
}
