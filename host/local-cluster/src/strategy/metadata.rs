//! What is wrong with an object's metadata. Input: the object of any kind. Output: causes. It must not know what the kind is for.

use serde_json::Value;

use super::field::{Causes, Path, is_empty, items, text};
use super::format;
use super::kind::name_format;
use super::rule;
use crate::halt::Cause;
use crate::resource::Resource;

/// How many bytes all annotations may have together.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Finalizers of built-in kinds that need no domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// Finds what is wrong with the metadata.
pub(crate) fn check(resource: &Resource, value: &Value, causes: &mut Causes) {
    let metadata = &value["metadata"];
    let root = Path::Root;
    let path = Path::Field(&root, "metadata");
    let (name, base) = (text(&metadata["name"]), text(&metadata["generateName"]));
    let form = match &resource.custom {
        Some(_) => format::subdomain,
        None => name_format(&resource.group, &resource.kind),
    };
    if !base.is_empty() {
        causes.invalid_text(&Path::Field(&path, "generateName"), base, form(&format::before_suffix(base)));
    }
    if name.is_empty() {
        causes.required(&Path::Field(&path, "name"), "name or generateName is required");
    } else {
        causes.invalid_text(&Path::Field(&path, "name"), name, form(name));
    }
    if !resource.namespaced && !is_empty(&metadata["namespace"]) {
        causes.forbidden(&Path::Field(&path, "namespace"), "not allowed on this type");
    }
    rule::labels(&metadata["labels"], &Path::Field(&path, "labels"), causes);
    annotations(&metadata["annotations"], &Path::Field(&path, "annotations"), causes);
    owners(&metadata["ownerReferences"], &Path::Field(&path, "ownerReferences"), causes);
    finalizers(&metadata["finalizers"], resource.custom.is_none(), &Path::Field(&path, "finalizers"), causes);
}

/// Finds keys that are none, and more annotations than fit.
pub(super) fn annotations(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let mut size = 0;
    for (key, value) in value.as_object().into_iter().flatten() {
        size += key.len() + text(value).len();
        causes.invalid_text(path, key, format::qualified(&key.to_lowercase()));
    }
    if size > MAX_ANNOTATIONS {
        causes.too_long(path, MAX_ANNOTATIONS);
    }
}

fn owners(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let mut controller: Option<String> = None;
    for owner in items(value) {
        let field = |name: &str| text(&owner[name]);
        let version = field("apiVersion").rsplit('/').next().unwrap_or_default();
        for (name, given, detail) in [
            ("apiVersion", version, "version must not be empty"),
            ("kind", field("kind"), "must not be empty"),
            ("name", field("name"), "must not be empty"),
            ("uid", field("uid"), "must not be empty"),
        ] {
            if given.is_empty() {
                causes.invalid(&Path::Field(path, name), &field(name).into(), detail);
            }
        }
        if field("apiVersion") == "v1" && field("kind") == "Event" {
            causes.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner["controller"] != true {
            continue;
        }
        let this = format!("{}/{}", field("kind"), field("name"));
        match &controller {
            Some(first) => {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                let message = format!("Invalid value: {}: {detail}", shown(value));
                causes.0.push(Cause { reason: "FieldValueInvalid", message, field: path.to_string() });
            }
            None => controller = Some(this),
        }
    }
}

/// Owners as Go shows them: their fields in the order of its type.
fn shown(owners: &Value) -> String {
    let order = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let field = |owner: &Value, name: &str| owner.get(name).map(|value| format!("\"{name}\":{value}"));
    let owner = |owner: &Value| order.iter().filter_map(|name| field(owner, name)).collect::<Vec<_>>().join(",");
    let all: Vec<String> = items(owners).iter().map(|one| format!("{{{}}}", owner(one))).collect();
    format!("[{}]", all.join(","))
}

fn finalizers(value: &Value, built_in: bool, path: &Path<'_>, causes: &mut Causes) {
    let names = || items(value).iter().map(text);
    for name in names() {
        causes.invalid_text(path, name, format::qualified(name));
    }
    if names().any(|name| name == "orphan") && names().any(|name| name == "foregroundDeletion") {
        causes.invalid(path, value, "finalizer orphan and foregroundDeletion cannot be both set");
    }
    for (index, name) in names().enumerate() {
        if built_in && !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            causes.invalid(&Path::Index(path, index), &name.into(), detail);
        }
    }
}

/// An object that is being deleted gets no new finalizers.
pub(crate) fn check_update(new: &Value, old: &Value, causes: &mut Causes) {
    let (new, old) = (&new["metadata"], &old["metadata"]);
    if old["deletionTimestamp"].is_null() {
        return;
    }
    let before = items(&old["finalizers"]);
    let mut added: Vec<&str> =
        items(&new["finalizers"]).iter().filter(|name| !before.contains(name)).map(text).collect();
    added.sort_unstable();
    added.dedup();
    if !added.is_empty() {
        let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        // The API server checks the metadata of an update twice, and both find it.
        causes.forbidden(&Path::Field(&Path::Field(&Path::Root, "metadata"), "finalizers"), &detail);
        causes.0.extend(causes.0.last().cloned());
    }
}
