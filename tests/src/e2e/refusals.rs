//! What is offered and is not a plugin, or not one that may serve: each is refused in words, once, and what served before
//! goes on (L1, L2, L4, G7).

use serde_json::json;

use super::reload::append_custom_section;
use super::world::{World, built};

fn podset_bytes() -> Vec<u8> {
    std::fs::read(built("plugins/podset.wasm")).unwrap()
}

/// Replaces a text inside a component by another of the same length.
fn replaced(mut bytes: Vec<u8>, before: &str, after: &str) -> Vec<u8> {
    assert_eq!(before.len(), after.len());
    let places: Vec<usize> =
        bytes.windows(before.len()).enumerate().filter(|(_, w)| *w == before.as_bytes()).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "{before:?} does not stand in the component");
    for at in places {
        bytes[at..at + after.len()].copy_from_slice(after.as_bytes());
    }
    bytes
}

#[test]
fn what_is_no_plugin_is_refused_in_words_and_nobody_else_notices() {
    let mut world = World::with_podset("refusals");
    let truncated = podset_bytes()[..20_000].to_vec();
    let core_module = wat::parse_str("(module (func (export \"reconcile\")))").unwrap();
    let wrong_world = wat::parse_str("(component)").unwrap();
    let unknown_import = wat::parse_str("(component (import \"acme:cloud/buckets@1.0.0\" (instance)))").unwrap();
    let cases: [(&str, Vec<u8>, &str, &str); 5] = [
        ("truncated", truncated, "Malformed", ""),
        ("core-module", core_module, "NotAComponent", "wasm32-wasip2"),
        ("wrong-world", wrong_world, "WrongWorld", "mortise:plugin/reconciler"),
        ("unknown-import", unknown_import, "UnknownImport", "acme:cloud/buckets"),
        ("text", b"hello".to_vec(), "NotWebAssembly", ""),
    ];
    for (name, bytes, _, _) in &cases {
        world.offer_bytes(name, bytes);
    }
    for (name, _, reason, words) in &cases {
        let message = world.wait_condition(name, "Ready", "False", reason);
        assert!(message.contains(words), "{name}: {message}");
    }
    assert_eq!(world.metric("mortise_plugin_refusals_total", ""), cases.len() as f64);
    world.wait_condition("podset", "Ready", "True", "Serving");
    let events = world.kubectl(&[
        "get",
        "events",
        "-n",
        "default",
        "-o",
        "jsonpath={range .items[*]}{.reason} {.regarding.name}{.involvedObject.name}{\"\\n\"}{end}",
    ]);
    assert_eq!(events.lines().filter(|line| line.starts_with("NotAComponent")).count(), 1, "told once: {events}");
    let (status, _) = world.probe("/readyz");
    assert_eq!(status, 200, "a refused plugin does not make the host unready");
}

#[test]
fn configmaps_that_hold_no_readable_component_are_refused_by_what_they_hold() {
    let mut world = World::new("configmaps");
    world.start_host();
    world.put_config_map("empty", json!({}), json!({"readme": "none"}));
    world.put_config_map("two", json!({"plugin.wasm": "AA==", "plugin.wasm.gz": "AA=="}), json!({}));
    world.put_config_map("broken", json!({"plugin.wasm.gz": "AAAA"}), json!({}));
    world.put_config_map("settings", json!({"plugin.wasm": "AA=="}), json!({"config.yaml": "a: [1"}));
    let expect = [
        ("empty", "NoComponent", "plugin.wasm"),
        ("two", "ManyComponents", "plugin.wasm.gz"),
        ("broken", "BrokenCompression", "plugin.wasm.gz"),
        ("settings", "InvalidConfig", "config.yaml"),
    ];
    for (name, reason, words) in expect {
        let message = world.wait_condition(name, "Resolved", "False", reason);
        assert!(message.contains(words), "{name}: {message}");
    }
    world.offer("empty", &built("plugins/podset.wasm"));
    world.wait_ready("empty");
}

#[test]
fn a_component_over_the_limit_of_a_configmap_is_refused_by_push_with_the_other_ways() {
    let world = World::new("push");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("huge.wasm");
    let mut bytes = podset_bytes();
    // Noise that no compression shrinks, in custom sections of 100 bytes.
    let mut state = 1_u64;
    while bytes.len() < 3 << 20 {
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        append_custom_section(&mut bytes, &noise.take(100).collect::<Vec<u8>>());
    }
    std::fs::write(&file, &bytes).unwrap();
    let kubeconfig = world.plane.kubeconfig(mortise_control_plane::ADMIN).unwrap();
    let push = |file: &std::path::Path| {
        let mut command = std::process::Command::new(built("debug/mortise"));
        command.arg("push").arg(file).arg("--kubeconfig").arg(&kubeconfig);
        command.output().unwrap()
    };
    let refused = push(&file);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    for part in ["1048576", "--plugin-dir"] {
        assert!(
            words.replace([',', '_'], "").contains(part) || words.contains("1 MiB") || words.contains("1.00 MiB"),
            "{part}: {words}"
        );
    }
    assert!(words.contains("--plugin-dir"), "{words}");
    let pushed = push(&built("plugins/podset.wasm"));
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    let labelled =
        world.kubectl(&["get", "configmaps", "-n", "mortise-system", "-l", "mortise.dev/plugin=true", "-o", "name"]);
    assert_eq!(labelled.trim(), "configmap/podset");
}

#[test]
fn l2_a_kind_has_one_plugin_and_the_second_gets_it_when_the_first_goes() {
    let mut world = World::with_podset("claims");
    let mut other = podset_bytes();
    append_custom_section(&mut other, b"another");
    world.offer_bytes("second", &other);
    let message = world.wait_condition("second", "Established", "False", "KindClaimed");
    assert!(message.contains("\"podset\""), "{message}");
    world.withdraw("podset");
    world.wait_ready("second");
}

#[test]
fn l1_a_bad_version_leaves_the_old_one_serving_and_says_why() {
    let mut world = World::with_podset("keep-last-good");
    let digest = world.plugin_digest("podset");
    world.offer_bytes("podset", b"\0asm\x0d\0\x01\0 and then nonsense");
    let message = world.wait_condition("podset", "Ready", "True", "ServingPrevious");
    assert!(message.contains("newer version"), "{message}");
    assert_eq!(world.plugin_digest("podset"), digest);
    world.apply(&world.podset("still-served", 1));
    world.until("the old version still serves", || {
        (world.kubectl_here(&["get", "podset/still-served", "-o", "jsonpath={.status.replicas}"]) == "1").then_some(())
    });
    world.offer("podset", &built("test-guests/podset-next.wasm"));
    world.until("the good version has taken over", || (world.plugin_digest("podset") != digest).then_some(()));
    world.wait_condition("podset", "Ready", "True", "Serving");
}

#[test]
fn l4_a_crd_is_never_narrowed_while_objects_exist() {
    let mut world = World::with_podset("narrowing");
    world.apply(&world.podset("kept", 1));
    // The same plugin, whose schema now calls a field otherwise: the old property would be gone.
    let narrowed = replaced(podset_bytes(), "podNames", "podNamez");
    world.offer_bytes("podset", &narrowed);
    let message = world.wait_condition("podset", "Established", "False", "");
    assert!(message.contains("podNames"), "{message}");
    world.wait_condition("podset", "Ready", "True", "ServingPrevious");
}

#[test]
fn manifests_that_claim_too_much_or_do_not_parse_are_refused() {
    let mut world = World::new("manifests");
    world.start_host();
    world.offer_bytes("unparsable", &replaced(podset_bytes(), "PluginManifest", "PluginMenifest"));
    let message = world.wait_condition("unparsable", "Ready", "False", "InvalidManifest");
    assert!(message.contains("PluginManifest"), "{message}");
    // The same plugin, for a kind in a group of Kubernetes' own; and one that would bring such a kind itself.
    let claims = replaced(podset_bytes(), "app.example.com/v1alpha1", "resource.k8s.io/v1alpha1");
    world.offer_bytes("claims-core", &claims);
    let message = world.wait_condition("claims-core", "Ready", "False", "CoreKindClaimed");
    assert!(message.contains("resource.k8s.io/v1alpha1/PodSet is a kind of Kubernetes itself"), "{message}");
    world.offer_bytes("brings-core", &replaced(podset_bytes(), "app.example.com", "resource.k8s.io"));
    let message = world.wait_condition("brings-core", "Ready", "False", "ProtectedGroup");
    assert!(message.contains("\"resource.k8s.io\" belongs to Kubernetes"), "{message}");
    let crds = world.kubectl(&["get", "crd", "-o", "name"]);
    assert!(!crds.contains("podsets"), "a refused plugin has registered something: {crds}");
}

#[test]
fn specs_that_make_no_sense_are_refused_by_the_schema_or_said_in_the_status() {
    let world = World::with_podset("specs");
    for replicas in ["-1", "\"x\""] {
        let manifest = format!(
            "{{\"apiVersion\":\"app.example.com/v1alpha1\",\"kind\":\"PodSet\",\"metadata\":{{\"name\":\"bad\",\
             \"namespace\":\"{}\"}},\"spec\":{{\"replicas\":{replicas}}}}}",
            world.namespace
        );
        let refused = world.plane.apply(&manifest).unwrap_err();
        assert!(format!("{refused:#}").contains("spec.replicas"), "{refused:#}");
    }
    world.apply(&world.podset("absurd", 1_000_000_000));
    let message = world.until("the absurd number is spoken of in the status", || {
        let path = "jsonpath={.status.conditions[?(@.type=='Ready')].message}";
        let message = world.kubectl_here(&["get", "podset/absurd", "-o", path]);
        (!message.is_empty()).then_some(message)
    });
    assert!(message.contains("1000000000") && message.contains("500"), "{message}");
    assert_eq!(world.kubectl_here(&["get", "pods", "-o", "name"]), "");
}
