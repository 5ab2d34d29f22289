//! Objects in other versions of their kind: renamed, or converted by a webhook. Input: objects, and what webhooks answered.
//! Output: the objects in the wanted version, or the call that must be made first. It must not know verbs.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::field::{array, storage_version, text};
use crate::halt::{Answer, Halt, Status};
use crate::resource::Resource;
use crate::{Cluster, builtin_versions, uid, webhook};

/// How long a conversion webhook may take.
const TIMEOUT_SECONDS: u64 = 30;

/// A stored object in the version of a resource. Conversion may have to ask a webhook.
pub(crate) fn at_version<'a>(
    cluster: &Cluster,
    resource: &Resource,
    stored: &'a Value,
    answers: &[Answer],
) -> Result<Cow<'a, Value>, Halt> {
    let mut converted = all_at_version(cluster, resource, &[stored], answers)?;
    Ok(converted.pop().unwrap_or(Cow::Borrowed(stored)))
}

/// Stored objects in the version of a resource; a webhook converts them in one call.
pub(crate) fn all_at_version<'a>(
    _cluster: &Cluster,
    resource: &Resource,
    stored: &[&'a Value],
    answers: &[Answer],
) -> Result<Vec<Cow<'a, Value>>, Halt> {
    let Some(version) = &resource.custom else {
        return Ok(stored.iter().map(|object| builtin_versions::at_version(resource, object)).collect());
    };
    let as_they_are = || stored.iter().map(|object| Cow::Borrowed(*object)).collect();
    let wanted = resource.api_version();
    let other: Vec<&Value> = stored.iter().copied().filter(|object| object["apiVersion"] != *wanted).collect();
    if other.is_empty() {
        return Ok(as_they_are());
    }
    let mut converted = convert(&version.definition, &other, &wanted, answers)?.into_iter();
    let one = |object: &&'a Value| {
        if object["apiVersion"] == *wanted {
            return Cow::Borrowed(*object);
        }
        converted.next().map_or(Cow::Borrowed(*object), Cow::Owned)
    };
    Ok(stored.iter().map(one).collect())
}

/// An object in the version that its kind is stored in.
pub(crate) fn for_storage(
    _cluster: &Cluster,
    resource: &Resource,
    object: Value,
    answers: &[Answer],
) -> Result<Value, Halt> {
    let Some(version) = &resource.custom else { return Ok(builtin_versions::for_storage(resource, object)) };
    let stored = storage_version(&version.definition).unwrap_or(&version.name);
    let wanted = format!("{}/{stored}", resource.group);
    if object["apiVersion"] == *wanted {
        return Ok(object);
    }
    let mut converted = convert(&version.definition, &[&object], &wanted, answers)?;
    Ok(converted.pop().unwrap_or(object))
}

fn convert(definition: &Value, objects: &[&Value], wanted: &str, answers: &[Answer]) -> Result<Vec<Value>, Halt> {
    let conversion = &definition["spec"]["conversion"];
    if conversion["strategy"] != "Webhook" {
        let renamed = objects.iter().map(|object| {
            let mut renamed = (*object).clone();
            if let Some(fields) = renamed.as_object_mut() {
                fields.insert("apiVersion".to_owned(), wanted.into());
            }
            renamed
        });
        return Ok(renamed.collect());
    }
    let kind = format!("{}, Kind={}", text(objects[0], "apiVersion"), text(objects[0], "kind"));
    let webhook = &conversion["webhook"];
    let review = review(webhook, objects, wanted);
    let asked = text(&review["request"], "uid").to_owned();
    let answer = webhook::ask(&webhook["clientConfig"], review, TIMEOUT_SECONDS, answers)?;
    let failed = |error: &str| failure(format!("conversion webhook for {kind} failed: {error}"));
    let review = answer.map_err(|error| failed(&error))?;
    let converted = response(&review, &asked).map_err(|error| failed(&error))?;
    if converted.len() != objects.len() {
        let (found, expected) = (converted.len(), objects.len());
        let message = format!("conversion webhook for {kind} returned {found} objects, expected {expected}");
        return Err(failure(message));
    }
    let pairs = objects.iter().zip(converted).enumerate();
    let one = |(at, (original, converted)): (usize, (&&Value, &Value))| {
        checked(original, converted, wanted).map_err(|error| {
            failure(format!("conversion webhook for {kind} returned invalid converted object at index {at}: {error}"))
        })
    };
    pairs.map(one).collect()
}

/// A conversion that failed is a fault of the cluster, without a reason of its own.
fn failure(message: String) -> Halt {
    let mut status = Status::bad_request(message);
    (status.code, status.reason) = (500, "");
    status.into()
}

fn review(webhook: &Value, objects: &[&Value], wanted: &str) -> Value {
    let mut versions = array(webhook, "conversionReviewVersions").iter().filter_map(Value::as_str);
    let version = versions.find(|version| matches!(*version, "v1" | "v1beta1")).unwrap_or("v1");
    let mut request = json!({"desiredAPIVersion": wanted, "objects": objects});
    // The same objects are asked for under the same UID, so that the answer is found when all is tried again.
    request["uid"] = uid::of(request.to_string().as_bytes()).into();
    json!({"apiVersion": format!("apiextensions.k8s.io/{version}"), "kind": "ConversionReview", "request": request})
}

/// The converted objects of a review, or why there are none.
fn response<'a>(review: &'a Value, uid: &str) -> Result<&'a [Value], String> {
    let response = review.get("response").filter(|response| response.is_object()).ok_or("no response provided")?;
    let (group_version, kind) = (text(review, "apiVersion"), text(review, "kind"));
    if group_version != "apiextensions.k8s.io/v1beta1" {
        let known = "apiextensions.k8s.io/v1, Kind=ConversionReview";
        let found = format!("{group_version}, Kind={kind}");
        if found != known {
            return Err(format!("expected webhook response of {known}, got {found}"));
        }
        let found = text(response, "uid");
        if found != uid {
            return Err(format!("expected response.uid={uid:?}, got {found:?}"));
        }
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        let message = text(result, "message");
        let status = format!("response.result.status was '{}', not 'Success'", text(result, "status"));
        return Err(if message.is_empty() { status } else { message.to_owned() });
    }
    Ok(array(response, "convertedObjects"))
}

/// A converted object with the metadata of the original, besides labels and annotations.
fn checked(original: &Value, converted: &Value, wanted: &str) -> Result<Value, String> {
    let found = text(converted, "apiVersion");
    if found != wanted {
        return Err(format!("invalid groupVersion (expected {wanted}, received {found})"));
    }
    if converted["kind"] != original["kind"] {
        let (expected, received) = (text(original, "kind"), text(converted, "kind"));
        return Err(format!("invalid kind (expected {expected}, received {received})"));
    }
    let Some(new) = converted["metadata"].as_object() else {
        return Err("missing metadata in converted object".to_owned());
    };
    let old = &original["metadata"];
    for (key, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, found) = (text(old, key), new.get(key).and_then(Value::as_str).unwrap_or_default());
        if expected != found {
            return Err(format!("must have the same {name}: {expected} != {found}"));
        }
    }
    let mut metadata: Map<String, Value> = old.as_object().cloned().unwrap_or_default();
    for key in ["labels", "annotations"] {
        match new.get(key) {
            None | Some(Value::Null) => drop(metadata.remove(key)),
            Some(Value::Object(entries)) => {
                if let Some((name, _)) = entries.iter().find(|(_, value)| !value.is_string()) {
                    return Err(format!("metadata.{key}[{name}] must be a string in converted object"));
                }
                metadata.insert(key.to_owned(), Value::Object(entries.clone()));
            }
            Some(_) => return Err(format!("invalid metadata.{key} in converted object")),
        }
    }
    let mut object = converted.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.insert("metadata".to_owned(), Value::Object(metadata));
    }
    Ok(object)
}
