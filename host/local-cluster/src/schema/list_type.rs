//! Sets and maps that are lists: their items are there once. Input: an object. Output: causes. It must not know how lists
//! merge.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value};

use super::cause;
use super::node::{ListType, Place, Schema};
use super::path::Path;
use crate::halt::Cause;

impl Schema {
    /// Items that are there twice. What was wrong before stays allowed.
    pub(super) fn duplicates(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut found = Vec::new();
        walk(self.root(), object, &Path::Root, &mut found);
        if let (false, Some(old)) = (found.is_empty(), old) {
            let mut before = Vec::new();
            walk(self.root(), old, &Path::Root, &mut before);
            if !before.is_empty() {
                found.clear();
            }
        }
        found
    }
}

fn walk(place: Place<'_>, value: &Value, path: &Path<'_>, found: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| value.is_object() || value.is_array()) {
                // What all objects have is decoded, not looked at here.
                if path.is_root() && name == "metadata" {
                    continue;
                }
                let Some(below) = place.field(name) else { continue };
                let is_property = place.node.properties.contains_key(name.as_str());
                let path = if is_property { path.field(name) } else { path.key(name) };
                walk(below, value, &path, found);
            }
        }
        Value::Array(items) => {
            match &place.node.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    repeated(items.iter(), |at, item| found.push(cause::duplicate(path.index(at), item)));
                }
                ListType::Map(keys) => map(keys, items, path, found),
            }
            if let Some(below) = place.items() {
                for (at, item) in items.iter().enumerate() {
                    walk(below, item, &path.index(at), found);
                }
            }
        }
        _ => {}
    }
}

/// Tells of every value that is there a second time, once.
fn repeated<'v>(items: impl Iterator<Item = &'v Value>, mut tell: impl FnMut(usize, &Value)) {
    let mut seen: BTreeMap<String, bool> = BTreeMap::new();
    for (at, item) in items.enumerate() {
        match seen.entry(item.to_string()) {
            Entry::Vacant(free) => drop(free.insert(false)),
            Entry::Occupied(mut known) => {
                if !known.insert(true) {
                    tell(at, item);
                }
            }
        }
    }
}

fn map(keys: &[std::sync::Arc<str>], items: &[Value], path: &Path<'_>, found: &mut Vec<Cause>) {
    if let Some(at) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        found.push(cause::invalid(path.index(at), &items[at], detail));
        return;
    }
    let key = |item: &Value| {
        let parts = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
        Value::Object(parts.collect::<Map<String, Value>>())
    };
    let of_items: Vec<Value> = items.iter().map(key).collect();
    repeated(of_items.iter(), |at, key| found.push(cause::duplicate(path.index(at), key)));
}
