//! How long a finalizer stays when writes may still be under way (X1): what nobody waits for any more can land behind the
//! cleanup that took it back, so the object goes only when that cannot be.

use super::*;
use crate::finalizer;
use crate::lease::LEASE_DURATION_MS;
use crate::limits::WRITE_TIMEOUT_MS;

/// A host with one plugin, which finalizes its kind.
fn finalizing() -> Host {
    finalizing_on(Host::started())
}

fn finalizing_on(mut host: Host) -> Host {
    let text = manifest(&plugin_name(0), &kind_of(0), 1);
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    manifest["controllers"][0]["finalize"] = json!(true);
    manifest["writes"] = json!([{"apiVersion": "example.com/v1", "kind": "Kind0000Input", "verbs": ["patch"]}]);
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
    let patches = host.patches.split_off(0);
    let [(id, of, patch)] = &patches[..] else { panic!("one patch is sent, not {patches:?}") };
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

#[test]
fn x1_what_an_unheard_of_write_was_about_is_read_live_and_then_shown_before_the_object_goes() {
    let mut host = finalizing();
    let marked = ObjectRef { kind: input_of(0), name: Name::new("default", "marked") };
    let body = json!({
        "apiVersion": &*marked.kind.api_version, "kind": &*marked.kind.kind,
        "metadata": {"name": "marked", "namespace": "default", "uid": "uid-marked", "labels": {"mark": "on"}},
    });
    let shown = host.stored(&marked, body.clone());
    host.step(shown);
    host.actions = vec![contract::Action::Patch {
        target: marked.clone(),
        patch_kind: contract::PatchKind::Merge,
        body: json!({"metadata": {"labels": {"mark": "off"}}}).to_string().into(),
        subresource: None,
    }];
    host.create_objects(0, 1);
    put_on(&mut host);
    host.end_creates();
    let (id, ..) = host.patches.pop().expect("it is marked");
    let error = WriteError { class: WriteErrorClass::Unknown, message: "no answer".to_owned() };
    host.step(Event::Wrote(id, Err(error)));
    // The view shows it as wanted, by whoever that was.
    let mut off = body;
    off["metadata"]["labels"]["mark"] = json!("off");
    let shown = host.stored(&marked, off.clone());
    host.step(shown);
    host.patches.clear();
    delete(&mut host);
    host.pass(WRITE_TIMEOUT_MS);
    assert_eq!((&host.live_reads[..], &host.patches[..]), (&[marked.clone()][..], &[][..]));

    // It is another version than the view shows, so the view is waited for.
    let shown = host.stored(&marked, off);
    let live = decoded(&host.objects[&marked]);
    host.step(Event::LiveRead(marked, Ok(Some(live.into()))));
    assert_eq!(host.patches, []);
    host.step(shown);
    // This guest has not asked about it, so the next bookmark lets the key go on.
    host.step(Event::Watch(input_of(0), WatchEvent::Progress(ResourceVersion(host.version))));
    assert_eq!(patched(&mut host).1, json!([]));
}

#[test]
fn x1_a_host_that_leads_again_waits_for_what_the_one_between_may_have_left() {
    let lead = |host: &mut Host| {
        host.step(Event::LeaseChanged { claim_until_ms: Some(host.now_ms + LEASE_DURATION_MS) });
    };
    let mut host = Host::started_as(Config { leader_election: true, ..config() });
    lead(&mut host);
    host = finalizing_on(host);
    host.create_objects(0, 1);
    put_on(&mut host);
    host.end_creates();
    host.step(Event::LeaseChanged { claim_until_ms: None });
    lead(&mut host);
    delete(&mut host);
    host.pass(WRITE_TIMEOUT_MS / 2);
    lead(&mut host);
    host.pass(WRITE_TIMEOUT_MS / 2 - 1);
    assert_eq!(host.patches, []);
    lead(&mut host);
    host.pass(1);
    assert_eq!(patched(&mut host).1, json!([]));
}
