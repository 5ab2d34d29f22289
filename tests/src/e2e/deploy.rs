//! deploy/base on an API server, with the host as its ServiceAccount: the host serves, its policies refuse it everything else, and
//! its Lease has a priority level of its own.

use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::rights::grant;
use super::world::{HOST_NAMESPACE, OF_A_TEST, World, built, client};
use crate::checkout::root;

const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
const CONFIGURATION: (&str, &str) = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");
const PLUGIN: (&str, &str) = ("mortise.dev/v1alpha1", "Plugin");

/// Flags that every host of these tests has with values for loopback and a namespace of tests.
const OF_THE_WORLD: [&str; 5] =
    ["--namespace", "--cache-dir", "--metrics-bind-address", "--health-probe-bind-address", "--webhook-port"];

/// What `kubectl apply -k deploy/base` applied.
struct Deployed {
    /// The flags of its container.
    flags: Vec<String>,
    /// All but the Namespace and the host's CRD, which other tests use too.
    removable: Vec<Value>,
    kubeconfig: std::path::PathBuf,
    /// A client with the token of the host's ServiceAccount.
    client: Client,
}

impl Deployed {
    fn new(world: &World) -> Self {
        let kubeconfig = world.plane.service_account_kubeconfig(HOST_NAMESPACE, "mortise").unwrap();
        let base = root().join("deploy/base");
        let text = world.kubectl(&["kustomize", base.to_str().unwrap()]);
        world.kubectl(&["apply", "-k", base.to_str().unwrap()]);
        let mut removable: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        removable.retain(|object| !["Namespace", DEFINITION.1].contains(&object["kind"].as_str().unwrap()));
        let client = world.block_on(client(&kubeconfig));
        let deployed = Self { flags: flags(&removable), removable, kubeconfig, client };
        deployed.wait_for_policies(world);
        deployed
    }

    /// Starts the host as its Deployment does: one that lacks a flag of it ends at once.
    fn start_host(&self, world: &mut World) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        world.start_host_with(&self.kubeconfig, &flags);
    }

    /// The API server reads new policies a moment after they were written.
    fn wait_for_policies(&self, world: &World) {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        for (of, object) in [
            (DEFINITION, definition("probes", &json!({}))),
            (CONFIGURATION, configuration("probe", &json!({}), &[])),
            (PLUGIN, plugin("probe", &json!({}), &json!({}))),
            (("v1", "Secret"), secret("probe", "Opaque")),
        ] {
            let namespace = (of.1 == "Secret").then_some(HOST_NAMESPACE);
            let api = self.api(of, namespace);
            world.until(&format!("the policy of {} is in force", of.1), || {
                world.block_on(api.create(&dry_run, &parsed(&object))).is_err().then_some(())
            });
        }
    }

    fn api(&self, (api_version, kind): (&str, &str), namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    fn remove(self, world: &World) {
        for object in &self.removable {
            let name = object["metadata"]["name"].as_str().unwrap();
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
            let kind = object["kind"].as_str().unwrap();
            world.kubectl(&["delete", kind, name, "-n", namespace, "--ignore-not-found"]);
        }
    }
}

/// The flags of the Deployment among these objects, without those that the world has values for.
fn flags(objects: &[Value]) -> Vec<String> {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("it deploys the host");
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let (command, flags) = arguments.split_first().unwrap();
    assert_eq!(command, "run");
    let flags = flags.iter().map(|flag| flag.as_str().unwrap().to_owned());
    let is_of_world = |flag: &String| OF_THE_WORLD.contains(&flag.split('=').next().unwrap());
    let flags: Vec<String> = flags.filter(|flag| !is_of_world(flag)).collect();
    assert!(!flags.is_empty() && flags.iter().all(|flag| flag.starts_with("--") && !flag.contains("$(")), "{flags:?}");
    flags
}

fn parsed(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}

/// Metadata that make an object the host's.
fn of_host(plugin: &str) -> Value {
    json!({
        "labels": {"app.kubernetes.io/managed-by": "mortise", "mortise.dev/host-namespace": HOST_NAMESPACE},
        "annotations": {"mortise.dev/plugin": plugin},
    })
}

/// Named, with the label by which a test's cluster-scoped objects are deleted.
fn named(name: &str, metadata: &Value) -> Value {
    let mut named = metadata.clone();
    named["name"] = name.into();
    let (key, value) = OF_A_TEST.split_once('=').unwrap();
    named["labels"][key] = value.into();
    named
}

fn definition(plural: &str, metadata: &Value) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": DEFINITION.0, "kind": DEFINITION.1,
        "metadata": named(&format!("{plural}.test.mortise.dev"), metadata),
        "spec": {
            "group": "test.mortise.dev", "scope": "Namespaced", "names": {"plural": plural, "kind": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// A webhook configuration for these resources: "apps/deployments".
fn configuration(name: &str, metadata: &Value, resources: &[&str]) -> Value {
    let rule = |resource: &&str| {
        let (group, resource) = resource.split_once('/').unwrap();
        json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]})
    };
    let webhook = json!({
        "name": "a.test.mortise.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        // It selects nothing, whatever its rules say.
        "objectSelector": {"matchLabels": {"test.mortise.dev/none": "true"}},
        "namespaceSelector": without(&[HOST_NAMESPACE, "kube-system"]),
        "rules": resources.iter().map(rule).collect::<Vec<_>>(),
    });
    let webhooks = if resources.is_empty() { vec![] } else { vec![webhook] };
    json!({"apiVersion": CONFIGURATION.0, "kind": CONFIGURATION.1, "metadata": named(name, metadata), "webhooks": webhooks})
}

/// The selector of all namespaces but these.
fn without(namespaces: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces}]})
}

/// What the policy of webhooks leaves the host and what it refuses it; the tests of the local cluster read the same.
fn table() -> Value {
    let text = std::fs::read_to_string(root().join("deploy/webhook-rules.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Every resource that the API server itself serves and that can be created: "apps/deployments".
fn served(world: &World) -> Vec<String> {
    let get = |path: &str| -> Value { serde_json::from_str(&world.kubectl(&["get", "--raw", path])).unwrap() };
    let groups = get("/apis");
    let defined = world.kubectl(&["get", "crd", "-o", "jsonpath={.items[*].spec.group}"]);
    let of_group = |group: &Value| {
        let name = group["name"].as_str().unwrap().to_owned();
        let is_builtin = !defined.split_whitespace().any(|defined| defined == name);
        is_builtin.then(|| (name, format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str().unwrap())))
    };
    let groups = groups["groups"].as_array().unwrap().iter().filter_map(of_group);
    let mut served = Vec::new();
    for (group, path) in groups.chain([(String::new(), "/api/v1".to_owned())]) {
        for resource in get(&path)["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            if !name.contains('/') && resource["verbs"].as_array().unwrap().contains(&json!("create")) {
                served.push(format!("{group}/{name}"));
            }
        }
    }
    assert!(served.len() > 30 && served.iter().any(|resource| resource == "/configmaps"), "{served:?}");
    served
}

/// Kind by kind: whatever the API server serves is refused, unless it is a workload.
fn kinds_are_held(world: &World, deployed: &Deployed) {
    let api = deployed.api(CONFIGURATION, None);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let create = |webhook: &dyn Fn(&mut Value), resource: &str| {
        let mut configuration = configuration("own", &of_host("a"), &[resource]);
        webhook(&mut configuration["webhooks"][0]);
        world.block_on(api.create(&dry_run, &parsed(&configuration)))
    };
    let (policy, table) = ("mortise-host-webhooks", table());
    let workloads = texts(&table["workloads"]);
    for resource in served(world).iter().filter(|resource| !workloads.contains(&&***resource)) {
        refused(policy, create(&|_| {}, resource));
    }
    for resource in workloads.into_iter().chain(texts(&table["others"])) {
        drop(create(&|_| {}, resource).unwrap_or_else(|error| panic!("{resource}: {error}")));
    }
    for rule in table["refused"].as_array().unwrap() {
        let of_rule = |webhook: &mut Value| {
            webhook["rules"][0].as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        };
        refused(policy, create(&of_rule, "/pods"));
    }
    for case in table["namespaces"].as_array().unwrap() {
        let selecting = |webhook: &mut Value| webhook["namespaceSelector"] = without(&texts(&case["without"]));
        let created = create(&selecting, case["resource"].as_str().unwrap());
        match case["enough"].as_bool().unwrap() {
            true => drop(created.unwrap_or_else(|error| panic!("{case}: {error}"))),
            false => assert!(refused(policy, created).contains("leave out its namespace"), "{case}"),
        }
    }
    refused(policy, create(&|webhook| webhook["namespaceSelector"] = json!({}), "example.com/webs"));
    let of_crd =
        json!({"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["webs"]});
    let all = |webhook: &mut Value| webhook["rules"] = json!([of_crd, webhook["rules"][0]]);
    drop(create(&all, "/pods").unwrap());
    refused(policy, create(&all, "/services"));
}

fn plugin(name: &str, metadata: &Value, spec: &Value) -> Value {
    json!({"apiVersion": PLUGIN.0, "kind": PLUGIN.1, "metadata": named(name, metadata), "spec": spec})
}

fn secret(name: &str, type_: &str) -> Value {
    let annotations = json!({"kubernetes.io/service-account.name": "default"});
    let metadata = json!({"name": name, "namespace": HOST_NAMESPACE, "annotations": annotations});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_})
}

/// The refusal of one of the policies.
#[track_caller]
fn refused<T>(policy: &str, result: kube::Result<T>) -> String {
    match result {
        Err(kube::Error::Api(status)) => {
            println!("{}", status.message);
            let policy = format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: ");
            let (_, why) = status.message.split_once(&policy).unwrap_or_else(|| panic!("{status:?}"));
            assert_eq!((status.code, &*status.reason), (403, "Forbidden"), "{why}");
            why.to_owned()
        }
        Err(error) => panic!("no response of the API server: {error}"),
        Ok(_) => panic!("{policy} allowed it"),
    }
}

/// The host as it is deployed serves a plugin that brings a CRD and webhooks.
fn serve_admitting(world: &mut World, deployed: &Deployed) {
    deployed.start_host(world);
    world.offer("admitting", &built("test-guests/admitting.wasm"));
    let component = built("test-guests/admitting.wasm");
    grant(world, &[component.to_str().unwrap(), "--service-account", "admitting"]);
    world.wait_condition("admitting", "Admitting", "True", "Served");
    world.wait_ready("admitting");
}

fn definitions_are_held(world: &World, deployed: &Deployed) {
    let (policy, theirs) = ("mortise-host-definitions", world.api(DEFINITION.0, DEFINITION.1, None));
    let (api, post) = (deployed.api(DEFINITION, None), PostParams::default());
    let create = |metadata: &Value| world.block_on(api.create(&post, &parsed(&definition("foreigns", metadata))));
    let why = refused(policy, create(&json!({})));
    assert!(why.contains("without the label app.kubernetes.io/managed-by=mortise: foreigns.test.mortise.dev"), "{why}");
    let why = refused(policy, create(&json!({"labels": of_host("")["labels"]})));
    assert!(why.contains("without the annotation mortise.dev/plugin"), "{why}");

    world.block_on(theirs.create(&post, &parsed(&definition("foreigns", &json!({}))))).unwrap();
    let take = |object: &mut DynamicObject| {
        object.metadata.labels = serde_json::from_value(of_host("")["labels"].clone()).unwrap();
        object.metadata.annotations = serde_json::from_value(of_host("taker")["annotations"].clone()).unwrap();
    };
    refused(policy, replaced(world, &api, "foreigns.test.mortise.dev", &take));

    world.block_on(api.create(&post, &parsed(&definition("owns", &of_host("a"))))).unwrap();
    let change = |object: &mut DynamicObject| object.data["spec"]["names"]["categories"] = json!(["all"]);
    replaced(world, &api, "owns.test.mortise.dev", &change).unwrap();
    let give_up = |object: &mut DynamicObject| object.metadata.labels = None;
    refused(policy, replaced(world, &api, "owns.test.mortise.dev", &give_up));
}

/// An update of what is there; once more when the API server itself wrote in between.
fn replaced(
    world: &World,
    api: &Api<DynamicObject>,
    name: &str,
    change: &dyn Fn(&mut DynamicObject),
) -> kube::Result<DynamicObject> {
    world.until("nobody else writes in between", || {
        let mut object = world.block_on(api.get(name)).unwrap();
        change(&mut object);
        match world.block_on(api.replace(name, &PostParams::default(), &object)) {
            Err(kube::Error::Api(status)) if status.code == 409 => None,
            other => Some(other),
        }
    })
}

fn webhooks_are_held(world: &World, deployed: &Deployed) {
    let (policy, theirs) = ("mortise-host-webhooks", world.api(CONFIGURATION.0, CONFIGURATION.1, None));
    let (api, post) = (deployed.api(CONFIGURATION, None), PostParams::default());
    let create = |metadata: &Value, resources: &[&str]| {
        world.block_on(api.create(&post, &parsed(&configuration("own", metadata, resources))))
    };
    let foreign = configuration("foreign", &json!({}), &["apps/deployments"]);
    let foreign = world.block_on(theirs.create(&post, &parsed(&foreign))).unwrap();
    refused(policy, world.block_on(api.delete("foreign", &DeleteParams::default())));
    let mut taken = foreign.clone();
    taken.metadata.labels = serde_json::from_value(of_host("")["labels"].clone()).unwrap();
    refused(policy, world.block_on(api.replace("foreign", &post, &taken)));
    refused(policy, create(&json!({}), &["apps/deployments"]));

    let mut of_another = of_host("a");
    of_another["labels"]["mortise.dev/host-namespace"] = "another".into();
    let why = refused(policy, create(&of_another, &["apps/deployments"]));
    assert!(why.contains("the host of mortise-system writes no webhook configuration without the label"), "{why}");
    for resource in ["*/*", "/secrets", "/*", "/pods/binding", "rbac.authorization.k8s.io/roles", "mortise.dev/plugins"]
    {
        let why = refused(policy, create(&of_host("a"), &["apps/deployments", resource]));
        assert!(why.contains("none that a cluster needs to run or to be repaired: own"), "{why}");
    }
    create(&of_host("a"), &["/pods", "apps/deployments"]).unwrap();
    world.block_on(api.delete("own", &DeleteParams::default())).unwrap();
}

fn plugins_and_secrets_are_held(world: &World, deployed: &Deployed) {
    let (api, post) = (deployed.api(PLUGIN, None), PostParams::default());
    let create = |name: &str, metadata: &Value, spec: Value| {
        world.block_on(api.create(&post, &parsed(&plugin(name, metadata, &spec))))
    };
    let policy = "mortise-host-plugins";
    refused(policy, create("unnamed", &json!({}), json!({})));
    for spec in [json!({"serviceAccountName": "admin"}), json!({"grants": {"admission": ["Pod"]}})] {
        let why = refused(policy, create("rich", &of_host("a"), spec));
        assert!(why.contains("people name the ServiceAccount of a Plugin and grant, not the host: rich"), "{why}");
    }
    let theirs = world.api(PLUGIN.0, PLUGIN.1, None);
    world.block_on(theirs.create(&post, &parsed(&plugin("of-a-person", &json!({}), &json!({}))))).unwrap();
    refused(policy, world.block_on(api.delete("of-a-person", &DeleteParams::default())));

    let secrets = deployed.api(("v1", "Secret"), Some(HOST_NAMESPACE));
    for (name, type_) in [("another", "Opaque"), ("mortise-webhook-ca", "kubernetes.io/service-account-token")] {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let created = world.block_on(secrets.create(&dry_run, &parsed(&secret(name, type_))));
        refused("mortise-host-secrets", created);
    }
}

#[test]
fn l4_the_policies_of_deploy_let_the_host_serve_and_hold_it_to_what_has_its_labels() {
    let mut world = World::new("deploy");
    let deployed = Deployed::new(&world);
    world.kubectl(&["rollout", "status", "deployment/mortise", "-n", HOST_NAMESPACE, "--timeout=60s"]);
    let allowed =
        ["get", "poddisruptionbudget/mortise", "-n", HOST_NAMESPACE, "-o", "jsonpath={.status.disruptionsAllowed}"];
    world.until("a drain may evict the only replica", || (world.kubectl(&allowed) == "1").then_some(()));

    serve_admitting(&mut world, &deployed);
    definitions_are_held(&world, &deployed);
    webhooks_are_held(&world, &deployed);
    kinds_are_held(&world, &deployed);
    plugins_and_secrets_are_held(&world, &deployed);
    let checked = ["get", "validatingadmissionpolicies", "-o", "jsonpath={.items[*].status.typeChecking}"];
    let warnings = world.kubectl(&checked);
    assert!(!warnings.contains("expressionWarnings"), "{warnings}");

    // The host updates and deletes what is its own.
    world.withdraw("admitting");
    world.until("the host has deleted the webhooks of the plugin", || {
        let left =
            world.kubectl(&["get", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "-o", "name"]);
        (!left.contains("admitting")).then_some(())
    });
    for what in ["crd", "validatingwebhookconfigurations", "plugins"] {
        world.kubectl(&["delete", what, "-l", OF_A_TEST]);
    }
    world.kill_host();
    deployed.remove(&world);
}

#[test]
fn x7_the_lease_of_the_deployed_host_has_the_priority_level_of_leader_election() {
    let mut world = World::new("deploy-lease");
    let deployed = Deployed::new(&world);
    let schema = ["get", "flowschema/mortise-leader-election", "-o"];
    let uid = world.kubectl(&[&schema[..], &["jsonpath={.metadata.uid}"]].concat());
    assert!(!uid.is_empty());
    deployed.start_host(&mut world);
    world.until("the host leads", || {
        let holder = ["get", "lease/mortise", "-n", HOST_NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"];
        (!world.plane.kubectl_output(&holder).ok()?.is_empty()).then_some(())
    });
    let schema_of = |path: &str| {
        let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
        let response = world.block_on(deployed.client.send(request)).unwrap();
        response.headers()["x-kubernetes-pf-flowschema-uid"].to_str().unwrap().to_owned()
    };
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{HOST_NAMESPACE}/leases/mortise");
    world.until("requests of the Lease are in the schema", || (schema_of(&lease) == uid).then_some(()));
    assert_ne!(schema_of(&format!("/api/v1/namespaces/{HOST_NAMESPACE}/configmaps")), uid);
    world.kill_host();
    deployed.remove(&world);
}
