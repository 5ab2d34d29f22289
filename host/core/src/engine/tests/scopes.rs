//! Plugins that read parts of one kind: the watches follow the union of what they declare, and nobody who serves waits
//! for those who come.

use super::*;
use crate::scope::Scope;
use crate::selector::Selector;
use crate::watch::WatchError;

fn secrets() -> Kind {
    Kind::new("v1", "Secret")
}

fn slice(text: &str) -> Slice {
    crate::scope::tests::slice(secrets(), text)
}

/// The watches of Secrets.
fn watched(host: &Host) -> String {
    let of_secrets = host.watched.iter().filter(|slice| slice.kind == secrets());
    let text = |slice: &Slice| {
        let labels = slice.labels.as_ref().map(|labels| format!("?{labels}")).unwrap_or_default();
        format!("{}{labels}", slice.namespace.as_deref().unwrap_or("*"))
    };
    of_secrets.map(text).collect::<Vec<_>>().join(" ")
}

/// A plugin that reads Secrets as declared: "*", "a,b", "a?x".
fn offer(host: &mut Host, number: usize, version: usize, reads: &str) {
    let mut offered = parsed(&manifest(&plugin_name(number), &kind_of(number), 1));
    let (namespaces, labels) = reads.split_once('?').map_or((reads, None), |(it, labels)| (it, Some(labels)));
    let mut read = json!({"apiVersion": "v1", "kind": "Secret"});
    if namespaces != "*" {
        read["namespaces"] = namespaces.split(',').collect();
    }
    if let Some(labels) = labels {
        read["labels"] = labels.into();
    }
    offered["controllers"][0]["reads"] = json!([read]);
    host.offer_manifest(number, version, &offered);
}

fn serves(host: &Host, number: usize) -> bool {
    host.health_of(number).is_some_and(|plugin| plugin.ready)
}

/// Whether an object of the plugin's kind is reconciled.
fn reconciles(host: &mut Host, number: usize) -> bool {
    let before = host.calls;
    let name = Name::new("default", &format!("object-{}", host.version));
    let Kind { api_version, kind } = kind_of(number);
    let metadata = json!({"name": &*name.name, "namespace": "default", "uid": format!("{kind}-{name}")});
    let object = json!({"apiVersion": &*api_version, "kind": &*kind, "metadata": metadata});
    host.store(&ObjectRef { kind: kind_of(number), name }, object);
    let is_called = host.calls > before;
    host.end_creates();
    is_called
}

/// The watch completes the list that was begun.
fn listed(host: &mut Host, of: &str) {
    host.step(Event::Watch(slice(of), WatchEvent::ListDone(ResourceVersion(host.version))));
}

fn shown(host: &mut Host, of: &str, namespace: &str, name: &str) {
    host.version += 1;
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
        "namespace": namespace, "name": name, "uid": name, "resourceVersion": host.version.to_string()}});
    host.step(Event::Watch(slice(of), WatchEvent::Applied(decoded(&object))));
}

fn names(host: &Host) -> Vec<String> {
    let snapshot = host.engine.store().snapshot();
    let everything = Selector::default();
    snapshot.list(&secrets(), None, &everything).map(|object| object.name.to_string()).collect()
}

fn denied(host: &mut Host, of: &str) {
    host.step(Event::Watch(slice(of), WatchEvent::Failed(WatchError::Denied("no".to_owned()))));
}

#[test]
fn each_namespace_that_some_plugin_declares_has_one_watch_that_plugins_share() {
    let mut host = Host::started();
    offer(&mut host, 0, 1, "a,b");
    assert_eq!(watched(&host), "a b");
    offer(&mut host, 1, 1, "b,c");
    assert_eq!(watched(&host), "a b c");
    assert!(serves(&host, 0) && serves(&host, 1));
    host.withdraw(0);
    assert_eq!(watched(&host), "b c");
    host.withdraw(1);
    assert_eq!(watched(&host), "");
}

#[test]
fn r4_when_a_plugin_widens_the_scope_it_waits_for_the_new_list_and_the_others_go_on() {
    let mut host = Host::started();
    offer(&mut host, 0, 1, "a");
    shown(&mut host, "a", "a", "x");
    host.held_lists = Some(Vec::new());
    offer(&mut host, 1, 1, "*");
    listed_of_own(&mut host, 1);
    assert_eq!(watched(&host), "* a");
    assert!(reconciles(&mut host, 0) && !serves(&host, 1));
    shown(&mut host, "a", "a", "y");
    assert_eq!(names(&host), ["a/x", "a/y"], "the former watch continues");
    let object = |namespace: &str, name: &str, version: u64| {
        let metadata =
            json!({"namespace": namespace, "name": name, "uid": name, "resourceVersion": version.to_string()});
        *decoded(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}))
    };
    let version = host.version;
    let all = vec![object("a", "x", version), object("a", "y", version), object("b", "z", 1)];
    host.step(Event::Watch(slice("*"), WatchEvent::Listed(all)));
    listed(&mut host, "*");
    assert!(serves(&host, 0) && serves(&host, 1));
    assert_eq!(watched(&host), "*", "one watch shows all of it");
    assert_eq!(names(&host), ["a/x", "a/y", "b/z"]);
    shown(&mut host, "a", "a", "late");
    assert_eq!(names(&host).len(), 3, "an event of the watch that ended");
    // It leaves again.
    host.withdraw(1);
    assert_eq!(watched(&host), "* a", "until the narrower list is complete");
    assert!(serves(&host, 0));
    let version = host.version;
    host.step(Event::Watch(slice("a"), WatchEvent::Listed(vec![object("a", "x", version)])));
    listed(&mut host, "a");
    assert_eq!(watched(&host), "a");
    assert_eq!(names(&host), ["a/x"], "what nobody reads has left the cache");
    assert!(serves(&host, 0) && reconciles(&mut host, 0));
}

/// Completes the lists of what a plugin reads beside Secrets.
fn listed_of_own(host: &mut Host, number: usize) {
    for kind in [kind_of(number), Kind::new("v1", "ConfigMap")] {
        host.step(Event::Watch(kind.into(), WatchEvent::ListDone(ResourceVersion(host.version))));
    }
}

#[test]
fn r5_a_plugin_that_may_not_read_all_namespaces_takes_none_from_those_that_may_read_some() {
    let mut host = Host::started();
    host.held_lists = Some(Vec::new());
    host.step(Event::Watch(plugin_object::kind().into(), WatchEvent::ListDone(ResourceVersion(1))));
    offer(&mut host, 0, 1, "a");
    offer(&mut host, 1, 1, "*");
    // As after a restart: the plugin of all comes before the narrower list is complete.
    for number in [0, 1] {
        listed_of_own(&mut host, number);
    }
    denied(&mut host, "*");
    assert_eq!(watched(&host), "* a");
    listed(&mut host, "a");
    assert!(serves(&host, 0) && !serves(&host, 1));
    assert!(reconciles(&mut host, 0));
    assert_eq!(host.reason(1, "Permitted"), "Forbidden");
    assert_eq!(watched(&host), "* a", "the plugin of all waits for its rights");
    host.step(Event::Watch(slice("*"), WatchEvent::Listing));
    listed(&mut host, "*");
    assert!(serves(&host, 1));
    assert_eq!(watched(&host), "*");
    // The right is taken away again.
    denied(&mut host, "*");
    assert_eq!(watched(&host), "* a");
    listed(&mut host, "a");
    assert!(serves(&host, 0) && reconciles(&mut host, 0) && !serves(&host, 1));
}

#[test]
fn r5_a_namespace_that_may_not_be_read_blocks_those_that_declare_it_and_names_the_rule() {
    let mut host = Host::started();
    offer(&mut host, 0, 1, "a,b");
    offer(&mut host, 1, 1, "a");
    let message = "User \"u\" cannot list resource \"secrets\" in API group \"\" in the namespace \"b\"";
    host.step(Event::Watch(slice("b"), WatchEvent::Failed(WatchError::Denied(message.to_owned()))));
    assert!(!serves(&host, 0) && !reconciles(&mut host, 0));
    assert!(serves(&host, 1) && reconciles(&mut host, 1));
    let [status, _, message] = host.condition(0, "Permitted").unwrap();
    assert_eq!(status, "False");
    assert!(message.contains("a Role of the namespace b") && message.contains("[\"secrets\"]"), "{message}");
    assert!(host.why_unready(0).unwrap().contains("may not read v1/Secret in b"), "{:?}", host.why_unready(0));
}

#[test]
fn labels_narrow_a_watch_while_all_readers_declare_the_same() {
    let mut host = Host::started();
    offer(&mut host, 0, 1, "*?x=1");
    assert_eq!(watched(&host), "*?x=1");
    offer(&mut host, 1, 1, "*?x=1");
    assert_eq!(watched(&host), "*?x=1");
    shown(&mut host, "*?x=1", "a", "x");
    host.held_lists = Some(Vec::new());
    offer(&mut host, 1, 2, "*?x=2");
    assert_eq!(watched(&host), "*");
    assert!(serves(&host, 0) && reconciles(&mut host, 0), "the former list counts until then");
    assert_eq!(names(&host), ["a/x"]);
    host.step(Event::Watch(slice("*?x=1"), WatchEvent::ListDone(ResourceVersion(host.version))));
    assert_eq!(names(&host), ["a/x"], "an event of the watch that ended");
    listed(&mut host, "*");
    assert_eq!(names(&host), [""; 0]);
    assert!(serves(&host, 0) && serves(&host, 1));
    host.withdraw(0);
    listed(&mut host, "*?x=2");
    assert_eq!(watched(&host), "*?x=2");
    assert!(serves(&host, 1));
}

#[test]
fn a_new_version_that_declares_less_frees_the_rest_when_it_serves() {
    let mut host = Host::started();
    offer(&mut host, 0, 1, "a,b");
    offer(&mut host, 0, 2, "b,c");
    assert_eq!(watched(&host), "b c");
    assert!(serves(&host, 0));
}

#[test]
fn r6_namespaces_are_audited_apart() {
    let mut host = Host::started_as(Config { audit_interval_ms: 60_000, ..config() });
    offer(&mut host, 0, 1, "a,b");
    let mut audited = BTreeSet::new();
    for _ in 0..20 {
        host.pass(30_000);
        for slice in std::mem::take(&mut host.audited) {
            let page =
                crate::audit::Page { version: ResourceVersion(host.version), objects: Vec::new(), is_last: true };
            host.step(Event::Audit(slice.clone(), crate::audit::Response::Begun));
            host.step(Event::Audit(slice.clone(), crate::audit::Response::Page(page)));
            audited.insert(slice);
        }
    }
    assert!(audited.contains(&slice("a")) && audited.contains(&slice("b")), "{audited:?}");
    assert!(host.engine.store().snapshot().has_listed(&secrets(), &Scope::default()) == audited.contains(&slice("*")));
}

/// What keeps the host unready.
fn unlisted(host: &Host) -> Vec<String> {
    let text = |(slice, error): (Slice, Option<String>)| match error {
        Some(error) => format!("{slice}: {error}"),
        None => slice.to_string(),
    };
    host.engine.health().unlisted.into_iter().map(text).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn a_host_is_ready_while_all_that_serves_is_shown_whatever_newcomers_wait_for() {
    let mut host = Host::started();
    offer(&mut host, 0, 1, "a?x=1");
    host.held_lists = Some(Vec::new());
    offer(&mut host, 0, 2, "a,b?x=1");
    assert_eq!((watched(&host), unlisted(&host)), ("a?x=1 b?x=1".to_owned(), vec![]), "a candidate widens");
    offer(&mut host, 1, 1, "c?x=1");
    assert_eq!((watched(&host), unlisted(&host)), ("a?x=1 b?x=1 c?x=1".to_owned(), vec![]), "another comes up");
    offer(&mut host, 1, 2, "c?x=2");
    assert_eq!((watched(&host), unlisted(&host)), ("a b c".to_owned(), vec![]), "the former list of a counts");
    offer(&mut host, 1, 3, "*");
    assert_eq!((watched(&host), unlisted(&host)), ("* a".to_owned(), vec![]));
    host.step(Event::Watch(slice("*"), WatchEvent::Failed(WatchError::Unavailable("down".to_owned()))));
    assert_eq!(unlisted(&host), NONE);
}

#[test]
fn a_host_is_unready_while_a_slice_of_a_serving_plugin_is_missing_unless_that_concerns_the_plugin_alone() {
    let mut host = Host::started();
    offer(&mut host, 0, 1, "a,b?x=1");
    offer(&mut host, 1, 1, "a?x=1");
    host.held_lists = Some(Vec::new());
    let restored = WatchEvent::Restored { before: ResourceVersion(9), now: ResourceVersion(1) };
    host.step(Event::Watch(slice("a?x=1"), restored));
    let of_secrets = |host: &Host| {
        let lines = unlisted(host).into_iter();
        lines.filter(|line| line.contains("Secret")).collect::<Vec<_>>()
    };
    assert_eq!(of_secrets(&host), ["v1/Secret in a with x=1", "v1/Secret in b with x=1"], "each once");
    host.step(Event::Watch(slice("a?x=1"), WatchEvent::Listing));
    listed(&mut host, "a?x=1");
    host.step(Event::Watch(slice("b?x=1"), WatchEvent::Failed(WatchError::Unavailable("down".to_owned()))));
    assert_eq!(of_secrets(&host), ["v1/Secret in b with x=1: down"]);
    denied(&mut host, "b?x=1");
    assert_eq!(of_secrets(&host), NONE);
}

#[test]
fn r5_namespaces_of_a_kind_that_has_none_are_never_read_as_empty() {
    let mut host = Host::started();
    host.held_lists = Some(Vec::new());
    host.step(Event::Watch(plugin_object::kind().into(), WatchEvent::ListDone(ResourceVersion(1))));
    let is_refused = |host: &Host, number: usize| {
        let why = host.why_unready(number).unwrap_or_default();
        assert!(why.contains("v1/Secret has no namespaces; declare it without"), "{number}: {why}");
    };
    offer(&mut host, 0, 1, "a");
    listed_of_own(&mut host, 0);
    let message = "v1/Secret has no namespaces; declare it without".to_owned();
    host.step(Event::Watch(slice("a"), WatchEvent::Failed(WatchError::NotServed(message))));
    is_refused(&host, 0);
    // Another plugin reads all of the kind.
    offer(&mut host, 1, 1, "*");
    listed_of_own(&mut host, 1);
    host.step(Event::Watch(slice("*"), WatchEvent::ClusterScoped));
    host.step(Event::Watch(slice("*"), WatchEvent::Listing));
    listed(&mut host, "*");
    assert!(serves(&host, 1));
    is_refused(&host, 0);
    offer(&mut host, 2, 1, "b");
    listed_of_own(&mut host, 2);
    is_refused(&host, 2);
    offer(&mut host, 1, 2, "a");
    assert!(serves(&host, 1) && reconciles(&mut host, 1), "the version before");
    host.pass(10_000);
    let [status, _, message] = host.condition(1, "Permitted").unwrap();
    assert!(status == "Unknown" && message.contains("declare it without"), "{status} {message}");
    offer(&mut host, 1, 1, "*");
    // Its CRD is deleted, and another one has namespaces.
    host.step(Event::Watch(slice("*"), WatchEvent::Failed(WatchError::NotServed("no such kind".to_owned()))));
    host.step(Event::Watch(slice("*"), WatchEvent::Listing));
    listed(&mut host, "*");
    assert!(serves(&host, 0) && serves(&host, 1) && serves(&host, 2));
}

#[test]
fn a_kind_that_gets_namespaces_while_nobody_reads_all_of_it_is_readable_by_namespace() {
    let mut host = Host::started();
    offer(&mut host, 1, 1, "*");
    host.step(Event::Watch(slice("*"), WatchEvent::ClusterScoped));
    host.held_lists = Some(Vec::new());
    offer(&mut host, 0, 1, "a");
    listed_of_own(&mut host, 0);
    assert!(!serves(&host, 0));
    host.withdraw(1);
    assert!(watched(&host).contains('a') && !serves(&host, 0));
    listed(&mut host, "a");
    assert_eq!((watched(&host), serves(&host, 0)), ("a".to_owned(), true));
}

/// A host whose plugin has tracked children in two namespaces, with an object in each, and their creates in flight.
fn owning_in_two() -> Host {
    let mut host = Host::started();
    let mut manifest = parsed(&manifest(&plugin_name(0), &kind_of(0), 1));
    manifest["controllers"][0]["owns"][0]["namespaces"] = json!(["default", "other"]);
    host.offer_manifest(0, 1, &manifest);
    for namespace in ["default", "other"] {
        let name = Name::new(namespace, "object-0");
        let finalizers = json!([crate::finalizer::name(&plugin_name(0))]);
        let metadata = json!({"name": "object-0", "namespace": namespace, "uid": format!("u-{namespace}"), "finalizers": finalizers});
        let kind = kind_of(0);
        let object = json!({"apiVersion": &*kind.api_version, "kind": &*kind.kind, "metadata": metadata});
        host.store(&ObjectRef { kind, name }, object);
    }
    assert_eq!(host.creates.len(), 2);
    host
}

/// The create in a namespace.
fn take_create(host: &mut Host, namespace: &str) -> (WriteId, ObjectRef, Value) {
    let bodies = &host.bodies;
    let is_there = |(id, _): &(WriteId, Arc<str>)| &*bodies[id].0.name.namespace == namespace;
    let at = host.creates.iter().position(is_there).expect("a create is in flight");
    let (id, _) = host.creates.remove(at);
    let (target, body) = host.bodies.remove(&id).unwrap();
    (id, target, body)
}

#[test]
fn l5_a_denied_write_of_children_in_named_namespaces_names_the_role_there_and_a_success_elsewhere_ends_nothing() {
    let mut host = owning_in_two();
    let deny = |host: &mut Host, namespace: &str| {
        let (id, ..) = take_create(host, namespace);
        let message = format!(
            "User \"u\" cannot patch resource \"configmaps\" in API group \"\" in the namespace \"{namespace}\""
        );
        host.step(Event::Wrote(id, Err(WriteError { class: WriteErrorClass::Denied, message })));
    };
    let shown = |host: &Host| {
        let [_, reason, message] = host.condition(0, "Permitted").unwrap();
        format!("{reason}: {message}")
    };
    deny(&mut host, "default");
    deny(&mut host, "other");
    assert!(shown(&host).contains("to a Role of the namespace default"), "{}", shown(&host));
    host.pass(1_100_000);
    let (id, target, mut body) = take_create(&mut host, "default");
    let uid = format!("uid-{}", target.name);
    body["metadata"]["uid"] = json!(uid);
    let applied = host.stored(&target, body);
    host.step(host.succeeded(id, &uid));
    host.step(applied);
    host.pass(10_000);
    assert!(shown(&host).starts_with("Forbidden") && shown(&host).contains("namespace other"), "{}", shown(&host));
    host.end_creates();
    host.pass(10_000);
    assert!(shown(&host).starts_with("Allowed"), "{}", shown(&host));
}
