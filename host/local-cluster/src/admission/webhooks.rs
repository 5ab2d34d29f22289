//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations: which webhooks are asked, in which order and how often,
//! and what their responses do. Input: attributes and objects. Output: the patched object, or a refusal. It must not know
//! how a webhook is asked.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::hook::{self, Failure, Hook};
use super::matching::{self, Objects};
use super::reading::text;
use super::review;
use super::rounds::Rounds;
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Answer, Halt, Status};
use crate::resource::Resource;
use crate::{Cluster, scale};

/// Asks the mutating webhooks one after the other.
pub(super) fn mutate(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: &mut Value,
    old: Option<&Value>,
    rounds: &mut Rounds,
) -> Result<(), Halt> {
    if matching::is_exempt(attributes) {
        return Ok(());
    }
    for hook in hook::all(cluster, true) {
        let objects = Objects { new: Some(&*object), old };
        let Some(target) = hook.wants(cluster, context, attributes, objects)? else { continue };
        if !rounds.asks(&hook.id()) {
            continue;
        }
        let answer = hook.ask(cluster, context, attributes, &target, objects);
        let Some(response) = settled(&hook, answer)? else { continue };
        let patched = patched(cluster, attributes, &target, &hook, (&*object, &response), context.answers);
        if let Some(patched) = settled(&hook, patched)?.flatten().filter(|patched| patched != object) {
            *object = patched;
            rounds.changes();
        }
        rounds.asked(hook.id(), hook.is_asked_again());
    }
    rounds.end(object);
    Ok(())
}

/// Asks the mutating webhooks about a deletion, which they cannot change.
pub(super) fn before_delete(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    old: Option<&Value>,
) -> Result<(), Halt> {
    each(cluster, context, attributes, Objects { new: None, old }, true)
}

/// Asks the validating webhooks.
pub(super) fn validate(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Halt> {
    each(cluster, context, attributes, Objects { new: object, old }, false)
}

fn each(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    objects: Objects<'_>,
    mutating: bool,
) -> Result<(), Halt> {
    if matching::is_exempt(attributes) {
        return Ok(());
    }
    for hook in hook::all(cluster, mutating) {
        if let Some(target) = hook.wants(cluster, context, attributes, objects)? {
            let answer = hook.ask(cluster, context, attributes, &target, objects);
            let patch = settled(&hook, answer)?.is_some_and(|response| !text(&response, "patch").is_empty());
            if patch {
                let name = hook.name();
                let why = "attempted to modify the object, which is not supported for this operation";
                return Err(Status::internal(format!("admission webhook {name:?} {why}")).into());
            }
        }
    }
    Ok(())
}

/// What a webhook's failure policy makes of a failure: an internal error, or nothing.
fn settled<T>(hook: &Hook, result: Result<T, Failure>) -> Result<Option<T>, Halt> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Call(_)) if hook.ignores_failures() => Ok(None),
        Err(Failure::Call(why)) => {
            Err(Status::internal(format!("failed calling webhook {:?}: {why}", hook.name())).into())
        }
        Err(Failure::Halt(halt)) => Err(halt),
    }
}

/// The object after the patch of a response; none without a patch.
fn patched(
    cluster: &Cluster,
    attributes: &Attributes,
    target: &Resource,
    hook: &Hook,
    (object, response): (&Value, &Value),
    answers: &[Answer],
) -> Result<Option<Value>, Failure> {
    let encoded = text(response, "patch");
    if encoded.is_empty() {
        return Ok(None);
    }
    let undecodable = |error: &dyn std::fmt::Display| {
        Failure::Call(format!("received undecodable patch in webhook response: {error}"))
    };
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|error| undecodable(&error))?;
    let patch: json_patch::Patch = serde_json::from_slice(&bytes).map_err(|error| undecodable(&error))?;
    let patch_type = response["patchType"].as_str().unwrap_or("JSONPatch");
    if patch_type != "JSONPatch" {
        return Err(Failure::Call(format!("unsupported patch type {patch_type:?}")));
    }
    let mut new = review::shown(cluster, attributes, target, object, answers)?;
    let refused = |error| Failure::Halt(Status::internal(format!("{}: {error}", hook.name())).into());
    json_patch::patch(&mut new, &patch).map_err(refused)?;
    if attributes.subresource == "scale" {
        let mut scaled = object.clone();
        scale::set_replicas(&attributes.resource, &mut scaled, new["spec"]["replicas"].as_i64().unwrap_or(0));
        return Ok(Some(scaled));
    }
    Ok(Some(review::taken_back(cluster, attributes, target, new, answers)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Method::{Delete, Post};
    use crate::resource::Storage;
    use crate::testing::{ask, quiet, request, start};
    use crate::{Call, Method, Reply, Response};

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn configure(cluster: &mut Cluster, kind: &str, hooks: &Value) {
        let plural = format!("{}s", kind.to_lowercase());
        let body = json!({"metadata": {"name": "c"}, "webhooks": hooks});
        let (code, made) = ask(cluster, Post, &format!("/apis/admissionregistration.k8s.io/v1/{plural}"), &body);
        assert_eq!(code, 201, "{made}");
    }

    fn hook(name: &str) -> Value {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
            "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/hook"}, "caBundle": "Q0E="},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "DELETE"], "resources": ["configmaps"]}],
        })
    }

    /// Makes a request as often as it takes, with what `respond` answers to each call.
    fn with(
        cluster: &mut Cluster,
        (method, target, body): (Method, &str, &Value),
        mut respond: impl FnMut(&Call) -> Result<Value, String>,
    ) -> (Response, Vec<Call>) {
        let request = request(method, target, &[], body);
        let (mut answers, mut now) = (Vec::new(), start());
        for _ in 0..10 {
            match cluster.request(&request, &answers, now) {
                Reply::Done(response) => {
                    return (response, answers.into_iter().map(|answer: Answer| answer.call).collect());
                }
                Reply::Call(call) => {
                    let result = respond(&call);
                    answers.push(Answer { call: *call, result });
                }
            }
            // Others write between the tries, and time passes.
            ask(cluster, Post, "/api/v1/namespaces", &json!({"metadata": {"generateName": "x"}}));
            now += jiff::SignedDuration::from_secs(3);
        }
        panic!("the request asks without end");
    }

    fn allowed(call: &Call, more: &Value) -> Value {
        let mut response = json!({"uid": call.review["request"]["uid"], "allowed": true});
        for (key, value) in more.as_object().into_iter().flatten() {
            response[key.as_str()] = value.clone();
        }
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    fn value(response: Response) -> Value {
        response.body.document().unwrap()
    }

    #[test]
    fn a_patch_changes_the_object_and_the_review_says_what_is_asked() {
        let mut cluster = quiet();
        configure(&mut cluster, "MutatingWebhookConfiguration", &json!([hook("a.b.c")]));
        let patch = BASE64_STANDARD.encode(json!([{"op": "add", "path": "/data", "value": {"k": "v"}}]).to_string());
        let create = (
            Post,
            "/api/v1/namespaces/default/configmaps?fieldManager=x",
            &json!({"metadata": {"generateName": "m-"}}),
        );
        let (response, calls) = with(&mut cluster, create, |call| {
            Ok(allowed(call, &json!({"patch": patch, "patchType": "JSONPatch", "warnings": ["careful"]})))
        });
        assert_eq!(response.headers, [("Warning", "299 - \"careful\"".to_owned())]);
        let made = value(response);
        assert_eq!((&made["data"], calls.len()), (&json!({"k": "v"}), 1));
        assert_eq!(made["metadata"]["creationTimestamp"], json!("2026-01-01T00:00:00Z"));
        let Call { url, ca_bundle, server_name, review, .. } = &calls[0];
        assert_eq!((url.as_str(), ca_bundle.as_slice()), ("https://s.n.svc:443/hook?timeout=5s", &b"CA"[..]));
        assert_eq!(server_name.as_deref(), Some("s.n.svc"));
        let mut asked = review["request"].clone();
        assert!(
            asked["uid"].take().is_string()
                && asked["object"].take().is_object()
                && asked["userInfo"].take().is_object()
        );
        let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
        let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
        let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "x"});
        assert_eq!(
            asked,
            json!({
                "uid": null, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
                "namespace": "default", "operation": "CREATE", "userInfo": null, "object": null, "oldObject": null,
                "dryRun": false, "options": options,
            })
        );
        assert!(review["request"]["object"]["metadata"]["uid"].is_null());
    }

    #[test]
    fn a_webhook_refuses_or_fails_in_the_words_of_the_api_server() {
        let cases: [(Result<Value, String>, u16, &str, &str); 6] = [
            (
                Ok(json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "no"}})),
                403,
                "Forbidden",
                "admission webhook \"a.b.c\" denied the request: no",
            ),
            (
                Ok(json!({"allowed": false})),
                400,
                "",
                "admission webhook \"a.b.c\" denied the request without explanation",
            ),
            (
                Ok(json!({"allowed": true, "uid": "x"})),
                500,
                "InternalError",
                "Internal error occurred: failed calling webhook \"a.b.c\": received invalid webhook response: expected response.uid=\"UID\", got \"x\"",
            ),
            (
                Ok(json!({"allowed": true, "patch": "W10="})),
                500,
                "InternalError",
                "Internal error occurred: failed calling webhook \"a.b.c\": received invalid webhook response: validating webhook may not return response.patch",
            ),
            (
                Ok(json!(null)),
                500,
                "InternalError",
                "Internal error occurred: failed calling webhook \"a.b.c\": received invalid webhook response: webhook response was absent",
            ),
            (
                Err("refused".to_owned()),
                500,
                "InternalError",
                "Internal error occurred: failed calling webhook \"a.b.c\": failed to call webhook: refused",
            ),
        ];
        for (answer, code, reason, message) in cases {
            let mut cluster = quiet();
            configure(&mut cluster, "ValidatingWebhookConfiguration", &json!([hook("a.b.c")]));
            let mut uid = String::new();
            let create = (Post, MAPS, &json!({"metadata": {"name": "m"}}));
            let (response, _) = with(&mut cluster, create, |call| {
                uid = call.review["request"]["uid"].as_str().unwrap().to_owned();
                let answer = answer.clone()?;
                Ok(if answer.is_null() { json!({"kind": "AdmissionReview"}) } else { allowed(call, &answer) })
            });
            let status = value(response);
            assert_eq!((&status["code"], status["reason"].as_str().unwrap_or_default()), (&json!(code), reason));
            assert_eq!(status["message"].as_str().unwrap(), message.replace("UID", &uid));
        }
    }

    #[test]
    fn selectors_policies_and_dry_runs_decide_whether_a_webhook_is_asked() {
        let create = |labels: Value| json!({"metadata": {"name": "m", "labels": labels}});
        let cases = [
            (json!({"objectSelector": {"matchLabels": {"a": "b"}}}), json!({}), "", 201, 0),
            (json!({"objectSelector": {"matchLabels": {"a": "b"}}}), json!({"a": "b"}), "", 500, 1),
            (json!({"namespaceSelector": {"matchLabels": {"a": "b"}}}), json!({}), "", 201, 0),
            (json!({"failurePolicy": "Ignore"}), json!({}), "", 201, 1),
            (
                json!({"matchConditions": [{"name": "x", "expression": "object.metadata.name == 'x'"}]}),
                json!({}),
                "",
                201,
                0,
            ),
            (
                json!({"matchConditions": [{"name": "x", "expression": "object.data.gone == 'x'"}]}),
                json!({}),
                "",
                403,
                0,
            ),
            (
                json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": "Cluster"}]}),
                json!({}),
                "",
                201,
                0,
            ),
            (
                json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]}),
                json!({}),
                "",
                500,
                1,
            ),
        ];
        for (more, labels, query, code, calls) in cases {
            let mut cluster = quiet();
            let mut one = hook("a.b.c");
            for (key, value) in more.as_object().unwrap() {
                one[key.as_str()] = value.clone();
            }
            configure(&mut cluster, "ValidatingWebhookConfiguration", &json!([one]));
            // The namespaces that the tries make between them must not be asked about.
            let target = format!("{MAPS}{query}");
            let request = request(Post, &target, &[], &create(labels));
            let mut answers = Vec::new();
            let response = loop {
                match cluster.request(&request, &answers, start()) {
                    Reply::Done(response) => break response,
                    Reply::Call(call) => answers.push(Answer { call: *call, result: Err("refused".to_owned()) }),
                }
            };
            assert_eq!((response.status, answers.len()), (code, calls), "{more}");
        }
    }

    #[test]
    fn a_dry_run_asks_no_webhook_with_side_effects() {
        let mut cluster = quiet();
        configure(&mut cluster, "ValidatingWebhookConfiguration", &json!([hook("a.b.c")]));
        // Only v1beta1 could say so: it is refused today, and stays in clusters that are old.
        let storage = Storage::new("admissionregistration.k8s.io", "validatingwebhookconfigurations");
        let mut old = cluster.store.get(&storage, "", "c").unwrap().value.clone();
        old["webhooks"][0]["sideEffects"] = "Some".into();
        cluster.store.put(&storage, old);
        let made = json!({"metadata": {"name": "m"}});
        let (code, answer) = ask(&mut cluster, Post, &format!("{MAPS}?dryRun=All"), &made);
        let message = "admission webhook \"a.b.c\" does not support dry run";
        assert_eq!((code, &answer["message"]), (400, &json!(message)));
    }

    #[test]
    fn a_webhook_that_wants_it_sees_what_a_later_one_changed() {
        let mut cluster = quiet();
        let mut first = hook("first.b.c");
        first["reinvocationPolicy"] = "IfNeeded".into();
        configure(&mut cluster, "MutatingWebhookConfiguration", &json!([first, hook("second.b.c")]));
        let patch = BASE64_STANDARD.encode(json!([{"op": "add", "path": "/data", "value": {"k": "v"}}]).to_string());
        let create = (Post, MAPS, &json!({"metadata": {"name": "m"}}));
        let mut count = 0;
        let (response, calls) = with(&mut cluster, create, |call| {
            count += 1;
            let more = if count == 2 { json!({"patch": patch, "patchType": "JSONPatch"}) } else { json!({}) };
            Ok(allowed(call, &more))
        });
        assert_eq!((response.status, calls.len()), (201, 3));
        assert_eq!(calls[2].review["request"]["object"]["data"], json!({"k": "v"}));
        let (response, calls) =
            with(&mut cluster, (Delete, &format!("{MAPS}/m"), &json!(null)), |call| Ok(allowed(call, &json!({}))));
        assert_eq!((response.status, calls.len()), (200, 2));
        assert_eq!(calls[0].review["request"]["oldObject"]["metadata"]["name"], json!("m"));
    }
}
