//! Fields of objects as controllers read and write them: numbers, percents, times, counts that are left out when they are
//! zero. It must not know kinds.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

pub(super) fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// An `IntOrString`: a number, or a percent of the total.
pub(super) fn scaled(value: &Value, total: i64, up: bool) -> i64 {
    let Some(percent) = value.as_str() else { return int(value) };
    let product = percent.trim_end_matches('%').parse::<i64>().unwrap_or(0).saturating_mul(total);
    let part = if up { product.saturating_add(99).div_euclid(100) } else { product.div_euclid(100) };
    part.min(i32::MAX.into())
}

/// So many seconds later; the end of time if there is no such time.
pub(super) fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// Counts of a status; those that are zero are left out, as `omitempty` does.
pub(super) fn counts(pairs: &[(&str, i64)]) -> Map<String, Value> {
    let set = pairs.iter().filter(|(_, count)| *count != 0);
    set.map(|(name, count)| ((*name).to_owned(), (*count).into())).collect()
}

/// Sets a key of an object's metadata map (`labels`, `annotations`), and says whether that changed it.
pub(super) fn set(object: &mut Value, map: &str, key: &str, value: &str) -> bool {
    if object["metadata"][map].get(key).and_then(Value::as_str) == Some(value) {
        return false;
    }
    if let Some(fields) = fields(&mut object["metadata"][map]) {
        fields.insert(key.to_owned(), value.into());
    }
    true
}

/// The fields of an object that is made if it is not there.
pub(super) fn fields(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}
