//! A cache that differs from the API server, and an API server whose versions went backwards: both are noticed and mended.

use super::*;
use crate::audit::{Answer, Listed, Page};

const INTERVAL_MS: u64 = 60_000;

fn auditing() -> Host {
    let mut host = Host::started_as(Config { audit_interval_ms: INTERVAL_MS, ..config() });
    host.offer(0);
    host
}

/// Lets time pass until a kind is audited, and answers that it has these objects.
fn audit(host: &mut Host, kind: &Kind, objects: &[(&str, u64)]) {
    for _ in 0..10 {
        while let Some(audited) = host.audited.pop() {
            let version = ResourceVersion(host.version);
            let is_it = audited == *kind;
            let listed = |(name, version): &(&str, u64)| Listed {
                name: Name::new("default", name),
                uid: format!("{kind}-0").into(),
                version: ResourceVersion(*version),
            };
            let objects = objects.iter().filter(|_| is_it).map(listed).collect();
            host.step(Event::Audit(audited.clone(), Answer::Begun));
            host.step(Event::Audit(audited.clone(), Answer::Page(Page { version, objects, is_last: true })));
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
fn an_event_that_a_watch_has_lost_is_found_and_mended_by_a_list_that_wakes_the_key() {
    let mut host = auditing();
    host.create_objects(0, 1);
    host.end_creates();
    let (kind, version) = (kind_of(0), host.objects_version("object-0"));
    audit(&mut host, &kind, &[("object-0", version)]);
    assert_eq!(found(&host, &kind), [""; 0], "what is as it should be is nothing to tell");
    // The object has changed, and no event of it has come.
    host.listed.clear();
    host.version += 1;
    let newer = host.version;
    audit(&mut host, &kind, &[("object-0", newer)]);
    assert_eq!(found(&host, &kind), ["default/object-0 outdated"]);
    assert!(host.listed.contains(&kind), "it is listed anew");
}

#[test]
fn versions_that_went_backwards_are_waited_for_no_more_and_every_kind_is_listed_anew() {
    let mut host = auditing();
    host.create_objects(0, 1);
    // Its child was created, and the watch does not show it.
    let (id, _) = host.creates.pop().unwrap();
    let written = Written { uid: "child".into(), resource_version: ResourceVersion(1_000) };
    host.step(Event::Wrote(id, Ok(written)));
    let calls = host.calls;
    host.listed.clear();
    host.version = 5;
    notice(&mut host);
    assert!(host.observed.iter().any(|seen| matches!(seen, Observation::Restored { .. })));
    let others: BTreeSet<Kind> = host.watched.iter().filter(|kind| **kind != kind_of(0)).cloned().collect();
    assert_eq!(
        host.listed.iter().cloned().collect::<BTreeSet<_>>(),
        others,
        "the one that has noticed lists by itself"
    );
    assert_eq!(host.calls, calls, "R4: nothing is called before the kind is listed");
    list(&mut host);
    assert!(host.calls > calls, "and then nothing waits for version 1000");
    assert!(!host.creates.is_empty(), "the child that was taken back is created again");
}

/// A host whose object's child is being created, and that has just noticed a restore.
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
    host.step(Event::Watch(kind_of(0), restored));
}

/// The kind that has noticed is listed.
fn list(host: &mut Host) {
    let object = host.objects[&ObjectRef { kind: kind_of(0), name: Name::new("default", "object-0") }].clone();
    host.step(Event::Watch(kind_of(0), WatchEvent::Listing));
    host.step(Event::Watch(kind_of(0), WatchEvent::Listed(decoded(&object))));
    host.step(Event::Watch(kind_of(0), WatchEvent::ListDone(ResourceVersion(5))));
}

#[test]
fn what_was_written_before_a_restore_is_not_waited_for_when_its_answer_comes_after_it() {
    let mut host = restored();
    let (id, _) = host.creates.pop().unwrap();
    host.step(Event::Wrote(id, Ok(Written { uid: "child".into(), resource_version: ResourceVersion(1_000) })));
    list(&mut host);
    host.pass(1_000);
    assert!(!host.creates.is_empty(), "the key waits for version 1000");
}

#[test]
fn what_was_called_before_a_restore_is_called_again() {
    let mut host = auditing();
    host.slow_guests = true;
    host.create_objects(0, 1);
    host.version = 5;
    notice(&mut host);
    list(&mut host);
    let (calls, done) = (host.calls, host.answers.pop().expect("a call is under way"));
    host.step(done);
    assert_eq!((host.calls, host.creates.len()), (calls + 1, 0), "its view was of before");
}

#[test]
fn one_restore_that_many_watches_notice_lists_each_kind_once_and_registers_each_definition_anew() {
    let mut host = restored();
    let listed = host.listed.len();
    let registered = host.registered;
    notice(&mut host);
    assert_eq!(host.listed.len(), listed, "it is being listed anew already");
    list(&mut host);
    host.pass(10_000);
    assert!(host.registered >= registered + 2, "the host's own and the plugin's");
    notice(&mut host);
    assert!(host.listed.len() > listed, "and then etcd was restored once more");
}
