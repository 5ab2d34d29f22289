//! W3: the events of the host's own status writes cause no calls.

use super::*;
use crate::limits::WRITE_TIMEOUT_MS;

/// Changes the guest's status.
fn set_phase(host: &mut Host, phase: &str) {
    host.status = Some(json!({"phase": phase}).to_string().into());
}

fn phase(host: &Host) -> &Value {
    &host.objects[&object_ref(0)]["status"]["phase"]
}

/// The watch shows the newest version of the object. How many calls that causes.
fn calls_of_event(host: &mut Host) -> usize {
    let (calls, shown) = (host.calls, decoded(&host.objects[&object_ref(0)]));
    host.step(Event::Watch(kind_of(0).into(), WatchEvent::Applied(shown)));
    host.calls - calls
}

#[test]
fn w3_the_event_of_the_hosts_own_status_write_causes_no_call() {
    let mut host = Host::serving(1);
    set_phase(&mut host, "First");
    host.create_objects(0, 1);
    host.end_creates();
    assert_eq!(phase(&host), "First");
    assert_eq!(calls_of_event(&mut host), 0);
}

#[test]
fn w3_while_a_status_write_of_unknown_result_may_be_carried_out_the_event_of_the_next_one_causes_a_call() {
    let mut host = Host::serving(1);
    set_phase(&mut host, "First");
    host.loses_statuses = true;
    host.create_objects(0, 1);
    host.end_creates();
    assert!(phase(&host).is_null());
    host.loses_statuses = false;
    set_phase(&mut host, "Second");
    host.pass(1_000);
    assert_eq!(phase(&host), "Second", "the write is retried");
    assert_eq!(calls_of_event(&mut host), 1, "the first write may have been carried out in between");

    host.pass(WRITE_TIMEOUT_MS);
    set_phase(&mut host, "Third");
    let mut object = host.objects[&object_ref(0)].clone();
    object["spec"] = json!({"edited": true});
    host.store(&object_ref(0), object);
    assert_eq!(phase(&host), "Third");
    assert_eq!(calls_of_event(&mut host), 0, "the first write has timed out");
}
