//! A plugin whose calls never end, with plugins that work (Q4): on the smallest host, with the largest concurrency of a
//! manifest. Its calls last ten seconds, so whatever waits for one of them misses the deadlines of these tests.

use std::time::Duration;

use kube::api::{DynamicObject, PostParams};
use mortise_control_plane::ADMIN;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::world::{World, built};

/// The deadline of a spinning call, and of each step of the others, which takes 0.2 s alone.
const SPIN: Duration = Duration::from_secs(10);
/// More than the connections of the webhook server.
const SPINS: usize = 200;
/// Scales, and creates with admission, meanwhile.
const ROUNDS: i64 = 5;

fn spin(world: &World, number: usize, also_admission: bool) -> Value {
    json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Spin",
        "metadata": {"name": format!("spin-{number}"), "namespace": world.namespace},
        "spec": {"alsoAdmission": also_admission},
    })
}

fn create_spins(world: &World, also_admission: bool) -> Vec<JoinHandle<kube::Result<DynamicObject>>> {
    let create = |number| {
        let api = world.api("test.mortise.dev/v1", "Spin", Some(&world.namespace));
        let object = serde_json::from_value(spin(world, number, also_admission)).unwrap();
        world.spawn(async move { api.create(&PostParams::default(), &object).await })
    };
    (0..SPINS).map(create).collect()
}

/// Starts a host with one worker. The plugins are ready before the first object spins.
fn world_with_a_spinning_plugin(name: &str) -> World {
    let mut world = World::new(name);
    world.start_host_as(ADMIN, &["--workers", "1"]);
    for (plugin, component) in [
        ("podset", "plugins/podset.wasm"),
        ("admitting", "test-guests/admitting.wasm"),
        ("spinning", "test-guests/spinning.wasm"),
    ] {
        world.offer(plugin, &built(component));
        world.wait_ready(plugin);
    }
    world.apply(&world.podset("other", 1));
    scaled(&world, 1);
    world
}

fn scaled(world: &World, replicas: i64) {
    world.until_within(SPIN, "the other plugin's PodSet has been scaled", &mut || {
        let found = world.kubectl_here(&["get", "podset", "other", "-o", "jsonpath={.status.replicas}"]);
        (found == replicas.to_string()).then_some(())
    });
}

fn picture(world: &World, number: i64) -> Value {
    json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Picture",
        "metadata": {"name": format!("picture-{number}"), "namespace": world.namespace}, "spec": {"image": "a:1"},
    })
}

#[test]
fn q4_calls_that_never_end_delay_neither_reconciles_nor_admission_of_other_plugins() {
    let world = world_with_a_spinning_plugin("isolation");
    for create in create_spins(&world, false) {
        world.block_on(create).unwrap().unwrap();
    }
    world.until("calls of the spinning plugin exceed their deadline", || {
        (world.metric("mortise_guest_faults_total", "reason=\"DeadlineExceeded\"") >= 1.0).then_some(())
    });
    for round in 1..=ROUNDS {
        let patch = format!(r#"{{"spec":{{"replicas":{}}}}}"#, round + 1);
        world.kubectl_here(&["patch", "podset/other", "--type=merge", "-p", &patch]);
        scaled(&world, round + 1);
        world.apply(&picture(&world, round));
    }
}

#[test]
fn q4_admission_that_never_ends_delays_no_admission_of_other_plugins() {
    let world = world_with_a_spinning_plugin("isolation-admission");
    let creates = create_spins(&world, true);
    for round in 1..=ROUNDS {
        // If the webhook does not respond in time, the create is refused and apply panics.
        world.apply(&picture(&world, round));
        let patch = format!(r#"{{"spec":{{"replicas":{}}}}}"#, round + 1);
        world.kubectl_here(&["patch", "podset/other", "--type=merge", "-p", &patch]);
        scaled(&world, round + 1);
    }
    // Their client retries until they are admitted, which never happens.
    creates.iter().for_each(JoinHandle::abort);
}
