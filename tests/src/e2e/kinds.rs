//! What a plugin may reconcile: several kinds at once, kinds of Kubernetes itself, kinds outside namespaces. The guest is
//! `tests/guests/notes`.

use serde_json::{Value, json};

use super::world::{World, built};

/// The annotation by which a Deployment asks for a note.
const NOTE: &str = "test.mortise.dev/note";

/// A world in which the host serves the controllers of `tests/guests/notes`.
fn with_notes(name: &str) -> World {
    let mut world = World::new(name);
    world.start_host();
    world.offer("notes", &built("test-guests/notes.wasm"));
    world.wait_ready("notes");
    world
}

fn deployment(world: &World, name: &str, note: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": world.namespace, "annotations": {NOTE: note}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "3600"]}]},
            },
        },
    })
}

/// Waits until a field of an object reads so.
fn wait_field(world: &World, object: &str, path: &str, expected: &str) {
    let path = format!("jsonpath={{{path}}}");
    world.until(&format!("{object} has {expected} at {path}"), || {
        let found = world.plane.kubectl_output(&["-n", &world.namespace, "get", object, "-o", &path]).ok()?;
        (found == expected).then_some(())
    });
}

/// The Events about an object, as "Normal Noted: busy".
fn events_about(world: &World, namespace: &str, kind: &str, name: &str) -> Vec<String> {
    let selector = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let path = "jsonpath={range .items[*]}{.type} {.reason}: {.message}{\"\\n\"}{end}";
    let text = world.kubectl(&["-n", namespace, "get", "events", "--field-selector", &selector, "-o", path]);
    text.lines().map(str::to_owned).collect()
}

/// The host's own writes to objects of a resource, "deployments".
fn writes_to(world: &World, resource: &str) -> Vec<mortise_control_plane::AuditRecord> {
    world.writes_by_host().into_iter().filter(|record| record.resource.starts_with(resource)).collect()
}

#[test]
fn a_deployment_is_reconciled_without_a_write_to_it_and_its_child_by_the_same_plugin() {
    let mut world = with_notes("builtin");
    world.mark_audit();
    world.apply(&deployment(&world, "web", "busy"));
    wait_field(&world, "note/web", ".spec.text", "busy");
    wait_field(&world, "note/web", ".status.replicas", "2");
    wait_field(&world, "note/web", ".status.conditions[?(@.type==\"Ready\")].reason", "Filed");
    wait_field(&world, "note/web", ".metadata.ownerReferences[0].kind", "Deployment");
    world.until("the note is filed", || {
        let text = world.kubectl_here(&["get", "configmaps", "-o", "jsonpath={.items[*].data.text}"]);
        (text == "busy").then_some(())
    });
    world.until("the event is told", || {
        events_about(&world, &world.namespace, "Deployment", "web")
            .contains(&"Normal Noted: busy".to_owned())
            .then_some(())
    });

    // What the Deployment controller makes of its own is none of the plugin's business.
    world.kubectl_here(&["annotate", "deployment", "web", "--overwrite", &format!("{NOTE}=idle")]);
    wait_field(&world, "note/web", ".spec.text", "idle");
    world.kubectl_here(&["annotate", "deployment", "web", &format!("{NOTE}-")]);
    world.until("the note goes with the annotation, and its ConfigMap with it", || {
        let left =
            world.kubectl_here(&["get", "notes,configmaps", "-o", "jsonpath={.items[*].metadata.ownerReferences}"]);
        left.is_empty().then_some(())
    });
    assert_eq!(world.kubectl_here(&["get", "replicasets", "-o", "name"]).lines().count(), 1);
    assert!(writes_to(&world, "deployments").is_empty(), "{:#?}", writes_to(&world, "deployments"));
}

#[test]
fn a_plugin_that_writes_the_status_of_a_deployment_is_refused_by_an_event() {
    let mut world = with_notes("misdeed");
    world.mark_audit();
    world.apply(&deployment(&world, "web", "write my status"));
    let message = world.wait_condition("notes", "Ready", "True", "GuestFault");
    assert!(message.contains("apps/v1/Deployment is a kind of Kubernetes itself"), "{message}");
    world.until("the fault is told at the Deployment", || {
        let events = events_about(&world, &world.namespace, "Deployment", "web");
        events.iter().any(|event| event.starts_with("Warning BadOutcome: ")).then_some(())
    });
    assert!(world.metric("mortise_guest_faults_total", "notes/Deployment") >= 1.0, "{}", world.metrics_text());
    assert!(writes_to(&world, "deployments").is_empty());
    world.kubectl_here(&["annotate", "deployment", "web", "--overwrite", &format!("{NOTE}=better")]);
    wait_field(&world, "note/web", ".spec.text", "better");
    world.wait_condition("notes", "Ready", "True", "Serving");
}
