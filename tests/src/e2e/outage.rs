//! The API server away, and rights taken away and given back: the host stays up, says what is wrong, and goes on by itself.

use std::time::Duration;

use super::pods::Witness;
use super::reload::{create_sets, scale, wait_converged};
use super::world::{HOST_NAMESPACE, RESTRICTED, World, built, count_from_env};

/// How long the API server is away. `MORTISE_E2E_OUTAGE_S` raises it.
const OUTAGE_S: usize = 5;

#[test]
fn the_host_survives_an_api_server_that_is_away_at_its_start_and_in_the_middle() {
    let mut world = World::new("outage");
    let outage = Duration::from_secs(count_from_env("MORTISE_E2E_OUTAGE_S", OUTAGE_S) as u64);
    world.offer("podset", &built("plugins/podset.wasm"));
    world.plane.stop_apiserver().unwrap();
    world.start_host();
    std::thread::sleep(Duration::from_secs(1));
    assert!(world.host().process.ended().unwrap().is_none(), "the host gave up");
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
    assert!(world.host().process.ended().unwrap().is_none(), "the host gave up");
    world.plane.start_apiserver().unwrap();
    wait_converged(&world, &witness, 10, 4);
    assert!(witness.with(|seen| seen.doubles.clone()).is_empty());
}

/// Grants the rules that `mortise rbac` prints, bound to the restricted user.
fn grant(world: &World, arguments: &[&str]) {
    let mut command = std::process::Command::new(built("debug/mortise"));
    let output = command.arg("rbac").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.plane.apply(&String::from_utf8(output.stdout).unwrap()).unwrap();
}

fn bind(world: &World, name: &str, cluster_role: &str) {
    world.kubectl(&["delete", "clusterrolebinding", name, "--ignore-not-found"]);
    let role = format!("--clusterrole={cluster_role}");
    world.kubectl(&["create", "clusterrolebinding", name, &role, &format!("--user={RESTRICTED}")]);
}

#[test]
fn r5_rights_that_are_missing_are_named_with_the_rule_to_add_and_given_back_without_a_restart() {
    let mut world = World::new("rights");
    grant(&world, &["--host"]);
    bind(&world, "e2e-host", "mortise-host");
    let in_namespace = ["create", "rolebinding", "e2e-host", "-n", HOST_NAMESPACE, "--role=mortise"];
    world.kubectl(&["delete", "rolebinding", "e2e-host", "-n", HOST_NAMESPACE, "--ignore-not-found"]);
    world.kubectl(&[&in_namespace[..], &[&format!("--user={RESTRICTED}")]].concat());
    world.start_host_as(RESTRICTED, &[]);
    world.offer("podset", &built("plugins/podset.wasm"));
    let message = world.wait_condition("podset", "Permitted", "False", "Forbidden");
    for words in ["cannot watch resource", "verbs:", "resources:"] {
        assert!(message.contains(words), "{words:?} does not stand in: {message}");
    }
    let component = built("plugins/podset.wasm");
    grant(&world, &[component.to_str().unwrap()]);
    let role = world.kubectl(&[
        "get",
        "clusterroles",
        "-l",
        "mortise.dev/aggregate-to-host=true",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ]);
    let role =
        role.split(' ').find(|name| name.contains("podset")).unwrap_or_else(|| panic!("no role of podset in {role}"));
    bind(&world, "e2e-podset", role);
    world.wait_ready("podset");
    let witness = Witness::watch(&world);
    create_sets(&world, 2, 2);
    wait_converged(&world, &witness, 2, 2);

    world.kubectl(&["delete", "clusterrolebinding", "e2e-podset"]);
    scale(&world, 0, 3);
    world.wait_condition("podset", "Permitted", "False", "Forbidden");
    bind(&world, "e2e-podset", role);
    scale(&world, 1, 3);
    wait_converged(&world, &witness, 2, 3);
    world.wait_condition("podset", "Permitted", "True", "Allowed");
}
