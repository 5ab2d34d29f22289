//! A plugin whose calls never end beside plugins that work (Q4): on the smallest host that there is, with as many calls at once
//! as a manifest may ask for. Its calls last ten seconds, so whoever waits for one of them waits longer than these tests do.

use std::time::Duration;

use kube::api::{DynamicObject, PostParams};
use mortise_control_plane::ADMIN;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::world::{World, built};

/// A spinning call's deadline. What the others do ends sooner, however slow the machine is: alone it takes 0.2 s.
const SPIN: Duration = Duration::from_secs(10);
/// Objects that spin at once.
const SPINS: usize = 64;
/// Scales, and creates with admission, beside them.
const ROUNDS: i64 = 5;

fn spin(world: &World, number: usize, also_admission: bool) -> Value {
    json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Spin",
        "metadata": {"name": format!("spin-{number}"), "namespace": world.namespace},
        "spec": {"alsoAdmission": also_admission},
    })
}

/// Creates all of them at once.
fn create_spins(world: &World, also_admission: bool) -> Vec<JoinHandle<kube::Result<DynamicObject>>> {
    let create = |number| {
        let api = world.api("test.mortise.dev/v1", "Spin", Some(&world.namespace));
        let object = serde_json::from_value(spin(world, number, also_admission)).unwrap();
        world.spawn(async move { api.create(&PostParams::default(), &object).await })
    };
    (0..SPINS).map(create).collect()
}

/// One worker is asked for. The plugins work before the first object spins.
fn world_beside_a_spinning_plugin(name: &str) -> World {
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
    world.apply(&world.podset("neighbour", 1));
    scaled(&world, 1);
    world
}

fn scaled(world: &World, replicas: i64) {
    world.until_within(SPIN, "the neighbour's PodSet has been scaled", &mut || {
        let found = world.kubectl_here(&["get", "podset", "neighbour", "-o", "jsonpath={.status.replicas}"]);
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
    let world = world_beside_a_spinning_plugin("isolation");
    for create in create_spins(&world, false) {
        world.block_on(create).unwrap().unwrap();
    }
    world.until("calls of the spinning plugin are given up", || {
        (world.metric("mortise_guest_faults_total", "reason=\"DeadlineExceeded\"") >= 1.0).then_some(())
    });
    for round in 1..=ROUNDS {
        let patch = format!(r#"{{"spec":{{"replicas":{}}}}}"#, round + 1);
        world.kubectl_here(&["patch", "podset/neighbour", "--type=merge", "-p", &patch]);
        scaled(&world, round + 1);
        world.apply(&picture(&world, round));
    }
}

#[test]
fn q4_admission_that_never_ends_delays_no_admission_of_other_plugins() {
    let world = world_beside_a_spinning_plugin("isolation-admission");
    let creates = create_spins(&world, true);
    for round in 1..=ROUNDS {
        // A create whose webhook does not answer in time is refused, which apply panics for.
        world.apply(&picture(&world, round));
        let patch = format!(r#"{{"spec":{{"replicas":{}}}}}"#, round + 1);
        world.kubectl_here(&["patch", "podset/neighbour", "--type=merge", "-p", &patch]);
        scaled(&world, round + 1);
    }
    // Their client tries again for as long as nobody says that they may be stored.
    creates.iter().for_each(JoinHandle::abort);
}
