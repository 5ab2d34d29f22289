//! A guest that does everything wrong, one object per misbehaviour, with a working plugin. Rules G2 and G6: each
//! overrun is its own fault, reported once, and does not affect others.

use serde_json::{Value, json};

use super::world::{World, built};

fn hostile(world: &World, mode: &str) -> Value {
    json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Hostile",
        "metadata": {"name": mode, "namespace": world.namespace}, "spec": {"mode": mode},
    })
}

/// The reason and message of an object's Stalled condition, once it has one.
fn stalled(world: &World, mode: &str) -> (String, String) {
    let api = world.api("test.mortise.dev/v1", "Hostile", Some(&world.namespace));
    world.until(&format!("the object that does {mode:?} is stalled"), || {
        let object = world.block_on(api.get(mode)).unwrap();
        let conditions = object.data["status"]["conditions"].as_array()?.clone();
        let found = conditions.into_iter().find(|condition| condition["type"] == "Stalled")?;
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (found["status"] == "True").then(|| (text("reason"), text("message")))
    })
}

fn world_with_both(name: &str) -> World {
    let mut world = World::with_podset(name);
    world.offer("hostile", &built("test-guests/hostile.wasm"));
    world.wait_ready("hostile");
    world
}

#[test]
fn g2_every_overrun_is_its_own_fault_and_other_plugins_are_not_affected() {
    let mut world = world_with_both("hostile");
    let expected = [
        ("loop", "DeadlineExceeded", "deadline of 1000 ms"),
        ("alloc", "MemoryExceeded", "bytes of memory"),
        ("trap", "Trap", "it traps because spec.mode is trap"),
        ("stack", "Trap", ""),
        ("hostcalls", "TooManyHostCalls", ""),
        ("output", "OutputTooLarge", ""),
        ("owner-references", "BadOutcome", "metadata.ownerReferences is set"),
        ("other-namespace", "BadOutcome", "\"kube-system\""),
        ("other-kind", "BadOutcome", "v1/Secret is not among the kinds"),
        ("invalid-name", "BadOutcome", "\"Not/A Name\" is not a name"),
        ("duplicate-child", "BadOutcome", "the key appears twice"),
        ("invalid-json", "BadOutcome", "it is not JSON"),
        ("invalid-utf8", "BadOutcome", "utf-8"),
        // The host drops lines after the hundredth; the number of calls ends it.
        ("log-flood", "TooManyHostCalls", "more than 10000 calls into the host"),
        // The read fails, and the guest returns the error.
        ("undeclared-read", "Terminal", "v1/Secret"),
        ("terminal", "Terminal", "it fails for good"),
    ];
    let pid = world.host().process.pid();
    for (mode, _, _) in expected {
        world.apply(&hostile(&world, mode));
    }
    for mode in ["retry", "ok"] {
        world.apply(&hostile(&world, mode));
    }
    for (mode, reason, text) in expected {
        let found = stalled(&world, mode);
        assert_eq!(found.0, reason, "{mode}: {}", found.1);
        assert!(found.1.contains(text), "{mode}: {}", found.1);
    }
    // The object that behaves and the other plugin are not affected.
    world.until("the behaving object has its child", || {
        let found = world.kubectl_here(&["get", "configmaps", "-o", "jsonpath={.items[*].data.from}"]);
        (found == "hostile").then_some(())
    });
    world.apply(&world.podset("other", 2));
    world.until("the other plugin's PodSet has its Pods", || {
        let found = world.kubectl_here(&["get", "podset", "other", "-o", "jsonpath={.status.replicas}"]);
        (found == "2").then_some(())
    });
    // The log has the lines that one call may log, and that the others were dropped.
    let log = std::fs::read_to_string(world.host().process.log()).unwrap();
    for (text, is_logged) in
        [("line 99 of a flood", true), ("line 100 of a flood", false), ("than it may in one call", true)]
    {
        assert_eq!(log.contains(text), is_logged, "{text:?} in the log:\n{}", world.host().process.tail());
    }
    assert_eq!(world.host().process.pid(), pid);
    assert!(world.host().process.ended().unwrap().is_none());
    let message = world.wait_condition("hostile", "Ready", "True", "GuestFault");
    assert!(message.contains("serves"), "{message}");
    for (reason, fewest) in [
        ("DeadlineExceeded", 1.0),
        ("MemoryExceeded", 1.0),
        ("TooManyHostCalls", 2.0),
        ("Trap", 2.0),
        ("BadOutcome", 7.0),
    ] {
        let label = format!("reason=\"{reason}\"");
        assert!(world.metric("mortise_guest_faults_total", &label) >= fewest, "{reason} is not counted");
    }
}

#[test]
fn l5_a_trap_is_one_event_and_a_condition_until_it_is_fixed() {
    let mut world = world_with_both("trap");
    world.apply(&hostile(&world, "trap"));
    stalled(&world, "trap");
    world.wait_condition("hostile", "Ready", "True", "GuestFault");
    let events = world.until("the trap is an Event", || {
        let path = "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}";
        let found = world.kubectl_here(&["get", "events", "-o", path]);
        found.contains("it traps because").then_some(found)
    });
    assert_eq!(events.lines().filter(|line| line.starts_with("Trap ")).count(), 1, "{events}");
    assert!(events.contains("src/lib.rs:"), "no file and line: {events}");
    world.kubectl_here(&["patch", "hostile/trap", "--type=merge", "-p", r#"{"spec":{"mode":"ok"}}"#]);
    world.until("the object is no longer stalled", || {
        let found = world.kubectl_here(&["get", "hostile/trap", "-o", "jsonpath={.status.conditions[*].type}"]);
        (!found.contains("Stalled")).then_some(())
    });
    world.wait_condition("hostile", "Ready", "True", "Serving");
}
