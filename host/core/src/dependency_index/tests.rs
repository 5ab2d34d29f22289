//! The keys that a change affects, the dependencies that it is compared with, and the memory of the index.

use super::*;
use crate::allocations::{Count, counted};
use crate::field_selector::{FieldValue, MAX_FIELDS_OF_A_PLUGIN, MAX_SELECTED_FIELDS};
use crate::object::Name;
use crate::object::tests::Sample;
use crate::query::Query;
use crate::store::Snapshot;
use crate::view::{Access, View};

fn pods() -> Kind {
    Kind::new("v1", "Pod")
}

fn nodes() -> Kind {
    Kind::new("v1", "Node")
}

fn key(controller: u32, number: usize) -> Key {
    Key { controller: ControllerId(controller), name: Name::new("shop", &format!("{number:05}")) }
}

fn access() -> Arc<Access> {
    Arc::new(Access::new(vec![pods(), nodes()], 1 << 20))
}

/// The dependencies of a call for the object with this UID, in an empty cluster.
fn read_as(uid: &str, access: &Arc<Access>, reads: impl FnOnce(&mut View)) -> Dependencies {
    let primary = Sample::new("Set", "shop", "set").uid(uid).shared();
    let snapshot = Snapshot::of(&[pods(), nodes()], []);
    let mut view = View::new(snapshot, primary, Arc::clone(access), 5, "{}".into());
    reads(&mut view);
    view.into_dependencies()
}

fn read(reads: impl FnOnce(&mut View)) -> Dependencies {
    read_as("77", &access(), reads)
}

fn query(kind: Kind, selector: &str, namespace: Option<&str>, field: &str) -> Query {
    let selector = (!selector.is_empty()).then(|| selector.to_owned());
    Query {
        selector,
        namespaces: namespace.map(str::to_owned).into_iter().collect(),
        fields: vec![field.to_owned()],
        ..Query::all(kind)
    }
}

fn list(view: &mut View, query: &Query) {
    view.list(query).unwrap();
}

fn change(before: Sample, after: Sample) -> Change {
    Change { before: Some(before.shared()), after: Some(after.version(2).shared()) }
}

fn new(sample: &Sample) -> Change {
    Change { before: None, after: Some(sample.shared()) }
}

fn pod() -> Sample {
    Sample::pod("shop", "a")
}

/// The number of dependencies that were compared with the change.
fn evaluated(affected: &Affected) -> u64 {
    affected.compared.values().map(|compared| compared.dependencies).sum()
}

/// "<evaluated>/<keys>".
fn text(affected: &Affected) -> String {
    format!("{}/{}", evaluated(affected), affected.keys.len())
}

#[test]
fn w1_ten_thousand_keys_that_list_the_same_nodes_are_one_dependency() {
    let (mut index, access) = (DependencyIndex::default(), access());
    let unschedulable = query(nodes(), "", None, "spec.unschedulable");
    for number in 0..10_000 {
        index.insert(
            &"podset".into(),
            &key(1, number),
            &mut read_as(&number.to_string(), &access, |view| list(view, &unschedulable)),
        );
    }
    let node = |spec: &str, heartbeat: u8| {
        Sample::new("Node", "", "n").body(&format!(r#""spec":{{{spec}}},"status":{{"heartbeat":{heartbeat}}}"#))
    };
    let heartbeat = index.affected(&change(node("", 1), node("", 2)));
    assert_eq!(text(&heartbeat), "1/0");
    let cordoned = index.affected(&change(node("", 1), node(r#""unschedulable":true"#, 1)));
    assert_eq!(text(&cordoned), "1/10000");
    assert!(cordoned.keys.is_sorted());
}

#[test]
fn w1_a_change_is_compared_only_with_the_dependencies_under_its_index_keys() {
    let (mut index, access) = (DependencyIndex::default(), access());
    for number in 0..10_000 {
        let own_label = query(pods(), &format!("app=v{number}"), None, "spec.x");
        index.insert(
            &"podset".into(),
            &key(1, number),
            &mut read_as(&number.to_string(), &access, |view| list(view, &own_label)),
        );
        let own_pods = |view: &mut View| drop(view.owned(&pods(), &[]).unwrap());
        index.insert(&"podset".into(), &key(2, number), &mut read_as(&number.to_string(), &access, own_pods));
    }
    let check = |change: Change, expected: &str| assert_eq!(text(&index.affected(&change)), expected, "{change:?}");
    let labelled = |value: &str| pod().label("app", value);
    check(change(labelled("v5"), labelled("v5").body(r#""spec":{"x":1}"#)), "1/1");
    check(change(labelled("v5"), labelled("v5").body(r#""status":{"x":1}"#)), "1/0");
    check(change(labelled("v5"), labelled("v6")), "2/2");
    check(change(labelled("v5"), labelled("other")), "1/1");
    check(change(pod().owner("3"), pod().owner("4")), "2/2");
    check(change(pod().owner("3"), pod().owner("3").label("app", "v7")), "2/2");
    check(new(&pod()), "0/0");
    check(new(&Sample::new("Node", "", "a").label("app", "v5")), "0/0");
    check(Change::default(), "0/0");
}

#[test]
fn a_query_is_indexed_by_its_label_and_namespace_together() {
    let check = |selector: &str, namespace: Option<&str>, expected: [u64; 4]| {
        let mut index = DependencyIndex::default();
        let query = query(pods(), selector, namespace, "spec.x");
        index.insert(&"podset".into(), &key(1, 0), &mut read(|view| drop(view.keys(&query).unwrap())));
        let here = [pod().label("app", "web"), pod()];
        let there = ["web", "db"].map(|value| Sample::pod("elsewhere", "a").label("app", value));
        let evaluated = here.into_iter().chain(there).map(|sample| evaluated(&index.affected(&new(&sample))));
        assert_eq!(evaluated.collect::<Vec<_>>(), expected, "{selector} in {namespace:?}");
    };
    check("app=web", Some("shop"), [1, 0, 0, 0]);
    check("app=web", None, [1, 0, 1, 0]);
    check("tier!=x,app in (web)", None, [1, 0, 1, 0]);
    check("app!=web", Some("shop"), [1, 1, 0, 0]);
    check("app!=web", None, [1, 1, 1, 1]);
}

fn by_field(path: &str, value: &str, namespace: Option<&str>) -> Query {
    let field_selector = vec![(path.to_owned(), value.into())];
    Query { field_selector, ..query(pods(), "app=web", namespace, "status.phase") }
}

#[test]
fn a_query_is_indexed_by_the_value_of_its_field_and_its_namespace_together() {
    let check = |namespace: Option<&str>, expected: [u64; 3]| {
        let mut index = DependencyIndex::default();
        for number in 0..1_000 {
            let query = by_field("spec.nodeName", &format!("n{number}"), namespace);
            index.insert(&"podset".into(), &key(1, number), &mut read(|view| drop(view.keys(&query).unwrap())));
        }
        let on = |namespace, node: &str| {
            Sample::pod(namespace, "a").label("app", "web").body(&format!(r#""spec":{{"nodeName":"{node}"}}"#))
        };
        let changes = [new(&on("shop", "n7")), new(&on("elsewhere", "n7")), change(on("shop", "n7"), on("shop", "n8"))];
        assert_eq!(changes.map(|change| evaluated(&index.affected(&change))), expected);
    };
    check(None, [1, 1, 2]);
    check(Some("shop"), [1, 0, 2]);
}

/// The fields that were selected since the last time, or no longer are.
fn changes(index: &mut DependencyIndex) -> Vec<(String, bool)> {
    let changes = index.take_field_changes().into_iter();
    changes.map(|change| (format!("{:?}", change.path), change.is_selected)).collect()
}

#[test]
fn q4_a_plugin_that_queries_by_every_field_leaves_indexes_to_others() {
    let mut index = DependencyIndex::default();
    let by = |plugin: &str, path: &str| read(|view| list(view, &by_field(path, plugin, None)));
    let insert = |index: &mut DependencyIndex, plugin: &str, controller: u32, path: &str| {
        index.insert(&plugin.into(), &key(controller, 0), &mut by(plugin, path));
        changes(index)
    };
    let greedy: Vec<_> = (0..2 * MAX_SELECTED_FIELDS)
        .flat_map(|number| insert(&mut index, "greedy", number as u32, &format!("spec.f{number}")))
        .collect();
    assert_eq!(greedy, [("spec.f0".to_owned(), true), ("spec.f1".to_owned(), true)]);
    assert_eq!(insert(&mut index, "drain", 100, "spec.nodeName"), [("spec.nodeName".to_owned(), true)]);
    assert_eq!(insert(&mut index, "drain", 101, "spec.f0"), [], "another plugin's field is shared");
    assert_eq!(insert(&mut index, "drain", 101, "spec.own").len(), 1, "and is no part of the share");
    index.remove(&key(1, 0), &by("greedy", "spec.f1"));
    assert_eq!(changes(&mut index), [("spec.f1".to_owned(), false)]);
    assert_eq!(insert(&mut index, "greedy", 0, "spec.new").len(), 1);
}

#[test]
fn q4_fields_that_are_not_indexed_still_wake_their_keys() {
    let mut index = DependencyIndex::default();
    let mut sets: Vec<_> = (0..MAX_SELECTED_FIELDS + 2)
        .map(|field| read(|view| list(view, &by_field(&format!("spec.f{field}"), "x", None))))
        .collect();
    for (number, set) in sets.iter_mut().enumerate() {
        let plugin = format!("p{}", number / MAX_FIELDS_OF_A_PLUGIN);
        index.insert(&plugin.into(), &key(1, number), set);
    }
    let selected = changes(&mut index);
    assert_eq!((selected.len(), &selected[0]), (MAX_SELECTED_FIELDS, &("spec.f0".to_owned(), true)));
    let last = MAX_SELECTED_FIELDS + 1;
    let with = |field: usize| new(&pod().label("app", "web").body(&format!(r#""spec":{{"f{field}":"x"}}"#)));
    assert_eq!(index.affected(&with(last)).keys, [key(1, last)]);
    assert_eq!(index.affected(&with(0)).keys, [key(1, 0)]);
    sets.iter().enumerate().for_each(|(number, set)| index.remove(&key(1, number), set));
    let left = changes(&mut index);
    assert!(left.len() == MAX_SELECTED_FIELDS && left.iter().all(|(_, is_selected)| !is_selected));
    assert!(index.postings.is_empty() && index.selected.is_empty());
}

#[test]
fn the_cost_of_a_label_depends_on_neither_the_other_labels_nor_the_other_selectors() {
    let many = |changed: &str| {
        (0..10_000).fold(pod().label("changed", changed), |pod, number| pod.label(&format!("l{number}"), "v"))
    };
    let large = change(many("a"), many("b"));
    let mut index = DependencyIndex::default();
    let affected = |index: &DependencyIndex, change: &Change| {
        let (Count { allocated_bytes, .. }, affected) = counted(|| index.affected(change));
        // Building a key for each label would allocate some megabytes.
        assert!(allocated_bytes < 4_096, "{allocated_bytes} bytes");
        text(&affected)
    };
    assert_eq!(affected(&index, &large), "0/0");
    for (number, selector) in ["l7=v", "l8=w", "changed=a", "changed=b", "changed=c"].into_iter().enumerate() {
        index.insert(
            &"podset".into(),
            &key(1, number),
            &mut read(|view| list(view, &query(pods(), selector, None, "spec.x"))),
        );
    }
    assert_eq!(affected(&index, &large), "3/2", "l7=v is compared too");
    for number in 0..1_000 {
        let selector = format!("k{number}=v");
        index.insert(
            &"podset".into(),
            &key(2, number),
            &mut read(|view| list(view, &query(pods(), &selector, None, "spec.x"))),
        );
    }
    assert_eq!(affected(&index, &change(pod().label("k1", "v").label("z", ""), pod().label("k2", "v"))), "2/2");
}

#[test]
fn a_kind_that_was_read_whole_and_a_conflicting_object_affect_their_keys() {
    let mut index = DependencyIndex::default();
    let mut whole = read(|view| {
        for number in 0..=crate::dependencies::MAX_DEPENDENCIES {
            view.get(&Sample::pod("shop", &number.to_string()).build().reference(), &[]).unwrap();
        }
    });
    let target = pod().build().reference();
    index.insert(&"podset".into(), &key(1, 1), &mut whole);
    index.replace_conflicts(&key(1, 1), &[], std::slice::from_ref(&target));
    index.replace_conflicts(&key(1, 0), &[], std::slice::from_ref(&target));
    assert_eq!(index.affected(&new(&pod())).keys, [key(1, 0), key(1, 1)]);
    assert_eq!(index.affected(&new(&Sample::pod("shop", "b"))).keys, [key(1, 1)]);
    index.replace_conflicts(&key(1, 0), std::slice::from_ref(&target), &[]);
    index.replace(&"podset".into(), &key(1, 1), Some(&whole), &mut read(|_| ()));
    assert_eq!(index.affected(&new(&pod())).keys, [key(1, 1)]);
    assert!(index.whole.is_empty());
}

#[test]
fn q4_what_one_controller_reads_of_a_change_is_bounded_and_the_others_lose_nothing() {
    let (mut index, access) = (DependencyIndex::default(), access());
    for number in 0..1_000 {
        let own_field = query(pods(), "", None, &format!("spec.f{number}"));
        index.insert(&"podset".into(), &key(1, number), &mut read_as("77", &access, |view| list(view, &own_field)));
    }
    let other = query(pods(), "", None, "spec.other");
    index.insert(&"podset".into(), &key(2, 0), &mut read(|view| list(view, &other)));
    let irrelevant = change(pod().body(r#""status":{"a":1}"#), pod().body(r#""status":{"a":2}"#));
    let affected = index.affected(&irrelevant);
    // Each projects two objects of less than a KiB.
    assert_eq!(text(&affected), format!("1001/{}", 1_000 - MAX_CUTS_PER_CHANGE / 32));
    assert!(affected.keys.iter().all(|key| key.controller == ControllerId(1)));
    let costs_us = affected.compared.values().map(Compared::cost_us).collect::<Vec<_>>();
    assert_eq!(costs_us, [1_000 + MAX_CUTS_PER_CHANGE / CUTS_PER_US, 1 + 32 / CUTS_PER_US]);
    let not_selected = change(pod(), Sample::pod("shop", "b"));
    let mut index = DependencyIndex::default();
    for number in 0..10_000 {
        let selector = query(pods(), &format!("app!=v,app=v,l{number}"), None, "spec.x");
        index.insert(&"podset".into(), &key(1, number), &mut read_as("77", &access, |view| list(view, &selector)));
    }
    assert_eq!(index.affected(&not_selected).keys, [], "a selector that does not match spends no budget");
}

/// A seeded generator, so that failures repeat.
struct Seed(u64);

impl Seed {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    fn pod(&mut self) -> Sample {
        let mut sample = Sample::pod(["shop", "market"][self.below(2)], ["a", "b"][self.below(2)]).body(&format!(
            r#""spec":{{"x":{}}},"status":{{"y":{}}}"#,
            self.below(2),
            self.below(2)
        ));
        for label in 0..self.below(4) {
            sample = sample.label(&format!("l{label}"), ["1", "2"][self.below(2)]);
        }
        if self.below(2) > 0 { sample.owner(["1", "2"][self.below(2)]) } else { sample }
    }

    fn change(&mut self) -> Change {
        let before = self.pod().build();
        let mut after = self.pod().version(2).build();
        after.name = before.name.clone();
        let (before, after) = (Some(Arc::new(before)), Some(Arc::new(after)));
        match self.below(4) {
            0 => Change { before, after: None },
            1 => Change { before: None, after },
            _ => Change { before, after },
        }
    }

    fn dependencies(&mut self, access: &Arc<Access>) -> Dependencies {
        let reads = self.below(4);
        let uid = ["1", "2"][self.below(2)];
        read_as(uid, access, |view| {
            for _ in 0..reads {
                let field = ["spec.x", "status.y"][self.below(2)];
                let selector = ["", "l0=1", "l1=2,l0=1", "l1!=1", "l2"][self.below(5)];
                let mut query = query(pods(), selector, [None, Some("shop")][self.below(2)], field);
                for _ in 0..self.below(3) {
                    let path =
                        format!("{}{}", ["spec.x", "spec.z"][self.below(2)], ["", "1", "2", "3", "4"][self.below(5)]);
                    query.field_selector.push((path, FieldValue::Integer([0, 1][self.below(2)])));
                }
                match self.below(5) {
                    0 => drop(view.get(&pod().build().reference(), &[]).unwrap()),
                    4 => _ = view.count(&query).unwrap(),
                    1 => drop(view.owned(&pods(), &[field.to_owned()]).unwrap()),
                    2 => drop(view.keys(&query).unwrap()),
                    _ => list(view, &query),
                }
            }
        })
    }
}

#[test]
fn w1_the_index_finds_the_keys_that_a_look_at_every_dependency_finds() {
    let (mut seed, access) = (Seed(1), access());
    let mut index = DependencyIndex::default();
    let mut sets: BTreeMap<Key, Dependencies> = BTreeMap::new();
    for _ in 0..2_000 {
        let key = key(u32::try_from(seed.below(3)).unwrap(), seed.below(20));
        let before = sets.remove(&key);
        if seed.below(4) > 0 {
            let mut after = seed.dependencies(&access);
            index.replace(&"podset".into(), &key, before.as_ref(), &mut after);
            sets.insert(key, after);
        } else if let Some(before) = before {
            index.remove(&key, &before);
        }
        let change = seed.change();
        let budget = Budget::unlimited();
        let affected = |set: &Dependencies| set.iter().any(|(dependency, _)| dependency.is_affected(&change, &budget));
        let expected: Vec<_> = sets.iter().filter(|(_, set)| affected(set)).map(|(key, _)| key.clone()).collect();
        assert_eq!(index.affected(&change).keys, expected, "{change:?}");
    }
    sets.iter().for_each(|(key, set)| index.remove(key, set));
    assert!(index.places.is_empty() && index.postings.is_empty() && index.selected.is_empty());
    assert_eq!(index.free.len(), index.entries.len());
}

#[test]
fn the_dependencies_of_a_key_take_few_bytes() {
    const KEYS: usize = 10_000;
    let snapshot = Snapshot::of(&[pods(), nodes()], []);
    let primary = |number| Sample::new("Set", "shop", &format!("set-{number}")).uid(&format!("6fa3c1de-{number:027}"));
    let primaries: Vec<_> = (0..KEYS).map(|number| primary(number).shared()).collect();
    let bytes = |reads: &dyn Fn(&mut View)| {
        let (mut index, access) = (DependencyIndex::default(), access());
        let (Count { held_bytes, .. }, _sets) = counted(|| {
            let set = |primary: &Arc<Object>| {
                let mut view = View::new(snapshot.clone(), Arc::clone(primary), Arc::clone(&access), 5, "{}".into());
                reads(&mut view);
                let mut set = view.into_dependencies();
                index.insert(
                    &"podset".into(),
                    &Key { controller: ControllerId(1), name: primary.name.clone() },
                    &mut set,
                );
                set
            };
            primaries.iter().map(set).collect::<Vec<_>>()
        });
        held_bytes.cast_unsigned() / KEYS
    };
    let shared = query(nodes(), "", None, "spec.x");
    let own_pods = |view: &mut View| drop(view.owned(&pods(), &["status.phase".to_owned()]).unwrap());
    let own_label = |view: &mut View| {
        let selector = format!("app={}", view.primary().name.name);
        list(view, &query(pods(), &selector, None, "spec.x"));
    };
    let figures = [
        bytes(&|view| list(view, &shared)),
        bytes(&own_pods),
        bytes(&|view| {
            own_pods(view);
            list(view, &shared);
        }),
        bytes(&own_label),
    ];
    assert!(figures.iter().zip([250, 450, 600, 800]).all(|(bytes, most)| *bytes <= most), "{figures:?}");
}
