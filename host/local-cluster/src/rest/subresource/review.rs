//! Reviews: reads about access that store nothing. Input: a review. Output: the same with its status. It must not know
//! how the answers are found.

use serde_json::{Value, json};

use super::posted::{admit, document};
use crate::Cluster;
use crate::access::{self, AUDIENCE, Action};
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::managed_fields::{self, Operation};
use crate::request::{Request, Response};
use crate::time;
use crate::user::User;

pub(super) fn create(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
    plural: &str,
) -> Result<Response, Halt> {
    let resource = &attributes.resource;
    let mut review = document(request, &resource.api_version(), &resource.kind)?;
    if !matches!(plural, "selfsubjectrulesreviews" | "selfsubjectreviews") {
        let (manager, now) = (&context.manager, context.now);
        managed_fields::update(resource, None, &mut review, manager, Operation::Update, "", now);
    }
    match plural {
        "selfsubjectaccessreviews" | "subjectaccessreviews" | "localsubjectaccessreviews" => {
            check_access(attributes, &review)?;
        }
        "selfsubjectrulesreviews" if review["spec"]["namespace"].as_str().unwrap_or_default().is_empty() => {
            return Err(Status::bad_request("no namespace on request").into());
        }
        "tokenreviews" if review["spec"]["token"].as_str().unwrap_or_default().is_empty() => {
            let message = "token is required for TokenReview in authentication";
            return Err(Status::bad_request(message).into());
        }
        _ => {}
    }
    admit(cluster, context, attributes, &mut review)?;
    let status = match plural {
        "selfsubjectaccessreviews" => access_of(cluster, &context.user, &review["spec"]),
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            access_of(cluster, &subject(&review["spec"]), &review["spec"])
        }
        "selfsubjectrulesreviews" => {
            let namespace = review["spec"]["namespace"].as_str().unwrap_or_default().to_owned();
            review["spec"] = json!({});
            rules(cluster, &context.user, &namespace)
        }
        "selfsubjectreviews" => {
            review["metadata"]["creationTimestamp"] = time::seconds(context.now).into();
            json!({"userInfo": user_info(&context.user)})
        }
        _ => token_status(cluster, context, &review["spec"]),
    };
    review["status"] = status;
    Ok(Response::json(201, review))
}

/// A user as objects show one.
pub(super) fn user_info(user: &User) -> Value {
    let mut info = json!({});
    if !user.name.is_empty() {
        info["username"] = user.name.clone().into();
    }
    if !user.uid.is_empty() {
        info["uid"] = user.uid.clone().into();
    }
    if !user.groups.is_empty() {
        info["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        info["extra"] = user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
    }
    info
}

fn check_access(attributes: &Attributes, review: &Value) -> Result<(), Halt> {
    let (spec, local) = (&review["spec"], &*attributes.resource.plural == "localsubjectaccessreviews");
    let mut causes = Vec::new();
    let mut wrong = |field: &str, value: &Value, message: &str| {
        let message = format!("Invalid value: {value}: {message}");
        causes.push(Cause { reason: "FieldValueInvalid", message, field: field.to_owned() });
    };
    let (on_resource, on_path) = (spec["resourceAttributes"].is_object(), spec["nonResourceAttributes"].is_object());
    // As Go's internal type is written.
    let text = |key: &str| spec["nonResourceAttributes"][key].as_str().unwrap_or_default();
    let on_path_in_go = json!({"Path": text("path"), "Verb": text("verb")});
    if on_resource && on_path {
        let message = "cannot be specified in combination with resourceAttributes";
        wrong("spec.nonResourceAttributes", &on_path_in_go, message);
    }
    if !on_resource && !on_path {
        let message = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        wrong("spec.resourceAttributes", &Value::Null, message);
    }
    let names_nobody =
        spec["user"].as_str().unwrap_or_default().is_empty() && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if names_nobody && &*attributes.resource.plural != "selfsubjectaccessreviews" {
        wrong("spec.user", &json!(""), "at least one of user or group must be specified");
    }
    if local && on_resource && spec["resourceAttributes"]["namespace"] != attributes.namespace.as_str() {
        let found = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
        wrong("spec.resourceAttributes.namespace", &json!(found), "must match metadata.namespace");
    }
    if local && on_path {
        wrong("spec.nonResourceAttributes", &on_path_in_go, "disallowed on this kind of request");
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&attributes.resource.group, "", "", &causes).into())
}

fn subject(spec: &Value) -> User {
    let texts = |value: &Value| {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

fn access_of(cluster: &Cluster, user: &User, spec: &Value) -> Value {
    let (on_resource, on_path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |key: &str| on_resource[key].as_str().unwrap_or_default();
    let action = if on_path.is_object() {
        let path = on_path["path"].as_str().unwrap_or_default();
        Action { verb: on_path["verb"].as_str().unwrap_or_default(), path: Some(path), ..Action::default() }
    } else {
        Action {
            verb: text("verb"),
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            path: None,
        }
    };
    let decision = access::decide(cluster, user, &action);
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    status
}

fn rules(cluster: &Cluster, user: &User, namespace: &str) -> Value {
    let everything = json!([
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]);
    let all = if cluster.options.rbac { Value::Array(access::rules(cluster, user, namespace)) } else { everything };
    let (mut on_resources, mut on_paths) = (Vec::new(), Vec::new());
    for rule in all.as_array().into_iter().flatten() {
        let part = |keys: &[&str]| {
            let some = |key: &&str| rule.get(*key).map(|value| ((*key).to_owned(), value.clone()));
            Value::Object(keys.iter().filter_map(some).collect())
        };
        if rule["resources"].as_array().is_some_and(|list| !list.is_empty()) {
            on_resources.push(part(&["verbs", "apiGroups", "resources", "resourceNames"]));
        }
        if rule["nonResourceURLs"].as_array().is_some_and(|list| !list.is_empty()) {
            on_paths.push(part(&["verbs", "nonResourceURLs"]));
        }
    }
    json!({"resourceRules": on_resources, "nonResourceRules": on_paths, "incomplete": false})
}

fn token_status(cluster: &Cluster, context: &Context<'_>, spec: &Value) -> Value {
    let token = spec["token"].as_str().unwrap_or_default();
    match access::user_of(cluster, token, context.now) {
        Some(user) => json!({"authenticated": true, "user": user_info(&user), "audiences": [AUDIENCE]}),
        None => json!({"user": {}, "error": "invalid bearer token"}),
    }
}
