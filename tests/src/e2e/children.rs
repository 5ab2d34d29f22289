//! What an outcome says of a child beyond its fields, with the real API server: kept as it is, created once, left out
//! while its name is taken, written after others, maps that are owned as a whole.

use serde_json::{Value, json};

use super::foo::field;
use super::quiet::wait_until_quiet;
use super::world::{World, built};

fn world(name: &str) -> World {
    let mut world = World::new(name);
    world.start_host();
    world.offer("bundle", &built("test-guests/bundle.wasm"));
    world.wait_ready("bundle");
    world
}

fn apply(world: &World, groups: &Value) {
    world.apply(&json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Bundle", "spec": {"groups": groups},
        "metadata": {"name": "bundle", "namespace": world.namespace},
    }));
}

/// Waits until ConfigMaps have this data, by name.
#[track_caller]
fn wait_data(world: &World, expected: &[(&str, &str)]) {
    let texts = || {
        let found = expected.iter().map(|(name, _)| field(world, &format!("configmap/{name}"), "{.data}"));
        found.collect::<Vec<String>>()
    };
    world.until(&format!("the ConfigMaps are {expected:?}, not {:?}", texts()), || {
        texts().iter().zip(expected).all(|(found, (_, expected))| found == expected).then_some(())
    });
}

#[test]
fn a_child_is_kept_as_it_is_or_created_once_and_not_changed_after() {
    let world = world("children-kept");
    let once = |a: &str| json!({"key": "once", "name": "once", "data": {"a": a}, "handling": "createOnce"});
    let managed = |a: &str| json!({"key": "managed", "name": "managed", "data": {"a": a}});
    let derived = json!({"key": "kept", "data": {"a": "1"}});
    apply(&world, &json!([[once("1"), managed("1"), derived]]));
    wait_data(&world, &[("once", r#"{"a":"1"}"#), ("managed", r#"{"a":"1"}"#)]);
    let path = "{.items[?(@.metadata.annotations.mortise\\.dev/child==\"kept\")].metadata.name}";
    let kept =
        world.until("the third exists", || Some(field(&world, "configmaps", path)).filter(|name| !name.is_empty()));

    let absent = json!({"key": "absent", "data": {}, "handling": "keep"});
    apply(&world, &json!([[once("2"), managed("2"), {"key": "kept", "data": {}, "handling": "keep"}, absent]]));
    wait_data(&world, &[("once", r#"{"a":"1"}"#), ("managed", r#"{"a":"2"}"#), (&kept, r#"{"a":"1"}"#)]);
    world.kubectl_here(&["patch", "configmap", &kept, "--type=merge", "-p", r#"{"data":{"a":"theirs"}}"#]);
    world.kubectl_here(&["delete", "configmap", "once"]);
    wait_data(&world, &[("once", r#"{"a":"2"}"#), (&kept, r#"{"a":"theirs"}"#)]);
    assert_eq!(field(&world, "configmaps", path), kept, "one that is kept and absent is not created");

    apply(&world, &json!([[managed("2")]]));
    world.until("what is not wanted is deleted", || {
        field(&world, &format!("configmap/{kept}"), "{.data}").is_empty().then_some(())
    });
    world.until("also what was created once", || field(&world, "configmap/once", "{.data}").is_empty().then_some(()));
}

#[test]
fn x3_a_child_that_may_be_left_out_stalls_nothing_and_comes_when_its_name_is_free() {
    let world = world("children-skipped");
    world.kubectl_here(&["create", "configmap", "theirs", "--from-literal=a=theirs"]);
    let item = |or_skip: bool| json!({"key": "0", "name": "theirs", "data": {"a": "ours"}, "orSkip": or_skip});
    let other = json!({"key": "1", "name": "other", "data": {"a": "1"}});
    apply(&world, &json!([[item(true), other]]));
    wait_data(&world, &[("other", r#"{"a":"1"}"#), ("theirs", r#"{"a":"theirs"}"#)]);
    let ready = "{.status.conditions[?(@.type==\"Ready\")].status} {.status.conditions[?(@.type==\"Ready\")].reason}";
    let shown = |expected: &str| {
        world.until(&format!("the bundle is {expected:?}"), || {
            (field(&world, "bundle/bundle", ready) == expected).then_some(())
        });
    };
    shown("True Bundled");
    let rejected = |expected: &str| {
        world.until(&format!("the plugin has read {expected}"), || {
            (field(&world, "bundle/bundle", "{.status.rejected}") == expected).then_some(())
        });
    };
    rejected(r#"{"0":"ChildExists"}"#);
    apply(&world, &json!([[item(false), other]]));
    shown("False ChildExists");
    apply(&world, &json!([[item(true), other]]));
    shown("True Bundled");
    world.kubectl_here(&["delete", "configmap", "theirs"]);
    wait_data(&world, &[("theirs", r#"{"a":"ours"}"#)]);
    rejected("{}");
}

#[test]
fn a_plugin_reads_what_the_api_server_refused_of_its_outcome() {
    let world = world("children-rejected");
    let bad = |key: &str| json!({"key": "bad", "name": "bad", "data": {key: "1"}, "optional": true});
    let good = json!({"key": "good", "name": "good", "data": {"a": "1"}});
    let rejected = |expected: &str| {
        world.until(&format!("the plugin has read {expected}"), || {
            let path = "{.status.rejected} {.status.conditions[?(@.type==\"Ready\")].status}";
            (field(&world, "bundle/bundle", path) == format!("{expected} True")).then_some(())
        });
    };
    apply(&world, &json!([[bad("no spaces"), good]]));
    rejected(r#"{"bad":"Invalid"}"#);
    wait_data(&world, &[("good", r#"{"a":"1"}"#)]);
    wait_until_quiet(&world, "bundle");
    apply(&world, &json!([[bad("nospaces"), good]]));
    rejected("{}");
    wait_data(&world, &[("bad", r#"{"nospaces":"1"}"#)]);
}

#[test]
fn a_group_waits_until_the_one_before_is_available() {
    let world = world("children-groups");
    let pod = json!({"key": "first", "name": "first", "on": {"e2e": "children"}});
    let second = json!({"key": "second", "name": "second", "data": {"a": "1"}});
    apply(&world, &json!([[pod], [second]]));
    world.until("the first group is written", || {
        (field(&world, "bundle/bundle", "{.status.children}") == "1").then_some(())
    });
    wait_until_quiet(&world, "bundle");
    assert_eq!(field(&world, "configmap/second", "{.data}"), "", "its group is written before the Pod is ready");
    let mut node = world.node("children");
    node["metadata"]["labels"]["e2e"] = "children".into();
    world.apply(&node);
    wait_data(&world, &[("second", r#"{"a":"1"}"#)]);
    assert_eq!(field(&world, "pod/first", "{.status.conditions[?(@.type==\"Ready\")].status}"), "True");
}

#[test]
fn an_exact_map_loses_what_others_put_into_it() {
    let world = world("children-exact");
    let item = |name: &str, exact: bool| json!({"key": name, "name": name, "data": {"a": "1"}, "exact": exact});
    apply(&world, &json!([[item("exact", true), item("shared", false)]]));
    let both = r#"{"a":"1","b":"2"}"#;
    wait_data(&world, &[("exact", r#"{"a":"1"}"#), ("shared", r#"{"a":"1"}"#)]);
    for name in ["exact", "shared"] {
        world.kubectl_here(&["patch", "configmap", name, "--type=merge", "-p", r#"{"data":{"b":"2"}}"#]);
    }
    wait_data(&world, &[("exact", r#"{"a":"1"}"#), ("shared", both)]);
    wait_until_quiet(&world, "bundle");
    assert_eq!(field(&world, "configmap/shared", "{.data}"), both);
    assert_eq!(field(&world, "bundle/bundle", "{.status.conditions[*].type}"), "Ready");
}
