//! Which changes wake a call (W1), and when a call need not be repeated (W2).

use super::recorder::FEW_DEPENDENCIES;
use super::*;
use crate::dependency_index::DependencyIndex;
use crate::field_selector::FieldPath;
use crate::object::tests::Sample;
use crate::object::{Name, ResourceVersion};
use crate::query::Query;
use crate::view::{Access, View};
use crate::workqueue::{ControllerId, Key};

fn pods() -> Kind {
    Kind::new("v1", "Pod")
}

fn primary() -> Arc<Object> {
    Sample::new("Set", "shop", "web").uid("77").shared()
}

/// A store that has listed these Pods and Nodes.
fn store(objects: &[Sample]) -> Store {
    let mut store = Store::new();
    let kinds = [pods(), Kind::new("v1", "Node")];
    kinds.iter().for_each(|kind| store.begin_list(kind));
    objects.iter().for_each(|object| _ = store.list_item(object.build()));
    kinds.iter().for_each(|kind| _ = store.end_list(kind, ResourceVersion(0)));
    store
}

fn snapshot(objects: &[Sample]) -> Snapshot {
    store(objects).snapshot()
}

/// Deletes a Pod at a version after all others.
fn remove(store: &mut Store, name: &str) -> Change {
    store.remove(pods(), &Name::new("shop", name), ResourceVersion(1_000))
}

fn read(snapshot: &Snapshot, reads: impl FnOnce(&mut View)) -> Dependencies {
    let access = Access::new(vec![pods(), Kind::new("v1", "Node")], 1 << 20);
    let mut view = View::new(snapshot.clone(), primary(), Arc::new(access), 5, "{}".into());
    reads(&mut view);
    view.into_dependencies()
}

fn holds(reads: &Dependencies, snapshot: &Snapshot) -> bool {
    reads.holds(
        &Inputs {
            snapshot,
            primary: &primary(),
            now_unix_ms: 5,
            config: "{}",
            rejected: &[],
            replies: &[],
            kinds: &KindStates::default(),
        },
        &Budget::unlimited(),
    )
}

fn pod(name: &str) -> Sample {
    Sample::pod("shop", name)
}

fn phase(phase: &str, ip: &str) -> String {
    format!(r#""status":{{"phase":"{phase}","ip":"{ip}"}}"#)
}

fn own_phases(view: &mut View) {
    view.owned(&pods(), &["status.phase".to_owned()]).unwrap();
}

fn list(selector: Option<&str>, namespace: Option<&str>, fields: &[&str]) -> Query {
    Query {
        selector: selector.map(str::to_owned),
        namespaces: namespace.map(str::to_owned).into_iter().collect(),
        fields: fields.iter().map(|&field| field.to_owned()).collect(),
        ..Query::all(pods())
    }
}

fn wakes(set: &Dependencies, change: &Change) -> bool {
    let mut index = DependencyIndex::default();
    let key = Key { controller: ControllerId(0), name: primary().name.clone() };
    index.insert(&"podset".into(), &key, &mut set.clone());
    !index.affected(0, change).keys.is_empty() || index.has_due()
}

/// Whether the change from one object to another wakes the key; its set holds afterwards if it does not.
fn check(reads: impl Fn(&mut View), before: Option<Sample>, after: Option<Sample>, expected: bool) {
    let bystander = Sample::pod("elsewhere", "bystander");
    let mut store = store(&before.into_iter().chain([bystander]).collect::<Vec<_>>());
    let old = store.snapshot();
    let set = read(&old, reads);
    assert!(holds(&set, &old) && !set.is_outdated(&store, &Budget::unlimited()));
    let change = match &after {
        Some(after) => store.apply(after.build()),
        None => remove(&mut store, "a"),
    };
    assert!(!change.is_empty());
    assert_eq!(wakes(&set, &change), expected);
    assert_eq!(holds(&set, &store.snapshot()), !expected);
    assert_eq!(set.is_outdated(&store, &Budget::unlimited()), expected);
}

#[test]
fn w1_an_object_that_was_read_wakes_when_it_is_created_changed_or_deleted() {
    let get = |view: &mut View| _ = view.get(&pod("a").build().reference(), &[]).unwrap();
    check(get, None, Some(pod("a")), true);
    check(get, Some(pod("a")), Some(pod("a").version(2).label("x", "y")), true);
    check(get, Some(pod("a")), None, true);
    check(get, Some(pod("a")), Some(pod("a").version(2)), false);
    check(get, None, Some(pod("b")), false);
}

#[test]
fn w1_an_object_of_which_fields_were_read_wakes_for_these_and_when_it_is_created_or_deleted() {
    let get = |view: &mut View| _ = view.get(&pod("a").build().reference(), &["status.phase".to_owned()]).unwrap();
    let of = |version, state: &str, ip: &str| pod("a").version(version).body(&phase(state, ip));
    check(get, None, Some(of(1, "Running", "1")), true);
    check(get, Some(of(1, "Running", "1")), None, true);
    check(get, Some(of(1, "Pending", "1")), Some(of(2, "Running", "1")), true);
    check(get, Some(of(1, "Running", "1")), Some(of(2, "Running", "2")), false);
}

#[test]
fn w1_a_count_wakes_when_it_changes() {
    let count = |view: &mut View| _ = view.count(&list(Some("app=web"), None, &[])).unwrap();
    let web = || pod("a").label("app", "web");
    check(count, None, Some(web()), true);
    check(count, Some(web()), None, true);
    check(count, Some(web()), Some(web().label("app", "db").version(2)), true);
    check(count, Some(web()), Some(web().label("x", "y").version(2)), false);
    check(count, None, Some(pod("a")), false);
}

#[test]
fn w2_a_count_holds_when_one_object_takes_the_place_of_another() {
    let mut store = store(&[pod("a").label("app", "web")]);
    let count = |view: &mut View| _ = view.count(&list(Some("app=web"), None, &[])).unwrap();
    let set = read(&store.snapshot(), count);
    store.apply(pod("b").label("app", "web").version(2).build());
    assert!(!holds(&set, &store.snapshot()));
    remove(&mut store, "a");
    assert!(holds(&set, &store.snapshot()));
}

#[test]
fn w1_children_wake_when_they_are_created_or_deleted_or_change_owner() {
    let ours = || pod("a").owner("77");
    check(own_phases, None, Some(ours()), true);
    check(own_phases, Some(ours()), None, true);
    check(own_phases, Some(ours()), Some(pod("a").version(2)), true);
    check(own_phases, Some(ours()), Some(pod("a").version(2).owner("78")), true);
    check(own_phases, Some(pod("a").owner("78")), Some(ours().version(2)), true);
    check(own_phases, None, Some(pod("a").owner("78")), false);
}

#[test]
fn w1_children_wake_only_for_fields_that_were_read() {
    let ours = |version, state: &str, ip: &str| pod("a").owner("77").version(version).body(&phase(state, ip));
    check(own_phases, Some(ours(1, "Pending", "1")), Some(ours(2, "Running", "1")), true);
    check(own_phases, Some(ours(1, "Running", "1")), Some(ours(2, "Running", "2")), false);
}

#[test]
fn w1_queries_wake_when_an_object_matches_before_or_after() {
    let query = |query: Query| move |view: &mut View| _ = view.list(&query).unwrap();
    let web = || pod("a").label("app", "web");
    let by_label = || query(list(Some("app=web"), None, &[]));
    check(by_label(), None, Some(web()), true);
    check(by_label(), Some(web()), Some(pod("a").version(2)), true);
    check(by_label(), Some(web()), Some(web().label("app", "db").version(2)), true);
    check(by_label(), Some(pod("a").label("app", "db")), Some(web().version(2)), true);
    check(by_label(), None, Some(pod("a").label("app", "db")), false);
    check(query(list(Some("app!=web"), None, &[])), Some(web()), Some(pod("a").version(2)), true);
    check(query(list(None, Some("shop"), &[])), None, Some(pod("a")), true);
    check(query(list(None, Some("other"), &[])), None, Some(pod("a")), false);
    let several = |namespaces: [&str; 2], selector| {
        query(Query { namespaces: namespaces.map(str::to_owned).into(), ..list(selector, None, &[]) })
    };
    check(several(["shop", "other"], None), None, Some(pod("a")), true);
    check(several(["some", "other"], None), None, Some(pod("a")), false);
    check(several(["other", "shop"], Some("app=web")), Some(web()), None, true);
    check(several(["some", "other"], Some("app=web")), Some(web()), None, false);
    check(query(list(None, None, &[])), Some(pod("a")), None, true);
    check(query(list(None, None, &["spec.x"])), Some(pod("a")), Some(pod("a").version(2).label("x", "y")), false);
}

#[test]
fn w1_queries_by_a_field_wake_when_an_object_has_the_value_before_or_after() {
    let on_node = |view: &mut View| {
        let field_selector = vec![("spec.nodeName".to_owned(), "n".into())];
        drop(view.list(&Query { field_selector, ..list(None, None, &["status.phase"]) }).unwrap());
    };
    let on =
        |node: &str, state: &str| pod("a").body(&format!(r#""spec":{{"nodeName":"{node}"}},{}"#, phase(state, "")));
    check(on_node, None, Some(on("n", "Running")), true);
    check(on_node, Some(on("n", "Running")), None, true);
    check(on_node, Some(pod("a")), Some(on("n", "Running").version(2)), true);
    check(on_node, Some(on("n", "Running")), Some(on("m", "Running").version(2)), true);
    check(on_node, Some(on("n", "Pending")), Some(on("n", "Running").version(2)), true);
    check(on_node, Some(on("n", "Running")), Some(on("n", "Running").version(2).label("x", "y")), false);
    check(on_node, Some(on("m", "Pending")), Some(on("m", "Running").version(2)), false);
    check(on_node, None, Some(on("m", "Running")), false);
}

#[test]
fn w1_g4_what_is_outside_of_the_declared_scope_wakes_nobody() {
    let ours = |namespace: &'static str| Sample::pod(namespace, "a").owner("77").label("app", "web");
    let check = |before: Sample, after: Sample, expected: bool| {
        let mut store = store(&[before]);
        let scope = crate::scope::tests::scope(&["shop"], "app=web");
        let access = Access::new(vec![pods()], 1 << 20).with_narrowed(vec![(pods(), Arc::new(scope))]);
        let mut view = View::new(store.snapshot(), primary(), Arc::new(access), 5, "{}".into());
        own_phases(&mut view);
        view.get(&pod("a").build().reference(), &[]).unwrap();
        view.count(&list(None, None, &[])).unwrap();
        view.list(&list(None, None, &[])).unwrap();
        let set = view.into_dependencies();
        let change = store.apply(after.version(2).build());
        assert_eq!(wakes(&set, &change), expected);
        assert_eq!(holds(&set, &store.snapshot()), !expected);
    };
    check(ours("shop"), ours("shop").label("x", "y"), true);
    check(ours("db"), ours("db").label("x", "y"), false);
    check(pod("a").owner("77"), pod("a").owner("77").label("x", "y"), false);
    check(pod("a").owner("77"), ours("shop"), true);
    check(ours("shop"), pod("a").owner("77"), true);
}

#[test]
fn w1_a_query_for_names_ignores_content() {
    let keys = |view: &mut View| drop(view.keys(&list(Some("app=web"), None, &[])).unwrap());
    let web = || pod("a").label("app", "web");
    check(keys, Some(web()), Some(web().version(2).body(&phase("Failed", ""))), false);
    check(keys, Some(web()), None, true);
    check(keys, None, Some(web()), true);
}

#[test]
fn w1_no_object_wakes_a_call_that_read_clock_and_configuration() {
    let reads = |view: &mut View| {
        view.now_unix_ms();
        view.config();
    };
    check(reads, None, Some(pod("a").owner("77")), false);
}

#[test]
fn w2_a_call_holds_until_the_reconciled_object_differs_in_more_than_its_version() {
    let snapshot = snapshot(&[]);
    let set = read(&snapshot, |_| ());
    let with = |primary: &Object| {
        let inputs = Inputs {
            snapshot: &snapshot,
            primary,
            now_unix_ms: 9,
            config: "changed, but never read",
            rejected: &[],
            replies: &[],
            kinds: &KindStates::default(),
        };
        set.holds(&inputs, &Budget::unlimited())
    };
    assert!(with(&Sample::new("Set", "shop", "web").uid("77").version(50).build()));
    assert!(!with(&Sample::new("Set", "shop", "web").uid("77").label("a", "b").build()));
}

#[test]
fn w2_a_set_that_contains_the_time_stops_holding_when_time_moves() {
    let snapshot = snapshot(&[]);
    let set = read(&snapshot, |view| _ = view.now_unix_ms());
    let at = |now_unix_ms| {
        let inputs = Inputs {
            snapshot: &snapshot,
            primary: &primary(),
            now_unix_ms,
            config: "{}",
            rejected: &[],
            replies: &[],
            kinds: &KindStates::default(),
        };
        set.holds(&inputs, &Budget::unlimited())
    };
    assert!(at(5));
    assert!(!at(6));
}

#[test]
fn a_change_while_a_call_ran_makes_its_set_outdated() {
    let mut store = store(&[pod("a").owner("77").body(&phase("Pending", "1"))]);
    let set = read(&store.snapshot(), |view| {
        own_phases(view);
        view.now_unix_ms();
        view.config();
    });
    let mut show = |version: u64, state: &str, ip: &str| {
        store.apply(pod("a").owner("77").version(version).body(&phase(state, ip)).build());
        set.is_outdated(&store, &Budget::unlimited())
    };
    assert!(!show(2, "Pending", "2"));
    assert!(show(3, "Running", "2"));
    assert!(!show(4, "Pending", "2"), "the result is the first one again");
    remove(&mut store, "a");
    assert!(set.is_outdated(&store, &Budget::unlimited()));
}

#[test]
fn a_result_that_was_too_large_does_not_count_as_outdated() {
    let mut store = store(&[pod("a")]);
    let access = Access::new(vec![pods()], 10);
    let mut view = View::new(store.snapshot(), primary(), Arc::new(access), 5, "{}".into());
    view.list(&Query::all(pods())).unwrap_err();
    let set = view.into_dependencies();
    assert!(!set.is_outdated(&store, &Budget::unlimited()) && !holds(&set, &store.snapshot()));
    assert!(wakes(&set, &store.apply(pod("b").build())));
    assert!(!set.is_outdated(&store, &Budget::unlimited()) && !holds(&set, &store.snapshot()));
}

#[test]
fn w2_a_set_holds_again_when_its_objects_are_as_before_in_the_same_order() {
    let a = || pod("a").label("app", "web");
    let b = || pod("b").label("app", "web");
    let mut store = store(&[b(), a()]);
    let set = read(&store.snapshot(), |view| drop(view.list(&list(Some("app=web"), None, &[])).unwrap()));
    remove(&mut store, "b");
    assert!(!holds(&set, &store.snapshot()));
    remove(&mut store, "a");
    assert!(!holds(&set, &store.snapshot()));
    store.apply(a().version(2_000).build());
    store.apply(b().version(2_001).build());
    assert!(holds(&set, &store.snapshot()));
}

#[test]
fn a_repeated_read_counts_once_in_small_and_large_sets() {
    let world = snapshot(&[]);
    for entries in [1, FEW_DEPENDENCIES, FEW_DEPENDENCIES + 1, 10 * FEW_DEPENDENCIES] {
        let set = read(&world, |view| {
            for number in (0..entries).chain(0..entries) {
                view.get(&pod(&number.to_string()).build().reference(), &[]).unwrap();
            }
        });
        assert_eq!(set.iter().len(), entries);
    }
}

#[test]
fn beyond_its_bound_a_set_keeps_kinds_and_any_change_of_them_counts() {
    let mut store = store(&[]);
    let before = store.snapshot();
    let set = read(&before, |view| {
        view.now_unix_ms();
        for number in 0..MAX_DEPENDENCIES + 10 {
            view.get(&pod(&number.to_string()).build().reference(), &[]).unwrap();
        }
    });
    assert_eq!(set.iter().len(), 1, "the time is still a dependency of its own");
    assert_eq!(set.whole_kinds().collect::<Vec<_>>(), [&pods()]);
    assert!(holds(&set, &before));
    let node = store.apply(Sample::new("Node", "", "n").build());
    assert!(!wakes(&set, &node) && holds(&set, &store.snapshot()));
    let unread = store.apply(pod("unread").build());
    assert!(wakes(&set, &unread) && !holds(&set, &store.snapshot()));
}

#[test]
fn g2_a_set_of_long_queries_keeps_kinds_before_it_exceeds_its_bytes() {
    let world = snapshot(&[]);
    let long = |number: usize| list(None, None, &[&format!("f{number}.{}", "x".repeat(1_000))]);
    let mut most = 0;
    let mut collapsed_at = None;
    for entries in (0..400).step_by(20) {
        let set = read(&world, |view| (0..entries).for_each(|number| drop(view.list(&long(number)).unwrap())));
        most = most.max(set.bytes());
        assert!(set.bytes() <= MAX_DEPENDENCY_BYTES, "{entries} entries take {} bytes", set.bytes());
        assert!(holds(&set, &world));
        if set.iter().len() == 0 && entries > 0 {
            collapsed_at.get_or_insert(entries);
            assert_eq!(set.whole_kinds().collect::<Vec<_>>(), [&pods()]);
        }
    }
    assert!(most > MAX_DEPENDENCY_BYTES / 2, "{most}");
    assert!(collapsed_at.is_some_and(|entries| entries < MAX_DEPENDENCIES), "{collapsed_at:?}");
}

#[test]
fn g2_names_that_are_too_long_for_any_object_count_with_their_length() {
    let world = snapshot(&[]);
    let set = read(&world, |view| {
        view.now_unix_ms();
        view.get(&pod(&"n".repeat(MAX_DEPENDENCY_BYTES)).build().reference(), &[]).unwrap();
        view.config();
    });
    assert_eq!(set.iter().len(), 2, "the time and the configuration");
    assert!(set.bytes() < 1_000, "{}", set.bytes());
}

/// A store of Pods, and a set whose entries each looked at all of them and selected none.
fn costly(pods: usize, entries: usize) -> (Store, Dependencies) {
    let store = store(&(0..pods).map(|number| pod(&number.to_string())).collect::<Vec<_>>());
    let set = read(&store.snapshot(), |view| {
        for number in 0..entries {
            assert!(view.keys(&list(Some(&format!("app,app!=v{number}")), None, &[])).unwrap().is_empty());
        }
    });
    (store, set)
}

#[test]
fn q4_no_hash_is_computed_again_for_kinds_that_have_not_changed() {
    let (mut store, set) = costly(300, 100);
    assert_eq!(set.looks, 30_000);
    store.apply(Sample::new("Node", "", "n").build());
    assert!(set.looks > MAX_LOOKS && holds(&set, &store.snapshot()) && !set.is_outdated(&store, &Budget::unlimited()));
}

#[test]
fn what_a_query_cost_before_its_index_is_not_recorded_after() {
    let mut store = store(&(0..100).map(|number| pod(&number.to_string())).collect::<Vec<_>>());
    let field = ("spec.nodeName".to_owned(), "n".into());
    let query = Query { field_selector: vec![field], ..list(None, None, &[]) };
    let looks = |store: &Store| read(&store.snapshot(), |view| assert_eq!(view.list(&query).unwrap(), "[]")).looks;
    assert!(looks(&store) > 1_024 && store.snapshot().kept_answer(&query.compile().unwrap()).is_some());
    store.select_field(&pods(), &FieldPath::parse("spec.nodeName").unwrap(), true);
    store.build_indexes();
    assert!(looks(&store) < 16);
}

#[test]
fn q4_a_set_that_takes_too_much_work_to_compare_counts_as_changed_with_its_kind() {
    for (pods, entries, expected) in [(100, 100, true), (300, 100, false)] {
        let (mut store, set) = costly(pods, entries);
        store.apply(pod("other").build());
        assert_eq!(holds(&set, &store.snapshot()), expected, "{entries} entries about {pods} Pods");
    }
}

#[test]
fn q4_the_bound_holds_for_a_kind_that_has_grown_since_the_call() {
    let (mut store, set) = costly(1, 500);
    assert_eq!(set.looks, 500);
    (0..400).for_each(|number| _ = store.apply(pod(&format!("new{number}")).version(10 + number).build()));
    let snapshot = store.snapshot();
    assert!(!holds(&set, &snapshot), "500 entries about 401 Pods exceed the bound");
    let budget = Budget::new(MAX_LOOKS);
    let hashed = set.iter().filter(|(dependency, _)| dependency.hash_of_objects(&snapshot, &budget).is_some());
    assert_eq!((hashed.count(), budget.spent()), (49, MAX_LOOKS));
}

#[test]
fn q4_changes_of_others_do_not_make_a_costly_set_outdated() {
    let (mut store, set) = costly(300, 100);
    for number in 0..64 {
        store.apply(pod("other").version(10 + number).build());
        assert!(!set.is_outdated(&store, &Budget::unlimited()), "the guest would be called forever");
    }
    store.apply(pod("other").version(100).build());
    assert!(set.is_outdated(&store, &Budget::unlimited()), "the store remembers fewer changes");
    let (mut store, set) = costly(300, 100);
    store.apply(pod("ours").label("app", "web").build());
    assert!(set.is_outdated(&store, &Budget::unlimited()));
}

#[test]
fn w2_the_hash_of_a_shared_dependency_is_computed_once() {
    let mut store = store(&[pod("a"), pod("b")]);
    let mut index = DependencyIndex::default();
    let mut sets = ["x", "y"].map(|_| read(&store.snapshot(), |view| drop(view.list(&list(None, None, &[])).unwrap())));
    for (set, name) in sets.iter_mut().zip(["x", "y"]) {
        index.insert(&"podset".into(), &Key { controller: ControllerId(0), name: Name::new("shop", name) }, set);
    }
    assert!(Arc::ptr_eq(&sets[0].entries[0].0, &sets[1].entries[0].0));
    store.apply(pod("c").version(2).build());
    let snapshot = store.snapshot();
    let looks = |set: &Dependencies| {
        let budget = Budget::unlimited();
        assert_ne!(set.entries[0].0.hash_of_objects(&snapshot, &budget), Some(set.entries[0].1));
        budget.spent()
    };
    assert_eq!(sets.each_ref().map(looks), [4, 1], "three Pods and the dependency itself, then the known hash");
    store.apply(pod("d").version(3).build());
    let budget = Budget::unlimited();
    sets[1].entries[0].0.hash_of_objects(&store.snapshot(), &budget);
    assert_eq!(budget.spent(), 5, "another change needs another hash");
}
