//! Merging and removing by fields. Input: objects with the place of their schema. Output: the merged object. It must not know
//! managers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use crate::managed_fields::fields::Fields;
use crate::managed_fields::typed::{Shape, item_steps, shape};
use crate::schema::Place;

/// The live value with what is applied: fields and items that are applied win, all others stay.
pub(super) fn merge(live: &Value, applied: &Value, place: Option<Place<'_>>) -> Value {
    match (live, applied) {
        // An applied null or empty value says that the field is there, not that it has nothing in it.
        (Value::Object(fields), Value::Null) if !fields.is_empty() => match shape(live, place) {
            Shape::Leaf => Value::Null,
            _ => live.clone(),
        },
        (Value::Array(items), Value::Null) if !items.is_empty() => match shape(live, place) {
            Shape::Leaf => Value::Null,
            _ => live.clone(),
        },
        (Value::Object(old), Value::Object(new)) if matches!(shape(live, place), Shape::Map) => {
            Value::Object(fields(old, new, place))
        }
        (Value::Array(old), Value::Array(new)) => match shape(live, place) {
            Shape::List(list) => {
                let steps = item_steps(list, place, old).zip(item_steps(list, place, new));
                let Some((old_steps, new_steps)) = steps else { return applied.clone() };
                let old = old_steps.into_iter().zip(old).collect();
                let new = new_steps.into_iter().zip(new).collect();
                Value::Array(items(old, new, place.and_then(Place::items)))
            }
            _ => applied.clone(),
        },
        _ => applied.clone(),
    }
}

fn fields(old: &Map<String, Value>, new: &Map<String, Value>, place: Option<Place<'_>>) -> Map<String, Value> {
    let mut all = old.clone();
    for (name, value) in new {
        let place = place.and_then(|place| place.field(name));
        let merged = old.get(name).map_or_else(|| value.clone(), |old| merge(old, value, place));
        all.insert(name.clone(), merged);
    }
    all
}

/// Applied items come in their own order, and live ones keep their places between them as far as that allows.
fn items(
    mut old: VecDeque<(String, &Value)>,
    mut new: VecDeque<(String, &Value)>,
    place: Option<Place<'_>>,
) -> Vec<Value> {
    let mut live: BTreeMap<String, Option<&Value>> = BTreeMap::new();
    for (step, item) in &old {
        // Items that are there twice are not merged with the applied one.
        live.entry(step.clone()).and_modify(|known| *known = None).or_insert(Some(item));
    }
    let applied: BTreeSet<String> = new.iter().map(|(step, _)| step.clone()).collect();
    let mut shared: VecDeque<String> =
        new.iter().map(|(step, _)| step.clone()).filter(|step| live.contains_key(step)).collect();
    let mut next_shared = shared.pop_front();
    let mut done: BTreeSet<String> = BTreeSet::new();
    let mut all = Vec::new();
    let merged = |step: &str, item: &Value| match live.get(step) {
        Some(Some(old)) => merge(old, item, place),
        _ => item.clone(),
    };
    while !(old.is_empty() && new.is_empty()) {
        if let (Some((left, _)), Some((right, item))) = (old.front(), new.front()) {
            if left == right {
                all.push(merged(right, item));
                done.insert(right.clone());
                old.pop_front();
                new.pop_front();
                next_shared = shared.pop_front();
                continue;
            }
            if applied.contains(left) && next_shared.as_ref().is_some_and(|next| next != left) {
                old.pop_front();
                continue;
            }
        }
        if let Some((left, item)) = old.front() {
            if !applied.contains(left) {
                all.push((*item).clone());
                old.pop_front();
                continue;
            }
            if done.contains(left) {
                old.pop_front();
            }
        }
        if let Some((right, item)) = new.pop_front() {
            all.push(merged(&right, item));
            if next_shared.as_ref() == Some(&right) {
                next_shared = shared.pop_front();
            }
            done.insert(right);
        }
    }
    all
}

/// Removes fields and items. What is left empty by that is removed, too.
pub(super) fn remove(value: &mut Value, place: Option<Place<'_>>, fields: &Fields) {
    let keep = |value: &mut Value, place: Option<Place<'_>>, below: Option<&Fields>| match below {
        None => true,
        Some(below) if below.member => false,
        Some(below) => {
            let was_empty = is_empty(value);
            remove(value, place, below);
            was_empty || !is_empty(value)
        }
    };
    let shape = shape(value, place);
    match (shape, value) {
        (Shape::Map, Value::Object(map)) => map.retain(|name, value| {
            keep(value, place.and_then(|place| place.field(name)), fields.below(&format!("f:{name}")))
        }),
        (Shape::List(list), Value::Array(items)) => {
            let Some(steps) = item_steps(list, place, items) else { return };
            let mut steps = steps.iter();
            items.retain_mut(|item| {
                let step = steps.next().expect("each item has a step");
                keep(item, place.and_then(Place::items), fields.below(step))
            });
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
