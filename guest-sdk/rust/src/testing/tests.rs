//! The in-memory cluster behaves as the host does.

use serde_json::json;

use super::Cluster;
use crate::manifest::{Controller, Limits, Owned, Plugin, Read};
use crate::{Child, Context, Event, Failure, Json, Kind, Object, ObjectKey, Outcome, Query, ReadError, Value};

type Reconcile = fn(&str, &Context) -> Result<Outcome<Value>, Failure>;

const TEAM: Kind = Kind { api_version: "example.com/v1", kind: "Team" };
const POD: Kind = Kind { api_version: "v1", kind: "Pod" };
const NODE: Kind = Kind { api_version: "v1", kind: "Node" };

/// A cluster for a plugin of one function.
fn cluster(reconcile: Reconcile) -> Cluster {
    const OWNS: &[Owned] =
        &[Owned { kind: POD, update: None, replace: None, tracked: false, namespaces: &[], adopt: false }];
    cluster_of(OWNS, const { &[Read::all(NODE)] }, reconcile)
}

/// The same with these declarations.
fn cluster_of(owns: &'static [Owned], reads: &'static [Read], reconcile: Reconcile) -> Cluster {
    let controller = Controller {
        primary: TEAM,
        definition: None,
        selection: crate::Predicate::EVERYTHING,
        owns,
        reads,
        writes: &[],
        http: &[],
        finalize: false,
        concurrency: None,
        reconcile,
        admission: None,
        conversion: &[],
    };
    let limits = Limits { memory_bytes: None, deadline_ms: None };
    Cluster::of(Box::leak(Box::new(Plugin {
        name: "test",
        version: "0.0.0",
        controllers: Box::leak(Box::new([controller])),
        limits,
    })))
}

fn team() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Team", "metadata": {"name": "a", "namespace": "default"}})
}

fn node(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"big": true}})
}

/// The names of the nodes that a query finds.
fn names(reconcile: Reconcile) -> Result<Value, Failure> {
    let mut cluster = cluster(reconcile);
    cluster.add(&node("b", json!({"tier": "web", "zone": "1"})));
    let mut sized = node("a", json!({"tier": "db"}));
    sized["spec"]["size"] = 3.into();
    cluster.add(&sized);
    cluster.add(&node("c", json!({})));
    Ok(cluster.reconcile(&team())?.status_value()["found"].take())
}

fn listed(nodes: Vec<Object>) -> Result<Outcome<Value>, Failure> {
    let names: Vec<&str> = nodes.iter().map(Object::name).collect();
    Ok(Outcome::new().status(&json!({"found": names})))
}

fn nodes() -> Query<Object> {
    Query::of_kind("v1", "Node")
}

fn pods() -> Query<Object> {
    Query::of_kind("v1", "Pod")
}

#[test]
fn lists_are_ordered_and_narrowed_by_selectors_and_limits() {
    assert_eq!(names(|_, cx| listed(cx.list(&nodes())?)).unwrap(), json!(["a", "b", "c"]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().limit(2))?)).unwrap(), json!(["a", "b"]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().selector("tier=web"))?)).unwrap(), json!(["b"]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().selector("tier!=web"))?)).unwrap(), json!(["a", "c"]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().selector("!tier"))?)).unwrap(), json!(["c"]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().selector("zone,tier in (web, db)"))?)).unwrap(), json!(["b"]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().selector("tier notin (web,db)"))?)).unwrap(), json!(["c"]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().namespace("default"))?)).unwrap(), json!([]));
    let malformed = names(|_, cx| listed(cx.list(&nodes().selector("tier in web"))?)).unwrap_err();
    assert!(malformed.message().contains("tier in web"), "{malformed}");
}

#[test]
fn a_list_may_name_several_namespaces_up_to_the_hosts_bound() {
    let mut cluster = cluster(|_, cx| {
        let of = |namespaces: &[&str]| {
            let pods = Query::<Object>::of_kind("v1", "Pod");
            cx.count(&namespaces.iter().fold(pods, |pods, namespace| pods.namespace(namespace)))
        };
        let counts = [of(&[])?, of(&["a"])?, of(&["b", "c"])?, of(&["c", "d", "c"])?, of(&["d"])?];
        let error = of(&["a"; 101]).unwrap_err().to_string();
        Ok(Outcome::new().status(&json!({"counts": counts, "error": error})))
    });
    for namespace in ["a", "b", "c"] {
        cluster.add(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}}));
    }
    let status = cluster.reconcile(&team()).unwrap().status_value();
    assert_eq!(status["counts"], json!([3, 1, 2, 1, 0]));
    assert!(status["error"].as_str().unwrap().contains("names 101 namespaces"));
}

#[test]
fn lists_are_narrowed_by_the_values_of_fields() {
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().field("metadata.name", "b"))?)).unwrap(), json!(["b"]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().field("spec.big", true))?)).unwrap(), json!(["a", "b", "c"]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().field("spec.big", "true"))?)).unwrap(), json!([]));
    assert_eq!(names(|_, cx| listed(cx.list(&nodes().field("spec.size", 3))?)).unwrap(), json!(["a"]));
    let both = |_: &str, cx: &Context| listed(cx.list(&nodes().field("spec.big", true).field("metadata.name", "a"))?);
    assert_eq!(names(both).unwrap(), json!(["a"]));
    let malformed = names(|_, cx| listed(cx.list(&nodes().field("spec..big", true))?)).unwrap_err();
    assert!(malformed.message().contains("spec..big"), "{malformed}");
    let many = |_: &str, cx: &Context| {
        listed(cx.list(&(0..9).fold(nodes(), |nodes, number| nodes.field("spec.size", number)))?)
    };
    assert!(names(many).unwrap_err().message().contains("9 requirements"));
}

#[test]
fn reads_keep_the_requested_fields_alone() {
    let read = |_: &str, cx: &Context| {
        let found: Vec<Value> =
            cx.list(&Query::of_kind("v1", "Node").fields(&["metadata.labels[\"tier\"]"]).limit(1))?;
        Ok(Outcome::new().status(&json!({"found": found[0]})))
    };
    assert_eq!(names(read).unwrap(), json!({"metadata": {"labels": {"tier": "db"}}}));
}

#[test]
fn a_kind_that_is_not_declared_cannot_be_read() {
    let read = |_: &str, cx: &Context| {
        let refused = cx.list(&Query::<Object>::of_kind("v1", "Secret")).unwrap_err();
        assert!(matches!(&refused, ReadError::Undeclared(why) if why.contains("v1/Secret is not declared")));
        Err(refused.into())
    };
    assert!(matches!(names(read), Err(Failure::Terminal(why)) if why.contains("v1/Secret is not declared")));
}

#[test]
fn of_a_narrowed_kind_only_what_is_declared_is_read() {
    const WEB: &[Read] = &[Read { kind: POD, namespaces: &["shop", "db"], labels: "app=web" }];
    let found = |reconcile: Reconcile| {
        let mut cluster = cluster_of(&[], WEB, reconcile);
        for (namespace, name, app) in
            [("shop", "a", "web"), ("db", "b", "web"), ("shop", "c", "sql"), ("x", "d", "web")]
        {
            let metadata = json!({"name": name, "namespace": namespace, "labels": {"app": app}});
            cluster.add(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
        }
        Ok::<_, Failure>(cluster.reconcile(&team())?.status_value()["found"].take())
    };
    assert_eq!(found(|_, cx| listed(cx.list(&pods())?)), Ok(json!(["b", "a"])));
    assert_eq!(found(|_, cx| listed(cx.list(&pods().namespace("shop"))?)), Ok(json!(["a"])));
    let error = found(|_, cx| listed(cx.list(&pods().namespace("shop").namespace("x"))?)).unwrap_err();
    let why = "v1/Pod is declared in the namespaces db, shop, with the labels app=web, and not in \"x\": add it to the \
               namespaces there";
    assert_eq!(error, Failure::terminal(why));
}

#[test]
fn a_child_outside_of_the_declared_namespaces_is_refused() {
    const OWNS: &[Owned] =
        &[Owned { kind: POD, update: None, replace: None, tracked: true, namespaces: &["shop"], adopt: false }];
    let refused = |reconcile: Reconcile| cluster_of(OWNS, &[], reconcile).reconcile(&team()).err();
    assert_eq!(refused(|_, _| Ok(Outcome::children([in_namespace("shop")]))), None);
    let Some(Failure::Terminal(why)) = refused(|_, _| Ok(Outcome::children([in_namespace("db")]))) else {
        panic!("it is accepted")
    };
    assert!(why.contains("v1/Pod would be in the namespace \"db\", and is owned in the namespace shop alone"), "{why}");
}

fn in_namespace(namespace: &str) -> Child {
    Child::new("a", Json::of_kind("v1", "Pod", &json!({"metadata": {"name": "a", "namespace": namespace}})))
}

#[test]
fn owned_objects_are_those_that_the_object_controls() {
    let mut cluster = cluster(|_, cx| {
        let pods: Vec<Object> = cx.owned_of_kind("v1", "Pod", &[])?;
        let keys: Vec<Option<&str>> = pods.iter().map(Object::child_key).collect();
        Ok(Outcome::new().status(&json!({"found": keys})))
    });
    let pod = json!({"apiVersion": "v1", "kind": "Pod"});
    cluster.add_child(&team(), "1", &pod).add_child(&team(), "0", &pod);
    let other = json!({"apiVersion": "example.com/v1", "kind": "Team", "metadata": {"name": "b"}});
    cluster.add_child(&other, "9", &pod);
    assert_eq!(cluster.reconcile(&team()).unwrap().status_value()["found"], json!(["0", "1"]));
    assert!(cluster.remove(&ObjectKey::new("v1", "Pod", Some("default"), "a-1")));
    assert_eq!(cluster.reconcile(&team()).unwrap().status_value()["found"], json!(["0"]));
}

#[test]
fn time_configuration_and_single_objects_are_those_of_the_test() {
    let mut cluster = cluster(|_, cx| {
        let config: Value = cx.config()?;
        let node: Option<Object> = cx.get_key(&ObjectKey::new("v1", "Node", None, "n"))?;
        let missing: Option<Object> = cx.get_key(&ObjectKey::new("v1", "Node", None, "m"))?;
        let keys = cx.keys(&Query::<Object>::of_kind("v1", "Node"))?;
        let found = json!([cx.now_unix_ms(), config["a"], node.is_some(), missing.is_some(), keys.len()]);
        Ok(Outcome::new().status(&json!({"found": found})))
    });
    cluster.set_now_unix_ms(7).set_config(json!({"a": 1})).add(&node("n", json!({})));
    assert_eq!(cluster.reconcile(&team()).unwrap().status_value()["found"], json!([7, 1, true, false, 1]));
}

/// The message about a child of this kind with this metadata; empty if it is accepted.
fn refused_child(kind: &str, metadata: &str) -> String {
    let child = |_: &str, cx: &Context| {
        let config: Value = cx.config()?;
        let child = json!({"apiVersion": "v1", "kind": config["kind"], "metadata": config["metadata"]});
        Ok(Outcome::children([Child::new("a", &child)]))
    };
    let metadata = Json::raw(metadata).value().unwrap();
    let mut cluster = cluster(child);
    cluster.set_config(json!({"kind": kind, "metadata": metadata}));
    cluster.reconcile(&team()).map_or_else(|failure| failure.message().to_owned(), |_| String::new())
}

#[test]
fn a_child_that_the_host_would_refuse_is_refused_here() {
    assert_eq!(refused_child("Pod", r#"{"name": "a.b", "namespace": "default", "labels": {"app": "a"}}"#), "");
    for (kind, metadata, why) in [
        ("ConfigMap", "null", "v1/ConfigMap is not among the kinds that the manifest declares under owns"),
        ("Pod", "[]", "metadata is not an object"),
        (
            "Pod",
            r#"{"namespace": "other"}"#,
            "for children elsewhere write \"namespaces\": \"any\" at v1/Pod under owns",
        ),
        ("Pod", r#"{"name": "Not/A Name"}"#, "\"Not/A Name\" is not a name that Kubernetes accepts"),
        ("Pod", r#"{"finalizers": ["a/b"]}"#, "metadata.finalizers is set"),
        ("Pod", r#"{"ownerReferences": []}"#, "metadata.ownerReferences is set"),
        ("Pod", r#"{"labels": {"mortise.dev/a": ""}}"#, "everything under mortise.dev/ is the host's"),
        ("Pod", r#"{"annotations": {"mortise.dev/a": ""}}"#, "everything under mortise.dev/ is the host's"),
    ] {
        let message = refused_child(kind, metadata);
        assert!(message.starts_with("the host would refuse this outcome: child \"a\": "), "{metadata}: {message}");
        assert!(message.ends_with(why) || message.contains(&format!("{why}:")), "{metadata}: {message}");
    }
}

#[test]
fn the_rest_of_an_outcome_that_the_host_would_refuse_is_refused_here() {
    let refused = |reconcile: Reconcile| cluster(reconcile).reconcile(&team()).unwrap_err().message().to_owned();
    let twice = refused(|_, _| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        Ok(Outcome::children([Child::new("a", &pod), Child::new("a", &pod)]))
    });
    assert!(twice.ends_with("child \"a\": the key appears twice for v1/Pod"), "{twice}");
    let large = refused(|_, _| Ok(Outcome::new().status(&json!({"a": "x".repeat(256 << 10)}))));
    assert!(large.contains("status: it has ") && large.ends_with("the most is 262144"), "{large}");
    let all = refused(|_, _| {
        let pod = Json::of_kind("v1", "Pod", &json!({"a": "x".repeat(400 << 10)}));
        Ok(Outcome::children((0..11).map(|key| Child::new(key.to_string(), pod.clone()))))
    });
    assert!(all.ends_with("the outcome is larger than 4194304 bytes"), "{all}");
    let times = refused(|_, _| Ok(Outcome::new().status(&json!({"conditions": []}))));
    assert!(times.contains("return conditions in the outcome's own list"), "{times}");
    let reason = refused(|_, _| Ok(Outcome::new().ready(true, "not a word", "")));
    assert!(reason.ends_with("\"Ready\" with reason \"not a word\": both have to be CamelCase words"), "{reason}");
    let event = refused(|_, _| Ok(Outcome::new().event(Event::normal("not-a-word", ""))));
    assert!(event.ends_with("events: the reason \"not-a-word\" is not a CamelCase word"), "{event}");
}
