//! What a plugin acts as: the host, or a ServiceAccount that its Plugin object names.

use super::*;

fn account(name: &str) -> Value {
    json!({"serviceAccountName": name, "grants": {"customResources": ["podsets.example.com"]}})
}

#[test]
fn g9_a_plugin_without_a_service_account_is_refused_where_one_is_required_until_its_object_names_it() {
    let mut alone = Alone::of(Config { require_service_account: true, ..crate::engine::tests::config() });
    alone.start();
    alone.offer("podset", "1");
    alone.compiled("1", compiled("PodSet", &[]));
    alone.settle();
    let log = alone.log();
    assert!(log.contains(&"refused podset: NoServiceAccount".to_owned()), "it is inspected, and then refused: {log:?}");
    assert!(!log.iter().any(|line| line.starts_with("register") || line.starts_with("watch")), "{log:?}");
    for name in ["Ready", "Permitted"] {
        assert_eq!(alone.condition("podset", name), "False NoServiceAccount");
    }
    assert_eq!(
        (alone.condition("podset", "Compiled"), alone.condition("podset", "Stalled")),
        ("True Compiled".to_owned(), "True NoServiceAccount".to_owned())
    );
    let message = alone.shows("podset", "/conditions").to_string();
    let command =
        "mortise rbac FILE.wasm --name podset --service-account podset -n mortise-system | kubectl apply -f -";
    assert!(message.contains(command), "{message}");

    alone.want("podset", account("podset"));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.list("PodSet");
    alone.list("ConfigMap");
    alone.review(&Readable::Everywhere);
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.shows("podset", "/identity")),
        ("True Serving".to_owned(), &json!("mortise-system/podset"))
    );
    assert!(!alone.log().contains(&"compile 1".to_owned()), "it was compiled before");

    alone.want("podset", json!({}));
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Stalled")),
        ("False NoServiceAccount".to_owned(), "True NoServiceAccount".to_owned()),
        "what is taken away counts at once"
    );
    assert!(alone.log().contains(&"withdraw podset".to_owned()));
}

#[test]
fn g9_a_plugin_acts_as_the_host_unless_its_object_names_a_service_account() {
    let mut alone = Alone::serving();
    assert_eq!(*alone.shows("podset", "/identity"), "host");
    alone.want("podset", account("podset"));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.review(&Readable::Everywhere);
    alone.settle();
    assert_eq!(*alone.shows("podset", "/identity"), "mortise-system/podset");
    let log = alone.log();
    assert!(log.contains(&"serve podset 1".to_owned()) && !log.contains(&"compile 1".to_owned()), "{log:?}");

    let denial = r#"pods is forbidden: User "system:serviceaccount:mortise-system:podset" cannot create resource "configmaps" in API group "" in the namespace "a""#;
    let plugin = Arc::from("podset");
    alone.take(ToLifecycle::Denied { plugin, permission: to_patch(), message: denial.to_owned() });
    alone.settle();
    let message = alone.shows("podset", "/conditions").to_string();
    assert!(message.contains(r#"in the namespace \"a\""#), "{message}");
    assert!(message.contains("ClusterRoleBinding gives the ServiceAccount mortise-system/podset"), "{message}");
}

#[test]
fn g10_admission_of_a_kind_whose_definition_somebody_else_made_is_refused_until_it_is_granted() {
    let with_admission = |primary: &str| {
        let compiled = compiled(primary, &[]).unwrap();
        let mut manifest: Value = serde_json::from_str(&compiled.manifest).unwrap();
        manifest["admission"] = json!([{"apiVersion": "example.com/v1", "kind": primary, "validate": true}]);
        Ok(Compiled { manifest: manifest.to_string().into(), ..compiled })
    };
    let mut alone = Alone::started();
    alone.offer("copy", "1");
    alone.compiled("1", with_admission("PodSet"));
    alone.registered("copy", "podsets.example.com", Ok(CrdOwner::Another));
    alone.settle();
    assert_eq!(
        (alone.ready("copy"), alone.condition("copy", "Permitted")),
        ("False NotGranted".into(), "False NotGranted".into())
    );
    let message = alone.shows("copy", "/conditions").to_string();
    assert!(message.contains("PodSet.example.com"), "{message}");
    assert!(!alone.log().contains(&"watch PodSet".to_owned()));
    alone.want("copy", json!({"grants": {"admission": ["PodSet.example.com"]}}));
    alone.registered("copy", "podsets.example.com", Ok(CrdOwner::Another));
    assert!(alone.log().contains(&"watch PodSet".to_owned()));
}

#[test]
fn g9_a_plugin_whose_account_the_host_may_not_act_as_is_not_ready() {
    let mut alone = Alone::serving();
    alone.want("podset", account("podset"));
    alone.registered("podset", "podsets.example.com", Ok(CrdOwner::Plugin));
    alone.review(&Readable::Everywhere);
    alone.settle();
    let denial = r#"serviceaccounts "podset" is forbidden: User "system:serviceaccount:mortise-system:mortise" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "mortise-system""#;
    let (plugin, permission) = (Arc::from("podset"), to_patch());
    alone.take(ToLifecycle::Denied { plugin, permission, message: denial.to_owned() });
    alone.settle();
    assert_eq!(
        (alone.ready("podset"), alone.condition("podset", "Permitted")),
        ("False Forbidden".into(), "False Forbidden".into())
    );
}
