//! Patches: JSON, merge and strategic merge. Input: an object and a patch. Output: the patched object. It must not know
//! what happens to it.

use serde_json::Value;

use crate::halt::{Halt, Status};
use crate::schema::Schema;

/// RFC 6902.
pub(crate) fn json(old: &Value, patch: &[u8]) -> Result<Value, Halt> {
    let patch: json_patch::Patch =
        serde_json::from_slice(patch).map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    let mut new = old.clone();
    json_patch::patch(&mut new, &patch).map_err(|error| Status::bad_request(error.to_string()))?;
    Ok(new)
}

/// RFC 7386.
pub(crate) fn merge(old: &Value, patch: &Value) -> Result<Value, Halt> {
    let mut new = old.clone();
    json_patch::merge(&mut new, patch);
    Ok(new)
}

/// A strategic merge patch: lists merge by key, with `$patch`, `$retainKeys`, `$deleteFromPrimitiveList` and
/// `$setElementOrder`.
pub(crate) fn strategic(_old: &Value, _patch: &Value, _schema: &Schema) -> Result<Value, Halt> {
    Err(Status::unsupported_media_type("strategic merge patches").into())
}
