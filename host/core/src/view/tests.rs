//! What a guest can and cannot read.

use super::*;
use crate::dependencies::Inputs;
use crate::dynamic_kind::{KindState, KindStates};
use crate::kind_pattern::KindPattern;
use crate::object::tests::Sample;
use crate::object::{Name, ResourceVersion};
use crate::query::MAX_NAMESPACES;
use crate::store::Store;

fn pods() -> Kind {
    Kind::new("v1", "Pod")
}

fn sets() -> Kind {
    Kind::new("v1", "Set")
}

fn fields(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|&path| path.to_owned()).collect()
}

fn phase(phase: &str) -> String {
    format!(r#""status":{{"phase":"{phase}"}}"#)
}

/// As the host makes a child of the Set.
fn child(name: &str) -> Sample {
    let sample = Sample::pod("shop", name).owner("77").manager("mortise/set");
    sample.metadata(r#""annotations":{"mortise.dev/child":"0"}"#)
}

fn store() -> Store {
    let mut store = Store::new();
    let objects = [
        Sample::new("Set", "shop", "web").uid("77"),
        child("web-1").label("app", "web").body(&phase("Pending")),
        child("web-0").label("app", "web").body(&phase("Running")),
        Sample::pod("shop", "other").owner("78"),
        Sample::pod("db", "sql").label("app", "sql"),
    ];
    let kinds = [sets(), pods(), Kind::new("v1", "Secret")];
    kinds.iter().for_each(|kind| store.begin_list(kind));
    for object in &objects {
        store.list_item(object.build());
    }
    for kind in &kinds {
        store.end_list(kind, ResourceVersion(1));
    }
    store
}

fn view_with(store: &Store, read_bytes: u64) -> View {
    let snapshot = store.snapshot();
    let primary = snapshot.get(&sets(), &Name::new("shop", "web")).unwrap().clone();
    let access = Access::new(vec![sets(), pods(), Kind::new("v1", "Node")], read_bytes);
    View::new(snapshot, primary, Arc::new(access), 1_000, r#"{"a":1}"#.into())
}

fn view(store: &Store) -> View {
    view_with(store, 1 << 20)
}

fn key(kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef { kind: Kind::new("v1", kind), name: Name::new(namespace, name) }
}

fn names(json: &str) -> Vec<String> {
    let objects: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn get_returns_an_object_or_none() {
    let store = store();
    let mut view = view(&store);
    let pod = view.get(&key("Pod", "db", "sql"), &[]).unwrap().unwrap();
    assert!(pod.contains(r#""name":"sql""#));
    assert_eq!(view.get(&key("Pod", "shop", "none"), &[]), Ok(None));
    let some = fields(&["status.phase", "spec.none"]);
    let pod = view.get(&key("Pod", "shop", "web-0"), &some).unwrap().unwrap();
    assert_eq!(&*pod, r#"{"status":{"phase":"Running"}}"#);
    assert_eq!(view.get(&key("Pod", "shop", "none"), &some), Ok(None));
    assert!(matches!(view.get(&key("Pod", "shop", "web-0"), &fields(&["a..b"])), Err(AccessError::Invalid(_))));
}

#[test]
fn the_reconciled_object_is_the_one_passed_to_the_call() {
    let store = store();
    let newer = Sample::new("Set", "shop", "web").uid("77").version(9).shared();
    let access = Arc::new(Access::new(vec![sets()], 1 << 20));
    let mut view = View::new(store.snapshot(), newer.clone(), access, 0, "{}".into());
    assert!(Arc::ptr_eq(&view.get(&key("Set", "shop", "web"), &[]).unwrap().unwrap(), newer.json()));
    assert!(view.into_dependencies().iter().len() == 0);
}

#[test]
fn owned_returns_the_children_of_the_reconciled_object_ordered_by_name() {
    let store = store();
    let mut view = view(&store);
    let json = view.owned(&pods(), &fields(&["status.phase"])).unwrap();
    assert_eq!(json, r#"[{"status":{"phase":"Running"}},{"status":{"phase":"Pending"}}]"#);
    assert_eq!(names(&view.owned(&pods(), &[]).unwrap()), ["web-0", "web-1"]);
    assert_eq!(view.owned(&sets(), &[]).unwrap(), "[]");
}

#[test]
fn list_keys_and_count_select_by_namespace_labels_and_limit() {
    let store = store();
    let mut view = view(&store);
    let mut check = |namespace: Option<&str>, selector: Option<&str>, limit: Option<u32>, expected: &[&str]| {
        let query = Query {
            namespaces: namespace.map(str::to_owned).into_iter().collect(),
            selector: selector.map(str::to_owned),
            limit,
            ..Query::all(pods())
        };
        assert_eq!(names(&view.list(&query).unwrap()), expected);
        let keys: Vec<_> = view.keys(&query).unwrap().iter().map(|key| key.name.name.to_string()).collect();
        assert_eq!(keys, expected);
        assert_eq!(view.count(&query), Ok(u32::try_from(expected.len()).unwrap()));
    };
    check(None, None, None, &["sql", "other", "web-0", "web-1"]);
    check(Some("shop"), None, None, &["other", "web-0", "web-1"]);
    check(Some("shop"), Some("app=web"), None, &["web-0", "web-1"]);
    check(None, Some("app"), Some(2), &["sql", "web-0"]);
    check(None, None, Some(0), &[]);
    check(Some("none"), None, None, &[]);
}

#[test]
fn a_query_may_name_several_namespaces_up_to_its_bound() {
    let store = store();
    let mut view = view(&store);
    let query = |namespaces: &[&str], limit| Query { namespaces: fields(namespaces), limit, ..Query::all(pods()) };
    let mut check = |namespaces: &[&str], limit, expected: &[&str]| {
        assert_eq!(names(&view.list(&query(namespaces, limit)).unwrap()), expected);
        assert_eq!(view.count(&query(namespaces, limit)), Ok(u32::try_from(expected.len()).unwrap()));
    };
    check(&["shop", "db"], None, &["sql", "other", "web-0", "web-1"]);
    check(&["shop", "none", "db", "shop"], Some(2), &["sql", "other"]);
    check(&["none", "nothing"], None, &[]);
    let many: Vec<String> = (0..=MAX_NAMESPACES).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(view.keys(&query(&many[1..], None)).unwrap().is_empty());
    let error = view.keys(&query(&many, None)).unwrap_err();
    assert!(error.to_string().starts_with("the query names 101 namespaces, and 100 are the most"), "{error}");
}

#[test]
fn g4_kinds_that_the_manifest_does_not_declare_are_not_visible() {
    let store = store();
    let mut view = view(&store);
    let secrets = Kind::new("v1", "Secret");
    let refused = AccessError::Undeclared(
        "the plugin's manifest does not declare v1/Secret: add it to what the controller owns or reads".into(),
    );
    assert_eq!(view.get(&key("Secret", "shop", "x"), &[]).unwrap_err(), refused);
    assert_eq!(view.owned(&secrets, &[]).unwrap_err(), refused);
    assert_eq!(view.list(&Query::all(secrets.clone())).unwrap_err(), refused);
    assert_eq!(view.keys(&Query::all(secrets)).unwrap_err(), refused);
    assert!(view.into_dependencies().iter().len() == 0);
}

#[test]
fn r5_a_kind_that_was_not_listed_completely_is_an_error_and_not_empty() {
    let store = store();
    let error = view(&store).list(&Query::all(Kind::new("v1", "Node"))).unwrap_err();
    assert!(matches!(error, AccessError::Denied(_)), "{error}");
}

#[test]
fn a_result_over_the_limit_is_an_error_that_names_the_limit() {
    let store = store();
    let mut view = view_with(&store, 100);
    assert_eq!(view.get(&key("Pod", "db", "sql"), &[]), Err(AccessError::TooLarge(100)));
    assert_eq!(view.list(&Query::all(pods())), Err(AccessError::TooLarge(100)));
    assert_eq!(view.owned(&pods(), &[]), Err(AccessError::TooLarge(100)));
    assert_eq!(view_with(&store, 20).keys(&Query::all(pods())), Err(AccessError::TooLarge(20)));
}

#[test]
fn q4_x3_forged_objects_in_another_namespace_do_not_end_the_reads_of_their_owner() {
    let mut store = store();
    let large = format!(r#""data":{{"a":"{}"}}"#, "x".repeat(1_000));
    let mark = |number: usize| {
        let name = format!("copy-{number}");
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"forged","uid":"{name}","resourceVersion":"{}",
            "labels":{{"mortise.dev/owner-uid":"77"}},"annotations":{{"mortise.dev/owner":"v1/Set shop/web owns Pod forged/{name}","mortise.dev/child":"{name}"}},
            "managedFields":[{{"manager":"mortise/set","operation":"Apply","fieldsV1":{{}}}}]}},{large}}}"#,
            10 + number,
        )
    };
    for number in 0..3 {
        store.apply(crate::object::tests::decode(&mark(number)));
    }
    let tracked = |most_bytes: u64| {
        let snapshot = store.snapshot();
        let primary = snapshot.get(&sets(), &Name::new("shop", "web")).unwrap().clone();
        let access = Access::new(vec![sets(), pods()], most_bytes).with_tracked(vec![pods()]);
        View::new(snapshot, primary, Arc::new(access), 1_000, "{}".into())
    };
    let all = tracked(1 << 20).owned(&pods(), &[]).unwrap();
    assert_eq!(names(&all).len(), 5);
    let mut view = tracked(all.len() as u64);
    view.owned(&pods(), &[]).unwrap();
    assert_eq!(view.into_dependencies().left_out(), []);

    let mut view = tracked(all.len() as u64 - 1);
    assert_eq!(names(&view.owned(&pods(), &[]).unwrap()), ["web-0", "web-1"]);
    let primary = view.primary().clone();
    let reads = view.into_dependencies();
    let [left_out] = reads.left_out() else { panic!("{:?}", reads.left_out()) };
    assert!(left_out.to_string().contains(r#"those in "forged""#), "{left_out}");
    assert!(left_out.has(store.snapshot().get(&pods(), &Name::new("forged", "copy-0")).unwrap()));
    let snapshot = store.snapshot();
    let inputs = Inputs {
        snapshot: &snapshot,
        primary: &primary,
        now_unix_ms: 0,
        config: "",
        rejected: &[],
        replies: &[],
        kinds: &KindStates::default(),
    };
    assert!(!reads.holds(&inputs, &Budget::unlimited()), "the next turn reads again");
}

#[test]
fn a_result_of_exactly_the_limit_is_returned() {
    let store = store();
    let json = view(&store).list(&Query::all(pods())).unwrap();
    let limit = json.len() as u64;
    assert_eq!(view_with(&store, limit).list(&Query::all(pods())), Ok(json));
    assert_eq!(view_with(&store, limit - 1).list(&Query::all(pods())), Err(AccessError::TooLarge(limit - 1)));
}

#[test]
fn an_answer_that_another_call_has_had_is_this_calls_until_its_kind_changes() {
    let mut store = store();
    for number in 0..20 {
        store.apply(Sample::pod("db", &format!("replica-{number}")).label("app", "sql").version(2 + number).build());
    }
    let read = |store: &Store, query: &Query| {
        let mut view = view(store);
        let text = view.list(query).unwrap();
        (text, view.into_dependencies().iter().map(|(_, hash)| hash).collect::<Vec<_>>())
    };
    let queries = ["sql", "web"].map(|app| Query { selector: Some(format!("app={app}")), ..Query::all(pods()) });
    let [first, web] = queries.each_ref().map(|query| read(&store, query));
    assert!(store.snapshot().kept_answer(&queries[0].compile().unwrap()).is_some());
    let (again, mut earlier) = (read(&store, &queries[0]), view(&store));
    assert!(first == again && first != web);
    let least = first.0.len() as u64;
    assert_eq!(view_with(&store, least).list(&queries[0]), Ok(first.0.clone()));
    assert_eq!(view_with(&store, least - 1).list(&queries[0]), Err(AccessError::TooLarge(least - 1)));
    store.remove(pods(), &Name::new("db", "sql"), ResourceVersion(50));
    let changed = read(&store, &queries[0]);
    assert_eq!((names(&first.0).len(), names(&changed.0).len()), (21, 20));
    assert_ne!(changed.1, first.1);
    assert_eq!(earlier.list(&queries[0]), Ok(first.0));
    assert_eq!(read(&store, &queries[0]), changed);
}

#[test]
fn g4_r5_an_answer_that_another_call_has_had_is_for_those_who_may_read_a_synced_kind() {
    let mut store = store();
    (0..20).for_each(|number| _ = store.apply(Sample::pod("db", &format!("{number}")).version(2 + number).build()));
    let query = Query::all(pods());
    view(&store).list(&query).unwrap();
    assert!(store.snapshot().kept_answer(&query.compile().unwrap()).is_some());
    let mut stranger = View { access: Arc::new(Access::new(vec![sets()], 1 << 20)), ..view(&store) };
    assert!(matches!(stranger.list(&query), Err(AccessError::Undeclared(_))));
    store.rewind(&pods());
    assert!(matches!(view(&store).list(&query), Err(AccessError::Denied(_))));
    store.forget(&pods());
    assert!(store.snapshot().kept_answer(&query.compile().unwrap()).is_none());
}

#[test]
fn a_malformed_selector_or_path_is_an_error_for_the_guest() {
    let store = store();
    let mut view = view(&store);
    let error = view.list(&Query { selector: Some("a b".into()), ..Query::all(pods()) }).unwrap_err();
    assert!(error.to_string().contains("is invalid at byte 2"), "{error}");
    let error = view.owned(&pods(), &fields(&["a..b"])).unwrap_err();
    assert!(error.to_string().contains("is invalid at byte 2"), "{error}");
}

#[test]
fn r1_a_call_sees_one_frozen_snapshot() {
    let mut store = store();
    let mut view = view(&store);
    let read = |view: &mut View| {
        let keys = view.keys(&Query::all(pods())).unwrap();
        let jsons: Vec<_> = keys.iter().map(|key| view.get(key, &[]).unwrap().unwrap()).collect();
        (view.list(&Query::all(pods())).unwrap(), view.owned(&pods(), &[]).unwrap(), jsons, view.now_unix_ms())
    };
    let before = read(&mut view);
    store.apply(Sample::pod("shop", "web-2").owner("77").version(5).build());
    store.apply(Sample::pod("shop", "web-1").owner("77").version(6).body(&phase("Failed")).build());
    store.remove(pods(), &Name::new("db", "sql"), ResourceVersion(7));
    store.forget(&sets());
    assert_eq!(read(&mut view), before);
}

#[test]
fn every_read_is_recorded_once_and_holds_while_its_inputs_are_unchanged() {
    let store = store();
    let mut view = view(&store);
    for _ in 0..3 {
        view.get(&key("Pod", "db", "sql"), &[]).unwrap();
        view.get(&key("Pod", "db", "none"), &[]).unwrap();
        view.owned(&pods(), &fields(&["status.phase"])).unwrap();
        view.owned(&pods(), &[]).unwrap();
        view.list(&Query { selector: Some("app".into()), limit: Some(2), ..Query::all(pods()) }).unwrap();
        view.keys(&Query::all(pods())).unwrap();
        view.now_unix_ms();
        view.config();
    }
    let primary = view.primary().clone();
    let reads = view.into_dependencies();
    assert_eq!(reads.iter().len(), 8);
    let snapshot = store.snapshot();
    let inputs = Inputs {
        snapshot: &snapshot,
        primary: &primary,
        now_unix_ms: 1_000,
        config: r#"{"a":1}"#,
        rejected: &[],
        replies: &[],
        kinds: &KindStates::default(),
    };
    assert!(reads.holds(&inputs, &Budget::unlimited()));
    assert!(!reads.holds(&Inputs { now_unix_ms: 1_001, ..inputs }, &Budget::unlimited()));
    assert!(!reads.holds(&Inputs { config: "{}", ..inputs }, &Budget::unlimited()));
}

#[test]
fn a_read_that_was_too_large_never_holds() {
    let store = store();
    let mut view = view_with(&store, 100);
    view.list(&Query::all(pods())).unwrap_err();
    let primary = view.primary().clone();
    let snapshot = store.snapshot();
    let inputs = Inputs {
        snapshot: &snapshot,
        primary: &primary,
        now_unix_ms: 0,
        config: "",
        rejected: &[],
        replies: &[],
        kinds: &KindStates::default(),
    };
    assert!(!view.into_dependencies().holds(&inputs, &Budget::unlimited()));
}

/// A view that may read Pods of these namespaces with these labels.
fn narrowed(store: &Store, namespaces: &[&str], labels: &str) -> View {
    let scope = crate::scope::tests::scope(namespaces, labels);
    let access = Access::new(vec![sets(), pods()], 1 << 20).with_narrowed(vec![(pods(), Arc::new(scope))]);
    View { access: Arc::new(access), ..view(store) }
}

#[test]
fn g4_of_a_narrowed_kind_each_read_sees_what_is_declared_though_the_cache_has_more() {
    let store = store();
    let query = |namespaces: &[&str], selector: Option<&str>| Query {
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
        selector: selector.map(str::to_owned),
        ..Query::all(pods())
    };
    let mut view = narrowed(&store, &["shop"], "app=web");
    assert_eq!(names(&view.list(&query(&[], None)).unwrap()), ["web-0", "web-1"]);
    assert_eq!(names(&view.list(&query(&["shop"], Some("app"))).unwrap()), ["web-0", "web-1"]);
    assert_eq!(view.count(&query(&[], Some("!app"))), Ok(0));
    assert_eq!(view.keys(&query(&[], None)).unwrap().len(), 2);
    assert_eq!(names(&view.owned(&pods(), &[]).unwrap()), ["web-0", "web-1"]);
    assert_eq!(view.get(&key("Pod", "shop", "other"), &[]), Ok(None), "it lacks the label");
    assert!(view.get(&key("Pod", "shop", "web-0"), &[]).unwrap().is_some());
    assert_eq!(names(&narrowed(&store, &["shop"], "app=sql").owned(&pods(), &[]).unwrap()), [""; 0]);
}

#[test]
fn g4_a_read_that_names_a_namespace_which_is_not_declared_is_an_error() {
    let store = store();
    let mut view = narrowed(&store, &["shop"], "");
    let several = Query { namespaces: vec!["shop".into(), "db".into()], ..Query::all(pods()) };
    let errors = [
        view.get(&key("Pod", "db", "sql"), &[]).unwrap_err(),
        view.list(&several).unwrap_err(),
        view.keys(&several).unwrap_err(),
        view.count(&several).unwrap_err(),
    ];
    for error in errors {
        let AccessError::Undeclared(message) = &error else { panic!("{error:?}") };
        let expected = "declares v1/Pod in the namespace shop, and not in \"db\": add it to the namespaces there";
        assert!(message.ends_with(expected), "{message}");
    }
    assert_eq!(view.into_dependencies().iter().len(), 0);
}

#[test]
fn r5_a_part_of_a_kind_is_readable_as_soon_as_it_is_listed() {
    let mut store = Store::new();
    let shop = crate::scope::Slice { namespace: Some("shop".into()), ..pods().into() };
    store.begin_list(sets());
    store.list_item(Sample::new("Set", "shop", "web").uid("77").build());
    store.end_list(sets(), ResourceVersion(1));
    store.begin_list(&shop);
    assert!(matches!(narrowed(&store, &["shop"], "").list(&Query::all(pods())), Err(AccessError::Denied(_))));
    store.end_list(&shop, ResourceVersion(1));
    assert_eq!(narrowed(&store, &["shop"], "").list(&Query::all(pods())), Ok("[]".to_owned()));
    assert!(matches!(narrowed(&store, &["shop", "db"], "").list(&Query::all(pods())), Err(AccessError::Denied(_))));
}

#[test]
fn g4_a_kind_of_a_pattern_is_visible_when_it_is_listed_and_its_state_is_a_dependency() {
    let store = store();
    let all = KindPattern::parse("v1").unwrap();
    let access = Arc::new(Access::new(vec![sets()], 1 << 20).with_patterns(vec![all]));
    let of = |states: &[(Kind, KindState)]| {
        let kinds = KindStates::new(states.iter().cloned().collect());
        View { access: Arc::clone(&access), ..view(&store) }.with_kinds(kinds)
    };
    let mut unlisted = of(&[]);
    assert_eq!(
        unlisted.keys(&Query::all(pods())),
        Err(AccessError::Waits(pods())),
        "another plugin's list is not its own"
    );
    let unlisted = unlisted.into_dependencies();
    assert_eq!(unlisted.dynamic_kinds().collect::<Vec<_>>(), [&pods()]);
    let mut listed = of(&[(pods(), KindState::Current)]);
    assert_eq!(listed.keys(&Query::all(pods())).unwrap().len(), 4);
    assert_eq!(listed.into_dependencies().iter().len(), 2);
    let not_served = KindState::NotServed("no such kind".to_owned());
    let mut gone = of(&[(pods(), not_served.clone())]);
    assert_eq!(gone.owned(&pods(), &[]), Err(AccessError::NotServed("no such kind".to_owned())));
    let denied = KindState::Denied("no".to_owned());
    assert_eq!(of(&[(pods(), denied)]).get(&key("Pod", "db", "sql"), &[]), Err(AccessError::Waits(pods())));

    // W2: only another state causes another call.
    let (snapshot, primary) = (store.snapshot(), gone.primary().clone());
    let holds = |states: &[(Kind, KindState)]| {
        let kinds = KindStates::new(states.iter().cloned().collect());
        let inputs = Inputs {
            snapshot: &snapshot,
            primary: &primary,
            now_unix_ms: 0,
            config: "",
            rejected: &[],
            replies: &[],
            kinds: &kinds,
        };
        (unlisted.holds(&inputs, &Budget::unlimited()), !unlisted.names_outdated(&kinds))
    };
    for ends_there in [KindState::Unlisted, KindState::Denied("no".to_owned()), KindState::Failing("no".to_owned())] {
        assert_eq!((holds(&[]), holds(&[(pods(), ends_there)])), ((true, true), (true, true)));
    }
    assert_eq!(
        (holds(&[(pods(), KindState::Current)]), holds(&[(pods(), not_served)])),
        ((false, false), (false, false))
    );
}

#[test]
fn g4_what_no_pattern_has_is_undeclared_and_what_names_no_kind_is_invalid() {
    let store = store();
    let all = ["v1", "*.example.com/*"].map(|pattern| KindPattern::parse(pattern).unwrap());
    let access = Arc::new(Access::new(vec![sets()], 1 << 20).with_patterns(all.to_vec()));
    let mut view = View { access, ..view(&store) };
    for kind in [Kind::new("v1", "Secret"), Kind::new("apps/v1", "Deployment"), Kind::new("example.com/v1", "A")] {
        let Err(AccessError::Undeclared(why)) = view.keys(&Query::all(kind.clone())) else {
            panic!("{kind} is visible")
        };
        assert!(why.contains(&kind.to_string()) && why.contains("none of v1/*, *.example.com/*"), "{why}");
    }
    for kind in [Kind::new("v1", "pods"), Kind::new("a.example.com/../v1", "A"), Kind::new("A.example.com/v1", "A")] {
        assert!(matches!(view.keys(&Query::all(kind.clone())), Err(AccessError::Invalid(_))), "{kind}");
    }
    assert_eq!(view.into_dependencies().iter().len(), 0);
}

/// A view of a plugin that may read Pods in these namespaces.
fn view_within(store: &Store, namespaces: &[&str], declared: &[&str]) -> View {
    let snapshot = store.snapshot();
    let primary = snapshot.get(&sets(), &Name::new("shop", "web")).unwrap().clone();
    let scope = |names: &[&str]| Arc::new(crate::scope::tests::scope(names, ""));
    let visible = if namespaces.is_empty() { Arc::new(Scope::nothing()) } else { scope(namespaces) };
    let narrowed = if declared.is_empty() { Vec::new() } else { vec![(pods(), scope(declared))] };
    let access =
        Access::new(vec![sets(), pods()], 1 << 20).with_narrowed(narrowed).with_visible(vec![(pods(), visible)]);
    View::new(snapshot, primary, Arc::new(access), 1_000, "{}".into())
}

#[test]
fn g9_an_object_that_the_plugin_may_not_read_is_as_one_that_is_not_there() {
    let store = store();
    let query = |namespaces: &[&str]| Query { namespaces: fields(namespaces), ..Query::all(pods()) };
    let everything = |view: &mut View, namespace: &str, name: &str| {
        let one = view.get(&key("Pod", namespace, name), &[]).map(|found| found.is_some());
        let lists = [&[][..], &[namespace]].map(|namespaces| {
            let query = query(namespaces);
            (names(&view.list(&query).unwrap()), view.keys(&query).unwrap().len(), view.count(&query).unwrap())
        });
        (one, lists, names(&view.owned(&pods(), &[]).unwrap()))
    };
    let seen = |names: &[&str]| (fields(names), names.len(), u32::try_from(names.len()).unwrap());
    let mut of_db = view_within(&store, &["db"], &[]);
    let hidden = everything(&mut of_db, "shop", "web-0");
    assert_eq!(hidden, (Ok(false), [seen(&["sql"]), seen(&[])], Vec::new()));
    assert_eq!(everything(&mut of_db, "shop", "none"), hidden, "nothing says which of the two it is");
    assert_eq!(everything(&mut of_db, "nowhere", "none"), hidden);
    assert_eq!(everything(&mut of_db, "db", "sql"), (Ok(true), [seen(&["sql"]), seen(&["sql"])], Vec::new()));
    let mut of_shop = view_within(&store, &["shop"], &[]);
    let (_, [all, _], owned) = everything(&mut of_shop, "db", "sql");
    assert_eq!((all, owned), (seen(&["other", "web-0", "web-1"]), fields(&["web-0", "web-1"])));
    let mut of_none = view_within(&store, &[], &[]);
    assert_eq!(everything(&mut of_none, "shop", "web-0"), (Ok(false), [seen(&[]), seen(&[])], Vec::new()));

    let mut narrow = view_within(&store, &["db"], &["db", "shop"]);
    assert_eq!(narrow.get(&key("Pod", "shop", "web-0"), &[]), Ok(None), "declared, and not allowed");
    assert!(matches!(narrow.get(&key("Pod", "else", "web-0"), &[]), Err(AccessError::Undeclared(_))));
}

#[test]
fn g9_w1_what_the_plugin_may_not_read_wakes_nobody() {
    let mut store = store();
    let mut view = view_within(&store, &["db"], &[]);
    view.get(&key("Pod", "shop", "web-0"), &[]).unwrap();
    view.list(&Query::all(pods())).unwrap();
    view.owned(&pods(), &[]).unwrap();
    let reads = view.into_dependencies();
    let hidden = store.apply(Sample::pod("shop", "web-0").owner("77").label("app", "web").version(2).build());
    assert!(!reads.iter().any(|(dependency, _)| dependency.is_affected(&hidden, &Budget::unlimited())));
    let shown = store.apply(Sample::pod("db", "sql").label("app", "new").version(3).build());
    assert!(reads.iter().any(|(dependency, _)| dependency.is_affected(&shown, &Budget::unlimited())));
}
