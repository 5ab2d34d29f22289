//! What a plugin's role contains, to the letter: a user pastes it into a cluster.

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

fn lines(rules: &[PolicyRule]) -> String {
    rules.iter().map(PolicyRule::to_yaml).collect()
}

#[test]
fn a_plugin_gets_the_rules_that_its_manifest_needs_and_no_other() {
    let manifest = Manifest::parse(PODSET).unwrap();
    assert_eq!(
        lines(&rules(&manifest)),
        r#"- apiGroups: [""]
  resources: ["nodes", "secrets"]
  verbs: ["get", "list", "watch"]
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["create", "delete", "get", "list", "watch"]
- apiGroups: [""]
  resources: ["services"]
  verbs: ["create", "delete", "get", "list", "patch", "watch"]
- apiGroups: ["app.example.com"]
  resources: ["podsetti"]
  verbs: ["get", "list", "watch"]
- apiGroups: ["app.example.com"]
  resources: ["podsetti/finalizers"]
  verbs: ["update"]
- apiGroups: ["app.example.com"]
  resources: ["podsetti/status"]
  verbs: ["patch"]
- apiGroups: ["networking.k8s.io"]
  resources: ["networkpolicies"]
  verbs: ["create", "delete", "get", "list", "patch", "watch"]
"#
    );
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
    assert_eq!(
        lines(&rules(&Manifest::parse(manifest).unwrap())),
        r#"- apiGroups: [""]
  resources: ["configmaps"]
  verbs: ["create", "delete", "get", "list", "patch", "watch"]
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["get", "list", "watch"]
- apiGroups: ["apps"]
  resources: ["deployments/finalizers"]
  verbs: ["update"]
"#
    );
}

#[test]
fn a_plugin_that_writes_besides_gets_the_rules_for_what_it_declares() {
    let mut manifest: serde_json::Value = serde_json::from_str(PODSET).unwrap();
    manifest["writes"] = serde_json::json!([
        {"apiVersion": "apps/v1", "kind": "Deployment", "verbs": ["patch"], "subresources": ["scale"]},
        {"apiVersion": "v1", "kind": "Pod", "verbs": ["evict"]},
        {"apiVersion": "v1", "kind": "Secret", "verbs": ["apply", "delete"]},
    ]);
    let text = lines(&rules(&Manifest::parse(&manifest.to_string()).unwrap()));
    for rule in [
        "- apiGroups: [\"\"]\n  resources: [\"pods/eviction\"]\n  verbs: [\"create\"]\n",
        "- apiGroups: [\"\"]\n  resources: [\"secrets\", \"services\"]\n  verbs: [\"create\", \"delete\", \"get\", \"list\", \"patch\", \"watch\"]\n",
        "- apiGroups: [\"apps\"]\n  resources: [\"deployments\", \"deployments/scale\"]\n  verbs: [\"patch\"]\n",
    ] {
        assert!(text.contains(rule), "{rule} is not in\n{text}");
    }
}

#[test]
fn a_plugin_role_carries_the_label_that_adds_it_to_the_hosts_role() {
    let manifest = Manifest::parse(PODSET).unwrap();
    let role = serde_json::to_value(cluster_role("podset", &manifest)).unwrap();
    assert_eq!(role["kind"], "ClusterRole");
    assert_eq!(role["metadata"]["name"], "mortise-plugin-podset");
    assert_eq!(role["metadata"]["labels"][AGGREGATE_LABEL], "true");
    assert_eq!(role["rules"].as_array().unwrap().len(), rules(&manifest).len());
    assert!(role.get("roleRef").is_none() && role.get("subjects").is_none() && role.get("aggregationRule").is_none());
}

#[test]
fn the_host_gathers_labelled_roles_and_has_configmaps_and_leases_of_its_own_namespace_only() {
    let objects: Vec<serde_json::Value> =
        host("plugins-here").iter().map(|object| serde_json::to_value(object).unwrap()).collect();
    let gathering: Vec<_> = objects.iter().filter(|object| object.get("aggregationRule").is_some()).collect();
    assert_eq!(gathering.len(), 1);
    assert_eq!(gathering[0]["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"][AGGREGATE_LABEL], "true");
    for object in &objects {
        for resource in ["configmaps", "leases"] {
            let has = object["rules"].to_string().contains(resource);
            assert_eq!(has, object["kind"] == "Role", "{resource} in {object}");
        }
        if object["kind"] == "Role" {
            assert_eq!(object["metadata"]["namespace"], "plugins-here");
        }
        assert!(!object["rules"].to_string().contains('*'), "a wildcard in {object}");
        for rule in object["rules"].as_array().into_iter().flatten() {
            let deletes = rule["verbs"].as_array().unwrap().contains(&"delete".into());
            let own = [
                serde_json::json!(["plugins"]),
                serde_json::json!(["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]),
            ];
            assert!(!deletes || own.contains(&rule["resources"]), "deletes more than its notes and webhooks: {rule}");
            let reads_secrets =
                rule["resources"] == serde_json::json!(["secrets"]) && rule["verbs"] != serde_json::json!(["create"]);
            assert!(!reads_secrets || rule["resourceNames"] == serde_json::json!([WEBHOOK_SECRET]), "{rule}");
        }
    }
}

#[test]
fn a_missing_read_names_all_three_verbs_at_once() {
    let text = missing_rule_text(&Kind::new("v1", "Pod"), "watch");
    assert!(text.contains("aggregate-to-host=true"), "{text}");
    assert!(
        text.ends_with("- apiGroups: [\"\"]\n  resources: [\"pods\"]\n  verbs: [\"get\", \"list\", \"watch\"]\n"),
        "{text}"
    );
}

#[test]
fn a_missing_write_names_that_verb_alone() {
    let text = missing_rule_text(&Kind::new("apps/v1", "Deployment"), "create");
    assert!(
        text.ends_with("- apiGroups: [\"apps\"]\n  resources: [\"deployments\"]\n  verbs: [\"create\"]\n"),
        "{text}"
    );
    let text = missing_permission_text(&Permission {
        kind: Kind::new("app.example.com/v1", "PodSet"),
        verb: "patch",
        subresource: Some("status".into()),
    });
    assert!(text.contains("resources: [\"podsets/status\"]\n  verbs: [\"patch\"]"), "{text}");
}

#[test]
fn plurals_are_those_of_kubernetes_own_resources() {
    let known = [
        ("Pod", "pods"),
        ("Endpoints", "endpoints"),
        ("EndpointSlice", "endpointslices"),
        ("NetworkPolicy", "networkpolicies"),
        ("Ingress", "ingresses"),
        ("IngressClass", "ingressclasses"),
        ("StorageClass", "storageclasses"),
        ("ComponentStatus", "componentstatuses"),
        ("PodDisruptionBudget", "poddisruptionbudgets"),
        ("PriorityClass", "priorityclasses"),
        ("CSIStorageCapacity", "csistoragecapacities"),
        ("CustomResourceDefinition", "customresourcedefinitions"),
        ("IPAddress", "ipaddresses"),
        ("ServiceCIDR", "servicecidrs"),
        ("Gateway", "gateways"),
        ("PodMetrics", "pods"),
        ("NodeMetrics", "nodes"),
    ];
    for (kind, resource) in known {
        assert_eq!(plural(kind), resource, "the plural of {kind}");
    }
}

#[test]
fn only_an_authorizers_refusal_asks_for_a_rule() {
    let rbac = r#"pods is forbidden: User "system:serviceaccount:mortise-system:mortise" cannot create resource "pods" in API group "" in the namespace "default""#;
    assert!(is_refused_by_rbac(rbac));
    for other in [
        r#"pods "a" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5"#,
        r#"pods "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"#,
        r#"admission webhook "images.example.com" denied the request: images without a digest cannot run"#,
    ] {
        assert!(!is_refused_by_rbac(other), "{other}");
    }
}
