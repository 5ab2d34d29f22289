//! What the janitor deletes and when, run natively.

use std::time::Duration;

use mortise_sdk::testing::Cluster;
use mortise_sdk::{Action, Delete, ObjectKey, Outcome, Timestamp, Value, json};

use super::PLUGIN;

const CREATED: &str = "2026-01-01T12:00:00Z";

fn object(api_version: &str, kind: &str, namespace: Option<&str>, ttl: &str) -> Value {
    let labels = json!({"janitor.example.com/ttl": ttl});
    let metadata = json!({"name": "a", "namespace": namespace, "labels": labels, "creationTimestamp": CREATED});
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
}

fn at(time: &str, object: &Value) -> Outcome<Value> {
    let mut cluster = Cluster::of(&PLUGIN);
    cluster.set_now_unix_ms(Timestamp::parse(time).unwrap().unix_ms());
    cluster.add(object).reconcile(object).unwrap()
}

#[test]
fn each_kind_is_deleted_at_the_end_of_its_time_and_not_a_second_before() {
    for (api_version, kind, namespace) in
        [("v1", "Pod", Some("default")), ("batch/v1", "Job", Some("default")), ("v1", "Namespace", None)]
    {
        let object = object(api_version, kind, namespace, "1h30m");
        let early = at("2026-01-01T13:29:59Z", &object);
        assert_eq!((early.actions.len(), early.requeue_after), (0, Some(Duration::from_secs(1))), "{kind}");
        let due = at("2026-01-01T13:30:00Z", &object);
        let key = ObjectKey::new(api_version, kind, namespace, "a");
        assert_eq!(due.actions, [Action::Delete(Delete::new(key))], "{kind}");
        assert_eq!(due.events[0].reason, "Expired", "{kind}");
    }
}

#[test]
fn an_invalid_time_deletes_nothing_and_is_an_event() {
    let outcome = at("2027-01-01T00:00:00Z", &object("v1", "Pod", Some("default"), "soon"));
    assert!(outcome.actions.is_empty());
    assert_eq!(outcome.events[0].message, "\"soon\" is no duration such as \"90s\" or \"1h30m\"");
}

#[test]
fn an_object_without_the_label_is_none_of_its_business() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}});
    let refused = Cluster::of(&PLUGIN).reconcile(&pod).unwrap_err();
    assert!(refused.message().contains("the host would not call the plugin"), "{refused}");
}
