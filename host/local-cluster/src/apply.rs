//! Server-side apply. Input: the live object, the applied one and who applies. Output: the merged object with its managed
//! fields, or a conflict. It must not know requests.

use jiff::Timestamp;
use serde_json::Value;

use crate::halt::Halt;
use crate::resource::Resource;

/// Who applies, and how.
pub(crate) struct Applier<'a> {
    pub(crate) manager: &'a str,
    pub(crate) force: bool,
    pub(crate) subresource: &'a str,
    pub(crate) now: Timestamp,
}

pub(crate) fn apply(
    _resource: &Resource,
    _live: Option<&Value>,
    applied: &Value,
    _applier: &Applier<'_>,
) -> Result<Value, Halt> {
    Ok(applied.clone())
}
