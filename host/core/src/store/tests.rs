//! Watches, lists and replays in the store, and its indexes compared with a scan.

use std::collections::BTreeMap;

use super::*;
use crate::field_selector::{FieldValue, MAX_SELECTED_FIELDS};
use crate::object::owner::Owner;
use crate::object::tests::Sample;
use crate::query::Query;

mod bytes;
mod pieces;
mod slices;

fn pods() -> Kind {
    Kind::new("v1", "Pod")
}

fn name(text: &str) -> Name {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    Name::new(namespace, name)
}

/// "+a/b@1" for a new object, "~a/b@1>2" for a changed one, "-a/b@2" for a deleted one, "" for no change.
fn text(change: &Change) -> String {
    match (&change.before, &change.after) {
        (None, None) => String::new(),
        (None, Some(after)) => format!("+{}@{}", after.name, after.resource_version.0),
        (Some(before), None) => format!("-{}@{}", before.name, before.resource_version.0),
        (Some(before), Some(after)) => {
            format!("~{}@{}>{}", after.name, before.resource_version.0, after.resource_version.0)
        }
    }
}

/// Runs events, and returns their changes and the objects in the end.
///
/// "apply a/b@3", "item a/b@3", "remove a/b@4", "begin", "end@5", "bookmark@6", "rewind".
fn run(store: &mut Store, events: &[&str]) -> String {
    let mut changes = Vec::new();
    for event in events {
        let (event, version) = event.split_once('@').unwrap_or((event, "0"));
        let version: u64 = version.parse().unwrap();
        let (verb, target) = event.split_once(' ').unwrap_or((event, ""));
        let object = || {
            let Name { namespace, name } = name(target);
            let namespace = if &*namespace == "a" { "a" } else { "z" };
            Sample::pod(namespace, &name).version(version).build()
        };
        match verb {
            "apply" => changes.push(text(&store.apply(object()))),
            "item" => changes.push(text(&store.list_item(object()))),
            "remove" => changes.push(text(&store.remove(pods(), &name(target), ResourceVersion(version)))),
            "begin" => store.begin_list(pods()),
            "end" => changes.extend(store.end_list(pods(), ResourceVersion(version)).iter().map(text)),
            "bookmark" => store.progress(pods(), ResourceVersion(version)),
            "rewind" => store.rewind(&pods()),
            _ => panic!("no such event: {event}"),
        }
    }
    format!("{} | {}", changes.join(" "), names(store.snapshot().list(&pods(), None, &Selector::default())))
}

fn names<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> String {
    objects.map(|object| object.name.to_string()).collect::<Vec<_>>().join(" ")
}

fn check(events: &[&str], expected: &str) {
    assert_eq!(run(&mut Store::new(), events), expected, "{events:?}");
}

#[test]
fn watch_events_add_change_and_remove() {
    check(&["apply a/x@1", "apply a/y@2", "apply a/x@3", "remove a/y@4"], "+a/x@1 +a/y@2 ~a/x@1>3 -a/y@2 | a/x");
}

#[test]
fn r3_an_event_of_an_older_version_changes_nothing() {
    check(&["apply a/x@5", "apply a/x@4", "apply a/x@5"], "+a/x@5   | a/x");
    check(&["apply a/x@5", "remove a/x@4"], "+a/x@5  | a/x");
}

#[test]
fn r3_a_replayed_event_does_not_bring_a_deleted_object_back() {
    check(&["apply a/x@5", "remove a/x@6", "apply a/x@5"], "+a/x@5 -a/x@5  | ");
    check(&["apply a/x@5", "remove a/x@6", "begin", "item a/x@5", "end@5"], "+a/x@5 -a/x@5  | ");
    check(&["remove a/x@6", "apply a/x@5"], "  | ");
    check(&["apply a/x@5", "remove a/x@6", "apply a/x@7"], "+a/x@5 -a/x@5 +a/x@7 | a/x");
}

#[test]
fn r3_an_event_from_before_the_first_list_creates_nothing() {
    check(&["begin", "item a/y@2", "end@5", "apply a/x@4"], "+a/y@2  | a/y");
    check(&["begin", "item a/y@2", "end@5", "bookmark@9", "apply a/x@8", "apply a/x@10"], "+a/y@2  +a/x@10 | a/x a/y");
}

#[test]
fn r6_an_object_that_a_list_does_not_show_is_deleted_unless_it_is_newer() {
    check(
        &["apply a/x@1", "apply a/y@2", "apply a/z@9", "begin", "item a/x@1", "end@5"],
        "+a/x@1 +a/y@2 +a/z@9  -a/y@2 | a/x a/z",
    );
}

#[test]
fn r6_a_list_changes_only_what_differs() {
    check(
        &["apply a/x@1", "apply a/y@2", "begin", "item a/x@1", "item a/y@4", "item a/z@3", "end@5"],
        "+a/x@1 +a/y@2  ~a/y@2>4 +a/z@3 | a/x a/y a/z",
    );
}

#[test]
fn r6_an_object_that_was_replaced_under_another_uid_is_one_change() {
    let mut store = Store::new();
    store.apply(Sample::pod("a", "x").uid("old").version(1).build());
    store.begin_list(pods());
    let change = store.list_item(Sample::pod("a", "x").uid("new").version(4).build());
    assert_eq!((&*change.before.unwrap().uid, &*change.after.unwrap().uid), ("old", "new"));
    assert!(store.end_list(pods(), ResourceVersion(5)).is_empty());
}

#[test]
fn r6_a_list_that_begins_again_discards_the_objects_of_the_first() {
    check(
        &["apply a/x@1", "apply a/y@2", "begin", "item a/x@1", "begin", "item a/y@2", "end@5"],
        "+a/x@1 +a/y@2   -a/x@1 | a/y",
    );
}

#[test]
fn after_versions_went_backwards_a_list_replaces_every_object() {
    let before = ["begin", "item a/x@5", "item a/y@20", "item a/z@8", "end@30", "remove a/z@31"];
    // An older state, an object created after the backup, one deleted after it, and then an ordinary watch.
    let after = ["rewind", "begin", "item a/x@4", "item a/z@8", "end@9", "apply a/y@10", "apply a/x@9", "apply a/x@11"];
    check(
        &[&before[..], &after].concat(),
        "+a/x@5 +a/y@20 +a/z@8 -a/z@8 ~a/x@5>4 +a/z@8 -a/y@20 +a/y@10 ~a/x@4>9 ~a/x@9>11 | a/x a/y a/z",
    );
}

#[test]
fn after_a_rewind_equal_versions_are_compared_by_their_objects() {
    let mut store = Store::new();
    run(&mut store, &["begin", "item a/x@5", "item a/y@6", "end@9", "rewind", "begin"]);
    let same = store.list_item(Sample::pod("a", "x").version(5).build());
    assert!(same.is_empty(), "{same:?}");
    let other = store.list_item(Sample::pod("a", "y").version(6).label("app", "web").build());
    assert_eq!(text(&other), "~a/y@6>6");
    assert!(store.end_list(pods(), ResourceVersion(9)).is_empty());
}

#[test]
fn r4_after_a_rewind_only_a_new_list_changes_the_kind() {
    let mut store = Store::new();
    run(&mut store, &["begin", "item a/x@5", "end@9", "begin", "item a/x@7", "rewind"]);
    // Late events of the watch and the list from before.
    let rest = run(&mut store, &["item a/y@6", "end@9", "apply a/x@10", "remove a/x@11", "bookmark@12"]);
    assert_eq!(rest, "   | a/x");
    let synced = |store: &Store| (store.synced(pods()), store.snapshot().progress(&pods(), &"a".into()));
    assert_eq!(synced(&store), (false, Some(ResourceVersion(0))));
    // The objects of a list that breaks off stay until the next list ends.
    assert_eq!(
        run(&mut store, &["begin", "item a/w@3", "begin", "item a/x@4", "end@4"]),
        "+a/w@3 ~a/x@7>4 -a/w@3 | a/x"
    );
    assert_eq!(synced(&store), (true, Some(ResourceVersion(4))));
    store.rewind(&Kind::new("v1", "Node"));
    assert!(!store.synced(Kind::new("v1", "Node")), "no controller reads this kind");
}

#[test]
fn a_list_that_contradicts_earlier_events_shows_a_restored_etcd_and_a_late_list_does_not() {
    let is_contradicted = |list: &[&str], version| {
        let mut store = Store::new();
        run(&mut store, &["begin", "item a/x@5", "item a/y@6", "end@9", "apply a/x@20", "remove a/y@21", "begin"]);
        run(&mut store, list);
        store.is_contradicted(pods(), ResourceVersion(version))
    };
    assert!(is_contradicted(&["item a/x@5"], 100), "an older state");
    assert!(is_contradicted(&["item a/x@20", "item a/y@6"], 100), "an object that was deleted");
    assert!(!is_contradicted(&["item a/x@5", "item a/y@6"], 19), "the list is older than the events");
    assert!(!is_contradicted(&["item a/x@20", "item a/y@22"], 100), "created again");
    assert!(!is_contradicted(&["item a/x@20", "apply a/x@5"], 100), "an event may come twice");
    assert!(!is_contradicted(&["item a/x@5", "begin", "item a/x@20"], 100), "only the current list counts");
    assert!(!is_contradicted(&["rewind", "begin", "item a/x@5", "item a/y@6"], 100), "already rewound");
}

#[test]
fn objects_of_watch_events_during_a_list_count_as_shown() {
    check(&["begin", "item a/x@1", "apply a/y@4", "remove a/x@5", "end@5"], "+a/x@1 +a/y@4 -a/x@1 | a/y");
}

#[test]
fn a_slot_that_is_used_again_during_a_list_counts_for_its_new_object() {
    check(
        &["apply a/x@1", "apply a/y@2", "begin", "item a/y@2", "remove a/x@3", "apply a/w@4", "end@5"],
        "+a/x@1 +a/y@2  -a/x@1 +a/w@4 | a/w a/y",
    );
}

#[test]
fn an_end_without_a_beginning_deletes_nothing() {
    check(&["apply a/x@1", "end@5"], "+a/x@1 | a/x");
}

#[test]
fn r4_a_kind_is_synced_once_it_has_been_listed_completely() {
    let mut store = Store::new();
    let synced = |store: &Store| (store.synced(pods()), store.snapshot().has_listed(&pods(), &Scope::default()));
    run(&mut store, &["begin", "item a/x@1"]);
    assert_eq!(synced(&store), (false, false));
    run(&mut store, &["end@5"]);
    assert_eq!(synced(&store), (true, true));
    run(&mut store, &["begin"]);
    assert_eq!(synced(&store), (true, true), "the last complete list counts until the next one is complete");
    store.forget(&pods());
    assert_eq!(synced(&store), (false, false));
    assert!(store.snapshot().is_empty(&pods()));
}

#[test]
fn progress_is_the_version_up_to_which_the_watch_has_delivered() {
    let mut store = Store::new();
    let mut progress = |events: &[&str]| {
        run(&mut store, events);
        store.snapshot().progress(&pods(), &"a".into()).unwrap().0
    };
    assert_eq!(progress(&["begin", "item a/x@9"]), 0, "the items of a list come in any order");
    assert_eq!(progress(&["end@10"]), 10);
    assert_eq!(progress(&["apply a/x@12"]), 12);
    assert_eq!(progress(&["remove a/x@13"]), 13);
    assert_eq!(progress(&["bookmark@20"]), 20);
    assert_eq!(progress(&["apply a/x@15"]), 20);
}

#[test]
fn r1_a_snapshot_does_not_change() {
    let mut store = Store::new();
    run(&mut store, &["begin", "item a/x@1", "item a/y@2", "end@3"]);
    let snapshot = store.snapshot();
    run(&mut store, &["apply a/x@4", "remove a/y@5", "apply a/z@6"]);
    assert_eq!(names(snapshot.list(&pods(), None, &Selector::default())), "a/x a/y");
    assert_eq!(snapshot.get(&pods(), &name("a/x")).unwrap().resource_version.0, 1);
    assert_eq!((snapshot.len(&pods()), snapshot.progress(&pods(), &"a".into())), (2, Some(ResourceVersion(3))));
    store.forget(&pods());
    assert_eq!(snapshot.len(&pods()), 2);
}

#[test]
fn the_number_of_changes_grows_with_every_change_only() {
    let mut store = Store::new();
    run(&mut store, &["apply a/x@1"]);
    let before = store.snapshot().changes(&pods());
    run(&mut store, &["apply a/x@1", "bookmark@7", "begin", "item a/x@1", "end@9"]);
    assert_eq!(store.snapshot().changes(&pods()), before);
    run(&mut store, &["apply a/x@10"]);
    let after = store.snapshot().changes(&pods());
    assert!(after > before);
    store.forget(&pods());
    run(&mut store, &["apply a/x@10"]);
    assert!(store.snapshot().changes(&pods()) > after, "a forgotten kind continues to count");
}

#[test]
fn the_tombstones_of_a_kind_are_bounded() {
    let mut store = Store::new();
    for number in 0..10_000 {
        store.remove(pods(), &Name::new("a", &number.to_string()), ResourceVersion(number));
    }
    let list = |store: &mut Store, number: u64| {
        text(&store.list_item(Sample::pod("a", &number.to_string()).version(number).build()))
    };
    store.begin_list(pods());
    assert_eq!(list(&mut store, 9_999), "");
    assert_eq!(list(&mut store, 1), "+a/1@1");
}

/// A seeded generator, so that failures repeat.
struct Seed(u64);

impl Seed {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// A store with random objects, and a plain map with the same objects.
struct Twin {
    store: Store,
    model: BTreeMap<Name, Arc<Object>>,
    version: u64,
}

impl Twin {
    const NAMESPACES: [&str; 3] = ["a", "b", ""];

    fn step(&mut self, seed: &mut Seed) {
        self.version += 1;
        let namespace = Self::NAMESPACES[seed.below(3)];
        let mut sample = Sample::pod(namespace, &format!("p{}", seed.below(40))).version(self.version);
        for label in 0..seed.below(4) {
            sample = sample.label(&format!("l{label}"), &format!("v{}", seed.below(3)));
        }
        if seed.below(3) > 0 {
            sample = sample.owner(&format!("owner{}", seed.below(4)));
        }
        let object = sample.body(&format!(r#""spec":{{"n":{}}}"#, seed.below(3))).build();
        if seed.below(4) == 0 {
            let change = self.store.remove(pods(), &object.name, ResourceVersion(self.version));
            let expected = self.model.remove(&object.name);
            assert_eq!(change.before.map(|object| object.uid.clone()), expected.map(|object| object.uid.clone()));
        } else {
            let after = self.store.apply(object).after.unwrap();
            self.model.insert(after.name.clone(), after);
        }
    }

    /// Compares queries by the label `l0` and the field `spec.n`, with or without a field index.
    fn compare_fields(&self) {
        let snapshot = self.store.snapshot();
        for (selector, number) in [(None, 0), (None, 1), (None, 7), (Some("l0=v0"), 1), (Some("!l0"), 2)] {
            let field_selector = vec![("spec.n".to_owned(), FieldValue::Integer(number))];
            let query = Query { selector: selector.map(str::to_owned), field_selector, ..Query::all(pods()) };
            let query = query.compile().unwrap();
            let (looks, unlimited) = (Budget::unlimited(), Budget::unlimited());
            let found = names(snapshot.select_within(&query, &looks));
            let expected = self.model.values().filter(|pod| query.matches_within(pod, &unlimited) == Some(true));
            assert_eq!(found, names(expected), "{query:?}");
        }
    }

    fn compare(&self, seed: &mut Seed) {
        let snapshot = self.store.snapshot();
        assert_eq!(snapshot.len(&pods()), self.model.len());
        for number in 0..40 {
            let name = Name::new(Self::NAMESPACES[seed.below(3)], &format!("p{number}"));
            let same = match (snapshot.get(&pods(), &name), self.model.get(&name)) {
                (Some(found), Some(expected)) => Arc::ptr_eq(found, expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(same, "{name}");
        }
        for owner in ["owner0", "owner1", "owner2", "owner3", "nobody"] {
            let mut expected: Vec<_> = self
                .model
                .values()
                .filter(|object| object.controller.as_ref().is_some_and(|controller| &*controller.uid == owner))
                .collect();
            expected.sort_by_key(|object| (object.name.name.clone(), object.name.namespace.clone()));
            let owner = Owner { uid: owner.into(), namespace: None };
            assert_eq!(names(snapshot.owned(&pods(), &owner)), names(expected.into_iter()), "{owner:?}");
        }
        for selector in ["", "l0=v0", "l0=v0,l1=v1", "l0,l1!=v2", "l0 in (v0,v1)", "!l0", "l0=nothing"] {
            let selector = Selector::parse(selector).unwrap();
            for namespace in [None, Some("a"), Some("b"), Some("")] {
                let expected = self.model.values().filter(|object| {
                    selector.matches(&object.labels)
                        && namespace.is_none_or(|namespace| &*object.name.namespace == namespace)
                });
                assert_eq!(
                    names(snapshot.list(&pods(), namespace, &selector)),
                    names(expected),
                    "{selector} in {namespace:?}"
                );
            }
        }
    }
}

#[test]
fn every_index_finds_what_a_scan_finds() {
    for start in 0..20 {
        let mut seed = Seed(start);
        let mut twin = Twin { store: Store::new(), model: BTreeMap::new(), version: 0 };
        for _ in 0..8 {
            // A live snapshot makes the writer copy what it changes.
            let _held = twin.store.snapshot();
            (0..40).for_each(|_| twin.step(&mut seed));
            twin.compare(&mut seed);
            twin.compare_fields();
            let paths = ["spec.n", "spec.m"].map(|path| FieldPath::parse(path).unwrap());
            twin.store.select_field(&pods(), &paths[seed.below(2)], seed.below(3) > 0);
            if seed.below(2) == 0 {
                twin.store.build_indexes();
            }
        }
    }
}

fn on_node(node: &str) -> CompiledQuery {
    let field_selector = vec![("spec.nodeName".to_owned(), node.into())];
    Query { field_selector, ..Query::all(pods()) }.compile().unwrap()
}

#[test]
fn a_query_by_a_field_looks_only_at_its_result_once_the_index_is_built() {
    let mut store = Store::new();
    let pod = |number: usize, node: usize| {
        let body = format!(r#""spec":{{"nodeName":"n{node}","padding":"{}"}}"#, "x".repeat(900));
        Sample::pod("a", &format!("p{number:05}")).version(1 + number as u64).body(&body)
    };
    (0..1_000).for_each(|number| _ = store.apply(pod(number, number % 100).build()));
    let looks = |store: &Store| {
        let budget = Budget::unlimited();
        assert_eq!(store.snapshot().select_within(&on_node("n7"), &budget).count(), 10);
        budget.spent()
    };
    // One unit for each object, and 32 for its text of between one and two KiB.
    assert_eq!(looks(&store), 1_000 * 33);
    let path = FieldPath::parse("spec.nodeName").unwrap();
    store.select_field(&pods(), &path, true);
    let mut steps = 0;
    while !store.building.is_empty() {
        assert_eq!(looks(&store), 1_000 * 33, "an incomplete index is not used");
        store.build_indexes();
        steps += 1;
    }
    assert!((10..40).contains(&steps), "{steps} steps for a MiB of Pods");
    assert_eq!(looks(&store), 10 * 33);
    store.select_field(&pods(), &path, false);
    store.select_field(&pods(), &path, true);
    store.build_indexes();
    assert_eq!(looks(&store), 10 * 33, "an unused index was kept");
}

#[test]
fn the_field_indexes_of_a_kind_are_bounded_and_unused_ones_are_replaced() {
    let mut store = Store::new();
    store.apply(Sample::pod("a", "x").build());
    let path = |number: usize| FieldPath::parse(&format!("spec.f{number}")).unwrap();
    let mut select = |number, is_selected| {
        store.select_field(&pods(), &path(number), is_selected);
        let known = store.tables[&pods()].fields.iter().map(|field| format!("{:?}", field.path).replace("spec.f", ""));
        known.collect::<String>()
    };
    (0..8).for_each(|number| _ = select(number, true));
    select(3, false);
    assert_eq!(select(9, true), "01294567");
    let all = (10..66).map(|number| select(number, true)).last().unwrap();
    assert_eq!(select(66, true), all);
    assert_eq!(store.tables[&pods()].fields.len(), MAX_SELECTED_FIELDS);
    store.select_field(&Kind::new("v1", "Node"), &path(0), true);
    assert!(!store.snapshot().tables.contains_key(&Kind::new("v1", "Node")), "no controller reads this kind");
    store.forget(&pods());
    store.build_indexes();
    assert!(store.building.is_empty());
}

#[test]
fn slots_that_share_a_hash_are_all_found() {
    let mut postings = postings::Postings::default();
    for (hash, slot) in [(7, 5), (7, 3), (8, 1), (6, 9)] {
        postings.insert(hash, slot);
    }
    assert_eq!([0, 3, 4, 5, 6].map(|from| postings.first(7, from)), [Some(3), Some(3), Some(5), Some(5), None]);
    assert_eq!(postings.walk(7).collect::<Vec<_>>(), [3, 5]);
    postings.remove(7, 3);
    assert_eq!((postings.first(7, 0), postings.first(9, 0)), (Some(5), None));
}

#[test]
fn slots_that_a_list_has_not_shown_are_found() {
    let mut seen = Seen::default();
    let unseen = |seen: &Seen, bound| seen.unseen(0, bound).collect::<Vec<_>>();
    assert_eq!(unseen(&seen, 3), [0, 1, 2]);
    (0..200).filter(|slot| ![0, 63, 64, 129, 199].contains(slot)).for_each(|slot| seen.see(slot));
    assert_eq!(unseen(&seen, 199), [0, 63, 64, 129]);
    assert_eq!(unseen(&seen, 202), [0, 63, 64, 129, 199, 200, 201]);
    assert!(unseen(&seen, 0).is_empty());
}

#[test]
fn the_last_changes_of_a_kind_are_remembered() {
    let mut store = Store::new();
    let changes = |store: &Store, since: u64| -> Option<String> {
        let changes = store.changes_since(&pods(), since)?;
        Some(changes.map(text).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(changes(&store, 0), None, "the kind is unknown");
    store.apply(Sample::pod("a", "x").version(1).build());
    let since = store.snapshot().changes(&pods());
    assert_eq!(changes(&store, since).as_deref(), Some(""));
    store.apply(Sample::pod("a", "x").version(2).build());
    store.apply(Sample::pod("a", "x").version(2).build());
    store.remove(pods(), &name("a/x"), ResourceVersion(3));
    assert_eq!(changes(&store, since).as_deref(), Some("~a/x@1>2 -a/x@2"));
    (0..63).for_each(|number| _ = store.apply(Sample::pod("a", "y").version(10 + number).build()));
    assert_eq!(changes(&store, since), None);
    assert_eq!(changes(&store, since + 1).map(|all| all.matches("a/").count()), Some(64));
    let since = store.snapshot().changes(&pods());
    store.forget(&pods());
    store.apply(Sample::pod("a", "x").version(90).build());
    assert_eq!(changes(&store, since), None, "a forgotten kind has no history");
}

#[test]
fn an_object_with_very_many_labels_is_found_by_each_and_its_change_costs_no_more_than_anothers() {
    let labelled = |labels: usize, value: &str, version: u64| {
        let pod = Sample::pod("a", &format!("p{labels}")).version(version).label("app", value);
        (0..labels).fold(pod, |pod, number| pod.label(&format!("l{number}"), value)).build()
    };
    let mut store = Store::new();
    let mut allocations = |labels: usize| {
        // A version that is not newer than the last event would be a replay.
        let version = labels as u64;
        store.apply(labelled(labels, "old", version));
        let object = labelled(labels, "new", version + 1);
        let (count, _) = crate::allocations::counted(|| store.apply(object));
        let names = |selector: &str| {
            let selector = Selector::parse(selector).unwrap();
            store
                .snapshot()
                .list(&pods(), None, &selector)
                .filter(|pod| *pod.name.name == *format!("p{labels}"))
                .count()
        };
        assert_eq!(["app=new", "app=new,l7=new", "app=old"].map(names), [1, 1, 0], "{labels} labels");
        count.allocations
    };
    let (few, many) = (allocations(100), allocations(10_000));
    assert!(many <= few, "{few} and {many}");
}

#[test]
fn p18_the_last_changes_of_a_kind_keep_few_objects_and_few_bytes() {
    let body = format!(r#""spec":{{"a":"{}"}}"#, "v".repeat(1 << 20));
    let mut store = Store::new();
    let remembered = |store: &Store| {
        let changes = store.snapshot().changes(&pods());
        let all = (0..changes).filter_map(|since| Some(store.changes_since(&pods(), since)?.count()));
        all.max().unwrap_or_default()
    };
    for version in 1..=10 {
        store.apply(Sample::pod("a", "x").version(version).body(&body).build());
    }
    assert_eq!(remembered(&store), 3, "four MiB of outdated objects and what is around them");
    for version in 11..=100 {
        store.apply(Sample::pod("a", "x").version(version).build());
    }
    assert_eq!(remembered(&store), 64);
}
