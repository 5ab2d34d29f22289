//! What plugins share is there for as long as one of them needs it, and what is one's alone is free when it has gone.

use super::*;
use crate::watch::WatchError;

fn config_map() -> Kind {
    Kind::new("v1", "ConfigMap")
}

/// What is watched for plugins that reconcile these, and for the host.
fn kinds_of(numbers: &[usize]) -> BTreeSet<Kind> {
    let own = numbers.iter().flat_map(|number| [kind_of(*number), input_of(*number)]);
    own.chain([config_map(), plugin_object::kind()]).collect()
}

fn serves(host: &Host, number: usize) -> bool {
    let health = host.engine.health();
    health.plugins.iter().any(|plugin| plugin.name == plugin_name(number) && plugin.digest.is_some())
}

fn wants_children(host: &mut Host, number: usize) -> bool {
    let before = host.creates.len();
    host.create_objects(number, 1);
    host.creates.len() > before
}

#[test]
fn a_watch_and_a_component_last_as_long_as_one_plugin_needs_them() {
    let mut host = Host::serving(3);
    assert_eq!(host.watched, kinds_of(&[0, 1, 2]));
    host.withdraw(1);
    assert_eq!(host.watched, kinds_of(&[0, 2]));
    assert_eq!(host.loaded, BTreeSet::from([component(0, 1), component(2, 1)]));
    // The old version goes when the new one serves, and not before.
    host.offer_component(0, component(0, 2));
    assert_eq!(host.loaded, BTreeSet::from([component(0, 2), component(2, 1)]));
    // A plugin that turns to another kind leaves its old one.
    host.offer_component(0, component(1, 1));
    assert_eq!(host.watched, kinds_of(&[1, 2]));
    host.withdraw(0);
    host.withdraw(2);
    assert_eq!(host.watched, BTreeSet::from([plugin_object::kind()]), "the host's own");
    assert_eq!(host.loaded, BTreeSet::new());
}

#[test]
fn l2_a_kind_that_has_become_free_goes_to_a_plugin_that_waits_for_it_without_another_compilation() {
    let mut host = Host::serving(3);
    // Two that do the same as the first, under names of their own.
    host.offer_component(7, component(0, 1));
    host.offer_component(8, component(0, 1));
    assert!(!serves(&host, 7) && !serves(&host, 8));
    // What frees another kind, or nothing, is nothing to them.
    host.withdraw(1);
    host.offer_component(0, component(0, 2));
    assert!(serves(&host, 0) && !serves(&host, 7) && !serves(&host, 8));
    // The first turns to another kind: one of the two gets what it leaves, the other goes on waiting, and gets it later.
    host.offer_component(0, component(1, 1));
    assert!(serves(&host, 7) && !serves(&host, 8));
    host.withdraw(7);
    assert!(serves(&host, 8));
    assert_eq!(host.compiled, 5, "three, and two more versions");
}

#[test]
fn l2_a_plugin_that_went_while_it_waited_for_a_kind_gets_none() {
    let mut host = Host::serving(1);
    host.offer_component(7, component(0, 1));
    host.withdraw(7);
    host.withdraw(0);
    assert_eq!((host.engine.health().plugins.len(), host.watched.len(), host.loaded.len()), (0, 1, 0));
}

#[test]
fn r5_a_kind_that_may_not_be_read_stops_those_that_read_it_and_nobody_else() {
    let mut host = Host::serving(3);
    let denied = |kind: Kind| Event::Watch(kind, WatchEvent::Failed(WatchError::Denied("no".to_owned())));
    host.step(denied(input_of(1)));
    assert!(wants_children(&mut host, 0) && !wants_children(&mut host, 1));
    host.step(denied(config_map()));
    assert!(!wants_children(&mut host, 2), "each has ConfigMaps");
    for kind in [input_of(1), config_map()] {
        let version = ResourceVersion(host.version);
        host.step(Event::Watch(kind.clone(), WatchEvent::Listing));
        host.step(Event::Watch(kind, WatchEvent::ListDone(version)));
    }
    let ready = host.engine.health().plugins.iter().filter(|plugin| plugin.ready).count();
    assert_eq!(ready, 3);
    let wanted: BTreeSet<Arc<str>> = host.creates.iter().map(|(_, plugin)| Arc::clone(plugin)).collect();
    assert_eq!(wanted, BTreeSet::from([0, 1, 2].map(plugin_name)), "what waited is done");
}
