//! The API server's responses to writes, as JSON text: the object's UID and version, or why it refuses. A response comes in;
//! what the host decides by comes out. It must not know who sends a request, and how.

use std::borrow::Cow;

use serde::Deserialize;

use crate::limits::MAX_MESSAGE_CHARS;
use crate::object::ResourceVersion;
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
struct Head<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow, default)]
    details: Option<Deleted<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Deleted<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

/// UID and version of the written object. The Status after a delete has no version; the watch will show it.
///
/// # Errors
/// What of the response cannot be read. The write happened all the same.
pub fn written(body: &[u8]) -> Result<Written, String> {
    let unreadable = |why: &str| format!("the write was accepted, but the response cannot be read: {why}");
    let head: Head<'_> = serde_json::from_slice(body).map_err(|error| unreadable(&error.to_string()))?;
    if head.kind == "Status" {
        let uid = head.details.map(|details| details.uid).unwrap_or_default();
        return Ok(Written { uid: (&*uid).into(), resource_version: ResourceVersion(0) });
    }
    let metadata = head.metadata.ok_or_else(|| unreadable("it has no metadata"))?;
    let version = metadata.resource_version.parse().map_err(|_| {
        unreadable(&format!("metadata.resourceVersion {:?} is not a decimal number", metadata.resource_version))
    })?;
    Ok(Written { uid: (&*metadata.uid).into(), resource_version: ResourceVersion(version) })
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

/// Makes a message fit to be shown, since it may repeat what a guest wrote, and shortens a long one to its beginning, which says what failed, and its end, which says why: the API server puts the
/// whole object between them when a patch does not fit.
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
    use super::*;

    #[test]
    fn responses_have_uid_and_version_and_a_status_has_the_uid() {
        let object = br#"{"kind":"Pod","metadata":{"name":"a","uid":"u-1","resourceVersion":"12"},"spec":{}}"#;
        let status = br#"{"kind":"Status","metadata":{},"status":"Success","details":{"name":"a","uid":"u-1"}}"#;
        let of = |uid: &str, version| Written { uid: uid.into(), resource_version: ResourceVersion(version) };
        assert_eq!(written(object), Ok(of("u-1", 12)));
        assert_eq!(written(status), Ok(of("u-1", 0)));
        for broken in [&b"{"[..], b"{}", br#"{"metadata":{"resourceVersion":"x"}}"#] {
            assert!(written(broken).is_err(), "the write happened, so it is not refused");
        }
    }
}
