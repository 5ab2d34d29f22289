//! Whether an apply would change nothing (X5): compares with the last apply and with the field set of our manager.

use std::collections::BTreeMap;

use serde_json::Value;

use super::prepared::Body;
use crate::generated::Wanted;
use crate::object::{Object, ObjectRef, ResourceVersion};
use crate::own_fields;
use crate::well_known::GENERATED_ANNOTATION;

/// The fingerprint of the last apply of each object, and the version that it made. A value that the API server rewrites
/// (the quantity "0.5" becomes "500m") never equals the wanted one, but is applied as long as the object has this
/// version.
pub type Applied = BTreeMap<ObjectRef, (u128, ResourceVersion)>;

/// Whether an apply would change nothing: the object has the version that the same apply made, or the fields that are
/// recorded as ours have the wanted values.
pub(super) fn is_applied(
    live: &Object,
    body: &Body,
    generated: &[Wanted],
    manager: &str,
    applied: &mut Applied,
    parsed_bytes: &mut usize,
) -> bool {
    let target = live.reference();
    let this = (body.fingerprint, live.resource_version);
    if applied.get(&target) == Some(&this) {
        return true;
    }
    let own = live.own_fields.iter().find(|own| own.applied && own.subresource.is_empty() && &*own.manager == manager);
    *parsed_bytes += own.map_or(0, |own| own.fields.len()) + live.json().len() + body.text.len();
    let fields = own.and_then(|own| serde_json::from_str::<Value>(&own.fields).ok());
    let object = serde_json::from_str::<Value>(live.json()).ok();
    let wanted = serde_json::from_str::<Value>(&body.text).ok();
    let (Some(fields), Some(object), Some(mut wanted)) = (fields, object, wanted) else { return false };
    if !generated.is_empty() {
        // The live object has these values; what is compared is whether they and no others are recorded as ours.
        for key in generated.iter().flat_map(Wanted::keys) {
            wanted["data"][key] = object["data"][key].clone();
        }
        wanted["metadata"]["annotations"][GENERATED_ANNOTATION] =
            object["metadata"]["annotations"][GENERATED_ANNOTATION].clone();
    }
    let is_applied = own_fields::is_applied(&wanted, &object, &fields);
    if is_applied {
        applied.insert(target, this);
    }
    is_applied
}
