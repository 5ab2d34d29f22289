//! How long a finalizer stays when writes may still be under way (X1): what nobody waits for any more can land behind the
//! cleanup that took it back, so the object goes only when that cannot be.

use super::*;
use crate::finalizer;
use crate::limits::WRITE_TIMEOUT_MS;

/// A host with one plugin, which finalizes its kind.
fn finalizing() -> Host {
    let mut host = Host::started();
    let text = manifest(&plugin_name(0), &kind_of(0), 1);
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    manifest["controllers"][0]["finalize"] = json!(true);
    host.manifests.insert(component(0, 1), manifest.to_string().into());
    host.offer(0);
    host
}

fn target() -> ObjectRef {
    ObjectRef { kind: kind_of(0), name: Name::new("default", "object-0") }
}

/// Somebody deletes the object, which its finalizers keep.
fn delete(host: &mut Host) {
    let mut object = host.objects[&target()].clone();
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["generation"] = json!(2);
    let event = host.stored(&target(), object);
    host.step(event);
}

/// The one patch of finalizers that was sent, as it leaves them.
fn patched(host: &mut Host) -> (WriteId, Value) {
    let [(id, of, patch)] = &host.patches.split_off(0)[..] else { panic!("one patch is sent") };
    assert_eq!(*of, target());
    (*id, patch["metadata"]["finalizers"].clone())
}

/// The API server carries out the patch that puts the finalizer on.
fn put_on(host: &mut Host) {
    let (id, finalizers) = patched(host);
    assert_eq!(finalizers, json!([finalizer::name(&plugin_name(0))]));
    let mut object = host.objects[&target()].clone();
    object["metadata"]["finalizers"] = finalizers;
    let uid = object["metadata"]["uid"].as_str().unwrap().into();
    let shown = host.stored(&target(), object);
    host.step(Event::Wrote(id, Ok(Written { uid, resource_version: ResourceVersion(host.version) })));
    host.step(shown);
}

#[test]
fn x1_an_object_stays_until_no_write_that_was_given_up_can_land_behind_its_cleanup() {
    let mut host = finalizing();
    host.create_objects(0, 1);
    put_on(&mut host);
    let (id, _) = host.creates.pop().expect("the child is applied");
    let error = WriteError { class: WriteErrorClass::Unknown, message: "no answer".to_owned() };
    host.step(Event::Wrote(id, Err(error)));
    delete(&mut host);
    host.pass(WRITE_TIMEOUT_MS - 1);
    assert_eq!(host.patches, [], "the child may be written even now");
    host.pass(1);
    assert_eq!(patched(&mut host).1, json!([]));
}

#[test]
fn x1_an_object_that_somebody_else_has_kept_stays_as_long_since_its_writes_may_be_under_way() {
    let mut host = finalizing();
    let object = json!({
        "apiVersion": &*kind_of(0).api_version, "kind": &*kind_of(0).kind,
        "metadata": {
            "name": "object-0", "namespace": "default", "uid": "from-before", "generation": 2,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer::name(&plugin_name(0))],
        },
    });
    let event = host.stored(&target(), object);
    host.step(event);
    host.pass(WRITE_TIMEOUT_MS - 1);
    assert_eq!(host.patches, [], "a host that died may have sent what is not carried out yet");
    host.pass(1);
    assert_eq!(patched(&mut host).1, json!([]));
}

#[test]
fn x1_an_object_of_which_every_write_is_answered_goes_at_once() {
    let mut host = finalizing();
    host.create_objects(0, 1);
    put_on(&mut host);
    host.end_creates();
    delete(&mut host);
    assert_eq!(patched(&mut host).1, json!([]));
}
