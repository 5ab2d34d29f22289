//! Admission: what changes or refuses an object between a request and the store. Input: the request's attributes and its
//! objects. Output: the changed object, or a refusal. It must not know how objects are stored.

use serde_json::Value;

use crate::Cluster;
use crate::halt::Halt;
use crate::rest::{Attributes, Context};

/// Lets plugins and webhooks change the object of a create or an update.
pub(crate) fn mutate(
    _cluster: &mut Cluster,
    _context: &Context<'_>,
    _attributes: &Attributes,
    _object: &mut Value,
    _old: Option<&Value>,
) -> Result<(), Halt> {
    Ok(())
}

/// Lets plugins, policies and webhooks refuse a create, an update (both objects) or a deletion (the old object alone).
pub(crate) fn validate(
    _cluster: &mut Cluster,
    _context: &Context<'_>,
    _attributes: &Attributes,
    _object: Option<&Value>,
    _old: Option<&Value>,
) -> Result<(), Halt> {
    Ok(())
}

/// The objects that admission needs from the start, such as the system's priority classes.
pub(crate) fn bootstrap() -> Vec<Value> {
    Vec::new()
}
