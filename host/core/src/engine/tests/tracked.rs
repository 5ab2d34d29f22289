//! Tracked children and the deletion of their owner (X1): the finalizer stays until they are gone, and none can follow.

use super::finalizers::{create, delete, patched};
use super::*;
use crate::limits::WRITE_TIMEOUT_MS;

/// A host with one plugin, whose children may be in any namespace.
fn tracking(finalize: bool) -> Host {
    let mut host = Host::started();
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["controllers"][0]["owns"][0]["namespaces"] = json!("any");
    manifest["controllers"][0]["finalize"] = json!(finalize);
    host.offer_manifest(0, 1, &manifest);
    host
}

/// As the API server shows what a plugin wrote.
fn written() -> Value {
    json!([{"manager": format!("mortise/{}", plugin_name(0)), "operation": "Update"}])
}

/// The target of the create in flight.
fn child(host: &Host) -> ObjectRef {
    let [(target, body)] = &host.bodies.values().collect::<Vec<_>>()[..] else { panic!("{:?}", host.bodies) };
    assert!(body["metadata"]["ownerReferences"].is_null(), "{body}");
    target.clone()
}

/// The delete in flight succeeds. Its child stays until the caller shows that it is gone.
fn end_child_delete(host: &mut Host, child: &ObjectRef) {
    let [(id, target)] = &std::mem::take(&mut host.deletes)[..] else { panic!("{:?}", host.deletes) };
    assert_eq!((target, &host.patches[..]), (child, &[][..]));
    let uid = format!("uid-{}", child.name);
    host.step(host.succeeded(*id, &uid));
}

#[test]
fn x1_tracked_children_are_deleted_before_the_finalizer_is_removed() {
    for finalize in [false, true] {
        let mut host = tracking(finalize);
        create(&mut host);
        let child = child(&host);
        host.end_creates();
        let calls = host.calls;
        delete(&mut host);
        assert_eq!(host.calls - calls, usize::from(finalize), "the plugin's cleanup comes first");
        end_child_delete(&mut host, &child);
        assert_eq!(host.patches, [], "the cache does not show the delete");
        host.show_object_gone(&child);
        assert_eq!(patched(&mut host).1, json!([]));
    }
}

#[test]
fn x1_a_tracked_child_that_is_being_deleted_holds_its_owner_no_more() {
    let mut host = tracking(false);
    create(&mut host);
    let child = child(&host);
    host.end_creates();
    delete(&mut host);
    end_child_delete(&mut host, &child);
    // It has a finalizer of its own.
    host.set_metadata(&child, "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert_eq!(patched(&mut host).1, json!([]));
}

#[test]
fn x1_a_finalizer_stays_until_no_create_of_a_tracked_child_can_follow() {
    let mut host = tracking(false);
    create(&mut host);
    let child = child(&host);
    let mut body = host.bodies.values().next().unwrap().1.clone();
    host.fail_creates(WriteErrorClass::Unknown, |_| true);
    delete(&mut host);
    host.pass(WRITE_TIMEOUT_MS - 1);
    assert_eq!((&host.live_reads[..], &host.patches[..]), (&[][..], &[][..]), "it may still be carried out");
    host.pass(1);
    assert_eq!((&host.live_reads[..], &host.patches[..]), (std::slice::from_ref(&child), &[][..]));

    // It was carried out, and the watch does not show it yet.
    body["metadata"]["uid"] = json!(format!("uid-{}", child.name));
    let shown = host.stored(&child, body);
    let live = decoded(&host.objects[&child]);
    host.step(Event::LiveRead(child.clone().into(), Ok(Some(live.into()))));
    assert_eq!((host.deletes.len(), &host.patches[..]), (0, &[][..]));
    host.step(shown);
    end_child_delete(&mut host, &child);
    host.show_object_gone(&child);
    assert_eq!(patched(&mut host).1, json!([]));
}

#[test]
fn w1_a_tracked_child_wakes_its_owner_from_another_namespace() {
    let mut host = tracking(false);
    create(&mut host);
    let child = child(&host);
    host.end_creates();
    let owner = &host.objects[&object_ref(0)]["metadata"];
    let elsewhere = ObjectRef { kind: child.kind.clone(), name: Name::new("elsewhere", "x") };
    let mark = format!("{} default/object-0 owns ConfigMap elsewhere/x", kind_of(0));
    let stray = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "x", "namespace": "elsewhere", "uid": "stray",
        "labels": {"mortise.dev/owner-uid": owner["uid"]}, "annotations": {"mortise.dev/owner": mark}, "managedFields": written()}});
    host.store(&elsewhere, stray);
    let deleted: Vec<&ObjectRef> = host.deletes.iter().map(|(_, target)| target).collect();
    assert_eq!(deleted, [&elsewhere], "it is not wanted");
}

#[test]
fn q4_x3_a_forged_child_that_the_plugin_may_not_delete_costs_its_owner_one_delete_and_no_status() {
    let mut host = tracking(false);
    create(&mut host);
    host.end_creates();
    let owner = host.objects[&object_ref(0)].clone();
    let forge = |host: &mut Host, name: &str| {
        let target = ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: Name::new("elsewhere", name) };
        let mark = format!("{} default/object-0 owns ConfigMap elsewhere/{name}", kind_of(0));
        let forged = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": name, "namespace": "elsewhere", "uid": format!("uid-{name}"),
            "labels": {"mortise.dev/owner-uid": owner["metadata"]["uid"]},
            "annotations": {"mortise.dev/owner": mark, "mortise.dev/child": name}, "managedFields": written()}});
        host.store(&target, forged);
    };
    forge(&mut host, "a");
    let [(id, _)] = &std::mem::take(&mut host.deletes)[..] else { panic!("{:?}", host.deletes) };
    host.step(Event::Wrote(*id, failed(WriteErrorClass::Denied)));
    forge(&mut host, "b");
    assert_eq!(host.deletes, [], "deletes there are denied");
    let status = host.objects[&object_ref(0)]["status"].to_string();
    assert!(!status.contains("Stalled"), "{status}");
    assert_eq!(host.reason(0, "Permitted"), "Allowed", "nobody has to add a rule");
    host.pass(crate::spared::RETRY_MS - 1);
    assert_eq!(host.deletes, []);
    host.pass(1);
    assert!(!host.deletes.is_empty(), "it may be allowed now, and nothing else has to happen");
}

#[test]
fn x1_the_finalizer_of_a_marked_object_stays_until_a_successor_that_another_host_made_must_have_been_shown() {
    let mut host = Host::started();
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["controllers"][0]["owns"][0]["namespaces"] = json!("any");
    manifest["controllers"][0]["owns"][0]["replace"] = json!("atOnce");
    host.offer_manifest(0, 1, &manifest);
    let object = json!({
        "apiVersion": &*kind_of(0).api_version, "kind": &*kind_of(0).kind,
        "metadata": {
            "name": "object-0", "namespace": "default", "uid": "u", "generation": 2,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [crate::finalizer::name(&plugin_name(0))],
            "annotations": {crate::well_known::SUCCESSORS_ANNOTATION: "true"},
        },
    });
    // As after a restart: it existed before.
    host.step(Event::Watch(kind_of(0).into(), WatchEvent::Listing));
    let mut listed = object.clone();
    listed["metadata"]["resourceVersion"] = json!("1");
    host.step(Event::Watch(kind_of(0).into(), WatchEvent::Listed(vec![*decoded(&listed)])));
    host.step(Event::Watch(kind_of(0).into(), WatchEvent::ListDone(ResourceVersion(1))));
    host.objects.insert(object_ref(0), listed);
    host.pass(20_000);
    assert_eq!(host.patches, [], "a watch may hide for twenty seconds what was created in ten");
    let successor = ObjectRef { kind: Kind::new("v1", "ConfigMap"), name: Name::new("default", "object-0-only-x") };
    let mark = format!("{} default/object-0 owns ConfigMap default/object-0-only-x", kind_of(0));
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "object-0-only-x", "namespace": "default", "uid": "uid-default/object-0-only-x",
        "labels": {"mortise.dev/owner-uid": "u"},
        "annotations": {"mortise.dev/owner": mark, "mortise.dev/child": "only"}, "managedFields": written()}});
    host.store(&successor, body);
    end_child_delete(&mut host, &successor);
    host.show_object_gone(&successor);
    host.pass(9_999);
    assert_eq!(host.patches, []);
    host.pass(1);
    assert_eq!(patched(&mut host).1, json!([]));
}
