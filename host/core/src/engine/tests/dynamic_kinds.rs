//! Kinds that objects name in their spec: the call that is ended, the informer that starts, the states that wake keys,
//! the bound of a plugin, and the release. The guest counts the objects of each kind that its object names.

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
    let object = parsed(call.object.json());
    let names = object["spec"]["names"].as_array()?;
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
        let name = Name::new("default", object);
        let value = json!({
            "apiVersion": "example.com/v1", "kind": &*kind_of(0).kind, "spec": {"names": names},
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
    assert_eq!(host.saw(), ["a waits", "a waits"]);
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
    assert_eq!(host.saw(), ["a waits", "a waits", "a Widget=1"], "what was listed stays valid");
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
