//! The cost of the cache in bytes and allocations, which do not depend on the machine.

use super::*;
use crate::allocations::{Count, counted};
use crate::object::Interner;
use crate::object::owner::Owner;

/// A pod like those of a Deployment: 5.4 KB without managedFields.
fn pod_text(number: usize) -> String {
    let environment: Vec<_> = (0..80)
        .map(|index| format!(r#"{{"name":"VARIABLE_{index}","value":"value of number {index}, some text"}}"#))
        .collect();
    Sample::pod("shop", &format!("web-7c9d6f5b8-{number:05}"))
        .uid(&format!("6fa3c1de-2b7e-4c0a-9f1e-{number:012}"))
        .version(1_000_000 + number as u64)
        .label("app.kubernetes.io/name", "web")
        .label("app.kubernetes.io/managed-by", "mortise")
        .label("pod-template-hash", "7c9d6f5b8")
        .owner(&format!("0d5c1b7e-9a58-4b1c-8a0f-{:012}", number / 3))
        .body(&format!(
            r#""spec":{{"containers":[{{"name":"c","image":"registry.example.com/web:1.2.3","env":[{}]}}]}},"status":{{"phase":"Running"}}"#,
            environment.join(",")
        ))
        .text()
}

fn filled(pods: usize) -> (Store, Interner) {
    let (mut store, mut interner) = (Store::new(), Interner::default());
    for number in 0..pods {
        store.list_item(Object::decode(pod_text(number).as_bytes(), &mut interner).unwrap());
    }
    (store, interner)
}

#[test]
fn a_cached_pod_takes_at_most_1_3_times_its_text() {
    const PODS: usize = 3_000;
    let text: usize = (0..PODS).map(|number| pod_text(number).len()).sum();
    assert!((5_000..5_800).contains(&(text / PODS)), "the pods are of {} bytes", text / PODS);
    let (Count { held_bytes: held, .. }, _store) = counted(|| filled(PODS));
    let ratio = held as f64 / text as f64;
    assert!(
        ratio < 1.3,
        "{ratio:.3} times {} bytes: {} more for each",
        text / PODS,
        (held - text.cast_signed()) / 3_000
    );
}

#[test]
fn p18_an_object_of_many_labels_takes_a_few_times_its_text() {
    const LABELS: usize = 50_000;
    let text = (0..LABELS).fold(Sample::pod("shop", "a"), |pod, number| pod.label(&format!("l{number}"), "")).text();
    let (Count { held_bytes: held, .. }, _kept) = counted(|| {
        let (mut store, mut interner) = (Store::new(), Interner::default());
        store.list_item(Object::decode(text.as_bytes(), &mut interner).unwrap());
        (store, interner)
    });
    let ratio = held as f64 / text.len() as f64;
    assert!(ratio < 6.0, "{ratio:.1} times {} bytes", text.len());
}

#[test]
fn a_snapshot_allocates_nothing() {
    let (store, _) = filled(2_000);
    let (count, _snapshot) = counted(|| store.snapshot());
    assert_eq!(count.allocations, 0);
}

#[test]
fn decoding_allocates_only_what_the_object_keeps() {
    let mut interner = Interner::default();
    Object::decode(pod_text(0).as_bytes(), &mut interner).unwrap();
    let text = pod_text(1);
    let (Count { allocations, .. }, _object) = counted(|| Object::decode(text.as_bytes(), &mut interner).unwrap());
    // The text, the name, the uid, the labels as parsed and as kept, and the parser's stack.
    assert!(allocations <= 6, "{allocations} allocations");
}

#[test]
fn an_event_after_a_snapshot_copies_a_path_of_the_table() {
    let (mut store, mut interner) = filled(10_000);
    for number in [0, 5_000, 9_999] {
        let text = pod_text(number).replace(r#""resourceVersion":"1"#, r#""resourceVersion":"2"#);
        let object = Object::decode(text.as_bytes(), &mut interner).unwrap();
        let snapshot = store.snapshot();
        let (Count { held_bytes, allocations, .. }, change) = counted(|| store.apply(object));
        assert!(change.before.is_some());
        assert!(held_bytes < 4_096 && allocations <= 8, "{held_bytes} bytes in {allocations} allocations");
        drop(snapshot);
    }
}

#[test]
fn an_event_touches_only_the_labels_that_changed() {
    let many = |changed: &str| {
        (0..10_000).fold(Sample::pod("shop", "a").label("changed", changed), |pod, n| pod.label(&format!("l{n}"), "v"))
    };
    let (mut store, mut interner) = (Store::new(), Interner::default());
    let mut decode = |sample: Sample| Object::decode(sample.text().as_bytes(), &mut interner).unwrap();
    store.apply(decode(many("a")));
    let after = decode(many("b").version(2));
    // A live snapshot makes the writer copy each part of the index that it touches.
    let snapshot = store.snapshot();
    let (Count { allocated_bytes, .. }, change) = counted(|| store.apply(after));
    assert!(change.before.is_some() && allocated_bytes < 16_384, "{allocated_bytes} bytes");
    let found =
        |snapshot: &Snapshot, selector: &str| snapshot.list(&pods(), None, &Selector::parse(selector).unwrap()).count();
    assert_eq!(["changed=a", "changed=b", "l77=v"].map(|selector| found(&snapshot, selector)), [1, 0, 1]);
    assert_eq!(["changed=a", "changed=b", "l77=v"].map(|selector| found(&store.snapshot(), selector)), [0, 1, 1]);
}

#[test]
fn a_query_costs_what_its_narrowest_index_finds() {
    let (mut store, mut interner) = filled(10_000);
    let rare = pod_text(10_000).replace(r#""pod-template-hash":"7c9d6f5b8""#, r#""pod-template-hash":"rare""#);
    store.list_item(Object::decode(rare.as_bytes(), &mut interner).unwrap());
    store.list_item(Sample::pod("small", "only").label("app.kubernetes.io/name", "web").build());
    let snapshot = store.snapshot();
    for (namespace, selector) in [
        (None, "app.kubernetes.io/name=web,pod-template-hash=rare"),
        (Some("shop"), "app.kubernetes.io/name=web,pod-template-hash=rare,app.kubernetes.io/managed-by=mortise"),
        (Some("small"), "app.kubernetes.io/name=web"),
        (Some("small"), ""),
    ] {
        let selector = Selector::parse(selector).unwrap();
        // Every visited slot is put into a list, so a walk of the 10,000 would allocate 40 KB.
        let (Count { allocated_bytes, .. }, found) = counted(|| snapshot.list(&pods(), namespace, &selector).count());
        assert_eq!(found, 1);
        assert!(allocated_bytes < 4_096, "{allocated_bytes} bytes for {selector} in {namespace:?}");
    }
}

#[test]
fn a_second_projection_of_unchanged_children_copies_no_text() {
    let (store, _) = filled(30);
    let snapshot = store.snapshot();
    let fields = crate::projection::Projection::parse(&["status.phase".to_owned()]).unwrap();
    let owner = Owner { uid: "0d5c1b7e-9a58-4b1c-8a0f-000000000000".into(), namespace: None };
    let hashes = || snapshot.owned(&pods(), &owner).map(|pod| fields.projected_hash(pod)).collect::<Vec<_>>();
    assert_eq!(hashes().len(), 3);
    let (Count { allocations, .. }, _) = counted(hashes);
    assert!(allocations <= 6, "{allocations} allocations");
}
