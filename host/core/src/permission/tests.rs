//! Which rights a manifest needs, and what is read of a refusal.

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

/// One line for each kind or subresource, with its verbs.
fn lines(manifest: &str) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for Permission { kind, verb, subresource } in needed(&Manifest::parse(manifest).unwrap()) {
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
fn a_plugin_gets_the_rights_that_its_manifest_needs_and_no_other() {
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
fn no_right_to_the_status_of_a_kind_of_kubernetes_itself_is_asked_for() {
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
fn a_plugin_that_writes_besides_gets_the_rights_to_what_it_declares() {
    let mut manifest: serde_json::Value = serde_json::from_str(PODSET).unwrap();
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
    Permission { kind: Kind::new("example.com/v1", "Octopus"), verb, subresource: None }
}

#[test]
fn the_rule_that_is_missing_has_the_api_servers_own_names() {
    let refused = |what: &str| format!("x is forbidden: User \"a:b\" cannot {what} in the namespace \"default\": no");
    let read = missing_text(&refused(r#"watch resource "octopodes" in API group "example.com""#), &permission("list"));
    assert!(read.contains("aggregate-to-host=true"), "{read}");
    let rule = r#"- {"apiGroups":["example.com"],"resources":["octopodes"],"verbs":["get","list","watch"]}"#;
    assert_eq!(read.lines().last().unwrap(), rule, "a read names all three verbs at once");
    let write = missing_text(&refused(r#"create resource "pods/eviction" in API group """#), &permission("create"));
    let rule = r#"- {"apiGroups":[""],"resources":["pods/eviction"],"verbs":["create"]}"#;
    assert_eq!(write.lines().last().unwrap(), rule, "a write names its verb alone");
    let unread = missing_text("no", &permission("create"));
    assert!(
        unread.starts_with("the host needs the verb create on example.com/v1/Octopus"),
        "no name is guessed: {unread}"
    );
}

#[test]
fn only_an_authorizers_refusal_asks_for_a_rule() {
    let rbac = r#"pods is forbidden: User "system:serviceaccount:mortise-system:mortise" cannot create resource "pods" in API group "" in the namespace "default""#;
    assert_eq!(Denial::read(rbac), Some(Denial { verb: "create", resource: "pods", group: "" }));
    for other in [
        r#"pods "a" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5"#,
        r#"pods "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"#,
        r#"admission webhook "images.example.com" denied the request: images without a digest cannot run"#,
    ] {
        assert_eq!(Denial::read(other), None, "{other}");
    }
}
