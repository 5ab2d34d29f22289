//! Partial objects: what a story says of an object, and whether one is so. A member that is not said may be anything; null is
//! none; a list has elements like the said ones, in this order, and perhaps others between them.

use serde_json::{Map, Value};

/// Whether an object is as said.
pub(super) fn matches(said: &Value, found: &Value) -> bool {
    match (said, found) {
        (Value::Object(said), Value::Object(found)) => {
            said.iter().all(|(name, said)| matches(said, found.get(name).unwrap_or(&Value::Null)))
        }
        (Value::Array(said), Value::Array(found)) => {
            let mut found = found.iter();
            said.iter().all(|said| found.any(|found| matches(said, found)))
        }
        _ => said == found,
    }
}

/// The part of an object that is said something about, to show both beside each other.
pub(super) fn part(said: &Value, found: &Value) -> Value {
    match (said, found) {
        (Value::Object(said), Value::Object(found)) => {
            let member = |(name, said): (&String, &Value)| Some((name.clone(), part(said, found.get(name)?)));
            Value::Object(said.iter().filter_map(member).collect::<Map<_, _>>())
        }
        // A list that is as said is shown as said.
        (Value::Array(_), Value::Array(_)) if matches(said, found) => said.clone(),
        _ => found.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_said_may_be_anything() {
        let found = json!({"spec": {"a": 1, "b": [{"n": "x", "v": 1}, {"n": "y"}]}, "status": {}});
        for said in [
            json!({"spec": {"a": 1}}),
            json!({"spec": {"b": [{"n": "y"}]}}),
            json!({"spec": {"b": [{"n": "x"}, {"n": "y"}], "c": null}}),
            json!({"status": {"gone": null}}),
        ] {
            assert!(matches(&said, &found), "{said}");
        }
        for said in [json!({"spec": {"a": 2}}), json!({"spec": {"b": [{"n": "y"}, {"n": "x"}]}}), json!({"x": {}})] {
            assert!(!matches(&said, &found), "{said}");
        }
        assert_eq!(part(&json!({"spec": {"a": 2, "z": 1}}), &found), json!({"spec": {"a": 1}}));
    }
}
