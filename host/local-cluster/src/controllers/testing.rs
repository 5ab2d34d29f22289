//! What the tests of controllers share: a cluster with one node, and time that passes. It must not know what is tested.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::Method::{Get, Post};
use crate::testing::{ask, start};
use crate::{Cluster, Options, Reply, Step};

/// A cluster with `node-0` and these controllers.
pub(super) fn cluster(controllers: &[&str]) -> Cluster {
    let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
    let mut cluster = Cluster::new(Options { nodes: 1, controllers, ..Options::default() }, start());
    let (code, _) = ask(&mut cluster, Post, "/api/v1/nodes", &json!({"metadata": {"name": "node-0"}}));
    assert!(matches!(code, 201 | 409));
    cluster
}

/// So many seconds after the start.
pub(super) fn after(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

/// Lets the controllers work up to a time, each step at the time that it is due.
#[track_caller]
pub(super) fn pass(cluster: &mut Cluster, seconds: i64) {
    let mut now = start();
    for _ in 0..1_000_000 {
        match cluster.step(&[], now) {
            Reply::Done(Step::Worked) => {}
            Reply::Done(Step::Idle(Some(next))) if next <= after(seconds) => now = next.max(now),
            Reply::Done(Step::Idle(_)) => return,
            Reply::Call(call) => panic!("a webhook is asked: {call:?}"),
        }
    }
    panic!("the controllers do not come to rest");
}

#[track_caller]
pub(super) fn post(cluster: &mut Cluster, path: &str, object: &Value) -> Value {
    let (code, made) = ask(cluster, Post, path, object);
    assert_eq!(code, 201, "{made}");
    made
}

/// An object; null when it is not there.
pub(super) fn read(cluster: &mut Cluster, path: &str) -> Value {
    let (code, found) = ask(cluster, Get, path, &Value::Null);
    if code == 200 { found } else { Value::Null }
}

/// A Pod with one container.
pub(super) fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "web:1"}]}})
}

/// The reasons of an object's Events, in the order of their names.
pub(super) fn reasons(cluster: &mut Cluster, name: &str) -> Vec<String> {
    let events = read(cluster, "/api/v1/namespaces/default/events");
    let events = events["items"].as_array().cloned().unwrap_or_default();
    let of = events.iter().filter(|event| event["involvedObject"]["name"] == name);
    let mut reasons: Vec<String> = of.map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect();
    reasons.sort();
    reasons
}
