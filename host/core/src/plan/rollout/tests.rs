//! A rollout in a small world of its own, seeded: Pods become ready when they like, go when they like, and the view tells
//! of both late. Only the plan's own writes are always shown, as R2 has it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::contract::{Child, Outcome};
use crate::manifest::{ControllerSpec, OwnedKind, Predicate, Update};
use crate::object::{Interner, Kind, Object};
use crate::plan::{Applied, Diff, diff, prepare};
use crate::store::Snapshot;
use crate::write::WriteOp;

/// More turns than any rollout of these sizes takes.
const MAX_TURNS: usize = 2_000;

fn decode(value: &Value) -> Object {
    Object::decode(value.to_string().as_bytes(), &mut Interner::default()).unwrap()
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
        builtin: false,
        selection: Predicate::default(),
        owns: vec![OwnedKind { kind: Kind::new("v1", "Pod"), update }],
        reads: Vec::new(),
        writes: [].into(),
        finalize: false,
        concurrency: 1,
    }
}

/// What is wanted: this many Pods of an image.
fn wanted(count: usize, image: &str) -> Outcome {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": image}]}});
    let child = |key: usize| Child { key: key.to_string().into(), object: pod.to_string().into() };
    Outcome { children: Some((0..count).map(child).collect()), ..Outcome::default() }
}

fn missing(update: Update, outcome: &Outcome, view: &BTreeMap<String, Value>) -> Diff {
    let prepared = prepare(&spec(update), &primary(), outcome, None).unwrap();
    let snapshot = Snapshot::of(&[Kind::new("v1", "Pod")], view.values().map(decode));
    diff(&prepared, &spec(update), &primary(), "mortise/crowd", &snapshot, &mut Applied::new())
}

/// Numbers that look random and are the same for a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn one_in(&mut self, of: u64) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).is_multiple_of(of)
    }
}

/// Pods as they are, and as the view shows them.
#[derive(Default)]
struct World {
    pods: BTreeMap<String, Value>,
    view: BTreeMap<String, Value>,
    made: usize,
}

impl World {
    fn carry_out(&mut self, diff: &Diff) {
        for op in &diff.children {
            let WriteOp::Create { target, body } = op else { panic!("{op:?}") };
            let mut pod: Value = serde_json::from_str(body).unwrap();
            self.made += 1;
            pod["metadata"]["uid"] = json!(format!("p-{}", self.made));
            pod["metadata"]["resourceVersion"] = json!(self.made.to_string());
            assert!(self.pods.insert(target.name.to_string(), pod).is_none(), "{target} is made over another");
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

    /// Some Pods become ready, some that are going are gone, and some of that is shown.
    fn pass(&mut self, random: &mut Random) {
        for (name, pod) in std::mem::take(&mut self.pods) {
            let is_going = !pod["metadata"]["deletionTimestamp"].is_null();
            if is_going && random.one_in(3) {
                continue;
            }
            let mut pod = pod;
            if !is_going && random.one_in(4) {
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

    /// Pods that serve, of any image.
    fn available(&self) -> usize {
        self.of(|pod| pod["metadata"]["deletionTimestamp"].is_null() && !pod["status"].is_null())
    }

    fn serving(&self, image: &str) -> usize {
        self.of(|pod| !pod["status"].is_null() && pod["spec"]["containers"][0]["image"] == image)
    }

    fn of(&self, is_it: impl Fn(&Value) -> bool) -> usize {
        self.pods.values().filter(|pod| is_it(pod)).count()
    }
}

#[test]
fn never_more_than_may_be_unavailable_are_unavailable_at_any_instant() {
    let mut turns = 0;
    for seed in 0..200 {
        let mut random = Random(seed);
        let count = 1 + (seed % 7) as usize;
        let max_unavailable = 1 + (seed % 3) as u32;
        let update = Update::RollingRecreate { max_unavailable };
        let mut world = World::default();
        let (before, after) = (wanted(count, "a"), wanted(count, "b"));
        world.carry_out(&missing(update, &before, &world.view));
        while world.serving("a") < count || world.view != world.pods {
            world.pass(&mut random);
        }
        let least = count.saturating_sub(max_unavailable as usize);
        let mut left = MAX_TURNS;
        while world.serving("b") < count {
            world.carry_out(&missing(update, &after, &world.view));
            assert!(world.available() >= least, "seed {seed}: {} of {count} serve", world.available());
            world.pass(&mut random);
            left = left.checked_sub(1).unwrap_or_else(|| panic!("seed {seed}: the rollout does not come to its end"));
        }
        turns += MAX_TURNS - left;
        world.view.clone_from(&world.pods);
        assert_eq!(missing(update, &after, &world.view), Diff::default(), "seed {seed}: at rest");
    }
    assert!(turns > 1_000, "the rollouts took their time: {turns}");
}

#[test]
fn a_version_that_never_serves_stops_the_rollout_at_what_may_be_unavailable() {
    let update = Update::RollingRecreate { max_unavailable: 2 };
    let mut world = World::default();
    let mut random = Random(7);
    world.carry_out(&missing(update, &wanted(6, "a"), &world.view));
    while world.available() < 6 || world.view != world.pods {
        world.pass(&mut random);
    }
    for _ in 0..50 {
        world.carry_out(&missing(update, &wanted(6, "broken"), &world.view));
        world.pods.retain(|_, pod| pod["metadata"]["deletionTimestamp"].is_null());
        world.view.clone_from(&world.pods);
    }
    assert_eq!((world.serving("a"), world.pods.len()), (4, 6));
    // The next version replaces those first that serve nobody, and nobody waits for them.
    let next = missing(update, &wanted(6, "b"), &world.view);
    let idle = next.deletes.iter().filter(|op| world.pods[&op.target().name.to_string()]["status"].is_null());
    assert_eq!((idle.count(), next.deletes.len()), (2, 2));
}

#[test]
fn what_is_left_until_somebody_deletes_it_is_made_anew_as_it_is_wanted_then() {
    let mut world = World::default();
    world.carry_out(&missing(Update::OnDelete, &wanted(3, "a"), &world.view));
    assert_eq!(missing(Update::OnDelete, &wanted(3, "b"), &world.view), Diff::default());
    let first = world.view.keys().next().unwrap().clone();
    world.pods.remove(&first);
    world.view.remove(&first);
    let diff = missing(Update::OnDelete, &wanted(3, "b"), &world.view);
    world.carry_out(&diff);
    assert_eq!(world.pods[&first]["spec"]["containers"][0]["image"], "b");
    assert_eq!((diff.children.len(), diff.deletes.len()), (1, 0));
    // What is not wanted at all goes as ever.
    assert_eq!(missing(Update::OnDelete, &wanted(1, "b"), &world.view).deletes.len(), 2);
}
