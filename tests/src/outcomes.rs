//! The SDK's native tests refuse an outcome exactly when the host does, with the same message: each outcome here passes
//! `mortise_core::plan` and `mortise_sdk::testing`, which share no code. Otherwise authors would first learn the
//! rules on a cluster.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use mortise_core::contract::{self, GuestFault};
use mortise_core::http;
use mortise_core::limits::{MAX_ACTIONS, MAX_CHILD_BYTES, MAX_CHILDREN, MAX_CONDITIONS, MAX_EVENTS, MAX_STATUS_BYTES};
use mortise_core::manifest::http::HttpRule;
use mortise_core::manifest::writes::{WriteRule, WriteVerb};
use mortise_core::manifest::{ControllerSpec, Manifest, OwnedKind, Predicate, Replace, Update};
use mortise_core::object::{Interner, Kind, Name, Object, ObjectRef};
use mortise_core::plan;
use mortise_core::scope::Scope;
use mortise_sdk::testing::Cluster;
use mortise_sdk::{
    Action, Apply, Child, Condition, ConditionStatus, Controller, Delete, Event, Generated, Handling, Http, Json,
    Limits, Method, ObjectKey, Outcome, Owned, Patch, PatchKind, Plugin, Read, Recipe, Request, Severity, Verb, Write,
};
use serde_json::{Value, json};

thread_local! {
    /// The plugin's outcome: a plugin is a plain function and cannot carry it.
    static OUTCOME: RefCell<Outcome<Value>> = RefCell::default();
}

/// A kind whose children may be in any namespace and are adopted.
const ANYWHERE: &str = "Service";

const fn owned(kind: &'static str, is_anywhere: bool) -> Owned {
    let kind = mortise_sdk::Kind { api_version: "v1", kind };
    Owned { kind, update: None, replace: None, tracked: is_anywhere, namespaces: &[], adopt: is_anywhere }
}

const fn controller((api_version, kind): (&'static str, &'static str), owns: &'static [Owned]) -> Controller {
    Controller {
        primary: mortise_sdk::Kind { api_version, kind },
        definition: None,
        selection: mortise_sdk::Predicate::EVERYTHING,
        owns,
        reads: const { &[Read::all(mortise_sdk::Kind { api_version: "apps/v1", kind: "Deployment" })] },
        writes: WRITES,
        http: HTTP,
        finalize: true,
        concurrency: None,
        reconcile: |_, _| Ok(OUTCOME.with_borrow(Outcome::clone)),
        admission: None,
        conversion: &[],
    }
}

/// The declared writes to objects that are not children.
const WRITES: &[Write] = &[
    write("v1", "Pod", &[Verb::Evict], &[]),
    write("apps/v1", "Deployment", &[Verb::Patch, Verb::Delete], &["scale"]),
    write("v1", "Secret", &[Verb::Apply, Verb::Patch, Verb::Delete], &[]),
    write("example.com/v1", "Team", &[Verb::Patch], &["status"]),
];

/// The declared origins, one of them twice and in another notation.
const HTTP: &[Http] = &[
    Http { origin: "https://api.example.com", methods: &[Method::Get, Method::Post], secrets: &["token"] },
    Http { origin: "https://API.example.com:443", methods: &[Method::Head], secrets: &[] },
    Http { origin: "http://[FD00::1]:8080", methods: &[Method::Get], secrets: &[] },
];

/// The reconciled kinds: two of a plugin's own, and one of Kubernetes.
const TEAM: (&str, &str) = ("example.com/v1", "Team");
const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
/// Its children are Secrets.
const VAULT: (&str, &str) = ("example.com/v1", "Vault");

const OWNS: &[Owned] = &[owned("Pod", false), owned("ConfigMap", false), owned(ANYWHERE, true)];
const OWNS_SECRETS: &[Owned] = &[Owned { adopt: true, ..owned("Secret", false) }];

static PLUGIN: Plugin = Plugin {
    name: "teams",
    version: "0.0.0",
    controllers: &[controller(TEAM, OWNS), controller(DEPLOYMENT, OWNS), controller(VAULT, OWNS_SECRETS)],
    limits: Limits { memory_bytes: None, deadline_ms: None },
};

const fn write(
    api_version: &'static str,
    kind: &'static str,
    verbs: &'static [Verb],
    subresources: &'static [&'static str],
) -> Write {
    Write { kind: mortise_sdk::Kind { api_version, kind }, verbs, subresources }
}

fn rules() -> Vec<WriteRule> {
    let verb = |verb: &Verb| match verb {
        Verb::Apply => WriteVerb::Apply,
        Verb::Patch => WriteVerb::Patch,
        Verb::Delete => WriteVerb::Delete,
        Verb::Evict => WriteVerb::Evict,
    };
    let rule = |write: &Write| WriteRule {
        kind: Kind::new(write.kind.api_version, write.kind.kind),
        verbs: write.verbs.iter().map(verb).collect(),
        subresources: write.subresources.iter().map(|&name| name.to_owned()).collect(),
    };
    WRITES.iter().map(rule).collect()
}

/// As the host parses them.
fn http_rules() -> Arc<[HttpRule]> {
    let mut manifest: Value = serde_json::from_str(&PLUGIN.manifest()).unwrap();
    // The host accepts a delete only of a kind that is read.
    manifest["writes"] = json!([]);
    Manifest::parse(&manifest.to_string()).unwrap().http
}

fn spec((api_version, kind): (&str, &str)) -> ControllerSpec {
    let owned = |kind| OwnedKind {
        kind: Kind::new("v1", kind),
        update: Update::Apply,
        replace: Replace::WhenGone,
        tracked: false,
        adopt: false,
        scope: Scope::default(),
    };
    let anywhere = OwnedKind { tracked: true, adopt: true, ..owned(ANYWHERE) };
    ControllerSpec {
        primary: Kind::new(api_version, kind),
        scope: Scope::default(),
        builtin: !api_version.contains("example.com"),
        selection: Predicate::default(),
        owns: if kind == VAULT.1 {
            vec![OwnedKind { adopt: true, ..owned("Secret") }]
        } else {
            vec![owned("Pod"), owned("ConfigMap"), anywhere]
        },
        reads: vec![Kind::new("apps/v1", "Deployment").into()],
        patterns: Vec::new(),
        writes: rules().into(),
        http: http_rules(),
        finalize: true,
        concurrency: 1,
        visible: Vec::new(),
    }
}

fn object((api_version, kind): (&str, &str), namespace: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": "a", "uid": "u-1", "resourceVersion": "1"}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

fn generated((at, generated): &(String, Generated)) -> contract::Generated {
    let recipe = match &generated.recipe {
        Recipe::Alphanumeric(length) => mortise_core::generated::Recipe::Alphanumeric(*length),
        Recipe::Bytes(length) => mortise_core::generated::Recipe::Bytes(*length),
        Recipe::Tls { names, lifetime } => mortise_core::generated::Recipe::Tls {
            names: names.iter().map(|name| name.as_str().into()).collect(),
            lifetime_seconds: u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX),
        },
    };
    contract::Generated { at: at.as_str().into(), recipe, rotation: generated.rotation.as_str().into() }
}

fn converted(outcome: &Outcome<Value>) -> contract::Outcome {
    let child = |child: &Child| contract::Child {
        handling: match child.handling {
            Handling::Managed => contract::Handling::Managed,
            Handling::CreateOnce => contract::Handling::CreateOnce,
            Handling::Keep => contract::Handling::Keep,
        },
        or_skip: child.or_skip,
        adopt: child.adopt,
        group: child.group,
        exact: child.exact.iter().map(|path| path.as_str().into()).collect(),
        generated: child.generated.iter().map(generated).collect(),
        ..contract::Child::new(child.key.as_str(), child.object.text().unwrap())
    };
    let condition = |condition: &Condition| contract::Condition {
        name: condition.name.clone(),
        status: match condition.status {
            ConditionStatus::True => contract::ConditionStatus::True,
            ConditionStatus::False => contract::ConditionStatus::False,
            ConditionStatus::Unknown => contract::ConditionStatus::Unknown,
        },
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    };
    let reference = |key: &ObjectKey| ObjectRef {
        kind: Kind::new(&key.api_version, &key.kind),
        name: Name::new(key.namespace.as_deref().unwrap_or_default(), &key.name),
    };
    let text = |json: &Json| json.text().unwrap().into();
    let action = |action: &Action| match action {
        Action::Apply(Apply { object, force }) => contract::Action::Apply { object: text(object), force: *force },
        Action::Patch(Patch { target, kind, body, subresource }) => contract::Action::Patch {
            target: reference(target),
            patch_kind: match kind {
                PatchKind::Merge => contract::PatchKind::Merge,
                PatchKind::Json => contract::PatchKind::Json,
                PatchKind::Strategic => contract::PatchKind::Strategic,
            },
            body: text(body),
            subresource: subresource.clone(),
        },
        Action::Delete(Delete { target, .. }) => {
            contract::Action::Delete { target: reference(target), propagation: contract::Propagation::Background }
        }
        Action::Evict(pod) => contract::Action::Evict { target: reference(pod) },
    };
    let event = |event: &Event| contract::GuestEvent {
        warning: event.severity == Severity::Warning,
        reason: event.reason.clone(),
        message: event.message.clone(),
        regarding: event.regarding.as_ref().map(reference),
    };
    contract::Outcome {
        children: outcome.children.as_ref().map(|children| children.iter().map(child).collect()),
        actions: outcome.actions.iter().map(action).collect(),
        finalized: outcome.finalized,
        status: outcome.status.as_ref().map(text),
        conditions: outcome.conditions.iter().map(condition).collect(),
        events: outcome.events.iter().map(event).collect(),
        requests: outcome.requests.iter().map(request).collect(),
        ..contract::Outcome::default()
    }
}

fn request(request: &Request) -> http::Request {
    let secret = |[name, prefix, secret, key]: [&str; 4]| http::SecretHeader {
        name: name.into(),
        prefix: prefix.into(),
        secret: secret.into(),
        key: key.into(),
    };
    let method = http::Method::ALL.into_iter().find(|method| method.as_str() == request.method().as_str());
    http::Request {
        method: method.unwrap(),
        headers: request.headers().map(|(name, value)| (name.into(), value.into())).collect(),
        secret_headers: request.secret_headers().map(secret).collect(),
        body: request.content().into(),
        timeout_ms: request.timeout_ms(),
        refresh_after_ms: request.refresh_after_ms(),
        ..http::Request::get(request.key(), request.url())
    }
}

/// The refusal of an outcome of this controller, by both; empty when both accept it.
#[track_caller]
fn refusal(kind: (&str, &str), outcome: &Outcome<Value>, namespace: Option<&str>) -> String {
    let object = object(kind, namespace);
    let primary = Object::decode(object.to_string().as_bytes(), &mut Interner::default()).unwrap();
    let host = match plan::prepare(&spec(kind), &primary, &converted(outcome), None) {
        Ok(_) => String::new(),
        Err(GuestFault::BadOutcome { message }) => message,
        Err(fault) => panic!("{fault:?}"),
    };
    OUTCOME.set(outcome.clone());
    let sdk = match Cluster::of(&PLUGIN).reconcile(&object) {
        Ok(_) => String::new(),
        Err(failure) => failure.message().trim_start_matches("the host would refuse this outcome: ").to_owned(),
    };
    assert_eq!(sdk, host, "the SDK's tests (left) and the host (right) differ on {outcome:?}");
    host
}

#[track_caller]
fn accepted(outcome: &Outcome<Value>) {
    assert_eq!(refusal(TEAM, outcome, Some("default")), "");
}

#[track_caller]
fn refused(outcome: &Outcome<Value>, why: &str) {
    let found = refusal(TEAM, outcome, Some("default"));
    assert!(!found.is_empty() && found.contains(why), "expected {why:?}, found {found:?}");
}

fn child(key: &str, metadata: &Value) -> Child {
    Child::new(key, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
}

fn one(metadata: &Value) -> Outcome<Value> {
    Outcome::children([child("a", metadata)])
}

fn raw(object: impl Into<String>) -> Outcome<Value> {
    Outcome::children([Child::new("a", Json::raw(object))])
}

#[test]
fn x6_native_tests_refuse_what_the_host_refuses_about_a_child() {
    accepted(&Outcome::children([]));
    accepted(&one(&json!(null)));
    accepted(&one(&json!({"name": "a.b-1", "namespace": "default", "labels": {"app": "a"}, "finalizers": null})));
    for field in ["ownerReferences", "finalizers", "managedFields"] {
        refused(&one(&json!({field: []})), &format!("metadata.{field} is set"));
    }
    for field in ["uid", "resourceVersion", "generateName", "creationTimestamp", "deletionTimestamp"] {
        refused(&one(&json!({field: "1"})), &format!("metadata.{field} is set"));
    }
    refused(&one(&json!({"generation": 1})), "metadata.generation is set");
    for map in ["labels", "annotations"] {
        refused(&one(&json!({map: {"mortise.dev/desired": "x"}})), &format!("metadata.{map}[\"mortise.dev/desired\"]"));
    }
    refused(&one(&json!([])), "metadata is not an object");
    for (field, value) in
        [("name", json!(5)), ("namespace", json!(["a"])), ("labels", json!("a")), ("annotations", json!(1))]
    {
        refused(&one(&json!({field: value})), &format!("metadata.{field} is {value}, not "));
    }
    refused(&one(&json!({"namespace": "kube-system"})), "a child lives in its owner's namespace");
    assert_eq!(refusal(TEAM, &one(&json!({"namespace": "kube-system"})), None), "", "the owner is cluster-scoped");
    for name in ["", "A", "a_b", "-a", "a-", "a..b", "../a", "a/b", "ä", &"a".repeat(254)] {
        refused(&one(&json!({"name": name})), "is not a name that Kubernetes accepts");
    }
    accepted(&one(&json!({"name": "a".repeat(253)})));
    refused(&raw(r#"{"apiVersion": "v1", "kind": "Secret"}"#), "v1/Secret is not among the kinds");
    refused(&raw(r#"{"apiVersion": "v2", "kind": "Pod"}"#), "v2/Pod is not among the kinds");
    refused(&raw(r#"{"kind": "Pod"}"#), "apiVersion and kind are missing");
    refused(&raw("[]"), "apiVersion and kind are missing");
    refused(&raw("{"), "it is not JSON: EOF");
}

#[test]
fn x6_native_tests_refuse_what_the_host_refuses_about_other_namespaces_and_adoption() {
    let service =
        |metadata: Value| Child::new("s", json!({"apiVersion": "v1", "kind": ANYWHERE, "metadata": metadata}));
    accepted(&Outcome::children([service(json!({"name": "x", "namespace": "kube-system"})).adopt()]));
    accepted(&Outcome::children([service(json!({"namespace": ""}))]));
    for wrong in ["a/b", "..", "A"] {
        let why = format!("{wrong:?} is not a name that Kubernetes accepts");
        refused(&Outcome::children([service(json!({"name": "x", "namespace": wrong}))]), &why);
    }
    let in_both = ["a", "b"]
        .map(|namespace| Child { key: namespace.into(), ..service(json!({"name": "x", "namespace": namespace})) });
    accepted(&Outcome::children(in_both));
    let twice =
        ["a", "b"].map(|key| Child { key: key.into(), ..service(json!({"name": "x", "namespace": "elsewhere"})) });
    refused(&Outcome::children(twice), "Service elsewhere/x appears twice");
    let elsewhere = "for children elsewhere write \"namespaces\": \"any\" at v1/ConfigMap under owns";
    refused(&one(&json!({"namespace": "kube-system"})), elsewhere);
    refused(&one(&json!({"namespace": ""})), elsewhere);
    let config_map = child("a", &json!({"name": "x"})).adopt();
    refused(&Outcome::children([config_map]), "the manifest does not let objects of v1/ConfigMap be adopted");
    refused(&Outcome::children([service(json!({})).adopt()]), "metadata.name has to say which object is adopted");
    let kept = Child { handling: Handling::Keep, ..service(json!({"name": "x"})) };
    refused(&Outcome::children([kept.adopt()]), "a child that is kept as it is cannot be adopted");
}

#[test]
fn native_tests_refuse_what_the_host_refuses_about_exact_maps() {
    let exact = |paths: Vec<String>| {
        let whole = child("a", &json!(null));
        Outcome::children([paths.into_iter().fold(whole, |child, path| child.exact(path))])
    };
    let deep = |members: usize| vec!["a"; members].join(".");
    accepted(&exact(vec![deep(16); 16]));
    refused(&exact(vec!["data".to_owned(); 17]), "there are 17 paths, the most is 16");
    refused(&exact(vec![deep(17)]), "a path has 17 members, the most is 16");
    refused(&exact(vec!["metadata.labels".to_owned()]), "others have members of metadata too");
}

#[test]
fn x3_native_tests_refuse_what_the_host_refuses_about_keys_and_names() {
    let none = json!({});
    refused(&Outcome::children([child("", &none)]), "a key has 1 to 253 bytes");
    refused(&Outcome::children([child(&"k".repeat(254), &none)]), "a key has 1 to 253 bytes");
    accepted(&Outcome::children([child(&"k".repeat(253), &none), child("A key / of any letters", &none)]));
    refused(&Outcome::children([child("a", &none), child("a", &none)]), "the key appears twice for v1/ConfigMap");
    let pod = Child::new("a", json!({"apiVersion": "v1", "kind": "Pod"}));
    accepted(&Outcome::children([child("a", &none), pod]));
    let named = json!({"name": "x"});
    refused(&Outcome::children([child("a", &named), child("b", &named)]), "ConfigMap default/x appears twice");
    let twice = Outcome::children([child("a", &named), child("b", &named)]);
    assert!(refusal(TEAM, &twice, None).contains("ConfigMap x appears twice"));
}

#[test]
fn x6_native_tests_refuse_what_the_host_refuses_about_a_status() {
    accepted(&Outcome::new().status(&json!({"a": {"conditions": []}})));
    refused(&Outcome::new().status(&json!({"conditions": []})), "return conditions in the outcome's own list");
    refused(&Outcome::new().status(&json!({"observedGeneration": 1})), "the host writes it");
    refused(&Outcome::new().status(&json!([1])), "expected a JSON object, found [1]");
    let mut broken = Outcome::new();
    broken.status = Some(Json::raw("{\"a\":"));
    refused(&broken, "status: it is not JSON: EOF");
    let reasons = ["A", "Ready_2", &"A".repeat(128)];
    for reason in reasons {
        accepted(&Outcome::new().ready(true, reason, "").event(Event::normal(reason, "")));
    }
    for reason in ["", "two words", "2Fast", "_A", "not-a-word", "Ä", &"A".repeat(129)] {
        refused(&Outcome::new().ready(true, reason, ""), "both have to be CamelCase words");
        refused(&Outcome::new().event(Event::warning(reason, "")), "is not a CamelCase word");
    }
    accepted(&Outcome::new().condition(Condition::new("example.com/Synced", true, "A", "")));
    refused(&Outcome::new().condition(Condition::new("Stalled", true, "A", "")), "Stalled is the host's own");
    refused(&Outcome::new().condition(Condition::new("not ready", true, "A", "")), "both have to be CamelCase words");
    refused(&Outcome::new().condition(Condition::new("", true, "A", "")), "both have to be CamelCase words");
    let about = |kind: &str| Event::normal("A", "").regarding(ObjectKey::new("v1", kind, Some("default"), "x"));
    accepted(&Outcome::new().event(about("Pod")));
    refused(&Outcome::new().event(about("Secret")), "Secret default/x, which the manifest does not declare");
    let named = |name: &str| Event::normal("A", "").regarding(ObjectKey::new("v1", "Pod", Some("default"), name));
    accepted(&Outcome::new().event(named(&"a".repeat(253))));
    for name in ["", ".", "a/b", &"a".repeat(254)] {
        refused(&Outcome::new().event(named(name)), "which is not a name that Kubernetes accepts");
    }
    refused(&Outcome::new().ready(true, "A", "").ready(false, "B", ""), "\"Ready\" appears twice");
}

fn key(api_version: &str, kind: &str) -> ObjectKey {
    ObjectKey::new(api_version, kind, Some("default"), "x")
}

fn acts(action: impl Into<Action>) -> Outcome<Value> {
    Outcome::new().action(action)
}

#[test]
fn native_tests_refuse_what_the_host_refuses_about_actions() {
    let deployment = || key("apps/v1", "Deployment");
    let merge = |body: Value| acts(Patch::merge(deployment(), &body));
    let operations = |body: Value| acts(Patch::json(deployment(), &body));
    accepted(&merge(json!({"spec": {"paused": true}, "metadata": {"annotations": {"a": "b"}}})));
    accepted(&operations(json!([{"op": "test", "path": "/metadata/uid", "value": "u"}])));
    accepted(&acts(Patch::strategic(deployment(), json!({"spec": {"template": {}}}))));
    accepted(&acts(Patch::merge(deployment(), json!({"spec": {"replicas": 1}})).subresource("scale")));
    accepted(&acts(Delete::new(deployment())));
    accepted(&acts(Action::evict(key("v1", "Pod"))));
    let secret = |metadata: Value| Apply::new(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}));
    accepted(&acts(secret(json!({"name": "a", "namespace": "elsewhere"}))));
    refused(&acts(secret(json!({"name": "a", "ownerReferences": []}))), "metadata.ownerReferences is set");
    refused(&acts(secret(json!({"namespace": "a"}))), "actions[0]: \"a/\" is not a name that Kubernetes accepts");
    refused(&acts(Apply::new(Json::raw("{"))), "actions[0]: it is not JSON");
    refused(&acts(Apply::new(json!([]))), "actions[0]: apiVersion and kind are missing");
    refused(&acts(Delete::new(key("v1", "Secret"))), "delete of v1/Secret carries the UID that was seen");
    refused(&acts(Delete::new(key("v1", "Pod"))), "delete of v1/Pod is not declared under writes of the manifest");
    refused(&acts(Patch::merge(key("v1", "Node"), json!({}))), "patch of v1/Node is not declared");
    refused(&acts(Action::evict(key("v1", "Node"))), "evict of v1/Node is not declared");
    refused(&acts(Patch::merge(deployment(), json!({})).subresource("status")), "\"status\" is not declared");
    let own_status = Patch::merge(key("example.com/v1", "Team"), json!({})).subresource("status");
    refused(&acts(own_status), "the status of a Team is part of the outcome");
    refused(&acts(Patch::strategic(key("example.com/v1", "Team"), json!({}))), "only those take strategic patches");
    for body in [json!({"metadata": {"finalizers": null}}), json!({"metadata": {"name": "y"}})] {
        refused(&merge(body), "a patch may change labels and annotations");
    }
    refused(&merge(json!({"metadata": {"labels": {"mortise.dev/a": null}}})), "everything under mortise.dev/");
    refused(&merge(json!({"metadata": {"labels": []}})), "metadata.labels is [], not an object");
    refused(&merge(json!({"metadata": null})), "metadata is null, not an object");
    refused(&merge(json!("a")), "the body of a patch is an object");
    let on_secret = |body: Value| acts(Patch::strategic(key("v1", "Secret"), body));
    for directive in
        [json!({"$patch": "replace", "a": "b"}), json!({"$patch": "delete"}), json!({"$retainKeys": ["a"]})]
    {
        refused(&on_secret(json!({"metadata": {"annotations": directive}})), "a patch names each label and annotation");
        refused(&on_secret(json!({"metadata": {"labels": directive}})), "a patch names each label and annotation");
    }
    refused(&merge(json!({"$patch": "delete"})), "$patch: a patch is not of the object as a whole");
    refused(&operations(json!({})), "a list of operations");
    refused(&operations(json!([{"path": "/a"}])), "operation 0: op and path are missing");
    for (path, why) in [
        ("", "as a whole"),
        ("/metadata", "metadata cannot be replaced as a whole"),
        ("/metadata/finalizers/0", "metadata.finalizers: a patch may change"),
        ("/metadata/annotations", "metadata.annotations cannot be replaced as a whole"),
        ("/metadata/labels/mortise.dev~1a", "metadata.labels[\"mortise.dev/a\"] is set"),
    ] {
        refused(&operations(json!([{"op": "remove", "path": path}])), why);
    }
    let twice = merge(json!({})).action(Delete::new(deployment()));
    refused(&twice, "actions[1]: Deployment default/x appears twice");
    let both = Outcome::children([child("a", &json!({"name": "x"}))]);
    accepted(&both.action(Action::evict(key("v1", "Pod"))));
    let pod = Child::new("a", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}));
    let own = Outcome::children([pod]).action(Action::evict(key("v1", "Pod")));
    refused(&own, "actions[0]: Pod default/x is a child of this outcome");
    let evictions = |count: usize| {
        let pods = (0..count).map(|n| ObjectKey::new("v1", "Pod", Some("default"), &format!("p{n}")));
        pods.fold(Outcome::new(), |outcome, pod| outcome.action(Action::evict(pod)))
    };
    accepted(&evictions(MAX_ACTIONS));
    refused(&evictions(MAX_ACTIONS + 1), "actions: there are 501, the most is 500");
    refused(&Outcome::new().finalized(), "finalized: the object is not being deleted");
    refused(
        &Outcome::new().condition(Condition::new("Evicting", true, "A", "")),
        "Evicting: the host sets this condition",
    );
}

#[test]
fn x6_native_tests_leave_the_status_of_kubernetes_own_kinds_alone() {
    let refusal_of = |outcome: &Outcome<Value>| refusal(DEPLOYMENT, outcome, Some("default"));
    assert!(
        refusal_of(&Outcome::new().status(&json!({}))).starts_with("status: apps/v1/Deployment is a built-in kind")
    );
    assert!(refusal_of(&Outcome::new().ready(true, "A", "")).starts_with("conditions: apps/v1/Deployment"));
    assert_eq!(
        refusal_of(&Outcome::children([]).event(Event::normal("A", "")).requeue_after(Duration::from_secs(1))),
        ""
    );
}

#[test]
fn x10_native_tests_have_the_hosts_caps() {
    let children = |count: usize| Outcome::children((0..count).map(|key| child(&key.to_string(), &json!({}))));
    accepted(&children(MAX_CHILDREN));
    refused(&children(MAX_CHILDREN + 1), "one object may have");
    let with = |bytes: usize| {
        let (head, tail) = ("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"a\":\"", "\"}");
        raw([head, &"x".repeat(bytes - head.len() - tail.len()), tail].concat())
    };
    accepted(&with(MAX_CHILD_BYTES));
    refused(&with(MAX_CHILD_BYTES + 1), "it has 524289 bytes, the most is 524288");
    let status = |bytes: usize| Outcome::new().status(&json!({"a": "x".repeat(bytes - "{\"a\":\"\"}".len())}));
    accepted(&status(MAX_STATUS_BYTES));
    refused(&status(MAX_STATUS_BYTES + 1), "status: it has 262145 bytes, the most is 262144");
    let conditions = |count: usize| {
        (0..count).fold(Outcome::new(), |outcome, n| outcome.condition(Condition::new(format!("C{n}"), true, "A", "")))
    };
    accepted(&conditions(MAX_CONDITIONS));
    refused(&conditions(MAX_CONDITIONS + 1), "conditions: there are 33, the most is 32");
    let events = |count: usize| (0..count).fold(Outcome::new(), |outcome, _| outcome.event(Event::normal("A", "")));
    accepted(&events(MAX_EVENTS));
    refused(&events(MAX_EVENTS + 1), "events: there are 17, the most is 16");
    assert_eq!(mortise_sdk::MAX_CHILDREN, MAX_CHILDREN, "the SDK documents the host's limit");
}

fn requests(request: Request) -> Outcome<Value> {
    Outcome::new().request(request)
}

const URL: &str = "https://api.example.com/zones";

#[test]
fn native_tests_refuse_what_the_host_refuses_about_requests() {
    let get = |url: &str| requests(Request::get("zone", url));
    accepted(&get(URL));
    accepted(&get("https://API.Example.com:443/zones?name=a%20b"));
    accepted(&get("http://[fd00:0::1]:8080"));
    accepted(&requests(Request::new(Method::Head, "zone", URL)));
    accepted(&requests(Request::post("zone", URL).json(json!({"a": 1})).bearer("token", "key")));
    accepted(&requests(Request::get("zone", URL).refresh_after(Duration::from_millis(1))));
    for (url, why) in [
        ("https://other.example.com/", "GET https://other.example.com is not declared under http"),
        ("https://api.example.com.evil.org/", "is not declared"),
        ("https://api.example.com:444/", "GET https://api.example.com:444 is not declared"),
        ("http://api.example.com/", "GET http://api.example.com is not declared"),
        ("https://api.example.com@evil.org/", "a URL has no user"),
        ("https://api.example.com#@evil.org/", "a fragment is not sent"),
        ("https://api.example.com\\@evil.org/", "a URL has no user"),
        ("https://api.example.com/a b", "has to be percent-encoded"),
        ("https://api.example.com/\r\nX: y", "has to be percent-encoded"),
        ("https://api.example.com:+443/", "is neither a DNS name nor an IP address"),
        ("https://127.1/", "is neither a DNS name nor an IP address"),
        ("https://api.example.com:0/", "the port is not within 1 and 65535"),
        ("//api.example.com/", "neither https:// nor http://"),
        ("", "neither https:// nor http://"),
    ] {
        refused(&get(url), why);
    }
    refused(&requests(Request::put("zone", URL)), "PUT https://api.example.com is not declared");
    refused(&requests(Request::get("", URL)), "a key has 1 to 253 bytes");
    refused(&get(URL).request(Request::get("zone", URL)), "request \"zone\": the key appears twice");
    refused(&requests(Request::get("zone", URL).body("a")), "body: GET has none");
    refused(&requests(Request::post("zone", URL).refresh_after(Duration::from_secs(9))), "POST is not repeated");
    refused(&requests(Request::get("zone", URL).timeout(Duration::ZERO)), "timeout: 0 ms is not within 1 and 10000");
    for (name, why) in [
        ("Host", "headers: Host: the host sets it"),
        ("Proxy-Authorization", "the host sets it"),
        ("idempotency-KEY", "the host sets it"),
        ("a b", "\"a b\" is not the name of a header"),
        ("", "\"\" is not the name of a header"),
    ] {
        refused(&requests(Request::get("zone", URL).header(name, "x")), why);
        refused(&requests(Request::get("zone", URL).secret_header(name, "", "token", "key")), why);
    }
    for value in ["a\r\nHost: b", "\u{e4}", "\0"] {
        refused(&requests(Request::get("zone", URL).header("X", value)), "a character that is not visible ASCII");
        refused(&requests(Request::get("zone", URL).secret_header("X", value, "token", "key")), "not visible ASCII");
    }
    for name in ["Accept-Encoding", "range"] {
        accepted(&requests(Request::get("zone", URL).header(name, "x")));
        refused(
            &requests(Request::get("zone", URL).bearer("token", "key").header(name, "x")),
            "a request with a Secret has none",
        );
    }
    refused(
        &requests(Request::get("zone", URL).bearer("other", "key")),
        "Secret \"other\" is not declared for https://api",
    );
    let elsewhere = Request::get("zone", "http://[fd00::1]:8080").bearer("token", "key");
    refused(&requests(elsewhere), "Secret \"token\" is not declared for http://[fd00::1]:8080");
    refused(&requests(Request::get("zone", URL).bearer("token", "")), "it names no key of Secret token");
    for key in ["a/b", "..", &"k".repeat(254)] {
        refused(&requests(Request::get("zone", URL).bearer("token", key)), "is not a key that Secret token can have");
    }
    let without_namespace = refusal(TEAM, &requests(Request::get("zone", URL).bearer("token", "key")), None);
    assert!(without_namespace.contains("the object has no namespace"), "{without_namespace}");
}

#[test]
fn x10_native_tests_have_the_hosts_bounds_of_requests() {
    let many = |count: usize| (0..count).fold(Outcome::new(), |all, n| all.request(Request::get(n.to_string(), URL)));
    accepted(&many(16));
    refused(&many(17), "requests: there are 17, the most is 16");
    let url = |bytes: usize| requests(Request::get("zone", format!("{URL}?{}", "x".repeat(bytes - URL.len() - 1))));
    accepted(&url(4_096));
    refused(&url(4_097), "it has more than 4096 bytes");
    let body = |bytes: usize| requests(Request::post("zone", URL).body("x".repeat(bytes)));
    accepted(&body(256 << 10));
    refused(&body((256 << 10) + 1), "body: it has 262145 bytes, the most is 262144");
    let headers = |count: usize| {
        requests((0..count).fold(Request::get("zone", URL), |request, n| request.header(format!("h{n}"), "x")))
    };
    accepted(&headers(32));
    refused(&headers(33), "headers: there are 33, the most is 32");
    let long = |bytes: usize| requests(Request::get("zone", URL).header("h", "x".repeat(bytes - 1)));
    accepted(&long(8 << 10));
    refused(&long((8 << 10) + 1), "headers: they have 8193 bytes, the most is 8192");
    let secrets = |count: usize| {
        requests((0..count).fold(Request::get("zone", URL), |request, _| request.bearer("token", "key")))
    };
    accepted(&secrets(4));
    refused(&secrets(5), "headers: 5 are from Secrets, the most is 4");
    let timeout = |ms: u64| requests(Request::get("zone", URL).timeout(Duration::from_millis(ms)));
    accepted(&timeout(10_000));
    refused(&timeout(10_001), "timeout: 10001 ms is not within 1 and 10000");
}

#[test]
fn native_tests_refuse_what_the_host_refuses_about_generated_values() {
    let secret = || Child::new("s", json!({"apiVersion": "v1", "kind": "Secret", "data": {"user": "YQ=="}}));
    let of_secrets = |child: Child| refusal(VAULT, &Outcome::children([child]), Some("default"));
    let check = |child: Child, why: &str| {
        let found = of_secrets(child);
        assert!(
            if why.is_empty() { found.is_empty() } else { found.contains(why) },
            "expected {why:?}, found {found:?}"
        );
    };
    let password = |length: u32| secret().generate("data.password", Generated::alphanumeric(length));
    for (length, why) in [(7, "its length is 7; it is 8 to 1024"), (8, ""), (1_024, ""), (1_025, "its length is 1025")]
    {
        check(password(length), why);
        check(secret().generate("data.key", Generated::bytes(length)), why);
    }
    check(password(8).create_once(), "");
    let rotated = |bytes: usize| secret().generate("data.a", Generated::bytes(8).rotation("r".repeat(bytes)));
    check(rotated(253), "");
    check(rotated(254), "its rotation has 254 bytes, the most is 253");
    let many =
        |count: usize| (0..count).fold(secret(), |child, n| child.generate(format!("data.k{n}"), Generated::bytes(8)));
    check(many(32), "");
    check(many(33), "it has 33 generated values, the most is 32");
    let other =
        |kind: &str| Child::new("s", json!({"apiVersion": "v1", "kind": kind})).generate("data.a", Generated::bytes(8));
    refused(&Outcome::children([other("ConfigMap")]), "v1/ConfigMap has generated values; only a v1/Secret may");
    check(other("Secret"), "");
    let named = Child::new("s", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})).adopt();
    check(named.clone(), "");
    check(
        named.generate("data.a", Generated::bytes(8)),
        "a child with generated values is made by the host, not adopted",
    );
    let keep = Child::keep("s", "v1", "Secret").generate("data.a", Generated::bytes(8));
    check(keep, "only a child that is changed in place");
    for at in ["data", "data.a.b", "metadata.a", "stringData.a", "data[\"a b\"]", "data[\"..a\"]", "", "data.", "a"] {
        check(secret().generate(at, Generated::bytes(8)), "expected data.KEY or data[\"KEY\"]");
    }
    check(secret().generate("data[\"a.b\"]", Generated::bytes(8)), "");
    check(secret().generate("data.user", Generated::bytes(8)), "the object has data[\"user\"] too; leave it out");
    check(
        password(8).generate("data[\"password\"]", Generated::bytes(8)),
        "another generated value has the key \"password\"",
    );
    let tls = |names: &[&str], seconds: u64| Generated::tls(names.iter().copied(), Duration::from_secs(seconds));
    for (seconds, why) in [(59, "its lifetime is 59 s"), (60, ""), (315_360_000, ""), (315_360_001, "its lifetime is")]
    {
        check(secret().generate("data", tls(&["a"], seconds)), why);
    }
    for name in ["a.example.com", "*.example.com", "10.0.0.1", "fd00::1"] {
        check(secret().generate("data", tls(&[name], 60)), "");
    }
    for name in ["", "A", "a_b", "*", "*.*.a", "a b", "ä"] {
        check(secret().generate("data", tls(&[name], 60)), "is neither a DNS name nor an IP address");
    }
    check(secret().generate("data", tls(&["a"; 100], 60)), "");
    check(secret().generate("data", tls(&["a"; 101], 60)), "a certificate has 1 to 100 names, not 101");
    check(secret().generate("data", tls(&[], 60)), "a certificate has 1 to 100 names, not 0");
    check(secret().generate("data.tls", tls(&["a"], 60)), "a certificate is at \"data\", since it has several keys");
    check(secret().generate("data", tls(&["a"], 60)).create_once(), "a certificate is renewed");
    let twice = secret().generate("data", tls(&["a"], 60)).generate("data[\"ca.crt\"]", Generated::bytes(8));
    check(twice, "another generated value has the key \"ca.crt\"");
}

#[test]
fn native_tests_refuse_patches_that_would_show_values_of_secrets_as_the_host_does() {
    for operation in [
        json!({"op": "copy", "from": "/data/password", "path": "/data/shown"}),
        json!({"op": "test", "path": "/data/password", "value": "Z3Vlc3M="}),
    ] {
        let patch = acts(Patch::json(key("v1", "Secret"), json!([operation])));
        let refused = refusal(VAULT, &patch, Some("default"));
        assert!(refused.contains("values of a Secret are not copied, moved or tested"), "{refused}");
    }
}
