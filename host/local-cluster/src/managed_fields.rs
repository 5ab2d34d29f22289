//! Who owns which fields. Input: an object before and after a write, and who wrote. Output: `metadata.managedFields`. It must
//! not know requests.

pub(crate) mod fields;
pub(crate) mod reset;
pub(crate) mod typed;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::fields::Fields;
use self::typed::Comparison;
use crate::resource::Resource;
use crate::time;

/// How many managers that updated an object have an entry of their own; the API server's bound.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager of what the oldest updates own beyond that bound.
const ANCIENT: &str = "ancient-changes";

/// What nobody owns.
static STRIPPED: LazyLock<Fields> = LazyLock::new(|| {
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let below = Fields::of(&metadata.each_ref().map(|name| ["metadata", name]).each_ref().map(<[&str; 2]>::as_slice));
    below.union(&Fields::of(&[&["apiVersion"], &["kind"], &["metadata"]]))
});

/// How a manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// What makes one entry of managed fields another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    /// Empty for applies: a manager that applies owns in one version at a time.
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owned {
    pub(crate) api_version: String,
    pub(crate) time: Option<String>,
    pub(crate) fields: Fields,
}

/// The entries of an object.
pub(crate) type Managed = BTreeMap<Manager, Owned>;

impl Manager {
    pub(crate) fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let name = if name.is_empty() { "unknown" } else { name };
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self {
            name: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

/// Reads `metadata.managedFields`; none if an entry is malformed.
pub(crate) fn decode(entries: &Value) -> Option<Managed> {
    let mut managed = Managed::new();
    for entry in entries.as_array().into_iter().flatten() {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
            return None;
        }
        let fields = entry.get("fieldsV1").map_or_else(|| Some(Fields::default()), Fields::from_json)?;
        let manager = Manager::new(text("manager"), operation, text("apiVersion"), text("subresource"));
        let time = entry["time"].as_str().map(ToOwned::to_owned);
        managed.insert(manager, Owned { api_version: text("apiVersion").to_owned(), time, fields });
    }
    Some(managed)
}

/// Writes the entries: applies first, then by time, then by manager.
pub(crate) fn encode(managed: &Managed) -> Value {
    let mut entries: Vec<_> = managed.iter().map(|(manager, owned)| (seconds(owned), manager, owned)).collect();
    entries.sort_by_key(|(seconds, manager, owned)| {
        (manager.operation, *seconds, &manager.name, &owned.api_version, &manager.subresource)
    });
    let entry = |(_, manager, owned): (i64, &Manager, &Owned)| {
        let operation = if manager.operation == Operation::Apply { "Apply" } else { "Update" };
        let mut entry = json!({
            "manager": manager.name, "operation": operation, "apiVersion": owned.api_version,
            "fieldsType": "FieldsV1", "fieldsV1": owned.fields.to_json(),
        });
        if let Some(time) = &owned.time {
            entry["time"] = time.clone().into();
        }
        if !manager.subresource.is_empty() {
            entry["subresource"] = manager.subresource.clone().into();
        }
        entry
    };
    entries.into_iter().map(entry).collect()
}

fn seconds(owned: &Owned) -> i64 {
    let time = owned.time.as_ref().and_then(|time| time.parse::<Timestamp>().ok());
    time.map_or(0, Timestamp::as_second)
}

/// Sets or takes away the entries of an object.
pub(crate) fn set(object: &mut Value, managed: &Managed) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if managed.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), encode(managed));
    }
}

/// Takes what nobody owns out of an entry, and an empty entry away.
pub(crate) fn strip(managed: &mut Managed, manager: &Manager) {
    if let Some(owned) = managed.get_mut(manager) {
        owned.fields.subtract(&STRIPPED);
        if owned.fields.is_empty() {
            managed.remove(manager);
        }
    }
}

/// Takes changed and removed fields from all who own them, but from one.
pub(crate) fn take(managed: &mut Managed, comparison: &Comparison, but: Option<&Manager>) {
    managed.retain(|manager, owned| {
        if Some(manager) != but {
            for changed in [&comparison.modified, &comparison.added, &comparison.removed] {
                owned.fields.subtract(changed);
            }
        }
        !owned.fields.is_empty()
    });
}

/// Both an empty list and a list of one empty entry clear the entries of an object. Says the second where a client says the
/// first, which the defaults take for unset.
pub(crate) fn keep_clearing(object: &mut Value) {
    let entries = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields"));
    if let Some(entries) = entries.and_then(Value::as_array_mut).filter(|entries| entries.is_empty()) {
        entries.push(json!({}));
    }
}

/// Records that a manager changed an object from `old` to `new`.
pub(crate) fn update(
    resource: &Resource,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    operation: Operation,
    subresource: &str,
    now: Timestamp,
) {
    let sent = new.get_mut("metadata").and_then(Value::as_object_mut);
    let sent = sent.and_then(|metadata| metadata.remove("managedFields")).filter(|_| subresource.is_empty());
    let clears = sent.as_ref() == Some(&json!([{}]));
    if clears && old.is_some() {
        return;
    }
    let kept = old.map(|old| &old["metadata"]["managedFields"]);
    let schema = resource.schema();
    let before = old.unwrap_or_else(|| before_creation(resource));
    let comparison = typed::compare(before, new, schema.root()).outside(&reset::fields(resource, subresource));
    let sent = sent.filter(|sent| Some(sent) != kept);
    if let (None, Some(kept)) = (&sent, kept)
        && comparison.is_same()
    {
        if let (false, Some(metadata)) = (kept.is_null(), new["metadata"].as_object_mut()) {
            metadata.insert("managedFields".to_owned(), kept.clone());
        }
        return;
    }
    let sent = sent.as_ref().and_then(decode).filter(|managed| !managed.is_empty());
    let mut managed = sent.or_else(|| decode(kept?)).unwrap_or_default();
    // Who owns an object without entries is not tracked before its first apply.
    if managed.is_empty() && old.is_some() {
        return;
    }
    let manager = Manager::new(manager, operation, &resource.api_version(), subresource);
    record(&mut managed, &comparison, manager, &resource.api_version(), now);
    set(new, &managed);
}

/// An object before its creation, as far as ownership is concerned.
pub(crate) fn before_creation(resource: &Resource) -> &Value {
    resource.before_creation.get_or_init(|| match &resource.custom {
        Some(_) => json!({"apiVersion": resource.api_version(), "kind": &*resource.kind}),
        None => typed::empty(resource.schema().root(), 0),
    })
}

/// Gives a manager what changed, and takes it from all others.
pub(crate) fn record(
    managed: &mut Managed,
    comparison: &Comparison,
    manager: Manager,
    api_version: &str,
    now: Timestamp,
) {
    take(managed, comparison, None);
    let mut fields = comparison.modified.union(&comparison.added);
    fields.subtract(&STRIPPED);
    if !fields.is_empty() {
        if let Some(owned) = managed.get(&manager) {
            fields.add(&owned.fields);
        }
        // Who sets replicas by `scale` is noted without a time.
        let time = (manager.subresource != "scale").then(|| time::seconds(now));
        managed.insert(manager, Owned { api_version: api_version.to_owned(), time, fields });
    }
    cap(managed);
}

/// Puts the entries of the oldest updates of a version together until the bound holds.
fn cap(managed: &mut Managed) {
    if managed.len() <= MAX_UPDATE_MANAGERS {
        return;
    }
    let mut updaters: Vec<(i64, Manager)> = managed
        .iter()
        .filter(|(manager, _)| manager.operation == Operation::Update)
        .map(|(manager, owned)| (seconds(owned), manager.clone()))
        .collect();
    updaters.sort();
    let mut excess = updaters.len().saturating_sub(MAX_UPDATE_MANAGERS);
    let mut first: BTreeMap<String, Manager> = BTreeMap::new();
    for (_, manager) in updaters {
        if excess == 0 {
            return;
        }
        let bucket = Manager::new(ANCIENT, Operation::Update, &manager.api_version, "");
        match first.get(&manager.api_version) {
            None => drop(first.insert(manager.api_version.clone(), manager)),
            Some(oldest) => {
                if !managed.contains_key(&bucket)
                    && let Some(owned) = managed.remove(oldest)
                {
                    managed.insert(bucket.clone(), owned);
                }
                if let (Some(owned), Some(all)) = (managed.remove(&manager), managed.get_mut(&bucket)) {
                    all.fields = all.fields.union(&owned.fields);
                    all.time = owned.time;
                }
                excess -= 1;
            }
        }
    }
}

/// Whether two states differ in nothing, or in the times of managed fields alone: then nothing is written.
pub(crate) fn same_but_times(new: &Value, old: &Value) -> bool {
    same_but(new, old, "metadata", |new, old| same_but(new, old, "managedFields", same_entries))
}

/// Whether two objects are the same but for one field, whose values are compared in another way.
fn same_but(new: &Value, old: &Value, name: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    new.len() == old.len()
        && new.iter().all(|(key, value)| match old.get(key) {
            Some(other) if key == name => same(value, other),
            Some(other) => value == other,
            None => false,
        })
}

fn same_entries(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_array(), old.as_array()) else { return new == old };
    new.len() == old.len() && new.iter().zip(old).all(|(new, old)| same_but(new, old, "time", |_, _| true))
}

#[cfg(test)]
mod tests;
