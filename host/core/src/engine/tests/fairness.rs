//! What plugins share, and how it comes back when a plugin is replaced or gone (Q4).

use super::*;

fn writing(host: &Host, number: usize) -> usize {
    host.creates.iter().filter(|(_, plugin)| *plugin == plugin_name(number)).count()
}

/// The API server refuses everything that a plugin has sent so far.
fn refuse_all(host: &mut Host, number: usize) {
    let (of_plugin, of_others) = host.creates.drain(..).partition(|(_, plugin)| *plugin == plugin_name(number));
    host.creates = of_others;
    let of_plugin: Vec<(WriteId, Arc<str>)> = of_plugin;
    for (id, _) in of_plugin {
        let error = WriteError { class: WriteErrorClass::Invalid, message: "no".to_owned() };
        host.step(Event::Wrote(id, Err(error)));
    }
}

#[test]
fn q4_writes_that_hang_take_three_quarters_of_what_is_left_until_they_end_or_their_plugin_is_gone() {
    let mut host = Host::serving(3);
    host.create_objects(0, 100);
    host.create_objects(1, 100);
    assert_eq!((writing(&host, 0), writing(&host, 1)), (48, 12));
    // A newer version of the plugin has its writes to answer for as before.
    host.offer_component(0, component(0, 2));
    assert_eq!((writing(&host, 0), writing(&host, 1)), (48, 12));
    // What a plugin leaves behind is nobody's: the other gets its part of everything, and no more.
    host.withdraw(0);
    assert_eq!(writing(&host, 1), 48);
    refuse_all(&mut host, 0);
    host.create_objects(2, 100);
    assert_eq!((writing(&host, 1), writing(&host, 2)), (48, 12));
    // What has ended is given back, once.
    host.step(Event::Shutdown);
    refuse_all(&mut host, 1);
    refuse_all(&mut host, 2);
    assert_eq!(host.engine.reconciler.under_way(), (0, 0));
}
