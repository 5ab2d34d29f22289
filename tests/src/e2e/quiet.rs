//! A converged cluster is quiet: no writes and no calls when nothing changes, also after a restart.

use std::time::{Duration, Instant};

use super::pods::Witness;
use super::reload::{create_sets, wait_converged};
use super::world::{World, count_from_env};

/// How long the host has to be idle. `MORTISE_E2E_IDLE_S` raises it.
const IDLE_S: usize = 5;
/// PodSets. `MORTISE_E2E_QUIET_SETS` raises it.
const SETS: usize = 40;

#[test]
fn x5_a_restarted_host_finds_everything_in_order_and_writes_nothing() {
    let mut world = World::with_podset("quiet");
    let sets = count_from_env("MORTISE_E2E_QUIET_SETS", SETS);
    let idle = Duration::from_secs(count_from_env("MORTISE_E2E_IDLE_S", IDLE_S) as u64);
    let witness = Witness::watch(&world);
    create_sets(&world, sets, 3);
    wait_converged(&world, &witness, sets, 3);
    // Pods become ready after their set has converged; the restart needs a quiet cluster.
    world.until_within(Duration::from_secs(240), "every Pod is ready", &mut || {
        (witness.ready() == sets * 3).then_some(())
    });
    wait_until_quiet(&world, "podset");

    world.stop_host();
    world.mark_audit();
    world.start_host();
    world.until("every set was called once", || (calls(&world, "podset") >= sets as f64).then_some(()));
    world.wait_ready("podset");
    wait_until_quiet(&world, "podset");
    let after_restart = calls(&world, "podset");
    // There is nothing to wait for: the test is that nothing happens.
    std::thread::sleep(idle);
    assert_eq!(calls(&world, "podset"), after_restart, "no guest call while nothing changes");
    let writes = world.writes_by_host();
    assert!(writes.is_empty(), "a restart of a converged host wrote: {writes:#?}");
    println!("quiet: {sets} sets, {after_restart} guest calls after the restart, 0 in {idle:?} of idling, 0 writes");
}

/// Waits until a plugin was not called for two seconds.
pub fn wait_until_quiet(world: &World, plugin: &str) {
    let (mut last, mut since) = (calls(world, plugin), Instant::now());
    world.until("no guest is called any more", || {
        let now = calls(world, plugin);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() > Duration::from_secs(2)).then_some(())
    });
}

/// The calls of a plugin since the host started.
pub fn calls(world: &World, plugin: &str) -> f64 {
    world.metric("mortise_guest_calls_total", plugin)
}
