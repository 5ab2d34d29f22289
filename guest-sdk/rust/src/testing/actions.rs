//! Actions in native tests: the host's checks with the host's messages.

use std::collections::BTreeSet;

use serde_json::Value;

use super::metadata::{
    HOST_PREFIX, MAX_CHILD_BYTES, Refused, is_builtin, is_object_name, json, own_key, own_keys, shown, whole_metadata,
};
use crate::action::{Action, Apply, Patch, PatchKind};
use crate::manifest::{Http, Verb, Write};
use crate::object::{Kind, ObjectKey};
use crate::view::native::scope::Scope;
use crate::view::native::tree::key_of;

/// Actions of one outcome.
const MAX_ACTIONS: usize = 500;
/// The metadata that a patch may change.
const PATCHABLE: [&str; 2] = ["labels", "annotations"];

/// What a plugin may write, and one of its controllers may read.
pub(super) struct Allowed<'a> {
    pub writes: &'a [&'a Write],
    pub readable: &'a [Scope],
    /// Where HTTP requests may be sent.
    pub http: &'a [&'a Http],
    /// The kind of the reconciled object.
    pub primary: &'a Kind,
    /// Whether the controller declares `finalize`.
    pub finalize: bool,
}

/// Checks the actions of an outcome. `children` are the children that have a name in the outcome.
pub(super) fn check(actions: &[Action], allowed: &Allowed<'_>, children: &BTreeSet<ObjectKey>) -> Refused {
    if actions.len() > MAX_ACTIONS {
        return Err(format!("actions: there are {}, the most is {MAX_ACTIONS}", actions.len()));
    }
    let mut seen = BTreeSet::new();
    for (at, action) in actions.iter().enumerate() {
        let target = check_one(action, allowed).map_err(|why| format!("actions[{at}]: {why}"))?;
        let words = spoken(&target);
        if children.contains(&target) {
            return Err(format!("actions[{at}]: {words} is a child of this outcome"));
        }
        let subresource = match action {
            Action::Patch(patch) => patch.subresource.clone(),
            _ => None,
        };
        if !seen.insert((target, subresource)) {
            return Err(format!("actions[{at}]: {words} appears twice; put it into one action"));
        }
    }
    Ok(())
}

fn spoken(key: &ObjectKey) -> String {
    format!("{} {}", key.kind, place(key))
}

fn place(key: &ObjectKey) -> String {
    match &key.namespace {
        Some(namespace) => format!("{namespace}/{}", key.name),
        None => key.name.clone(),
    }
}

fn check_one(action: &Action, allowed: &Allowed<'_>) -> Result<ObjectKey, String> {
    let (target, verb) = match action {
        Action::Apply(apply) => (applied_object(apply)?, Verb::Apply),
        Action::Patch(patch) => (patch.target.clone(), Verb::Patch),
        Action::Delete(delete) => (delete.target.clone(), Verb::Delete),
        Action::Evict(pod) => (pod.clone(), Verb::Evict),
    };
    let is_it = |kind: &Kind| kind.api_version == target.api_version && kind.kind == target.kind;
    let kind = format!("{}/{}", target.api_version, target.kind);
    if !allowed.writes.iter().any(|write| is_it(&write.kind) && write.verbs.contains(&verb)) {
        return Err(format!("{} of {kind} is not declared under writes of the manifest", verb.as_str()));
    }
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let sees = |scope: &Scope| is_it(&scope.kind) && scope.has_namespace(namespace);
    if matches!(verb, Verb::Delete | Verb::Evict) && !allowed.readable.iter().any(sees) {
        return Err(format!(
            "{} of {kind} carries the UID that was seen, and this controller does not declare the kind, or its namespace, \
             under reads",
            verb.as_str()
        ));
    }
    let is_named = |name: &Option<String>| name.as_deref().is_none_or(|name| name.is_empty() || is_object_name(name));
    if !is_object_name(&target.name) || !is_named(&target.namespace) {
        return Err(format!("{:?} is not a name that Kubernetes accepts", place(&target)));
    }
    if let Action::Patch(patch) = action {
        check_patch(patch, &kind, allowed)?;
    }
    Ok(target)
}

fn applied_object(apply: &Apply) -> Result<ObjectKey, String> {
    let object = json(&apply.object, MAX_CHILD_BYTES)?;
    if !object["apiVersion"].is_string() || !object["kind"].is_string() {
        return Err("apiVersion and kind are missing".to_owned());
    }
    whole_metadata(&object["metadata"])?;
    Ok(key_of(&object))
}

fn check_patch(patch: &Patch, kind: &str, allowed: &Allowed<'_>) -> Refused {
    let Patch { target, kind: patch_kind, body, subresource } = patch;
    if let Some(subresource) = subresource.as_deref() {
        let is_it = |write: &Write| write.kind.api_version == target.api_version && write.kind.kind == target.kind;
        let declares = |write: &&Write| is_it(write) && write.subresources.contains(&subresource);
        if !allowed.writes.iter().any(declares) {
            return Err(format!("patch of {kind} {subresource:?} is not declared under writes of the manifest"));
        }
        if subresource == "status"
            && group(allowed.primary.api_version) == group(&target.api_version)
            && allowed.primary.kind == target.kind
        {
            return Err(format!("the status of a {} is part of the outcome", target.kind));
        }
    }
    let body = json(body, MAX_CHILD_BYTES)?;
    match patch_kind {
        PatchKind::Json => check_operations(&body, kind == "v1/Secret"),
        PatchKind::Strategic if !is_builtin(group(&target.api_version)) => {
            Err(format!("{kind} is not a built-in kind, and only those take strategic patches; take merge"))
        }
        PatchKind::Merge | PatchKind::Strategic if body.is_object() => check_merge(&body),
        PatchKind::Merge | PatchKind::Strategic => Err("the body of a patch is an object".to_owned()),
    }
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn check_merge(patch: &Value) -> Refused {
    if let Some(directive) = patch.as_object().and_then(|patch| patch.keys().find(|key| key.starts_with('$'))) {
        return Err(format!("{directive}: a patch is not of the object as a whole; delete or apply it"));
    }
    let Some(metadata) = patch.get("metadata") else { return Ok(()) };
    let Value::Object(metadata) = metadata else {
        return Err(format!("metadata is {}, not an object", shown(&metadata.to_string())));
    };
    for (field, value) in metadata {
        if !PATCHABLE.contains(&field.as_str()) {
            return Err(not_patchable(field));
        }
        if !value.is_object() {
            return Err(format!("metadata.{field} is {}, not an object", shown(&value.to_string())));
        }
        no_directive(field, value)?;
        own_keys(field, value)?;
    }
    Ok(())
}

fn no_directive(map: &str, keys: &Value) -> Refused {
    let directive = keys.as_object().and_then(|keys| keys.keys().find(|key| key.starts_with('$')));
    let why = "a patch names each label and annotation that it changes; null removes one";
    directive.map_or(Ok(()), |directive| Err(format!("metadata.{map}[{directive:?}]: {why}")))
}

fn check_operations(patch: &Value, is_secret: bool) -> Refused {
    let Some(operations) = patch.as_array() else {
        return Err("the body of a json-patch is a list of operations".to_owned());
    };
    for (at, operation) in operations.iter().enumerate() {
        let (Some(op), Some(path)) = (operation["op"].as_str(), operation["path"].as_str()) else {
            return Err(format!("operation {at}: op and path are missing"));
        };
        if is_secret && matches!(op, "copy" | "move" | "test") {
            let why = "values of a Secret are not copied, moved or tested, some are for no plugin";
            return Err(format!("operation {at}: {why}"));
        }
        let from = operation["from"].as_str().filter(|_| op == "move");
        for path in [Some(path), from].into_iter().flatten().filter(|_| op != "test") {
            check_pointer(path).map_err(|why| format!("operation {at}: {why}"))?;
        }
    }
    Ok(())
}

fn check_pointer(path: &str) -> Refused {
    let mut parts = path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"));
    match (parts.next().as_deref(), parts.next(), parts.next()) {
        (None, ..) => Err("a patch is not of the object as a whole; delete or apply it".to_owned()),
        (Some("metadata"), None, _) => Err("metadata cannot be replaced as a whole".to_owned()),
        (Some("metadata"), Some(map), None) if PATCHABLE.contains(&map.as_str()) => {
            Err(format!("metadata.{map} cannot be replaced as a whole: name the key, or take a merge patch"))
        }
        (Some("metadata"), Some(map), Some(key))
            if PATCHABLE.contains(&map.as_str()) && key.starts_with(HOST_PREFIX) =>
        {
            Err(own_key(&map, &key))
        }
        (Some("metadata"), Some(field), _) if !PATCHABLE.contains(&field.as_str()) => Err(not_patchable(&field)),
        _ => Ok(()),
    }
}

fn not_patchable(field: &str) -> String {
    format!(
        "metadata.{field}: a patch may change labels and annotations; the rest belongs to the host or to the API server"
    )
}
