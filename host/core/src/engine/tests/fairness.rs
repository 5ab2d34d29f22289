//! Shared slots for keys being written, and their release when a plugin is replaced or removed (Q4).

use super::*;

fn writing(host: &Host, number: usize) -> usize {
    host.creates.iter().filter(|(_, plugin)| *plugin == plugin_name(number)).count()
}

fn fail_all(host: &mut Host, number: usize) {
    host.fail_creates(WriteErrorClass::Invalid, |plugin| *plugin == *plugin_name(number));
}

#[test]
fn q4_writes_that_hang_take_three_quarters_of_the_free_slots_until_they_end_or_their_plugin_is_removed() {
    let mut host = Host::serving(3);
    host.create_objects(0, 100);
    host.create_objects(1, 100);
    assert_eq!((writing(&host, 0), writing(&host, 1)), (48, 12));
    // A newer version of the plugin counts the writes of the previous one.
    host.offer_component(0, component(0, 2));
    assert_eq!((writing(&host, 0), writing(&host, 1)), (48, 12));
    // Removing the plugin frees its slots, and the late results of its writes free nothing more.
    host.withdraw(0);
    host.pass(1);
    assert_eq!(writing(&host, 1), 48);
    fail_all(&mut host, 0);
    host.create_objects(2, 100);
    assert_eq!((writing(&host, 1), writing(&host, 2)), (48, 12));
    host.step(Event::Shutdown);
    fail_all(&mut host, 1);
    fail_all(&mut host, 2);
    assert_eq!(host.engine.reconciler.in_flight(), (0, 0));
}
