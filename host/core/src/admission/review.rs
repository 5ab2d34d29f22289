//! AdmissionReviews of admission.k8s.io/v1: parses a review into the guest's request, and turns the guest's result into
//! the response. Refusals have the form of the API server's own, for kubectl and for programs.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{AdmissionBackend, AdmissionRequest, Checked, Operation, Verdict, Violation, defaults};
use crate::contract::GuestFault;
use crate::manifest::AdmissionSpec;
use crate::object::Kind;
use crate::text::{DENIAL, WARNING};
use crate::webhook::{Purpose, text_without_managed_fields};

/// One request of the API server.
#[derive(Clone, PartialEq, Debug)]
pub struct Review {
    uid: String,
    kind: Kind,
    resource: String,
    name: String,
    operation: Operation,
    /// JSON text, since a parsed object takes many times as much memory.
    object: Arc<str>,
    old: Option<Arc<str>>,
    serving: Arc<AdmissionBackend>,
}

/// The response to a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The AdmissionReview to send back.
    pub text: String,
    /// Its status code: 200 when the object is admitted.
    pub code: u16,
    /// The guest's fault, for logs and metrics.
    pub fault: Option<GuestFault>,
}

#[derive(Deserialize)]
struct RawReview<'a> {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: RawRequest<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest<'a> {
    uid: String,
    kind: RawKind,
    resource: RawResource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    operation: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawKind {
    group: String,
    version: String,
    kind: String,
}

#[derive(Deserialize)]
struct RawResource {
    resource: String,
}

#[derive(Default, Deserialize)]
struct Named {
    metadata: NamedMetadata,
}

#[derive(Default, Deserialize)]
struct NamedMetadata {
    #[serde(default)]
    name: String,
}

impl Review {
    /// Parses a review for this backend.
    pub fn parse(body: &[u8], serving: &Arc<AdmissionBackend>) -> Result<Self, String> {
        let RawReview { api_version, kind, request } =
            serde_json::from_slice(body).map_err(|error| format!("the AdmissionReview cannot be read: {error}"))?;
        if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            return Err(format!("this is {api_version} {kind}; mortise answers admission.k8s.io/v1 AdmissionReview"));
        }
        let operation = match &*request.operation {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            other => return Err(format!("mortise has no webhook for the operation {other:?}")),
        };
        if !request.sub_resource.is_empty() {
            return Err(format!("mortise has no webhook for the subresource {:?}", request.sub_resource));
        }
        let text = |object: Option<&RawValue>| object.and_then(|object| text_without_managed_fields(object.get()));
        let old = text(request.old_object);
        let object = match operation {
            Operation::Create | Operation::Update => text(request.object),
            Operation::Delete => old.clone(),
        };
        let Some(object) = object else {
            return Err("the AdmissionReview carries no object".to_owned());
        };
        let api_version = match &*request.kind.group {
            "" => request.kind.version,
            group => format!("{group}/{}", request.kind.version),
        };
        // The request of an object with generateName has no name.
        let name = if request.name.is_empty() {
            serde_json::from_str::<Named>(&object).unwrap_or_default().metadata.name
        } else {
            request.name
        };
        let kind = Kind::new(&api_version, &request.kind.kind);
        let (serving, resource) = (Arc::clone(serving), request.resource.resource);
        Ok(Self { uid: request.uid, kind, resource, name, operation, object, old, serving })
    }

    /// The texts that it keeps.
    pub fn bytes(&self) -> usize {
        let identity = self.uid.len() + self.resource.len() + self.name.len() + self.kind.api_version.len();
        identity + self.kind.kind.len() + self.object.len() + self.old.as_ref().map_or(0, |old| old.len())
    }

    /// The object's kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The object's name; empty when it has none yet.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The guest's request; None when its manifest does not name this kind for this purpose.
    pub fn request(&self, purpose: Purpose, now_unix_ms: u64) -> Option<AdmissionRequest> {
        let spec = self.serving.specs.iter().find(|spec| spec.kind == self.kind)?;
        let is_served = match purpose {
            Purpose::Mutate => spec.mutate && self.operation != Operation::Delete,
            Purpose::Validate => spec.validate,
        };
        is_served.then(|| AdmissionRequest {
            purpose,
            operation: self.operation,
            object: Arc::clone(&self.object),
            old: self.old.clone(),
            now_unix_ms,
            config: Arc::clone(&self.serving.config),
        })
    }

    /// Whether the manifest names another version of this kind: the API server still calls the webhook of the plugin's
    /// previous version, until the configuration changes.
    pub fn is_of_another_version(&self) -> bool {
        let is_alike = |kind: &Kind| kind.group() == self.kind.group() && kind.kind == self.kind.kind;
        self.serving.specs.iter().any(|spec| is_alike(&spec.kind) && spec.kind != self.kind)
    }

    /// The object is admitted as it is.
    pub fn admitted(&self) -> Answer {
        self.allow(None, &[], None)
    }

    /// The host cannot serve the request now: `code` is 429 or 503.
    pub fn unavailable(&self, code: u16, message: &str) -> Answer {
        let reason = if code == 429 { "TooManyRequests" } else { "ServiceUnavailable" };
        self.unchecked(code, reason, message, None)
    }

    /// The response for a guest's result.
    pub fn answer(&self, plugin: &str, verdict: Verdict) -> Answer {
        let at_fault = |fault: GuestFault| {
            let message = format!("the plugin {plugin:?} could not check it: {}", fault.message());
            self.unchecked(500, "InternalError", &message, Some(fault))
        };
        match verdict {
            Verdict::Completed(completed) => match defaults::patch(&self.object, &completed) {
                Ok(patch) => self.allow(patch.as_deref(), &[], None),
                Err(message) => at_fault(GuestFault::bad_outcome(message)),
            },
            Verdict::Checked(Checked { violations, warnings }) if violations.is_empty() => {
                self.allow(None, &warnings, None)
            }
            Verdict::Checked(Checked { violations, warnings }) => self.violated(&violations, &warnings),
            Verdict::Fault(fault) => at_fault(fault),
            Verdict::HostFault(message) => self.unchecked(500, "InternalError", &message, None),
        }
    }

    fn violated(&self, violations: &[Violation], warnings: &[String]) -> Answer {
        let texts: Vec<String> = violations.iter().map(text_of).collect();
        let all = match &*texts {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let group = self.kind.group();
        let qualified = |name: &str| if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") };
        let mut details = json!({"name": self.name, "group": group});
        // The API server's own wording.
        let (code, reason, message) = if self.operation == Operation::Delete {
            details["kind"] = json!(self.resource);
            (403, "Forbidden", format!("{} {:?} is forbidden: {all}", qualified(&self.resource), self.name))
        } else {
            details["kind"] = json!(&*self.kind.kind);
            details["causes"] = violations.iter().map(cause_of).collect();
            (422, "Invalid", format!("{} {:?} is invalid: {all}", qualified(&self.kind.kind), self.name))
        };
        self.refuse(code, json!({"reason": reason, "message": message, "details": details}), warnings, None)
    }

    /// The guest could not check the object. Deletes and objects of other kinds than the plugin's own are admitted with
    /// a warning, as they would be without the host.
    fn unchecked(&self, code: u16, reason: &str, message: &str, fault: Option<GuestFault>) -> Answer {
        let is_of_others = |spec: &AdmissionSpec| spec.kind == self.kind && !spec.is_own();
        if self.operation == Operation::Delete || self.serving.specs.iter().any(is_of_others) {
            return self.allow(None, &[WARNING.text(message).into_owned()], fault);
        }
        self.refuse(code, json!({"reason": reason, "message": DENIAL.text(message)}), &[], fault)
    }

    fn allow(&self, patch: Option<&str>, warnings: &[String], fault: Option<GuestFault>) -> Answer {
        let mut response = json!({"uid": self.uid, "allowed": true});
        if let Some(patch) = patch {
            response["patch"] = STANDARD.encode(patch).into();
            response["patchType"] = json!("JSONPatch");
        }
        Answer { text: review(response, warnings), code: 200, fault }
    }

    fn refuse(&self, code: u16, mut status: Value, warnings: &[String], fault: Option<GuestFault>) -> Answer {
        status["status"] = json!("Failure");
        status["code"] = json!(code);
        let response = json!({"uid": self.uid, "allowed": false, "status": status});
        Answer { text: review(response, warnings), code, fault }
    }
}

fn review(mut response: Value, warnings: &[String]) -> String {
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
}

/// "spec.image: Required value: image is required".
fn text_of(violation: &Violation) -> String {
    let Violation { field, message } = violation;
    DENIAL.own(if field.is_empty() { message.clone() } else { format!("{field}: {message}") })
}

fn cause_of(violation: &Violation) -> Value {
    let reason =
        REASONS.iter().find(|(words, _)| violation.message.starts_with(words)).map_or(INVALID, |(_, reason)| reason);
    // Kubernetes' path of the object as a whole.
    let field = if violation.field.is_empty() { "<nil>" } else { &violation.field };
    json!({"reason": reason, "message": violation.message, "field": field})
}

const INVALID: &str = "FieldValueInvalid";
/// The beginnings of the API server's messages about a field, with their causes' reasons.
const REASONS: [(&str, &str); 8] = [
    ("Required value", "FieldValueRequired"),
    ("Invalid value", INVALID),
    ("Unsupported value", "FieldValueNotSupported"),
    ("Duplicate value", "FieldValueDuplicate"),
    ("Not found", "FieldValueNotFound"),
    ("Forbidden", "FieldValueForbidden"),
    ("Too long", "FieldValueTooLong"),
    ("Too many", "FieldValueTooMany"),
];
