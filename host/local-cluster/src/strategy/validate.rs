//! What must hold for objects of built-in kinds. Input: an object, and what it was before an update. Output: causes, in the API
//! server's words and order. It must not know the store.

use serde_json::Value;

use super::field::{Causes, Path};
use super::pod;
use super::rule::check;
use crate::resource::Resource;

/// Finds what is wrong with a new object.
pub(super) fn create(resource: &Resource, value: &Value, causes: &mut Causes) {
    let _ = (resource, value, causes);
}

/// Finds what is wrong with an update.
pub(super) fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value, causes: &mut Causes) {
    let _ = (resource, subresource, new, old, causes);
}
