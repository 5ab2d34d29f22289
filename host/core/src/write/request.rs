//! The HTTP request of a write, without its path's beginning: a [`Write`] comes in; method, query and body come out. Where
//! the kind's resource is, and how a request travels, is the shell's matter.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Precondition, Write, WriteOp};
use crate::contract::{PatchKind, Propagation};
use crate::limits::WRITE_TIMEOUT_MS;
use crate::object::ObjectRef;

/// The API server's deadline for a write, in seconds. It is shorter than the host's, so that a write which the host gave up on
/// is not applied later.
pub const SERVER_TIMEOUT_SECONDS: u64 = 9;
const _: () = assert!(SERVER_TIMEOUT_SECONDS * 1_000 < WRITE_TIMEOUT_MS);
/// The API server's limit for the name of a field manager.
const MAX_MANAGER_CHARS: usize = 128;

/// The content type of JSON.
pub const JSON: &str = "application/json";
/// JSON is YAML, and every supported API server accepts this type.
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// The method of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// To the collection, or to a subresource.
    Post,
    /// To the object.
    Patch,
    /// To the object.
    Delete,
}

/// The request of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteRequest {
    /// The method.
    pub method: Method,
    /// Whether the path is the collection's instead of the object's.
    pub to_collection: bool,
    /// What follows the object's path: "status", "eviction".
    pub subresource: Option<Arc<str>>,
    /// The query: names and values, not escaped yet.
    pub query: Vec<(&'static str, String)>,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Arc<str>,
}

/// The request of a write. `body` replaces that of an apply whose generated values were completed.
///
/// # Errors
/// A sentence, when the write cannot be a request.
pub fn request(write: &Write, body: Option<Arc<str>>) -> Result<WriteRequest, String> {
    let mut query = vec![("fieldManager", manager(write)?), ("timeout", format!("{SERVER_TIMEOUT_SECONDS}s"))];
    // kubectl's default: a field that the schema does not have is an error instead of being dropped.
    let strict = || ("fieldValidation", "Strict".to_owned());
    let (method, subresource, content_type, body): (_, Option<Arc<str>>, _, Arc<str>) = match &write.op {
        WriteOp::Create { body, .. } => {
            query.push(strict());
            (Method::Post, None, JSON, Arc::clone(body))
        }
        WriteOp::Apply { body: own, force, only_if, .. } => {
            query.extend([("force", force.to_string()), strict()]);
            (Method::Patch, None, APPLY, conditioned(body.as_ref().unwrap_or(own), only_if)?)
        }
        WriteOp::PatchStatus { body, .. } => (Method::Patch, Some("status".into()), MERGE, Arc::clone(body)),
        WriteOp::Patch { patch_kind, body, subresource, only_if, .. } => {
            query.push(strict());
            let body = conditioned_patch(body, *patch_kind, only_if)?;
            (Method::Patch, subresource.clone(), media_type(*patch_kind), body)
        }
        WriteOp::Delete { uid, propagation, .. } => {
            query.remove(0);
            (Method::Delete, None, JSON, delete_options(uid, *propagation).into())
        }
        WriteOp::Evict { target, uid } => (Method::Post, Some("eviction".into()), JSON, eviction(target, uid).into()),
    };
    let to_collection = matches!(write.op, WriteOp::Create { .. });
    Ok(WriteRequest { method, to_collection, subresource, query, content_type, body })
}

/// The API server's rules for a field manager are checked here, because its error for an invalid name would look like a fault
/// of the object.
fn manager(write: &Write) -> Result<String, String> {
    let manager = write.manager();
    let printable = manager.chars().all(|char| !char.is_control());
    if manager.chars().count() > MAX_MANAGER_CHARS || !printable {
        return Err(format!(
            "the field manager {manager:?} must be printable and have at most {MAX_MANAGER_CHARS} characters; give the \
             plugin a shorter name"
        ));
    }
    Ok(manager)
}

/// The body of an apply or a patch with its precondition in the metadata. The API server creates an absent object whatever
/// resourceVersion the body has, and does not change an existing one that has another version. No object has version 1, so
/// that one means "only if absent".
fn conditioned(text: &Arc<str>, only_if: &Precondition) -> Result<Arc<str>, String> {
    let (uid, version) = match only_if {
        Precondition::None => return Ok(Arc::clone(text)),
        Precondition::Absent => (None, Some("1".to_owned())),
        Precondition::Is(uid) => (Some(uid), None),
        Precondition::Unchanged { uid, version } => (Some(uid), Some(version.0.to_string())),
    };
    let mut body: Value = serde_json::from_str(text).map_err(|error| format!("the object to write: {error}"))?;
    if let Some(uid) = uid {
        body["metadata"]["uid"] = (**uid).into();
    }
    if let Some(version) = version {
        body["metadata"]["resourceVersion"] = version.into();
    }
    Ok(body.to_string().into())
}

fn media_type(patch_kind: PatchKind) -> &'static str {
    match patch_kind {
        PatchKind::Merge => MERGE,
        PatchKind::Json => JSON_PATCH,
        PatchKind::Strategic => STRATEGIC,
    }
}

/// A patch with its precondition: the UID is in the metadata of the patch, or its first operation tests it.
fn conditioned_patch(text: &Arc<str>, patch_kind: PatchKind, only_if: &Precondition) -> Result<Arc<str>, String> {
    match (only_if, patch_kind) {
        (Precondition::Is(uid) | Precondition::Unchanged { uid, .. }, PatchKind::Json) => {
            let mut operations: Vec<Value> =
                serde_json::from_str(text).map_err(|error| format!("the JSON patch: {error}"))?;
            operations.insert(0, json!({"op": "test", "path": "/metadata/uid", "value": &**uid}));
            Ok(Value::Array(operations).to_string().into())
        }
        (Precondition::Is(_) | Precondition::Unchanged { .. }, _) => conditioned(text, only_if),
        // A patch never creates.
        (Precondition::Absent | Precondition::None, _) => Ok(Arc::clone(text)),
    }
}

fn delete_options(uid: &str, propagation: Propagation) -> String {
    let propagation = match propagation {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    };
    json!({
        "kind": "DeleteOptions", "apiVersion": "v1",
        "preconditions": {"uid": uid}, "propagationPolicy": propagation,
    })
    .to_string()
}

fn eviction(pod: &ObjectRef, uid: &str) -> String {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"namespace": &*pod.name.namespace, "name": &*pod.name.name},
        "deleteOptions": {"preconditions": {"uid": uid}},
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Kind, Name};
    use crate::write::WriteId;

    fn write(plugin: Option<&str>) -> Write {
        let target = ObjectRef { kind: Kind::new("v1", "Pod"), name: Name::new("ns", "a") };
        let op = WriteOp::Delete { target, uid: "u".into(), propagation: Propagation::Background };
        Write {
            id: WriteId(1),
            plugin: plugin.map(Into::into),
            cause: None,
            service_account: None,
            op,
            not_after_ms: None,
        }
    }

    #[test]
    fn invalid_field_managers_are_refused_before_the_request() {
        assert_eq!(manager(&write(Some("podset"))), Ok("mortise/podset".to_owned()));
        assert_eq!(manager(&write(None)), Ok("mortise".to_owned()));
        assert!(request(&write(Some(&"x".repeat(121))), None).is_err());
        assert!(request(&write(Some("a\nb")), None).is_err());
    }

    #[test]
    fn x4_a_delete_carries_the_uid_and_an_apply_its_precondition() {
        let delete = request(&write(Some("p")), None).unwrap();
        assert_eq!((delete.method, delete.to_collection), (Method::Delete, false));
        assert!(delete.body.contains(r#""preconditions":{"uid":"u"}"#), "{}", delete.body);
        assert_eq!(delete.query, [("timeout", "9s".to_owned())]);
        let target = write(None).op.target().clone();
        let (body, draws, force) = ("{}".into(), None, true);
        let op = WriteOp::Apply { target, body, force, only_if: Precondition::Absent, draws };
        let apply = request(&Write { op, ..write(Some("p")) }, None).unwrap();
        assert_eq!(&*apply.body, r#"{"metadata":{"resourceVersion":"1"}}"#);
        assert_eq!((apply.query.len(), apply.content_type), (4, APPLY));
    }
}
