//! `namespaces` and `labels` of a declaration in `reads` or `owns`: the part of a kind that is watched, cached and seen.

use serde_json::Value;

use super::place::refuse;
use crate::object::is_object_name;
use crate::refusal::Refusal;
use crate::scope::{MAX_LABELS_BYTES, MAX_NAMESPACES, Scope};
use crate::selector::Selector;

/// `"namespaces": ["a", "b"]` at a place. An empty list would read nothing, or everything by mistake.
pub(super) fn namespaces(place: &str, raw: &[Value]) -> Result<Scope, Refusal> {
    let place = format!("{place}.namespaces");
    if raw.is_empty() {
        return refuse(format!("{place}: there is none; leave it out for all namespaces"));
    }
    if raw.len() > MAX_NAMESPACES {
        let count = raw.len();
        return refuse(format!("{place}: there are {count}, the most is {MAX_NAMESPACES}; leave it out for all"));
    }
    let mut scope = Scope::default();
    for name in raw {
        // A namespace's name is a DNS label, which is an object's name without dots.
        let is_name = |name: &&str| is_object_name(name) && name.len() <= 63 && !name.contains('.');
        let Some(name) = name.as_str().filter(is_name) else {
            return refuse(format!("{place}: {name} is not the name of a namespace"));
        };
        if !scope.namespaces.insert(name.into()) {
            return refuse(format!("{place}: {name:?} is named twice"));
        }
    }
    Ok(scope)
}

/// `"labels": "app=web"` at a place.
pub(super) fn labels(place: &str, raw: &str) -> Result<Selector, Refusal> {
    let place = format!("{place}.labels");
    if raw.len() > MAX_LABELS_BYTES {
        return refuse(format!("{place}: it has {} bytes, the most is {MAX_LABELS_BYTES}", raw.len()));
    }
    match Selector::parse(raw) {
        Ok(labels) if labels.is_everything() => refuse(format!("{place}: it selects everything; leave it out")),
        Ok(labels) => Ok(labels),
        Err(error) => refuse(format!("{place}: {error}")),
    }
}
