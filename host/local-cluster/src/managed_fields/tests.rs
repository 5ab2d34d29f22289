//! Managed fields: what updates own, and how the fields are written. Through requests.

use serde_json::{Value, json};

use super::*;
use crate::Cluster;
use crate::Method::{Get, Patch, Post, Put};
use crate::schema::ListType;
use crate::testing::{ask, quiet, request, respond, start};
use crate::{Method, published};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn entries(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|entry| {
            let sub = text(entry, "subresource");
            let sub = if sub.is_empty() { sub } else { format!("/{sub}") };
            (format!("{} {}{sub}", text(entry, "manager"), text(entry, "operation")), entry["fieldsV1"].clone())
        })
        .collect()
}

#[track_caller]
fn write(cluster: &mut Cluster, method: Method, target: &str, body: &Value) -> Value {
    let media_type = if method == Patch { "application/merge-patch+json" } else { "application/json" };
    let response = respond(cluster, &request(method, target, &[("content-type", media_type)], body));
    let value = response.body.document().unwrap();
    assert!(response.status < 300, "{value}");
    value
}

#[test]
fn a_creator_owns_what_it_sent_but_not_the_structs_that_are_always_there() {
    let mut cluster = quiet();
    let made = write(
        &mut cluster,
        Post,
        &format!("{DEPLOYMENTS}?fieldManager=kubectl-create"),
        &json!({"metadata": {"name": "a", "labels": {"app": "a"}}, "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {}}]}}}}),
    );
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["operation"], &entry["apiVersion"], &entry["fieldsType"], &entry["time"]),
        (
            &json!("kubectl-create"),
            &json!("Update"),
            &json!("apps/v1"),
            &json!("FieldsV1"),
            &json!("2026-01-01T00:00:00Z")
        )
    );
    assert_eq!(entry["fieldsV1"]["f:metadata"], json!({"f:labels": {".": {}, "f:app": {}}}));
    let spec = &entry["fieldsV1"]["f:spec"];
    assert_eq!((&spec["f:selector"], &spec["f:replicas"], &spec["."]), (&json!({}), &json!({}), &Value::Null));
    assert_eq!(spec["f:template"]["f:metadata"], json!({"f:labels": {".": {}, "f:app": {}}}));
    let container = &spec["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"];
    assert_eq!(
        (&container["."], &container["f:image"], &container["f:resources"]),
        (&json!({}), &json!({}), &json!({}))
    );
    let port = &container["f:ports"]["k:{\"containerPort\":80,\"protocol\":\"TCP\"}"];
    assert_eq!((&container["f:ports"]["."], &port["f:containerPort"]), (&json!({}), &json!({})));
    assert_eq!(entry["fieldsV1"]["f:status"], Value::Null);
}

#[test]
fn an_update_takes_what_it_changes_and_forgets_what_it_removes() {
    let mut cluster = quiet();
    write(
        &mut cluster,
        Post,
        &format!("{MAPS}?fieldManager=a"),
        &json!({"metadata": {"name": "m"}, "data": {"x": "1", "y": "1"}}),
    );
    let target = format!("{MAPS}/m");
    let changed =
        write(&mut cluster, Patch, &format!("{target}?fieldManager=b"), &json!({"data": {"x": "2", "z": "1"}}));
    assert_eq!(
        entries(&changed),
        [
            ("a Update".to_owned(), json!({"f:data": {".": {}, "f:y": {}}})),
            ("b Update".to_owned(), json!({"f:data": {"f:x": {}, "f:z": {}}})),
        ]
    );
    let removed =
        write(&mut cluster, Patch, &format!("{target}?fieldManager=a"), &json!({"data": {"x": null, "z": null}}));
    assert_eq!(entries(&removed), [("a Update".to_owned(), json!({"f:data": {".": {}, "f:y": {}}}))]);
    // What changes nothing writes nothing, whichever client asks for it.
    let same = write(&mut cluster, Patch, &format!("{target}?fieldManager=c"), &json!({"data": {"y": "1"}}));
    assert_eq!(same, removed);
}

#[test]
fn a_status_is_owned_by_who_writes_the_subresource() {
    let mut cluster = quiet();
    let made = json!({"metadata": {"name": "n", "labels": {"l": "1"}}, "status": {"phase": "Active"}});
    let made = write(&mut cluster, Post, "/api/v1/namespaces?fieldManager=a", &made);
    assert!(entries(&made).iter().all(|(_, fields)| fields["f:status"].is_null()), "{made}");
    let mut next = made;
    next["status"] = json!({"conditions": [{"type": "T", "status": "True"}]});
    next["spec"] = json!({"finalizers": ["x.y/z"]});
    let written = write(&mut cluster, Put, "/api/v1/namespaces/n/status?fieldManager=a", &next);
    let owned = entries(&written).into_iter().find(|(manager, _)| manager == "a Update/status");
    let condition = json!({".": {}, "f:status": {}, "f:type": {}});
    let conditions = json!({".": {}, "k:{\"type\":\"T\"}": condition});
    let status = &owned.unwrap_or_else(|| panic!("{written}")).1;
    assert_eq!((&status["f:status"]["f:conditions"], &status["f:spec"]), (&conditions, &Value::Null));
}

#[test]
fn a_client_clears_the_entries_with_an_empty_list() {
    let mut cluster = quiet();
    let made = json!({"metadata": {"name": "m"}, "data": {"x": "1"}});
    for empty in [json!([]), json!([{}])] {
        let mut cleared = write(&mut cluster, Post, &format!("{MAPS}?fieldManager=a"), &made);
        assert_eq!(entries(&cleared).len(), 1);
        cleared["metadata"]["managedFields"] = empty;
        let cleared = write(&mut cluster, Put, &format!("{MAPS}/m"), &cleared);
        assert_eq!(cleared["metadata"]["managedFields"], Value::Null);
        // From then on nothing is tracked.
        let changed = write(&mut cluster, Patch, &format!("{MAPS}/m"), &json!({"data": {"x": "2"}}));
        assert_eq!(changed["metadata"]["managedFields"], Value::Null);
        ask(&mut cluster, Method::Delete, &format!("{MAPS}/m"), &Value::Null);
    }
    // A client that does not know of them does not lose them.
    let mut made = write(&mut cluster, Post, &format!("{MAPS}?fieldManager=a"), &made);
    made["metadata"].as_object_mut().unwrap().remove("managedFields");
    made["data"]["y"] = json!("1");
    let kept = write(&mut cluster, Put, &format!("{MAPS}/m?fieldManager=b"), &made);
    assert_eq!(entries(&kept).len(), 2);
}

#[test]
fn the_oldest_of_many_updates_become_one() {
    let mut cluster = quiet();
    write(
        &mut cluster,
        Post,
        &format!("{MAPS}?fieldManager=m00"),
        &json!({"metadata": {"name": "m"}, "data": {"k00": ""}}),
    );
    for index in 1..13 {
        let target = format!("{MAPS}/m?fieldManager=m{index:02}");
        write(&mut cluster, Patch, &target, &json!({"data": {(format!("k{index:02}")): ""}}));
    }
    let (_, object) = ask(&mut cluster, Get, &format!("{MAPS}/m"), &Value::Null);
    let entries = entries(&object);
    assert_eq!(entries.len(), MAX_UPDATE_MANAGERS);
    let ancient = json!({"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}, "f:k03": {}}});
    assert_eq!(entries[0], ("ancient-changes Update".to_owned(), ancient));
}

#[test]
fn entries_lie_in_the_api_servers_order() {
    let entry = |manager: &str, operation: &str, time: &str| {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}})
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    let sorted = json!([
        entry("z", "Apply", early),
        entry("b", "Update", early),
        entry("c", "Update", early),
        entry("a", "Update", late)
    ]);
    let mut shuffled = sorted.clone();
    shuffled.as_array_mut().unwrap().reverse();
    assert_eq!(encode(&decode(&shuffled).unwrap()), sorted);
    for (key, value) in [("operation", ""), ("apiVersion", ""), ("fieldsType", "x")] {
        let mut malformed = sorted.clone();
        malformed[0][key] = value.into();
        assert_eq!(decode(&malformed), None, "{key}");
    }
}

#[test]
fn times_alone_are_no_difference() {
    let object = |time: &str, value: i32, fields: Value| json!({"metadata": {"name": "a", "managedFields": [{"manager": "m", "time": time, "fieldsV1": fields}]}, "spec": value});
    let old = object("1", 1, json!({}));
    assert!(same_but_times(&object("2", 1, json!({})), &old));
    assert!(!same_but_times(&object("1", 2, json!({})), &old));
    assert!(!same_but_times(&object("1", 1, json!({"f:a": {}})), &old));
    assert!(!same_but_times(&json!({"metadata": {"name": "a"}, "spec": 1}), &old));
}

#[test]
fn items_that_are_there_twice_are_owned_as_wholes() {
    let schema = published::schema("", "v1", "Pod");
    let pod = |env: Value| json!({"spec": {"containers": [{"name": "c", "env": env}]}});
    let (one, two) = (json!({"name": "A", "value": "1"}), json!({"name": "A", "value": "2"}));
    let compare = |old: &Value, new: &Value| {
        let comparison = typed::compare(&pod(old.clone()), &pod(new.clone()), schema.root());
        [comparison.removed, comparison.modified, comparison.added].map(|fields| fields.paths())
    };
    let item = ".spec.containers[name=\"c\"].env[name=\"A\"]".to_owned();
    let below = [".name", ".value"].map(|name| format!("{item}{name}")).to_vec();
    let all = || std::iter::once(item.clone()).chain(below.clone()).collect::<Vec<_>>();
    assert_eq!(compare(&json!([one]), &json!([one, two])), [all(), vec![], vec![item.clone()]]);
    assert_eq!(compare(&json!([one, two]), &json!([one])), [vec![item.clone()], vec![], all()]);
    assert_eq!(compare(&json!([one, two]), &json!([two, one])), [vec![], vec![item.clone()], vec![]]);
}

#[test]
fn an_item_without_its_keys_has_no_step() {
    let list = |names: &[&str]| ListType::Map(names.iter().map(|name| (*name).into()).collect());
    let step = |list: &ListType, item: Value| typed::item_step(list, None, &item);
    assert_eq!(step(&list(&["port", "name"]), json!({"name": "a", "x": 1})), Ok("k:{\"name\":\"a\"}".to_owned()));
    let omits = "associative list with keys has an element that omits all key fields [\"a\" \"b\"] (and doesn't have default values for any key fields)";
    assert_eq!(step(&list(&["a", "b"]), json!({"x": 1})), Err(omits.to_owned()));
    let null = "associative list with keys may not have a null element";
    assert_eq!(step(&list(&["a"]), Value::Null), Err(null.to_owned()));
    assert_eq!(step(&ListType::Set, json!("x")), Ok("v:\"x\"".to_owned()));
    assert!(step(&ListType::Set, json!({})).is_err());
}

#[test]
fn a_record_of_time_moves_only_with_a_change() {
    let resource = crate::resource::built_in().values().find(|resource| &*resource.plural == "configmaps").unwrap();
    let later = start() + jiff::SignedDuration::from_secs(5);
    let mut made = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"x": "1"}});
    update(resource, None, &mut made, "a", Operation::Update, "", start());
    let mut same = made.clone();
    update(resource, Some(&made), &mut same, "b", Operation::Update, "", later);
    assert_eq!(same, made);
    let mut next = made.clone();
    next["data"]["x"] = json!("2");
    update(resource, Some(&made), &mut next, "a", Operation::Update, "", later);
    assert_eq!(next["metadata"]["managedFields"][0]["time"], json!("2026-01-01T00:00:05Z"));
}
