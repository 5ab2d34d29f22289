//! What concerns very many objects at once is done in pieces, and what is large is handed out to be freed: nothing keeps the
//! event loop for long (Q4).

use super::*;
use crate::allocations::counted;

const OBJECTS: usize = 1_000;

/// A host whose plugin reads so many objects of another kind.
fn reading() -> (Host, Slice) {
    let mut host = Host::serving(1);
    let slice = Slice::from(input_of(0));
    let listed = |number: usize| {
        let name = format!("input-{number}");
        *decoded(&json!({
            "apiVersion": &*input_of(0).api_version, "kind": &*input_of(0).kind, "data": {"text": "x".repeat(1_000)},
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "5"},
        }))
    };
    host.version = 10;
    host.step(Event::Watch(slice.clone(), WatchEvent::Listing));
    host.step(Event::Watch(slice.clone(), WatchEvent::Listed((0..OBJECTS).map(listed).collect())));
    host.step(Event::Watch(slice.clone(), WatchEvent::ListDone(ResourceVersion(10))));
    assert_eq!(host.engine.store().snapshot().len(&input_of(0)), OBJECTS);
    (host, slice)
}

#[test]
fn q4_the_end_of_a_list_that_lacks_very_many_objects_takes_a_few_of_them_in_each_step() {
    let (mut host, slice) = reading();
    let left = |host: &Host| host.engine.store().snapshot().len(&input_of(0));
    host.step(Event::Watch(slice.clone(), WatchEvent::Listing));
    host.step(Event::Watch(slice.clone(), WatchEvent::ListDone(ResourceVersion(20))));
    let (mut before, mut steps) = (OBJECTS, 1);
    loop {
        assert!(before - left(&host) <= 128, "{} in one step", before - left(&host));
        before = left(&host);
        if before == 0 {
            break;
        }
        // Other inputs of the same millisecond do not take more.
        host.annotate(0);
        assert_eq!(left(&host), before);
        host.pass(1);
        steps += 1;
    }
    assert!((8..20).contains(&steps), "{steps} steps");
    assert!(host.engine.store().synced(slice));
}

#[test]
fn r4_a_first_list_is_complete_only_when_what_it_lacks_has_left_the_cache() {
    let (mut host, slice) = reading();
    // After a restore of etcd everything is listed anew.
    let (before, now) = (ResourceVersion(20), ResourceVersion(7));
    host.held_lists = Some(Vec::new());
    host.step(Event::Watch(slice.clone(), WatchEvent::Restored { before, now }));
    for held in host.held_lists.take().unwrap() {
        host.step(Event::Watch(held, WatchEvent::ListDone(ResourceVersion(8))));
    }
    host.step(Event::Watch(slice.clone(), WatchEvent::Listing));
    host.step(Event::Watch(slice.clone(), WatchEvent::ListDone(ResourceVersion(8))));
    host.create_objects(0, 1);
    let left = |host: &Host| host.engine.store().snapshot().len(&input_of(0));
    while left(&host) > 0 {
        assert_eq!((host.calls, host.engine.store().synced(slice.clone())), (0, false));
        host.pass(1);
    }
    host.pass(1);
    assert_eq!((host.calls, host.engine.store().synced(slice)), (1, true));
}

#[test]
fn q4_a_kind_that_nobody_reads_any_more_is_handed_out_to_be_freed() {
    let (mut host, _) = reading();
    let name = plugin_name(0);
    let source = source_of(&name);
    let mut effects = Vec::new();
    let now = Now { mono_ms: host.now_ms, unix_ms: 1_700_000_000_000 + host.now_ms };
    let (step, ()) = counted(|| host.engine.step(now, Event::PluginGone { name, source }, &mut effects));
    assert_eq!(host.engine.store().snapshot().len(&input_of(0)), 0);
    assert!(step.held_bytes > -(256 << 10), "the step has freed {} bytes", -step.held_bytes);
    let garbage = effects.into_iter().filter_map(|effect| match effect {
        Effect::Discard(garbage) => Some(garbage),
        _ => None,
    });
    let garbage: Vec<_> = garbage.collect();
    let (freed, ()) = counted(|| garbage.into_iter().for_each(crate::garbage::Garbage::free));
    assert!(freed.held_bytes < -(1 << 20), "{} bytes were freed at last", -freed.held_bytes);
}
