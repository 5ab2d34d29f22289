//! Objects that exist already and become children.

use std::sync::Arc;

use super::*;
use crate::contract::Handling;
use crate::object::ResourceVersion;
use crate::write::Precondition;

fn adopting() -> ControllerSpec {
    let mut spec = spec();
    spec.owns.iter_mut().for_each(|owned| owned.adopt = true);
    spec
}

fn adopted(key: &str, object: &Value) -> Child {
    let mut object = object.clone();
    object["metadata"] = json!({"name": "old"});
    Child { adopt: true, ..child(key, &object) }
}

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data})
}

/// An object of the child's name, as somebody else made it.
fn old(mut object: Value) -> Value {
    object["metadata"] = json!({"name": "old", "namespace": "default", "uid": "o-1", "resourceVersion": "7", "labels": {"theirs": "yes"}});
    object
}

/// The body of the apply that adopts.
#[track_caller]
fn adoption(child: Child, live: Value) -> Value {
    let diff = missing(&adopting(), &outcome(vec![child]), vec![live]).unwrap();
    let [WriteOp::Apply { body, force: true, only_if, .. }] = diff.children.as_slice() else { panic!("{diff:?}") };
    // Another controller may take it meanwhile.
    let seen = Precondition::Unchanged { uid: "o-1".into(), version: ResourceVersion(7) };
    assert_eq!((only_if, diff.deletes.len(), diff.taken.len()), (&seen, 0, 0));
    serde_json::from_str(body).unwrap()
}

#[test]
fn a_child_that_is_changed_in_place_is_adopted_with_its_fields() {
    let body = adoption(adopted("c", &config(json!({"a": "1"}))), old(config(json!({"a": "0", "b": "2"}))));
    assert_eq!(body["data"], json!({"a": "1"}));
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "u-1");
    assert_eq!(body["metadata"]["annotations"]["mortise.dev/child"], "c");
}

#[test]
fn one_that_is_replaced_is_adopted_as_it_is_and_counts_as_current_if_it_has_all_that_is_wanted() {
    let mut template = pod("a");
    template["spec"]["nodeSelector"] = json!({}); // The API server drops it.
    let wanted = adopted("0", &template);
    let mut defaulted = pod("a");
    defaulted["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    defaulted["spec"]["nodeName"] = json!("n");
    let as_wanted = adoption(wanted.clone(), old(defaulted));
    assert!(as_wanted["spec"].is_null() && as_wanted["metadata"]["labels"].as_object().unwrap().is_empty());
    assert_eq!(as_wanted["metadata"]["ownerReferences"][0]["uid"], "u-1");
    let mut sidecar = pod("a");
    sidecar["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "sidecar"}));
    for other in [pod("b"), sidecar, json!({"apiVersion": "v1", "kind": "Pod"})] {
        let body = adoption(wanted.clone(), old(other.clone()));
        assert!(body["metadata"]["annotations"]["mortise.dev/desired"].is_null(), "{body}");
        let mut live = old(other);
        json_patch::merge(&mut live["metadata"], &body["metadata"]);
        let diff = missing(&adopting(), &outcome(vec![wanted.clone()]), vec![live]).unwrap();
        assert_eq!(shown(&diff), "delete Pod default/old uid=o-1", "then `update` of its kind replaces it");
    }
    let mut live = old(pod("a"));
    json_patch::merge(&mut live["metadata"], &as_wanted["metadata"]);
    assert_eq!(shown(&missing(&adopting(), &outcome(vec![wanted]), vec![live]).unwrap()), "");
}

#[test]
fn one_that_is_created_once_is_adopted_and_never_changed() {
    for object in [pod("a"), config(json!({"a": "1"}))] {
        let once = Child { handling: Handling::CreateOnce, ..adopted("0", &object) };
        let body = adoption(once, old(json!({"apiVersion": "v1", "kind": object["kind"], "spec": {}, "data": {}})));
        assert!(body["spec"].is_null() && body["data"].is_null(), "{body}");
        assert!(body["metadata"]["annotations"]["mortise.dev/desired"].is_null(), "{body}");
    }
}

#[test]
fn x3_what_another_controls_or_what_is_being_deleted_is_not_adopted_and_named() {
    let wanted = outcome(vec![adopted("c", &config(json!({})))]);
    let mut theirs = old(config(json!({})));
    let reference = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n", "controller": true}]);
    theirs["metadata"]["ownerReferences"] = reference;
    let mut tracked = old(config(json!({})));
    tracked["metadata"]["labels"] = json!({"mortise.dev/owner-uid": "u-2"});
    tracked["metadata"]["annotations"] = json!({"mortise.dev/owner": "a.com/v1/B c/d owns ConfigMap default/old"});
    tracked["metadata"]["managedFields"] = json!([{"manager": "mortise/b", "operation": "Update"}]);
    let mut dying = old(config(json!({})));
    dying["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    for (live, why) in [(theirs, "of Node n"), (tracked, "of B d"), (dying, "being deleted")] {
        let diff = missing(&adopting(), &wanted, vec![live]).unwrap();
        assert_eq!(shown(&diff), format!("taken ConfigMap default/old ({why})"));
    }
    // A plugin's ConfigMap; a CRD; the role and the Lease of the host; a role that is gathered into the host's.
    for labels in [
        json!({"mortise.dev/plugin": "true"}),
        json!({"app.kubernetes.io/managed-by": "mortise"}),
        json!({"app.kubernetes.io/part-of": "mortise"}),
        json!({"mortise.dev/aggregate-to-host": "true"}),
    ] {
        let mut of_host = old(config(json!({})));
        of_host["metadata"]["labels"] = labels;
        let diff = missing(&adopting(), &wanted, vec![of_host.clone()]).unwrap();
        assert_eq!(shown(&diff), "taken ConfigMap default/old (of mortise)");
    }
    let mut former = old(config(json!({})));
    former["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "mortise"});
    former["metadata"]["annotations"] = json!({"mortise.dev/child": "x"});
    adoption(adopted("c", &config(json!({}))), former);
    // An owner reference that is no controller's.
    let mut referenced = old(config(json!({})));
    let reference = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]);
    referenced["metadata"]["ownerReferences"] = reference;
    adoption(adopted("c", &config(json!({}))), referenced);
}

#[test]
fn x3_nothing_is_adopted_unless_the_child_says_so() {
    let wanted = outcome(vec![Child { adopt: false, ..adopted("c", &config(json!({}))) }]);
    let diff = missing(&adopting(), &wanted, vec![old(config(json!({})))]).unwrap();
    assert_eq!(shown(&diff), "taken ConfigMap default/old");
    let wanted = outcome(vec![adopted("c", &config(json!({})))]);
    let created = missing(&adopting(), &wanted, vec![]).unwrap();
    assert_eq!(shown(&created), "patch ConfigMap default/old", "one that does not exist is created");
}

#[test]
fn x6_an_adoption_that_the_manifest_does_not_grant_or_that_names_nothing_is_refused() {
    let named = adopted("c", &config(json!({})));
    let refusal_of = |spec: &ControllerSpec, child: Child| refusal(spec, &outcome(vec![child]));
    expect![[r#"the outcome was refused: child "c": adopt: the manifest does not let objects of v1/ConfigMap be adopted; write "adopt": true at v1/ConfigMap under owns"#]]
        .assert_eq(&refusal_of(&spec(), named.clone()));
    expect![[r#"the outcome was refused: child "c": adopt: metadata.name has to say which object is adopted"#]]
        .assert_eq(&refusal_of(&adopting(), Child { adopt: true, ..child("c", &config(json!({}))) }));
    let kept = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    expect![[r#"the outcome was refused: child "c": adopt: a child that is kept as it is cannot be adopted"#]]
        .assert_eq(&refusal_of(&adopting(), Child { handling: Handling::Keep, ..adopted("c", &kept) }));
}

#[test]
fn g9_an_object_with_the_name_of_a_child_is_as_absent_where_the_plugin_may_not_read() {
    let mut hidden = adopting();
    let elsewhere = Arc::new(crate::scope::tests::scope(&["elsewhere"], ""));
    hidden.visible = ["Pod", "ConfigMap"].map(|kind| (Kind::new("v1", kind), Arc::clone(&elsewhere))).into();
    let theirs = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n", "controller": true}]);
    let controlled = json!({"metadata": {"ownerReferences": theirs}});
    let dying = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let of_host = json!({"metadata": {"labels": {"mortise.dev/plugin": "true"}}});
    for object in [pod("a"), config(json!({"a": "1"}))] {
        let named = adopted("c", &object);
        for wanted in [
            named.clone(),
            Child { adopt: false, ..named.clone() },
            Child { adopt: false, or_skip: true, ..named },
            child("c", &object),
        ] {
            let wanted = outcome(vec![wanted]);
            let absent = missing(&hidden, &wanted, vec![]).unwrap();
            let target = absent.children[0].target();
            for more in [&controlled, &dying, &of_host, &json!({})] {
                let mut live = old(object.clone());
                json_patch::merge(&mut live, more);
                live["metadata"]["name"] = json!(&*target.name.name);
                assert_ne!(missing(&adopting(), &wanted, vec![live.clone()]).unwrap(), absent, "{more}");
                assert_eq!(missing(&hidden, &wanted, vec![live]).unwrap(), absent, "{more}");
            }
        }
    }
    let own = outcome(vec![child("c", &config(json!({}))), child("p", &pod("a"))]);
    let live = created(&own);
    assert_eq!(shown(&missing(&hidden, &outcome(vec![]), live.clone()).unwrap()).matches("delete").count(), 2);
    let again = missing(&hidden, &own, live).unwrap();
    let creates = |op: &WriteOp| op.creates(|_| true);
    assert!(!again.children.iter().any(creates), "what it created is found: {}", shown(&again));
}

#[test]
fn q4_what_is_adopted_is_compared_beforehand_and_the_loop_parses_little() {
    let large = |key: usize| {
        let mut live = old(pod("a"));
        live["metadata"]["name"] = json!(format!("old-{key}"));
        live["metadata"]["uid"] = json!(format!("o-{key}"));
        live["spec"]["more"] = json!("m".repeat(100_000));
        live
    };
    let child = |key: usize| {
        let mut object = pod("a");
        object["metadata"] = json!({"name": format!("old-{key}")});
        Child { adopt: true, ..child(&key.to_string(), &object) }
    };
    let wanted = outcome((0..20).map(child).collect());
    let spec = adopting();
    let prepared = prepare(&spec, &primary(), &wanted, None).unwrap();
    let kinds = [Kind::new("v1", "Pod"), Kind::new("v1", "ConfigMap")];
    let snapshot = Snapshot::of(&kinds, (0..20).map(large).map(decode));
    let plan = || compared(&prepared, &spec, &snapshot, (&mut Applied::new(), &mut Sent::new()));
    let alone = plan();
    assert!(alone.children.is_empty() && alone.parsing.is_unfinished && alone.waits, "in doubt nothing is adopted");
    assert_eq!(alone.parsing.bytes, 0);
    compare_beforehand(&prepared, MANAGER, &snapshot);
    let known = plan();
    assert!(!known.parsing.is_unfinished && !known.waits && known.parsing.bytes == 0);
    let is_current = |op: &WriteOp| matches!(op, WriteOp::Apply { body, .. } if body.contains("mortise.dev/desired"));
    assert!(known.children.len() == 20 && known.children.iter().all(is_current), "{:?}", known.children);
}
