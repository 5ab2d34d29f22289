//! Stories of a guest in Rust: what a cluster does to it. They must not know how effects are performed.

use std::rc::Rc;

use mortise_core::object::Kind;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Sets, reference, set};

fn story() -> Story {
    let mut story = Story::new(Rc::new(Sets), Settings::default());
    story.start().unwrap();
    story
}

fn pods(story: &mut Story) -> Vec<Value> {
    story.objects(&Kind::new("v1", "Pod"))
}

fn verbs(requests: &[String]) -> Vec<&str> {
    requests.iter().filter_map(|line| line.split_once(' ').map(|(verb, _)| verb)).collect()
}

#[test]
fn three_pods_are_created_run_on_a_node_and_are_counted() {
    let mut story = story();
    story.apply(&set("web", 3)).unwrap();
    story.run_until_idle().unwrap();
    let found = pods(&mut story);
    assert_eq!(found.iter().filter(|pod| pod["status"]["phase"] == "Running").count(), 3, "{found:#?}");
    assert_eq!(found[0]["spec"]["nodeName"], "node-0");
    assert_eq!(found[0]["metadata"]["ownerReferences"][0]["kind"], "Set");
    let web = story.get(&reference("Set", "web")).unwrap();
    assert_eq!(web["status"]["running"], 3, "{web}");
    assert_eq!(verbs(story.requests())[..3], ["create"; 3]);

    // Another run of the host writes nothing.
    let before = story.requests().len();
    story.crash_host();
    story.run_until_idle().unwrap();
    assert_eq!(story.requests()[before..], Vec::<String>::new()[..]);
}

#[test]
fn a_pod_that_somebody_deletes_is_replaced_and_wakes_its_set() {
    let mut story = story();
    story.apply(&set("web", 1)).unwrap();
    story.run_until_idle().unwrap();
    let first = pods(&mut story)[0].clone();
    let first = story.reference(&first).unwrap();
    story.delete(&first).unwrap();
    story.run_until_idle().unwrap();
    let second = pods(&mut story);
    assert_eq!((second.len(), &second[0]["status"]["phase"]), (1, &json!("Running")));
    let woken_by = story.woken_by(&reference("Set", "web"));
    assert_eq!(woken_by.iter().map(|by| &*by.kind.kind).collect::<Vec<_>>(), ["Pod"], "{woken_by:?}");
}

#[test]
fn a_refused_write_is_reported_and_tried_again_when_it_is_allowed() {
    let mut story = story();
    let pods_of_default = reference("Pod", "*");
    story.refuse(Denial::forbidden(pods_of_default, "exceeded quota: few"));
    story.apply(&set("web", 1)).unwrap();
    story.run_until_idle().unwrap();
    let web = story.get(&reference("Set", "web")).unwrap();
    assert!(web["status"]["conditions"].to_string().contains("exceeded quota"), "{web:#}");
    story.allow();
    story.advance(1_000_000).unwrap();
    assert_eq!(pods(&mut story).len(), 1);
}

#[test]
fn a_kind_that_may_not_be_read_stops_the_plugin_until_it_may() {
    let mut story = story();
    story.deny(&Kind::new("v1", "Pod"));
    story.run_until_idle().unwrap();
    story.apply(&set("web", 1)).unwrap();
    story.run_until_idle().unwrap();
    assert_eq!(pods(&mut story).len(), 0, "{:?}", story.take_log());
    story.allow();
    story.advance(120_000).unwrap();
    assert_eq!(pods(&mut story).len(), 1, "{:?}", story.take_log());
}

#[test]
fn the_plugins_admission_and_the_schema_refuse_objects() {
    let mut story = story();
    let unlucky = story.apply(&set("web", 13)).unwrap_err();
    assert!(unlucky.contains("spec.replicas: Invalid value: 13: not so many"), "{unlucky}");
    let mut text = set("web", 1);
    text["spec"]["replicas"] = json!("one");
    let refused = story.apply(&text).unwrap_err();
    assert!(refused.contains("spec.replicas"), "{refused}");
}

#[test]
fn another_controller_reacts_to_what_changes() {
    let mut story = story();
    story.on(Kind::new("v1", "ConfigMap"), |map| {
        match map["data"]["seen"].is_null() && map["metadata"]["name"] == "a" {
            true => json!({"data": {"seen": "yes"}}),
            false => Value::Null,
        }
    });
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    story.apply(&map).unwrap();
    story.advance(1).unwrap();
    assert_eq!(story.get(&reference("ConfigMap", "a")).unwrap()["data"], json!({"k": "v", "seen": "yes"}));
}

#[test]
fn every_seed_every_order_and_every_crash_end_the_same() {
    let run = |settings: Settings| {
        let mut story = Story::new(Rc::new(Sets), settings);
        story.start().unwrap();
        story.apply(&set("web", 3)).unwrap();
        story.run_until_idle().unwrap();
        story.edit(&reference("Set", "web"), &json!({"spec": {"replicas": 2}})).unwrap();
        story.run_until_idle().unwrap();
        (crate::state(&mut story, &[Kind::new("example.com/v1", "Set"), Kind::new("v1", "Pod")]), story.sent())
    };
    let (wanted, sent) = run(Settings::default());
    assert_eq!(wanted.len(), 3);
    let mut other = Settings { reversed: true, ..Settings::default() };
    other.cluster.seed = 7;
    assert_eq!(crate::difference(&wanted, &run(other).0), None);
    for at in 1..=sent {
        let (found, _) = run(Settings { crash_after: Some(at), ..Settings::default() });
        assert_eq!(crate::difference(&wanted, &found), None, "a crash after write {at}");
    }
}

#[test]
fn ten_days_in_which_nothing_changes_are_few_steps() {
    let mut story = story();
    story.apply(&set("web", 1)).unwrap();
    story.run_until_idle().unwrap();
    let before = (story.now_ms(), story.steps(), story.calls(), story.sent());
    story.advance(10 * 24 * 60 * 60_000).unwrap();
    assert_eq!(story.now_ms() - before.0, 864_000_000);
    // The host's hourly audits of some kinds and few heartbeats; a renewal of a lease each ten seconds alone were more.
    assert!(story.steps() - before.1 < 50_000, "{}", story.steps() - before.1);
    // The first resync, after ten hours, is a call with the status that the last one led to; the others see nothing new.
    assert_eq!((story.calls(), story.sent()), (before.2 + 1, before.3));
}

#[test]
fn two_controllers_that_undo_each_other_are_found() {
    let mut story = story();
    for value in ["one", "other"] {
        story.on(Kind::new("v1", "ConfigMap"), move |map| match map["metadata"]["name"] == "a" {
            true => json!({"data": {"k": value}}),
            false => Value::Null,
        });
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    story.apply(&map).unwrap();
    let why = story.run_until_idle().unwrap_err();
    assert!(why.contains("does not end"), "{why}");
}
