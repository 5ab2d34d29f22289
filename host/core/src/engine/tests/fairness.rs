//! Shared slots for keys being written, and their release when a plugin is replaced or removed (Q4).

use super::*;

fn writing(host: &Host, number: usize) -> usize {
    host.creates.iter().filter(|(_, plugin)| *plugin == plugin_name(number)).count()
}

fn fail_all(host: &mut Host, number: usize) {
    host.fail_creates(WriteErrorClass::Invalid, |plugin| *plugin == *plugin_name(number));
}

#[test]
fn q4_a_share_whose_writes_hang_has_16_keys_of_64_until_they_end_or_its_plugin_is_removed() {
    const PLUGINS: usize = 6;
    let mut host = Host::serving(PLUGINS);
    (0..PLUGINS).for_each(|number| host.create_objects(number, 100));
    let writing_of = |host: &Host| (0..PLUGINS).map(|number| writing(host, number)).collect::<Vec<_>>();
    let at_first = [16, 16, 16, 12, 3, 1];
    assert_eq!(writing_of(&host), at_first);
    // A newer version of the plugin counts the writes of the previous one.
    host.offer_component(0, component(0, 2));
    assert_eq!(writing_of(&host), at_first);
    // Removing the plugin frees its slots, and the late results of its writes free nothing more.
    host.withdraw(0);
    host.pass(1);
    let others = writing_of(&host)[1..].to_vec();
    assert_eq!(others, [16, 16, 16, 11, 3]);
    fail_all(&mut host, 0);
    host.pass(1);
    assert_eq!(writing_of(&host)[1..], others);
    host.step(Event::Shutdown);
    (1..PLUGINS).for_each(|number| fail_all(&mut host, number));
    assert_eq!(host.engine.reconciler.in_flight(), (0, 0));
}
