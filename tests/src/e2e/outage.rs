//! Outages of the API server, and rights revoked and restored: the host stays up, reports it, and recovers by itself.

use std::time::Duration;

use serde_json::json;

use super::pods::Witness;
use super::reload::{create_sets, scale, wait_converged};
use super::rights;
use super::world::{RESTRICTED, World, built, count_from_env};

/// Time without the API server. `MORTISE_E2E_OUTAGE_S` raises it.
const OUTAGE_S: usize = 5;
/// How long a host without the right to read Pods must not write: ten times what it takes to react to a change.
const BLIND: Duration = Duration::from_secs(3);

#[test]
fn the_host_survives_outages_of_the_api_server_at_its_start_and_later() {
    let mut world = World::new("outage");
    let outage = Duration::from_secs(count_from_env("MORTISE_E2E_OUTAGE_S", OUTAGE_S) as u64);
    world.offer("podset", &built("plugins/podset.wasm"));
    world.plane.stop_apiserver().unwrap();
    world.start_host();
    std::thread::sleep(Duration::from_secs(1));
    assert!(world.host().process.ended().unwrap().is_none(), "the host has exited");
    world.plane.start_apiserver().unwrap();
    world.wait_ready("podset");
    let witness = Witness::watch(&world);
    create_sets(&world, 10, 2);
    wait_converged(&world, &witness, 10, 2);

    for index in 0..10 {
        scale(&world, index, 4);
    }
    world.plane.stop_apiserver().unwrap();
    std::thread::sleep(outage);
    assert!(world.host().process.ended().unwrap().is_none(), "the host has exited");
    world.plane.start_apiserver().unwrap();
    wait_converged(&world, &witness, 10, 4);
    assert!(witness.with(|seen| seen.doubles.clone()).is_empty());
}

#[test]
fn invalid_credentials_are_reported_as_such_and_not_as_a_missing_right() {
    let mut world = World::new("credentials");
    let text = std::fs::read_to_string(world.plane.kubeconfig(RESTRICTED).unwrap()).unwrap();
    let mut kubeconfig: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"]["token"] = json!("of-yesterday");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), kubeconfig.to_string()).unwrap();
    world.start_host_with(file.path(), &[]);
    world.until("the host logs it", || {
        world.log_since_start().contains("credentials were not accepted (Unauthorized)").then_some(())
    });
    let log = world.log_since_start();
    assert!(
        !log.contains("mortise rbac") && !log.contains("\"verbs\""),
        "the log suggests a rule, which would not help:\n{log}"
    );
    assert!(world.host().process.ended().unwrap().is_none(), "the host has exited");
}

/// A world whose host has its own rights and no plugin's.
fn restricted_world(name: &str) -> World {
    let mut world = World::new(name);
    rights::start_restricted(&mut world);
    world.offer("podset", &built("plugins/podset.wasm"));
    world
}

/// Gives the host the rights that podset needs, and returns their role.
fn permit_podset(world: &mut World) -> String {
    let role = rights::give(world, "podset");
    world.wait_ready("podset");
    role
}

#[test]
fn r5_missing_rights_are_reported_with_the_rule_to_add_and_restored_without_a_restart() {
    let mut world = restricted_world("rights");
    let message = world.wait_condition("podset", "Permitted", "False", "Forbidden");
    for part in ["cannot watch resource", "\"verbs\":", "\"resources\":"] {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    let role = permit_podset(&mut world);
    let witness = Witness::watch(&world);
    create_sets(&world, 2, 2);
    wait_converged(&world, &witness, 2, 2);

    world.kubectl(&["delete", "clusterrolebinding", "e2e-podset"]);
    scale(&world, 0, 3);
    world.wait_condition("podset", "Permitted", "False", "Forbidden");
    rights::bind(&world, "podset", &role);
    scale(&world, 1, 3);
    wait_converged(&world, &witness, 2, 3);
    world.wait_condition("podset", "Permitted", "True", "Allowed");
}

#[test]
fn r5_pods_that_are_no_longer_readable_do_not_count_as_deleted() {
    let mut world = restricted_world("blind");
    let role = permit_podset(&mut world);
    let witness = Witness::watch(&world);
    create_sets(&world, 2, 3);
    wait_converged(&world, &witness, 2, 3);

    // Creates and deletes stay allowed: only the host itself keeps it from sending them.
    let plane = world.plane;
    let allow_of_pods = |verbs: &[&str]| {
        let patch = json!([
            {"op": "test", "path": "/rules/0/resources", "value": ["pods"]},
            {"op": "replace", "path": "/rules/0/verbs", "value": verbs},
        ]);
        plane.kubectl_output(&["patch", "clusterrole", &role, "--type=json", "-p", &patch.to_string()]).unwrap();
    };
    allow_of_pods(&["create", "delete"]);
    // An open watch stays open for some minutes; this closes it.
    plane.stop_apiserver().unwrap();
    plane.start_apiserver().unwrap();
    // Until it has loaded its rules, an API server refuses everything, so PodSets may be reported before Pods. For some
    // seconds after an outage the host ignores refusals and uses its cache.
    let message = world.until("the condition says that Pods may not be read", || {
        let permitted = world.condition("podset", "Permitted")?;
        let message = permitted["message"].as_str()?.to_owned();
        (permitted["reason"] == "Forbidden" && message.contains("resource \"pods\"")).then_some(message)
    });
    for part in ["\"verbs\":", "list", "watch"] {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }

    world.mark_audit();
    scale(&world, 0, 1);
    scale(&world, 1, 5);
    // There is nothing to wait for: the test is that nothing happens.
    std::thread::sleep(BLIND);
    let writes = world.writes_by_host();
    let of_pods: Vec<_> = writes.iter().filter(|write| write.resource == "pods").collect();
    assert!(of_pods.is_empty(), "the host changed Pods that it cannot see: {of_pods:#?}");
    assert_eq!((witness.alive(), witness.with(|seen| seen.deleted.len())), (6, 0));

    for index in 0..2 {
        scale(&world, index, 2);
    }
    allow_of_pods(&["create", "delete", "get", "list", "watch"]);
    wait_converged(&world, &witness, 2, 2);
    world.wait_condition("podset", "Permitted", "True", "Allowed");
    assert_eq!(witness.with(|seen| seen.ever.len()), 6, "the host created Pods that existed");
}
