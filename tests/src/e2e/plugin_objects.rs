//! Plugin objects that people and their tools write: a plugin delivered as Argo CD and Flux do it, server-side, with hash
//! suffixes and pruning; pinned, configured, suspended and removed.

use std::path::Path;

use mortise_control_plane::kstatus::{self, Status};
use mortise_core::digest;
use serde_json::{Value, json};

use super::world::{HOST_NAMESPACE, World, built};

const OF_DELIVERY: &str = "app.kubernetes.io/instance=delivered";

/// A folder in Git, as kustomize builds it.
struct Delivery(tempfile::TempDir);

impl Delivery {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.0.path().join(name), content).unwrap();
    }

    /// Delivers a component with a Plugin that names it.
    fn deliver(&self, world: &World, component: &Path, spec: &Value) {
        std::fs::copy(component, self.0.path().join("plugin.wasm")).unwrap();
        let mut spec = spec.clone();
        spec["source"]["configMap"] = "podset".into();
        let plugin = json!({
            "apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": "podset"}, "spec": spec,
        });
        self.write("plugin.yaml", &plugin.to_string());
        let names = json!({"nameReference": [
            {"kind": "ConfigMap", "version": "v1", "fieldSpecs": [{"kind": "Plugin", "path": "spec/source/configMap"}]},
        ]});
        self.write("names.yaml", &names.to_string());
        let options = json!({"immutable": true, "labels": {"mortise.dev/plugin": "source"}});
        self.build(&json!({
            "resources": ["plugin.yaml"], "configurations": ["names.yaml"],
            "configMapGenerator": [{"name": "podset", "files": ["plugin.wasm"], "options": options}],
        }));
        self.apply(world);
    }

    /// Delivers nothing but what is left of it for others.
    fn remove(&self, world: &World) {
        let options = json!({"disableNameSuffixHash": true});
        self.build(&json!({"configMapGenerator": [{"name": "left", "literals": ["a=1"], "options": options}]}));
        self.apply(world);
    }

    fn build(&self, kustomization: &Value) {
        let mut kustomization = kustomization.clone();
        kustomization["labels"] = json!([{"pairs": {"app.kubernetes.io/instance": "delivered"}}]);
        self.write("kustomization.yaml", &kustomization.to_string());
    }

    fn apply(&self, world: &World) {
        let folder = self.0.path().display().to_string();
        let arguments = [
            "apply",
            "--server-side",
            "-k",
            &folder,
            "-n",
            HOST_NAMESPACE,
            "--prune",
            "--applyset=configmap/delivered",
        ];
        let output = world.plane.kubectl(&arguments).env("KUBECTL_APPLYSET", "true").output().unwrap();
        let [said, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        println!("$ kubectl {}\n{said}", arguments.join(" "));
        assert!(output.status.success(), "{error}");
    }
}

/// The ConfigMaps of the delivery.
fn sources(world: &World) -> Vec<String> {
    let names = world.kubectl(&["get", "configmaps", "-n", HOST_NAMESPACE, "-l", OF_DELIVERY, "-o", "name"]);
    names.lines().map(str::to_owned).collect()
}

fn digest_of(component: &Path) -> String {
    digest::of(&std::fs::read(component).unwrap()).to_string()
}

/// Waits until this component serves, as the object says, whose spec has been read.
fn wait_serving(world: &mut World, digest: &str) {
    world.until("the version serves", || {
        let is_read = world.of_plugin("podset", ".metadata.generation")
            == world.of_plugin("podset", ".status.observedGeneration");
        (is_read && world.of_plugin("podset", ".status.digest") == digest).then_some(())
    });
    world.wait_condition("podset", "Ready", "True", "Serving");
    for name in ["Stalled", "Reconciling"] {
        assert!(world.condition("podset", name).is_none(), "{name}");
    }
}

fn wait_replicas(world: &World, replicas: &str) {
    world.until("the PodSet has its Pods", || {
        (world.kubectl_here(&["get", "podset/kept", "-o", "jsonpath={.status.replicas}"]) == replicas).then_some(())
    });
}

#[test]
fn a_plugin_is_delivered_updated_rolled_back_suspended_and_pruned_from_a_kustomization() {
    let mut world = World::new("delivered");
    world.start_host();
    world.wait_plugins_served();
    let [first, second] = ["plugins/podset.wasm", "test-guests/podset-next.wasm"].map(built);
    let [first_digest, second_digest] = [&first, &second].map(|component| digest_of(component));
    let git = Delivery::new();
    git.deliver(&world, &first, &json!({}));
    wait_serving(&mut world, &first_digest);
    let before = sources(&world);
    assert_eq!(before.len(), 1);
    assert_eq!(format!("configmap/{}", world.of_plugin("podset", ".spec.source.configMap")), before[0]);
    assert_eq!(world.of_plugin("podset", ".status.observed.digest"), first_digest);
    assert_eq!(world.of_plugin("podset", ".status.host"), HOST_NAMESPACE);
    let all = world.kubectl(&["get", "plugins", "-o", "name"]);
    assert_eq!(all.trim(), "plugin.mortise.dev/podset", "the ConfigMap itself is no plugin");
    world.apply(&world.podset("kept", 2));
    wait_replicas(&world, "2");

    git.deliver(&world, &second, &json!({}));
    wait_serving(&mut world, &second_digest);
    // The second version has one more optional field, which objects use.
    let purpose = |world: &World| world.kubectl_here(&["get", "podset/kept", "-o", "jsonpath={.spec.purpose}"]);
    world.kubectl_here(&["patch", "podset/kept", "--type=merge", "-p", r#"{"spec": {"purpose": "web"}}"#]);
    assert_eq!(purpose(&world), "web");
    let after = sources(&world);
    assert!(after.len() == 1 && after != before, "the old source is pruned: {after:?}");
    git.deliver(&world, &first, &json!({}));
    wait_serving(&mut world, &first_digest);
    assert_eq!(sources(&world), before);
    assert_eq!(purpose(&world), "web", "the definition stays the wider one");
    world.kubectl_here(&["scale", "podset/kept", "--replicas=1"]);
    wait_replicas(&world, "1");
    world.kubectl_here(&["scale", "podset/kept", "--replicas=2"]);
    wait_replicas(&world, "2");

    git.deliver(&world, &first, &json!({"suspend": true}));
    world.wait_condition("podset", "Ready", "False", "Suspended");
    world.mark_audit();
    world.kubectl_here(&["scale", "podset/kept", "--replicas=3"]);
    git.deliver(&world, &first, &json!({"suspend": true, "config": {"podSecurity": "privileged"}}));
    world.until("the host has read the spec after that", || {
        let generations =
            [".metadata.generation", ".status.observedGeneration"].map(|path| world.of_plugin("podset", path));
        (generations[0] == generations[1]).then_some(())
    });
    let writes = world.writes_by_host();
    let is_own = |resource: &str| ["plugins", "events", "leases"].contains(&resource);
    assert!(writes.iter().all(|write| is_own(&write.resource)), "{writes:#?}");
    git.deliver(&world, &first, &json!({"suspend": false}));
    wait_replicas(&world, "3");

    git.remove(&world);
    world.until("the plugin is gone", || world.kubectl(&["get", "plugins", "-o", "name"]).is_empty().then_some(()));
    assert_eq!(
        world.kubectl_here(&["get", "podset/kept", "-o", "jsonpath={.status.replicas}"]),
        "3",
        "its objects stay"
    );
}

#[test]
fn a_plugin_waits_for_the_digest_that_it_is_pinned_to_and_for_its_source() {
    let mut world = World::new("pinned");
    world.start_host();
    world.wait_plugins_served();
    let [first, second] = ["plugins/podset.wasm", "test-guests/podset-next.wasm"].map(built);
    let plugin = |source: &str, digest: &str| {
        let spec = json!({"source": {"configMap": source}, "digest": digest});
        json!({"apiVersion": "mortise.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": "pinned"}, "spec": spec})
    };
    world.apply(&plugin("podset", &digest_of(&first)));
    let message = world.wait_condition("pinned", "Stalled", "True", "SourceNotFound");
    assert!(message.contains("ConfigMap mortise-system/podset"), "{message}");
    world.wait_condition("pinned", "Ready", "False", "SourceNotFound");
    world.offer("podset", &second);
    let message = world.wait_condition("pinned", "Stalled", "True", "DigestMismatch");
    assert!(message.contains(&digest_of(&first)) && message.contains(&digest_of(&second)), "{message}");
    world.offer("podset", &first);
    world.wait_condition("pinned", "Ready", "True", "Serving");
    assert!(world.condition("pinned", "Stalled").is_none());
    world.offer("podset", &second);
    world.wait_condition("pinned", "Stalled", "True", "DigestMismatch");
    world.wait_condition("pinned", "Ready", "True", "ServingPrevious");
    let all = world.kubectl(&["get", "plugins", "-o", "name"]);
    assert_eq!(all.trim(), "plugin.mortise.dev/pinned", "a ConfigMap that a Plugin names is no plugin of its own");
    world.apply(&plugin("podset", &digest_of(&second)));
    // The first one serves until the second has been compiled.
    world.until("the second one serves", || {
        (world.plugin_digest("pinned").as_deref() == Some(&*digest_of(&second))).then_some(())
    });
    world.wait_condition("pinned", "Ready", "True", "Serving");
}

#[test]
fn kstatus_sees_of_a_plugin_whether_its_newest_version_comes_up_serves_or_was_refused() {
    let mut world = World::new("kstatus");
    world.start_host();
    world.wait_plugins_served();
    let [first, second] = ["plugins/podset.wasm", "test-guests/podset-next.wasm"].map(built);
    let wants = |world: &World, rest: &Value| {
        let mut spec = json!({"source": {"configMap": "podset"}, "digest": digest_of(&first)});
        spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let (kind, metadata) = ("Plugin", json!({"name": "judged"}));
        world.apply(&json!({"apiVersion": "mortise.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}));
    };
    let wait = |world: &World, reason: &str, expected: Status| {
        world.until("kstatus sees what the Plugin is", || {
            let live: Value = serde_json::from_str(&world.kubectl(&["get", "plugin/judged", "-o", "json"])).unwrap();
            let judged = kstatus::status_of(&live).unwrap().0;
            (world.condition("judged", "Ready").unwrap_or_default()["reason"] == reason && judged == expected)
                .then(|| println!("{reason}: {judged:?}"))
        });
    };
    wants(&world, &json!({}));
    wait(&world, "SourceNotFound", Status::Failed);
    world.offer("podset", &second);
    wait(&world, "DigestMismatch", Status::Failed);
    world.offer("podset", &first);
    wait(&world, "Serving", Status::Current);
    world.offer("podset", &second);
    wait(&world, "ServingPrevious", Status::Failed);
    assert_eq!(world.of_plugin("judged", ".status.observed.digest"), digest_of(&second), "what was read last");
    assert_eq!(world.of_plugin("judged", ".status.digest"), digest_of(&first));
    world.offer("podset", &first);
    wait(&world, "Serving", Status::Current);
    world.stop_host();
    wants(&world, &json!({"suspend": true}));
    wait(&world, "Serving", Status::InProgress);
    world.start_host();
    wait(&world, "Suspended", Status::InProgress);
}
