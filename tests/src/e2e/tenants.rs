//! Tenants: a plugin in a namespace of its own, with what the administrator of a namespace can give it, and each thing that it
//! must not be able to do.

use std::process::Stdio;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::rights::{bind, grant, start_restricted_with};
use super::world::{OF_A_TEST, RESTRICTED, World, base64, built};
use crate::checkout::root;

/// The administrator of a namespace, without any right elsewhere.
const ALICE: &str = "alice";
/// A Node of a test.
const NODE: &str = "e2e-tenant-harm";
/// Objects whose calls take the second of their deadline each. One after the other, in the few workers of the host, they take
/// many times [`AT_ONCE`].
const SPINS: usize = 200;
/// Changes of a ConfigMap: more than are read, one a second after the first ones, before a test ends waiting.
const CHANGES: usize = 200;
/// The deadline of what takes 0.2 s alone.
const AT_ONCE: Duration = Duration::from_secs(10);

fn mortise(arguments: &[&str]) -> String {
    let output = std::process::Command::new(built("debug/mortise")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn podset() -> String {
    path("plugins/podset.wasm")
}

fn path(component: &str) -> String {
    built(component).to_str().unwrap().to_owned()
}

/// As Alice, from standard input.
fn as_alice(world: &World, arguments: &[&str], input: &str) -> Result<String, String> {
    as_user(world, ALICE, arguments, input)
}

fn as_user(world: &World, user: &str, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = world.plane.kubectl(&[&["--as", user], arguments].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("$ kubectl --as {user} {}\n{}{}", arguments.join(" "), text(&output.stdout), text(&output.stderr));
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// What an administrator of the cluster does once: a host with tenants, the plugin's definition, and the namespace of Alice.
fn world_with_tenant(name: &str) -> World {
    let mut world = World::new(name);
    start_restricted_with(&mut world, &["--require-service-account", "--tenant-namespaces", "mortise.dev/tenant=true"]);
    grant(&world, &["--host", "--tenants"]);
    tenant(&world, &world.namespace);
    define_for_tenants(&world, "podset", &podset(), "podsets.app.example.com");
    world
}

/// A plugin's definition, and the right to it for the administrators of namespaces.
fn define_for_tenants(world: &World, name: &str, component: &str, definition: &str) {
    world.plane.apply(&mortise(&["crd", component])).unwrap();
    world.kubectl(&["label", "crd", definition, OF_A_TEST]);
    world.plane.apply(&mortise(&["rbac", component, "--name", name, "--tenants"])).unwrap();
    world.kubectl(&["label", "clusterrole", &format!("mortise-tenants-{name}"), OF_A_TEST]);
    world.until("Alice may write its objects", || {
        as_alice(world, &["auth", "can-i", "create", definition, "-n", &world.namespace], "").ok()
    });
}

fn tenant(world: &World, namespace: &str) {
    world.kubectl(&["label", "namespace", namespace, "mortise.dev/tenant=true", "--overwrite"]);
    let user = format!("--user={ALICE}");
    world.kubectl(&["create", "rolebinding", ALICE, "-n", namespace, "--clusterrole=admin", &user]);
}

/// Another namespace of a test.
fn create_namespace(world: &World, name: &str) {
    world.until("the other namespace is free", || world.plane.kubectl_output(&["create", "namespace", name]).ok());
    world.kubectl(&["label", "namespace", name, OF_A_TEST]);
}

/// Alice lets the host run podset in her namespace: the test's host is another user than the one of deploy/.
fn alice_grants(world: &World, namespace: &str, name: &str) {
    alice_grants_component(world, namespace, name, &podset());
}

fn alice_grants_component(world: &World, namespace: &str, name: &str, component: &str) {
    let rights = mortise(&["rbac", component, "--name", name, "--tenant", namespace]);
    as_alice(world, &["apply", "-f", "-"], &rights).unwrap();
    let (role, user) = (format!("--role=mortise-plugin-{name}-host"), format!("--user={RESTRICTED}"));
    as_alice(world, &["create", "rolebinding", &format!("host-{name}"), "-n", namespace, &role, &user], "").unwrap();
}

fn alice_offers(world: &World, namespace: &str, name: &str, component: &str) {
    let file = format!("--from-file=plugin.wasm={}", built(component).display());
    as_alice(world, &["create", "configmap", name, "-n", namespace, &file], "").unwrap();
    as_alice(world, &["label", "configmap", name, "-n", namespace, "mortise.dev/plugin=true"], "").unwrap();
}

/// The reasons of the Events about a ConfigMap that Alice sees.
fn events(world: &World, name: &str) -> String {
    let path = "jsonpath={range .items[*]}{.regarding.name} {.reason}: {.note}{\"\\n\"}{end}";
    let all = as_alice(world, &["get", "events.events.k8s.io", "-n", &world.namespace, "-o", path], "").unwrap();
    all.lines().filter(|line| line.starts_with(&format!("{name} "))).collect::<Vec<_>>().join("\n")
}

fn wait_event(world: &World, name: &str, reason: &str) -> String {
    world.until(&format!("the ConfigMap {name} has an Event {reason}"), || {
        let events = events(world, name);
        events.contains(&format!("{name} {reason}")).then_some(events)
    })
}

fn alice_applies(world: &World, namespace: &str, name: &str, replicas: i64) {
    let mut podset = world.podset(name, replicas);
    podset["metadata"]["namespace"] = json!(namespace);
    as_alice(world, &["apply", "-f", "-"], &podset.to_string()).unwrap();
}

fn wait_pods(world: &World, name: &str, replicas: &str) {
    world.until("the PodSet has its Pods", || (replicas_of(world, &world.namespace, name) == replicas).then_some(()));
}

fn replicas_of(world: &World, namespace: &str, name: &str) -> String {
    world.kubectl(&["get", "podset", name, "-n", namespace, "-o", "jsonpath={.status.replicas}"])
}

/// The rules of the host's ClusterRole among these documents.
fn host_rules(yaml: &str) -> Value {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let is_role = |it: &&Value| it["kind"] == "ClusterRole" && it["metadata"]["name"] == "mortise-host";
    documents.iter().find(is_role).unwrap()["rules"].clone()
}

#[test]
fn deploy_tenants_is_deploy_base_with_the_flag_and_the_rights_that_it_takes() {
    let world = World::new("deploy-tenants");
    let folder = root().join("deploy/tenants");
    let built = world.kubectl(&["kustomize", folder.to_str().unwrap()]);
    assert_eq!(host_rules(&built), host_rules(&mortise(&["rbac", "--host", "--tenants"])));
    assert!(built.contains("- --tenant-namespaces=mortise.dev/tenant=true\n"));
}

#[test]
fn g11_a_tenant_brings_a_plugin_without_any_right_in_the_cluster_and_it_acts_in_its_namespace_alone() {
    let world = world_with_tenant("tenants");
    let here = world.namespace.clone();
    assert!(
        as_alice(&world, &["get", "plugins"], "").is_err() && as_alice(&world, &["get", "namespaces"], "").is_err()
    );
    alice_grants(&world, &here, "podset");
    alice_offers(&world, &here, "podset", "plugins/podset.wasm");
    println!("{}", wait_event(&world, "podset", "Serving"));
    alice_applies(&world, &here, "web", 3);
    wait_pods(&world, "web", "3");
    println!("{}", world.kubectl(&["get", "plugins"]));
    let identity = format!("{here}/podset");
    let plugin = format!("{here}.podset");
    assert_eq!(world.kubectl(&["get", "plugin", &plugin, "-o", "jsonpath={.status.identity}"]), identity);
    let writes = world.writes_by(RESTRICTED);
    let of_pods = writes.iter().filter(|record| record.resource == "pods");
    let user = format!("system:serviceaccount:{here}:podset");
    assert!(
        of_pods.clone().count() >= 3 && of_pods.into_iter().all(|record| record.impersonated.as_ref() == Some(&user))
    );

    // A PodSet elsewhere is not the tenant's, whatever its ServiceAccount may.
    let other = format!("{here}-other");
    create_namespace(&world, &other);
    let subject = format!("--serviceaccount={here}:podset");
    let binding = ["create", "clusterrolebinding", "e2e-powerful", "--clusterrole=cluster-admin", &subject];
    world.kubectl(&binding);
    world.kubectl(&["label", "clusterrolebinding", "e2e-powerful", OF_A_TEST]);
    let mut elsewhere = world.podset("elsewhere", 2);
    elsewhere["metadata"]["namespace"] = json!(other);
    world.apply(&elsewhere);
    alice_applies(&world, &here, "later", 1);
    wait_pods(&world, "later", "1");
    assert_eq!(world.kubectl(&["get", "pods", "-n", &other, "-o", "name"]), "");
    world.kubectl(&["delete", "clusterrolebinding", "e2e-powerful"]);

    // A ConfigMap of a namespace that is no tenant is nobody's plugin.
    let file = format!("--from-file=plugin.wasm={}", podset());
    world.kubectl(&["create", "configmap", "podset", "-n", &other, &file]);
    world.kubectl(&["label", "configmap", "podset", "-n", &other, "mortise.dev/plugin=true"]);

    // The label gone, its plugin is too; it comes back with it.
    world.kubectl(&["label", "namespace", &here, "mortise.dev/tenant-"]);
    world.until("its Plugin is gone", || {
        let names = world.kubectl(&["get", "plugins", "-o", "name"]);
        (!names.contains(&plugin) && !names.contains(&other)).then_some(())
    });
    world.kubectl(&["label", "namespace", &here, "mortise.dev/tenant=true"]);
    world.kubectl_here(&["scale", "podset/web", "--replicas=4"]);
    wait_pods(&world, "web", "4");
}

fn is_gone(world: &World, plugin: &str) -> bool {
    let plugins = world.kubectl(&["get", "plugins", "-o", "name"]);
    !plugins.lines().any(|line| line.ends_with(&format!("/{plugin}")))
}

/// First without their definition, which the plugin brings, and then with the one that an administrator applied.
fn kinds_without_a_namespace_are_not_served(world: &mut World) {
    let here = world.namespace.clone();
    let names = ["--resource-name=drain", "--resource-name=drain-defined"];
    let lent = ["create", "role", "lends-drain", "--verb=impersonate", "--resource=serviceaccounts"];
    world.kubectl_here(&[&lent[..], &names].concat());
    let user = format!("--user={RESTRICTED}");
    world.kubectl_here(&["create", "rolebinding", "lends-drain", "--role=lends-drain", &user]);
    alice_offers(world, &here, "drain", "plugins/drain.wasm");
    println!("{}", wait_event(world, "drain", "BeyondTenant"));
    let crds = world.kubectl(&["get", "crds", "-o", "name"]);
    assert!(!crds.contains("nodemaintenances"), "it brings no definition: {crds}");
    as_alice(world, &["delete", "configmap", "drain", "-n", &here], "").unwrap();
    world.until("its Plugin is gone", || is_gone(world, &format!("{here}.drain")).then_some(()));

    world.plane.apply(&mortise(&["crd", &path("plugins/drain.wasm")])).unwrap();
    world.kubectl(&["label", "crd", "nodemaintenances.maintenance.mortise.dev", OF_A_TEST]);
    world.apply(&world.node(NODE));
    let maintenance = json!({
        "apiVersion": "maintenance.mortise.dev/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": NODE},
        "spec": {"nodeName": NODE},
    });
    world.until("NodeMaintenances are served", || world.plane.apply(&maintenance.to_string()).ok());
    alice_offers(world, &here, "drain-defined", "plugins/drain.wasm");
    println!("{}", wait_event(world, "drain-defined", "BeyondTenant"));
    let plugin = format!("{here}.drain-defined");
    let why = world.until("its Plugin says which kind has no namespaces", || {
        let message = world.condition(&plugin, "Established")?["message"].to_string();
        message.contains(" has no namespaces, and the plugin of a tenant").then_some(message)
    });
    println!("{why}");
    world.wait_condition(&plugin, "Ready", "False", "BeyondTenant");
}

/// What the plugin of a drain would write.
fn the_node_is_as_it_was(world: &World) {
    assert_eq!(world.kubectl(&["get", "node", NODE, "-o", "jsonpath={.spec.unschedulable}"]), "");
    assert_eq!(world.kubectl(&["get", "nodemaintenance", NODE, "-o", "jsonpath={.status}"]), "");
}

#[test]
fn g11_what_a_tenant_must_not_do_is_refused_and_harms_nobody() {
    let mut world = world_with_tenant("tenant-harm");
    let here = world.namespace.clone();
    let webhooks = |world: &World| {
        world.kubectl(&["get", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "-o", "name"])
    };
    let before = webhooks(&world);

    // Another ServiceAccount of the namespace than the host was allowed to be.
    world.kubectl_here(&["create", "serviceaccount", "powerful"]);
    alice_grants(&world, &here, "podset");
    alice_offers(&world, &here, "podset", "plugins/podset.wasm");
    wait_event(&world, "podset", "Serving");
    alice_applies(&world, &here, "web", 1);
    wait_pods(&world, "web", "1");
    let annotate = ["annotate", "configmap", "podset", "-n", &here, "mortise.dev/service-account=powerful"];
    as_alice(&world, &annotate, "").unwrap();
    let rights =
        ["create", "rolebinding", "powerful", "--clusterrole=admin", &format!("--serviceaccount={here}:powerful")];
    world.kubectl_here(&rights);
    let plugin = format!("{here}.podset");
    world.wait_condition(&plugin, "Permitted", "False", "Forbidden");
    world.kubectl_here(&["scale", "podset/web", "--replicas=2"]);
    let why = world.condition(&plugin, "Permitted").unwrap()["message"].to_string();
    println!("{why}");
    assert!(why.contains("impersonate"), "{why}");
    let undo = ["annotate", "configmap", "podset", "-n", &here, "mortise.dev/service-account-"];
    as_alice(&world, &undo, "").unwrap();
    wait_pods(&world, "web", "2");

    // Webhooks, and kinds without a namespace.
    alice_offers(&world, &here, "daemons", "plugins/mydaemonset.wasm");
    println!("{}", wait_event(&world, "daemons", "BeyondTenant"));
    kinds_without_a_namespace_are_not_served(&mut world);
    assert_eq!(webhooks(&world), before, "and no webhook was registered");

    // A kind that the host's plugin has, and before that one that Alice has first.
    let (component, name) = (podset(), "podset");
    grant(&world, &[&component, "--service-account", name]);
    bind(&world, name, "mortise-plugin-podset-watch");
    super::rights::bind_here(&world, name, "mortise-plugin-podset-identity");
    world.offer(name, &built("plugins/podset.wasm"));
    world.wait_ready(name);
    println!("{}", wait_event(&world, "podset", "KindOwned"));
    world.kubectl_here(&["scale", "podset/web", "--replicas=3"]);
    wait_pods(&world, "web", "3");
    the_node_is_as_it_was(&world);

    // One plugin beyond the bound.
    for number in 0..14 {
        alice_offers(&world, &here, &format!("more-{number}"), "plugins/podset.wasm");
    }
    let beyond = world.until("one is beyond the bound", || {
        (0..14).map(|number| format!("more-{number}")).find(|name| events(&world, name).contains("TooManyPlugins"))
    });
    println!("{}", wait_event(&world, &beyond, "TooManyPlugins"));
    let plugins = world.kubectl(&["get", "plugins", "-o", "name"]);
    assert_eq!(plugins.lines().filter(|line| line.contains(&format!("/{here}."))).count(), 16);
}

/// What somebody may do in a namespace.
fn allow(world: &World, name: &str, subject: &str, verbs: &str, resource: &str) {
    world.kubectl_here(&["create", "role", name, &format!("--verb={verbs}"), &format!("--resource={resource}")]);
    world.kubectl_here(&["create", "rolebinding", name, &format!("--role={name}"), subject]);
}

/// The Events of the whole cluster that have a text, as "KIND NAMESPACE".
fn events_with(world: &World, text: &str) -> Vec<String> {
    let all: Value = serde_json::from_str(&world.kubectl(&["get", "events", "-A", "-o", "json"])).unwrap();
    let with_text = all["items"].as_array().unwrap().iter().filter(|event| event.to_string().contains(text));
    with_text.map(|event| format!("{} {}", event["involvedObject"]["kind"], event["metadata"]["namespace"])).collect()
}

/// "a password that nobody may know", as a Secret holds it.
const SECRET: &str = "YSBwYXNzd29yZCB0aGF0IG5vYm9keSBtYXkga25vdw==";
/// Who may write ConfigMaps in the tenant's namespace, and read Events there.
const MALLORY: &str = "mallory";

/// A tenant with a Secret, which the ServiceAccount backup may read. The host may read Secrets too, for another plugin,
/// and the tenant has lent it another ServiceAccount.
fn world_with_secret() -> World {
    let world = world_with_tenant("tenant-unlent");
    let here = world.namespace.clone();
    world.kubectl(&["create", "clusterrole", "e2e-secrets", "--verb=get,list,watch", "--resource=secrets"]);
    world.kubectl(&["label", "clusterrole", "e2e-secrets", OF_A_TEST]);
    bind(&world, "secrets", "e2e-secrets");
    alice_grants(&world, &here, "podset");
    world.kubectl_here(&["create", "serviceaccount", "backup"]);
    allow(&world, "backup", &format!("--serviceaccount={here}:backup"), "get,list,watch", "secrets");
    let metadata = json!({"name": "login", "namespace": here});
    world.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": SECRET}}));
    let mallory = format!("--user={MALLORY}");
    allow(&world, "writes", &mallory, "create,update,patch", "configmaps");
    allow(&world, "events", &mallory, "get,list", "events.events.k8s.io");
    world
}

/// Mallory brings a plugin that panics with the data of each Secret that it sees, as the ServiceAccount backup.
fn mallory_offers_telltale(world: &World) -> String {
    let metadata = json!({
        "name": "telltale", "namespace": world.namespace, "labels": {"mortise.dev/plugin": "true"},
        "annotations": {"mortise.dev/service-account": "backup"},
    });
    let component = json!({"plugin.wasm": base64(&std::fs::read(built("test-guests/telltale.wasm")).unwrap())});
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": component});
    as_user(world, MALLORY, &["create", "-f", "-"], &config_map.to_string()).unwrap();
    format!("{}.telltale", world.namespace)
}

#[test]
fn g9_who_may_write_config_maps_alone_learns_nothing_by_a_service_account_that_nobody_lent_to_the_host() {
    let mut world = world_with_secret();
    let here = world.namespace.clone();
    world.mark_audit();
    let plugin = mallory_offers_telltale(&world);
    world.wait_condition(&plugin, "Permitted", "False", "Forbidden");
    world.wait_condition(&plugin, "Ready", "False", "Forbidden");
    let why = world.message(&plugin, "Permitted");
    println!("{why}");
    assert!(why.contains(&format!("the host may not act as the ServiceAccount {here}/backup")), "{why}");
    let rule = r#""resourceNames":["backup"],"resources":["serviceaccounts"],"verbs":["impersonate"]"#;
    assert!(why.contains(rule), "{why}");
    println!("{}", wait_event(&world, "telltale", "Forbidden"));
    let of_secrets = world.requests_by(RESTRICTED).into_iter().filter(|record| record.resource == "secrets");
    assert_eq!(
        of_secrets.map(|record| record.uri).collect::<Vec<_>>(),
        Vec::<String>::new(),
        "nothing was read for it"
    );

    // Somebody lends it. What the guest says is in the host's log, and the ServiceAccount may not write Events.
    allow(&world, "lend", &format!("--user={RESTRICTED}"), "impersonate", "serviceaccounts");
    world.wait_condition(&plugin, "Ready", "True", "GuestFault");
    let why = world.message(&plugin, "Ready");
    println!("{why}");
    let place = format!("`kubectl describe secret login -n {here}` and the host's log have what it said");
    assert!(why.contains(&place), "{why}");
    world.until("the log has it", || world.log_since_start().contains(SECRET).then_some(()));
    assert_eq!(events_with(&world, SECRET), Vec::<String>::new());
    // Now it may, and the next fault has an Event, about the Secret. Nothing else has the text.
    let backup = format!("--serviceaccount={here}:backup");
    allow(&world, "backup-events", &backup, "create,patch", "events.events.k8s.io");
    world.kubectl_here(&["patch", "secret", "login", "--type=merge", "-p", r#"{"data":{"more":"eA=="}}"#]);
    let found = world.until("the Secret has an Event", || {
        let found = events_with(&world, SECRET);
        (!found.is_empty()).then_some(found)
    });
    assert_eq!(found, [format!("\"Secret\" \"{here}\"")]);
    let plugins = world.kubectl(&["get", "plugins", "-o", "json"]);
    for shown in [plugins, world.metrics_text(), world.probe("/readyz?verbose").1] {
        assert!(!shown.contains(SECRET), "{shown}");
    }

    // It is taken away: the plugin ends, and Secrets are read no more.
    world.kubectl_here(&["delete", "rolebinding", "lend"]);
    world.wait_condition(&plugin, "Permitted", "False", "Forbidden");
    world.until("the watch of Secrets has ended", || {
        (super::scopes::open_watches(&world, "namespace") == 0).then_some(())
    });
}

#[test]
fn q4_a_tenants_calls_that_never_end_delay_no_plugin_of_another_namespace() {
    let world = world_with_tenant("tenant-spins");
    let (here, other) = (world.namespace.clone(), format!("{}-other", world.namespace));
    create_namespace(&world, &other);
    tenant(&world, &other);
    let hostile = "test-guests/hostile.wasm";
    define_for_tenants(&world, "hostile", &path(hostile), "hostiles.test.mortise.dev");
    alice_grants_component(&world, &here, "hostile", &path(hostile));
    alice_offers(&world, &here, "hostile", hostile);
    wait_event(&world, "hostile", "Serving");
    alice_grants(&world, &other, "podset");
    alice_offers(&world, &other, "podset", "plugins/podset.wasm");
    alice_applies(&world, &other, "web", 1);
    world.until("the other tenant's plugin serves", || (replicas_of(&world, &other, "web") == "1").then_some(()));

    let spin = |number: usize| {
        json!({
            "apiVersion": "test.mortise.dev/v1", "kind": "Hostile",
            "metadata": {"name": format!("spin-{number}"), "namespace": &here}, "spec": {"mode": "loop"},
        })
    };
    let spins: Vec<Value> = (0..SPINS).map(spin).collect();
    world.apply(&json!({"apiVersion": "v1", "kind": "List", "items": spins}));
    let exceeded = |world: &World| world.metric("mortise_guest_faults_total", "reason=\"DeadlineExceeded\"");
    let another_exceeds = |world: &World| {
        let before = exceeded(world);
        world.until("a call exceeds its deadline", || (exceeded(world) > before).then_some(()));
    };
    another_exceeds(&world);
    for replicas in 2..=6 {
        alice_applies(&world, &other, "web", replicas);
        world.until_within(AT_ONCE, "the PodSet of the other tenant has its Pods", &mut || {
            (replicas_of(&world, &other, "web") == replicas.to_string()).then_some(())
        });
    }
    another_exceeds(&world);
}

#[test]
fn g11_a_plugin_whose_config_map_changes_all_the_time_ends_with_it_at_once() {
    let world = world_with_tenant("tenant-chatty");
    let here = world.namespace.clone();
    alice_grants(&world, &here, "podset");
    alice_offers(&world, &here, "podset", "plugins/podset.wasm");
    wait_event(&world, "podset", "Serving");
    let config_maps = world.api("v1", "ConfigMap", Some(&here));
    for number in 0..CHANGES {
        let change = Patch::Merge(json!({"metadata": {"annotations": {"example.com/number": number.to_string()}}}));
        world.block_on(config_maps.patch("podset", &PatchParams::default(), &change)).unwrap();
    }
    as_alice(&world, &["delete", "configmap", "podset", "-n", &here], "").unwrap();
    let plugin = format!("{here}.podset");
    world.until("its Plugin is gone", || is_gone(&world, &plugin).then_some(()));
}
