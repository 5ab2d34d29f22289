//! W3: which changes of a status are this host's own, so that nobody has to be called about them.

use super::*;
use crate::limits::WRITE_TIMEOUT_MS;

/// The one object of the one plugin.
fn target() -> ObjectRef {
    ObjectRef { kind: kind_of(0), name: Name::new("default", "object-0") }
}

impl Host {
    /// The watch tells of the newest version of the object, as the host's own write has left it.
    fn show_status(&mut self) {
        let shown = decoded(&self.objects[&target()]);
        self.step(Event::Watch(kind_of(0), WatchEvent::Applied(shown)));
    }

    /// Somebody writes the object's spec.
    fn edit(&mut self) {
        let mut object = self.objects[&target()].clone();
        object["spec"] = json!({"edited": self.version});
        let event = self.stored(&target(), object);
        self.step(event);
    }
}

#[test]
fn w3_the_event_of_the_own_status_calls_nobody() {
    let mut host = Host::serving(1);
    host.status = Some(r#"{"phase":"First"}"#.into());
    host.create_objects(0, 1);
    host.end_creates();
    assert_eq!(host.objects[&target()]["status"]["phase"], "First");
    let calls = host.calls;
    host.show_status();
    assert_eq!(host.calls, calls);
}

#[test]
fn w3_a_status_that_was_given_up_may_show_with_its_successor_which_is_looked_at_again() {
    let mut host = Host::serving(1);
    host.status = Some(r#"{"phase":"First"}"#.into());
    host.loses_statuses = true;
    host.create_objects(0, 1);
    host.end_creates();
    assert!(host.objects[&target()].get("status").is_none());
    host.loses_statuses = false;
    host.status = Some(r#"{"phase":"Second"}"#.into());
    host.pass(1_000);
    assert_eq!(host.objects[&target()]["status"]["phase"], "Second", "it was tried again");
    let calls = host.calls;
    host.show_status();
    assert_eq!(host.calls, calls + 1, "the first may have landed between the two");

    host.pass(WRITE_TIMEOUT_MS);
    host.status = Some(r#"{"phase":"Third"}"#.into());
    host.edit();
    assert_eq!(host.objects[&target()]["status"]["phase"], "Third");
    let calls = host.calls;
    host.show_status();
    assert_eq!(host.calls, calls, "it cannot land any more");
}
