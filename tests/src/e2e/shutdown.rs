//! Shutdown of a busy host: it completes its writes, starts no others, and a second signal ends it at once.

use std::time::Duration;

use mortise_control_plane::{ADMIN, AuditRecord, Component, ControlPlane};
use serde_json::Value;

use super::reload::{create_sets, scale};
use super::world::World;

/// PodSets without Pods when the host starts, with [`REPLICAS`] each: some seconds of work.
const SETS: usize = 100;
const REPLICAS: i64 = 6;
/// Pods that exist at the signal: most of the work is left.
const UNDER_WAY: usize = 40;
/// Writes that may be in flight at the signal: of the 65 keys that may write at once, a batch each, which is the half of a
/// set's Pods at most. The remaining work is more than twice that.
const IN_FLIGHT: usize = 65 * REPLICAS as usize / 2;

/// A world whose host creates Pods.
fn busy(name: &str) -> World {
    let mut world = World::with_podset(name);
    create_sets(&world, SETS, 0);
    world.stop_host();
    for index in 0..SETS {
        scale(&world, index, REPLICAS);
    }
    world.mark_audit();
    world.start_host_as(ADMIN, &["--log-format", "json", "--log-level", "debug"]);
    world.until("the host creates Pods", || (writes(&world).len() >= UNDER_WAY).then_some(()));
    world
}

fn writes(world: &World) -> Vec<AuditRecord> {
    world.writes_by_host().into_iter().filter(|write| write.namespace == world.namespace).collect()
}

fn has_message(line: &Value, text: &str) -> bool {
    line["message"].as_str().is_some_and(|message| message.contains(text))
}

#[test]
fn a_host_that_shuts_down_completes_its_writes_and_starts_no_others() {
    let mut world = busy("shutdown");
    world.stop_host();
    let log = world.json_log();
    let signal = log.iter().position(|line| has_message(line, "ending:")).expect("the signal is logged");
    assert!(log.iter().any(|line| has_message(line, "ended")), "the end is logged");

    // By the audit log and the host's log: every request had a response, and the host has read it.
    let place = format!(" {}/", world.namespace);
    let is_here = |line: &&Value| line["message"] == "write" && line["written"].to_string().contains(&place);
    let completed: Vec<&Value> = log.iter().filter(is_here).collect();
    let failed: Vec<_> = completed.iter().filter(|line| !line["error"].is_null()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    world.until("the audit log has what was answered", || (writes(&world).len() >= completed.len()).then_some(()));
    let writes = writes(&world);
    let refused: Vec<_> = writes.iter().filter(|write| !(200..300).contains(&write.code)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert_eq!(completed.len(), writes.len(), "requests sent, and responses logged by the host");

    let late = log[signal..].iter().filter(is_here).count();
    assert!(late <= IN_FLIGHT, "{late} writes completed after the signal, {IN_FLIGHT} may have been in flight");
    let created = writes.iter().filter(|write| write.verb == "create" && write.resource == "pods").count();
    assert!(created < SETS * REPLICAS as usize, "no work was left at the signal");
    let all = SETS as i64 * REPLICAS;
    println!("shutdown: {} writes completed, {late} after the signal, {created} of {all} Pods", writes.len());
}

/// Continues the API server, also if the test fails.
struct Paused<'a>(&'a ControlPlane);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.resume(Component::ApiServer).unwrap();
    }
}

#[test]
fn a_second_signal_does_not_wait_for_writes_in_flight() {
    let mut world = busy("second-signal");
    world.plane.pause(Component::ApiServer).unwrap();
    let _paused = Paused(world.plane);
    world.until("a reconcile waits for its writes", || {
        (world.metric("controller_runtime_active_workers", "podset/PodSet") > 0.0).then_some(())
    });
    world.host().process.terminate().unwrap();
    world.until("the host has logged the signal", || {
        world.json_log().iter().any(|line| has_message(line, "ending:")).then_some(())
    });
    assert!(world.host().process.ended().unwrap().is_none(), "the host ended while writes were in flight");
    world.host().process.terminate().unwrap();
    // Half of the time that writes in flight may take.
    let mut host = world.host.take().unwrap();
    let status =
        world.until_within(Duration::from_secs(5), "the host has ended", &mut || host.process.ended().unwrap());
    assert!(!status.success(), "success despite writes in flight: {status}");
    assert!(world.log_since_start().contains("a second time"), "{}", host.process.tail());
}
