//! Plugin objects that people write: which source a plugin has, and what its object shows of that.

use super::*;
use crate::component::Unreadable;

impl Alone {
    fn source_gone(&mut self, name: &str) {
        let place = format!("ConfigMap mortise-system/{name}").into();
        self.with(|lifecycle, cx| lifecycle.on_source_gone(&name.into(), &place, cx));
    }
}

fn of(source: &str) -> Value {
    json!({"source": {"configMap": source}})
}

#[test]
fn a_plugin_has_the_source_that_its_object_names_until_that_is_deleted() {
    let mut alone = Alone::started();
    alone.source("podset-a", "1");
    assert_eq!(alone.log(), NONE, "it is no plugin of its own");
    alone.want("podset", of("podset-a"));
    assert_eq!(alone.log(), ["compile 1"]);
    alone.comes_up("podset", "1");
    assert_eq!((alone.ready("podset"), alone.condition("podset", "Reconciling")), two("True Serving", "none none"));
    assert_eq!(*alone.shows("podset", "/host"), "mortise-system");
    assert_eq!(*alone.shows("podset", "/observed/sourceVersion"), "17");
    alone.log();

    alone.source("podset-b", "2");
    assert_eq!(alone.log(), NONE);
    alone.want("podset", of("podset-b"));
    alone.source_gone("podset-a");
    alone.comes_up("podset", "2");
    let log = alone.log();
    assert!(log.contains(&"serve podset 2".to_owned()) && !log.contains(&"withdraw podset".to_owned()), "{log:?}");
    assert_eq!(
        (alone.ready("podset"), alone.shows("podset", "/observed/digest")),
        ("True Serving".into(), &json!("2"))
    );

    alone.unwant("podset");
    let log = alone.log();
    assert!(log.contains(&"withdraw podset".to_owned()), "{log:?}");
    alone.pass(60_000);
    assert!(!alone.log().iter().any(|line| line.starts_with("create") || line.starts_with("delete")));
}

fn two(first: &str, second: &str) -> (String, String) {
    (first.to_owned(), second.to_owned())
}

#[test]
fn a_source_that_a_plugin_names_is_no_plugin_of_its_own_name_meanwhile() {
    let mut alone = Alone::serving();
    alone.want("mine", of("podset"));
    let log = alone.log();
    assert!(log.contains(&"withdraw podset".to_owned()) && log.contains(&"delete podset".to_owned()), "{log:?}");
    alone.settle();
    assert!(!alone.objects.contains_key("podset"));
    alone.comes_up("mine", "1");
    assert_eq!(alone.ready("mine"), "True Serving");
    alone.unwant("mine");
    alone.settle();
    assert!(alone.objects.contains_key("podset"), "nobody names it any more");
}

#[test]
fn what_a_plugin_object_lacks_or_pins_stalls_it_and_the_version_before_serves_on() {
    let mut alone = Alone::started();
    alone.want("podset", json!({"source": {"configMap": "podset-a"}, "digest": "1"}));
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Stalled")),
        two("False SourceNotFound", "True SourceNotFound")
    );
    alone.source("podset-a", "1");
    alone.comes_up("podset", "1");
    assert_eq!((alone.ready("podset"), alone.condition("podset", "Stalled")), two("True Serving", "none none"));
    alone.source("podset-a", "2");
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Stalled")),
        two("True ServingPrevious", "True DigestMismatch")
    );
    alone.want("podset", json!({"source": {"configMap": "podset-a"}, "digest": "2"}));
    alone.comes_up("podset", "2");
    alone.want("podset", json!({"source": {"configMap": "podset-a"}, "digest": "3"}));
    alone.settle();
    assert_eq!(alone.ready("podset"), "False DigestMismatch", "no other component serves than the pinned one");
    alone.want("podset", json!({"source": {"configMap": "podset-a"}, "digest": "2"}));
    alone.comes_up("podset", "2");
    assert_eq!((alone.ready("podset"), alone.shows("podset", "/digest")), ("True Serving".into(), &json!("2")));
    alone.source_gone("podset-a");
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Stalled")),
        two("True ServingPrevious", "True SourceNotFound")
    );
}

#[test]
fn a_plugin_whose_sources_are_not_listed_yet_waits_and_is_not_stalled() {
    let mut alone = Alone::new(0);
    alone.with(Lifecycle::start);
    alone.registered("", plugin_object::CRD_NAME, Ok(CrdOwner::Plugin));
    alone.list("Plugin");
    alone.want("podset", of("podset-a"));
    alone.settle();
    assert_eq!(
        (alone.condition("podset", "Stalled"), alone.condition("podset", "Reconciling")),
        two("none none", "True Waiting")
    );
    alone.with(Lifecycle::on_sources_listed);
    alone.settle();
    assert_eq!(alone.condition("podset", "Stalled"), "True SourceNotFound");
}

#[test]
fn a_suspended_plugin_is_not_ready_and_neither_is_its_next_version() {
    let mut alone = Alone::started();
    alone.source("podset-a", "1");
    alone.want("podset", of("podset-a"));
    alone.comes_up("podset", "1");
    alone.log();
    let mut spec = of("podset-a");
    spec["suspend"] = true.into();
    alone.want("podset", spec.clone());
    assert!(alone.log().contains(&"suspend podset".to_owned()));
    alone.settle();
    assert_eq!(alone.ready("podset"), "False Suspended");
    alone.source("podset-a", "2");
    alone.log();
    alone.comes_up("podset", "2");
    let log = alone.log();
    let place = |line: &str| log.iter().position(|found| found == line);
    assert!(place("suspend podset").is_some() && place("suspend podset") < place("serve podset 2"), "{log:?}");
    assert_eq!(alone.ready("podset"), "False Suspended");
    spec["suspend"] = false.into();
    alone.want("podset", spec);
    assert!(alone.log().contains(&"resume podset".to_owned()));
    alone.settle();
    assert_eq!(alone.ready("podset"), "True Serving");
}

#[test]
fn the_configuration_of_a_plugin_object_is_another_version() {
    let mut alone = Alone::started();
    alone.source("podset-a", "1");
    alone.want("podset", of("podset-a"));
    alone.comes_up("podset", "1");
    let before = alone.shows("podset", "/observed/configDigest").clone();
    let mut spec = of("podset-a");
    spec["config"] = json!({"b": 1, "a": 2});
    alone.want("podset", spec);
    alone.comes_up("podset", "1");
    assert!(alone.log().contains(&"serve podset 1".to_owned()));
    assert_eq!(*alone.shows("podset", "/observed/configDigest"), json!(&*crate::digest::of(br#"{"a":2,"b":1}"#).0));
    assert_ne!(*alone.shows("podset", "/observed/configDigest"), before);
}

#[test]
fn another_hosts_plugin_is_left_alone_and_one_whose_host_lacks_the_source_is_taken() {
    let mut alone = Alone::started();
    alone.source("podset-a", "1");
    let mut theirs = json!({"host": "elsewhere", "conditions": []});
    for (reason, taken) in [("Found", false), ("SourceNotFound", true)] {
        theirs["conditions"] = json!([{"type": "Resolved", "status": "False", "reason": reason}]);
        alone.objects.remove("podset");
        alone.objects.insert(
            "podset".into(),
            json!({"apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin", "status": theirs,
                   "metadata": {"name": "podset", "uid": "uid-podset", "generation": 1}}),
        );
        alone.want("podset", of("podset-a"));
        assert_eq!(alone.log().contains(&"compile 1".to_owned()), taken, "{reason}");
    }
    alone.comes_up("podset", "1");
    assert_eq!(*alone.shows("podset", "/host"), "mortise-system");
}

#[test]
fn of_two_hosts_that_lack_a_source_one_shows_that_and_the_one_that_gets_it_takes_the_plugin() {
    let mut alone = Alone::started();
    let resolved = json!([{"type": "Resolved", "status": "False", "reason": "SourceNotFound"}]);
    alone.objects.insert(
        "podset".into(),
        json!({"apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin",
               "metadata": {"name": "podset", "uid": "uid-podset", "generation": 1},
               "status": {"host": "elsewhere", "conditions": resolved}}),
    );
    alone.want("podset", of("podset-a"));
    alone.pass(600_000);
    assert_eq!((alone.log(), alone.sent.len()), (Vec::new(), 0), "both would write without end");
    alone.source("podset-a", "1");
    assert_eq!(alone.log(), ["compile 1"]);
    alone.comes_up("podset", "1");
    assert_eq!(*alone.shows("podset", "/host"), "mortise-system");
}

#[test]
fn a_name_that_no_plugin_can_have_is_refused_at_its_bound() {
    let mut alone = Alone::started();
    alone.source("podset-a", "1");
    let longest = "a".repeat(63);
    let longer = "a".repeat(64);
    for (name, shown) in [
        ("a.b.c", "True InvalidName"),
        ("a.b", "True SourceNotFound"),
        (&*longer, "True InvalidName"),
        (&*longest, "none none"),
    ] {
        alone.want(name, of("podset-a"));
        alone.settle();
        assert_eq!(alone.condition(name, "Stalled"), shown, "{name}");
    }
}

#[test]
fn what_was_read_last_is_shown_also_when_it_may_not_serve_or_is_gone() {
    let mut alone = Alone::started();
    alone.want("podset", json!({"source": {"configMap": "podset-a"}, "digest": "2", "config": {"a": 1}}));
    alone.source("podset-a", "1");
    alone.settle();
    assert_eq!(alone.condition("podset", "Stalled"), "True DigestMismatch");
    let config = json!(&*crate::digest::of(br#"{"a":1}"#).0);
    let read = json!({"digest": "1", "configDigest": config, "sourceVersion": "17"});
    assert_eq!(*alone.shows("podset", "/observed"), read);
    alone.source_gone("podset-a");
    alone.settle();
    assert_eq!(
        (alone.condition("podset", "Stalled"), alone.shows("podset", "/observed")),
        ("True SourceNotFound".into(), &read)
    );
}

#[test]
fn a_plugin_object_of_the_host_in_which_somebody_wrote_outlives_its_config_map_with_what_was_granted() {
    let mut alone = Alone::serving();
    alone.want(
        "podset",
        json!({"serviceAccountName": "podset", "grants": {"customResources": ["podsets.example.com"]}}),
    );
    alone.settle();
    alone.gone("podset");
    alone.settle();
    assert_eq!(alone.condition("podset", "Stalled"), "True SourceNotFound");
    alone.offer("podset", "1");
    alone.comes_up("podset", "1");
    alone.review(&Readable::Everywhere);
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.shows("podset", "/identity")),
        ("True Serving".into(), &json!("mortise-system/podset"))
    );
    alone.gone("podset");
    alone.want("podset", json!({}));
    alone.settle();
    assert!(!alone.objects.contains_key("podset"), "it has nothing to keep");
}

#[test]
fn a_config_map_whose_name_no_plugin_can_have_is_shown_with_that() {
    let mut alone = Alone::started();
    let refusal = Refusal::new("InvalidName", "no dots");
    let source = "ConfigMap mortise-system/podset.v2".into();
    let unreadable = Unreadable { name: "podset.v2".into(), source, refusal, only_named: false, tenant: None };
    alone.with(|lifecycle, cx| lifecycle.on_source_unreadable(unreadable, cx));
    alone.settle();
    assert_eq!(alone.condition("podset.v2", "Resolved"), "False InvalidName");
}

#[test]
fn a_component_that_its_source_still_has_is_kept_while_a_pin_or_another_source_keeps_it_from_serving() {
    let mut alone = Alone::of(Config { require_service_account: true, ..crate::engine::tests::config() });
    alone.start();
    alone.offer("podset", "1");
    alone.compiled("1", compiled("PodSet", &[]));
    alone.settle();
    assert_eq!(alone.ready("podset"), "False NoServiceAccount");
    let granted = json!({"serviceAccountName": "podset", "grants": {"customResources": ["podsets.example.com"]}});
    for elsewhere in [json!({"digest": "2"}), json!({"source": {"configMap": "other"}})] {
        alone.log();
        alone.want("podset", elsewhere);
        alone.settle();
        assert_eq!(alone.condition("podset", "Resolved").split(' ').next(), Some("False"));
        alone.want("podset", granted.clone());
        let log = alone.log();
        assert!(!log.iter().any(|line| line == "unload 1" || line == "compile 1"), "{log:?}");
        alone.want("podset", json!({}));
        alone.settle();
    }
    alone.want("podset", granted);
    alone.comes_up("podset", "1");
    alone.review(&Readable::Everywhere);
    alone.settle();
    assert_eq!(alone.ready("podset"), "True Serving");
}

#[test]
fn g10_a_plugin_whose_spec_cannot_be_read_ends_and_says_which_field() {
    for (spec, named) in [
        (json!({"digest": 1}), "spec.digest cannot be read"),
        (json!({"namespaces": "team-a"}), "spec.namespaces cannot be read"),
        (json!({"suspend": "true"}), "spec.suspend cannot be read"),
        (json!({"grants": {"maxObjects": "5"}}), "spec.grants.maxObjects cannot be read"),
    ] {
        let mut alone = Alone::serving();
        alone.want("podset", spec.clone());
        assert!(alone.log().contains(&"withdraw podset".to_owned()), "{spec}");
        alone.settle();
        assert_eq!(
            (alone.ready("podset"), alone.condition("podset", "Resolved")),
            ("False InvalidSpec".into(), "False InvalidSpec".into())
        );
        let conditions = alone.shows("podset", "/conditions").to_string();
        assert!(conditions.contains(named), "{conditions}");
        // Another version does not serve either, until the field can be read.
        alone.log();
        alone.offer("podset", "2");
        alone.compiled("2", compiled("PodSet", &[]));
        assert!(!alone.log().iter().any(|line| line.starts_with("serve") || line.starts_with("watch")));
        alone.want("podset", json!({}));
        alone.comes_up("podset", "2");
        assert_eq!(alone.ready("podset"), "True Serving", "{spec}");
    }
}

#[test]
fn l2_whose_plugin_an_object_is_does_not_depend_on_conditions_that_can_be_read() {
    let object = json!({
        "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": "web", "uid": "u", "resourceVersion": "1"},
        "status": {"host": "elsewhere", "conditions": [{"status": true}], "ownedKinds": "PodSet"},
    });
    let claim = plugin_object::claim(&decoded(&object)).expect("it has a host");
    assert_eq!((&*claim.host, claim.lacks_source), ("elsewhere", false));
}
