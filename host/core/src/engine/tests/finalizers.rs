//! How long a finalizer stays after a write of unknown result (X1): the API server may carry it out after the cleanup
//! that undid it, until its timeout.

use super::*;
use crate::finalizer;
use crate::lease::LEASE_DURATION_MS;
use crate::limits::WRITE_TIMEOUT_MS;

/// A host with one plugin, which finalizes its kind.
fn finalizing() -> Host {
    finalizing_on(Host::started())
}

fn finalizing_on(mut host: Host) -> Host {
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["controllers"][0]["finalize"] = json!(true);
    manifest["writes"] = json!([{"apiVersion": "example.com/v1", "kind": "Kind0000Input", "verbs": ["patch"]}]);
    host.offer_manifest(0, 1, &manifest);
    host
}

/// The object is created, and the host adds its finalizer.
pub(super) fn create(host: &mut Host) {
    host.create_objects(0, 1);
    let (id, finalizers) = patched(host);
    assert_eq!(finalizers, json!([finalizer::name(&plugin_name(0))]));
    let mut object = host.objects[&object_ref(0)].clone();
    object["metadata"]["finalizers"] = finalizers;
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    let shown = host.stored(&object_ref(0), object);
    host.step(host.succeeded(id, &uid));
    host.step(shown);
}

/// Another client deletes the object.
pub(super) fn delete(host: &mut Host) {
    let mut object = host.objects[&object_ref(0)].clone();
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["generation"] = json!(2);
    host.store(&object_ref(0), object);
}

/// The one patch in flight, and the finalizers in it.
pub(super) fn patched(host: &mut Host) -> (WriteId, Value) {
    let patches = std::mem::take(&mut host.patches);
    let [(id, target, patch)] = &patches[..] else { panic!("there is one patch, not {patches:?}") };
    assert_eq!(*target, object_ref(0));
    (*id, patch["metadata"]["finalizers"].clone())
}

/// The finalizer is removed after this time, and not earlier.
fn assert_removed_after(host: &mut Host, milliseconds: u64) {
    host.pass(milliseconds - 1);
    assert_eq!(host.patches, [], "a write may still be carried out");
    host.pass(1);
    assert_eq!(patched(host).1, json!([]));
}

#[test]
fn x1_a_finalizer_stays_until_no_write_of_unknown_result_can_follow_the_cleanup() {
    let mut host = finalizing();
    create(&mut host);
    host.fail_creates(WriteErrorClass::Unknown, |_| true);
    delete(&mut host);
    assert_removed_after(&mut host, WRITE_TIMEOUT_MS);
}

#[test]
fn x1_a_finalizer_that_another_host_added_stays_as_long_since_its_writes_may_be_in_flight() {
    let mut host = finalizing();
    let object = json!({
        "apiVersion": &*kind_of(0).api_version, "kind": &*kind_of(0).kind,
        "metadata": {
            "name": "object-0", "namespace": "default", "uid": "from-before", "generation": 2,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer::name(&plugin_name(0))],
        },
    });
    host.store(&object_ref(0), object);
    assert_removed_after(&mut host, WRITE_TIMEOUT_MS);
}

#[test]
fn x1_a_finalizer_is_removed_at_once_if_every_write_has_its_result() {
    let mut host = finalizing();
    create(&mut host);
    host.end_creates();
    delete(&mut host);
    assert_eq!(patched(&mut host).1, json!([]));
}

#[test]
fn x1_the_target_of_a_write_of_unknown_result_is_read_live_and_awaited_before_the_finalizer_is_removed() {
    let mut host = finalizing();
    let marked = ObjectRef { kind: input_of(0), name: Name::new("default", "marked") };
    let body = json!({
        "apiVersion": &*marked.kind.api_version, "kind": &*marked.kind.kind,
        "metadata": {"name": "marked", "namespace": "default", "uid": "uid-marked", "labels": {"mark": "on"}},
    });
    host.store(&marked, body.clone());
    host.actions = vec![contract::Action::Patch {
        target: marked.clone(),
        patch_kind: contract::PatchKind::Merge,
        body: json!({"metadata": {"labels": {"mark": "off"}}}).to_string().into(),
        subresource: None,
    }];
    create(&mut host);
    host.end_creates();
    let (id, ..) = host.patches.pop().expect("it is patched");
    host.step(Event::Wrote(id, failed(WriteErrorClass::Unknown)));
    // The watch shows it as patched.
    let mut off = body;
    off["metadata"]["labels"]["mark"] = json!("off");
    host.store(&marked, off.clone());
    host.patches.clear();
    delete(&mut host);
    host.pass(WRITE_TIMEOUT_MS);
    assert_eq!((&host.live_reads[..], &host.patches[..]), (&[marked.clone()][..], &[][..]));

    // The version that was read is newer than the cache, so the key waits.
    let shown = host.stored(&marked, off);
    let live = decoded(&host.objects[&marked]);
    host.step(Event::LiveRead(marked.into(), Ok(Some(live.into()))));
    assert_eq!(host.patches, []);
    host.step(shown);
    // The guest has not read it, so the next bookmark wakes the key.
    host.step(Event::Watch(input_of(0).into(), WatchEvent::Progress(ResourceVersion(host.version))));
    assert_eq!(patched(&mut host).1, json!([]));
}

#[test]
fn x1_a_host_that_leads_again_waits_for_writes_that_the_leader_in_between_may_have_left() {
    let lead = |host: &mut Host| {
        host.step(Event::LeaseChanged { claim_until_ms: Some(host.now_ms + LEASE_DURATION_MS) });
    };
    let mut host = Host::started_as(Config { leader_election: true, ..config() });
    lead(&mut host);
    host = finalizing_on(host);
    create(&mut host);
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
