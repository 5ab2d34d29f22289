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
    let restored = WatchEvent::Restored { before: ResourceVersion(900), now: ResourceVersion(5) };
    host.version = 5;
    host.step(Event::Watch(kind_of(0), restored));
    assert!(host.observed.iter().any(|seen| matches!(seen, Observation::Restored { .. })));
    let others: BTreeSet<Kind> = host.watched.iter().filter(|kind| **kind != kind_of(0)).cloned().collect();
    assert_eq!(
        host.listed.iter().cloned().collect::<BTreeSet<_>>(),
        others,
        "the one that has noticed lists by itself"
    );
    assert_eq!(host.calls, calls, "R4: nothing is called before the kind is listed");
    let object = host.objects[&ObjectRef { kind: kind_of(0), name: Name::new("default", "object-0") }].clone();
    host.step(Event::Watch(kind_of(0), WatchEvent::Listing));
    host.step(Event::Watch(kind_of(0), WatchEvent::Listed(decoded(&object))));
    host.step(Event::Watch(kind_of(0), WatchEvent::ListDone(ResourceVersion(5))));
    assert!(host.calls > calls, "and then nothing waits for version 1000");
    assert!(!host.creates.is_empty(), "the child that was taken back is created again");
}
