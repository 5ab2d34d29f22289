//! Strategic merge patches: maps merge, and lists merge by key where the schema says so, with the directives `$patch`,
//! `$retainKeys`, `$deleteFromPrimitiveList` and `$setElementOrder`. Input: an object, a patch and the schema. Output: the
//! patched object. It must not know what happens to it.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::words::{go, kind, unprocessable};
use crate::halt::{Halt, Status};
use crate::schema::{Place, Schema};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

type Fields = Map<String, Value>;

pub(crate) fn strategic(old: &Value, patch: &Value, schema: &Schema) -> Result<Value, Halt> {
    let Value::Object(patch) = patch else {
        let kind = kind(patch);
        let message = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
        return Err(Status::bad_request(message).into());
    };
    let old = old.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge_maps(old, patch.clone(), Some(schema.root()))?))
}

/// An error that the API server does not foresee: it answers with HTTP status 500 and no reason.
fn fault(message: impl Into<String>) -> Halt {
    Status { code: 500, reason: "", message: message.into(), details: None }.into()
}

fn bad(message: &str) -> Halt {
    Status::bad_request(message).into()
}

fn no_key(item: &Value, key: &str) -> Halt {
    fault(format!("map: {} does not contain declared merge key: {key}", go(item)))
}

/// What Go names the types of decoded JSON.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn into_list(value: Value) -> Result<Vec<Value>, Halt> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(fault(format!("expected a []interface {{}}, but received a {}", go_type(&other)))),
    }
}

/// How the lists at a place merge.
struct Strategy {
    merges: bool,
    replaces: bool,
    key: Option<String>,
}

fn strategy(place: Option<Place<'_>>) -> Strategy {
    let node = place.map(|place| place.node);
    let said = node.and_then(|node| node.patch_strategy.as_deref()).unwrap_or_default();
    let has = |name: &str| said.split(',').any(|strategy| strategy == name);
    Strategy {
        merges: has("merge"),
        replaces: has("replace"),
        key: node.and_then(|node| node.merge_key.as_deref()).map(ToOwned::to_owned),
    }
}

fn merge_maps(mut old: Fields, mut patch: Fields, place: Option<Place<'_>>) -> Result<Fields, Halt> {
    match patch.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default().to_owned()) {
        None => {}
        Some(directive) if directive == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(directive) if directive == "delete" => return Ok(Fields::new()),
        // Merging is what happens without a directive.
        Some(directive) => {
            return Err(fault(format!("unknown patch type: {directive} in map: {}", go(&Value::Object(patch)))));
        }
    }
    retain_keys(&mut old, &mut patch)?;
    order_lists(&mut old, &mut patch, place)?;
    for (name, value) in patch {
        let (name, deletes) = match name.strip_prefix(DELETE_FROM) {
            Some(rest) => {
                let name = rest.strip_prefix('/').ok_or_else(|| bad("invalid patch format of primitive list"))?;
                (name.to_owned(), true)
            }
            None => (name, false),
        };
        if value.is_null() {
            old.remove(&name);
            continue;
        }
        let below = place.and_then(|place| place.field(&name));
        let merged = match (old.remove(&name), value) {
            (None, _) if deletes => None,
            (Some(Value::Object(old)), Value::Object(patch)) => {
                if strategy(below).replaces {
                    Some(Value::Object(patch))
                } else {
                    Some(Value::Object(merge_maps(old, patch, below)?))
                }
            }
            (Some(Value::Array(old)), Value::Array(patch)) => {
                Some(Value::Array(merge_lists(old, patch, below, deletes, &name)?))
            }
            (Some(old), _) if deletes => Some(old),
            (_, value) => without_directives(value),
        };
        if let Some(merged) = merged {
            old.insert(name, merged);
        }
    }
    Ok(old)
}

/// `$retainKeys`: fields that the list does not name go.
fn retain_keys(old: &mut Fields, patch: &mut Fields) -> Result<(), Halt> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || bad("invalid patch format of retainKeys");
    let keys = keys.as_array().ok_or_else(malformed)?;
    let named = |name: &str| keys.iter().any(|key| key == name);
    let set = patch
        .iter()
        .filter(|(name, value)| !value.is_null() && !name.starts_with(DELETE_FROM) && !name.starts_with(ELEMENT_ORDER));
    if set.into_iter().any(|(name, _)| !named(name)) {
        return Err(malformed());
    }
    old.retain(|name, _| named(name));
    Ok(())
}

/// `$setElementOrder`: merges the lists that have an order, and puts them into it.
fn order_lists(old: &mut Fields, patch: &mut Fields, place: Option<Place<'_>>) -> Result<(), Halt> {
    let orders: Vec<String> = patch.keys().filter(|name| name.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in orders {
        let order = into_list(patch.remove(&directive).unwrap_or_default())?;
        let name = directive.strip_prefix(ELEMENT_ORDER).and_then(|rest| rest.strip_prefix('/'));
        let name = name.ok_or_else(|| bad("invalid patch format of setElementOrder list"))?.to_owned();
        let below = place.and_then(|place| place.field(&name));
        let key = strategy(below).key;
        let live = old.remove(&name).map(into_list).transpose()?;
        let patched = patch.remove(&name).map(into_list).transpose()?;
        check_order(patched.as_deref().unwrap_or_default(), &order, key.as_deref())?;
        let live_order = live.clone().unwrap_or_default();
        let merged = match (live, patched) {
            (Some(live), None) => live,
            (None, Some(patched)) => match without_directives(Value::Array(patched)) {
                Some(Value::Array(items)) => items,
                _ => continue,
            },
            (Some(live), Some(patched)) => {
                if strategy(below).merges {
                    merge_lists(live, patched, below, false, &name)?
                } else {
                    patched
                }
            }
            (None, None) => continue,
        };
        old.insert(name, Value::Array(arrange(merged, &order, &live_order, key.as_deref())?));
    }
    Ok(())
}

/// What identifies an item: the value of its merge key, or a scalar itself.
fn identity<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, Halt> {
    match (key, item) {
        (None, _) => Ok(item),
        (Some(key), Value::Object(fields)) => fields.get(key).ok_or_else(|| no_key(item, key)),
        (Some(_), other) => {
            Err(fault(format!("expected a map[string]interface {{}}, but received a {}", go_type(other))))
        }
    }
}

/// The patch's items must come in the order that the patch sets.
fn check_order(items: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Halt> {
    if items.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut places = order.iter();
    for item in items.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let wanted = identity(item, key)?;
        let mut found = false;
        for place in places.by_ref() {
            if identity(place, key)? == wanted {
                found = true;
                break;
            }
        }
        if !found {
            let [items, order] = [items, order].map(|list| go(&Value::Array(list.to_vec())));
            return Err(fault(format!(
                "The order in patch list:\n{items}\n doesn't match {ELEMENT_ORDER} list:\n{order}\n"
            )));
        }
    }
    Ok(())
}

fn merge_lists(
    old: Vec<Value>,
    patch: Vec<Value>,
    place: Option<Place<'_>>,
    deletes: bool,
    name: &str,
) -> Result<Vec<Value>, Halt> {
    let Strategy { merges, key, .. } = strategy(place);
    if !merges && !deletes {
        return Ok(patch);
    }
    if old.is_empty() && patch.is_empty() {
        return Ok(old);
    }
    let mut all = old.iter().chain(&patch);
    if all.clone().any(Value::is_array) {
        return Err(unprocessable().into());
    }
    if !all.clone().any(Value::is_object) {
        if deletes {
            return Ok(old.into_iter().filter(|item| !patch.contains(item)).collect());
        }
        let mut merged: Vec<Value> = Vec::new();
        for item in all {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return arrange(merged, &patch, &old, None);
    }
    if !all.all(Value::is_object) {
        let types: Vec<_> = old.iter().chain(&patch).map(go).collect();
        return Err(fault(format!("list element types are not identical: [{}]", types.join(" "))));
    }
    let key = key.ok_or_else(|| fault(format!("cannot merge lists without merge key for {name}")))?;
    let (base, patch) = directives(&old, patch, &key)?;
    let mut merged = base.clone();
    for item in &patch {
        let wanted = identity(item, Some(&key))?;
        match merged.iter_mut().find(|known| known.get(&key) == Some(wanted)) {
            Some(known) => {
                let fields = [known.take(), item.clone()].map(|value| match value {
                    Value::Object(fields) => fields,
                    _ => Fields::new(),
                });
                let [known_fields, item_fields] = fields;
                let items = place.and_then(Place::items);
                *known = Value::Object(merge_maps(known_fields, item_fields, items)?);
            }
            None => merged.push(item.clone()),
        }
    }
    arrange(merged, &patch, &base, Some(&key))
}

/// Items with a directive: one to delete takes away its live item, one to replace takes away them all. Gives the live items
/// that stay and the items to merge.
fn directives(old: &[Value], patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), Halt> {
    let mut old = old.to_vec();
    let mut plain = Vec::new();
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let gone = item.get(key).ok_or_else(|| no_key(&item, key))?;
                old.retain(|known| known.get(key) != Some(gone));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(fault("merging lists cannot yet be specified in the patch")),
            _ => return Err(fault(format!("unknown patch type: {} in map: {}", go(directive), go(&item)))),
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (old, plain) })
}

/// Puts merged items into the patch's order, and those that only the live list has between them in the live order.
fn arrange(merged: Vec<Value>, order: &[Value], live_order: &[Value], key: Option<&str>) -> Result<Vec<Value>, Halt> {
    // A list of objects may lie in a list without a merge key only until here.
    let places = |list: &[Value]| -> Result<HashMap<String, usize>, Halt> {
        let mut places = HashMap::new();
        for (at, item) in list.iter().enumerate() {
            places.entry(identity(item, key)?.to_string()).or_insert(at);
        }
        Ok(places)
    };
    let (ordered, live) = (places(order)?, places(live_order)?);
    let mut from_patch = Vec::new();
    let mut from_server = Vec::new();
    for item in merged {
        let name = identity(&item, key)?.to_string();
        let at = live.get(&name).copied();
        match ordered.get(&name) {
            Some(place) => from_patch.push((*place, at, item)),
            None => from_server.push((at.unwrap_or(usize::MAX), at, item)),
        }
    }
    from_patch.sort_by_key(|(place, ..)| *place);
    from_server.sort_by_key(|(place, ..)| *place);
    let mut server = from_server.into_iter().peekable();
    let mut all = Vec::new();
    for (_, at, item) in from_patch {
        while let Some((_, _, before)) =
            server.next_if(|(_, mine, _)| matches!((mine, at), (Some(l), Some(r)) if *l < r))
        {
            all.push(before);
        }
        all.push(item);
    }
    all.extend(server.map(|(.., item)| item));
    Ok(all)
}

/// A value that is there for the first time: without what would only be removed.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Some(kept.filter_map(|(name, value)| Some((name, without_directives(value)?))).collect())
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        scalar => Some(scalar),
    }
}
