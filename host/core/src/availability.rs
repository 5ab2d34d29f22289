//! Whether an object is available, by its status. Nothing here decides what follows from that.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::level::each_item;
use crate::object::Object;

/// The conditions of availability. When an object has both, both must be True.
const CONDITIONS: [&str; 2] = ["Ready", "Available"];

#[derive(Deserialize, Default)]
#[serde(default)]
struct Observed<'a> {
    spec: Spec,
    #[serde(borrow)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    replicas: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status<'a> {
    observed_generation: Option<i64>,
    #[serde(borrow)]
    conditions: Option<&'a RawValue>,
    ready_replicas: i64,
    number_ready: i64,
    desired_number_scheduled: i64,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    r#type: String,
    status: String,
    observed_generation: Option<i64>,
}

/// Those of the names that count: who may write a status may write a million others. None when one cannot be read.
fn relevant(list: Option<&RawValue>) -> Option<Vec<Condition>> {
    let (mut few, mut is_read) = (Vec::new(), true);
    list.into_iter().for_each(|list| {
        each_item(list, |text| match serde_json::from_str::<Condition>(text.get()) {
            Ok(condition) if CONDITIONS.contains(&condition.r#type.as_str()) => few.push(condition),
            read => is_read &= read.is_ok(),
        });
    });
    is_read.then_some(few)
}

/// Whether an object is available: it is not being deleted, its status is of its newest generation, and those of its
/// conditions `Ready` and `Available` that it has are True and of that generation too. Kubernetes' workloads without
/// these conditions are judged by their counts. Any other object without them, such as a ConfigMap, is available.
///
/// Computed once for each version of an object. The bytes that are parsed are added.
pub fn is_available(object: &Object, parsed_bytes: &mut usize) -> bool {
    object.availability(compute, parsed_bytes)
}

fn compute(object: &Object) -> bool {
    let Ok(observed) = serde_json::from_str::<Observed<'_>>(object.json()) else { return false };
    let is_current = |seen: Option<i64>| seen.is_none_or(|seen| seen >= object.generation);
    if object.deleting || !observed.status.as_ref().is_none_or(|status| is_current(status.observed_generation)) {
        return false;
    }
    let Some(conditions) = relevant(observed.status.as_ref().and_then(|status| status.conditions)) else {
        return false;
    };
    if !conditions.is_empty() {
        return conditions
            .iter()
            .all(|condition| condition.status == "True" && is_current(condition.observed_generation));
    }
    let counts = observed.status.as_ref().filter(|status| status.observed_generation.is_some());
    match (object.kind.group(), &*object.kind.kind) {
        // Its controller has not set the condition yet.
        ("", "Pod") | ("apps", "Deployment") => false,
        ("apps", "ReplicaSet" | "StatefulSet") => {
            counts.is_some_and(|status| status.ready_replicas >= observed.spec.replicas.unwrap_or(1))
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

    #[test]
    fn p18_a_million_conditions_of_others_take_no_more_than_their_text() {
        let conditions = [vec![json!({}); 100_000], vec![json!({"type": "Ready", "status": "True"})]].concat();
        let object = json!({"apiVersion": "example.com/v1", "kind": "A", "metadata": {"name": "a", "namespace": "b", "uid": "u",
            "resourceVersion": "1"}, "status": {"conditions": conditions}});
        let object = Object::decode(object.to_string().as_bytes(), &mut Interner::default()).unwrap();
        let (count, is_available) = crate::allocations::counted(|| is_available(&object, &mut 0));
        assert!(is_available && count.peak_bytes < 100_000, "{} bytes", count.peak_bytes);
    }

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
        let mut parsed_bytes = 0;
        assert_eq!(is_available(&decoded, &mut parsed_bytes), expected, "{object}");
        assert_eq!(is_available(&decoded, &mut parsed_bytes), expected, "{object}");
        assert_eq!(parsed_bytes, decoded.json().len(), "it is parsed once");
    }

    fn with(conditions: &[(&str, &str)]) -> Value {
        let conditions: Vec<Value> =
            conditions.iter().map(|(name, status)| json!({"type": name, "status": status})).collect();
        json!({"status": {"conditions": conditions}})
    }

    #[test]
    fn ready_and_available_must_be_true_where_they_are_present() {
        for (kind, version) in [("Pod", "v1"), ("Widget", "example.com/v1"), ("Deployment", "apps/v1")] {
            check(version, kind, &with(&[("Ready", "True"), ("PodScheduled", "False")]), true);
            check(version, kind, &with(&[("Ready", "False")]), false);
            check(version, kind, &with(&[("Available", "Unknown")]), false);
            check(version, kind, &with(&[("Available", "True"), ("Ready", "False")]), false);
        }
        let mut deleting = with(&[("Ready", "True")]);
        deleting["metadata"] = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-01T00:00:00Z"});
        check("v1", "Pod", &deleting, false);
    }

    #[test]
    fn a_status_of_an_older_generation_does_not_count() {
        let mut observed = with(&[("Ready", "True")]);
        observed["status"]["observedGeneration"] = json!(1);
        check("example.com/v1", "Widget", &observed, false);
        observed["status"]["observedGeneration"] = json!(2);
        check("example.com/v1", "Widget", &observed, true);
        observed["status"]["conditions"][0]["observedGeneration"] = json!(1);
        check("example.com/v1", "Widget", &observed, false);
        observed["status"]["conditions"][0]["observedGeneration"] = json!(2);
        check("example.com/v1", "Widget", &observed, true);
    }

    #[test]
    fn without_conditions_an_object_is_available_unless_its_kind_gets_them() {
        for status in [json!({}), json!({"status": {}}), json!({"status": {"conditions": null}})] {
            check("v1", "ConfigMap", &status, true);
            check("example.com/v1", "Widget", &status, true);
            check("v1", "Pod", &status, false);
            check("apps/v1", "Deployment", &status, false);
            check("apps/v1", "StatefulSet", &status, false);
        }
    }

    #[test]
    fn workloads_without_conditions_are_judged_by_their_counts() {
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
