//! A cache that differs from the API server, and an API server whose versions went backwards: both are noticed and
//! relisted.

use super::*;
use crate::audit::{Listed, Page, Response};

const INTERVAL_MS: u64 = 60_000;

fn auditing() -> Host {
    let mut host = Host::started_as(Config { audit_interval_ms: INTERVAL_MS, ..config() });
    host.offer(0);
    host
}

/// Lets time pass until a kind is audited. Its live list has these objects.
fn audit(host: &mut Host, kind: &Kind, objects: &[(&str, u64)]) {
    for _ in 0..10 {
        while let Some(audited) = host.audited.pop() {
            let version = ResourceVersion(host.version);
            let is_it = audited.kind == *kind;
            let listed = |(name, version): &(&str, u64)| Listed {
                name: Name::new("default", name),
                uid: format!("{kind}-0").into(),
                version: ResourceVersion(*version),
            };
            let objects = objects.iter().filter(|_| is_it).map(listed).collect();
            host.step(Event::Audit(audited.clone(), Response::Begun));
            host.step(Event::Audit(audited.clone(), Response::Page(Page { version, objects, is_last: true })));
            host.step(Event::Watch(audited, WatchEvent::Progress(version)));
            if is_it {
                return;
            }
        }
        host.pass(INTERVAL_MS / 2);
    }
    panic!("{kind} was not audited");
}

fn found(host: &Host, kind: &Kind) -> Vec<String> {
    let audited = host.observed.iter().filter_map(|seen| match seen {
        Observation::Audited { kind: of, differences } if of == kind => Some(differences),
        _ => None,
    });
    audited.flatten().map(ToString::to_string).collect()
}

#[test]
fn an_audit_finds_an_event_that_a_watch_has_lost_and_relists_the_kind() {
    let mut host = auditing();
    host.create_objects(0, 1);
    host.end_creates();
    let kind = kind_of(0);
    let version =
        parsed(host.objects[&object_ref(0)]["metadata"]["resourceVersion"].as_str().unwrap()).as_u64().unwrap();
    audit(&mut host, &kind, &[("object-0", version)]);
    assert_eq!(found(&host, &kind), [""; 0]);
    // The object changes without an event.
    host.listed.clear();
    host.version += 1;
    let newer = host.version;
    audit(&mut host, &kind, &[("object-0", newer)]);
    assert_eq!(found(&host, &kind), ["default/object-0 outdated"]);
    assert!(host.listed.contains(&kind));
}

/// The create of the object's child has succeeded, with a version before the restore. The watch does not show it.
fn end_create(host: &mut Host) {
    let (id, _) = host.creates.pop().unwrap();
    host.step(Event::Wrote(id, Ok(Written { uid: "child".into(), resource_version: ResourceVersion(1_000) })));
}

#[test]
fn after_a_restore_no_key_waits_for_a_version_and_every_kind_is_relisted() {
    let mut host = auditing();
    host.create_objects(0, 1);
    end_create(&mut host);
    let calls = host.calls;
    host.listed.clear();
    host.version = 5;
    notice(&mut host);
    assert_eq!(host.count_observed(|observation| matches!(observation, Observation::Restored { .. })), 1);
    let others: BTreeSet<Kind> =
        host.watched.iter().map(|slice| slice.kind.clone()).filter(|kind| *kind != kind_of(0)).collect();
    let listed: BTreeSet<Kind> = host.listed.iter().cloned().collect();
    assert_eq!(listed, others, "the informer that noticed the restore relists by itself");
    assert_eq!(host.calls, calls, "R4: no call before the kind is listed");
    list(&mut host);
    assert!(host.calls > calls, "the key does not wait for version 1000");
    assert!(!host.creates.is_empty(), "the undone child is created again");
}

/// A host that notices a restore while it creates the object's child.
fn restored() -> Host {
    let mut host = auditing();
    host.create_objects(0, 1);
    host.version = 5;
    host.listed.clear();
    notice(&mut host);
    host
}

fn notice(host: &mut Host) {
    let restored = WatchEvent::Restored { before: ResourceVersion(900), now: ResourceVersion(5) };
    host.step(Event::Watch(kind_of(0).into(), restored));
}

/// The relist of the kind whose informer noticed the restore.
fn list(host: &mut Host) {
    let object = decoded(&host.objects[&object_ref(0)]);
    for event in [WatchEvent::Listing, WatchEvent::Listed(vec![*object]), WatchEvent::ListDone(ResourceVersion(5))] {
        host.step(Event::Watch(kind_of(0).into(), event));
    }
}

#[test]
fn no_key_waits_for_a_write_sent_before_a_restore_whose_result_comes_afterwards() {
    let mut host = restored();
    end_create(&mut host);
    list(&mut host);
    host.pass(1_000);
    assert!(!host.creates.is_empty(), "the key waits for version 1000");
}

#[test]
fn a_call_that_began_before_a_restore_is_repeated() {
    let mut host = auditing();
    host.slow_guests = true;
    host.create_objects(0, 1);
    host.version = 5;
    notice(&mut host);
    list(&mut host);
    let (calls, done) = (host.calls, host.results.pop().expect("a call is in flight"));
    host.step(done);
    assert_eq!((host.calls, host.creates.len()), (calls + 1, 0), "its snapshot is older than the restore");
}

#[test]
fn a_restore_that_many_watches_notice_relists_each_kind_once_and_registers_each_crd_again() {
    let mut host = restored();
    let (listed, registered) = (host.listed.len(), host.registered);
    notice(&mut host);
    assert_eq!(host.listed.len(), listed, "the relist is in progress");
    list(&mut host);
    host.pass(10_000);
    assert!(host.registered >= registered + 2, "the host's own and the plugin's");
    notice(&mut host);
    assert!(host.listed.len() > listed, "this is another restore");
}

#[test]
fn q4_a_server_whose_versions_go_back_all_the_time_has_its_own_kind_listed_and_the_others_seldom() {
    let mut host = auditing();
    host.create_objects(0, 1);
    let others = host.watched.len() - 1;
    let mut relists = Vec::new();
    host.version = 5;
    for second in 0..1_800 {
        let (before, calls) = (host.listed.len(), host.calls);
        notice(&mut host);
        list(&mut host);
        if host.listed.len() == before {
            // Nothing else waits for a list, so the plugin is called as before.
            host.set_metadata(&object_ref(0), "labels", json!({"changed": second.to_string()}));
            host.end_creates();
            assert!(host.calls > calls, "the key waits for a list of another kind");
        }
        host.pass(2_000);
        relists.push(host.listed.len() - before);
    }
    let all = relists.iter().filter(|relists| **relists >= others).count();
    assert!((4..=12).contains(&all), "{all} relists of every kind in an hour");
    host.listed.clear();
    host.pass(15 * 60_000);
    assert!(host.listed.len() > others, "and what was noticed last is not lost: {:?}", host.listed);
}
