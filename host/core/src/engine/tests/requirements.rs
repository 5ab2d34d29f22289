//! Shared informers and components last as long as one plugin requires them, and a removed plugin releases its kinds.

use super::*;
use crate::watch::WatchError;

fn config_map() -> Kind {
    Kind::new("v1", "ConfigMap")
}

/// The kinds watched for these plugins and the host.
fn kinds_of(numbers: &[usize]) -> BTreeSet<Slice> {
    let own = numbers.iter().flat_map(|number| [kind_of(*number), input_of(*number)]);
    own.chain([config_map(), plugin_object::kind()]).map(Slice::from).collect()
}

fn serves(host: &Host, number: usize) -> bool {
    host.health_of(number).is_some_and(|plugin| plugin.digest.is_some())
}

fn reconciles(host: &mut Host, number: usize) -> bool {
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
    // The old component is unloaded when the new version serves.
    host.offer_component(0, component(0, 2));
    assert_eq!(host.loaded, BTreeSet::from([component(0, 2), component(2, 1)]));
    // A version with another kind releases the old one.
    host.offer_component(0, component(1, 1));
    assert_eq!(host.watched, kinds_of(&[1, 2]));
    host.withdraw(0);
    host.withdraw(2);
    assert_eq!(host.watched, BTreeSet::from([plugin_object::kind().into()]));
    assert_eq!(host.loaded, BTreeSet::new());
}

#[test]
fn l2_a_plugin_that_waits_for_a_kind_gets_it_when_it_is_released_without_another_compilation() {
    let mut host = Host::serving(3);
    // Two plugins of the first one's kind.
    host.offer_component(7, component(0, 1));
    host.offer_component(8, component(0, 1));
    assert!(!serves(&host, 7) && !serves(&host, 8));
    // Another kind is released, and then none.
    host.withdraw(1);
    host.offer_component(0, component(0, 2));
    assert!(serves(&host, 0) && !serves(&host, 7) && !serves(&host, 8));
    // The first plugin changes its kind: one of the two gets the old one, and the other gets it later.
    host.offer_component(0, component(1, 1));
    assert!(serves(&host, 7) && !serves(&host, 8));
    host.withdraw(7);
    assert!(serves(&host, 8));
    assert_eq!(host.compiled, 5, "three, and two more versions");
}

#[test]
fn l2_a_plugin_that_is_removed_while_it_waits_for_a_kind_does_not_get_it() {
    let mut host = Host::serving(1);
    host.offer_component(7, component(0, 1));
    host.withdraw(7);
    host.withdraw(0);
    assert_eq!((host.engine.health().plugins.len(), host.watched.len(), host.loaded.len()), (0, 1, 0));
}

#[test]
fn r5_a_kind_that_may_not_be_read_blocks_its_readers_and_no_other_plugin() {
    let mut host = Host::serving(3);
    let denied = |kind: Kind| Event::Watch(kind.into(), WatchEvent::Failed(WatchError::Denied("no".to_owned())));
    host.step(denied(input_of(1)));
    assert!(reconciles(&mut host, 0) && !reconciles(&mut host, 1));
    host.step(denied(config_map()));
    assert!(!reconciles(&mut host, 2), "every plugin owns ConfigMaps");
    for kind in [input_of(1), config_map()] {
        let version = ResourceVersion(host.version);
        host.step(Event::Watch(kind.clone().into(), WatchEvent::Listing));
        host.step(Event::Watch(kind.into(), WatchEvent::ListDone(version)));
    }
    let ready = host.engine.health().plugins.iter().filter(|plugin| plugin.ready).count();
    assert_eq!(ready, 3);
    let wanted: BTreeSet<Arc<str>> = host.creates.iter().map(|(_, plugin)| Arc::clone(plugin)).collect();
    assert_eq!(wanted, BTreeSet::from([0, 1, 2].map(plugin_name)));
}
