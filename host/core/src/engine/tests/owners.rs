//! The owner of a kind after a restart of the host: the plugin that had it, whichever component is compiled first.

use super::*;
use crate::object::Object;
use crate::refusal::Refusal;

/// A host that restarts. It served plugin 0, and refused plugin 1, which is of the same kind. Compilations do not end.
fn restarted() -> Host {
    let mut before = Host::started();
    before.manifests.insert(component(1, 1), manifest(&plugin_name(1), &kind_of(0), 1));
    before.offer(0);
    before.offer(1);
    assert!(before.why_unready(0).is_none() && is_refused(&before));
    let mut host = Host::new(config());
    host.manifests = before.manifests;
    (host.now_ms, host.version, host.objects) = (before.now_ms + 10_000, before.version, before.objects);
    (host.held_compilations, host.held_lists) = (Some(Vec::new()), Some(Vec::new()));
    host.step(Event::Started);
    let plugins: Vec<Object> = host
        .objects
        .iter()
        .filter(|(target, _)| target.kind == plugin_object::kind())
        .map(|(_, object)| *decoded(object))
        .collect();
    let version = ResourceVersion(host.version);
    for event in [WatchEvent::Listed(plugins), WatchEvent::ListDone(version)] {
        host.step(Event::Watch(plugin_object::kind().into(), event));
    }
    host.held_lists = None;
    host
}

/// Whether plugin 1 waits for plugin 0.
fn is_refused(host: &Host) -> bool {
    let reason = "KindOwned: Kind0000.example.com is reconciled by the plugin \"plugin-0000\"";
    host.why_unready(1).is_some_and(|why| why.starts_with(reason))
}

/// The oldest compilation that has not ended.
fn compiled(host: &mut Host) -> Event {
    host.held_compilations.as_mut().unwrap().remove(0)
}

/// Both plugins are offered, and plugin 1 is compiled. Returns the end of the other compilation.
fn second_is_compiled_first(host: &mut Host) -> Event {
    host.offer(0);
    host.offer(1);
    host.step(Event::SourcesListed);
    let first = compiled(host);
    let second = compiled(host);
    host.step(second);
    assert!(is_refused(host), "{:?}", host.why_unready(1));
    first
}

#[test]
fn l2_after_a_restart_a_kind_waits_for_the_plugin_that_had_it_whichever_is_compiled_first() {
    let mut host = restarted();
    let first = second_is_compiled_first(&mut host);
    host.step(first);
    assert!(host.why_unready(0).is_none() && is_refused(&host), "{:?}", host.why_unready(0));
}

#[test]
fn l2_a_kind_waits_no_longer_for_a_plugin_that_is_refused_or_gone_or_has_another_kind_now() {
    let refused = Event::Compiled(component(0, 1), Err(Refusal::new("NotWasm", "this is not WebAssembly")));
    let gone = Event::PluginGone { name: plugin_name(0), source: source_of(&plugin_name(0)) };
    for ends in [Some(refused), Some(gone), None] {
        let mut host = restarted();
        if ends.is_none() {
            host.manifests.insert(component(0, 1), manifest(&plugin_name(0), &kind_of(5), 1));
        }
        let first = second_is_compiled_first(&mut host);
        host.step(ends.unwrap_or(first));
        assert_eq!(host.why_unready(1), None);
    }
}

#[test]
fn l2_a_kind_waits_for_a_plugin_that_no_source_has_offered_until_all_are_listed() {
    let mut host = restarted();
    host.offer(1);
    let compiled = compiled(&mut host);
    host.step(compiled);
    assert!(is_refused(&host), "{:?}", host.why_unready(1));
    host.step(Event::SourcesListed);
    assert_eq!(host.why_unready(1), None);
}
