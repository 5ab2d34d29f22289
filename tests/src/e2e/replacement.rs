//! Pods of a PodSet that terminate slowly have successors meanwhile, as a ReplicaSet's do; those of a MyDaemonSet have
//! not. A watch of their Pods is the judge.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::pods::Witness;
use super::quiet::wait_until_quiet;
use super::world::{ENDS_AFTER, World};

/// From the deletion of one of three Pods until three are active again. It takes some hundredths of a second.
const REPLACED_WITHIN: Duration = Duration::from_secs(1);
/// What their kubelet takes to end slow Pods. A Pod's default grace period is as long.
const GRACE_S: u64 = 30;
/// The same for Pods whose end a test waits for: longer than a successor would take.
const SHORT_GRACE_S: u64 = 4;

/// A template whose Pods take their whole grace period.
fn slow() -> Value {
    let annotations = BTreeMap::from(ENDS_AFTER.map(|name| (name, format!("{GRACE_S}s"))));
    json!({
        "metadata": {"annotations": annotations},
        "spec": {"terminationGracePeriodSeconds": GRACE_S, "containers": [{"name": "web", "image": "busybox"}]},
    })
}

/// Names of Pods, by whether they are being deleted.
fn pods(world: &World) -> (Vec<String>, Vec<String>) {
    let format = "jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{\"\\n\"}{end}";
    let list = world.kubectl_here(&["get", "pods", "-o", format]);
    let (active, ending): (Vec<_>, Vec<_>) = list.lines().partition(|line| line.ends_with(' '));
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    (active.into_iter().map(name).collect(), ending.into_iter().map(name).collect())
}

fn is_in_status(world: &World, active: &[String]) -> bool {
    let path = "jsonpath={.status.podNames[*]}";
    let named = world.kubectl_here(&["get", "podset/example-podset", "-o", path]);
    named.split(' ').eq(active.iter().map(String::as_str))
}

/// Waits until three Pods are active and in the status.
fn wait_for_three(world: &World) -> Vec<String> {
    world.until("three Pods are active and in the status", || {
        let (active, _) = pods(world);
        (active.len() == 3 && is_in_status(world, &active)).then_some(active)
    })
}

/// Deletes a Pod, and waits for its successor. Returns how long that took.
fn delete(world: &World, witness: &Witness, pod: &str) -> Duration {
    let created = witness.with(|seen| seen.ever.len());
    let began = Instant::now();
    world.kubectl_here(&["delete", "pod", pod, "--wait=false"]);
    world.until("a successor is active", || {
        let ever = witness.with(|seen| seen.ever.len());
        (ever == created + 1 && witness.alive() == 3).then(|| began.elapsed())
    })
}

/// What the host has written since the mark in the audit log.
fn writes(world: &World) -> Vec<String> {
    world.writes_by_host().iter().map(|record| format!("{} {}", record.verb, record.resource)).collect()
}

#[test]
fn x3_a_deleted_pod_of_a_set_is_replaced_while_it_terminates_and_never_are_more_than_three_active() {
    let mut world = World::with_podset("replacement");
    let witness = Witness::watch(&world);
    let mut set = world.podset("example-podset", 3);
    set["spec"]["template"] = slow();
    world.mark_audit();
    world.apply(&set);
    let first = wait_for_three(&world);
    wait_until_quiet(&world, "podset");
    assert_eq!(writes(&world).len(), 4, "three Pods and a status: {:?}", writes(&world));

    let mut expected = vec!["patch podsets", "create pods", "patch podsets"];
    for victim in &first[..2] {
        world.mark_audit();
        let took = delete(&world, &witness, victim);
        assert!(took < REPLACED_WITHIN, "{took:?}");
        wait_for_three(&world);
        wait_until_quiet(&world, "podset");
        assert_eq!(writes(&world), expected, "the first time it marks the PodSet");
        expected.remove(0);
        println!(
            "replacement: three of three active {took:?} after a Pod was deleted, {} writes",
            writes(&world).len()
        );
    }
    let (active, ending) = pods(&world);
    assert_eq!(ending, first[..2], "both predecessors terminate still");
    assert!(active.contains(&first[2]) && active.len() == 3, "{active:?}");

    // A successor has a successor too, also after a restart of the host.
    let heir = active.iter().find(|pod| !first.contains(pod)).unwrap().clone();
    delete(&world, &witness, &heir);
    wait_for_three(&world);
    world.kill_host();
    world.mark_audit();
    world.start_host();
    world.wait_ready("podset");
    world.kubectl_here(&["delete", "pod", &first[0], &first[1], &heir, "--grace-period=0", "--force"]);
    world.until("the predecessors are gone", || pods(&world).1.is_empty().then_some(()));
    wait_until_quiet(&world, "podset");
    assert_eq!(writes(&world), Vec::<String>::new(), "their end changes nothing");
    let (most, doubles) = witness.with(|seen| (seen.most, seen.doubles.clone()));
    assert_eq!((most, doubles), (3, Vec::new()));
}

#[test]
fn x3_a_pod_of_a_node_is_replaced_when_it_is_gone_and_never_doubled() {
    let mut world = World::with_plugin("replaced-when-gone", "mydaemonset");
    let witness = Witness::watch(&world);
    world.apply_sample("mydaemonset");
    let nodes = world.kubectl(&["get", "nodes", "-o", "name"]).lines().count();
    world.until("every Node has a ready Pod", || (nodes > 0 && witness.ready() == nodes).then_some(()));
    wait_until_quiet(&world, "mydaemonset");
    let victim = pods(&world).0.remove(0);
    let [kwok, local] = ENDS_AFTER.map(|name| format!("{name}={SHORT_GRACE_S}s"));
    world.kubectl_here(&["annotate", "pod", &victim, &kwok, &local]);
    wait_until_quiet(&world, "mydaemonset");
    world.mark_audit();
    let began = Instant::now();
    world.kubectl_here(&["delete", "pod", &victim, "--wait=false"]);
    world.until("the Pod has a successor", || (witness.with(|seen| seen.ever.len()) > nodes).then_some(()));
    assert!(began.elapsed() >= Duration::from_secs(SHORT_GRACE_S), "{:?}", began.elapsed());
    world.until("the successor is ready", || (witness.ready() == nodes).then_some(()));
    assert!(pods(&world).0.contains(&victim), "it has its predecessor's name");
    wait_until_quiet(&world, "mydaemonset");
    let creates = writes(&world).into_iter().filter(|write| !write.ends_with("mydaemonsets")).collect::<Vec<_>>();
    assert_eq!(creates, ["create pods"], "beside statuses, which count the Pods that are ready");
    let (most, doubles) = witness.with(|seen| (seen.most, seen.doubles.clone()));
    assert_eq!((most, doubles), (nodes, Vec::new()));
}
