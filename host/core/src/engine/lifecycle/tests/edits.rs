//! Plugin objects that somebody edits or deletes by hand while their plugins serve.

use super::*;

impl Alone {
    /// Somebody changes a Plugin object so, and the watch shows it.
    fn by_hand(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        change(self.objects.get_mut(name).expect("it is there"));
        self.edit(name);
    }

    fn deleted_by_hand(&mut self, name: &str) {
        self.version += 1;
        self.objects.remove(name);
        self.show(name);
    }

    /// Nothing of the plugin was begun or ended.
    fn undisturbed(&mut self) -> Vec<String> {
        let log = self.log();
        let is_other = |line: &&String| {
            ["serve", "withdraw", "compile", "refused", "stop"].iter().any(|word| line.starts_with(word))
        };
        assert_eq!(log.iter().filter(is_other).count(), 0, "{log:?}");
        log
    }
}

/// The labels by which the host knows its objects.
fn unlabelled(object: &mut Value) {
    object["metadata"].as_object_mut().unwrap().remove("labels");
}

#[test]
fn l3_a_plugin_whose_object_loses_the_hosts_labels_serves_on_and_nothing_is_written() {
    let mut alone = Alone::serving();
    alone.by_hand("podset", unlabelled);
    alone.pass(600_000);
    assert_eq!(alone.undisturbed(), NONE);
    assert_eq!(alone.ready("podset"), "True Serving");
    alone.gone("podset");
    alone.settle();
    assert!(alone.objects.contains_key("podset"), "what has no label of a host is a person's");
    assert_eq!(alone.condition("podset", "Stalled"), "True SourceNotFound");
}

#[test]
fn l2_another_host_with_a_source_of_that_name_leaves_an_object_without_labels_alone() {
    let mut alone = Alone::serving();
    alone.by_hand("podset", unlabelled);
    let object = alone.objects["podset"].clone();
    let mut other = Alone::of(Config { namespace: "other".into(), ..crate::engine::tests::config() });
    other.objects.insert("podset".into(), object.clone());
    other.start();
    other.show("podset");
    other.offer("podset", "2");
    other.compiled("2", compiled("PodSet", &[]));
    other.pass(600_000);
    assert_eq!(other.log(), ["compile 2", "refused podset: NamedElsewhere"]);
    assert_eq!((other.objects["podset"].clone(), other.sent.len()), (object, 0));
}

#[test]
fn l3_an_object_of_the_host_that_is_deleted_by_hand_comes_back_and_the_plugin_serves_meanwhile() {
    let mut alone = Alone::serving();
    alone.pass(60_000);
    alone.log();
    alone.deleted_by_hand("podset");
    assert_eq!(alone.undisturbed(), ["create podset"]);
    alone.settle();
    assert_eq!(alone.ready("podset"), "True Serving");
    assert_eq!(alone.objects["podset"]["metadata"]["labels"]["mortise.dev/host-namespace"], "mortise-system");
}

#[test]
fn x5_a_status_that_was_edited_by_hand_is_repaired_once() {
    let mut alone = Alone::serving();
    let before = alone.objects["podset"]["status"].clone();
    alone.by_hand("podset", |object| {
        object["status"]["host"] = "elsewhere".into();
        object["status"]["digest"] = "forged".into();
        object["status"]["ownedKinds"] = json!(["Other.example.com"]);
        object["status"]["conditions"].as_array_mut().unwrap().clear();
    });
    assert!(alone.undisturbed().contains(&STATUS.to_owned()));
    alone.settle();
    let texts = |status: &Value| {
        let mut status = status.clone();
        let conditions = status["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().for_each(|condition| condition["lastTransitionTime"] = Value::Null);
        status
    };
    assert_eq!(texts(&alone.objects["podset"]["status"]), texts(&before));
    alone.log();
    alone.pass(60_000);
    assert_eq!(alone.undisturbed(), NONE);
}

/// A host that serves the plugin "podset" of a Plugin object that a person made.
fn serving_a_persons() -> Alone {
    let mut alone = Alone::started();
    alone.source("podset-a", "1");
    alone.want("podset", json!({"source": {"configMap": "podset-a"}}));
    alone.comes_up("podset", "1");
    assert_eq!(
        (alone.ready("podset"), alone.shows("podset", "/host")),
        ("True Serving".into(), &json!("mortise-system"))
    );
    alone.log();
    alone
}

fn says_elsewhere(object: &mut Value) {
    object["status"]["host"] = "elsewhere".into();
}

/// Another host, which starts, has a source of the same name and sees the Plugin object.
fn elsewhere(first: &Alone) -> Alone {
    let mut other = Alone::of(Config { namespace: "elsewhere".into(), ..crate::engine::tests::config() });
    other.start();
    show_to(&mut other, first);
    other.source("podset-a", "1");
    other
}

/// Shows one host what another one made of an object.
fn show_to(host: &mut Alone, from: &Alone) {
    host.objects.insert("podset".into(), from.objects["podset"].clone());
    host.version = from.version;
    host.show("podset");
}

#[test]
fn l2_a_host_in_the_status_of_a_persons_plugin_is_written_back_while_the_plugin_serves() {
    let mut alone = serving_a_persons();
    for _ in 0..3 {
        alone.by_hand("podset", says_elsewhere);
        assert_eq!(alone.undisturbed(), [STATUS]);
        let (_, op) = alone.sent.front().unwrap();
        assert!(format!("{op:?}").contains(&format!("resourceVersion\\\":\\\"{}", alone.version)), "{op:?}");
        alone.settle();
        assert_eq!(*alone.shows("podset", "/host"), "mortise-system");
        assert_eq!(alone.undisturbed(), NONE);
        alone.pass(600_000);
        assert_eq!(alone.undisturbed(), NONE);
    }
}

#[test]
fn l2_a_claim_that_is_replaced_again_at_once_is_given_up_for_two_hosts_would_write_in_turns() {
    let mut alone = serving_a_persons();
    alone.by_hand("podset", says_elsewhere);
    alone.by_hand("podset", |object| object["spec"]["suspend"] = false.into());
    assert!(!alone.log().contains(&"withdraw podset".to_owned()), "the same claim is shown for longer");
    alone.settle();
    alone.pass(599_999);
    alone.by_hand("podset", says_elsewhere);
    assert!(alone.log().contains(&"withdraw podset".to_owned()));
    alone.pass(24 * 3_600_000);
    assert!(alone.sent.is_empty(), "it is another host's");
    alone.by_hand("podset", |object| object["status"]["host"] = "mortise-system".into());
    alone.comes_up("podset", "1");
    assert_eq!(alone.ready("podset"), "True Serving");
}

#[test]
fn l2_a_host_that_lacks_the_source_leaves_its_plugin_to_another_one_that_has_it() {
    let mut alone = serving_a_persons();
    let place = "ConfigMap mortise-system/podset-a".into();
    alone.with(|lifecycle, cx| lifecycle.on_source_gone(&"podset-a".into(), &place, cx));
    alone.settle();
    assert_eq!(alone.ready("podset"), "True ServingPrevious");
    alone.log();
    alone.by_hand("podset", |object| {
        says_elsewhere(object);
        object["status"]["conditions"] = json!([]);
    });
    assert!(alone.log().contains(&"withdraw podset".to_owned()));
    assert!(alone.sent.is_empty());
}

#[test]
fn l2_a_host_whose_name_was_written_by_hand_gives_the_plugin_back_when_the_first_one_insists() {
    let mut first = serving_a_persons();
    let mut other = elsewhere(&first);
    assert_eq!(other.log(), NONE, "the plugin has a host");
    first.by_hand("podset", says_elsewhere);
    show_to(&mut other, &first);
    assert!(other.log().contains(&"compile 1".to_owned()));
    first.settle();
    show_to(&mut other, &first);
    assert!(other.lifecycle.plugins.is_empty());
    other.pass(600_000);
    assert!(other.sent.is_empty());
    show_to(&mut first, &other);
    assert_eq!((first.undisturbed(), first.ready("podset")), (vec![STATUS.to_owned()], "True Serving".to_owned()));
}

#[test]
fn l2_of_two_hosts_that_take_one_plugin_for_theirs_one_serves_after_a_write_of_each() {
    let mut first = serving_a_persons();
    first.by_hand("podset", says_elsewhere);
    // This one starts while the edit is shown.
    let mut other = elsewhere(&first);
    other.comes_up("podset", "1");
    let mut writes = 0;
    for _ in 0..10 {
        for of_first in [true, false] {
            let (host, from) = if of_first { (&mut first, &mut other) } else { (&mut other, &mut first) };
            show_to(host, from);
            writes += host.sent.len();
            host.settle();
        }
    }
    assert_eq!(writes, 2, "the first insists, the other does, and the first gives way");
    let serves = |alone: &Alone| alone.lifecycle.plugins.get("podset").is_some_and(|plugin| plugin.active.is_some());
    assert_eq!((serves(&first), serves(&other)), (false, true));
    assert_eq!(*other.shows("podset", "/host"), "elsewhere");
}

#[test]
fn l2_of_two_hosts_that_start_at_once_the_write_of_the_second_is_a_conflict() {
    let mut first = Alone::started();
    first.source("podset-a", "1");
    first.want("podset", json!({"source": {"configMap": "podset-a"}}));
    let mut other = elsewhere(&first);
    for host in [&mut first, &mut other] {
        host.compiled("1", compiled("PodSet", &[]));
        let (_, op) = host.sent.front().expect("it claims the plugin");
        assert!(format!("{op:?}").contains(&format!("resourceVersion\\\":\\\"{}", host.version)), "{op:?}");
    }
    first.settle();
    let write = other.sent.pop_front().unwrap();
    other.wrote(write, Err(WriteErrorClass::Conflict));
    show_to(&mut other, &first);
    other.pass(600_000);
    assert!(other.sent.is_empty() && other.lifecycle.plugins.is_empty());
    first.comes_up("podset", "1");
    assert_eq!(
        (first.ready("podset"), first.shows("podset", "/host")),
        ("True Serving".into(), &json!("mortise-system"))
    );
}
