//! The permissions that a manifest needs, and the rule that a 403 lacks.

use expect_test::expect;

use super::*;

const PODSET: &str = r#"{
  "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "podset", "version": "0.1.0",
  "customResources": [{
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "podsetti.app.example.com"},
    "spec": {"group": "app.example.com", "scope": "Namespaced",
      "names": {"kind": "PodSet", "plural": "podsetti"},
      "versions": [{"name": "v1alpha1", "served": true, "storage": true}]}
  }],
  "controllers": [{
    "for": {"apiVersion": "app.example.com/v1alpha1", "kind": "PodSet"},
    "owns": [
      {"apiVersion": "v1", "kind": "Pod", "update": "recreate"},
      {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"},
      {"apiVersion": "v1", "kind": "Service"}],
    "reads": [{"apiVersion": "v1", "kind": "Node"}, {"apiVersion": "v1", "kind": "Secret"}]
  }]
}"#;

/// One line per kind or subresource, with its verbs.
fn lines(manifest: &str) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for Permission { kind, verb, subresource, .. } in needed(&Manifest::parse(manifest).unwrap()) {
        let of = subresource.map_or(kind.to_string(), |subresource| format!("{kind}/{subresource}"));
        match lines.iter_mut().find(|(known, _)| *known == of) {
            Some((_, verbs)) => verbs.push(verb),
            None => lines.push((of, vec![verb])),
        }
    }
    lines.sort();
    lines.iter().map(|(of, verbs)| format!("{of}: {}\n", verbs.join(" "))).collect()
}

#[test]
fn a_plugin_needs_the_permissions_of_its_manifest_and_no_others() {
    let expected = "\
app.example.com/v1alpha1/PodSet: get list watch
app.example.com/v1alpha1/PodSet/finalizers: update
app.example.com/v1alpha1/PodSet/status: patch
networking.k8s.io/v1/NetworkPolicy: create delete get list patch watch
v1/Node: get list watch
v1/Pod: create delete get list watch
v1/Secret: get list watch
v1/Service: create delete get list patch watch
";
    assert_eq!(lines(PODSET), expected);
}

#[test]
fn a_kind_that_is_declared_in_some_namespaces_needs_its_permissions_there() {
    let manifest = PODSET
        .replace(r#""kind": "Secret"}"#, r#""kind": "Secret", "namespaces": ["b", "a"], "labels": "x=y"}"#)
        .replace(
            r#""kind": "Service"}"#,
            r#""kind": "Service", "namespaces": ["a"]}, {"apiVersion": "v1", "kind": "Wide"}"#,
        )
        .replace(r#""reads": ["#, r#""reads": [{"apiVersion": "v1", "kind": "Wide", "namespaces": ["a"]}, "#);
    let needed = needed(&Manifest::parse(&manifest).unwrap());
    let of = |kind: &str| {
        let of_kind = needed.iter().filter(|permission| *permission.kind.kind == *kind);
        let text = |each: &Permission| format!("{} {}", each.verb, each.namespace.as_deref().unwrap_or("everywhere"));
        of_kind.map(text).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(of("Secret"), "get a, get b, list a, list b, watch a, watch b");
    assert_eq!(of("Service"), "create a, delete a, get a, list a, patch a, watch a");
    let wide =
        "create everywhere, delete everywhere, get everywhere, list everywhere, patch everywhere, watch everywhere";
    assert_eq!(of("Wide"), wide, "what is needed everywhere is not named again for a namespace");
}

#[test]
fn x3_children_that_are_replaced_at_once_need_the_right_to_mark_their_owner() {
    let at_once = PODSET.replacen(r#""kind": "Pod""#, r#""kind": "Pod", "replace": "atOnce""#, 1);
    assert_ne!(at_once, PODSET);
    assert!(lines(&at_once).contains("PodSet: get list patch watch\n"), "{}", lines(&at_once));
}

#[test]
fn a_built_in_kind_needs_no_permission_for_its_status() {
    let manifest = r#"{
      "apiVersion": "mortise.dev/v1alpha1", "kind": "PluginManifest", "name": "notes",
      "controllers": [{
        "for": {"apiVersion": "apps/v1", "kind": "Deployment"},
        "owns": [{"apiVersion": "v1", "kind": "ConfigMap"}]
      }]
    }"#;
    let expected = "\
apps/v1/Deployment: get list watch
apps/v1/Deployment/finalizers: update
v1/ConfigMap: create delete get list patch watch
";
    assert_eq!(lines(manifest), expected);
}

#[test]
fn children_in_any_namespace_need_a_finalizer_and_adoption_a_patch() {
    let mut manifest: Value = serde_json::from_str(PODSET).unwrap();
    for owned in manifest["controllers"][0]["owns"].as_array_mut().unwrap() {
        owned["namespaces"] = json!("any");
    }
    manifest["controllers"][0]["owns"][0]["adopt"] = json!(true);
    let found = lines(&manifest.to_string());
    assert!(
        found.starts_with(
            "app.example.com/v1alpha1/PodSet: get list patch watch\napp.example.com/v1alpha1/PodSet/status:"
        ),
        "{found}"
    );
    assert!(found.contains("v1/Pod: create delete get list patch watch\n"), "{found}");
}

#[test]
fn a_secret_that_is_never_changed_needs_a_patch_for_its_generated_values() {
    let mut manifest: Value = serde_json::from_str(PODSET).unwrap();
    manifest["controllers"][0]["owns"] = json!([{"apiVersion": "v1", "kind": "Secret", "update": "recreate"}]);
    let found = lines(&manifest.to_string());
    assert!(found.contains("v1/Secret: create delete get list patch watch\n"), "{found}");
}

#[test]
fn declared_writes_need_permissions() {
    let mut manifest: Value = serde_json::from_str(PODSET).unwrap();
    manifest["writes"] = json!([
        {"apiVersion": "apps/v1", "kind": "Deployment", "verbs": ["patch"], "subresources": ["scale"]},
        {"apiVersion": "v1", "kind": "Pod", "verbs": ["evict"]},
        {"apiVersion": "v1", "kind": "Secret", "verbs": ["apply", "delete"]},
    ]);
    let found = lines(&manifest.to_string());
    for line in [
        "apps/v1/Deployment: patch\n",
        "apps/v1/Deployment/scale: patch\n",
        "v1/Pod/eviction: create\n",
        "v1/Secret: create delete get list patch watch\n",
    ] {
        assert!(found.contains(line), "{line:?} is not in\n{found}");
    }
}

fn permission(verb: &'static str) -> Permission {
    Permission { kind: Kind::new("example.com/v1", "Octopus"), verb, subresource: None, namespace: None }
}

const PRINTED_BY: &str = "mortise rbac FILE.wasm --name podset";

#[test]
fn the_command_that_prints_a_plugins_rights_is_its_own_or_its_tenants() {
    let account = |name: &str| ServiceAccount { namespace: "any".into(), name: name.into() };
    let printed = |plugin: &str, name: Option<&str>| printed_by(plugin, name.map(account).as_ref(), "plugins");
    let table = [
        ("podset", None, "--name podset -n plugins"),
        ("podset", Some("podset"), "--name podset --service-account podset -n plugins"),
        ("team-a.podset", Some("podset"), "--tenant team-a --name podset -n plugins"),
        ("team-a.podset", Some("sets"), "--tenant team-a --name podset --service-account sets -n plugins"),
        ("team-a.podset", None, "--tenant team-a --name podset -n plugins"),
    ];
    for (plugin, account, options) in table {
        assert_eq!(printed(plugin, account), format!("mortise rbac FILE.wasm {options}"));
    }
}

#[test]
fn the_missing_rule_has_the_names_of_the_api_server() {
    let denied = |what: &str| format!("x is forbidden: User \"a:b\" cannot {what} in the namespace \"default\": no");
    let read = missing_text(
        &denied(r#"watch resource "octopodes" in API group "example.com""#),
        &permission("list"),
        None,
        PRINTED_BY,
    );
    assert!(read.contains("aggregate-to-host=true"), "{read}");
    let rule = r#"- {"apiGroups":["example.com"],"resources":["octopodes"],"verbs":["get","list","watch"]}"#;
    assert_eq!(read.lines().last().unwrap(), rule, "a read names all three verbs at once");
    let write = missing_text(
        &denied(r#"create resource "pods/eviction" in API group """#),
        &permission("create"),
        None,
        PRINTED_BY,
    );
    let rule = r#"- {"apiGroups":[""],"resources":["pods/eviction"],"verbs":["create"]}"#;
    assert_eq!(write.lines().last().unwrap(), rule, "a write names its verb alone");
    let other = missing_text("no", &permission("create"), None, PRINTED_BY);
    assert!(other.starts_with("the host needs the verb create on example.com/v1/Octopus"), "no guess: {other}");
}

#[test]
fn the_missing_rule_of_a_service_account_says_where_it_belongs() {
    let account = ServiceAccount { namespace: "mortise-system".into(), name: "podset".into() };
    let denied = |what: &str| format!("x is forbidden: User \"a:b\" cannot {what} in the namespace \"default\": no");
    let create = denied(r#"create resource "pods" in API group """#);
    let everywhere = missing_text(&create, &permission("create"), Some(&account), PRINTED_BY);
    expect![[r#"
        add this rule to a ClusterRole that a ClusterRoleBinding gives the ServiceAccount mortise-system/podset (`mortise rbac FILE.wasm --name podset` prints both):
        - {"apiGroups":[""],"resources":["pods"],"verbs":["create"]}"#]]
    .assert_eq(&everywhere);
    let in_one = Permission { namespace: Some("team-a".into()), ..permission("create") };
    let in_one = missing_text(&create, &in_one, Some(&account), PRINTED_BY);
    assert!(in_one.starts_with("add this rule to a Role of the namespace team-a that a RoleBinding gives"), "{in_one}");
    let act = |what: &str| missing_text(&denied(what), &permission("create"), Some(&account), PRINTED_BY);
    let constrained = act(r#"impersonate-on:serviceaccount:create resource "pods" in API group """#);
    assert_eq!(constrained, act(r#"impersonate resource "serviceaccounts" in API group """#));
    expect![[r#"
        add this rule to a Role of the namespace mortise-system that a RoleBinding gives the host, so that it may act as the ServiceAccount mortise-system/podset (`mortise rbac FILE.wasm --name podset` prints both):
        - {"apiGroups":[""],"resourceNames":["podset"],"resources":["serviceaccounts"],"verbs":["impersonate"]}"#]]
    .assert_eq(&constrained);
}

#[test]
fn only_an_authorizers_denial_names_a_permission() {
    let rbac = r#"pods is forbidden: User "system:serviceaccount:mortise-system:mortise" cannot create resource "pods" in API group "" in the namespace "default""#;
    let user = "system:serviceaccount:mortise-system:mortise";
    let denial = Denial { user, verb: "create", resource: "pods", group: "", namespace: Some("default") };
    assert_eq!(Denial::read(rbac), Some(denial));
    for other in [
        r#"pods "a" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5"#,
        r#"pods "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"#,
        r#"admission webhook "images.example.com" denied the request: images without a digest cannot run"#,
    ] {
        assert_eq!(Denial::read(other), None, "{other}");
    }
}
