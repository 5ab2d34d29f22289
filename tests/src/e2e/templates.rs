//! What a template of a PodSet makes of the right to create PodSets: with the plugin's rights alone any ServiceAccount of the
//! namespace, and with a configuration of the plugin what an administrator allows.

use serde_json::{Value, json};

use super::foo::field;
use super::world::{HOST_NAMESPACE, World};

/// Somebody who may create PodSets and nothing else.
const AUTHOR: &str = "--as=author";

/// Gives the author his right, and says that he has no other.
fn may_create_podsets(world: &World) {
    world.kubectl_here(&["create", "role", "author", "--verb=create,get,patch", "--resource=podsets.app.example.com"]);
    world.kubectl_here(&["create", "rolebinding", "author", "--role=author", "--user=author"]);
    for resource in ["pods", "serviceaccounts/token"] {
        let asked = world.plane.kubectl_output(&["-n", &world.namespace, "auth", "can-i", "create", resource, AUTHOR]);
        assert!(asked.is_err(), "{resource}: {asked:?}");
    }
}

/// The author creates a PodSet of one Pod with this spec.
fn create(world: &World, name: &str, spec: &Value) {
    let mut set = world.podset(name, 1);
    set["spec"]["template"]["spec"] = spec.clone();
    set["spec"]["template"]["spec"]["containers"] = json!([{"name": "web", "image": "nginx"}]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), set.to_string()).unwrap();
    world.kubectl_here(&["create", AUTHOR, "-f", file.path().to_str().unwrap()]);
}

fn configure(world: &mut World, config: &Value) {
    let observed = "jsonpath={.status.observed.configDigest}";
    let before = world.kubectl(&["get", "plugin", "podset", "-o", observed]);
    let data = json!({"data": {"config.yaml": config.to_string()}}).to_string();
    world.kubectl(&["patch", "configmap", "podset", "-n", HOST_NAMESPACE, "--type=merge", "-p", &data]);
    world.until("the host has read the configuration", || {
        (world.kubectl(&["get", "plugin", "podset", "-o", observed]) != before).then_some(())
    });
    world.wait_condition("podset", "Ready", "True", "Serving");
}

/// A field of all Pods of a set.
fn of_pods(world: &World, set: &str, path: &str) -> String {
    field(world, "pods", &format!("{{.items[?(@.metadata.ownerReferences[0].name==\"{set}\")].{path}}}"))
}

fn pods(world: &World, set: &str) -> usize {
    of_pods(world, set, "metadata.name").split_whitespace().count()
}

/// The ServiceAccounts that they name.
fn accounts(world: &World, set: &str) -> String {
    of_pods(world, set, "spec.serviceAccountName")
}

fn wait_refused(world: &World, set: &str, why: &str) {
    let ready = "{.status.conditions[?(@.type==\"Ready\")]";
    world.until("the PodSet says why", || {
        let reason = field(world, &format!("podset/{set}"), &format!("{ready}.reason}}"));
        let message = field(world, &format!("podset/{set}"), &format!("{ready}.message}}"));
        (reason == "PodSecurity" && message.contains(why)).then_some(())
    });
    assert_eq!(pods(world, set), 0, "{set}");
}

#[test]
fn a_pod_set_runs_as_any_service_account_unless_the_plugins_configuration_says_which_and_at_what_level() {
    let mut world = World::with_podset("templates");
    world.kubectl_here(&["create", "serviceaccount", "builder"]);
    may_create_podsets(&world);
    let (builder, host) = (json!({"serviceAccountName": "builder"}), json!({"hostNetwork": true}));
    create(&world, "before", &builder);
    world.until("it runs as somebody else", || (accounts(&world, "before") == "builder").then_some(()));

    configure(&mut world, &json!({"podSecurity": "baseline"}));
    create(&world, "account", &builder);
    wait_refused(&world, "account", "spec.template.spec.serviceAccountName: \"builder\"");
    create(&world, "host", &host);
    wait_refused(&world, "host", "violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)");
    assert_eq!(accounts(&world, "before"), "builder", "what ran before stays");
    let pod = field(&world, "podset/before", "{.status.podNames[0]}");
    world.kubectl_here(&["delete", "pod", &pod, "--grace-period=0", "--force"]);
    world
        .until("it is counted no more", || (field(&world, "podset/before", "{.status.replicas}") == "0").then_some(()));
    wait_refused(&world, "before", "spec.template.spec.serviceAccountName: \"builder\"");

    // The author mends one, and the administrator allows the account of the others.
    let mended = json!({"spec": {"template": {"spec": {"hostNetwork": null}}}}).to_string();
    world.kubectl_here(&["patch", "podset/host", AUTHOR, "--type=merge", "-p", &mended]);
    world.until("it has its Pod", || (pods(&world, "host") == 1).then_some(()));
    configure(&mut world, &json!({"podSecurity": "baseline", "serviceAccounts": ["builder"]}));
    for set in ["account", "before"] {
        world.until("it runs", || (accounts(&world, set) == "builder").then_some(()));
    }
}
