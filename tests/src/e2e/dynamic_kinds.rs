//! Kinds that objects name at run time: a built-in one, one whose CRD comes later, one outside of the patterns, one that
//! the host may not read. The guest is `tests/guests/follower`.

use serde_json::{Value, json};

use super::rights::{bind, grant, start_restricted};
use super::world::{World, built};

/// A CRD in a group that one of the guest's patterns has. The label lets the next test delete it.
fn gauges() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gauges.acme.follow.mortise.dev", "labels": {"app.kubernetes.io/managed-by": "mortise"}},
        "spec": {
            "group": "acme.follow.mortise.dev", "scope": "Namespaced", "names": {"kind": "Gauge", "plural": "gauges"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

impl World {
    fn target(&self, api_version: &str, kind: &str, name: &str, replicas: i64) -> Value {
        let labels = json!({"app": name});
        json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "3600"]}]},
            }},
        })
    }

    fn add_follow(&self, name: &str, api_version: &str, kind: &str) {
        self.apply(&json!({
            "apiVersion": "test.mortise.dev/v1", "kind": "Follow",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"targetRef": {"apiVersion": api_version, "kind": kind, "name": name}},
        }));
    }

    /// Waits until a condition of a Follow has this status and reason; returns its message.
    fn wait_follow(&self, name: &str, type_: &str, status: &str, reason: &str) -> String {
        let follows = self.api("test.mortise.dev/v1", "Follow", Some(&self.namespace));
        self.until(&format!("Follow {name} has {type_}={status} {reason}"), || {
            let follow = self.block_on(follows.get_opt(name)).ok().flatten()?;
            let conditions = follow.data["status"]["conditions"].as_array()?.clone();
            let found = conditions.into_iter().find(|condition| condition["type"] == type_)?;
            (found["status"] == status && found["reason"] == reason)
                .then(|| found["message"].as_str().unwrap_or_default().to_owned())
        })
    }

    fn wait_replicas(&self, name: &str, replicas: &str) {
        self.until(&format!("Follow {name} shows {replicas} replicas"), || {
            let shown = self.kubectl_here(&["get", "follow", name, "-o", "jsonpath={.status.replicas}"]);
            (shown == replicas).then_some(())
        });
    }
}

#[test]
fn an_object_follows_a_kind_that_it_names_also_one_whose_crd_comes_later() {
    let mut world = World::new("dynamic");
    world.start_host();
    world.offer("follower", &built("test-guests/follower.wasm"));
    world.wait_ready("follower");
    world.add_follow("web", "apps/v1", "Deployment");
    world.wait_follow("web", "Ready", "False", "NotFound");
    world.apply(&world.target("apps/v1", "Deployment", "web", 1));
    world.wait_replicas("web", "1");
    world.kubectl_here(&["scale", "deployment", "web", "--replicas=2"]);
    world.wait_replicas("web", "2");

    world.add_follow("level", "acme.follow.mortise.dev/v1", "Gauge");
    let message = world.wait_follow("level", "Ready", "False", "NotServed");
    assert!(message.contains("does not serve acme.follow.mortise.dev/v1/Gauge"), "{message}");
    world.wait_condition("follower", "Ready", "True", "Serving");
    world.apply(&gauges());
    world.wait_follow("level", "Ready", "False", "NotFound");
    world.apply(&world.target("acme.follow.mortise.dev/v1", "Gauge", "level", 7));
    world.wait_replicas("level", "7");

    world.add_follow("hidden", "v1", "Secret");
    let message = world.wait_follow("hidden", "Stalled", "True", "Terminal");
    assert!(message.contains("v1/Secret") && message.contains("apps/v1/*, *.follow.mortise.dev/*"), "{message}");

    // After a restart the kinds are discovered again, and nothing is written.
    world.stop_host();
    world.mark_audit();
    world.start_host();
    world.wait_ready("follower");
    world.kubectl_here(&["scale", "deployment", "web", "--replicas=1"]);
    world.wait_replicas("web", "1");
    let writes = world.writes_by_host();
    let of_others = writes.iter().filter(|write| write.resource.starts_with("follows") && write.name != "web");
    assert_eq!(of_others.count(), 0, "{writes:#?}");

    world.kubectl(&["delete", "crd", "gauges.acme.follow.mortise.dev"]);
    world.wait_follow("level", "Ready", "False", "NotServed");
}

#[test]
fn r5_an_object_that_names_a_kind_that_may_not_be_read_says_which_right_is_missing_until_it_is_granted() {
    let mut world = World::new("dynamic-rights");
    start_restricted(&mut world);
    grant(&world, &[built("test-guests/follower.wasm").to_str().unwrap()]);
    bind(&world, "follower", "mortise-plugin-follower");
    world.apply(&gauges());
    world.offer("follower", &built("test-guests/follower.wasm"));
    world.wait_ready("follower");
    world.add_follow("level", "acme.follow.mortise.dev/v1", "Gauge");
    world.apply(&world.target("acme.follow.mortise.dev/v1", "Gauge", "level", 7));
    let message = world.wait_follow("level", "Stalled", "True", "Forbidden");
    assert!(message.contains(r#""resources":["gauges"],"verbs":["get","list","watch"]"#), "{message}");
    world.wait_condition("follower", "Permitted", "False", "Forbidden");
    world.wait_condition("follower", "Ready", "True", "Serving");

    // What `mortise rbac` prints is enough for the pattern that names a group.
    world.add_follow("web", "apps/v1", "Deployment");
    world.apply(&world.target("apps/v1", "Deployment", "web", 1));
    world.wait_replicas("web", "1");

    let resource = "--resource=gauges.acme.follow.mortise.dev";
    world.kubectl(&["delete", "clusterrole", "e2e-gauges", "--ignore-not-found"]);
    world.kubectl(&["create", "clusterrole", "e2e-gauges", "--verb=get,list,watch", resource]);
    bind(&world, "gauges", "e2e-gauges");
    world.wait_replicas("level", "7");
    world.wait_condition("follower", "Permitted", "True", "Allowed");
}
