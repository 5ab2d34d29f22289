//! The kinds that a plugin may reconcile: several at once, built-in ones, cluster-scoped ones. The guest is
//! `tests/guests/notes`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::world::{World, built};

/// The annotation with the text of a Deployment's note.
const NOTE: &str = "test.mortise.dev/note";

/// A world with the controllers of `tests/guests/notes`.
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

/// Waits until a field of an object has a value.
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

/// The host's writes to objects of a resource such as "deployments".
fn writes_to(world: &World, resource: &str) -> Vec<mortise_control_plane::AuditRecord> {
    world.writes_by_host().into_iter().filter(|record| record.resource.starts_with(resource)).collect()
}

#[test]
fn a_deployment_is_reconciled_without_a_write_to_it_and_so_is_its_child() {
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
    world.until("the Event is there", || {
        events_about(&world, &world.namespace, "Deployment", "web")
            .contains(&"Normal Noted: busy".to_owned())
            .then_some(())
    });

    // The plugin leaves the Deployment controller's ReplicaSet alone.
    world.kubectl_here(&["annotate", "deployment", "web", "--overwrite", &format!("{NOTE}=idle")]);
    wait_field(&world, "note/web", ".spec.text", "idle");
    world.kubectl_here(&["annotate", "deployment", "web", &format!("{NOTE}-")]);
    world.until("the note is deleted with the annotation, and its ConfigMap too", || {
        let left =
            world.kubectl_here(&["get", "notes,configmaps", "-o", "jsonpath={.items[*].metadata.ownerReferences}"]);
        left.is_empty().then_some(())
    });
    assert_eq!(world.kubectl_here(&["get", "replicasets", "-o", "name"]).lines().count(), 1);
    assert!(writes_to(&world, "deployments").is_empty(), "{:#?}", writes_to(&world, "deployments"));
}

#[test]
fn a_plugin_that_writes_the_status_of_a_deployment_is_refused_by_an_event() {
    let mut world = with_notes("builtin-status");
    world.mark_audit();
    world.apply(&deployment(&world, "web", "write my status"));
    let message = world.wait_condition("notes", "Ready", "True", "GuestFault");
    assert!(message.contains("the outcome was refused; `kubectl describe deployment web -n "), "{message}");
    world.until("the Deployment has an Event of the fault", || {
        let events = events_about(&world, &world.namespace, "Deployment", "web");
        let says = |event: &String| event.contains("apps/v1/Deployment is a built-in kind");
        events.iter().any(|event| event.starts_with("Warning BadOutcome: ") && says(event)).then_some(())
    });
    assert!(world.metric("mortise_guest_faults_total", "notes/Deployment") >= 1.0, "{}", world.metrics_text());
    assert!(writes_to(&world, "deployments").is_empty());
    world.kubectl_here(&["annotate", "deployment", "web", "--overwrite", &format!("{NOTE}=better")]);
    wait_field(&world, "note/web", ".spec.text", "better");
    world.wait_condition("notes", "Ready", "True", "Serving");
}

#[test]
fn objects_outside_a_predicate_are_left_alone_and_those_that_leave_it_keep_their_children() {
    let mut world = with_notes("selection");
    let service = |name: &str, tier: &str, noted: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]},
            "metadata": {"name": name, "namespace": world.namespace, "labels": {"tier": tier},
                "annotations": {"test.mortise.dev/noted": noted}},
        })
    };
    for (name, tier, noted) in [("a", "web", "true"), ("b", "db", "true"), ("c", "api", "false")] {
        world.apply(&service(name, tier, noted));
    }
    let notes = |world: &World| {
        let text = world.kubectl_here(&["get", "notes", "-o", "jsonpath={range .items[*]}{.spec.text}{\"\\n\"}{end}"]);
        text.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let wait_notes = |world: &World, services: &[&str]| {
        let expected: BTreeSet<String> = services.iter().map(|name| format!("the Service {name}")).collect();
        world.until(&format!("the notes are {expected:?}"), || (notes(world) == expected).then_some(()));
    };
    wait_notes(&world, &["a"]);
    world.kubectl_here(&["label", "service", "b", "--overwrite", "tier=api"]);
    wait_notes(&world, &["a", "b"]);
    world.kubectl_here(&["annotate", "service", "c", "--overwrite", "test.mortise.dev/noted=true"]);
    wait_notes(&world, &["a", "b", "c"]);

    // They leave the predicate: their Notes stay, and are not created again after a delete.
    world.kubectl_here(&["label", "service", "a", "tier-"]);
    world.kubectl_here(&["annotate", "service", "b", "test.mortise.dev/noted-"]);
    let calls = world.metric("mortise_guest_calls_total", "notes/Service");
    let owned_by = |name: &str| {
        let path = format!("jsonpath={{.items[?(@.spec.text==\"the Service {name}\")].metadata.name}}");
        world.kubectl_here(&["get", "notes", "-o", &path])
    };
    for name in ["a", "b", "c"] {
        world.kubectl_here(&["delete", "note", &owned_by(name)]);
    }
    wait_notes(&world, &["c"]);
    let more = world.metric("mortise_guest_calls_total", "notes/Service") - calls;
    assert!(more <= 3.0, "{more} calls for one Note that is created again");

    // Nor are they after a restart.
    world.stop_host();
    world.mark_audit();
    world.start_host();
    world.wait_ready("notes");
    wait_field(&world, "service/a", ".metadata.labels", "");
    world
        .until("c is reconciled", || (world.metric("mortise_guest_calls_total", "notes/Service") >= 1.0).then_some(()));
    assert_eq!(notes(&world).len(), 1);
    assert!(world.writes_by_host().is_empty(), "{:#?}", world.writes_by_host());
}

#[test]
fn a_cluster_scoped_object_has_children_in_the_namespaces_that_it_lists() {
    let mut world = with_notes("scope");
    let binder = |namespaces: &[&str], text: &str| {
        json!({
            "apiVersion": "test.mortise.dev/v1", "kind": "Binder", "metadata": {"name": "law"},
            "spec": {"namespaces": namespaces, "text": text},
        })
    };
    let here = world.namespace.clone();
    world.apply(&binder(&[&here, "default"], "one"));
    let texts = |world: &World| {
        let path = "jsonpath={range .items[?(@.metadata.ownerReferences[0].kind==\"Binder\")]}\
                    {.metadata.namespace}={.data.text} {end}";
        world.kubectl(&["get", "configmaps", "-A", "-o", path]).trim().to_owned()
    };
    let wait_texts = |world: &World, expected: &str| {
        world.until(&format!("the texts are {expected:?}"), || (texts(world) == expected).then_some(()));
    };
    wait_texts(&world, &format!("default=one {here}=one"));
    wait_field(&world, "binder/law", ".status.namespaces", &format!("[\"default\",\"{here}\"]"));
    wait_field(&world, "binder/law", ".status.conditions[?(@.type==\"Ready\")].status", "True");
    world.until("its Event is in the namespace where kubectl looks", || {
        let events = events_about(&world, "default", "Binder", "law");
        events.iter().any(|event| event.starts_with("Normal PluginEvent: what the plugin says")).then_some(())
    });
    // A deleted child wakes its owner from any namespace.
    world.kubectl_here(&["delete", "configmap", "--all", "--wait=false"]);
    wait_texts(&world, &format!("default=one {here}=one"));
    world.apply(&binder(&["default"], "two"));
    wait_texts(&world, "default=two");

    world.apply(&binder(&["default", ""], "two"));
    wait_field(&world, "binder/law", ".status.conditions[?(@.type==\"Stalled\")].reason", "Invalid");
    let path = "jsonpath={.status.conditions[?(@.type==\"Stalled\")].message}";
    let message = world.kubectl(&["get", "binder", "law", "-o", path]);
    assert!(message.contains("the kind is namespaced, so metadata.namespace is required"), "{message}");
    world.apply(&binder(&["default"], "three"));
    wait_texts(&world, "default=three");
    wait_field(&world, "binder/law", ".status.conditions[?(@.type==\"Stalled\")].reason", "");

    // After a restart its key is the same.
    world.stop_host();
    world.mark_audit();
    world.start_host();
    world.wait_ready("notes");
    world.until("the binder is reconciled", || {
        (world.metric("mortise_guest_calls_total", "notes/Binder") >= 1.0).then_some(())
    });
    assert!(world.writes_by_host().is_empty(), "{:#?}", world.writes_by_host());
    world.kubectl(&["delete", "binder", "law"]);
    wait_texts(&world, "");
}

/// The ready Pods, by an independent watch, and their minimum since all were ready.
#[derive(Default)]
struct Serving {
    pods: BTreeSet<String>,
    enough: usize,
    fewest: Option<usize>,
}

impl Serving {
    fn apply(&mut self, pod: &Pod, gone: bool) {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|each| each.type_ == "Ready" && each.status == "True");
        let uid = pod.uid().unwrap_or_default();
        if is_ready && !gone && pod.metadata.deletion_timestamp.is_none() {
            self.pods.insert(uid);
        } else {
            self.pods.remove(&uid);
        }
        let now = self.pods.len();
        if self.fewest.is_some() || now >= self.enough {
            self.fewest = Some(self.fewest.map_or(now, |fewest| fewest.min(now)));
        }
    }
}

#[test]
fn a_rollout_leaves_all_but_one_serving_at_every_instant() {
    const SIZE: usize = 5;
    let world = with_notes("rollout");
    let crowd = |image: &str| {
        json!({
            "apiVersion": "test.mortise.dev/v1", "kind": "Crowd", "spec": {"size": SIZE, "image": image},
            "metadata": {"name": "crowd", "namespace": world.namespace},
        })
    };
    let serving = Arc::new(Mutex::new(Serving { enough: SIZE, ..Serving::default() }));
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let into = Arc::clone(&serving);
    let task = world.follow(pods, move |event| match event {
        watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => into.lock().unwrap().apply(&pod, false),
        watcher::Event::Delete(pod) => into.lock().unwrap().apply(&pod, true),
        watcher::Event::Init | watcher::Event::InitDone => {}
    });
    world.apply(&crowd("a"));
    world.until("all serve", || serving.lock().unwrap().fewest);
    let first = serving.lock().unwrap().pods.clone();
    world.apply(&crowd("b"));
    world.until("all are replaced and serve", || {
        let now = &serving.lock().unwrap().pods;
        (now.len() == SIZE && now.is_disjoint(&first)).then_some(())
    });
    task.abort();
    assert_eq!(serving.lock().unwrap().fewest, Some(SIZE - 1), "one at a time, and never two");
    let images = world.kubectl_here(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"]);
    assert_eq!(images, ["b"; SIZE].join(" "));
}
