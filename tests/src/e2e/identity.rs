//! Plugins with identities of their own: two ServiceAccounts, each with the rights that `mortise rbac` prints for its plugin,
//! and a host that may do little itself.

use std::collections::BTreeSet;
use std::time::Instant;

use mortise_control_plane::AuditRecord;
use mortise_core::digest;
use serde_json::json;

use super::quiet::wait_until_quiet;
use super::rights::{bind, bind_here, grant, start_restricted_with};
use super::scopes::{open_watches, secret};
use super::world::{HOST_NAMESPACE, OF_A_TEST, RESTRICTED, World, built};
use crate::checkout::root;

/// Lets a plugin act as a ServiceAccount of its name, with the host's user instead of its ServiceAccount.
fn identify(world: &World, plugin: &str) {
    identify_component(world, plugin, &format!("plugins/{plugin}.wasm"));
}

fn identify_component(world: &World, plugin: &str, component: &str) {
    let component = built(component);
    grant(world, &[component.to_str().unwrap(), "--service-account", plugin]);
    bind_host(world, plugin);
}

fn bind_host(world: &World, plugin: &str) {
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

/// As whom the host sent a request: "podset".
fn sender(record: &AuditRecord) -> String {
    let identity = record.impersonated.as_deref().unwrap_or("the host");
    identity.strip_prefix(&account("")).unwrap_or(identity).to_owned()
}

/// The host's writes since the mark: "podset patch podsets/status".
fn writes(world: &World) -> BTreeSet<String> {
    let shown = |record: &AuditRecord| {
        let resource = [&*record.resource, &*record.subresource].join("/");
        format!("{} {} {}", sender(record), record.verb, resource.trim_end_matches('/'))
    };
    world.writes_by(RESTRICTED).iter().map(shown).collect()
}

/// Events about a plugin's objects, which are in their namespace, are sent as its ServiceAccount. The host's own are about Plugin
/// objects, and so in the namespace of Events about objects without one.
fn events_are_sent_by_whom_they_concern(world: &World) {
    let events = |world: &World| -> BTreeSet<(String, String)> {
        let events = world.writes_by(RESTRICTED).into_iter().filter(|record| record.resource == "events");
        events.map(|record| (sender(&record), record.namespace)).collect()
    };
    let of_foo = ("foo".to_owned(), world.namespace.clone());
    world.until("foo's Event about its object is written", || events(world).contains(&of_foo).then_some(()));
    let events = events(world);
    assert!(events.contains(&("the host".to_owned(), "default".to_owned())), "{events:?}");
    for (sender, namespace) in &events {
        assert_eq!(sender == "the host", namespace == "default", "{events:?}");
    }
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
    assert!(world.message("podset", "Permitted").contains(command));
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
    let of_host = [
        "events",
        "plugins",
        "plugins/status",
        "customresourcedefinitions",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
    ];
    for line in seen.iter().filter(|line| line.starts_with("the host ")) {
        assert!(of_host.iter().any(|resource| line.ends_with(&format!(" {resource}"))), "{line}");
    }
    events_are_sent_by_whom_they_concern(&world);

    // Its rights to write are taken away: its writes alone are refused.
    world.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "mortise-plugin-podset"},
        "rules": [{"apiGroups": ["", "app.example.com"], "resources": ["pods", "podsets"], "verbs": ["get", "list", "watch"]}],
    }));
    world.kubectl_here(&["scale", "podset/a", "--replicas=3"]);
    world.wait_condition("podset", "Permitted", "False", "Forbidden");
    let why = world.message("podset", "Permitted");
    println!("{why}");
    let (user, place) = (account("podset"), &world.namespace);
    assert!(why.contains(&format!("User \"{user}\" cannot ")), "{why}");
    assert!(why.contains(&format!("in the namespace \"{place}\"")), "{why}");
    assert!(why.contains("ClusterRoleBinding gives the ServiceAccount mortise-system/podset"), "{why}");
    assert_eq!(world.condition("foo", "Permitted").unwrap()["status"], "True");
    identify(&world, "podset");
    wait_replicas(&world, "3");
    world.wait_condition("podset", "Permitted", "True", "Allowed");

    // And the host may not act as it any more.
    world.kubectl(&["delete", "rolebinding/e2e-podset", "-n", HOST_NAMESPACE]);
    world.wait_condition("podset", "Permitted", "False", "Forbidden");
    world.wait_condition("podset", "Ready", "False", "Forbidden");
    world.kubectl_here(&["scale", "podset/a", "--replicas=4"]);
    let why = world.message("podset", "Permitted");
    println!("{why}");
    assert!(why.contains("gives the host, so that it may act as the ServiceAccount mortise-system/podset"), "{why}");
    bind_here(&world, "podset", "mortise-plugin-podset-identity");
    wait_replicas(&world, "4");
}

/// The writes that a new PodSet of three Pods takes, one more Pod, and one in place of a deleted one.
fn costs(world: &mut World, name: &str) -> [usize; 3] {
    let podset = format!("podset/{name}");
    let wait = |world: &World, replicas: &str| {
        world.until("the PodSet has its Pods", || {
            let status = "jsonpath={.status.replicas} {.status.conditions[?(@.type=='Ready')].status}";
            (world.kubectl_here(&["get", &podset, "-o", status]) == format!("{replicas} True")).then_some(())
        });
        wait_until_quiet(world, "podset");
    };
    let mut count = |step: &dyn Fn(&World), replicas: &str| {
        world.mark_audit();
        step(world);
        wait(world, replicas);
        let mut writes = world.writes_by_host();
        // A review confirms ten seconds after its Role that the host may act as the ServiceAccount, whatever the plugin does.
        writes.retain(|record| !["leases", "selfsubjectaccessreviews"].contains(&&*record.resource));
        writes.len()
    };
    let first = count(&|world| world.apply(&world.podset(name, 3)), "3");
    let change = count(&|world| _ = world.kubectl_here(&["scale", &podset, "--replicas=4"]), "4");
    let delete_one = |world: &World| {
        let name = world.kubectl_here(&["get", &podset, "-o", "jsonpath={.status.podNames[0]}"]);
        world.kubectl_here(&["delete", "pod", &name, "--wait=true"]);
    };
    let deleted = count(&delete_one, "4");
    [first, change, deleted]
}

#[test]
fn g9_an_identity_costs_no_request_for_the_objects_of_a_plugin() {
    let mut world = World::with_podset("identity-cost");
    let as_host = costs(&mut world, "hosts");
    world.stop_host();
    start_restricted_with(&mut world, &["--require-service-account"]);
    identify(&world, "podset");
    world.wait_ready("podset");
    let as_account = costs(&mut world, "accounts");
    println!("a new PodSet of three, one more Pod, a deleted one: {as_host:?} writes, with an identity {as_account:?}");
    assert_eq!((as_host[..2].to_vec(), as_account), (vec![4, 2], as_host));
}

/// A plugin of a component whose ServiceAccount has its rights in one namespace alone.
fn identify_in(world: &mut World, plugin: &str, component: &str, namespace: &str) {
    world.offer(plugin, &built(component));
    world.wait_condition(plugin, "Ready", "False", "NoServiceAccount");
    identify_component(world, plugin, component);
    world.kubectl(&["delete", "clusterrolebinding", &format!("mortise-plugin-{plugin}")]);
    allow_in(world, plugin, namespace);
}

/// Gives its ServiceAccount the plugin's rights in a namespace.
fn allow_in(world: &World, plugin: &str, namespace: &str) {
    let (role, account) =
        (format!("--clusterrole=mortise-plugin-{plugin}"), format!("--serviceaccount={HOST_NAMESPACE}:{plugin}"));
    world.kubectl(&["create", "rolebinding", plugin, "-n", namespace, &role, &account]);
}

fn library(world: &World, namespace: &str) {
    world.apply(&json!({
        "apiVersion": "test.mortise.dev/v1", "kind": "Library",
        "metadata": {"name": "only", "namespace": namespace}, "spec": {"labels": "shelf=yes"},
    }));
}

fn seen_by_library(world: &World, namespace: &str) -> String {
    world.kubectl(&["get", "library/only", "-n", namespace, "-o", "jsonpath={.status.secrets}"])
}

/// SubjectAccessReviews since the mark.
fn reviews(world: &World) -> usize {
    world.requests_by(RESTRICTED).iter().filter(|record| record.resource == "subjectaccessreviews").count()
}

/// Checks the SubjectAccessReviews since the mark, which was set after `begin`, of two plugins with two kinds each, and returns
/// their number. A kind is asked about each three seconds at most, with a request for everywhere and three for each namespace
/// with a binding. Of each kind one may be under way at the mark, and one follows it at once.
fn bounded_reviews(world: &World, begin: Instant, namespaces: u64) -> usize {
    let asked = reviews(world);
    let times = 2 + begin.elapsed().as_secs() / 3;
    let most = 2 * 2 * (1 + 3 * namespaces) * times;
    assert!(asked as u64 <= most, "{asked} requests, and at most {most} were expected");
    asked
}

#[test]
fn g9_two_plugins_see_what_their_service_accounts_may_read_over_one_watch() {
    let mut world = World::new("reviews");
    let here = world.namespace.clone();
    let there = "e2e-reviews-b";
    world.until("the other namespace is free", || world.plane.kubectl_output(&["create", "namespace", there]).ok());
    world.kubectl(&["label", "namespace", there, OF_A_TEST]);
    start_restricted_with(&mut world, &["--require-service-account"]);
    let before = open_watches(&world, "cluster");
    let begin = Instant::now();
    world.mark_audit();
    identify_in(&mut world, "library", "test-guests/library.wasm", &here);
    identify_in(&mut world, "password", "plugins/password.wasm", there);
    world.wait_ready("library");
    world.wait_ready("password");
    println!("{} reviews for two plugins and four kinds", bounded_reviews(&world, begin, 1));
    for namespace in [&*here, there] {
        secret(&world, namespace, "one");
        library(&world, namespace);
        let sample = root().join("plugins/password/sample.yaml");
        world.kubectl(&["apply", "-n", namespace, "-f", sample.to_str().unwrap()]);
    }
    world.until("the library sees its namespace", || {
        (seen_by_library(&world, &here) == format!("[\"{here}/one\"]")).then_some(())
    });
    world.until("the password is made where it may be", || {
        world.plane.kubectl_output(&["get", "secret", "database-login", "-n", there]).ok()
    });
    assert_eq!(seen_by_library(&world, there), "", "an object in a namespace that it may not read is none of its own");
    let status =
        world.kubectl(&["get", "passwords.secrets.mortise.dev/database", "-n", &here, "-o", "jsonpath={.status}"]);
    assert_eq!(status, "");
    assert_eq!(open_watches(&world, "cluster") - before, 1, "one watch of Secrets for both");

    // A RoleBinding is taken away, and two are given.
    let begin = Instant::now();
    world.mark_audit();
    world.kubectl(&["delete", "rolebinding", "library", "-n", &here]);
    world.wait_condition("library", "Permitted", "False", "Forbidden");
    println!("taken away after {:.1} s, {} reviews", begin.elapsed().as_secs_f64(), bounded_reviews(&world, begin, 1));
    let why = world.message("library", "Permitted");
    println!("{why}");
    assert!(why.contains("the ServiceAccount mortise-system/library may not list, watch and get"), "{why}");
    assert!(world.condition("password", "Ready").unwrap()["status"] == "True", "nobody asked about the other");
    let begin = Instant::now();
    world.mark_audit();
    allow_in(&world, "library", &here);
    allow_in(&world, "library", there);
    world.until("the library sees both", || {
        let seen = format!("[\"{here}/one\",\"{there}/one\"]");
        (seen_by_library(&world, &here) == seen && seen_by_library(&world, there) == seen).then_some(())
    });
    println!("given after {:.1} s, {} reviews", begin.elapsed().as_secs_f64(), bounded_reviews(&world, begin, 2));
    world.wait_condition("library", "Permitted", "True", "Allowed");

    // The Plugin object says less than the rights.
    let spec = json!({"spec": {"namespaces": [&here]}}).to_string();
    world.kubectl(&["patch", "plugin", "library", "--type=merge", "-p", &spec]);
    world.until("the library sees one of the two", || {
        (seen_by_library(&world, &here) == format!("[\"{here}/one\"]")).then_some(())
    });
}

#[test]
fn g9_a_folder_of_manifests_is_all_that_a_plugin_and_its_next_build_need() {
    let mut world = World::new("manifests");
    start_restricted_with(&mut world, &["--require-service-account"]);
    world.wait_plugins_served();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for component in ["plugins/podset.wasm", "test-guests/podset-next.wasm"] {
        let component = built(component);
        let mut command = std::process::Command::new(built("debug/mortise"));
        command.arg("manifests").arg(&component).args(["--name", "podset", "--output", folder]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        println!("{}", String::from_utf8_lossy(&output.stdout));
        world.kubectl(&["apply", "--server-side", "-k", folder]);
        bind_host(&world, "podset");
        let digest = digest::of(&std::fs::read(&component).unwrap()).to_string();
        world.until("the component serves", || {
            (world.plugin_digest("podset").as_deref() == Some(&*digest)).then_some(())
        });
        world.wait_ready("podset");
    }
    world.apply(&world.podset("a", 2));
    wait_replicas(&world, "2");
}
