//! Two sources, with their events in every order that matters.

use mortise_core::component::{Offer, Unreadable};
use mortise_core::digest::Digest;
use mortise_core::event::Event;
use mortise_core::refusal::Refusal;
use mortise_source::{Origin, SourceEvent};

use super::{Offers, Source, SourceInput, SourceOutput};

fn has(source: Source, name: &str, digest: &str) -> SourceInput {
    let offer = Offer::new(name, format!("{source}, {name}"), Digest(digest.into()), "{}");
    SourceInput { source, event: SourceEvent::Found { offer, origin: Origin::File(name.into()) } }
}

fn gone(source: Source, name: &str) -> SourceInput {
    SourceInput { source, event: SourceEvent::Gone(name.into()) }
}

fn listed(source: Source) -> SourceInput {
    SourceInput { source, event: SourceEvent::Listed }
}

/// The outputs, in short.
fn words(outputs: Vec<SourceOutput>) -> Vec<String> {
    let word = |output: SourceOutput| {
        let (event, origin) = match output {
            SourceOutput::Event(event, origin) => (*event, origin),
            SourceOutput::ReadAgain(source) => return format!("read {source} again"),
        };
        match event {
            Event::PluginFound(offer) => {
                let expected = (offer.digest.clone(), Origin::File((*offer.name).into()));
                assert_eq!(origin, Some(expected), "{offer:?}");
                format!("found {} {}", offer.name, offer.digest)
            }
            Event::PluginUnreadable(Unreadable { name, refusal, .. }) => format!("unreadable {name}: {refusal}"),
            Event::PluginGone { name, source } => format!("gone {name} of {source}"),
            Event::SourcesListed => "listed".to_owned(),
            other => panic!("not an event of a source: {other:?}"),
        }
    };
    outputs.into_iter().map(word).collect()
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
    // It serves until the other one is read.
    assert_eq!(words(offers.take(gone(Directory, "podset"))), ["read the ConfigMaps again"]);
    assert_eq!(
        words(offers.take(has(ConfigMaps, "podset", "c"))),
        ["gone podset of the plugin folder, podset", "found podset c"]
    );
    assert_eq!(words(offers.take(gone(ConfigMaps, "podset"))), ["gone podset of the ConfigMaps, podset"]);
    assert_eq!(words(offers.take(gone(ConfigMaps, "podset"))), NOTHING);
}

#[test]
fn a_plugin_that_both_sources_lose_is_gone_also_before_the_second_was_read_again() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    offers.take(listed(Directory));
    offers.take(has(Directory, "podset", "b"));
    offers.take(has(ConfigMaps, "podset", "c"));
    assert_eq!(words(offers.take(gone(Directory, "podset"))), ["read the ConfigMaps again"]);
    assert_eq!(words(offers.take(gone(ConfigMaps, "podset"))), ["gone podset of the plugin folder, podset"]);
    assert_eq!(words(offers.take(has(ConfigMaps, "podset", "c"))), ["found podset c"], "the first is gone already");
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
fn a_hidden_plugin_that_is_removed_causes_no_event() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    offers.take(listed(Directory));
    offers.take(has(Directory, "podset", "b"));
    offers.take(has(ConfigMaps, "podset", "a"));
    assert_eq!(words(offers.take(gone(ConfigMaps, "podset"))), NOTHING);
    assert_eq!(words(offers.take(gone(Directory, "podset"))), ["gone podset of the plugin folder, podset"]);
}

#[test]
fn the_sources_are_listed_when_both_are() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    assert_eq!(words(offers.take(listed(Directory))), NOTHING);
    assert_eq!(words(offers.take(listed(ConfigMaps))), ["listed"]);
    assert_eq!(words(offers.take(listed(ConfigMaps))), NOTHING, "the engine knows it");
}

#[test]
fn configmaps_wait_for_the_folder_so_that_a_restart_begins_with_the_right_plugin() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    for early in [has(ConfigMaps, "podset", "a"), has(ConfigMaps, "crontab", "c"), listed(ConfigMaps)] {
        assert_eq!(words(offers.take(early)), NOTHING);
    }
    assert_eq!(words(offers.take(has(Directory, "podset", "b"))), ["found podset b"]);
    assert_eq!(words(offers.take(listed(Directory))), ["found crontab c", "listed"]);
}

#[test]
fn of_a_plugin_that_waits_only_the_newest_event_is_held() {
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
fn a_folder_that_is_not_listed_in_time_is_taken_later() {
    let mut offers = Offers::new(&[Directory, ConfigMaps]);
    offers.take(has(ConfigMaps, "podset", "a"));
    offers.take(listed(ConfigMaps));
    // Not "listed": then the engine would withdraw plugins that the folder may have.
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
fn an_unreadable_plugin_has_a_reason_and_may_become_readable() {
    let mut offers = Offers::new(&[ConfigMaps]);
    let refusal = Refusal::new("KeyMissing", "there is no key plugin.wasm");
    let event = SourceEvent::Unreadable(Unreadable {
        name: "podset".into(),
        source: "ConfigMap a/podset".into(),
        refusal,
        only_named: false,
        tenant: None,
    });
    let unreadable = SourceInput { source: ConfigMaps, event };
    assert_eq!(words(offers.take(unreadable)), ["unreadable podset: there is no key plugin.wasm"]);
    assert_eq!(words(offers.take(has(ConfigMaps, "podset", "a"))), ["found podset a"]);
}
