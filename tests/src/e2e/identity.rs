//! Plugins with identities of their own: two ServiceAccounts, each with the rights that `mortise rbac` prints for its plugin,
//! and a host that may do little itself.

use std::collections::BTreeSet;

use serde_json::Value;

use super::rights::{bind, bind_here, grant, start_restricted_with};
use super::world::{HOST_NAMESPACE, RESTRICTED, World, built};

/// Lets a plugin act as a ServiceAccount of its name, with the host's user instead of its ServiceAccount.
fn identify(world: &World, plugin: &str) {
    let component = built(&format!("plugins/{plugin}.wasm"));
    grant(world, &[component.to_str().unwrap(), "--service-account", plugin]);
    bind(world, plugin, &format!("mortise-plugin-{plugin}-watch"));
    bind_here(world, plugin, &format!("mortise-plugin-{plugin}-identity"));
}

fn account(plugin: &str) -> String {
    format!("system:serviceaccount:{HOST_NAMESPACE}:{plugin}")
}

fn wait_replicas(world: &World, replicas: &str) {
    world.until("the PodSet has its Pods", || {
        (world.kubectl_here(&["get", "podset/a", "-o", "jsonpath={.status.replicas}"]) == replicas).then_some(())
    });
}

fn message(world: &World, plugin: &str, condition: &str) -> String {
    world.condition(plugin, condition).and_then(|found| Some(found["message"].as_str()?.to_owned())).unwrap_or_default()
}

/// The host's writes since the mark: "podset patch podsets/status".
fn writes(world: &World) -> BTreeSet<String> {
    let shown = |record: &mortise_control_plane::AuditRecord| {
        let identity = record.impersonated.as_deref().unwrap_or("the host");
        let identity = identity.strip_prefix(&account("")).unwrap_or(identity);
        let resource = [&*record.resource, &*record.subresource].join("/");
        format!("{identity} {} {}", record.verb, resource.trim_end_matches('/'))
    };
    world.writes_by(RESTRICTED).iter().map(shown).collect()
}

#[test]
fn g9_a_plugin_has_the_rights_of_its_service_account_and_the_audit_log_names_it() {
    let mut world = World::new("identity");
    start_restricted_with(&mut world, &["--require-service-account"]);
    for plugin in ["podset", "foo"] {
        world.offer(plugin, &built(&format!("plugins/{plugin}.wasm")));
        world.wait_condition(plugin, "Ready", "False", "NoServiceAccount");
    }
    let command =
        "mortise rbac FILE.wasm --name podset --service-account podset -n mortise-system | kubectl apply -f -";
    assert!(message(&world, "podset", "Permitted").contains(command));
    world.mark_audit();
    for plugin in ["podset", "foo"] {
        identify(&world, plugin);
        world.wait_ready(plugin);
    }
    println!("{}", world.kubectl(&["get", "plugins"]));
    world.apply(&world.podset("a", 2));
    world.apply_sample("foo");
    wait_replicas(&world, "2");
    world.until("the Foo has its Deployment", || {
        (!world.kubectl_here(&["get", "deployments", "-o", "name"]).is_empty()).then_some(())
    });
    let seen = writes(&world);
    println!("{seen:#?}");
    for line in ["podset create pods", "podset patch podsets/status", "foo patch foos/status"] {
        assert!(seen.contains(line), "{line}: {seen:#?}");
    }
    let of_host = ["events", "plugins", "plugins/status", "customresourcedefinitions"];
    for line in seen.iter().filter(|line| line.starts_with("the host ")) {
        assert!(of_host.iter().any(|resource| line.ends_with(&format!(" {resource}"))), "{line}");
    }

    // Its own rights are taken away: its writes alone are refused.
    let binding: Value =
        serde_json::from_str(&world.kubectl(&["get", "clusterrolebinding/mortise-plugin-podset", "-o", "json"]))
            .unwrap();
    world.kubectl(&["delete", "clusterrolebinding/mortise-plugin-podset"]);
    world.kubectl_here(&["scale", "podset/a", "--replicas=3"]);
    world.wait_condition("podset", "Permitted", "False", "Forbidden");
    let why = message(&world, "podset", "Permitted");
    println!("{why}");
    let (user, place) = (account("podset"), &world.namespace);
    assert!(why.contains(&format!("User \"{user}\" cannot ")), "{why}");
    assert!(why.contains(&format!("in the namespace \"{place}\"")), "{why}");
    assert!(why.contains("ClusterRoleBinding gives the ServiceAccount mortise-system/podset"), "{why}");
    assert_eq!(world.condition("foo", "Permitted").unwrap()["status"], "True");
    let mut binding = binding;
    binding["metadata"] = serde_json::json!({"name": "mortise-plugin-podset"});
    world.apply(&binding);
    wait_replicas(&world, "3");
    world.wait_condition("podset", "Permitted", "True", "Allowed");

    // And the host may not act as it any more.
    world.kubectl(&["delete", "rolebinding/e2e-podset", "-n", HOST_NAMESPACE]);
    world.kubectl_here(&["scale", "podset/a", "--replicas=4"]);
    world.wait_condition("podset", "Permitted", "False", "Forbidden");
    let why = message(&world, "podset", "Permitted");
    println!("{why}");
    assert!(why.contains("gives the host, so that it may act as the ServiceAccount mortise-system/podset"), "{why}");
    bind_here(&world, "podset", "mortise-plugin-podset-identity");
    wait_replicas(&world, "4");
}
