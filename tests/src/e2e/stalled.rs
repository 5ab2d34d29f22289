//! Objects that make no progress, as their owner sees them. Rule X12: a stalled object is not ready, for `kubectl wait`,
//! and for kstatus, which Flux, Argo CD and kpt read.

use mortise_control_plane::kstatus::{self, Status};
use serde_json::{Value, json};

use super::world::{World, built};

/// Waits until kstatus judges an object so. Returns the status and reason of its condition Ready.
#[track_caller]
fn wait_judged(world: &World, object: &str, expected: Status) -> String {
    world.until(&format!("{object} is {expected:?}"), || {
        let live: Value = serde_json::from_str(&world.kubectl_here(&["get", object, "-o", "json"])).unwrap();
        let conditions = live["status"]["conditions"].as_array()?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
        let shown = format!("{} {}", ready["status"], ready["reason"]).replace('"', "");
        (kstatus::status_of(&live).unwrap().0 == expected).then_some(shown)
    })
}

/// Whether `kubectl wait` says that the condition is met now.
fn is_met(world: &World, object: &str) -> bool {
    world
        .plane
        .kubectl_output(&["-n", &world.namespace, "wait", object, "--for=condition=Ready", "--timeout=0"])
        .is_ok()
}

#[test]
fn x12_whatever_stalls_an_object_kstatus_and_kubectl_wait_see_it() {
    let mut world = World::new("stalled");
    world.start_host();
    world.offer("hostile", &built("test-guests/hostile.wasm"));
    world.wait_ready("hostile");
    world.apply(&json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Hostile", "spec": {"mode": "ok"},
        "metadata": {"name": "object", "namespace": world.namespace},
    }));
    let object = "hostile/object";
    for (mode, reason) in
        [("trap", "Trap"), ("loop", "DeadlineExceeded"), ("other-kind", "BadOutcome"), ("terminal", "Terminal")]
    {
        assert_eq!(wait_judged(&world, object, Status::Current), "True Ok");
        assert!(is_met(&world, object));
        let patch = |mode: &str| {
            let patch = json!({"spec": {"mode": mode}}).to_string();
            world.kubectl_here(&["patch", object, "--type=merge", "-p", &patch]);
        };
        patch(mode);
        assert_eq!(wait_judged(&world, object, Status::Failed), format!("False {reason}"));
        assert!(!is_met(&world, object), "kubectl wait takes an object that is stalled by {reason} for a ready one");
        patch("ok");
    }
    assert_eq!(wait_judged(&world, object, Status::Current), "True Ok");

    let plugin = "plugin/hostile";
    wait_judged(&world, plugin, Status::Current);
    world.offer_bytes("hostile", b"\0asm\x0d\0\x01\0 and then nonsense");
    assert_eq!(wait_judged(&world, plugin, Status::Failed), "True ServingPrevious");
    world.offer("hostile", &built("test-guests/hostile.wasm"));
    assert_eq!(wait_judged(&world, plugin, Status::Current), "True Serving");
}

#[test]
fn x12_so_do_they_with_a_child_whose_name_is_taken_and_one_that_is_refused() {
    let mut world = World::new("stalled-children");
    world.start_host();
    world.offer("bundle", &built("test-guests/bundle.wasm"));
    world.wait_ready("bundle");
    world.kubectl_here(&["create", "configmap", "theirs"]);
    let apply = |name: &str, member: &str| {
        let child = json!({"key": "only", "name": name, "data": {member: "1"}});
        world.apply(&json!({
            "apiVersion": "test.mortise.dev/v1", "kind": "Bundle", "spec": {"groups": [[child]]},
            "metadata": {"name": "object", "namespace": world.namespace},
        }));
    };
    let object = "bundle/object";
    for (name, member, reason) in [("theirs", "a", "ChildExists"), ("mine", "no spaces", "Invalid")] {
        apply("mine", "a");
        assert_eq!(wait_judged(&world, object, Status::Current), "True Bundled");
        assert!(is_met(&world, object));
        apply(name, member);
        assert_eq!(wait_judged(&world, object, Status::Failed), format!("False {reason}"));
        assert!(!is_met(&world, object), "kubectl wait takes an object that is stalled by {reason} for a ready one");
    }
}
