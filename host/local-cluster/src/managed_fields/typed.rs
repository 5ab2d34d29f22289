//! What fields an object has, and which differ between two objects. Input: objects with the place of their schema. Output:
//! sets of fields. It must not know managers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{Fields, field_step};
use crate::schema::{ListType, Place};

/// How deep the empty form of a kind reaches: its structs that are no pointers nest at most this deep.
const MAX_EMPTY_DEPTH: usize = 8;

/// What differs between two objects.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) removed: Fields,
    pub(crate) modified: Fields,
    pub(crate) added: Fields,
}

impl Comparison {
    pub(crate) fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Without what a write there does not keep.
    pub(crate) fn outside(self, reset: &Fields) -> Self {
        if reset.is_empty() {
            return self;
        }
        let [removed, modified, added] = [self.removed, self.modified, self.added].map(|fields| fields.outside(reset));
        Self { removed, modified, added }
    }
}

/// How values at a place are owned.
pub(crate) enum Shape<'a> {
    /// As a whole.
    Leaf,
    /// Field by field.
    Map,
    /// Item by item.
    List(&'a ListType),
}

/// How a value at a place is owned. What no schema describes is owned field by field, with lists as wholes.
pub(crate) fn shape<'a>(value: &Value, place: Option<Place<'a>>) -> Shape<'a> {
    match (value, place.map(|place| place.node)) {
        (Value::Object(_), Some(node)) if node.atomic_map => Shape::Leaf,
        (Value::Object(_), _) => Shape::Map,
        (Value::Array(_), Some(node)) if node.list_type != ListType::Atomic => Shape::List(&node.list_type),
        _ => Shape::Leaf,
    }
}

/// The shape of two values at one place: null and absence take the other's.
fn common<'a>(old: &Value, new: &Value, place: Option<Place<'a>>) -> Shape<'a> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match (old, new) {
        _ if is_empty(old) && is_empty(new) => Shape::Leaf,
        (Value::Null, value) | (value, Value::Null) => shape(value, place),
        (Value::Object(_), Value::Object(_)) | (Value::Array(_), Value::Array(_)) => shape(new, place),
        _ => Shape::Leaf,
    }
}

/// The step of a list's item; an error says why it has none.
pub(crate) fn item_step(list: &ListType, place: Option<Place<'_>>, item: &Value) -> Result<String, String> {
    let ListType::Map(names) = list else {
        return match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(format!("v:{scalar}")),
        };
    };
    match item {
        Value::Object(_) => {}
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    }
    let mut keys: BTreeMap<&str, &Value> = BTreeMap::new();
    for name in names {
        let default = || place.and_then(|place| place.field(name)).and_then(|place| place.node.default.as_ref());
        if let Some(value) = item.get(&**name).or_else(default) {
            keys.insert(name, value);
        }
    }
    if keys.is_empty() {
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    Ok(format!("k:{}", serde_json::to_string(&keys).expect("JSON values are written as JSON")))
}

/// The steps of a list's items; none if one of them has none, and then the list is owned as a whole.
pub(crate) fn item_steps(list: &ListType, place: Option<Place<'_>>, items: &[Value]) -> Option<Vec<String>> {
    let items_place = place.and_then(Place::items);
    items.iter().map(|item| item_step(list, items_place, item).ok()).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// All fields of an object that an apply of it owns.
pub(crate) fn field_set(object: &Value, place: Place<'_>) -> Fields {
    let mut fields = collect(object, Some(place));
    // The root is nothing to own.
    fields.member = false;
    fields
}

fn collect(value: &Value, place: Option<Place<'_>>) -> Fields {
    let mut fields = Fields::default();
    match (shape(value, place), value) {
        (Shape::Map, Value::Object(map)) => {
            for (name, value) in map {
                let mut below = collect(value, place.and_then(|place| place.field(name)));
                let declared = place.is_some_and(|place| place.node.properties.contains_key(name.as_str()));
                below.member |= !declared || value.as_object().is_some_and(Map::is_empty);
                fields.put(|| field_step(name), below);
            }
        }
        (Shape::List(list), Value::Array(items)) => match item_steps(list, place, items) {
            Some(steps) => {
                let mut times: BTreeMap<&String, usize> = BTreeMap::new();
                steps.iter().for_each(|step| *times.entry(step).or_default() += 1);
                for (step, item) in steps.iter().zip(items) {
                    // Items that are there twice are owned as wholes.
                    let once = times.get(step) == Some(&1);
                    let mut below = if once { collect(item, place.and_then(Place::items)) } else { Fields::default() };
                    below.member = true;
                    fields.put(|| step.as_str().into(), below);
                }
            }
            None => fields.member = true,
        },
        _ => fields.member = true,
    }
    fields
}

/// Which fields differ.
pub(crate) fn compare(old: &Value, new: &Value, place: Place<'_>) -> Comparison {
    let mut found = Comparison::at(Some(old), Some(new), Some(place));
    // The root is nothing to own.
    found.each().into_iter().for_each(|fields| fields.member = false);
    found
}

impl Comparison {
    fn each(&mut self) -> [&mut Fields; 3] {
        [&mut self.removed, &mut self.modified, &mut self.added]
    }

    /// Puts what differs at a step and below it.
    fn put(&mut self, step: impl Fn() -> Box<str>, mut below: Self) {
        for (mine, theirs) in self.each().into_iter().zip(below.each()) {
            mine.put(&step, std::mem::take(theirs));
        }
    }

    /// What differs at a place and below it.
    fn at(old: Option<&Value>, new: Option<&Value>, place: Option<Place<'_>>) -> Self {
        let (before, after) = (old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null));
        let mut found = Self::default();
        let walked = match common(before, after, place) {
            Shape::Leaf => false,
            // What is equal needs no steps.
            _ if before == after => true,
            Shape::Map => {
                found.fields(before, after, place);
                true
            }
            Shape::List(list) => found.items(list, array(before), array(after), place).is_some(),
        };
        match (old, new) {
            (None, _) => found.added.member = true,
            (_, None) => found.removed.member = true,
            _ => found.modified.member = !walked && old != new,
        }
        found
    }

    fn fields(&mut self, old: &Value, new: &Value, place: Option<Place<'_>>) {
        let below = |name: &str| place.and_then(|place| place.field(name));
        for (name, value) in old.as_object().into_iter().flatten() {
            self.put(|| field_step(name), Self::at(Some(value), new.get(name), below(name)));
        }
        for (name, value) in new.as_object().into_iter().flatten() {
            if old.get(name).is_none() {
                self.put(|| field_step(name), Self::at(None, Some(value), below(name)));
            }
        }
    }

    fn items(&mut self, list: &ListType, old: &[Value], new: &[Value], place: Option<Place<'_>>) -> Option<()> {
        let mut all: BTreeMap<String, [Vec<&Value>; 2]> = BTreeMap::new();
        for (side, items) in [old, new].into_iter().enumerate() {
            for (step, item) in item_steps(list, place, items)?.into_iter().zip(items) {
                all.entry(step).or_default()[side].push(item);
            }
        }
        let below = place.and_then(Place::items);
        for (step, [old, new]) in &all {
            let mut found = Self::default();
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => found = Self::at(old.first().copied(), new.first().copied(), below),
                ([_, _, ..], [_, _, ..]) => found.modified.member = old != new,
                // Items that were there twice were owned as wholes.
                ([_, _, ..], _) => {
                    if let [item] = new.as_slice() {
                        found = Self::at(None, Some(item), below);
                    }
                    found.removed.member = true;
                }
                _ => {
                    if let [item] = old.as_slice() {
                        found = Self::at(Some(item), None, below);
                    }
                    found.added.member = true;
                }
            }
            self.put(|| step.as_str().into(), found);
        }
        Some(())
    }
}

/// The set with the declared fields above its members, which are members only where they are set as wholes.
pub(crate) fn with_named(fields: &Fields, place: Option<Place<'_>>) -> Fields {
    fields.map(|step, below| {
        let name = step.strip_prefix("f:");
        let next = match name {
            Some(name) => place.and_then(|place| place.field(name)),
            None if step.starts_with("k:") => place.and_then(Place::items),
            None => None,
        };
        let declared = name.is_some_and(|name| place.is_some_and(|place| place.node.properties.contains_key(name)));
        let mut all = with_named(below, next);
        all.member |= declared;
        all
    })
}

/// A built-in object before its creation: Go's structs that are no pointers are there, and lists without `omitempty` are
/// null. The published schema says so with the defaults of such fields.
pub(crate) fn empty(place: Place<'_>, depth: usize) -> Value {
    let mut object = Map::new();
    for (name, below) in place.node.properties.keys().filter_map(|name| Some((name, place.field(name)?))) {
        match &below.node.default {
            Some(Value::Object(fields)) if fields.is_empty() && depth < MAX_EMPTY_DEPTH => {
                object.insert(name.to_string(), empty(below, depth + 1));
            }
            Some(zero) => drop(object.insert(name.to_string(), zero.clone())),
            None if place.node.required.contains(name) => drop(object.insert(name.to_string(), Value::Null)),
            None => {}
        }
    }
    object.extend(place.nulls().map(|name| (name.to_owned(), Value::Null)));
    Value::Object(object)
}
