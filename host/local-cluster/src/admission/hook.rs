//! One webhook of a configuration: whether it is to be asked, and asking it. Input: attributes and objects. Output: the
//! response of its review, or why there is none. It must not know what the response changes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::reading::{array, kind, text};
use crate::halt::{Answer, Halt, Status};
use crate::resource::{Resource, Storage};
use crate::rest::{Attributes, Context};
use crate::selector::Labels;
use crate::store::Object;
use crate::{Cluster, definition, scale, uid, webhook};

pub(super) const GROUP: &str = "admissionregistration.k8s.io";
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// One webhook, in its place in a configuration.
#[derive(Clone)]
pub(super) struct Hook {
    configuration: Arc<Object>,
    index: usize,
    mutates: bool,
}

/// The objects of a request.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) new: Option<&'a Value>,
    pub(super) old: Option<&'a Value>,
}

impl Objects<'_> {
    pub(super) fn operation(&self) -> &'static str {
        match (self.new, self.old) {
            (None, _) => "DELETE",
            (_, None) => "CREATE",
            _ => "UPDATE",
        }
    }
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

/// Admission configurations are never admitted by what they configure.
pub(super) fn is_exempt(attributes: &Attributes) -> bool {
    let (group, plural) = kind(attributes);
    group == GROUP && (plural.contains("webhookconfiguration") || plural.contains("admissionpolic"))
}

/// The namespace of a request, which of a Namespace is the Namespace itself.
pub(super) fn namespace<'a>(attributes: &'a Attributes, objects: Objects<'a>) -> &'a str {
    if kind(attributes) != ("", "namespaces") {
        return &attributes.namespace;
    }
    let name = objects.new.or(objects.old).map_or("", |object| text(&object["metadata"], "name"));
    if attributes.name.is_empty() { name } else { &attributes.name }
}

/// Whether a `namespaceSelector` and an `objectSelector` select the request.
pub(super) fn selects(
    cluster: &Cluster,
    attributes: &Attributes,
    objects: Objects<'_>,
    selectors: &Value,
) -> Result<bool, Halt> {
    let of_object = Labels::read(&selectors["objectSelector"]);
    let has = |object: Option<&Value>| object.is_some_and(|object| of_object.matches(&object["metadata"]["labels"]));
    if !of_object.0.is_empty() && !has(objects.new) && !has(objects.old) {
        return Ok(false);
    }
    let of_namespace = Labels::read(&selectors["namespaceSelector"]);
    let name = namespace(attributes, objects);
    if of_namespace.0.is_empty() || name.is_empty() {
        return Ok(true);
    }
    if let (("", "namespaces"), "", Some(new)) = (kind(attributes), attributes.subresource.as_str(), objects.new) {
        return Ok(of_namespace.matches(&new["metadata"]["labels"]));
    }
    let found = cluster.store.get(&Storage::new("", "namespaces"), "", name);
    let found = found.ok_or_else(|| Status::not_found("", "namespaces", name))?;
    Ok(of_namespace.matches(&found.value["metadata"]["labels"]))
}

/// The resource, in the version that one of the rules has: the request's own, or by `matchPolicy: Equivalent` another one.
pub(super) fn matching(
    cluster: &Cluster,
    attributes: &Attributes,
    objects: Objects<'_>,
    rules: &[Value],
    policy: &Value,
) -> Option<Arc<Resource>> {
    let own = &attributes.resource;
    let fits = |resource: &Resource| rules.iter().any(|rule| rule_fits(rule, resource, attributes, objects));
    if fits(own) {
        return Some(own.clone());
    }
    if policy == "Exact" {
        return None;
    }
    let mut others = cluster.resources().filter(|other| other.storage == own.storage && other.version != own.version);
    others.find(|other| fits(other)).cloned()
}

fn rule_fits(rule: &Value, resource: &Resource, attributes: &Attributes, objects: Objects<'_>) -> bool {
    let has = |key: &str, wanted: &str| array(rule, key).iter().any(|known| known == "*" || known == wanted);
    let in_namespace = kind(attributes) != ("", "namespaces") && !attributes.namespace.is_empty();
    let scope = match text(rule, "scope") {
        "Namespaced" => in_namespace,
        "Cluster" => !in_namespace,
        _ => true,
    };
    let resources = array(rule, "resources").iter().filter_map(Value::as_str).any(|known| {
        let (plural, subresource) = known.split_once('/').unwrap_or((known, ""));
        (plural == "*" || plural == &*resource.plural) && (subresource == "*" || subresource == attributes.subresource)
    });
    let name = array(rule, "resourceNames").is_empty() || has("resourceNames", &attributes.name);
    scope
        && resources
        && name
        && has("operations", objects.operation())
        && has("apiGroups", &resource.group)
        && has("apiVersions", &resource.version)
}

/// An object as reviews show it: in the version that was matched, and as its subresource.
pub(super) fn shown(
    cluster: &Cluster,
    attributes: &Attributes,
    target: &Resource,
    object: &Value,
    answers: &[Answer],
) -> Result<Value, Halt> {
    if attributes.subresource == "scale" {
        return Ok(scale::of(&attributes.resource, object));
    }
    if target.version == attributes.resource.version
        || attributes.verb == "create" && !attributes.subresource.is_empty()
    {
        return Ok(object.clone());
    }
    Ok(definition::at_version(cluster, target, object, answers)?.into_owned())
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
        attributes: &Attributes,
        objects: Objects<'_>,
    ) -> Result<Option<Arc<Resource>>, Halt> {
        let hook = self.value();
        let Some(target) = matching(cluster, attributes, objects, array(hook, "rules"), &hook["matchPolicy"]) else {
            return Ok(None);
        };
        Ok(selects(cluster, attributes, objects, hook)?.then_some(target))
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

fn request(
    cluster: &Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    target: &Resource,
    objects: Objects<'_>,
    uid: &str,
) -> Result<Value, Halt> {
    let kind = |resource: &Resource| match resource.subresource(&attributes.subresource) {
        Some(of) => json!({"group": &*of.group, "version": &*of.version, "kind": &*of.kind}),
        None => json!({"group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind}),
    };
    let plural = |resource: &Resource| json!({"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural});
    let view =
        |object: Option<&Value>| object.map_or(Ok(Value::Null), |object| shown(cluster, attributes, target, object, context.answers));
    let operation = objects.operation();
    let mut user = json!({});
    for (key, value) in [("username", &context.user.name), ("uid", &context.user.uid)] {
        if !value.is_empty() {
            user[key] = value.clone().into();
        }
    }
    if !context.user.groups.is_empty() {
        user["groups"] = json!(context.user.groups);
    }
    if !context.user.extra.is_empty() {
        user["extra"] = context.user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
    }
    let mut options = json!({"apiVersion": "meta.k8s.io/v1"});
    options["kind"] = match operation {
        "DELETE" => "DeleteOptions".into(),
        "CREATE" => "CreateOptions".into(),
        _ => "UpdateOptions".into(),
    };
    if operation != "DELETE" && !context.manager.is_empty() {
        options["fieldManager"] = context.manager.clone().into();
    }
    if context.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    let own = &attributes.resource;
    let mut request = json!({
        "uid": uid, "kind": kind(target), "resource": plural(target), "requestKind": kind(own), "requestResource": plural(own),
        "operation": operation, "userInfo": user, "object": view(objects.new)?, "oldObject": view(objects.old)?,
        "dryRun": context.dry_run, "options": options,
    });
    let stored = objects.new.or(objects.old).map_or("", |object| text(&object["metadata"], "name"));
    let name = if attributes.name.is_empty() { stored } else { &attributes.name };
    let subresource = attributes.subresource.as_str();
    let optional = [
        ("name", name),
        ("namespace", namespace(attributes, objects)),
        ("subResource", subresource),
        ("requestSubResource", subresource),
    ];
    for (key, value) in optional.into_iter().filter(|(_, value)| !value.is_empty()) {
        request[key] = value.into();
    }
    Ok(request)
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
