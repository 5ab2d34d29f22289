//! Plugins with ServiceAccounts: whose request each write is.

use super::*;
use crate::event::LiveTarget;
use crate::service_account::ServiceAccount;

/// A person lets a plugin act as this ServiceAccount.
fn name_account(host: &mut Host, number: usize, account: &str) {
    write_spec(host, number, json!({"serviceAccountName": account}));
}

pub(super) fn write_spec(host: &mut Host, number: usize, spec: Value) {
    let target = plugin_object(&plugin_name(number));
    let mut object = host.objects[&target].clone();
    object["spec"] = spec;
    host.store(&target, object);
}

/// The kinds that were written since the last time, and by whom.
fn sent(host: &mut Host) -> Vec<String> {
    std::mem::take(&mut host.sent_as).into_iter().map(|(kind, account)| format!("{kind} by {account}")).collect()
}

#[test]
fn g9_a_plugins_writes_are_requests_of_its_service_account_and_the_hosts_are_its_own() {
    let mut host = Host::serving(2);
    assert_eq!(sent(&mut host), ["Event by host", "Plugin by host"]);
    name_account(&mut host, 0, "zero");
    assert_eq!((host.compiled, sent(&mut host)), (2, vec!["Plugin by host".to_owned()]));
    host.status = Some(json!({"message": "done"}).to_string().into());
    host.create_objects(0, 1);
    host.create_objects(1, 1);
    host.end_creates();
    host.pass(10_000);
    let both = |account: &str, kind: &str| [format!("ConfigMap by {account}"), format!("{kind} by {account}")];
    let mut expected = [both("mortise-system/zero", "Kind0000"), both("host", "Kind0001")].concat();
    expected.sort();
    assert_eq!(sent(&mut host), expected);

    name_account(&mut host, 0, "other");
    host.create_objects(0, 2);
    host.fail_creates(WriteErrorClass::Denied, |_| true);
    host.pass(10_000);
    let all = sent(&mut host);
    assert!(all.contains(&"ConfigMap by mortise-system/other".to_owned()), "{all:?}");
    assert!(all.contains(&"Event by mortise-system/other".to_owned()), "the Event about its object: {all:?}");
    assert!(!all.iter().any(|line| line.contains("zero")), "{all:?}");
}

/// An object of the plugins' kind in a namespace.
fn create_in(host: &mut Host, kind: &Kind, namespace: &str) {
    let name = Name::new(namespace, "object");
    let object = json!({
        "apiVersion": &*kind.api_version, "kind": &*kind.kind,
        "metadata": {"name": "object", "namespace": namespace, "uid": format!("{kind}-{namespace}")},
    });
    host.store(&ObjectRef { kind: kind.clone(), name }, object);
}

/// The reasons and notes of Events about objects of the plugins' kind in a namespace.
fn events_in(host: &Host, namespace: &str) -> Vec<String> {
    let is_about =
        |event: &&Value| event["regarding"]["kind"] == *kind_of(0).kind && event["metadata"]["namespace"] == *namespace;
    let text = |event: &Value| format!("{}: {}", event["reason"].as_str().unwrap(), event["note"].as_str().unwrap());
    host.objects.values().filter(is_about).map(text).collect()
}

#[test]
fn g6_what_a_guest_has_said_or_named_is_in_no_event_in_default_and_in_the_log() {
    let mut host = Host::serving(1);
    ["", "team-a"].into_iter().for_each(|namespace| create_in(&mut host, &kind_of(0), namespace));
    for (id, _) in std::mem::take(&mut host.creates) {
        let message = "hunter2 is no name".to_owned();
        host.step(Event::Wrote(id, Err(WriteError { class: WriteErrorClass::Invalid, message })));
    }
    let [said] = &events_in(&host, "team-a")[..] else { panic!("{:?}", events_in(&host, "team-a")) };
    assert!(said.starts_with("Invalid: patch of ConfigMap team-a/") && said.ends_with("hunter2 is no name"), "{said}");
    let where_to_look = "what the plugin says may be what it has read, so it is not shown here: see the status of Kind0000 object, and \
                         the host's log";
    assert_eq!(events_in(&host, "default"), [format!("Invalid: {where_to_look}")]);
    let withheld = host.observed.iter().filter_map(|observation| match observation {
        Observation::Withheld { cause, reason, note } => Some(format!("{} {reason}: {note}", cause.object)),
        _ => None,
    });
    let [withheld] = &withheld.collect::<Vec<_>>()[..] else { panic!("{:?}", host.observed) };
    assert!(
        withheld.starts_with("Kind0000 object Invalid: ") && withheld.ends_with("hunter2 is no name"),
        "{withheld}"
    );
}

/// The namespaces where the plugins write ConfigMaps, and as whom, of what was begun since the last time.
fn children(host: &mut Host) -> BTreeSet<String> {
    let bodies = std::mem::take(&mut host.bodies);
    host.creates.clear();
    bodies.into_values().map(|(target, _)| target.name.namespace.to_string()).collect()
}

#[test]
fn g9_one_informer_serves_plugins_that_see_different_namespaces_and_a_change_of_rights_counts_at_once() {
    let mut host = Host::serving(1);
    let kind = kind_of(0);
    let only = |namespace: &str| Readable::In(BTreeSet::from([namespace.into()]));
    let place = ("mortise-system/zero".to_owned(), kind.clone());
    host.readable.insert(place.clone(), only("team-a"));
    name_account(&mut host, 0, "zero");
    let mut kinds: Vec<_> = host.reviews.iter().map(|review| review.kind.kind.to_string()).collect();
    kinds.sort();
    assert_eq!(kinds, ["ConfigMap", "Kind0000", "Kind0000Input"]);
    ["team-a", "team-b"].into_iter().for_each(|namespace| create_in(&mut host, &kind, namespace));
    assert_eq!(children(&mut host), BTreeSet::from(["team-a".to_owned()]));
    let of_kind = |host: &Host| host.watched.iter().filter(|slice| slice.kind == kind).cloned().collect::<Vec<_>>();
    assert_eq!(of_kind(&host), [Slice::from(&kind)], "the informer has all of it");

    host.readable.insert(place, only("team-b"));
    let rbac = |kind: &str| Kind::new("rbac.authorization.k8s.io/v1", kind);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "team-b", "uid": "b"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "zero", "namespace": "mortise-system"}],
    });
    host.store(&ObjectRef { kind: rbac("RoleBinding"), name: Name::new("team-b", "b") }, binding);
    let before = host.reviews.len();
    host.pass(3_000);
    assert_eq!(host.reviews.len() - before, 3);
    assert!(
        host.reviews[before].namespaces.contains("team-b"),
        "the binding says where to ask: {:?}",
        host.reviews[before]
    );
    assert_eq!(children(&mut host), BTreeSet::from(["team-b".to_owned()]));
    create_in(&mut host, &kind, "team-a");
    host.pass(60_000);
    assert_eq!(children(&mut host), BTreeSet::new(), "what it does not see any more does not wake it");
}

#[test]
fn g9_a_plugin_of_some_namespaces_neither_sees_nor_writes_anything_in_others() {
    let mut host = Host::serving(1);
    let kind = kind_of(0);
    let everything = json!({"serviceAccountName": "zero"});
    write_spec(&mut host, 0, json!({"serviceAccountName": "zero", "namespaces": ["team-a"]}));
    assert!(
        host.reviews.len() == 3
            && host.reviews.iter().all(|review| review.namespaces == BTreeSet::from(["team-a".into()])),
        "{:?}",
        host.reviews
    );
    ["team-a", "team-b"].into_iter().for_each(|namespace| create_in(&mut host, &kind, namespace));
    assert_eq!(children(&mut host), BTreeSet::from(["team-a".to_owned()]));
    host.pass(60_000);
    write_spec(&mut host, 0, everything);
    host.pass(60_000);
    assert_eq!(children(&mut host), BTreeSet::from(["team-b".to_owned()]), "the child of the other is under way");
}

#[test]
fn g9_x3_a_name_that_is_taken_where_the_plugin_may_not_read_is_the_api_servers_answer_and_says_not_whose() {
    let mut host = Host::serving(1);
    let config_map = Kind::new("v1", "ConfigMap");
    let account = Arc::new(ServiceAccount { namespace: "mortise-system".into(), name: "zero".into() });
    host.readable.insert((account.to_string(), config_map), Readable::In(BTreeSet::from(["team-a".into()])));
    name_account(&mut host, 0, "zero");
    host.create_objects(0, 1);
    let (target, _) = host.bodies.values().next().cloned().expect("a child is created");
    let reference = json!([{"apiVersion": "v1", "kind": "Node", "name": "secret", "uid": "n", "controller": true}]);
    let name = &*target.name.name;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "uid": "c", "ownerReferences": reference},
    });
    host.store(&target, theirs);
    host.fail_creates(WriteErrorClass::Denied, |_| true);
    host.pass(20_000);
    assert_eq!(grants::notes(&host, "ChildExists"), Vec::<String>::new());
    let mut tries = 0;
    // An hour of an API server that answers within half a second.
    for _ in 0..7_200 {
        tries += host.creates.len();
        host.fail_creates(WriteErrorClass::AlreadyExists, |_| true);
        for object in std::mem::take(&mut host.live_reads) {
            let read = LiveTarget { object, service_account: Some(Arc::clone(&account)) };
            let denied = WriteError { class: WriteErrorClass::Denied, message: "cannot get".to_owned() };
            host.step(Event::LiveRead(read, Err(denied)));
        }
        host.pass(500);
    }
    let notes = grants::notes(&host, "ChildExists");
    let expected = format!("{target} exists already, and the plugin may not read it there: cannot get");
    assert!(!notes.is_empty() && notes.iter().all(|note| note.contains(&expected)), "{notes:?}");
    assert!((1..=30).contains(&tries), "it backs off as for a name that is taken: {tries}");
}

#[test]
fn g9_while_the_host_may_not_act_as_its_service_account_a_plugin_has_no_informer_and_no_call() {
    let mut host = Host::serving(2);
    host.create_objects(0, 1);
    host.end_creates();
    let watches =
        |host: &Host| host.watched.iter().filter(|slice| slice.kind == kind_of(0) || slice.kind == input_of(0)).count();
    assert_eq!(watches(&host), 2);
    host.unlent.insert("mortise-system/zero".to_owned());
    name_account(&mut host, 0, "zero");
    let (calls, reviews) = (host.calls, host.reviews.len());
    host.pass(60_000);
    assert_eq!(
        (watches(&host), host.calls, host.reviews.len()),
        (0, calls, reviews),
        "nothing is read or asked about for it"
    );
    assert!(!host.engine.health().plugins[0].ready && host.engine.health().plugins[1].ready);
    assert_eq!(host.identity_reviews, 2, "once, and once more in case the role came with the Plugin");

    host.unlent.clear();
    host.pass(60 * 60_000);
    assert_eq!((watches(&host), host.identity_reviews), (2, 3));
    // The lists of this API server are empty: what a watch shows after them is called.
    host.create_objects(0, 1);
    assert!(host.engine.health().plugins[0].ready && host.calls > calls);

    host.unlent.insert("mortise-system/zero".to_owned());
    host.pass(60 * 60_000);
    let calls = host.calls;
    host.pass(60_000);
    assert_eq!((watches(&host), host.calls), (0, calls));
}
