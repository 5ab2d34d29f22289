//! Recovery from what no watch reports: lost events, and an etcd that was restored from a backup.

use serde_json::json;

use super::cluster::{Cluster, pod, reference};
use super::environment::{named, object};
use super::faults::Fault;
use super::guests::{Guest, Program, crd_name, podset_kind};
use super::oracle::Violation;
use super::tests::{number_from, trace_lines};
use super::world::{Mutant, World};

const SEEDS: u64 = 100;
const AUDIT_MS: u64 = 600_000;

/// Runs a scenario with many seeds, and panics with the trace of one that fails.
fn check(scenario: impl Fn(&mut World) -> Result<(), Violation>) {
    let mut injected = 0;
    let (first, count) = number_from("MORTISE_SEED").map_or((1, SEEDS), |seed| (seed, 1));
    for seed in first..first + count {
        let mut world = World::new(seed, Mutant::None).auditing(AUDIT_MS);
        if scenario(&mut world).is_err() {
            let mut world = World::new(seed, Mutant::None).auditing(AUDIT_MS).traced(trace_lines());
            let violation = scenario(&mut world).err();
            let lines: Vec<String> = world.trace.into_iter().flatten().collect();
            panic!("seed {seed} fails (MORTISE_SEED={seed} repeats it)\n{}\n{violation:?}", lines.join("\n"));
        }
        injected += world.faults.injected.get(&Fault::EventLost).copied().unwrap_or_default();
        injected += world.faults.injected.get(&Fault::Restored).copied().unwrap_or_default();
    }
    assert!(injected >= count, "the fault was injected {injected} times");
}

#[test]
fn r6_audits_find_events_that_watches_have_lost_and_the_cluster_converges() {
    check(|world| {
        // No rule about views holds while events are missing; check the end only.
        world.oracle.is_asleep = true;
        world.faults.silent = true;
        world.run(30_000)
    });
}

#[test]
fn r3_r4_a_host_relists_everything_after_a_restore_of_etcd_and_converges_without_a_restart() {
    check(|world| {
        world.begin()?;
        world.run_until(12_000)?;
        let backup = world.cluster.clone();
        world.run_until(20_000)?;
        let raised = world.random.chance(500);
        world.restore(&backup, raised)?;
        world.run_until(30_000)?;
        world.calm();
        world.converge()
    });
}

#[test]
fn a_restored_model_has_its_old_objects_and_assigns_no_uid_twice() {
    let mut cluster = Cluster::new(1);
    let guest = Guest::new(Program::PodSet, 1);
    cluster.define(guest.name(), &crd_name(&podset_kind()), &guest.definition()).unwrap();
    let set = |name| object(&podset_kind(), name, &json!({"replicas": 1}));
    for name in ["kept", "changed", "gone"] {
        cluster.put(set(name)).unwrap();
    }
    let backup = cluster.clone();
    let version_of = |cluster: &Cluster, name| {
        cluster.get(&named(&podset_kind(), name)).unwrap()["metadata"]["resourceVersion"].clone()
    };
    let uid_of =
        |cluster: &Cluster, name| cluster.get(&named(&podset_kind(), name)).map(|live| live["metadata"]["uid"].clone());
    cluster.edit(&named(&podset_kind(), "changed"), &json!({"spec": {"replicas": 2}}));
    cluster.remove(&named(&podset_kind(), "gone"));
    cluster.put(set("later")).unwrap();
    let later = uid_of(&cluster, "later");
    for raised in [false, true] {
        let newest = cluster.version();
        cluster.restore(&backup, raised);
        let names: Vec<String> = cluster.list(&podset_kind()).map(|live| reference(live).name.to_string()).collect();
        assert_eq!(names, ["default/changed", "default/gone", "default/kept"]);
        let changed = cluster.get(&named(&podset_kind(), "changed")).unwrap();
        assert_eq!(changed["spec"]["replicas"], 1);
        assert_eq!(version_of(&cluster, "changed"), version_of(&backup, "changed"));
        assert_eq!(cluster.version() > newest, raised);
        assert!(cluster.lives.values().all(|life| life.deleted_at.is_none()));
        assert_eq!(cluster.lives.len(), backup.lives.len());
        cluster.put(set("later")).unwrap();
        assert_ne!(uid_of(&cluster, "later"), later);
        assert_eq!(cluster.history(&podset_kind().into()).len(), 4, "changes since the backup are gone");
        assert!(cluster.list(&pod()).next().is_none());
    }
}
