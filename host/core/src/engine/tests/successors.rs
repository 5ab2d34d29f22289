//! Children with successors (X3): the mark on their owner, creates of unknown result, and those of another host.

use super::*;
use crate::lease::LEASE_DURATION_MS;
use crate::well_known::SUCCESSORS_ANNOTATION;

/// How long a missing child of a marked object waits for creates of another host.
const UNSEEN_MS: u64 = 30_000;

/// A host with one plugin, which replaces its ConfigMap at once.
fn replacing_on(mut host: Host) -> Host {
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["controllers"][0]["owns"][0]["replace"] = json!("atOnce");
    host.offer_manifest(0, 1, &manifest);
    host
}

/// The same with an object and its child.
fn settled() -> Host {
    let mut host = replacing_on(Host::started());
    host.create_objects(0, 1);
    host.end_creates();
    host
}

fn children(host: &Host) -> Vec<ObjectRef> {
    host.objects.keys().filter(|target| &*target.kind.kind == "ConfigMap").cloned().collect()
}

fn delete_gracefully(host: &mut Host, child: &ObjectRef) {
    host.set_metadata(child, "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
}

/// The mark is written, and the watch shows it.
fn end_mark(host: &mut Host) {
    let [(id, target, patch)] = &std::mem::take(&mut host.patches)[..] else { panic!("the object is marked") };
    assert_eq!((target, &patch["metadata"]["annotations"][SUCCESSORS_ANNOTATION]), (&object_ref(0), &json!("true")));
    let mut object = host.objects[target].clone();
    merge(&mut object, patch);
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    let shown = host.stored(target, object);
    host.step(host.succeeded(*id, &uid));
    assert_eq!(created(host), [], "the cache does not show the mark yet");
    host.step(shown);
}

impl Host {
    /// The plugin's kind is listed anew.
    fn list_objects(&mut self, objects: Vec<Value>) {
        let kind = kind_of(0);
        let mut listed = Vec::new();
        for mut object in objects {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            listed.push(*decoded(&object));
            self.objects.insert(object_ref(0), object);
        }
        self.step(Event::Watch(kind.clone().into(), WatchEvent::Listing));
        self.step(Event::Watch(kind.clone().into(), WatchEvent::Listed(listed)));
        self.step(Event::Watch(kind.into(), WatchEvent::ListDone(ResourceVersion(self.version))));
    }
}

/// The creates in flight.
fn created(host: &Host) -> Vec<ObjectRef> {
    host.creates.iter().map(|(id, _)| host.bodies[id].0.clone()).collect()
}

/// A marked object without children, as another host has left it.
fn marked() -> Value {
    json!({
        "apiVersion": &*kind_of(0).api_version, "kind": &*kind_of(0).kind,
        "metadata": {"name": "object-0", "namespace": "default", "uid": "u", "annotations": {SUCCESSORS_ANNOTATION: "true"}},
    })
}

#[test]
fn x3_an_object_is_marked_before_the_first_of_its_children_gets_a_successor() {
    let mut host = settled();
    let first = children(&host).remove(0);
    delete_gracefully(&mut host, &first);
    assert_eq!(created(&host), []);
    end_mark(&mut host);
    let second = created(&host).remove(0);
    assert_ne!(second, first);
    host.end_creates();
    host.show_object_gone(&first);
    assert!(created(&host).is_empty() && host.patches.is_empty() && host.deletes.is_empty());

    delete_gracefully(&mut host, &second);
    assert!(host.patches.is_empty(), "it is marked once");
    let third = created(&host).remove(0);
    assert!(third != first && third != second, "{third}");
}

/// A child whose predecessor is gone before its create has a result.
fn predecessor_is_gone(end: impl Fn(&mut Host)) {
    let mut host = settled();
    let first = children(&host).remove(0);
    delete_gracefully(&mut host, &first);
    end_mark(&mut host);
    let second = created(&host);
    end(&mut host);
    host.show_object_gone(&first);
    host.pass(1_000);
    assert_eq!(created(&host), second, "not under the name of a child without a predecessor");
    // It was carried out, and is deleted. The other attempt may follow it.
    host.end_creates();
    delete_gracefully(&mut host, &second[0]);
    host.pass(UNSEEN_MS - 2_000);
    assert_eq!(created(&host), []);
    host.pass(2_000);
    let third = created(&host).remove(0);
    assert!(third != first && third != second[0], "{third}");
}

#[test]
fn x3_a_create_of_unknown_result_is_repeated_under_its_name_until_it_cannot_be_carried_out_any_more() {
    predecessor_is_gone(|host| host.fail_creates(WriteErrorClass::Unknown, |_| true));
}

#[test]
fn x3_so_is_one_that_found_its_name_taken_if_nobody_could_say_by_whom() {
    predecessor_is_gone(|host| {
        host.fail_creates(WriteErrorClass::AlreadyExists, |_| true);
        let target = host.live_reads.pop().expect("it is read live");
        let lost = WriteError { class: WriteErrorClass::Unknown, message: "no".to_owned() };
        host.step(Event::LiveRead(target.into(), Err(lost)));
    });
}

#[test]
fn x3_a_missing_child_of_a_marked_object_waits_until_no_create_of_another_host_can_appear() {
    let mut host = replacing_on(Host::started());
    host.list_objects(vec![marked()]);
    host.pass(UNSEEN_MS - 1);
    assert_eq!(created(&host), []);
    host.pass(1);
    assert_eq!(created(&host).len(), 1);

    let mut bare = marked();
    bare["metadata"]["annotations"] = json!({});
    let mut host = replacing_on(Host::started());
    host.list_objects(vec![bare]);
    assert_eq!(created(&host).len(), 1, "without the mark all names are known");
    host.end_creates();
    let first = children(&host).remove(0);
    delete_gracefully(&mut host, &first);
    host.pass(UNSEEN_MS - 1);
    assert!(host.patches.is_empty(), "their create could follow it under its name");
    host.pass(1);
    end_mark(&mut host);
    assert_eq!(created(&host).len(), 1);
}

#[test]
fn x3_a_host_that_leads_again_waits_for_creates_of_the_leader_in_between() {
    let lead = |host: &mut Host| {
        host.step(Event::LeaseChanged { claim_until_ms: Some(host.now_ms + 10 * LEASE_DURATION_MS) });
    };
    let mut host = Host::started_as(Config { leader_election: true, ..config() });
    lead(&mut host);
    let mut host = replacing_on(host);
    host.create_objects(0, 1);
    host.end_creates();
    let first = children(&host).remove(0);
    host.set_metadata(&object_ref(0), "annotations", json!({SUCCESSORS_ANNOTATION: "true"}));
    delete_gracefully(&mut host, &first);
    host.end_creates();
    host.step(Event::LeaseChanged { claim_until_ms: None });
    let second = children(&host).into_iter().find(|child| *child != first).unwrap();
    delete_gracefully(&mut host, &second);
    lead(&mut host);
    host.pass(UNSEEN_MS - 1);
    assert_eq!(created(&host), []);
    host.pass(1);
    assert_eq!(created(&host).len(), 1);
}

#[test]
fn x3_a_key_that_was_forgotten_and_comes_back_waits_for_its_own_creates() {
    let mut host = settled();
    let first = children(&host).remove(0);
    delete_gracefully(&mut host, &first);
    end_mark(&mut host);
    assert_eq!(created(&host).len(), 1);
    host.creates.clear();
    let object = host.objects[&object_ref(0)].clone();
    host.withdraw(0);
    let mut host = replacing_on(host);
    host.list_objects(vec![object]);
    host.pass(UNSEEN_MS - 1);
    assert_eq!(created(&host), []);
    host.pass(1);
    assert_eq!(created(&host), [first], "nothing was created meanwhile");
}
