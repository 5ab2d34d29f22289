//! AdmissionReviews of admission.k8s.io/v1: a request's text comes in, the question to the guest goes out; the guest's
//! verdict comes in, the answer's text goes out. Refusals read as the API server's own do, so that kubectl shows them and
//! programs take them apart in the same way.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AdmissionBackend, AdmissionRequest, Operation, Verdict, Violation, defaults};
use crate::contract::GuestFault;
use crate::manifest::AdmissionSpec;
use crate::object::Kind;
use crate::webhook::{Purpose, cut, without_managed_fields};

/// Violations that one answer tells. A person mends the first few, and applies again.
const MAX_VIOLATIONS: usize = 64;
/// Warnings that one answer tells.
const MAX_WARNINGS: usize = 16;

/// One request of the API server.
#[derive(Clone, PartialEq, Debug)]
pub struct Review {
    uid: String,
    kind: Kind,
    resource: String,
    name: String,
    operation: Operation,
    object: Value,
    old: Option<Value>,
    /// Who is to answer.
    serving: Arc<AdmissionBackend>,
}

/// What became of a request, beside the text of its answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The AdmissionReview to send back.
    pub text: String,
    /// The status in it: 200 when the object is admitted.
    pub code: u16,
    /// What the guest is at fault for.
    pub fault: Option<GuestFault>,
}

#[derive(Deserialize)]
struct RawReview {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    request: RawRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest {
    uid: String,
    kind: RawKind,
    resource: RawResource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    operation: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
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

impl Review {
    /// Reads a request that this version is to answer.
    ///
    /// # Errors
    /// What about it cannot be served, for the one who sent it.
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
            other => return Err(format!("mortise is not asked about the operation {other:?}")),
        };
        if !request.sub_resource.is_empty() {
            return Err(format!("mortise is not asked about the subresource {:?}", request.sub_resource));
        }
        let old = request.old_object.is_object().then(|| without_managed_fields(request.old_object));
        let object = match operation {
            Operation::Create | Operation::Update => without_managed_fields(request.object),
            Operation::Delete => old.clone().unwrap_or_default(),
        };
        if !object.is_object() {
            return Err("the AdmissionReview carries no object".to_owned());
        }
        let api_version = match &*request.kind.group {
            "" => request.kind.version,
            group => format!("{group}/{}", request.kind.version),
        };
        // A new object without a name of its own gets one only when it is stored.
        let name = if request.name.is_empty() {
            object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
        } else {
            request.name
        };
        let kind = Kind::new(&api_version, &request.kind.kind);
        let (serving, resource) = (Arc::clone(serving), request.resource.resource);
        Ok(Self { uid: request.uid, kind, resource, name, operation, object, old, serving })
    }

    /// The kind that is asked about.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The name of the object; empty when it has none yet.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the guest is asked; None when its manifest does not name this kind for this purpose.
    pub fn question(&self, purpose: Purpose, now_unix_ms: u64) -> Option<AdmissionRequest> {
        let spec = self.serving.specs.iter().find(|spec| spec.kind == self.kind)?;
        let is_served = match purpose {
            Purpose::Mutate => spec.mutate && self.operation != Operation::Delete,
            Purpose::Validate => spec.validate,
        };
        is_served.then(|| AdmissionRequest {
            purpose,
            operation: self.operation,
            object: self.object.to_string().into(),
            old: self.old.as_ref().map(|old| old.to_string().into()),
            now_unix_ms,
            config: Arc::clone(&self.serving.config),
        })
    }

    /// The manifest names another version of this kind: the version of the plugin before this one asked for objects as they
    /// come here, and who can check them comes with the webhook that is being changed.
    pub fn is_of_another_version(&self) -> bool {
        let is_alike = |kind: &Kind| kind.group() == self.kind.group() && kind.kind == self.kind.kind;
        self.serving.specs.iter().any(|spec| is_alike(&spec.kind) && spec.kind != self.kind)
    }

    /// Whether an object goes on though nobody could say what is right: what is to be deleted always does, and so does what
    /// others work with, as it would if the host were not there.
    fn goes_on_unchecked(&self) -> bool {
        let is_of_others = |spec: &AdmissionSpec| spec.kind == self.kind && !spec.is_own();
        self.operation == Operation::Delete || self.serving.specs.iter().any(is_of_others)
    }

    /// The object is admitted as it is.
    pub fn admitted(&self) -> Answer {
        self.allow(None, Vec::new(), None)
    }

    /// The host cannot say, for a reason that passes: `code` is 429 or 503. Of what a plugin brings nothing is stored unchecked.
    pub fn unavailable(&self, code: u16, message: &str) -> Answer {
        let reason = if code == 429 { "TooManyRequests" } else { "ServiceUnavailable" };
        if self.goes_on_unchecked() {
            return self.allow(None, vec![message.to_owned()], None);
        }
        self.refuse(code, json!({"reason": reason, "message": cut(message)}), &[], None)
    }

    /// What the API server is told of a verdict.
    pub fn answer(&self, plugin: &str, verdict: Verdict) -> Answer {
        match verdict {
            Verdict::Completed(completed) => match defaults::patch(&self.object, &completed) {
                Ok(patch) => self.allow(patch, Vec::new(), None),
                Err(message) => self.at_fault(plugin, GuestFault::BadOutcome { message }),
            },
            Verdict::Checked { violations, warnings } if violations.is_empty() => self.allow(None, warnings, None),
            Verdict::Checked { violations, warnings } => self.violated(&violations, &warnings),
            Verdict::Fault(fault) => self.at_fault(plugin, fault),
            Verdict::HostFault(message) => self.unanswered(message, None),
        }
    }

    fn violated(&self, violations: &[Violation], warnings: &[String]) -> Answer {
        let told = &violations[..violations.len().min(MAX_VIOLATIONS)];
        let texts: Vec<String> = told.iter().map(text_of).collect();
        let all = match &*texts {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let group = self.kind.group();
        let qualified = |name: &str| if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") };
        let mut details = json!({"name": self.name, "group": group});
        // As the API server itself words what it finds wrong with an object, and what it does not let anybody do.
        let (code, reason, message) = if self.operation == Operation::Delete {
            details["kind"] = json!(self.resource);
            (403, "Forbidden", format!("{} {:?} is forbidden: {all}", qualified(&self.resource), self.name))
        } else {
            details["kind"] = json!(&*self.kind.kind);
            details["causes"] = told.iter().map(cause_of).collect();
            (422, "Invalid", format!("{} {:?} is invalid: {all}", qualified(&self.kind.kind), self.name))
        };
        self.refuse(code, json!({"reason": reason, "message": message, "details": details}), warnings, None)
    }

    fn at_fault(&self, plugin: &str, fault: GuestFault) -> Answer {
        let message = format!("the plugin {plugin:?} could not check it: {}", fault.message());
        self.unanswered(message, Some(fault))
    }

    /// Nobody could say, by the plugin's fault or the host's.
    fn unanswered(&self, message: String, fault: Option<GuestFault>) -> Answer {
        if self.goes_on_unchecked() {
            return self.allow(None, vec![message], fault);
        }
        self.refuse(500, json!({"reason": "InternalError", "message": cut(&message)}), &[], fault)
    }

    fn allow(&self, patch: Option<json_patch::Patch>, warnings: Vec<String>, fault: Option<GuestFault>) -> Answer {
        let mut response = json!({"uid": self.uid, "allowed": true});
        if let Some(patch) = patch.filter(|patch| !patch.0.is_empty()) {
            // A patch is made of JSON values alone, which are always text.
            response["patch"] = json!(STANDARD.encode(json!(patch).to_string()));
            response["patchType"] = json!("JSONPatch");
        }
        Answer { text: review(response, &warnings), code: 200, fault }
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
        response["warnings"] = warnings.iter().take(MAX_WARNINGS).map(|warning| cut(warning)).collect();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
}

/// "spec.image: Required value: image is required".
fn text_of(violation: &Violation) -> String {
    let Violation { field, message } = violation;
    cut(&if field.is_empty() { message.clone() } else { format!("{field}: {message}") })
}

fn cause_of(violation: &Violation) -> Value {
    let reason =
        REASONS.iter().find(|(words, _)| violation.message.starts_with(words)).map_or(INVALID, |(_, reason)| reason);
    // Kubernetes calls the object as a whole by this.
    let field = if violation.field.is_empty() { "<nil>" } else { &violation.field };
    json!({"reason": reason, "message": cut(&violation.message), "field": field})
}

const INVALID: &str = "FieldValueInvalid";
/// How the API server begins its words about a field, and what it calls that for programs.
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
