//! One webhook of a configuration: whether it is to be asked, and asking it. Input: attributes and objects. Output: the
//! response of its review, or why there is none. It must not know what the response changes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::condition::Scope;
use super::matching::{GROUP, Objects, matching, selects};
use super::reading::{array, forbidden, text};
use super::review::request;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Halt, Status};
use crate::resource::{Resource, Storage};
use crate::store::Object;
use crate::{Cluster, uid, webhook};

const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// One webhook, in its place in a configuration.
#[derive(Clone)]
pub(super) struct Hook {
    configuration: Arc<Object>,
    index: usize,
    mutates: bool,
}

/// Why there is no response.
pub(super) enum Failure {
    /// The webhook could not be asked, or answered nonsense: its failure policy decides.
    Call(String),
    /// The request ends.
    Halt(Halt),
}

impl From<Halt> for Failure {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

/// All webhooks of a kind in the order they are asked in.
pub(super) fn all(cluster: &Cluster, mutates: bool) -> Vec<Hook> {
    let plural = if mutates { "mutatingwebhookconfigurations" } else { "validatingwebhookconfigurations" };
    let configurations = cluster.store.list(&Storage::new(GROUP, plural), None, None);
    let hooks = |configuration: &Arc<Object>| {
        let count = array(&configuration.value, "webhooks").len();
        let configuration = configuration.clone();
        (0..count).map(move |index| Hook { configuration: configuration.clone(), index, mutates })
    };
    configurations.flat_map(hooks).collect()
}

impl Hook {
    fn value(&self) -> &Value {
        array(&self.configuration.value, "webhooks").get(self.index).unwrap_or(&Value::Null)
    }

    pub(super) fn name(&self) -> &str {
        text(self.value(), "name")
    }

    /// What tells it from all others.
    pub(super) fn id(&self) -> (String, usize) {
        (self.configuration.name().to_owned(), self.index)
    }

    pub(super) fn ignores_failures(&self) -> bool {
        self.value()["failurePolicy"] == "Ignore"
    }

    pub(super) fn is_asked_again(&self) -> bool {
        self.value()["reinvocationPolicy"] == "IfNeeded"
    }

    /// The resource as the webhook wants it, if it wants to be asked.
    pub(super) fn wants(
        &self,
        cluster: &Cluster,
        context: &Context<'_>,
        attributes: &Attributes,
        objects: Objects<'_>,
    ) -> Result<Option<Arc<Resource>>, Halt> {
        let hook = self.value();
        let Some(target) = matching(cluster, attributes, objects, array(hook, "rules"), &hook["matchPolicy"]) else {
            return Ok(None);
        };
        if !selects(cluster, attributes, objects, hook)? {
            return Ok(None);
        }
        let conditions = array(hook, "matchConditions");
        if conditions.is_empty() {
            return Ok(Some(target));
        }
        match Scope::new(cluster, context, attributes, &target, objects)?.holds(conditions) {
            Ok(holds) => Ok(holds.then_some(target)),
            Err(_) if self.ignores_failures() => Ok(None),
            Err(why) => Err(forbidden(attributes, objects.new.or(objects.old).unwrap_or(&Value::Null), &why)),
        }
    }

    /// The checked response of the webhook.
    pub(super) fn ask(
        &self,
        cluster: &mut Cluster,
        context: &Context<'_>,
        attributes: &Attributes,
        target: &Resource,
        objects: Objects<'_>,
    ) -> Result<Value, Failure> {
        let (hook, name) = (self.value(), self.name());
        if context.dry_run && !matches!(text(hook, "sideEffects"), "None" | "NoneOnDryRun") {
            let message = format!("admission webhook {name:?} does not support dry run");
            return Err(Failure::Halt(Status::bad_request(message).into()));
        }
        let mut said = array(hook, "admissionReviewVersions").iter().filter_map(Value::as_str);
        let version = said.find(|version| VERSIONS.contains(version)).ok_or_else(|| {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Failure::Call(format!("could not create admission objects: {why}"))
        })?;
        let uid = uid::uid(cluster);
        let request = request(cluster, context, attributes, target, objects, &uid)?;
        let api_version = format!("admission.k8s.io/{version}");
        let review = json!({"kind": "AdmissionReview", "apiVersion": api_version, "request": request});
        let timeout = hook["timeoutSeconds"].as_u64().unwrap_or(10);
        let answer = webhook::ask(&hook["clientConfig"], review, timeout, context.answers)?;
        let mut answer = answer.map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
        self.check(&answer, version, &uid)
            .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))?;
        let response = answer["response"].take();
        for warning in array(&response, "warnings").iter().filter_map(Value::as_str) {
            context.warn(warning);
        }
        if response["allowed"] == true { Ok(response) } else { Err(Failure::Halt(rejection(name, &response).into())) }
    }

    fn check(&self, answer: &Value, version: &str, uid: &str) -> Result<(), String> {
        let response = &answer["response"];
        if !response.is_object() {
            return Err("webhook response was absent".to_owned());
        }
        if version != "v1" {
            return Ok(());
        }
        if response["uid"] != uid {
            return Err(format!("expected response.uid={uid:?}, got {:?}", text(response, "uid")));
        }
        let (api_version, kind) = (text(answer, "apiVersion"), text(answer, "kind"));
        if (api_version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
            let wanted = "admission.k8s.io/v1, Kind=AdmissionReview";
            return Err(format!("expected webhook response of {wanted}, got {api_version}, Kind={kind}"));
        }
        let (patch, patch_type) = (!text(response, "patch").is_empty(), !response["patchType"].is_null());
        let wrong = match (self.mutates, patch, patch_type) {
            (true, true, false) => "webhook returned response.patch but not response.patchType",
            (true, false, true) => "webhook returned response.patchType but not response.patch",
            (false, true, _) => "validating webhook may not return response.patch",
            (false, _, true) => "validating webhook may not return response.patchType",
            _ => return Ok(()),
        };
        Err(wrong.to_owned())
    }
}

/// Reasons that clients know; of another one the code and the message are left.
const REASONS: [&str; 20] = [
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
    "StoreReadError",
    "Unknown",
];

/// A reason by its text.
pub(super) fn reason(text: &str) -> &'static str {
    REASONS.into_iter().find(|known| *known == text).unwrap_or_default()
}

fn rejection(name: &str, response: &Value) -> Status {
    let said = &response["status"];
    let (message, because) = (text(said, "message"), text(said, "reason"));
    let denied = format!("admission webhook {name:?} denied the request");
    let message = match (message, because) {
        ("", "") => format!("{denied} without explanation"),
        ("", because) => format!("{denied}: {because}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = said["code"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or(0);
    let mut status = Status::bad_request(message);
    status.reason = reason(because);
    status.code = if code < 400 { 400 } else { code };
    status.details = said.get("details").filter(|details| details.is_object()).cloned();
    status
}
