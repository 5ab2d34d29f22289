//! Who owns which fields. Input: an object before and after a write, and who wrote. Output: `metadata.managedFields`. It must
//! not know requests.

use jiff::Timestamp;
use serde_json::Value;

use crate::resource::Resource;

/// How a manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Update,
    Apply,
}

/// Records that a manager changed an object from `old` to `new`.
pub(crate) fn update(
    _resource: &Resource,
    _old: Option<&Value>,
    _new: &mut Value,
    _manager: &str,
    _operation: Operation,
    _subresource: &str,
    _now: Timestamp,
) {
}

/// Whether two states differ in nothing, or in the times of managed fields alone: then nothing is written.
pub(crate) fn same_but_times(new: &Value, old: &Value) -> bool {
    new == old
}
