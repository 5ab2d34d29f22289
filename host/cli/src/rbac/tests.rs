//! The exact contents of the roles: users apply them to clusters.

use mortise_core::object::Kind;
use serde_json::{Value, json};

use super::rules::{of_patterns, resource};
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
    "owns": [{"apiVersion": "v1", "kind": "Service"}],
    "reads": [{"apiVersion": "v1", "kind": "Node"}, {"apiVersion": "v1", "kind": "Secret"}]
  }]
}"#;

#[test]
fn a_plugins_role_groups_resources_by_verbs_and_has_the_label_that_aggregates_it() {
    let role = serde_json::to_value(plugin("podset", &Manifest::parse(PODSET).unwrap())).unwrap();
    let rule = |group: &str, resources: &[&str], verbs: &str| json!({"apiGroups": [group], "resources": resources, "verbs": verbs.split(' ').collect::<Vec<_>>()});
    let expected = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {
            "name": "mortise-plugin-podset",
            "labels": {"app.kubernetes.io/part-of": "mortise", "mortise.dev/aggregate-to-host": "true"},
        },
        "rules": [
            rule("", &["nodes", "secrets"], "get list watch"),
            rule("", &["services"], "create delete get list patch watch"),
            rule("app.example.com", &["podsetti"], "get list watch"),
            rule("app.example.com", &["podsetti/finalizers"], "update"),
            rule("app.example.com", &["podsetti/status"], "patch"),
        ],
    });
    assert_eq!(role, expected);
}

#[test]
fn what_is_declared_in_some_namespaces_is_a_role_in_each_for_the_hosts_account() {
    let manifest = PODSET.replace(r#""kind": "Secret"}"#, r#""kind": "Secret", "namespaces": ["infra", "shared"]}"#);
    let manifest = Manifest::parse(&manifest).unwrap();
    let everywhere = serde_json::to_string(&plugin("podset", &manifest)).unwrap();
    assert!(everywhere.contains("nodes") && !everywhere.contains("secrets"), "{everywhere}");
    let roles = in_namespaces("podset", &manifest, "plugins-here");
    assert_eq!(roles.len(), 2);
    for ((role, binding), namespace) in roles.iter().zip(["infra", "shared"]) {
        let metadata = json!({
            "name": "mortise-plugin-podset", "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "mortise"},
        });
        let expected = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}],
        });
        assert_eq!(serde_json::to_value(role).unwrap(), expected);
        let expected = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mortise-plugin-podset"},
            "subjects": [{"kind": "ServiceAccount", "name": "mortise", "namespace": "plugins-here"}],
        });
        assert_eq!(serde_json::to_value(binding).unwrap(), expected);
    }
}

#[test]
fn the_host_aggregates_labelled_roles_and_may_use_configmaps_and_leases_of_its_own_namespace_only() {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&host("plugins-here", false).unwrap()).unwrap();
    let aggregating: Vec<_> = objects.iter().filter(|object| object.get("aggregationRule").is_some()).collect();
    assert_eq!(aggregating.len(), 1);
    assert_eq!(aggregating[0]["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"][AGGREGATE_LABEL], "true");
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
            let own = [json!(["plugins"]), json!(["mutatingwebhookconfigurations", "validatingwebhookconfigurations"])];
            assert!(
                !deletes || own.contains(&rule["resources"]),
                "deletes more than Plugin objects and webhooks: {rule}"
            );
            let reads_secrets = rule["resources"] == json!(["secrets"]) && rule["verbs"] != json!(["create"]);
            assert!(!reads_secrets || rule["resourceNames"] == json!([WEBHOOK_SECRET]), "{rule}");
        }
    }
}

#[test]
fn resources_of_kubernetes_own_kinds_have_their_plurals() {
    let manifest = Manifest::parse(PODSET).unwrap();
    let known = [
        ("Endpoints", "endpoints"),
        ("NetworkPolicy", "networkpolicies"),
        ("Ingress", "ingresses"),
        ("StorageClass", "storageclasses"),
        ("ComponentStatus", "componentstatuses"),
        ("IPAddress", "ipaddresses"),
        ("ServiceCIDR", "servicecidrs"),
        ("Gateway", "gateways"),
        ("PodMetrics", "pods"),
        ("NodeMetrics", "nodes"),
    ];
    for (kind, name) in known {
        assert_eq!(resource(&manifest, &Kind::new("v1", kind)), name, "the resource of {kind}");
    }
}

#[test]
fn secrets_that_requests_carry_may_be_read_by_name_and_no_others() {
    let mut manifest: Value = serde_json::from_str(PODSET).unwrap();
    manifest["controllers"][0]["reads"] = json!([]);
    manifest["http"] = json!([
        {"origin": "https://a.example", "methods": ["GET"], "secrets": ["b-token", "a-token"]},
        {"origin": "https://b.example", "methods": ["GET"], "secrets": ["a-token"]},
    ]);
    let role = serde_json::to_value(plugin("podset", &Manifest::parse(&manifest.to_string()).unwrap())).unwrap();
    let of_secrets: Vec<&Value> =
        role["rules"].as_array().unwrap().iter().filter(|rule| rule["resources"] == json!(["secrets"])).collect();
    let expected =
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a-token", "b-token"], "verbs": ["get"]});
    assert_eq!(of_secrets, [&expected]);
}

#[test]
fn a_pattern_of_kinds_may_be_listed_by_group_without_secrets_and_without_subresources() {
    let mut manifest: Value = serde_json::from_str(PODSET).unwrap();
    let pattern = |api_version: &str| json!({"apiVersion": api_version, "kind": "*"});
    manifest["controllers"][0]["reads"] =
        json!([pattern("apps/v1"), pattern("apps/v2"), pattern("v1"), pattern("*.example.org/*")]);
    let manifest = Manifest::parse(&manifest.to_string()).unwrap();
    let rules: Vec<Value> = of_patterns(&manifest).map(|rule| serde_json::to_value(rule).unwrap()).collect();
    assert_eq!(rules[1..], [json!({"apiGroups": ["apps"], "resources": ["*"], "verbs": ["list", "watch"]})]);
    assert_eq!((&rules[0]["apiGroups"], &rules[0]["verbs"]), (&json!([""]), &json!(["list", "watch"])));
    let core = rules[0]["resources"].to_string();
    assert!(core.contains("\"pods\"") && !core.contains("secrets") && !core.contains('*'), "{core}");
    let comments = unnamed_groups(&manifest);
    assert!(
        comments.lines().all(|line| line.starts_with("# ")) && comments.contains("GROUP.example.org"),
        "{comments}"
    );
}

#[test]
fn a_plugin_with_a_service_account_has_all_its_rights_and_the_host_may_watch_for_it_and_act_as_it() {
    let manifest = PODSET.replace(r#""kind": "Secret"}"#, r#""kind": "Secret", "namespaces": ["infra"]}"#);
    let manifest = Manifest::parse(&manifest).unwrap();
    let identified =
        Identified { plugin: "podset", manifest: &manifest, namespace: "plugins-here", service_account: "sets" };
    let objects: Vec<Value> = serde_saphyr::from_multiple(&identified.documents().unwrap()).unwrap();
    let has = |object: &Value| {
        let rules = object["rules"].as_array().into_iter().flatten();
        let rule = |rule: &Value| {
            let words = |field: &str| {
                rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
            };
            format!("{} {} {}", words("verbs"), words("resources"), words("resourceNames")).trim_end().to_owned()
        };
        let subject =
            object["subjects"][0]["name"].as_str().map(|name| format!("{} for {name}", object["roleRef"]["name"]));
        rules
            .map(rule)
            .chain(subject)
            .chain(object["spec"]["serviceAccountName"].as_str().map(|name| format!("serviceAccountName {name}")))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let lines = objects.iter().map(|object| {
        let (kind, metadata) = (object["kind"].as_str().unwrap(), &object["metadata"]);
        let namespace = metadata["namespace"].as_str().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let label = metadata["labels"].get(AGGREGATE_LABEL).map_or("", |_| " (the host's)");
        format!("{kind} {namespace}{}{label}: {}", metadata["name"].as_str().unwrap(), has(object))
    });
    let expected = [
        "ServiceAccount plugins-here/sets: ",
        "ClusterRole mortise-plugin-podset: get,list,watch nodes; create,delete,get,list,patch,watch services; \
         get,list,watch podsetti; update podsetti/finalizers; patch podsetti/status; create,patch events",
        "ClusterRoleBinding mortise-plugin-podset: \"mortise-plugin-podset\" for sets",
        "ClusterRole mortise-plugin-podset-watch (the host's): list,watch nodes; list,watch services; list,watch podsetti",
        "Role infra/mortise-plugin-podset: get,list,watch secrets",
        "RoleBinding infra/mortise-plugin-podset: \"mortise-plugin-podset\" for sets",
        "Role infra/mortise-plugin-podset-watch: list,watch secrets",
        "RoleBinding infra/mortise-plugin-podset-watch: \"mortise-plugin-podset-watch\" for mortise",
        "Role plugins-here/mortise-plugin-podset-identity: impersonate serviceaccounts sets",
        "RoleBinding plugins-here/mortise-plugin-podset-identity: \"mortise-plugin-podset-identity\" for mortise",
        "Plugin podset: serviceAccountName sets",
    ];
    assert_eq!(lines.collect::<Vec<_>>(), expected);
    let grants = json!({"customResources": ["podsetti.app.example.com"]});
    assert_eq!(objects.last().unwrap()["spec"]["grants"], grants, "what the host registers for it");
}

#[test]
fn those_who_bring_a_plugin_into_their_namespace_may_scale_its_objects_where_the_definition_has_a_scale() {
    let of_people = |subresources: Value| {
        let mut manifest: Value = serde_json::from_str(PODSET).unwrap();
        manifest["customResources"][0]["spec"]["versions"][0]["subresources"] = subresources;
        let manifest = Manifest::parse(&manifest.to_string()).unwrap();
        let role = serde_json::to_value(service_account::for_tenants("podset", &manifest)).unwrap();
        assert_eq!(role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
        let rules = role["rules"].as_array().unwrap().clone();
        move |resource: &str, verbs: &[&str]| {
            rules.iter().any(|rule| rule["resources"] == json!([resource]) && rule["verbs"] == json!(verbs))
        }
    };
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let scaled = of_people(json!({"status": {}, "scale": scale}));
    assert!(scaled("podsetti/scale", &["get", "patch", "update"]) && scaled("podsetti/status", &["get"]));
    assert!(scaled("podsetti", &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]));
    let unscaled = of_people(json!({"status": {}}));
    assert!(!unscaled("podsetti/scale", &["get", "patch", "update"]) && unscaled("podsetti/status", &["get"]));
}

#[test]
fn a_tenants_plugin_has_a_name_of_63_characters_at_most_with_its_namespace_which_is_not_the_hosts() {
    let check =
        |tenant: &str, name: &str| check_tenant(tenant, name, "mortise-system").map_err(|error| error.to_string());
    assert_eq!(check("team-a", &"x".repeat(56)), Ok(()));
    let too_long = check("team-a", &"x".repeat(57)).unwrap_err();
    assert!(too_long.contains("NAMESPACE.NAME with at most 63 characters"), "{too_long}");
    let own = check("mortise-system", "podset").unwrap_err();
    assert!(own.contains("the host's own"), "{own}");
}
