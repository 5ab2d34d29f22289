//! etcd restored from a backup under a running host: the API server's versions go back, and no watch reports it.

use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams};
use mortise_control_plane::ADMIN;
use serde_json::json;

use super::pods::Witness;
use super::reload::{create_sets, scale, wait_converged};
use super::world::{World, built};

/// Changes between the backup and its restore: so many that a watch from an earlier version sees no event after the
/// restore during the test.
const CHANGES: usize = 3_000;
const AT_ONCE: usize = 100;
/// How long the recovered host has to be idle.
const QUIET: Duration = Duration::from_secs(5);

/// Advances the cluster's resource versions.
fn advance_versions(world: &World) {
    let api = world.api("v1", "ConfigMap", Some("default"));
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "age", "namespace": "default"}});
    world.apply(&object);
    let change = async |number: usize| {
        let patch: Patch<serde_json::Value> = Patch::Merge(json!({"data": {"number": number.to_string()}}));
        let changed: DynamicObject = api.patch("age", &PatchParams::default(), &patch).await.unwrap();
        drop(changed);
    };
    world.block_on(async {
        for batch in 0..CHANGES / AT_ONCE {
            futures::future::join_all((0..AT_ONCE).map(|number| change(batch * AT_ONCE + number))).await;
        }
    });
}

#[test]
fn a_host_recovers_without_a_restart_when_etcd_is_restored_from_a_backup() {
    let mut world = World::new("restore");
    // With a Lease, which is restored like everything else.
    world.start_host_as(ADMIN, &["--leader-elect"]);
    world.offer("podset", &built("plugins/podset.wasm"));
    world.wait_ready("podset");
    let witness = Witness::watch(&world);
    create_sets(&world, 3, 2);
    wait_converged(&world, &witness, 3, 2);

    let backup = world.plane.back_up().unwrap();
    scale(&world, 0, 4);
    world.kubectl_here(&["delete", "podset", "set-1"]);
    world.apply(&world.podset("later", 1));
    world.until("the changes since the backup are reconciled", || (witness.alive() == 4 + 2 + 1).then_some(()));
    drop(witness);
    advance_versions(&world);
    world.plane.restore(&backup).unwrap();

    // A new watch, since the old one would not see events either.
    let witness = Witness::watch(&world);
    world.until("the host notices", || (world.metric("mortise_etcd_restores_total", "") >= 1.0).then_some(()));
    wait_converged(&world, &witness, 3, 2);
    for index in 0..3 {
        scale(&world, index, 3);
    }
    wait_converged(&world, &witness, 3, 3);
    world.kubectl_here(&["delete", "pods", "--all", "--wait=false"]);
    world.until("every Pod is deleted", || (witness.with(|seen| seen.deleted.len()) >= 9).then_some(()));
    wait_converged(&world, &witness, 3, 3);

    assert!(witness.with(|seen| seen.doubles.clone()).is_empty());
    assert_eq!(world.metric("mortise_cache_lagging_total", ""), 0.0, "the host waited for old versions");
    assert_eq!(world.metric("leader_election_master_status", ""), 1.0);
    world.mark_audit();
    // There is nothing to wait for: the test is that nothing happens.
    std::thread::sleep(QUIET);
    let writes = world.writes_by_host();
    let of_objects: Vec<_> = writes.iter().filter(|write| write.resource != "leases").collect();
    assert!(of_objects.is_empty(), "{of_objects:#?}");
    assert!(world.host().process.ended().unwrap().is_none());
}
