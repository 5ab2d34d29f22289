//! Whether an object does what it is there for, as far as its status tells. What follows from it is somebody else's
//! business, and so is how long one waits for it.

use serde::Deserialize;

use crate::object::Object;

/// The conditions by which objects say that they serve. One that has both has to hold both.
const SERVING: [&str; 2] = ["Ready", "Available"];

#[derive(Deserialize, Default)]
#[serde(default)]
struct Counted {
    spec: Spec,
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    replicas: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: Option<i64>,
    conditions: Option<Vec<Condition>>,
    ready_replicas: i64,
    number_ready: i64,
    desired_number_scheduled: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

/// Whether an object serves: it is not going, its status is about its newest generation, and its conditions `Ready` and
/// `Available` hold, those that it has. The workloads of Kubernetes that have no such condition say it by their counts.
/// Anything else without one, such as a ConfigMap, serves by being there.
pub fn is_available(object: &Object) -> bool {
    let Ok(told) = serde_json::from_str::<Counted>(object.json()) else { return false };
    let is_observed = |status: &Status| status.observed_generation.is_none_or(|seen| seen >= object.generation);
    if object.deleting || !told.status.as_ref().is_none_or(is_observed) {
        return false;
    }
    let conditions = told.status.iter().flat_map(|status| &status.conditions).flatten();
    let mut serving = conditions.filter(|condition| SERVING.contains(&condition.r#type.as_str())).peekable();
    if serving.peek().is_some() {
        return serving.all(|condition| condition.status == "True");
    }
    let counts = told.status.as_ref().filter(|status| status.observed_generation.is_some());
    match (object.kind.group(), &*object.kind.kind) {
        // Without the condition nobody has looked at it yet.
        ("", "Pod") | ("apps", "Deployment") => false,
        ("apps", "ReplicaSet" | "StatefulSet") => {
            counts.is_some_and(|status| status.ready_replicas >= told.spec.replicas.unwrap_or(1))
        }
        ("apps", "DaemonSet") => counts.is_some_and(|status| status.number_ready >= status.desired_number_scheduled),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Interner;

    #[track_caller]
    fn check(api_version: &str, kind: &str, rest: &Value, expected: bool) {
        let mut object = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 2},
        });
        for (field, value) in rest.as_object().unwrap() {
            object[field] = value.clone();
        }
        let decoded = Object::decode(object.to_string().as_bytes(), &mut Interner::default()).unwrap();
        assert_eq!(is_available(&decoded), expected, "{object}");
    }

    fn with(conditions: &[(&str, &str)]) -> Value {
        let conditions: Vec<Value> =
            conditions.iter().map(|(name, status)| json!({"type": name, "status": status})).collect();
        json!({"status": {"conditions": conditions}})
    }

    #[test]
    fn ready_and_available_have_to_hold_where_they_are() {
        for (kind, version) in [("Pod", "v1"), ("Widget", "example.com/v1"), ("Deployment", "apps/v1")] {
            check(version, kind, &with(&[("Ready", "True"), ("PodScheduled", "False")]), true);
            check(version, kind, &with(&[("Ready", "False")]), false);
            check(version, kind, &with(&[("Available", "Unknown")]), false);
            check(version, kind, &with(&[("Available", "True"), ("Ready", "False")]), false);
        }
        let mut going = with(&[("Ready", "True")]);
        going["metadata"] = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-01T00:00:00Z"});
        check("v1", "Pod", &going, false);
    }

    #[test]
    fn a_status_of_an_older_generation_says_nothing_of_this_one() {
        let mut told = with(&[("Ready", "True")]);
        told["status"]["observedGeneration"] = json!(1);
        check("example.com/v1", "Widget", &told, false);
        told["status"]["observedGeneration"] = json!(2);
        check("example.com/v1", "Widget", &told, true);
    }

    #[test]
    fn what_has_no_condition_serves_by_being_there_unless_it_is_known_to_get_one() {
        for status in [json!({}), json!({"status": {}}), json!({"status": {"conditions": null}})] {
            check("v1", "ConfigMap", &status, true);
            check("example.com/v1", "Widget", &status, true);
            check("v1", "Pod", &status, false);
            check("apps/v1", "Deployment", &status, false);
            check("apps/v1", "StatefulSet", &status, false);
        }
    }

    #[test]
    fn workloads_without_a_condition_say_it_by_their_counts() {
        let counts = |ready: i64| {
            json!({"spec": {"replicas": 3},
                "status": {"observedGeneration": 2, "readyReplicas": ready, "numberReady": ready, "desiredNumberScheduled": 3}})
        };
        for kind in ["StatefulSet", "ReplicaSet", "DaemonSet"] {
            check("apps/v1", kind, &counts(3), true);
            check("apps/v1", kind, &counts(2), false);
        }
    }
}
