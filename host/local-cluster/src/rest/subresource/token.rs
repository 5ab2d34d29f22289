//! serviceaccounts/token: a token for a ServiceAccount. Input: a TokenRequest. Output: the same with its token. It must not
//! know what is in a token.

use serde_json::{Value, json};

use super::posted::{admit, document};
use crate::access::{AUDIENCE, Bound, Claims, issue};
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::request::{Request, Response};
use crate::resource::{Storage, group_version};
use crate::store::Object;
use crate::{Cluster, time};

const GROUP: &str = "authentication.k8s.io";
/// How long a token lasts that does not say.
const DEFAULT_SECONDS: i64 = 60 * 60;
const MIN_SECONDS: i64 = 10 * 60;
const MAX_SECONDS: i64 = 1 << 32;

pub(super) fn create(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let mut asked = document(request, "authentication.k8s.io/v1", "TokenRequest")?;
    let (namespace, name) = (&attributes.namespace, &attributes.name);
    let wrong = |name: &str, field: &str, value: &Value, message: &str| {
        let message = format!("Invalid value: {value}: {message}");
        let cause = Cause { reason: "FieldValueInvalid", message, field: field.to_owned() };
        Err(Halt::from(Status::invalid(GROUP, "TokenRequest", name, &[cause])))
    };
    for (key, own) in [("name", name), ("namespace", namespace)] {
        let said = &asked["metadata"][key];
        if said.as_str().is_some_and(|said| !said.is_empty() && said != own) {
            let message = format!("must match the service account {key} if specified");
            return wrong(name, &format!("metadata.{key}"), said, &message);
        }
    }
    let account = cluster.store.get(&attributes.resource.storage, namespace, name).cloned();
    let account = account.ok_or_else(|| attributes.not_found())?;
    if let Some(uid) = asked["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty() && *uid != account.uid()) {
        let found = account.uid();
        let why =
            format!("the UID in the token request ({uid}) does not match the UID of the service account ({found})");
        return Err(Status::conflict(GROUP, "TokenRequest", name, &why).into());
    }
    if !asked["spec"].is_object() {
        asked["spec"] = json!({});
    }
    if asked["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
        asked["spec"]["audiences"] = json!([AUDIENCE]);
    }
    let lasts_seconds = asked["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    asked["spec"]["expirationSeconds"] = lasts_seconds.into();
    let metadata = json!({
        "name": name, "namespace": namespace, "uid": account.uid(), "creationTimestamp": time::seconds(context.now),
    });
    asked["metadata"] = metadata;
    if !(MIN_SECONDS..=MAX_SECONDS).contains(&lasts_seconds) {
        let limit = if lasts_seconds < MIN_SECONDS { "less than 10 minutes" } else { "larger than 2^32 seconds" };
        let message = format!("may not specify a duration {limit}");
        return wrong("", "spec.expirationSeconds", &lasts_seconds.into(), &message);
    }
    admit(cluster, context, attributes, &mut asked)?;
    let bound = bound(cluster, attributes, &asked["spec"]["boundObjectRef"])?;
    let audiences = asked["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let audiences: Vec<String> = audiences.map(str::to_owned).collect();
    let claims =
        Claims { namespace, account: name, account_uid: account.uid(), audiences: &audiences, lasts_seconds, bound };
    let token = issue(cluster, &claims, context.now);
    let expires = context.now.checked_add(jiff::SignedDuration::from_secs(lasts_seconds)).unwrap_or(context.now);
    asked["status"] = json!({"token": token, "expirationTimestamp": time::seconds(expires)});
    Ok(Response::json(201, asked))
}

/// The objects that a token lives as long as: of a Pod its node besides.
fn bound(cluster: &Cluster, attributes: &Attributes, reference: &Value) -> Result<Vec<Bound>, Halt> {
    if reference.is_null() {
        return Ok(Vec::new());
    }
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let find = |plural: &str, namespace: &str, name: &str| {
        let found = cluster.store.get(&Storage::new("", plural), namespace, name);
        found.cloned().ok_or_else(|| Halt::from(Status::not_found("", plural, name)))
    };
    let of = |kind, object: &Object| Bound { kind, name: object.name().to_owned(), uid: object.uid().to_owned() };
    let (group, version) = group_version(text("apiVersion"));
    let namespace = &attributes.namespace;
    let mut all = match (group, text("kind")) {
        ("", "Pod") => {
            let pod = find("pods", namespace, text("name"))?;
            if pod.value["spec"]["serviceAccountName"] != attributes.name.as_str() {
                let name = &attributes.name;
                let message = format!(
                    "cannot bind token for serviceaccount {name:?} to pod running with different serviceaccount name."
                );
                return Err(Status::bad_request(message).into());
            }
            let mut all = vec![of("pod", &pod)];
            if let Some(node) = pod.value["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
                let found = find("nodes", "", node).map(|node| of("node", &node));
                all.push(found.unwrap_or(Bound { kind: "node", name: node.to_owned(), uid: String::new() }));
            }
            all
        }
        ("", "Node") => vec![of("node", &*find("nodes", "", text("name"))?)],
        ("", "Secret") => vec![of("secret", &*find("secrets", namespace, text("name"))?)],
        (group, kind) => {
            let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(message).into());
        }
    };
    let uid = text("uid");
    if let Some(first) = all.first_mut().filter(|first| !uid.is_empty() && first.uid != uid) {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::conflict("", text("kind"), &first.name, &why).into());
    }
    Ok(all)
}
