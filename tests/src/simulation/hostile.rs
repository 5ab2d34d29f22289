//! Plugins, other controllers and policies of the cluster that never rest, and objects that are damaged. What the host writes
//! stays bounded, its status says why, and it converges when they stop.

use mortise_core::object::{Kind, Name, ObjectRef};
use serde_json::{Value, json};

use super::cluster::{config_map, is_deleting, pod, reference};
use super::environment::{named, object};
use super::guests::{Guest, Program, podset_kind, site_kind, widget_kind};
use super::oracle::Violation;
use super::world::{Mutant, World};

const MINUTE_MS: u64 = 60_000;
/// Longer than an open breaker and the longest backoff of a missing right.
const SETTLED_MS: u64 = 10 * MINUTE_MS;
/// Reconciles of a key that never rests until its breaker opens: fifty in a burst and one in two seconds.
const FIRST_MINUTE: usize = 70;
/// Until it opens, when there is one a second.
const FIRST_TWO_MINUTES: usize = 110;
/// Then it is open for five minutes, and after them for five more after a few reconciles.
const FIVE_MINUTES: usize = 16;
/// The opening, and two pauses with what is between.
const MINUTES: usize = 13;

fn world_of(guest: Guest, config: &str) -> World {
    let mut world = World::new(1, Mutant::None).traced(100);
    world.offer(guest, config);
    world.start().unwrap();
    world.rest(MINUTE_MS).unwrap();
    world
}

/// One object of a script.
fn scripted(script: &Value) -> World {
    let mut world = world_of(Guest::new(Program::Scripted, 1), &script.to_string());
    world.cluster.put(object(&widget_kind(), "w", &json!({}))).unwrap();
    world
}

fn site() -> World {
    let mut world = world_of(Guest::new(Program::Site, 1), "{}");
    world.cluster.put(object(&site_kind(), "home", &json!({"text": "hello"}))).unwrap();
    world
}

fn podset(replicas: usize) -> World {
    let mut world = world_of(Guest::new(Program::PodSet, 1), "{}");
    world.cluster.put(object(&podset_kind(), "web", &json!({"replicas": replicas}))).unwrap();
    world.rest(MINUTE_MS).unwrap();
    world
}

/// How many writes there are in each minute, while something is done ten times a second.
fn writes_by_minute(world: &mut World, minutes: usize, mut act: impl FnMut(&mut World)) -> Vec<usize> {
    let mut counts = Vec::new();
    for _ in 0..minutes {
        let before = world.requests.len();
        for _ in 0..600 {
            act(world);
            world.run_until(world.now_ms + 100).unwrap();
        }
        counts.push(world.requests.len() - before);
    }
    counts
}

/// The bounds of a key that never rests and has so many writes in a reconcile.
#[track_caller]
fn check_cut(counts: &[usize], writes: usize) {
    let [first, second, later @ ..] = counts else { panic!("no minute was counted") };
    assert!((20..=FIRST_MINUTE * writes).contains(first), "{counts:?}");
    assert!(first + second <= FIRST_TWO_MINUTES * writes, "{counts:?}");
    let most = later.windows(5).map(|minutes| minutes.iter().sum::<usize>()).max().unwrap_or_default();
    assert!((1..=FIVE_MINUTES * writes).contains(&most), "{counts:?}");
}

/// The reason of a condition that is True.
fn reason(world: &World, target: &ObjectRef, name: &str) -> Option<String> {
    let live = world.cluster.get(target)?;
    let conditions = live["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|found| found["type"] == name && found["status"] == "True")?;
    found["reason"].as_str().map(str::to_owned)
}

fn content(world: &World) -> Option<ObjectRef> {
    world.cluster.list(&config_map()).find(|found| found["data"]["index.html"].is_string()).map(reference)
}

#[test]
fn h23_p13_a_status_that_differs_in_every_call_is_cut() {
    let mut world = scripted(&json!({"showsTime": true, "requeueAfterMs": 0}));
    check_cut(&writes_by_minute(&mut world, MINUTES, |_| {}), 1);
    assert_eq!(reason(&world, &named(&widget_kind(), "w"), "Stalled").as_deref(), Some("Fighting"));
}

#[test]
fn h22_conditions_and_events_that_differ_in_every_call_are_cut() {
    let events: Vec<Value> = (0..16).map(|n| json!({"reason": "Flood", "message": format!("event {n}")})).collect();
    let mut world = scripted(&json!({"showsTime": true, "requeueAfterMs": 0, "events": events,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Flapping", "message": "up"}]}));
    world.log = Some(Vec::new());
    check_cut(&writes_by_minute(&mut world, MINUTES, |_| {}), 1);
    let sent = world.log.take().into_iter().flatten().filter(|line| line.starts_with("event ")).count();
    assert!((16..=60).contains(&sent), "{sent} Events of sixteen in every call");
}

#[test]
fn h28_a_plugin_that_traps_now_and_then_is_called_and_reported_within_bounds() {
    let mut world = scripted(&json!({"trapsOddly": true, "requeueAfterMs": 0, "status": {"phase": "up"}}));
    world.log = Some(Vec::new());
    let calls = world.calls;
    let counts = writes_by_minute(&mut world, MINUTES, |_| {});
    // That it is stalled, and that it is not: two writes in two seconds, as often as a breaker admits what a call wants.
    assert!(counts.iter().all(|writes| (1..=65).contains(writes)), "{counts:?}");
    let calls = (world.calls - calls) / MINUTES as u64;
    assert!((10..=400).contains(&calls), "{calls} calls a minute: backoff begins anew after each success");
    let log: Vec<String> = world.log.take().into_iter().flatten().collect();
    let events = log.iter().filter(|line| line.starts_with("event ")).count();
    let reports = log.iter().filter(|line| line.starts_with("report ")).count();
    assert!(events <= 40 && reports <= 15 * MINUTES, "{events} Events and {reports} writes of the Plugin's status");
}

#[test]
fn h24_h25_children_that_are_deleted_in_every_second_call_are_cut() {
    let child =
        |key: &str| json!({"key": key, "object": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}});
    let mut world = scripted(&json!({"flips": true, "children": [child("one"), child("two")]}));
    check_cut(&writes_by_minute(&mut world, MINUTES, |_| {}), 2);
    assert_eq!(reason(&world, &named(&widget_kind(), "w"), "Stalled").as_deref(), Some("Fighting"));
}

#[test]
fn f26_a_controller_that_reverts_each_change_is_fought_for_a_while_and_then_reported() {
    let mut world = site();
    world.rest(MINUTE_MS).unwrap();
    let revert = |world: &mut World| {
        let target = content(world).expect("the page exists");
        world.cluster.edit(&target, &json!({"data": {"index.html": "theirs"}}));
    };
    check_cut(&writes_by_minute(&mut world, MINUTES, revert), 1);
    let home = named(&site_kind(), "home");
    assert_eq!(reason(&world, &home, "Stalled").as_deref(), Some("Fighting"));
    world.rest(SETTLED_MS).unwrap();
    let page = content(&world).unwrap();
    assert_eq!(world.cluster.get(&page).unwrap()["data"]["index.html"], "hello", "the other controller has ended");
    assert_eq!(reason(&world, &home, "Stalled"), None);
    world.check_quiet().unwrap();
}

/// A policy of the cluster's administrator that changes each object of a kind as it is written.
fn install_policy(world: &mut World, resource: &str, mutation: &str) {
    let group = "admissionregistration.k8s.io/v1";
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE", "UPDATE"]});
    let policy = json!({
        "apiVersion": group, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "change"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation}}],
        },
    });
    let binding = json!({
        "apiVersion": group, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "change"},
        "spec": {"policyName": "change"},
    });
    world.cluster.put(policy).unwrap();
    world.cluster.put(binding).unwrap();
}

#[test]
fn f27_x5_what_a_mutating_policy_adds_to_every_child_causes_no_second_write() {
    for (kind, resource, mutation) in [
        (site_kind(), "configmaps", "Object{metadata: Object.metadata{labels: {'added': 'yes'}}}"),
        (podset_kind(), "pods", "Object{metadata: Object.metadata{annotations: {'added': 'yes'}}}"),
        (podset_kind(), "pods", "Object{spec: Object.spec{hostname: 'injected'}}"),
    ] {
        let program = if kind == site_kind() { Program::Site } else { Program::PodSet };
        let mut world = world_of(Guest::new(program, 1), "{}");
        install_policy(&mut world, resource, mutation);
        world.cluster.put(object(&kind, "home", &json!({"text": "hello", "replicas": 2}))).unwrap();
        world.rest(SETTLED_MS).unwrap();
        let is_changed =
            |found: &&Value| found.to_string().contains("added") || found["spec"]["hostname"] == "injected";
        let (children, wanted) = if kind == site_kind() { (config_map(), 1) } else { (pod(), 2) };
        let changed = world.cluster.list(&children).filter(is_changed).count();
        assert_eq!(changed, wanted, "{mutation}");
        world.check_quiet().unwrap();
        world.crash().unwrap();
        let before = world.requests.len();
        world.rest(SETTLED_MS).unwrap();
        assert_eq!(world.requests[before..], [""; 0], "{mutation}");
    }
}

#[test]
fn f27_a_mutating_policy_that_takes_back_what_a_plugin_wants_is_cut() {
    let mut world = world_of(Guest::new(Program::Site, 1), "{}");
    let theirs = "Object{data: {'index.html': 'theirs'}}";
    install_policy(&mut world, "configmaps", theirs);
    world.cluster.put(object(&site_kind(), "home", &json!({"text": "hello"}))).unwrap();
    let counts = writes_by_minute(&mut world, MINUTES, |_| {});
    assert!(counts.iter().sum::<usize>() <= FIRST_TWO_MINUTES + 2 * FIVE_MINUTES, "{counts:?}");
    let page = content(&world).expect("the page exists");
    assert_eq!(world.cluster.get(&page).unwrap()["data"]["index.html"], "theirs", "the policy has changed it");
}

/// A set that grows and is deleted at a moment in between.
fn deleted_while_it_grows(seed: u64, propagation: &str) -> Result<World, Violation> {
    let mut world = World::new(seed, Mutant::None);
    world.offer(Guest::new(Program::PodSet, 1), "{}");
    world.start()?;
    world.rest(MINUTE_MS)?;
    world.cluster.put(object(&podset_kind(), "web", &json!({"replicas": 2}))).unwrap();
    world.rest(MINUTE_MS)?;
    let set = named(&podset_kind(), "web");
    world.cluster.edit(&set, &json!({"spec": {"replicas": 8}}));
    let grows_ms = world.random.between(1, 60);
    world.run_until(world.now_ms + grows_ms)?;
    world.cluster.delete_with(&set, propagation).unwrap();
    world.rest(SETTLED_MS)?;
    world.check_quiet()?;
    Ok(world)
}

#[test]
fn f28_a_set_that_is_deleted_while_its_pods_are_created_leaves_none_or_orphans_without_an_owner() {
    for seed in 1..=40 {
        let world =
            deleted_while_it_grows(seed, "Foreground").unwrap_or_else(|violation| panic!("{seed}: {violation}"));
        let left: Vec<ObjectRef> = world.cluster.list(&pod()).map(reference).collect();
        assert_eq!((world.cluster.list(&podset_kind()).count(), left), (0, vec![]), "seed {seed}");

        let world = deleted_while_it_grows(seed, "Orphan").unwrap_or_else(|violation| panic!("{seed}: {violation}"));
        assert_eq!(world.cluster.list(&podset_kind()).count(), 0, "seed {seed}");
        let orphans: Vec<&Value> = world.cluster.list(&pod()).collect();
        assert!((2..=8).contains(&orphans.len()), "seed {seed}: {} Pods", orphans.len());
        let is_free = |pod: &&Value| pod["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty);
        assert!(orphans.iter().all(is_free), "seed {seed}: {orphans:?}");
    }
}

#[test]
fn f35_damaged_children_are_replaced_or_reported_and_never_doubled() {
    let other_uid = "00000000-0000-4000-8000-000000000001";
    for damage in [
        json!({"metadata": {"annotations": {"mortise.dev/child": null}}}),
        json!({"metadata": {"annotations": {"mortise.dev/child": "1"}}}),
        json!({"metadata": {"annotations": {"mortise.dev/child": "\u{0}7"}}}),
        json!({"metadata": {"annotations": null}}),
        json!({"metadata": {"labels": null}}),
        json!({"metadata": {"ownerReferences": null}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "web",
            "uid": other_uid, "controller": true, "blockOwnerDeletion": true}]}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet", "name": "veb",
            "uid": "UID", "controller": true}]}}),
    ] {
        let mut world = podset(3);
        // Some damages make two children of one key.
        world.oracle.is_asleep = true;
        let set = named(&podset_kind(), "web");
        let uid = world.cluster.get(&set).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let victim = world.cluster.list(&pod()).next().map(reference).unwrap();
        let damage: Value = serde_json::from_str(&damage.to_string().replace("UID", &uid)).unwrap();
        assert!(world.cluster.edit(&victim, &damage), "{damage} changes nothing");
        let before = world.requests.len();
        world.rest(SETTLED_MS).unwrap();
        let sent = world.requests.len() - before;
        assert!(sent <= 8, "{damage}: {:?}", &world.requests[before..]);
        let owned = |world: &World| {
            let is_owned =
                |found: &&Value| found["metadata"]["ownerReferences"][0]["uid"] == *uid && !is_deleting(found);
            (world.cluster.list(&pod()).filter(is_owned).count(), reason(world, &set, "Stalled"))
        };
        if owned(&world) == (2, Some("ChildExists".to_owned())) {
            // Nothing controls it any more and it has the child's name, so a person decides.
            world.cluster.delete(&victim).unwrap();
            world.rest(SETTLED_MS).unwrap();
        }
        assert_eq!(owned(&world), (3, None), "{damage}: {:?}", &world.requests[before..]);
        world.check_quiet().unwrap_or_else(|violation| panic!("{damage}: {violation}"));
    }
}

#[test]
fn f24_a_namespace_that_terminates_costs_few_requests_and_concerns_no_other() {
    let mut world = world_of(Guest::new(Program::PodSet, 1), "{}");
    let in_north = |replicas: usize| {
        let mut set = object(&podset_kind(), "web", &json!({"replicas": replicas}));
        set["metadata"]["namespace"] = json!("north");
        set
    };
    world.cluster.put(in_north(2)).unwrap();
    world.cluster.put(object(&podset_kind(), "web", &json!({"replicas": 2}))).unwrap();
    world.rest(MINUTE_MS).unwrap();
    let set = ObjectRef { kind: podset_kind(), name: Name::new("north", "web") };
    // No controller of the model empties it.
    let north = ObjectRef { kind: Kind::new("v1", "Namespace"), name: Name::new("", "north") };
    world.cluster.delete(&north).unwrap();
    assert!(world.cluster.edit(&set, &json!({"spec": {"replicas": 4}})));
    let counts = writes_by_minute(&mut world, 10, |_| {});
    let later: usize = counts[1..].iter().sum();
    assert!(counts[0] <= 30 && later <= 60, "{counts:?}");
    assert!(reason(&world, &set, "Stalled").is_some(), "the object says that it cannot be created there");
    let health = world.engine.health();
    assert!(health.plugins.iter().all(|plugin| plugin.ready), "{:?}", health.plugins);
    let report = ObjectRef { kind: mortise_core::plugin_object::kind(), name: Name::new("", "podset") };
    assert_eq!(reason(&world, &report, "Permitted").as_deref(), Some("Allowed"), "no right is missing");

    assert!(world.cluster.edit(&named(&podset_kind(), "web"), &json!({"spec": {"replicas": 4}})));
    world.rest(5_000).unwrap();
    let in_default = |found: &&Value| found["metadata"]["namespace"] == "default";
    assert_eq!(world.cluster.list(&pod()).filter(in_default).count(), 4);
}
