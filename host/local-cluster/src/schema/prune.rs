//! Drops the fields that a schema does not know. Input: an object. Output: the same object and the paths of what went. It
//! must not know what is done about them.

use serde_json::Value;

use super::node::{Place, Schema};
use super::path::Path;

impl Schema {
    /// Drops fields that the schema does not know, and gives their paths, such as `spec.template.foo`.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        walk(Some(self.root()), object, &Path::Root, &mut dropped);
        if !self.published {
            dropped.sort();
        }
        dropped
    }
}

fn walk(place: Option<Place<'_>>, value: &mut Value, path: &Path<'_>, dropped: &mut Vec<String>) {
    let preserves = place.is_some_and(|place| place.node.preserve_unknown_fields);
    match value {
        Value::Object(fields) => {
            let known = |name: &str| {
                place.is_some_and(|place| {
                    place.node.properties.contains_key(name)
                        || place.node.additional.is_some()
                        || place.node.embedded_resource && is_of_type(name)
                })
            };
            if !preserves && !fields.keys().all(|name| known(name)) {
                fields.retain(|name, _| {
                    let stays = known(name);
                    if !stays {
                        dropped.push(path.field(name).to_string());
                    }
                    stays
                });
            }
            for (name, value) in fields.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()) {
                if let Some(below) = place.and_then(|place| place.field(name)) {
                    walk(Some(below), value, &path.field(name), dropped);
                }
            }
        }
        Value::Array(items) => {
            let below = place.and_then(Place::items);
            if below.is_none() && preserves {
                return;
            }
            for (at, item) in items.iter_mut().enumerate() {
                walk(below, item, &path.index(at), dropped);
            }
        }
        _ => {}
    }
}

/// The fields that every resource has.
fn is_of_type(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}
