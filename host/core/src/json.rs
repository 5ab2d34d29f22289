//! Equality of JSON values as the API server stores them. `json/compare.rs`, `json/level.rs` and `json/patch.rs`
//! compare texts without trees, and `json/object_text.rs` makes one.

use serde_json::{Number, Value};

pub(crate) mod compare;
pub(crate) mod level;
pub(crate) mod object_text;
pub(crate) mod patch;

/// Whether two values are equal to the API server, which stores 1.0 as 1.
pub fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => is_same_number(one, other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_there = |(name, value)| other.get(name).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(is_there)
        }
        _ => one == other,
    }
}

pub(crate) fn is_same_number(one: &Number, other: &Number) -> bool {
    // Integers are compared as integers: a float cannot represent the large ones.
    one == other || ((one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_same;

    #[test]
    fn x5_numbers_are_compared_by_value_and_not_by_notation() {
        assert!(is_same(&json!({"a": [1.0, {"b": 2}]}), &json!({"a": [1, {"b": 2.0}]})));
        assert!(!is_same(&json!(1.5), &json!(1)));
        assert!(!is_same(&json!(9_007_199_254_740_993_u64), &json!(9_007_199_254_740_992_u64)));
        assert!(!is_same(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
        assert!(!is_same(&json!("1"), &json!(1)));
    }
}
