//! Kinds that objects name in their spec: the call that is ended, the informer that starts, the states that wake keys,
//! the bound of a plugin, and the release. The guest counts the objects of each kind that its object names; that of a
//! restless object names another one with each call, of so many.

use super::*;
use crate::call::Call;
use crate::dynamic_kind::MAX_DYNAMIC_KINDS;
use crate::query::Query;
use crate::view::AccessError;
use crate::watch::WatchError;

const DENIED: &str =
    r#"User "mortise" cannot list resource "widgets" in API group "acme.example.com" at the cluster scope"#;

/// The guest. None for an object that names no kinds.
pub(super) fn read(call: &Call, seen: &mut Vec<String>) -> Option<(Option<CallResult>, Dependencies)> {
    // No tree holds the object of hostile.rs, which names none.
    let object: Value = serde_json::from_str(call.object.json()).unwrap_or_default();
    let restless = object["spec"]["restless"].as_u64();
    let other = restless.map(|kinds| vec![json!(format!("Widget{}", seen.len() as u64 % kinds))]);
    let names = other.as_ref().or_else(|| object["spec"]["names"].as_array())?;
    let mut view = call.view.clone();
    let mut line = call.object.name.name.to_string();
    for name in names {
        let kind = Kind::new("acme.example.com/v1", name.as_str().unwrap());
        match view.keys(&Query::all(kind)) {
            Ok(keys) => line += &format!(" {}={}", name.as_str().unwrap(), keys.len()),
            Err(AccessError::Waits(kind)) => {
                seen.push(format!("{line} waits"));
                return Some((Some(CallResult::Waits(kind)), view.into_dependencies()));
            }
            Err(AccessError::NotServed(_)) => line += &format!(" {}=absent", name.as_str().unwrap()),
            Err(error) => line += &format!(" {error}"),
        }
    }
    seen.push(line);
    Some((None, view.into_dependencies()))
}

fn acme(kind: &str) -> Kind {
    Kind::new("acme.example.com/v1", kind)
}

fn reading(pattern: &str) -> Value {
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["controllers"][0]["reads"] = json!([{"apiVersion": pattern, "kind": "*"}]);
    manifest
}

/// A host that serves a plugin with a pattern; lists do not end from here on.
fn serving() -> Host {
    let mut host = Host::started();
    host.offer_manifest(0, 1, &reading("acme.example.com/*"));
    assert_eq!(host.reason(0, "Ready"), "Serving");
    host.held_lists = Some(Vec::new());
    host
}

impl Host {
    /// Another client writes an object that names these kinds.
    fn name_kinds(&mut self, object: &str, names: &[&str]) {
        self.write_object(object, &json!({"names": names}));
    }

    fn write_object(&mut self, object: &str, spec: &Value) {
        let name = Name::new("default", object);
        let value = json!({
            "apiVersion": "example.com/v1", "kind": &*kind_of(0).kind, "spec": spec,
            "metadata": {"name": object, "namespace": "default", "uid": format!("uid-{object}"),
                "generation": self.version},
        });
        self.store(&ObjectRef { kind: kind_of(0), name }, value);
        self.end_creates();
    }

    fn delete(&mut self, object: &str) {
        self.show_object_gone(&ObjectRef { kind: kind_of(0), name: Name::new("default", object) });
    }

    /// The list of a kind ends, with so many objects.
    fn end_list(&mut self, kind: &str, objects: usize) {
        let object = |number: usize| {
            let metadata =
                json!({"name": format!("{number}"), "namespace": "default", "uid": "u", "resourceVersion": "1"});
            *decoded(&json!({"apiVersion": "acme.example.com/v1", "kind": kind, "metadata": metadata}))
        };
        self.step(Event::Watch(acme(kind).into(), WatchEvent::Listed((0..objects).map(object).collect())));
        self.step(Event::Watch(acme(kind).into(), WatchEvent::ListDone(ResourceVersion(self.version))));
        self.end_creates();
    }

    fn fail_watch(&mut self, kind: &str, error: WatchError) {
        self.step(Event::Watch(acme(kind).into(), WatchEvent::Failed(error)));
        self.end_creates();
    }

    /// Ends the lists of kinds that were begun, and those that follow. Returns how many these were.
    fn end_lists(&mut self) -> usize {
        let mut ended = 0;
        while let Some(slice) = self.held_lists.as_mut().expect("they are held").pop() {
            ended += 1;
            assert!(ended < 1_000, "the host lists without end");
            self.end_list(&slice.kind.kind, 0);
        }
        ended
    }

    /// What guests saw since the last time.
    fn saw(&mut self) -> Vec<String> {
        std::mem::take(&mut self.seen)
    }

    /// The Events with this reason, each with the object that it is about.
    fn noted(&self, reason: &str) -> Vec<String> {
        let events = self.objects.values().filter(|object| object["reason"] == reason);
        events.map(|event| format!("{}: {}", event["regarding"]["name"].as_str().unwrap(), event["note"])).collect()
    }
}

const NONE: [&str; 0] = [];

#[test]
fn r4_a_call_ends_at_each_kind_that_it_names_first_and_is_made_again_when_the_kind_is_listed() {
    let mut host = serving();
    host.name_kinds("a", &["Widget", "Gadget"]);
    assert_eq!(host.saw(), ["a waits"]);
    assert!(host.watched.contains(&acme("Widget").into()) && !host.watched.contains(&acme("Gadget").into()));
    // W2: the same call would end at the same place.
    host.set_metadata(&ObjectRef { kind: kind_of(0), name: Name::new("default", "a") }, "resourceVersion", json!("0"));
    assert_eq!(host.saw(), NONE);
    host.end_list("Widget", 2);
    assert_eq!(host.saw(), ["a Widget=2 waits"]);
    host.end_list("Gadget", 0);
    assert_eq!(host.saw(), ["a Widget=2 Gadget=0"], "not a half of it");
    assert!(host.observed.iter().all(|seen| !matches!(seen, Observation::Fault { .. })));
    // Another object that names them is called once, and both wake with a change (W1).
    host.name_kinds("b", &["Gadget"]);
    assert_eq!(host.saw(), ["b Gadget=0"]);
    let gadget = ObjectRef { kind: acme("Gadget"), name: Name::new("default", "g") };
    host.store(
        &gadget,
        json!({"apiVersion": "acme.example.com/v1", "kind": "Gadget",
        "metadata": {"name": "g", "namespace": "default", "uid": "g"}}),
    );
    assert_eq!(host.saw(), ["a Widget=2 Gadget=1", "b Gadget=1"]);
    assert_eq!(host.reason(0, "Ready"), "Serving");
}

#[test]
fn w1_a_kind_that_is_not_served_is_an_answer_and_its_crd_wakes_the_key() {
    let mut host = serving();
    host.name_kinds("a", &["Widget"]);
    host.fail_watch("Widget", WatchError::NotServed("no such kind".to_owned()));
    assert_eq!(host.saw(), ["a waits", "a Widget=absent"]);
    host.fail_watch("Widget", WatchError::NotServed("no such kind".to_owned()));
    assert_eq!(host.saw(), NONE);
    host.end_list("Widget", 1);
    assert_eq!(host.saw(), ["a Widget=1"]);
    host.fail_watch("Widget", WatchError::NotServed("no such kind".to_owned()));
    assert_eq!(host.saw(), ["a Widget=absent"], "its CRD was deleted");
    assert_eq!((host.reason(0, "Ready"), host.reason(0, "Permitted")), ("Serving".into(), "Allowed".into()));
}

#[test]
fn r5_a_kind_that_may_not_be_read_stalls_the_keys_that_name_it_alone_until_it_may() {
    let mut host = serving();
    host.name_kinds("a", &["Widget"]);
    host.fail_watch("Widget", WatchError::Denied(DENIED.to_owned()));
    assert_eq!(host.saw(), ["a waits"]);
    let noted: Vec<String> = host.noted("Forbidden").into_iter().filter(|note| note.starts_with("a: ")).collect();
    assert!(noted.len() == 1 && noted[0].contains("may not read acme.example.com/v1/Widget"), "{noted:?}");
    let rule = r#"{"apiGroups":["acme.example.com"],"resources":["widgets"],"verbs":["get","list","watch"]}"#;
    assert!(noted[0].replace('\\', "").contains(rule), "{noted:?}");
    host.name_kinds("b", &["Gadget"]);
    host.end_list("Gadget", 0);
    assert_eq!(host.saw(), ["b waits", "b Gadget=0"]);
    assert_eq!((host.reason(0, "Ready"), host.reason(0, "Permitted")), ("Serving".into(), "Forbidden".into()));
    host.end_list("Widget", 1);
    assert_eq!(host.saw(), ["a Widget=1"]);
    host.pass(10_000);
    assert_eq!(host.reason(0, "Permitted"), "Allowed");
}

#[test]
fn a_kind_that_cannot_be_listed_for_now_is_reported_and_tried_on() {
    let mut host = serving();
    host.name_kinds("a", &["Widget"]);
    host.fail_watch("Widget", WatchError::Unavailable("405: the server does not allow this method".to_owned()));
    assert_eq!(host.noted("KindUnavailable").len(), 1);
    host.end_list("Widget", 1);
    host.fail_watch("Widget", WatchError::Unavailable("connection refused".to_owned()));
    assert_eq!(host.saw(), ["a waits", "a Widget=1"], "what was listed stays valid");
}

#[test]
fn an_object_that_names_a_kind_beyond_the_bound_is_stalled_until_another_is_named_no_more() {
    let mut host = serving();
    for number in 0..MAX_DYNAMIC_KINDS {
        let kind = format!("Widget{number}");
        host.name_kinds(&format!("object-{number}"), &[&kind]);
        host.end_list(&kind, 0);
    }
    assert_eq!(host.noted("TooManyKinds"), NONE);
    host.saw();
    host.name_kinds("one-more", &["Gadget"]);
    assert_eq!(host.saw(), ["one-more waits"]);
    let noted = host.noted("TooManyKinds");
    assert!(noted.len() == 1 && noted[0].contains("16 other kinds") && noted[0].contains("Gadget"), "{noted:?}");
    assert!(!host.watched.contains(&acme("Gadget").into()));
    host.name_kinds("object-1", &["Widget1", "Widget2"]);
    assert_eq!(host.saw(), ["object-1 Widget1=0 Widget2=0"], "what is read already may be read");
    host.pass(600_000);
    assert_eq!(host.saw(), NONE, "it does not try on");
    host.delete("object-0");
    assert!(host.watched.contains(&acme("Gadget").into()), "there is room");
    assert!(!host.watched.contains(&acme("Widget0").into()), "which does not linger");
    host.end_list("Gadget", 0);
    assert_eq!(host.saw(), ["one-more Gadget=0"]);
}

#[test]
fn a_kind_that_no_object_names_any_more_is_released_after_a_while_and_with_its_plugin() {
    let mut host = serving();
    host.name_kinds("a", &["Widget", "Gadget"]);
    host.end_list("Widget", 1);
    host.end_list("Gadget", 1);
    host.name_kinds("a", &["Gadget"]);
    host.pass(30_000);
    assert!(host.watched.contains(&acme("Widget").into()), "it may be named again");
    host.name_kinds("a", &["Widget", "Gadget"]);
    assert_eq!(host.saw().last().unwrap(), "a Widget=1 Gadget=1", "without another list");
    host.pass(120_000);
    assert!(host.watched.contains(&acme("Widget").into()));
    host.name_kinds("a", &["Gadget"]);
    host.pass(60_001);
    assert!(!host.watched.contains(&acme("Widget").into()) && host.watched.contains(&acme("Gadget").into()));
    assert!(!host.engine.store().synced(acme("Widget")), "the cache has forgotten it");
    host.withdraw(0);
    assert!(!host.watched.contains(&acme("Gadget").into()));
    host.held_lists = None;
    host.offer_manifest(0, 1, &reading("acme.example.com/*"));
    host.name_kinds("a", &["Gadget"]);
    assert_eq!(host.saw().last().unwrap(), "a Gadget=0");
}

#[test]
fn g4_a_new_version_with_another_pattern_no_longer_sees_the_kind() {
    let mut host = serving();
    host.name_kinds("a", &["Widget"]);
    host.end_list("Widget", 1);
    host.saw();
    host.held_lists = None;
    host.offer_manifest(0, 2, &reading("apps/*"));
    let saw = host.saw();
    assert!(saw.len() == 1 && saw[0].contains("does not declare acme.example.com/v1/Widget"), "{saw:?}");
    assert!(saw[0].contains("none of apps/*"), "{saw:?}");
    host.pass(60_001);
    assert!(!host.watched.contains(&acme("Widget").into()));
}

#[test]
fn r4_after_a_restore_a_call_waits_until_the_kind_is_listed_anew() {
    let mut host = serving();
    host.name_kinds("a", &["Widget"]);
    host.end_list("Widget", 2);
    host.saw();
    let restored = WatchEvent::Restored { before: ResourceVersion(9), now: ResourceVersion(1) };
    host.step(Event::Watch(acme("Widget").into(), restored));
    for kind in [plugin_object::kind(), kind_of(0), Kind::new("v1", "ConfigMap")] {
        host.step(Event::Watch(kind.into(), WatchEvent::ListDone(ResourceVersion(host.version))));
    }
    host.step(Event::Watch(acme("Widget").into(), WatchEvent::Listing));
    assert!(host.saw().iter().all(|line| line == "a waits"));
    host.end_list("Widget", 1);
    host.name_kinds("a", &["Widget"]);
    assert_eq!(host.saw().last().unwrap(), "a Widget=1");
}

#[test]
fn a_newcomers_list_of_a_dynamic_kind_makes_no_host_unready() {
    let mut host = Host::started();
    let mut other = parsed(&manifest(&plugin_name(1), &kind_of(1), 1));
    let of_one = json!({"apiVersion": "acme.example.com/v1", "kind": "Widget", "namespaces": ["a"]});
    other["controllers"][0]["reads"] = json!([of_one]);
    host.offer_manifest(1, 1, &other);
    host.offer_manifest(0, 1, &reading("acme.example.com/*"));
    host.held_lists = Some(Vec::new());
    host.name_kinds("a", &["Widget", "Gadget"]);
    assert!(host.watched.contains(&acme("Widget").into()));
    assert_eq!(host.engine.health().unlisted, []);
}

#[test]
fn a_guest_that_names_another_kind_with_each_call_has_the_host_list_a_bounded_number_a_minute() {
    let mut host = serving();
    for object in ["a", "b"] {
        host.write_object(object, &json!({"restless": 1_000_000}));
    }
    let at_first = host.end_lists();
    assert_eq!(at_first, 33, "a minute's worth, and the one that uses it up");
    let noted = host.noted("KindUnavailable");
    assert!(noted.iter().all(|note| note.contains("more than 32 kinds a minute")) && noted.len() == 2, "{noted:?}");
    let mut listed = 0;
    for _ in 0..600 {
        host.pass(1_000);
        listed += host.end_lists();
    }
    assert!((300..=330).contains(&listed), "{listed}");
    // Another object's kind waits for its turn only.
    host.delete("a");
    host.delete("b");
    host.pass(60_000);
    host.saw();
    host.name_kinds("c", &["Gadget"]);
    host.end_lists();
    assert_eq!(host.saw(), ["c waits", "c Gadget=0"]);
}

#[test]
fn a_guest_that_names_kinds_by_turns_which_are_listed_already_is_bounded_as_well() {
    let mut host = serving();
    let kinds: Vec<String> = (0..4).map(|kind| format!("Widget{kind}")).collect();
    host.name_kinds("all", &kinds.iter().map(|kind| &**kind).collect::<Vec<_>>());
    assert_eq!(host.end_lists(), 4);
    host.name_kinds("all", &[]);
    let calls = host.calls;
    host.write_object("a", &json!({"restless": 4}));
    assert_eq!((host.calls - calls, host.end_lists()), (30, 0), "29 are left of a minute's worth");
    host.pass(60_000);
    assert!((60..=63).contains(&(host.calls - calls)), "{}", host.calls - calls);
}

#[test]
fn a_kind_that_nobody_can_read_makes_room_for_another_and_its_keys_wait_for_room() {
    let mut host = serving();
    let names: Vec<String> = (0..MAX_DYNAMIC_KINDS).map(|number| format!("Widget{number}")).collect();
    for name in &names {
        host.name_kinds(&format!("of-{name}"), &[name]);
        match &**name {
            "Widget3" => host.fail_watch(name, WatchError::Denied(DENIED.to_owned())),
            "Widget5" => host.fail_watch(name, WatchError::NotServed("no such kind".to_owned())),
            _ => host.end_list(name, 0),
        }
    }
    host.saw();
    host.name_kinds("one-more", &["Gadget"]);
    host.end_list("Gadget", 1);
    assert_eq!(host.saw(), ["one-more waits", "one-more Gadget=1"]);
    assert!(!host.watched.contains(&acme("Widget5").into()), "first the one that is not served");
    host.name_kinds("two-more", &["Gizmo"]);
    host.end_list("Gizmo", 0);
    assert_eq!(host.saw(), ["two-more waits", "two-more Gizmo=0"]);
    assert!(!host.watched.contains(&acme("Widget3").into()), "then the one that is denied");
    host.name_kinds("three-more", &["Gimmick"]);
    assert_eq!((host.saw(), host.noted("TooManyKinds").len()), (vec!["three-more waits".to_owned()], 1));
    // With room for one, each of those that wait is tried, and one gets it.
    host.delete("of-Widget0");
    let waiting = ["Widget3", "Widget5", "Gimmick"].map(|kind| host.watched.contains(&acme(kind).into()));
    assert_eq!(waiting.iter().filter(|is_watched| **is_watched).count(), 1, "{waiting:?}");
}

#[test]
fn two_objects_that_need_more_than_there_is_together_do_not_stall_each_other() {
    let mut host = serving();
    let kinds = |of: &str| (0..10).map(|number| format!("{of}{number}")).collect::<Vec<_>>();
    let (widgets, gadgets) = (kinds("Widget"), kinds("Gadget"));
    let refs = |kinds: &[String]| kinds.iter().map(|kind| json!(kind)).collect::<Vec<_>>();
    // Side by side: each has eight when none is left.
    host.write_object("a", &json!({"names": refs(&widgets)}));
    host.write_object("b", &json!({"names": refs(&gadgets)}));
    for number in 0..8 {
        host.end_list(&widgets[number], 0);
        host.end_list(&gadgets[number], 0);
    }
    for _ in 0..60 {
        host.end_lists();
        host.pass(1_000);
    }
    let all = |of: &str, kinds: &[String]| kinds.iter().fold(of.to_owned(), |line, kind| line + &format!(" {kind}=0"));
    let saw = host.saw();
    let done: Vec<&String> = saw.iter().filter(|line| !line.contains("waits")).collect();
    assert_eq!(done.len(), 1, "one of both: {saw:?}");
    assert_eq!(host.noted("TooManyKinds").len(), 1, "the other says why it waits");
    let (served, waits, line) =
        if done[0].starts_with("a ") { ("a", "b", all("b", &gadgets)) } else { ("b", "a", all("a", &widgets)) };
    assert!(saw.len() < 60, "{saw:?}");
    host.pass(600_000);
    assert_eq!(host.saw(), NONE, "{waits} does not try on");
    host.delete(served);
    for _ in 0..60 {
        host.end_lists();
        host.pass(1_000);
    }
    assert_eq!(host.saw().last(), Some(&line));
}
