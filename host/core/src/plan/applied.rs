//! Whether an apply would change nothing (X5): by what was applied last, or by the field set that the API server records.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::object::{Object, ObjectRef, ResourceVersion};
use crate::own_fields::is_applied;

/// The last apply of each child, as it was sent, and the version that it led to. A value that the API server rewrites (a
/// quantity of "0.5" becomes "500m") never looks applied; as long as nobody has touched the object since, it is.
pub type Applied = BTreeMap<ObjectRef, (Arc<str>, ResourceVersion)>;

/// Whether an apply would change nothing of the live object: nobody has touched what it led to, or what stands in the fields
/// that are recorded as ours is what is wanted.
pub(super) fn stands(live: &Object, body: &Arc<str>, wanted: &Value, manager: &str, applied: &Applied) -> bool {
    let last = applied.get(&live.reference());
    if last.is_some_and(|(sent, version)| sent == body && *version == live.resource_version) {
        return true;
    }
    let own = live.own_fields.iter().find(|own| own.applied && own.subresource.is_empty() && &*own.manager == manager);
    let fields = own.and_then(|own| serde_json::from_str::<Value>(&own.fields).ok());
    let object = serde_json::from_str::<Value>(live.json()).ok();
    matches!((fields, object), (Some(fields), Some(object)) if is_applied(wanted, &object, &fields))
}
