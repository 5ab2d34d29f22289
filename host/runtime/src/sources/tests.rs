//! Two sources, told in every order that matters.

use mortise_core::component::Offer;
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::refusal::Refusal;
use mortise_source::{Origin, SourceEvent};

use super::{Offers, Source, SourceInput, SourceOutput};

fn has(source: Source, name: &str, digest: &str) -> SourceInput {
    let offer = Offer {
        name: name.into(),
        source: format!("{source}, {name}").into(),
        digest: Digest(digest.into()),
        config: "{}".into(),
    };
    SourceInput { source, event: SourceEvent::Found { offer, origin: Origin::File(name.into()) } }
}

fn gone(source: Source, name: &str) -> SourceInput {
    SourceInput { source, event: SourceEvent::Gone(name.into()) }
}

fn listed(source: Source) -> SourceInput {
    SourceInput { source, event: SourceEvent::Listed }
}

/// What the driver is told, in short.
fn words(told: Vec<SourceOutput>) -> Vec<String> {
    let word = |told: SourceOutput| {
        let (event, origin) = match told {
            SourceOutput::Event(event, origin) => (*event, origin),
            SourceOutput::ReadAgain(source) => return format!("read {source} again"),
        };
        match event {
            Event::PluginFound(offer) => {
                let expected = (offer.digest.clone(), Origin::File((*offer.name).into()));
                assert_eq!(origin, Some(expected), "{offer:?}");
                format!("found {} {}", offer.name, offer.digest)
            }
            Event::PluginUnreadable { name, refusal, .. } => format!("unreadable {name}: {refusal}"),
            Event::PluginGone { name, source } => format!("gone {name} of {source}"),
            Event::SourcesListed => "listed".to_owned(),
            other => panic!("not for a source to say: {other:?}"),
        }
    };
    told.into_iter().map(word).collect()
}

use Source::{ConfigMaps, Directory};

const NOTHING: [&str; 0] = [];

#[test]
fn a_plugin_of_the_folder_hides_the_configmap_of_its_name_until_it_is_gone() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    offers.take(listed(Directory));
    assert_eq!(words(offers.take(has(ConfigMaps, "podset", "a"))), ["found podset a"]);
    assert_eq!(
        words(offers.take(has(Directory, "podset", "b"))),
        ["gone podset of the ConfigMaps, podset", "found podset b"]
    );
    assert_eq!(words(offers.take(has(ConfigMaps, "podset", "c"))), NOTHING);
    // It goes on serving until the other one is read.
    assert_eq!(words(offers.take(gone(Directory, "podset"))), ["read the ConfigMaps again"]);
    assert_eq!(
        words(offers.take(has(ConfigMaps, "podset", "c"))),
        ["gone podset of the plugin folder, podset", "found podset c"]
    );
    assert_eq!(words(offers.take(gone(ConfigMaps, "podset"))), ["gone podset of the ConfigMaps, podset"]);
    assert_eq!(words(offers.take(gone(ConfigMaps, "podset"))), NOTHING);
}

#[test]
fn a_plugin_that_neither_source_has_any_longer_goes_though_the_second_was_to_be_read_again() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    offers.take(listed(Directory));
    offers.take(has(Directory, "podset", "b"));
    offers.take(has(ConfigMaps, "podset", "c"));
    assert_eq!(words(offers.take(gone(Directory, "podset"))), ["read the ConfigMaps again"]);
    assert_eq!(words(offers.take(gone(ConfigMaps, "podset"))), ["gone podset of the plugin folder, podset"]);
    assert_eq!(words(offers.take(has(ConfigMaps, "podset", "c"))), ["found podset c"], "nothing is left of the first");
}

#[test]
fn a_file_that_comes_back_before_the_configmap_was_read_again_serves() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    offers.take(listed(Directory));
    offers.take(has(Directory, "podset", "b"));
    offers.take(has(ConfigMaps, "podset", "c"));
    offers.take(gone(Directory, "podset"));
    assert_eq!(
        words(offers.take(has(Directory, "podset", "d"))),
        ["gone podset of the plugin folder, podset", "found podset d"]
    );
    assert_eq!(words(offers.take(has(ConfigMaps, "podset", "c"))), NOTHING);
}

#[test]
fn a_hidden_plugin_that_goes_is_nobodys_business() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    offers.take(listed(Directory));
    offers.take(has(Directory, "podset", "b"));
    offers.take(has(ConfigMaps, "podset", "a"));
    assert_eq!(words(offers.take(gone(ConfigMaps, "podset"))), NOTHING);
    assert_eq!(words(offers.take(gone(Directory, "podset"))), ["gone podset of the plugin folder, podset"]);
}

#[test]
fn the_sources_are_listed_once_both_of_them_are() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    assert_eq!(words(offers.take(listed(Directory))), NOTHING);
    assert_eq!(words(offers.take(listed(ConfigMaps))), ["listed"]);
    assert_eq!(words(offers.take(listed(ConfigMaps))), NOTHING, "a second listing is no news");
}

#[test]
fn configmaps_wait_for_the_folder_so_that_a_restart_begins_with_the_right_one() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    for early in [has(ConfigMaps, "podset", "a"), has(ConfigMaps, "crontab", "c"), listed(ConfigMaps)] {
        assert_eq!(words(offers.take(early)), NOTHING);
    }
    assert_eq!(words(offers.take(has(Directory, "podset", "b"))), ["found podset b"]);
    assert_eq!(words(offers.take(listed(Directory))), ["found crontab c", "listed"]);
}

#[test]
fn of_a_plugin_that_waits_only_the_newest_reading_is_kept() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    for digest in ["a", "b", "c"] {
        assert_eq!(words(offers.take(has(ConfigMaps, "podset", digest))), NOTHING);
    }
    offers.take(has(ConfigMaps, "crontab", "d"));
    offers.take(gone(ConfigMaps, "crontab"));
    assert_eq!(offers.held.len(), 1);
    assert_eq!(words(offers.take(listed(Directory))), ["found podset c"]);
    assert!(offers.held.is_empty());
}

#[test]
fn a_folder_that_is_not_listed_in_time_keeps_nobody_waiting_and_comes_in_later() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    offers.take(has(ConfigMaps, "podset", "a"));
    offers.take(listed(ConfigMaps));
    // Not "listed": whoever is told that takes plugins away that the folder may have.
    assert_eq!(words(offers.listing_due(Directory)), ["found podset a"]);
    assert_eq!(words(offers.take(has(ConfigMaps, "crontab", "c"))), ["found crontab c"]);
    assert_eq!(words(offers.listing_due(Directory)), NOTHING);
    assert_eq!(
        words(offers.take(has(Directory, "podset", "b"))),
        ["gone podset of the ConfigMaps, podset", "found podset b"]
    );
    assert_eq!(words(offers.take(listed(Directory))), ["listed"]);
}

#[test]
fn a_folder_that_was_listed_in_time_is_not_overdue() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    offers.take(listed(Directory));
    offers.take(has(ConfigMaps, "podset", "a"));
    assert_eq!(words(offers.listing_due(Directory)), NOTHING);
    assert_eq!(words(offers.take(listed(ConfigMaps))), ["listed"]);
}

#[test]
fn what_cannot_be_read_is_told_with_the_reason_and_may_be_mended() {
    let mut offers = Offers::new(&[ConfigMaps]);
    let refusal = Refusal::new("KeyMissing", "there is no key plugin.wasm");
    let event = SourceEvent::Unreadable { name: "podset".into(), source: "ConfigMap a/podset".into(), refusal };
    let unreadable = SourceInput { source: ConfigMaps, event };
    assert_eq!(words(offers.take(unreadable)), ["unreadable podset: there is no key plugin.wasm"]);
    assert_eq!(words(offers.take(has(ConfigMaps, "podset", "a"))), ["found podset a"]);
}
