//! Server-side apply: what a manager owns, what conflicts, and what it takes away. Through requests.

use serde_json::{Value, json};

use crate::Cluster;
use crate::Method::{Get, Patch, Post};
use crate::testing::{ask, quiet, request, respond};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn apply(cluster: &mut Cluster, target: &str, body: &Value) -> (u16, Value) {
    let headers = [("content-type", "application/apply-patch+yaml")];
    let response = respond(cluster, &request(Patch, target, &headers, body));
    let value = response.body.document().unwrap();
    (response.status, value)
}

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn owners(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let name = |entry: &Value| {
        format!("{} {}", entry["manager"].as_str().unwrap_or_default(), entry["operation"].as_str().unwrap_or_default())
    };
    entries.iter().map(|entry| (name(entry), entry["fieldsV1"].clone())).collect()
}

#[test]
fn an_apply_creates_changes_and_removes() {
    let mut cluster = quiet();
    let target = format!("{MAPS}/m?fieldManager=a");
    let (code, made) = apply(&mut cluster, &target, &map("m", &json!({"x": "1", "y": "1"})));
    assert_eq!((code, &made["data"]), (201, &json!({"x": "1", "y": "1"})));
    assert_eq!(owners(&made), [("a Apply".to_owned(), json!({"f:data": {"f:x": {}, "f:y": {}}}))]);
    // What is applied again changes nothing.
    let (code, same) = apply(&mut cluster, &target, &map("m", &json!({"x": "1", "y": "1"})));
    assert_eq!((code, &same), (200, &made));
    let (_, changed) = apply(&mut cluster, &target, &map("m", &json!({"x": "2"})));
    assert_eq!(changed["data"], json!({"x": "2"}));
    assert_eq!(owners(&changed), [("a Apply".to_owned(), json!({"f:data": {"f:x": {}}}))]);
    // The last field takes its map with it.
    let bare = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "labels": {"l": "1"}}});
    let (_, emptied) = apply(&mut cluster, &target, &bare);
    assert_eq!(emptied["data"], Value::Null);
    assert_eq!(owners(&emptied), [("a Apply".to_owned(), json!({"f:metadata": {"f:labels": {"f:l": {}}}}))]);
}

#[test]
fn others_keep_what_they_own() {
    let mut cluster = quiet();
    let (one, two) = (format!("{MAPS}/m?fieldManager=a"), format!("{MAPS}/m?fieldManager=b"));
    apply(&mut cluster, &one, &map("m", &json!({"x": "1", "y": "1"})));
    // Two managers may apply the same value.
    let (code, shared) = apply(&mut cluster, &two, &map("m", &json!({"x": "1"})));
    assert_eq!((code, owners(&shared).len()), (200, 2));
    let (_, left) = apply(&mut cluster, &one, &map("m", &json!({"y": "1"})));
    assert_eq!(left["data"], json!({"x": "1", "y": "1"}));
    let (_, gone) = apply(&mut cluster, &two, &map("m", &json!({})));
    assert_eq!(gone["data"], json!({"y": "1"}));
    assert_eq!(owners(&gone).len(), 2, "b owns the empty map that it applied: {gone}");
}

#[test]
fn a_conflict_names_the_manager_and_the_field() {
    let mut cluster = quiet();
    let (_, _) = ask(
        &mut cluster,
        Post,
        &format!("{MAPS}?fieldManager=kubectl-create"),
        &map("m", &json!({"x": "1", "y": "1"})),
    );
    let target = format!("{MAPS}/m?fieldManager=a");
    let (code, refused) = apply(&mut cluster, &target, &map("m", &json!({"x": "2"})));
    let message = "Apply failed with 1 conflict: conflict with \"kubectl-create\" using v1: .data.x";
    assert_eq!((code, &refused["reason"], &refused["message"]), (409, &json!("Conflict"), &json!(message)));
    let cause = json!({"reason": "FieldManagerConflict", "message": "conflict with \"kubectl-create\" using v1", "field": ".data.x"});
    assert_eq!(refused["details"], json!({"causes": [cause]}));
    let (_, refused) = apply(&mut cluster, &target, &map("m", &json!({"x": "2", "y": "2"})));
    let message = "Apply failed with 2 conflicts: conflicts with \"kubectl-create\" using v1:\n- .data.x\n- .data.y";
    assert_eq!(refused["message"], json!(message));
    let (code, forced) = apply(&mut cluster, &format!("{target}&force=true"), &map("m", &json!({"x": "2"})));
    assert_eq!((code, &forced["data"]), (200, &json!({"x": "2", "y": "1"})));
    assert_eq!(
        owners(&forced),
        [
            ("a Apply".to_owned(), json!({"f:data": {"f:x": {}}})),
            ("kubectl-create Update".to_owned(), json!({"f:data": {".": {}, "f:y": {}}})),
        ]
    );
    // An applier is named without its version.
    let (_, refused) = apply(&mut cluster, &format!("{MAPS}/m?fieldManager=b"), &map("m", &json!({"x": "3"})));
    assert_eq!(refused["message"], json!("Apply failed with 1 conflict: conflict with \"a\": .data.x"));
}

fn deployment(containers: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}}})
}

#[test]
fn lists_merge_by_their_keys() {
    let mut cluster = quiet();
    let target = |manager: &str| format!("{DEPLOYMENTS}/d?fieldManager={manager}");
    let names = |object: &Value| -> Vec<String> {
        let containers = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        containers.iter().map(|container| container["name"].as_str().unwrap().to_owned()).collect()
    };
    let (code, made) = apply(
        &mut cluster,
        &target("a"),
        &deployment(&json!([{"name": "x", "image": "1"}, {"name": "y", "image": "1"}])),
    );
    assert_eq!(code, 201, "{made}");
    let (code, merged) = apply(
        &mut cluster,
        &target("b"),
        &deployment(&json!([{"name": "z", "image": "1"}, {"name": "y", "stdin": true}])),
    );
    assert_eq!((code, names(&merged)), (200, vec!["x".to_owned(), "z".to_owned(), "y".to_owned()]), "{merged}");
    let last = &merged["spec"]["template"]["spec"]["containers"][2];
    assert_eq!((&last["image"], &last["stdin"]), (&json!("1"), &json!(true)));
    // An item is removed when its only owner leaves it out, and a shared one loses what was that owner's.
    let (_, left) = apply(&mut cluster, &target("b"), &deployment(&json!([{"name": "y"}])));
    assert_eq!(names(&left), ["x", "y"]);
    assert_eq!(left["spec"]["template"]["spec"]["containers"][1]["stdin"], Value::Null);
    let owned = &owners(&left)[1].1["f:spec"]["f:template"]["f:spec"]["f:containers"];
    assert_eq!(owned, &json!({"k:{\"name\":\"y\"}": {".": {}, "f:name": {}}}));
}

#[test]
fn a_patch_of_another_type_is_refused() {
    let mut cluster = quiet();
    let target = format!("{DEPLOYMENTS}/d?fieldManager=a");
    let typed =
        |what: &str| (500, format!("failed to create typed patch object (/d; apps/v1, Kind=Deployment): {what}"));
    let with = |path: &str, value: Value| {
        let mut object = deployment(&json!([{"name": "x"}]));
        *object.pointer_mut(path).unwrap() = value;
        object
    };
    for (body, (code, message)) in [
        (with("/spec", json!({"foo": 1})), typed(".spec.foo: field not declared in schema")),
        (with("/spec", json!({"replicas": "3"})), typed(".spec.replicas: expected numeric (int or float), got string")),
        (with("/spec", json!({"replicas": 3, "x": 1, "y": 1})), typed("errors:\n  .spec.x: field not declared in schema\n  .spec.y: field not declared in schema")),
        (
            with("/spec/template/spec/containers", json!([{"name": "x"}, {"name": "x"}])),
            typed(".spec.template.spec.containers: duplicate entries for key [name=\"x\"]"),
        ),
        (with("/kind", json!("Pod")), (400, "invalid object type: apps/v1, Kind=Pod".to_owned())),
        (with("/metadata", json!({"name": "d", "managedFields": []})), (400, "metadata.managedFields must be nil".to_owned())),
        (with("/metadata", json!({"name": "e"})), (400, "the name of the object (e) does not match the name on the URL (d)".to_owned())),
        (
            with("/metadata", json!({"name": "d", "uid": "u"})),
            (409, "Operation cannot be fulfilled on deployments.apps \"d\": uid mismatch: the provided object specified uid u, and no existing object was found".to_owned()),
        ),
    ] {
        let (got, status) = apply(&mut cluster, &target, &body);
        assert_eq!((got, &status["message"]), (code, &json!(message)), "{body}");
    }
    let (code, status) = apply(&mut cluster, &format!("{DEPLOYMENTS}/d"), &deployment(&json!([])));
    let required =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!((code, &status["message"]), (422, &json!(required)));
}

#[test]
fn an_old_resource_version_is_a_conflict() {
    let mut cluster = quiet();
    let target = format!("{MAPS}/m?fieldManager=a");
    let (_, made) = apply(&mut cluster, &target, &map("m", &json!({"x": "1"})));
    let mut next = map("m", &json!({"x": "2"}));
    next["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    assert_eq!(apply(&mut cluster, &target, &next).0, 200);
    next["data"]["x"] = json!("3");
    let (code, refused) = apply(&mut cluster, &target, &next);
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")));
}

#[test]
fn kubectl_takes_over_from_its_own_client_side_apply() {
    let mut cluster = quiet();
    let applied = map("m", &json!({"x": "1", "y": "1"}));
    let mut sent = applied.clone();
    sent["metadata"]["annotations"] = json!({(super::LAST_APPLIED): format!("{applied}\n")});
    ask(&mut cluster, Post, &format!("{MAPS}?fieldManager=kubectl-client-side-apply"), &sent);
    // Others meet a conflict; kubectl does not, for what its annotation has.
    let next = map("m", &json!({"x": "2", "y": "1"}));
    let (code, _) = apply(&mut cluster, &format!("{MAPS}/m?fieldManager=a"), &next);
    assert_eq!(code, 409);
    let (code, taken) = apply(&mut cluster, &format!("{MAPS}/m?fieldManager=kubectl"), &next);
    assert_eq!((code, &taken["data"]["x"]), (200, &json!("2")), "{taken}");
    // The annotation follows.
    let annotation = taken["metadata"]["annotations"][super::LAST_APPLIED].as_str().unwrap();
    let annotation: Value = serde_json::from_str(annotation).unwrap();
    assert_eq!(annotation["data"], json!({"x": "2", "y": "1"}));
    // What changed since then is no longer kubectl's.
    let patch = request(
        Patch,
        &format!("{MAPS}/m?fieldManager=edit"),
        &[("content-type", "application/merge-patch+json")],
        &json!({"data": {"x": "9"}}),
    );
    respond(&mut cluster, &patch);
    let (code, refused) =
        apply(&mut cluster, &format!("{MAPS}/m?fieldManager=kubectl"), &map("m", &json!({"x": "3", "y": "1"})));
    let message = "Apply failed with 1 conflict: conflict with \"edit\" using v1: .data.x";
    assert_eq!((code, &refused["message"]), (409, &json!(message)));
}

#[test]
fn what_was_there_before_the_first_apply_has_an_owner() {
    let mut cluster = quiet();
    let (_, mut made) = ask(&mut cluster, Post, MAPS, &map("m", &json!({"x": "1"})));
    made["metadata"]["managedFields"] = json!([]);
    ask(&mut cluster, crate::Method::Put, &format!("{MAPS}/m"), &made);
    let (_, refused) = apply(&mut cluster, &format!("{MAPS}/m?fieldManager=a"), &map("m", &json!({"x": "2"})));
    let message = "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.x";
    assert_eq!(refused["message"], json!(message));
    let (_, applied) = apply(&mut cluster, &format!("{MAPS}/m?fieldManager=a"), &map("m", &json!({"y": "1"})));
    assert_eq!(
        owners(&applied),
        [
            ("a Apply".to_owned(), json!({"f:data": {"f:y": {}}})),
            ("before-first-apply Update".to_owned(), json!({"f:data": {".": {}, "f:x": {}}})),
        ]
    );
}

#[test]
fn a_dry_run_applies_nothing() {
    let mut cluster = quiet();
    let target = format!("{MAPS}/m?fieldManager=a&dryRun=All");
    let (code, shown) = apply(&mut cluster, &target, &map("m", &json!({"x": "1"})));
    assert_eq!((code, &shown["data"]["x"]), (201, &json!("1")));
    assert_eq!(ask(&mut cluster, Get, &format!("{MAPS}/m"), &Value::Null).0, 404);
    let (_, made) = apply(&mut cluster, &format!("{MAPS}/m?fieldManager=a"), &map("m", &json!({"x": "1"})));
    let (_, shown) = apply(&mut cluster, &target, &map("m", &json!({"x": "2"})));
    assert_eq!(shown["data"]["x"], "2");
    assert_eq!(shown["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"], "nothing is stored");
}
