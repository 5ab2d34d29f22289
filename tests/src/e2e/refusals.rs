//! Refusals of what is not a plugin, or not one that may serve: each has one message, and the serving version stays
//! (L1, L2, L4, G7).

use std::process::Command;

use mortise_source::pack::{Compression, PackError, pack};
use serde_json::{Value, json};

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
    assert!(!places.is_empty(), "{before:?} is not in the component");
    for at in places {
        bytes[at..at + after.len()].copy_from_slice(after.as_bytes());
    }
    bytes
}

/// The output of `mortise inspect`, or its error.
fn inspect(component: &[u8], arguments: &[&str]) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plugin.wasm");
    std::fs::write(&file, component).unwrap();
    let mut command = Command::new(built("debug/mortise"));
    command.arg("inspect").arg(&file).arg("--cache-dir").arg(folder.path().join("cache")).args(arguments);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.code() {
        Some(0) => Ok(text(output.stdout)),
        Some(1) => Err(text(output.stderr)),
        _ => panic!("{}: {}", output.status, text(output.stderr)),
    }
}

/// Checks that `mortise inspect` refuses a component with the host's message.
#[track_caller]
fn assert_inspect_refuses(component: &[u8], reason: &str, message: &str) {
    let error = inspect(component, &[]).expect_err("the host refuses it");
    assert!(error.contains("the host would refuse"), "{error}");
    // Line breaks may differ.
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = plain(&format!("{reason}: {message}"));
    assert!(plain(&error).contains(&expected), "the host says {expected:?}, and inspect {error:?}");
}

/// Components that are not plugins: name, bytes, reason and a part of the message.
fn no_plugins() -> [(&'static str, Vec<u8>, &'static str, &'static str); 5] {
    let text = |text: &str| wat::parse_str(text).unwrap();
    let unknown_import = text("(component (import \"acme:cloud/buckets@1.0.0\" (instance)))");
    [
        ("truncated", podset_bytes()[..20_000].to_vec(), "Malformed", ""),
        ("core-module", text("(module (func (export \"reconcile\")))"), "NotAComponent", "wasm32-wasip2"),
        ("wrong-world", text("(component)"), "WrongWorld", "mortise:plugin/reconciler"),
        ("unknown-import", unknown_import, "UnknownImport", "acme:cloud/buckets"),
        ("text", b"hello".to_vec(), "NotWebAssembly", ""),
    ]
}

#[test]
fn what_is_not_a_plugin_is_refused_and_other_plugins_are_not_affected() {
    let mut world = World::with_podset("refusals");
    let cases = no_plugins();
    for (name, bytes, _, _) in &cases {
        world.offer_bytes(name, bytes);
    }
    for (name, bytes, reason, part) in &cases {
        let message = world.wait_condition(name, "Ready", "False", reason);
        assert!(message.contains(part), "{name}: {message}");
        assert_inspect_refuses(bytes, reason, &message);
    }
    assert_eq!(world.metric("mortise_plugin_refusals_total", ""), cases.len() as f64);
    world.wait_condition("podset", "Ready", "True", "Serving");
    let path = "jsonpath={range .items[*]}{.reason} {.regarding.name}{.involvedObject.name}{\"\\n\"}{end}";
    let events = world.kubectl(&["get", "events", "-n", "default", "-o", path]);
    assert_eq!(events.lines().filter(|line| line.starts_with("NotAComponent")).count(), 1, "reported once: {events}");
    // The probes' state is up to a second old.
    world.until("the host is ready despite refused plugins", || (world.probe("/readyz").0 == 200).then_some(()));
}

#[test]
fn inspect_shows_what_the_host_would_serve() {
    let world = World::with_podset("inspect");
    let digest = world.plugin_digest("podset").unwrap();
    let text = inspect(&podset_bytes(), &[]).unwrap();
    for part in [
        &*format!("digest   {digest}"),
        "fits a ConfigMap",
        "Reconciles PodSet (app.example.com/v1alpha1)",
        "owns   Pod (v1), replaced when changed",
        "podsets.app.example.com (namespaced; v1alpha1)",
        "64.00 MiB of memory, 1000 ms",
        "reads objects of the kinds that its manifest declares\n    mortise:host/cluster@0.2.0",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let json: Value = serde_json::from_str(&inspect(&podset_bytes(), &["-o", "json"]).unwrap()).unwrap();
    assert_eq!(json["digest"], json!(digest));
    assert_eq!(json["sizes"]["componentBytes"], json!(podset_bytes().len()));
    assert_eq!(json["manifest"]["controllers"][0]["for"]["kind"], "PodSet", "{json:#}");
    assert!(json["imports"].as_array().unwrap().contains(&json!("mortise:host/cluster@0.2.0")), "{json:#}");
}

/// The host's peak memory, in MiB.
fn peak_mib(world: &mut World) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.host().process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux has VmHWM");
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() >> 10
}

/// Half of them begin like a component, so that they are offered and only the scan refuses them.
#[test]
fn g3_sixty_bombs_are_refused_one_by_one_and_the_host_stays_small_and_starts_again() {
    const MIB: usize = 1 << 20;
    // Two compile threads with a component each, and decompression.
    const AT_MOST_MIB: u64 = 200;
    let mut world = World::with_podset("bombs");
    let zeros = vec![0; 40 * MIB];
    let mut begins_well = zeros.clone();
    begins_well[..8].copy_from_slice(b"\0asm\x0d\0\x01\0");
    let packed = [(zeros, "NotWebAssembly"), (begins_well, "Malformed")].map(|(bytes, reason)| {
        let packed = pack("", "bomb", &bytes, None, Compression::Gzip).unwrap();
        let config_map: Value = serde_json::from_str(&packed.config_map).unwrap();
        (config_map["binaryData"].clone(), reason)
    });
    let before_mib = peak_mib(&mut world);
    let bombs: Vec<_> =
        packed.iter().cycle().take(60).zip(0..).map(|(packed, n)| (format!("bomb-{n}"), packed)).collect();
    for (name, (binary_data, _)) in &bombs {
        world.put_config_map(name, binary_data.clone(), json!({}));
    }
    for start in ["first", "second"] {
        world.until("each is refused", || {
            (world.metric("mortise_plugin_refusals_total", "") == bombs.len() as f64).then_some(())
        });
        let grown_mib = peak_mib(&mut world).saturating_sub(before_mib);
        assert!(grown_mib < AT_MOST_MIB, "{grown_mib} MiB after the {start} start");
        for (name, (_, reason)) in &bombs {
            world.wait_condition(name, "Ready", "False", reason);
        }
        world.stop_host();
        world.start_host();
        world.wait_ready("podset");
    }
}

#[test]
fn configmaps_without_a_readable_component_are_refused_with_their_keys() {
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
    for (name, reason, part) in expect {
        let message = world.wait_condition(name, "Resolved", "False", reason);
        assert!(message.contains(part), "{name}: {message}");
    }
    world.offer("empty", &built("plugins/podset.wasm"));
    world.wait_ready("empty");
}

#[test]
fn push_refuses_a_component_over_the_limit_of_a_configmap_with_alternatives() {
    let world = World::new("push");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("huge.wasm");
    let mut bytes = podset_bytes();
    // Incompressible noise, in custom sections of 100 bytes.
    let mut state = 1_u64;
    while bytes.len() < 3 << 20 {
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        append_custom_section(&mut bytes, &noise.take(100).collect::<Vec<u8>>());
    }
    std::fs::write(&file, &bytes).unwrap();
    let Err(PackError::TooLarge { packed_bytes, .. }) = pack("", "huge", &bytes, None, Compression::Gzip) else {
        panic!("it fits")
    };
    let kubeconfig = world.plane.kubeconfig(mortise_control_plane::ADMIN).unwrap();
    let push = |file: &std::path::Path| {
        let mut command = Command::new(built("debug/mortise"));
        command.arg("push").arg(file).arg("--kubeconfig").arg(&kubeconfig);
        command.output().unwrap()
    };
    let refused = push(&file);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    let sizes = format!("huge has {} bytes, {packed_bytes} with gzip", bytes.len());
    for part in [&*sizes, "a ConfigMap holds 1048576 (1 MiB)", "--plugin-dir", "Try zstd"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let pushed = push(&built("plugins/podset.wasm"));
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    let labelled =
        world.kubectl(&["get", "configmaps", "-n", "mortise-system", "-l", "mortise.dev/plugin=true", "-o", "name"]);
    assert_eq!(labelled.trim(), "configmap/podset");
}

#[test]
fn l2_a_kind_has_one_plugin_and_the_second_gets_it_when_the_first_is_removed() {
    let mut world = World::with_podset("owned-kinds");
    let mut other = podset_bytes();
    append_custom_section(&mut other, b"another");
    world.offer_bytes("second", &other);
    let message = world.wait_condition("second", "Established", "False", "KindOwned");
    assert!(message.contains("\"podset\""), "{message}");
    world.withdraw("podset");
    world.wait_ready("second");
}

#[test]
fn l1_a_bad_version_leaves_the_old_one_serving_and_is_reported() {
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
    // The same plugin with a renamed field: the schema would lose the old property.
    let narrowed = replaced(podset_bytes(), "podNames", "podNamez");
    world.offer_bytes("podset", &narrowed);
    let message = world.wait_condition("podset", "Established", "False", "");
    assert!(message.contains("podNames"), "{message}");
    world.wait_condition("podset", "Ready", "True", "ServingPrevious");

    // The advice in the message is enough: no new offer is needed.
    world.kubectl(&["delete", "podset", "kept", "-n", &world.namespace]);
    world.wait_condition("podset", "Established", "True", "");
    world.wait_condition("podset", "Ready", "True", "Serving");
}

#[test]
fn l4_a_plugin_that_is_rolled_back_serves_with_the_wider_crd() {
    let mut world = World::with_podset("back");
    world.apply(&world.podset("kept", 1));
    let first = world.plugin_digest("podset");
    let format = |world: &World| {
        let path = "{.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.replicas.format}";
        world.kubectl(&["get", "crd", "podsets.app.example.com", "-o", &format!("jsonpath={path}")])
    };
    assert_eq!(format(&world), "int32");
    // The second version takes larger numbers, and the first one back again is narrower.
    world.offer_bytes("podset", &replaced(podset_bytes(), "int32", "int64"));
    world.until("the second version serves", || (world.plugin_digest("podset") != first).then_some(()));
    assert_eq!(format(&world), "int64");
    world.offer("podset", &built("plugins/podset.wasm"));
    world.until("the first version serves again", || (world.plugin_digest("podset") == first).then_some(()));
    world.wait_condition("podset", "Ready", "True", "Serving");
    assert_eq!(format(&world), "int64", "the definition is as wide as before");
    world.apply(&world.podset("after", 2));
    world.until("it reconciles", || {
        (world.kubectl_here(&["get", "podset/after", "-o", "jsonpath={.status.replicas}"]) == "2").then_some(())
    });
}

#[test]
fn manifests_that_claim_too_much_or_do_not_parse_are_refused() {
    let mut world = World::new("manifests");
    world.start_host();
    // The second claims a kind of the host's; the third has a CRD in a group of Kubernetes.
    let cases = [
        ("unparsable", "PluginManifest", "PluginMenifest", "InvalidManifest", "PluginManifest"),
        (
            "claims-own",
            "app.example.com/v1alpha1",
            "mortise.dev/v1alpha10000",
            "ProtectedGroup",
            "mortise.dev/v1alpha10000/PodSet belongs to the host",
        ),
        (
            "brings-core",
            "app.example.com",
            "resource.k8s.io",
            "ProtectedGroup",
            "\"resource.k8s.io\" belongs to Kubernetes",
        ),
    ];
    for (name, before, after, reason, part) in cases {
        let component = replaced(podset_bytes(), before, after);
        world.offer_bytes(name, &component);
        let message = world.wait_condition(name, "Ready", "False", reason);
        assert!(message.contains(part), "{name}: {message}");
        assert_inspect_refuses(&component, reason, &message);
    }
    let crds = world.kubectl(&["get", "crd", "-o", "name"]);
    assert!(!crds.contains("podsets"), "a refused plugin has registered a CRD: {crds}");
}

#[test]
fn invalid_specs_are_refused_by_the_schema_or_reported_in_the_status() {
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
    let message = world.until("the status has the error", || {
        let path = "jsonpath={.status.conditions[?(@.type=='Ready')].message}";
        let message = world.kubectl_here(&["get", "podset/absurd", "-o", path]);
        (!message.is_empty()).then_some(message)
    });
    assert!(message.contains("1000000000") && message.contains("500"), "{message}");
    assert_eq!(world.kubectl_here(&["get", "pods", "-o", "name"]), "");
}
