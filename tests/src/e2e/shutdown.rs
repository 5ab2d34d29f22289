//! The end of a host in the middle of its work: what it has begun is answered, nothing new begins, and whoever asks twice
//! does not wait.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use mortise_control_plane::{ADMIN, AuditRecord, Component, ControlPlane};
use serde_json::Value;

use super::reload::{create_sets, scale};
use super::world::World;

/// PodSets that wait for their Pods when the host begins, of which one alone makes [`REPLICAS`]: some seconds of work.
const SETS: usize = 100;
const REPLICAS: i64 = 6;
/// Pods that were made when the host is told to end: the work is at its height, and most of it is to come.
const UNDER_WAY: usize = 40;
/// How much later than the host took the signal a request may reach the API server that the host had begun before: the way
/// of a request on a busy machine, and far less than what is left to do takes.
const ON_THE_WAY: Duration = Duration::from_millis(500);

/// A host that has begun to make the Pods of every set.
fn busy(name: &str) -> World {
    let mut world = World::with_podset(name);
    create_sets(&world, SETS, 0);
    world.stop_host();
    for index in 0..SETS {
        scale(&world, index, REPLICAS);
    }
    world.mark_audit();
    world.start_host_as(ADMIN, &["--log-format", "json", "--log-level", "debug"]);
    world.until("the host makes Pods", || (writes(&world).len() >= UNDER_WAY).then_some(()));
    world
}

/// The requests to change something in the test's namespace.
fn writes(world: &World) -> Vec<AuditRecord> {
    world.writes_by_host().into_iter().filter(|write| write.namespace == world.namespace).collect()
}

fn says(line: &Value, words: &str) -> bool {
    line["message"].as_str().is_some_and(|message| message.contains(words))
}

#[test]
fn a_host_that_is_told_to_end_has_its_writes_answered_and_begins_no_others() {
    let mut world = busy("shutdown");
    world.stop_host();
    let log = world.json_log();
    let told = log.iter().find(|line| says(line, "ending:")).expect("the signal is logged");
    assert!(log.iter().any(|line| says(line, "ended")), "the end is logged");

    // The API server's account and the host's own: every request was answered, and the host has read every answer.
    let writes = writes(&world);
    let refused: Vec<_> = writes.iter().filter(|write| !(200..300).contains(&write.code)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let place = format!(" {}/", world.namespace);
    let is_here = |line: &&Value| line["message"] == "write" && line["written"].to_string().contains(&place);
    let answered: Vec<&Value> = log.iter().filter(is_here).collect();
    let failed: Vec<_> = answered.iter().filter(|line| !line["error"].is_null()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(answered.len(), writes.len(), "of so many requests as were sent, the host knows the answers");

    let at = |text: &Value| serde_json::from_value::<MicroTime>(text.clone()).unwrap().0;
    let told = at(&told["timestamp"]);
    let late = writes.iter().filter(|write| at(&Value::from(&*write.received)) > told + ON_THE_WAY);
    let late: Vec<_> = late.collect();
    assert!(late.is_empty(), "writes that began after the signal at {told}: {late:#?}");
    let created = writes.iter().filter(|write| write.verb == "create" && write.resource == "pods").count();
    assert!(created < SETS * REPLICAS as usize, "there was nothing left to begin, so nothing was shown");
    println!("shutdown: {} writes begun and answered, {created} of {} Pods", writes.len(), SETS as i64 * REPLICAS);
}

/// Lets the API server go on, whatever becomes of the test.
struct Paused<'a>(&'a ControlPlane);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.resume(Component::ApiServer).unwrap();
    }
}

#[test]
fn a_second_signal_waits_for_no_write_in_flight() {
    let mut world = busy("second-signal");
    world.plane.pause(Component::ApiServer).unwrap();
    let _paused = Paused(world.plane);
    world.until("a reconcile waits for its writes", || {
        (world.metric("controller_runtime_active_workers", "podset/PodSet") > 0.0).then_some(())
    });
    world.host().process.terminate().unwrap();
    world.until("the host has heard the signal", || {
        world.json_log().iter().any(|line| says(line, "ending:")).then_some(())
    });
    assert!(world.host().process.ended().unwrap().is_none(), "the host ended while writes were in flight");
    world.host().process.terminate().unwrap();
    // Half of the time that the writes would have had.
    let mut host = world.host.take().unwrap();
    let status =
        world.until_within(Duration::from_secs(5), "the host has ended", &mut || host.process.ended().unwrap());
    assert!(!status.success(), "an end with writes in flight is told by the status: {status}");
    assert!(world.log_since_start().contains("a second time"), "{}", host.process.tail());
}
