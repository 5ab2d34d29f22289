//! `namespaces` and `labels` of declarations.

use super::*;
use crate::limits::MAX_WATCHES;
use crate::scope::{MAX_LABELS_BYTES, MAX_NAMESPACES};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

fn secret(more: Value) -> Value {
    let mut read = json!({"apiVersion": "v1", "kind": "Secret"});
    json_patch::merge(&mut read, &more);
    read
}

/// What is declared of each kind, as `mortise inspect` shows it.
fn scopes(controller: &ControllerSpec) -> Vec<String> {
    controller.scopes().iter().map(|(kind, scope)| format!("{} {scope}", kind.kind).trim_end().to_owned()).collect()
}

#[test]
fn a_declaration_may_name_namespaces_and_labels_and_those_of_one_kind_unite() {
    let mut manifest = manifest();
    manifest["controllers"][0]["owns"] = json!([
        {"apiVersion": "v1", "kind": "Pod"},
        {"apiVersion": "v1", "kind": "ConfigMap", "namespaces": ["shop", "db"]},
    ]);
    manifest["controllers"][0]["reads"] = json!([
        secret(json!({"namespaces": ["infra"], "labels": "app=web"})),
        secret(json!({"namespaces": ["shared"], "labels": "app = web"})),
        {"apiVersion": "v1", "kind": "ConfigMap", "namespaces": ["infra"]},
        {"apiVersion": "v1", "kind": "Pod", "namespaces": ["infra"]},
    ]);
    let controller = Manifest::parse(&manifest.to_string()).unwrap().controllers[0].clone();
    let expected = [
        "PodSet",
        "Pod",
        "ConfigMap in the namespaces db, infra, shop",
        "Secret in the namespaces infra, shared, with the labels app=web",
    ];
    assert_eq!(scopes(&controller), expected);
    let config_map = Kind::new("v1", "ConfigMap");
    assert!(controller.tracks(&config_map) && controller.has_finalizer(), "children in other namespaces are tracked");
    assert!(controller.sees(&config_map, "infra") && !controller.sees(&config_map, "other"));
    assert!(controller.sees(&Kind::new("v1", "Pod"), "other") && !controller.sees(&Kind::new("v1", "Node"), ""));
}

#[test]
fn invalid_scopes_are_refused_with_their_place() {
    let read = |more: Value| json!([secret(more)]);
    let owned = |more: Value| json!([secret(more)]);
    let long = format!("app in ({})", vec!["x".repeat(60); 20].join(","));
    invalid([
        ("/controllers/0/reads", read(json!({"namespaces": []})), "controllers[0].reads[0].namespaces: there is none"),
        (
            "/controllers/0/reads",
            read(json!({"namespaces": "any"})),
            "invalid type: string \"any\", expected a sequence",
        ),
        (
            "/controllers/0/reads",
            read(json!({"namespaces": ["A"]})),
            "namespaces: \"A\" is not the name of a namespace",
        ),
        ("/controllers/0/reads", read(json!({"namespaces": ["a.b"]})), "\"a.b\" is not the name of a namespace"),
        ("/controllers/0/reads", read(json!({"namespaces": ["x".repeat(64)]})), "is not the name of a namespace"),
        ("/controllers/0/reads", read(json!({"namespaces": [7]})), "namespaces: 7 is not the name"),
        ("/controllers/0/reads", read(json!({"namespaces": ["a", "a"]})), "namespaces: \"a\" is named twice"),
        ("/controllers/0/reads", read(json!({"namespaces": names(17)})), "namespaces: there are 17, the most is 16"),
        ("/controllers/0/reads", read(json!({"labels": ""})), "controllers[0].reads[0].labels: it selects everything"),
        (
            "/controllers/0/reads",
            read(json!({"labels": "a=b=c"})),
            "reads[0].labels: the label selector \"a=b=c\" is invalid",
        ),
        ("/controllers/0/reads", read(json!({"labels": long})), "reads[0].labels: it has 1228 bytes, the most is 1024"),
        ("/controllers/0/owns", owned(json!({"namespaces": 3})), "owns[0].namespaces: 3 is neither \"any\" nor a list"),
        ("/controllers/0/owns", owned(json!({"namespaces": []})), "owns[0].namespaces: there is none"),
        (
            "/controllers/0/owns",
            owned(json!({"labels": "a=b"})),
            "owns[0].labels: children cannot be narrowed by labels",
        ),
    ]);
}

#[test]
fn x10_scopes_are_bounded_one_by_one_and_in_all() {
    let accepted = |reads: Value| Manifest::parse(&with("/controllers/0/reads", reads).to_string());
    assert!(accepted(json!([secret(json!({"namespaces": names(MAX_NAMESPACES)}))])).is_ok());
    let labels = format!("app in ({})", vec!["x".repeat(60); 16].join(",")) + &" ".repeat(40);
    assert!(labels.len() <= MAX_LABELS_BYTES && accepted(json!([secret(json!({"labels": labels}))])).is_ok());
    let kinds = |count: usize| {
        let read =
            |number| json!({"apiVersion": "v1", "kind": format!("K{number}"), "namespaces": names(MAX_NAMESPACES)});
        Value::Array((0..count).map(read).collect())
    };
    assert!(accepted(kinds(MAX_WATCHES / MAX_NAMESPACES)).is_ok());
    let refused = accepted(kinds(MAX_WATCHES / MAX_NAMESPACES + 1)).unwrap_err();
    assert!(refused.message.contains("namespaces of the kinds that they own and read: there are 144"), "{refused}");
}

#[test]
fn r2_a_kind_that_is_written_is_not_read_by_labels() {
    let mut manifest = with("/writes", json!([{"apiVersion": "v1", "kind": "Secret", "verbs": ["apply"]}]));
    manifest["controllers"][0]["reads"] = json!([secret(json!({"namespaces": ["a"]}))]);
    assert!(Manifest::parse(&manifest.to_string()).is_ok());
    manifest["controllers"][0]["reads"] = json!([secret(json!({"labels": "app=web"}))]);
    let refused = refusal(&manifest).message;
    assert!(refused.contains("writes[0]: v1/Secret is read with the labels app=web alone"), "{refused}");
}
