//! The whole cluster with its defaults: a node and all controllers. It must not know the parts.

mod deployed;
mod malformed;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::Method::{Delete, Get, Patch, Post, Put};
use crate::testing::{request, start};
use crate::{Body, Cluster, Method, Options, Reply, Step};

const CORE: &str = "/api/v1/namespaces/team";
const APPS: &str = "/apis/apps/v1/namespaces/team";
const BATCH: &str = "/apis/batch/v1/namespaces/team";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/team/widgets";
/// How many steps the controllers may take for one request: many times what they need.
const MAX_STEPS: usize = 5_000;

/// A cluster and its time.
struct World {
    cluster: Cluster,
    now: Timestamp,
}

impl World {
    fn new() -> Self {
        Self { cluster: Cluster::new(Options::default(), start()), now: start() }
    }

    fn ask(&mut self, method: Method, target: &str, body: &Value) -> (u16, Value) {
        let kind = if method == Patch { "application/merge-patch+json" } else { "application/json" };
        let request = request(method, target, &[("content-type", kind)], body);
        let Reply::Done(response) = self.cluster.request(&request, &[], self.now) else { panic!("a webhook is asked") };
        let answer = match response.body {
            Body::Bytes(bytes) => String::from_utf8_lossy(&bytes).into(),
            other => other.document().expect("a watch is no document"),
        };
        (response.status, answer)
    }

    #[track_caller]
    fn done(&mut self, method: Method, target: &str, body: &Value) -> Value {
        let (code, answer) = self.ask(method, target, body);
        assert!(code < 300, "{answer}");
        answer
    }

    fn read(&mut self, target: &str) -> Value {
        self.ask(Get, target, &Value::Null).1
    }

    fn count(&mut self, target: &str) -> usize {
        self.read(target)["items"].as_array().map_or(0, Vec::len)
    }

    /// Lets the controllers work for so many seconds, each step at the time that it is due.
    #[track_caller]
    fn pass(&mut self, seconds: i64) {
        let end = self.now + SignedDuration::from_secs(seconds);
        for _ in 0..MAX_STEPS {
            match self.cluster.step(&[], self.now) {
                Reply::Done(Step::Worked) => {}
                Reply::Done(Step::Idle(Some(next))) if next <= end => self.now = next.max(self.now),
                Reply::Done(Step::Idle(_)) => {
                    self.now = end;
                    return;
                }
                Reply::Call(call) => panic!("a webhook is asked: {call:?}"),
            }
        }
        panic!("the controllers do not come to rest");
    }

    /// What is written in a minute besides the heartbeats of the node.
    #[track_caller]
    fn written_in_a_minute(&mut self) -> Vec<String> {
        let before = self.cluster.revision();
        self.pass(60);
        let changes = self.cluster.store.changes(before);
        let name = |change: &crate::store::Change| format!("{} {}", change.storage.plural, change.object.name());
        changes.map(name).filter(|name| name != "leases node-0").collect()
    }
}

fn template(restart: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"restartPolicy": restart, "containers": [{"name": "a", "image": "web:1", "ports": [{"containerPort": 80}]}]},
    })
}

/// The status of a condition.
fn condition(object: &Value, of: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.filter(|condition| condition["type"] == of).map(|condition| &condition["status"]);
    found.filter_map(Value::as_str).collect()
}

#[test]
fn a_cluster_runs_workloads_deletes_all_of_a_namespace_and_comes_to_rest() {
    let mut world = World::new();
    world.pass(1);
    assert_eq!(condition(&world.read("/api/v1/nodes/node-0"), "Ready"), "True");
    world.done(Post, "/api/v1/namespaces", &json!({"metadata": {"name": "team"}}));

    let selector = json!({"matchLabels": {"app": "web"}});
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": selector, "template": template("Always")}});
    world.done(Post, &format!("{APPS}/deployments"), &web);
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    world.done(Post, &format!("{CORE}/services"), &service);
    world.pass(5);
    let web = world.read(&format!("{APPS}/deployments/web"));
    assert_eq!((&web["status"]["availableReplicas"], condition(&web, "Available").as_str()), (&json!(3), "True"));
    let slices = world.read("/apis/discovery.k8s.io/v1/namespaces/team/endpointslices");
    assert_eq!(slices["items"][0]["endpoints"].as_array().map(Vec::len), Some(3));

    let mut once = template("Never");
    once["metadata"] = json!({"annotations": {"local-cluster.mortise.dev/exit-code": "0"}});
    world.done(Post, &format!("{BATCH}/jobs"), &json!({"metadata": {"name": "once"}, "spec": {"template": once}}));
    world.pass(10);
    let once = world.read(&format!("{BATCH}/jobs/once"));
    assert_eq!((condition(&once, "Complete").as_str(), &once["status"]["succeeded"]), ("True", &json!(1)));
    assert_eq!(world.written_in_a_minute(), Vec::<String>::new());

    // A change rolls out, and the cluster rests again.
    let image = json!({"spec": {"template": {"metadata": {"annotations": {"again": "1"}}}}});
    world.done(Patch, &format!("{APPS}/deployments/web"), &image);
    world.pass(10);
    let web = world.read(&format!("{APPS}/deployments/web"));
    assert_eq!((&web["status"]["updatedReplicas"], &web["status"]["replicas"]), (&json!(3), &json!(3)));

    world.done(Delete, "/api/v1/namespaces/team", &Value::Null);
    world.pass(30);
    assert_eq!(world.ask(Get, "/api/v1/namespaces/team", &Value::Null).0, 404);
    for list in [
        format!("{APPS}/deployments"),
        format!("{APPS}/replicasets"),
        format!("{BATCH}/jobs"),
        format!("{CORE}/pods"),
        format!("{CORE}/services"),
        format!("{CORE}/endpoints"),
        format!("{CORE}/serviceaccounts"),
        format!("{CORE}/configmaps"),
        format!("{CORE}/events"),
        "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices".to_owned(),
    ] {
        assert_eq!(world.count(&list), 0, "{list}");
    }
    assert_eq!(world.written_in_a_minute(), Vec::<String>::new());
}

#[test]
fn a_definition_is_served_and_its_deletion_takes_its_instances_along() {
    let mut world = World::new();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 1}}}, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
    });
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    world.done(Post, "/api/v1/namespaces", &json!({"metadata": {"name": "team"}}));
    let made = world.done(Post, DEFINITIONS, &definition);
    world.pass(1);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    assert_eq!(condition(&world.read(&path), "Established"), "True", "{made}");
    for (name, finalizers) in [("a", json!([])), ("held", json!(["example.com/hold"]))] {
        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "finalizers": finalizers}, "spec": {},
        });
        let made = world.done(Post, WIDGETS, &widget);
        assert_eq!(made["spec"]["size"], json!(1));
    }
    world.done(Delete, &path, &Value::Null);
    world.pass(5);
    assert_eq!((world.count(WIDGETS), condition(&world.read(&path), "Terminating").as_str()), (1, "True"));
    let mut held = world.read(&format!("{WIDGETS}/held"));
    held["metadata"]["finalizers"] = json!([]);
    world.done(Put, &format!("{WIDGETS}/held"), &held);
    world.pass(30);
    assert_eq!((world.ask(Get, &path, &Value::Null).0, world.ask(Get, WIDGETS, &Value::Null).0), (404, 404));
    assert_eq!(world.written_in_a_minute(), Vec::<String>::new());
}
