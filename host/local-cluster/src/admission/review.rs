//! The request of a review, as webhooks and expressions read it. Input: attributes and objects. Output: a JSON object. It must
//! not know who reads it.

use serde_json::{Value, json};

use super::matching::{Objects, namespace};
use super::reading::text;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Answer, Halt};
use crate::resource::Resource;
use crate::{Cluster, definition, scale, strategy};

/// The request of a review.
pub(super) fn request(
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
    let view = |object: Option<&Value>| {
        object.map_or(Ok(Value::Null), |object| shown(cluster, attributes, target, object, context.answers))
    };
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

/// A changed object that was shown so, in the request's version and with its defaults.
pub(super) fn taken_back(
    cluster: &Cluster,
    attributes: &Attributes,
    target: &Resource,
    mut changed: Value,
    answers: &[Answer],
) -> Result<Value, Halt> {
    let resource = &attributes.resource;
    if target.version != resource.version {
        changed = definition::at_version(cluster, resource, &changed, answers)?.into_owned();
    }
    if attributes.subresource.is_empty() {
        strategy::complete(resource, &mut changed, None);
    }
    Ok(changed)
}
