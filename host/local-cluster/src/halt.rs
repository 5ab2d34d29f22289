//! Why a request ends early: with a Status, or because a webhook has to be asked first. It must not know any kind.
//!
//! A request that needs a webhook's answer is given up without a trace and made again with the answer: the cluster is a
//! value, so what the first try changed is dropped with its copy.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

/// The end of a request before its result.
#[derive(Clone, Debug)]
pub(crate) enum Halt {
    /// The API server refuses, with a `Status` object.
    Status(Box<Status>),
    /// A webhook's answer is needed.
    Call(Box<Call>),
}

/// What a request, or a step of the controllers, came to.
#[derive(Clone, Debug)]
pub enum Reply<T> {
    /// It is done.
    Done(T),
    /// Nothing was done: a webhook must be asked, and the same must be tried again with its answer among the others.
    Call(Box<Call>),
}

/// What the door must ask of a webhook before the request can be made again.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Where: an `https://` URL, of a Service by its cluster address or as the configuration names it.
    pub url: String,
    /// The authorities that the webhook's certificate must come from, in PEM.
    pub ca_bundle: Vec<u8>,
    /// The name that the certificate must have, for a Service.
    pub server_name: Option<String>,
    /// The AdmissionReview or ConversionReview to send.
    pub review: Value,
    /// How long the webhook may take.
    pub timeout_seconds: u64,
    /// The Service in the URL, whose endpoints are to be asked.
    pub service: Option<ServiceReference>,
    /// When the request was first tried: all tries of it are made as of then.
    pub first_try: FirstTry,
    /// Of a step of the controllers: whose, and what is looked at.
    pub(crate) step: Option<Asker>,
}

/// The place of a controller's queue, with the namespace and name of a key.
pub(crate) type Asker = (usize, (Arc<str>, Arc<str>));

/// A Service that a webhook is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReference {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub name: String,
    /// One of its ports.
    pub port: u16,
}

/// What makes the later tries of a request equal to its first: with the same names and times a webhook is asked the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstTry {
    pub(crate) made: u64,
    pub(crate) at: Timestamp,
}

/// How many UIDs and names are kept for a request that waits for a webhook: more than a deletion of a collection draws.
const RESERVED: u64 = 1 << 20;

impl FirstTry {
    /// That of a request, or the one that its answers belong to.
    pub(crate) fn of(answers: &[Answer], made: u64, at: Timestamp) -> Self {
        answers.first().map_or(Self { made, at }, |answer| answer.call.first_try)
    }

    /// What is made meanwhile begins after this.
    pub(crate) fn reserved(self) -> u64 {
        self.made.saturating_add(RESERVED)
    }
}

/// What a webhook answered to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The call that was made.
    pub call: Call,
    /// The review with its response, or why there is none, such as
    /// `Post "https://a.b.svc:443/?timeout=10s": dial tcp 10.96.0.10:443: connect: connection refused`.
    pub result: Result<Value, String>,
}

/// A refusal: the fields of a `Status` object.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// The reason, such as `NotFound`.
    pub reason: &'static str,
    /// The sentence that clients print.
    pub message: String,
    /// `details`, where the reason has any.
    pub details: Option<Value>,
}

/// One cause in the details of an `Invalid` status: what is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// `FieldValueInvalid` and its like.
    pub reason: &'static str,
    /// What is wrong, such as `Invalid value: -1: must be greater than or equal to 0`.
    pub message: String,
    /// The field's path, such as `spec.replicas`.
    pub field: String,
}

impl From<Status> for Halt {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl From<Call> for Halt {
    fn from(call: Call) -> Self {
        Self::Call(Box::new(call))
    }
}

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn of(mut self, group: &str, kind: &str, name: &str) -> Self {
        let mut details = serde_json::Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        self.details = Some(Value::Object(details));
        self
    }

    /// `deployments.apps`, or `pods` in the core group: how messages name a resource.
    fn resource(group: &str, plural: &str) -> String {
        if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
    }

    /// No such object.
    pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let resource = Self::resource(group, plural);
        Self::new(404, "NotFound", format!("{resource} {name:?} not found")).of(group, plural, name)
    }

    /// No such path.
    pub(crate) fn no_resource() -> Self {
        let mut status = Self::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(json!({}));
        status
    }

    /// The name is taken.
    pub(crate) fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let resource = Self::resource(group, plural);
        Self::new(409, "AlreadyExists", format!("{resource} {name:?} already exists")).of(group, plural, name)
    }

    /// A precondition does not hold.
    pub(crate) fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = Self::resource(group, plural);
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::new(409, "Conflict", message).of(group, plural, name)
    }

    /// The update was made from an old version.
    pub(crate) fn modified(group: &str, plural: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, plural, name, why)
    }

    /// An error that the API server did not foresee: it has no reason.
    pub(crate) fn unforeseen(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Fields that are wrong; `kind` is the kind, not the plural.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        // What is found twice is a cause twice, and said once.
        let mut words: Vec<String> = Vec::new();
        for word in causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        let what = match words.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {name:?} is invalid: {what}", Self::kind(group, kind));
        let mut status = Self::new(422, "Invalid", message).of(group, kind, name);
        if let Some(Value::Object(details)) = &mut status.details {
            let causes = causes.iter();
            let causes =
                causes.map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}));
            details.insert("causes".to_owned(), causes.collect());
        }
        status
    }

    fn kind(group: &str, kind: &str) -> String {
        if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
    }

    /// The request is malformed.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The user may not do that.
    pub(crate) fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = Self::resource(group, plural);
        let message = match (resource.as_str(), name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} {name:?} is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).of(group, plural, name)
    }

    /// No valid credentials.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// A version that the log does not reach back to.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The verb is not served there.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::new(405, "MethodNotAllowed", message);
        status.details = Some(json!({}));
        status
    }

    /// A body in a format that is not read.
    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// No format that the client accepts.
    pub(crate) fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    /// Try again later.
    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after_seconds: u64) -> Self {
        let mut status = Self::new(429, "TooManyRequests", message);
        status.details = Some(json!({"retryAfterSeconds": retry_after_seconds}));
        status
    }

    /// A webhook that failed, or a fault of the cluster.
    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        let mut status = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        status.details = Some(json!({"causes": [{"message": message.to_string()}]}));
        status
    }

    /// The object as it is sent.
    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        // An error that the API server did not foresee has none.
        if !self.reason.is_empty() {
            value["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            value["details"] = details.clone();
        }
        value
    }
}
