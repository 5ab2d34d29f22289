//! Live and wanted definitions in, plans out.

use serde_json::{Value, json};

use super::{CrdOwner, CrdPlan, Establishment, establishment, narrowing, plan, prepare};
use crate::refusal::Refusal;

fn crd(schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "podsets.app.example.com"},
        "spec": {
            "group": "app.example.com", "scope": "Namespaced",
            "names": {"kind": "PodSet", "plural": "podsets"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}}]
        }
    })
}

/// The live object that a plugin's definition becomes.
fn live(plugin: &str, crd: &Value) -> Value {
    let mut live: Value = serde_json::from_str(&prepare(plugin, &crd.to_string(), None)).unwrap();
    live["metadata"]["resourceVersion"] = "41".into();
    live["metadata"]["uid"] = "u-1".into();
    live["status"] = json!({"storedVersions": ["v1alpha1"]});
    live
}

fn planned(live: &Value, wanted: &Value, objects_exist: bool) -> CrdPlan {
    plan(Some(&live.to_string()), &prepare("podset", &wanted.to_string(), None), objects_exist)
}

fn refusal(plan: CrdPlan) -> (&'static str, String) {
    match plan {
        CrdPlan::Refuse(refusal) => (refusal.reason, refusal.message),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn narrows(plan: CrdPlan) -> String {
    match plan {
        CrdPlan::Narrows { refusal: Refusal { reason: "CrdNarrows", message, .. }, kept: None } => message,
        other => panic!("expected narrowings, got {other:?}"),
    }
}

/// The narrowings for which an update from one spec schema to another is refused; None when it is planned.
fn narrowed(old: Value, new: Value) -> Option<String> {
    match planned(&live("podset", &crd(old)), &crd(new), true) {
        CrdPlan::Update(_) => None,
        plan => {
            let message = narrows(plan);
            let (_, rest) = message.split_once("may hold: ").unwrap();
            Some(rest.split_once(". Serve").unwrap().0.to_owned())
        }
    }
}

fn spec(property: Value) -> Value {
    json!({"type": "object", "properties": {"x": property}})
}

#[test]
fn l4_a_crd_that_is_absent_is_created_with_label_owner_and_hash() {
    let wanted = prepare("podset", &crd(json!({"type": "object"})).to_string(), None);
    let CrdPlan::Create(body) = plan(None, &wanted, true) else { panic!("not created") };
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["metadata"]["labels"]["app.kubernetes.io/managed-by"], "mortise");
    assert_eq!(body["metadata"]["annotations"]["mortise.dev/plugin"], "podset");
    assert_eq!(body["metadata"]["annotations"]["mortise.dev/desired"].as_str().unwrap().len(), 16);
}

#[test]
fn l4_an_unchanged_crd_is_not_written() {
    let wanted = crd(json!({"type": "object"}));
    let mut live = live("podset", &wanted);
    // Fields that the API server fills in are no difference.
    live["spec"]["names"]["listKind"] = "PodSetList".into();
    live["spec"]["conversion"] = json!({"strategy": "None"});
    assert_eq!(planned(&live, &wanted, true), CrdPlan::Nothing(CrdOwner::Plugin));
}

#[test]
fn l4_a_widened_crd_is_updated_and_keeps_what_others_put_on_it() {
    let mut live = live("podset", &crd(spec(json!({"type": "integer", "minimum": 1}))));
    live["metadata"]["labels"]["team"] = "web".into();
    live["metadata"]["finalizers"] = json!(["customresourcecleanup.apiextensions.k8s.io"]);
    let wanted = crd(spec(json!({"type": "integer", "minimum": 0})));
    let CrdPlan::Update(body) = planned(&live, &wanted, true) else { panic!("not updated") };
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["metadata"]["resourceVersion"], "41");
    assert_eq!(body["metadata"]["labels"]["team"], "web");
    assert_eq!(body["metadata"]["finalizers"][0], "customresourcecleanup.apiextensions.k8s.io");
    assert_eq!(body["spec"], wanted["spec"]);
    let again = plan(Some(&body.to_string()), &prepare("podset", &wanted.to_string(), None), true);
    assert_eq!(again, CrdPlan::Nothing(CrdOwner::Plugin), "a second plan changes nothing");
}

#[test]
fn l4_narrowing_is_refused_by_version_path_and_cause_while_objects_exist() {
    let table: Vec<(Value, Value, &str)> = vec![
        (json!({"type": "integer"}), json!({"type": "string"}), "its type changes from integer to string"),
        (json!({}), json!({"type": "string"}), "must be of type string where any type was accepted"),
        (json!({"type": "number"}), json!({"type": "integer"}), "its type changes from number to integer"),
        (json!({"minimum": 0}), json!({"minimum": 1}), "minimum is raised from 0 to 1"),
        (json!({}), json!({"minimum": 1}), "minimum 1 is new"),
        (json!({"maximum": 9}), json!({"maximum": 8}), "maximum is lowered from 9 to 8"),
        (json!({"minLength": 1}), json!({"minLength": 2}), "minLength is raised from 1 to 2"),
        (json!({}), json!({"maxLength": 2}), "maxLength 2 is new"),
        (json!({}), json!({"maxItems": 2}), "maxItems 2 is new"),
        (json!({}), json!({"pattern": "a"}), "pattern is new"),
        (json!({"pattern": "a"}), json!({"pattern": "b"}), "pattern is changed"),
        (json!({}), json!({"format": "date-time"}), "format date-time is new"),
        (json!({"format": "int64"}), json!({"format": "int32"}), "format int32 is new"),
        (json!({"enum": ["a", "b"]}), json!({"enum": ["b"]}), "enum no longer has \"a\""),
        (json!({}), json!({"enum": ["b"]}), "enum is new"),
        (json!({"nullable": true}), json!({}), "nullable is removed"),
        (json!({}), json!({"uniqueItems": true}), "uniqueItems is new"),
        (json!({}), json!({"x-kubernetes-list-type": "set"}), "x-kubernetes-list-type is new"),
        (json!({}), json!({"anyOf": [{"minimum": 1}]}), "anyOf is new"),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({}),
            "x-kubernetes-preserve-unknown-fields is removed",
        ),
        (
            json!({}),
            json!({"x-kubernetes-validations": [{"rule": "self > 1"}]}),
            "the validation rule \"self > 1\" is new",
        ),
    ];
    for (old, new, cause) in table {
        assert_eq!(
            narrowed(spec(old.clone()), spec(new.clone())).as_deref(),
            Some(&*format!("v1alpha1 .spec.x: {cause}")),
            "{old} -> {new}"
        );
    }
}

#[test]
fn l4_narrowing_is_found_below_items_maps_and_missing_properties() {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let string = || json!({"type": "string"});
    for (old, new, expected) in [
        (spec(string()), object(json!({})), ".spec.x: the property is removed, its values would be dropped"),
        (
            spec(json!({"items": {"type": "integer"}})),
            spec(json!({"items": string()})),
            ".spec.x[]: its type changes from integer to string",
        ),
        (
            spec(json!({"additionalProperties": {"maxLength": 9}})),
            spec(json!({"additionalProperties": {"maxLength": 3}})),
            ".spec.x.*: maxLength is lowered from 9 to 3",
        ),
        (
            spec(json!({"additionalProperties": string()})),
            spec(json!({})),
            ".spec.x.*: additionalProperties are removed, their values would be dropped",
        ),
        (
            spec(string()),
            json!({"type": "object", "properties": {"x": string()}, "required": ["x"]}),
            ".spec.x: the property becomes required",
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": string()}}),
            ".spec.x: the property gets a schema where anything was accepted",
        ),
    ] {
        assert_eq!(narrowed(old, new).as_deref(), Some(&*format!("v1alpha1 {expected}")));
    }
}

#[test]
fn l4_widening_is_an_update() {
    let table = [
        (json!({"type": "integer"}), json!({"type": "number"})),
        (json!({"type": "integer"}), json!({"x-kubernetes-int-or-string": true})),
        (json!({"minimum": 1, "maximum": 2}), json!({"minimum": 0, "maximum": 3})),
        (json!({"enum": ["a"]}), json!({"enum": ["a", "b"]})),
        (json!({"pattern": "a", "format": "int32"}), json!({"format": "int64", "nullable": true})),
        (json!({"type": "object"}), json!({"type": "object", "properties": {"y": {"type": "string"}}})),
        (json!({"anyOf": [{"minimum": 1}]}), json!({})),
        (json!({"type": "string"}), json!({"type": "string", "description": "what it is for"})),
    ];
    for (old, new) in table {
        assert_eq!(narrowed(spec(old.clone()), spec(new.clone())), None, "{old} -> {new}");
    }
    let with_default =
        json!({"type": "object", "properties": {"x": {"type": "string", "default": "a"}}, "required": ["x"]});
    assert_eq!(narrowed(spec(json!({"type": "string"})), with_default), None, "the required property has a default");
}

#[test]
fn l4_a_narrower_crd_replaces_one_without_objects() {
    let live = live("podset", &crd(spec(json!({"type": "integer"}))));
    let wanted = crd(spec(json!({"type": "string"})));
    assert!(matches!(planned(&live, &wanted, false), CrdPlan::Update(_)));
}

#[test]
fn l4_a_version_that_is_served_or_stored_is_not_removed_while_objects_exist() {
    let old = live("podset", &crd(json!({"type": "object"})));
    let mut wanted = crd(json!({"type": "object"}));
    wanted["spec"]["versions"][0]["name"] = "v1beta1".into();
    let message = narrows(planned(&old, &wanted, true));
    assert!(message.contains("v1alpha1: the version is removed while objects may be stored in it"), "{message}");
    assert!(message.contains("v1alpha1: the version is no longer served"), "{message}");
}

#[test]
fn l4_a_foreign_crd_that_serves_the_versions_is_used_and_never_written() {
    let wanted = crd(json!({"type": "object"}));
    let mut foreign = wanted.clone();
    foreign["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
    assert_eq!(planned(&foreign, &wanted, true), CrdPlan::Nothing(CrdOwner::Another));

    foreign["spec"]["versions"][0]["name"] = "v1".into();
    let (reason, message) = refusal(planned(&foreign, &wanted, false));
    assert_eq!(reason, "CrdForeign");
    assert!(message.contains("is managed by \"Helm\" and does not serve v1alpha1"), "{message}");
}

#[test]
fn l4_a_crd_of_another_plugin_is_foreign() {
    let wanted = crd(spec(json!({"type": "integer"})));
    let mut other = live("other", &crd(json!({"type": "object"})));
    assert_eq!(planned(&other, &wanted, true), CrdPlan::Nothing(CrdOwner::Another));
    other["spec"]["versions"][0]["served"] = false.into();
    let (_, message) = refusal(planned(&other, &wanted, false));
    assert!(message.contains("belongs to the plugin \"other\""), "{message}");
}

#[test]
fn l4_another_kind_or_scope_under_the_same_name_is_refused() {
    let live = live("podset", &crd(json!({"type": "object"})));
    let mut wanted = crd(json!({"type": "object"}));
    wanted["spec"]["scope"] = "Cluster".into();
    let (reason, message) = refusal(planned(&live, &wanted, false));
    assert_eq!(reason, "CrdConflict");
    assert!(message.contains("exists with the scope \"Namespaced\", the plugin wants \"Cluster\""), "{message}");
}

/// The live object after a plan for a definition of this spec, with objects.
fn after(mut live: Value, wanted: Value) -> Value {
    let (CrdPlan::Update(body) | CrdPlan::Narrows { kept: Some(body), .. }) = planned(&live, &crd(wanted), true) else {
        panic!("nothing is written")
    };
    let status = live["status"].take();
    live = serde_json::from_str(&body).unwrap();
    live["status"] = status;
    live
}

#[test]
fn l4_a_plugin_that_is_rolled_back_keeps_the_definition_that_widened_its_own() {
    let [first, second, third] =
        [json!({}), json!({"y": {"type": "string"}}), json!({"z": {"type": "string"}})].map(|more| {
            let mut spec = spec(json!({"type": "integer"}));
            spec["properties"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        });
    let begin = live("podset", &crd(first.clone()));
    let wide = after(begin.clone(), second.clone());
    let back = after(wide.clone(), first.clone());
    assert_eq!(back["spec"], crd(second.clone())["spec"]);
    assert_eq!(
        planned(&back, &crd(first.clone()), true),
        CrdPlan::Nothing(CrdOwner::Plugin),
        "a second plan changes nothing"
    );
    assert_eq!(after(back.clone(), second.clone())["spec"], wide["spec"], "and forth again");

    assert!(narrows(planned(&back, &crd(third), true)).contains(".spec.y"), "what never served is no way back");
    let CrdPlan::Update(body) = planned(&wide, &crd(first.clone()), false) else { panic!("not updated") };
    let narrow: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(narrow["spec"], crd(first.clone())["spec"], "without objects it is narrowed");
    assert_eq!(
        narrow["metadata"]["annotations"]["mortise.dev/former"],
        begin["metadata"]["annotations"]["mortise.dev/former"]
    );

    let mut changed = wide;
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"]["minimum"] =
        3.into();
    assert!(narrows(planned(&changed, &crd(first), true)).contains(".spec.y"), "a person has narrowed it since");
}

#[test]
fn l4_the_definitions_that_a_plugin_can_go_back_to_are_bounded() {
    let with = |count: usize| {
        let names = (0..count).map(|at| (format!("f{at}"), json!({"type": "string"})));
        json!({"type": "object", "properties": names.collect::<serde_json::Map<_, _>>()})
    };
    let last = (1..=super::MAX_FORMER).fold(live("podset", &crd(with(0))), |live, count| after(live, with(count)));
    narrows(planned(&last, &crd(with(0)), true));
    assert_eq!(after(last.clone(), with(1))["spec"], last["spec"]);
}

#[test]
fn text_that_is_no_crd_is_refused_not_sent() {
    assert_eq!(refusal(plan(None, &prepare("podset", "[]", None), false)).0, "CrdInvalid");
    assert_eq!(refusal(plan(None, &prepare("podset", "{\"metadata\": {}}", None), false)).0, "CrdInvalid");
}

#[test]
fn establishment_follows_the_conditions() {
    let with = |conditions: Value| {
        let mut crd = crd(json!({}));
        crd["status"] = json!({"conditions": conditions});
        establishment(&crd.to_string())
    };
    assert_eq!(establishment(&crd(json!({})).to_string()), Establishment::Pending);
    assert_eq!(with(json!([{"type": "Established", "status": "True"}])), Establishment::Established);
    assert_eq!(with(json!([{"type": "Established", "status": "False"}])), Establishment::Pending);
    let refused =
        with(json!([{"type": "NamesAccepted", "status": "False", "message": "\"podsets\" is already in use"}]));
    let Establishment::Refused(refusal) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.reason, "CrdNamesNotAccepted");
    assert!(refusal.message.contains("\"podsets\" is already in use"), "{}", refusal.message);
    let mut deleted = crd(json!({}));
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(establishment(&deleted.to_string()), Establishment::Terminating);
}

fn converting(ca_bundle: &str) -> std::sync::Arc<str> {
    let mut crd = crd(json!({"type": "object"}));
    let mut second = crd["spec"]["versions"][0].clone();
    (second["name"], second["storage"]) = ("v1".into(), false.into());
    crd["spec"]["versions"].as_array_mut().unwrap().push(second);
    let webhook = json!({
        "clientConfig": {"url": "https://127.0.0.1:9443/convert/podset", "caBundle": ca_bundle},
        "conversionReviewVersions": ["v1"],
    });
    prepare("podset", &crd.to_string(), Some(json!({"strategy": "Webhook", "webhook": webhook})))
}

#[test]
fn a_new_ca_bundle_is_written_into_a_definition_that_is_otherwise_equal() {
    let live = converting("b25l");
    assert_eq!(plan(Some(&live), &converting("b25l"), true), CrdPlan::Nothing(CrdOwner::Plugin));
    let CrdPlan::Update(body) = plan(Some(&live), &converting("b25l dHdv"), true) else { panic!("not updated") };
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"], "b25l dHdv");
}

#[test]
fn l4_a_definition_that_loses_its_conversion_narrows_while_objects_exist() {
    let live = converting("b25l");
    let mut wanted = crd(json!({"type": "object"}));
    wanted["spec"] = serde_json::from_str::<Value>(&live).unwrap()["spec"].take();
    wanted["spec"].as_object_mut().unwrap().remove("conversion");
    let wanted = prepare("podset", &wanted.to_string(), None);
    let message = narrows(plan(Some(&live), &wanted, true));
    assert!(message.contains("spec.conversion: objects are no longer converted"), "{message}");
    assert!(matches!(plan(Some(&live), &wanted, false), CrdPlan::Update(_)));
}

#[test]
fn l4_a_foreign_definition_is_used_when_it_calls_this_plugin_for_conversion() {
    let mut foreign: Value = serde_json::from_str(&converting("b25l")).unwrap();
    foreign["metadata"] = json!({"name": "podsets.app.example.com"});
    assert_eq!(plan(Some(&foreign.to_string()), &converting("dHdv"), true), CrdPlan::Nothing(CrdOwner::Another));
    foreign["spec"]["conversion"] = json!({"strategy": "None"});
    let (reason, message) = refusal(plan(Some(&foreign.to_string()), &converting("dHdv"), true));
    assert_eq!(reason, "CrdForeign");
    assert!(message.contains("does not call the plugin for conversion"), "{message}");
}

#[test]
fn members_of_long_lists_are_looked_up_and_not_compared_with_each_other() {
    const MEMBERS: usize = 1 << 14;
    let names = |from: usize| (from..from + MEMBERS).map(|at| format!("v{at}")).collect::<Vec<_>>();
    let schema = |from: usize| {
        let rules: Vec<Value> = names(from).iter().map(|rule| json!({"rule": rule})).collect();
        json!({"type": "string", "enum": names(from), "required": names(from), "x-kubernetes-validations": rules})
    };
    let before = narrowing::COMPARISONS.get();
    let narrowings = narrowing::narrowings(&crd(schema(0)), &crd(schema(MEMBERS / 2)));
    assert_eq!(narrowings.len(), 3 * MEMBERS / 2, "values that are lost, rules and fields that are new");
    // Three lists are sorted, and looked up.
    let (comparisons, most) = (narrowing::COMPARISONS.get() - before, 3 * 4 * MEMBERS * 14);
    assert!(comparisons <= most, "{comparisons} comparisons of {MEMBERS} members");
}
