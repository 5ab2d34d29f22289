//! The API server's responses to writes, as JSON text: the object's UID and version, or why it refuses. A response comes in;
//! what the host decides by comes out. It must not know who sends a request, and how.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::limits::MAX_MESSAGE_CHARS;
use crate::object::{ObjectRef, ResourceVersion};
use crate::text::MESSAGE;
use crate::watch::WatchError;
use crate::write::{Precondition, WriteError, WriteErrorClass, WriteOp, Written};

mod summary;

/// The longest `Retry-After` that is honoured. The API server's flow control sends seconds, an eviction a minute; a proxy that
/// sends more, in other units perhaps, must not stop a key for good.
pub const MAX_RETRY_AFTER_MS: u64 = 5 * 60 * 1_000;

/// 404.
const NOT_FOUND: u16 = 404;
/// 409.
pub const CONFLICT: u16 = 409;

/// An error response.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Refused {
    /// The HTTP status.
    pub code: u16,
    /// The Status object's reason, empty when there is none.
    pub reason: String,
    /// The API server's message.
    pub message: String,
    /// What may be said instead of the message when that may repeat an object; empty when the message is the host's own.
    pub summary: String,
    /// Its `Retry-After`, up to [`MAX_RETRY_AFTER_MS`].
    pub retry_after_ms: Option<u64>,
    /// The Status names an object, so the path exists and the object does not.
    pub names_object: bool,
    /// A field of an apply belongs to another manager.
    pub field_conflict: bool,
    /// The API server's cache has not seen the version of the request.
    pub version_too_large: bool,
    /// An eviction would violate a PodDisruptionBudget, which the message names.
    pub by_budget: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
    #[serde(default)]
    code: u16,
    #[serde(borrow, default)]
    details: Option<Details<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    retry_after_seconds: u64,
    #[serde(borrow, default)]
    causes: Vec<Cause<'a>>,
}

#[derive(Deserialize)]
struct Cause<'a> {
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(borrow, default)]
    field: Cow<'a, str>,
}

impl Refused {
    /// Reads a Status object, which is also what an ERROR frame of a watch carries.
    ///
    /// ```
    /// use mortise_core::response::Refused;
    ///
    /// let text = br#"{"kind":"Status","code":409,"reason":"AlreadyExists","message":"pods \"a\" already exists"}"#;
    /// assert_eq!(Refused::from_status(text).map(|refused| refused.code), Some(409));
    /// ```
    pub fn from_status(json: &[u8]) -> Option<Self> {
        let status: Status<'_> = serde_json::from_slice(json).ok()?;
        if status.code == 0 && status.message.is_empty() && status.reason.is_empty() {
            return None;
        }
        let details = status.details.unwrap_or_default();
        let caused_by = |reason: &str| details.causes.iter().find(|cause| cause.reason == reason);
        // Only the cause names the budget.
        let budget = caused_by("DisruptionBudget");
        let message = budget.map(|cause| &cause.message).filter(|message| !message.is_empty());
        let fields = details.causes.iter().map(|cause| (&*cause.field, &*cause.reason));
        let summary = summary::of(&status.reason, &status.message, (&details.kind, &details.name), fields);
        Some(Self {
            summary: cut(&summary),
            code: status.code,
            reason: status.reason.into_owned(),
            message: cut(message.unwrap_or(&status.message)),
            by_budget: budget.is_some(),
            retry_after_ms: (details.retry_after_seconds > 0).then(|| bounded_ms(details.retry_after_seconds)),
            names_object: !details.name.is_empty(),
            field_conflict: caused_by("FieldManagerConflict").is_some(),
            version_too_large: caused_by("ResourceVersionTooLarge").is_some(),
        })
    }

    /// The version is no longer known, or not yet, so the kind must be listed. "Not yet": the cluster was restored from a
    /// backup, or the API server's cache does not catch up.
    pub fn is_expired(&self) -> bool {
        self.code == 410 || self.reason == "Expired" || self.version_too_large
    }

    /// The API server's cache of this kind is not yet filled, which takes a moment; its `Retry-After` is a second, as under
    /// overload.
    pub fn is_starting(&self) -> bool {
        self.code == 429 && self.message.contains("storage is (re)initializing")
    }

    /// The class of the error of a write.
    pub fn class(&self) -> WriteErrorClass {
        match self.code {
            409 if self.reason == "AlreadyExists" => WriteErrorClass::AlreadyExists,
            409 if self.field_conflict => WriteErrorClass::FieldConflict,
            409 => WriteErrorClass::Conflict,
            // A status patch with the UID of a predecessor.
            422 if self.message.contains("metadata.uid: Invalid value") => WriteErrorClass::Conflict,
            // Server-side apply's response to a field of the wrong type.
            500 if self.message.starts_with("failed to create typed patch object") => WriteErrorClass::Invalid,
            404 => WriteErrorClass::NotFound,
            // The credentials are invalid, so no RBAC rule is missing.
            401 => WriteErrorClass::Unavailable,
            403 => WriteErrorClass::Denied,
            429 if self.by_budget => WriteErrorClass::Blocked,
            // Two budgets for one Pod: the API server evicts it under neither.
            500 if self.message.contains("more than one PodDisruptionBudget") => WriteErrorClass::Blocked,
            429 => WriteErrorClass::TooManyRequests { retry_after_ms: self.retry_after_ms.unwrap_or(0) },
            // A gateway lost its backend, or the API server's deadline passed: the write may be in etcd.
            502 | 504 => WriteErrorClass::Unknown,
            // A 500 can come after the write reached etcd ("etcdserver: request timed out" is one), a 503 cannot.
            500 => WriteErrorClass::Unknown,
            400..500 => WriteErrorClass::Invalid,
            _ => WriteErrorClass::Unavailable,
        }
    }
}

/// 422.
const UNPROCESSABLE: u16 = 422;

impl Refused {
    /// The error of a write or a live read.
    pub fn to_write_error(&self) -> WriteError {
        WriteError { class: self.class(), message: self.message.clone() }
    }

    /// The error of this write. A message that may have what a plugin does not see is replaced by a summary: that of a patch
    /// that does not fit has the patched object, whose kind the plugin may not read (G4); that of any write of a Secret may
    /// have its values (G8).
    pub fn to_error_of(&self, op: &WriteOp) -> WriteError {
        let is_unfit = self.code == UNPROCESSABLE && matches!(op, WriteOp::Patch { .. });
        let mut error = self.to_write_error();
        if (is_unfit || op.target().kind.is_secret()) && !self.summary.is_empty() {
            error.message =
                format!("{}; the API server's message is not shown, since it may repeat the object", self.summary);
        }
        error
    }

    /// The error of a watch.
    pub fn to_watch_error(&self) -> WatchError {
        let message = self.message.clone();
        match self.code {
            403 => WatchError::Denied(message),
            404 => WatchError::NotServed(message),
            _ => WatchError::Unavailable(message),
        }
    }
}

/// What is read of a response: a Status when an object is deleted at once, else the object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    /// A Status has a text, an object an object.
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow, default)]
    details: Option<Deleted<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Deleted<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

impl Head<'_> {
    fn is_status(&self, of: &str) -> bool {
        self.kind == "Status" && self.status.is_some_and(|status| status.get().trim_matches('"') == of)
    }
}

/// Whether a response is a Status of a failure, whatever its HTTP status.
pub fn says_failure(body: &[u8]) -> bool {
    // Few objects have the word, so few are parsed for it.
    memmem::find(body, br#""Failure""#).is_some()
        && serde_json::from_slice::<Head<'_>>(body).is_ok_and(|head| head.is_status("Failure"))
}

/// UID and version of the object in a response.
///
/// # Errors
/// It is no object, or not this one.
pub fn object(body: &[u8], expected: &ObjectRef) -> Result<Written, String> {
    let head: Head<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let metadata = head.metadata.as_ref().ok_or("it has no metadata")?;
    let ObjectRef { kind, name } = expected;
    let is_kind = *head.api_version == *kind.api_version && *head.kind == *kind.kind;
    if !is_kind || *metadata.name != *name.name || *metadata.namespace != *name.namespace {
        return Err("it is another object".to_owned());
    }
    identity(metadata)
}

fn identity(metadata: &Metadata<'_>) -> Result<Written, String> {
    let Metadata { uid, resource_version, .. } = metadata;
    let version = resource_version
        .parse()
        .map_err(|_| format!("metadata.resourceVersion {resource_version:?} is not a decimal number"))?;
    Ok(Written { uid: (&**uid).into(), resource_version: ResourceVersion(version) })
}

/// UID and version of the written object. The Status after a delete has no version; the watch will show it.
///
/// # Errors
/// The response does not say that this write happened, and not that it did not.
pub fn written(body: &[u8], op: &WriteOp) -> Result<Written, String> {
    checked(body, op).map_err(|why| format!("the write was accepted, but the response cannot be read: {why}"))
}

fn checked(body: &[u8], op: &WriteOp) -> Result<Written, String> {
    let (target, uid) = (op.target(), op.uid());
    let is_uid = |found: &str| uid.is_none_or(|uid| *uid == *found);
    let written = match op {
        WriteOp::Delete { .. } | WriteOp::Evict { .. } => {
            let head: Head<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
            if head.kind != "Status" {
                object(body, target)?
            } else if head.is_status("Success") {
                let details = head.details.unwrap_or(Deleted { name: "".into(), uid: "".into() });
                if !(details.name.is_empty() || *details.name == *target.name.name) {
                    return Err("it is of another object".to_owned());
                }
                let uid = if details.uid.is_empty() { uid.unwrap_or_default() } else { &details.uid };
                Written { uid: uid.into(), resource_version: ResourceVersion(0) }
            } else {
                return Err("it is a Status without success".to_owned());
            }
        }
        // That of a subresource is another kind mostly, such as a Scale.
        WriteOp::Patch { subresource: Some(subresource), .. } if **subresource != *"status" => {
            let head: Head<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
            return identity(&head.metadata.ok_or("it has no metadata")?);
        }
        _ => object(body, target)?,
    };
    if is_uid(&written.uid) { Ok(written) } else { Err("it is another object of this name".to_owned()) }
}

/// What a refusal of a write is: a delete of what is gone is done, and only an object that exists conflicts with an apply
/// that must create it.
///
/// # Errors
/// The refusal.
pub fn refused(refused: Refused, op: &WriteOp) -> Result<Written, Refused> {
    match op {
        WriteOp::Delete { .. } | WriteOp::Evict { .. } if refused.code == NOT_FOUND && refused.names_object => {
            Ok(Written { uid: "".into(), resource_version: ResourceVersion(0) })
        }
        WriteOp::Apply { only_if: Precondition::Absent, .. } if refused.code == CONFLICT => {
            Err(Refused { reason: "AlreadyExists".to_owned(), field_conflict: false, ..refused })
        }
        _ => Err(refused),
    }
}

/// Seconds as milliseconds, up to [`MAX_RETRY_AFTER_MS`].
pub fn bounded_ms(seconds: u64) -> u64 {
    seconds.saturating_mul(1_000).min(MAX_RETRY_AFTER_MS)
}

/// Makes a message fit to be shown, since it may repeat what a guest wrote, and shortens a long one to its beginning,
/// which says what failed, and its end, which says why: the API server puts the whole object between them when a patch
/// does not fit.
pub fn cut(message: &str) -> String {
    const GAP: &str = " ... ";
    let chars = message.chars().count();
    if chars <= MAX_MESSAGE_CHARS {
        return MESSAGE.text(message).into_owned();
    }
    let head = MAX_MESSAGE_CHARS / 2;
    let tail = MAX_MESSAGE_CHARS - head - GAP.len();
    MESSAGE.own(message.chars().take(head).chain(GAP.chars()).chain(message.chars().skip(chars - tail)).collect())
}

/// An error and its sources, in one line and without repetitions.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = error.source();
    }
    cut(&text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::contract::{PatchKind, Propagation};
    use crate::object::{Kind, Name};

    fn op(verb: &str) -> WriteOp {
        let target = ObjectRef { kind: Kind::new("apps/v1", "Deployment"), name: Name::new("ns", "a") };
        let uid = Arc::from("u-1");
        match verb {
            "delete" => WriteOp::Delete { target, uid, propagation: Propagation::Background },
            "evict" => WriteOp::Evict { target, uid },
            "create" => WriteOp::Create { target, body: "{}".into() },
            "apply" => {
                let only_if = Precondition::Unchanged { uid, version: ResourceVersion(7) };
                WriteOp::Apply { target, body: "{}".into(), force: true, only_if, draws: None }
            }
            "scale" | "status" => WriteOp::Patch {
                target,
                patch_kind: PatchKind::Merge,
                body: "{}".into(),
                subresource: Some(verb.into()),
                only_if: Precondition::Is(uid),
            },
            _ => WriteOp::PatchStatus { target, body: "{}".into() },
        }
    }

    /// What a response to this write says: "UID VERSION", or what is wrong.
    fn said(verb: &str, body: &Value) -> String {
        match written(body.to_string().as_bytes(), &op(verb)) {
            Ok(written) => format!("{} {}", written.uid, written.resource_version.0),
            Err(why) => why,
        }
    }

    fn deployment(name: &str, uid: &str) -> Value {
        let metadata = json!({"namespace": "ns", "name": name, "uid": uid, "resourceVersion": "12"});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "status": {"replicas": 1}})
    }

    const VERBS: [&str; 7] = ["delete", "evict", "create", "apply", "scale", "status", "patch status"];

    #[test]
    fn x8_a_write_succeeded_when_its_response_is_the_object_that_was_written() {
        for verb in VERBS {
            assert_eq!(said(verb, &deployment("a", "u-1")), "u-1 12", "{verb}");
        }
        let status = |details: Value| json!({"kind": "Status", "status": "Success", "details": details});
        for verb in ["delete", "evict"] {
            assert_eq!(said(verb, &status(json!({"name": "a", "uid": "u-1"}))), "u-1 0", "{verb}");
            assert_eq!(said(verb, &json!({"kind": "Status", "status": "Success", "code": 201})), "u-1 0", "{verb}");
        }
        let scale =
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": deployment("a", "u-1")["metadata"]});
        assert_eq!(said("scale", &scale), "u-1 12");
    }

    #[test]
    fn x8_a_response_of_success_with_anything_else_is_of_an_unknown_result() {
        let mut elsewhere = deployment("a", "u-1");
        elsewhere["metadata"]["namespace"] = json!("other");
        let mut of_group = deployment("a", "u-1");
        of_group["apiVersion"] = json!("v1");
        let mut pod = deployment("a", "u-1");
        pod["kind"] = json!("Pod");
        for verb in VERBS.into_iter().filter(|verb| *verb != "scale") {
            for other in [&deployment("b", "u-1"), &elsewhere, &of_group, &pod] {
                assert!(said(verb, other).ends_with("it is another object"), "{verb}: {other}");
            }
            let failure = json!({"kind": "Status", "metadata": {}, "status": "Failure", "message": "no", "code": 500});
            for broken in
                [&failure, &json!({"kind": "Status"}), &json!({}), &json!({"metadata": {"resourceVersion": "x"}})]
            {
                assert!(said(verb, broken).starts_with("the write was accepted, but"), "{verb}: {broken}");
            }
        }
        let success = json!({"kind": "Status", "status": "Success", "details": {"name": "a", "uid": "u-1"}});
        for verb in ["create", "apply", "status", "patch status", "scale"] {
            assert!(said(verb, &success).starts_with("the write was accepted, but"), "{verb}");
        }
        for verb in ["delete", "evict", "apply", "status"] {
            assert!(said(verb, &deployment("a", "u-2")).ends_with("another object of this name"), "{verb}");
        }
        let of_another = |details: Value| json!({"kind": "Status", "status": "Success", "details": details});
        assert!(said("delete", &of_another(json!({"name": "b"}))).ends_with("of another object"));
        assert!(
            said("delete", &of_another(json!({"name": "a", "uid": "u-2"}))).ends_with("another object of this name")
        );
    }

    #[test]
    fn a_status_of_failure_is_known_and_an_object_with_the_word_is_none() {
        let says = |body: Value| says_failure(body.to_string().as_bytes());
        assert!(says(json!({"kind": "Status", "metadata": {}, "status": "Failure", "message": "no"})));
        assert!(!says(json!({"kind": "Status", "status": "Success", "message": "Failure"})));
        assert!(!says(json!({"kind": "Status", "status": "Success", "reason": "Failure"})));
        assert!(!says(json!({"kind": "Job", "status": "Failure"})));
        assert!(!says(json!({"kind": "Job", "status": {"reason": "Failure"}})));
        assert!(!says_failure(br#"ok "Failure""#) && !says_failure(b""));
    }
}
