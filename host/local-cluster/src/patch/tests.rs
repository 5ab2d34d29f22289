//! Patches by cases: a document, a patch, and what comes of it.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::published;
use crate::schema::Schema;

fn outcome(result: Result<Value, Halt>) -> Result<Value, (u16, String)> {
    result.map_err(|halt| match halt {
        Halt::Status(status) => (status.code, status.message),
        Halt::Call(call) => panic!("a webhook is asked: {call:?}"),
    })
}

#[test]
fn json_patches_follow_rfc_6902() {
    let old = json!({"a": {"b/c": 1, "~": 2}, "l": [1, 2]});
    let rejected = || (422, "the server rejected our request due to an error in our request".to_owned());
    for (patch, wanted) in [
        (
            json!([{"op": "add", "path": "/a/x", "value": 3}]),
            Some(json!({"a": {"b/c": 1, "~": 2, "x": 3}, "l": [1, 2]})),
        ),
        (json!([{"op": "add", "path": "/l/-", "value": 3}]), Some(json!({"a": {"b/c": 1, "~": 2}, "l": [1, 2, 3]}))),
        (json!([{"op": "add", "path": "/l/0", "value": 0}]), Some(json!({"a": {"b/c": 1, "~": 2}, "l": [0, 1, 2]}))),
        (json!([{"op": "remove", "path": "/a/b~1c"}]), Some(json!({"a": {"~": 2}, "l": [1, 2]}))),
        (json!([{"op": "move", "from": "/a/~0", "path": "/m"}]), Some(json!({"a": {"b/c": 1}, "l": [1, 2], "m": 2}))),
        (json!([{"op": "copy", "from": "/l/1", "path": "/a"}]), Some(json!({"a": 2, "l": [1, 2]}))),
        (json!([{"op": "replace", "path": "/l/-1", "value": 9}]), Some(json!({"a": {"b/c": 1, "~": 2}, "l": [1, 9]}))),
        (json!([{"op": "test", "path": "/gone", "value": null}]), Some(old.clone())),
        (json!([{"op": "test", "path": "/l/0", "value": 2}]), None),
        (json!([{"op": "remove", "path": "/gone"}]), None),
        // What is not there is added, as by the library of the API server.
        (
            json!([{"op": "replace", "path": "/gone", "value": 1}]),
            Some(json!({"a": {"b/c": 1, "~": 2}, "gone": 1, "l": [1, 2]})),
        ),
        (json!([{"op": "replace", "path": "/l/7", "value": 1}]), None),
        (json!([{"op": "add", "path": "/gone/x", "value": 1}]), None),
        (json!([{"op": "add", "path": "/l/7", "value": 1}]), None),
        (json!([{"op": "jump", "path": "/l"}]), None),
    ] {
        assert_eq!(outcome(json(&old, &patch)), wanted.ok_or_else(rejected), "{patch}");
    }
    let decoding = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
    assert_eq!(outcome(json(&old, &json!({}))), Err((400, decoding.to_owned())));
    let many = Value::Array(vec![json!({"op": "test", "path": "/l/0", "value": 1}); 10_001]);
    let large =
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned();
    assert_eq!(outcome(json(&old, &many)), Err((413, large)));
}

#[test]
fn copies_of_copies_end() {
    let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let patch = Value::Array(vec![double; 60]);
    assert_eq!(outcome(json(&json!({"a": ["x"]}), &patch)).map_err(|(code, _)| code), Err(422));
}

#[test]
fn merge_patches_follow_rfc_7386() {
    let old = json!({"a": {"b": 1, "c": 2}, "l": [1]});
    let patch = json!({"a": {"b": null, "d": {"e": null, "f": 1}}, "l": [2], "n": null});
    assert_eq!(merge(&old, &patch).unwrap(), json!({"a": {"c": 2, "d": {"f": 1}}, "l": [2]}));
    let decoding = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!(outcome(merge(&old, &json!([]))), Err((400, decoding.to_owned())));
}

fn pod() -> Arc<Schema> {
    published::schema("", "v1", "Pod")
}

#[test]
fn strategic_patches_merge_lists_by_key() {
    let schema = pod();
    for (old, patch, wanted) in [
        // An item is merged, and a new one comes before those that the patch does not name.
        (
            json!({"containers": [{"name": "a", "image": "1", "stdin": true}, {"name": "b"}]}),
            json!({"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}),
            json!({"containers": [{"name": "a", "image": "2", "stdin": true}, {"name": "c"}, {"name": "b"}]}),
        ),
        // The order that kubectl apply sets.
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "s"}]}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "image": "2"}]}),
            json!({"containers": [{"name": "b", "image": "2"}, {"name": "a"}, {"name": "s"}]}),
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            json!({"containers": [{"name": "b"}]}),
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"name": "c"}, {"$patch": "replace"}]}),
            json!({"containers": [{"name": "c"}]}),
        ),
        // Lists that do not merge are replaced.
        (
            json!({"containers": [{"name": "a", "args": ["1", "2"]}]}),
            json!({"containers": [{"name": "a", "args": ["3"]}]}),
            json!({"containers": [{"name": "a", "args": ["3"]}]}),
        ),
        (
            json!({"nodeSelector": {"a": "1", "b": "2"}, "hostname": "h"}),
            json!({"nodeSelector": {"$patch": "replace", "c": "3"}, "hostname": null}),
            json!({"nodeSelector": {"c": "3"}}),
        ),
        (
            json!({"nodeSelector": {"a": "1"}}),
            json!({"nodeSelector": {"$patch": "delete"}}),
            json!({"nodeSelector": {}}),
        ),
        // Volumes keep what the patch retains.
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
            json!({"volumes": [{"name": "v", "configMap": {"name": "m"}, "$retainKeys": ["name", "configMap"]}]}),
            json!({"volumes": [{"name": "v", "configMap": {"name": "m"}}]}),
        ),
        (
            json!({}),
            json!({"dnsConfig": {"options": null, "searches": ["a"]}}),
            json!({"dnsConfig": {"searches": ["a"]}}),
        ),
    ] {
        let (old, patch, wanted) = (json!({"spec": old}), json!({"spec": patch}), json!({"spec": wanted}));
        assert_eq!(outcome(strategic(&old, &patch, &schema)), Ok(wanted), "{patch}");
    }
}

#[test]
fn strategic_patches_merge_lists_of_scalars() {
    let schema = pod();
    let old = json!({"metadata": {"finalizers": ["a", "b", "c"]}});
    for (patch, wanted) in [
        (json!({"finalizers": ["d", "a"]}), json!(["d", "a", "b", "c"])),
        (json!({"$deleteFromPrimitiveList/finalizers": ["b"]}), json!(["a", "c"])),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "d", "b"], "finalizers": ["d"]}),
            json!(["c", "d", "b"]),
        ),
    ] {
        let new = strategic(&old, &json!({"metadata": patch}), &schema).unwrap();
        assert_eq!(new["metadata"]["finalizers"], wanted, "{patch}");
    }
}

#[test]
fn malformed_strategic_patches_are_refused_in_the_words_of_the_api_server() {
    let schema = pod();
    let old = json!({"spec": {"containers": [{"name": "a", "image": "i"}], "volumes": [{"name": "v"}]}});
    for (patch, code, message) in [
        (json!({"containers": [{"image": "x"}]}), 500, "map: map[image:x] does not contain declared merge key: name"),
        (
            json!({"volumes": [{"name": "v", "secret": {}, "$retainKeys": ["name"]}]}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "x"}]}),
            500,
            "unknown patch type: x in map: map[$patch:x name:a]",
        ),
        (json!({"containers": [{"$patch": "merge"}]}), 500, "merging lists cannot yet be specified in the patch"),
        (json!({"containers": ["a"]}), 500, "list element types are not identical: [map[image:i name:a] a]"),
        (
            json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}),
            500,
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
        (json!({"$setElementOrder/containers": 1}), 500, "expected a []interface {}, but received a int64"),
        (json!({"$deleteFromPrimitiveList": ["a"]}), 400, "invalid patch format of primitive list"),
    ] {
        let refused = outcome(strategic(&old, &json!({"spec": patch}), &schema));
        assert_eq!(refused, Err((code, message.to_owned())), "{patch}");
    }
}
