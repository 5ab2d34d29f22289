//! Several watches that show parts of one kind.

use super::*;

fn slice(text: &str) -> Slice {
    crate::scope::tests::slice(pods(), text)
}

/// Events of the watches before the colons: "a: begin", "*: item a/x@3".
fn run_all(store: &mut Store, events: &[&str]) -> String {
    for event in events {
        let (of, event) = event.split_once(": ").unwrap();
        let (event, version) = event.split_once('@').unwrap_or((event, "0"));
        let version = ResourceVersion(version.parse().unwrap());
        let (slice, (verb, target)) = (slice(of), event.split_once(' ').unwrap_or((event, "")));
        let object = || {
            let Name { namespace, name } = name(target);
            let namespace = if &*namespace == "a" { "a" } else { "b" };
            Sample::pod(namespace, &name).version(version.0).build()
        };
        match verb {
            "begin" => store.begin_list(&slice),
            "item" => _ = store.list_item_of(&slice, object()),
            "end" => {
                assert!(!store.is_contradicted(&slice, version), "{event} of {of}");
                store.end_list(&slice, version);
            }
            "apply" => _ = store.apply_of(&slice, object()),
            "remove" => _ = store.remove(&slice, &name(target), version),
            "bookmark" => store.progress(&slice, version),
            "drop" => {
                drop(store.drop_slice(&slice));
                store.drop_next(usize::MAX);
            }
            _ => panic!("no such event: {event}"),
        }
    }
    names(store.snapshot().list(&pods(), None, &Selector::default()))
}

fn check_all(events: &[&str], expected: &str) {
    assert_eq!(run_all(&mut Store::new(), events), expected, "{events:?}");
}

fn progress(store: &Store, namespace: &str) -> Option<u64> {
    store.snapshot().progress(&pods(), &namespace.into()).map(|version| version.0)
}

fn has_listed(store: &Store, namespaces: &[&str], labels: &str) -> bool {
    store.snapshot().has_listed(&pods(), &crate::scope::tests::scope(namespaces, labels))
}

#[test]
fn r6_an_object_that_a_list_of_one_namespace_lacks_was_deleted_only_there() {
    let both = ["a: begin", "a: item a/x@1", "a: end@5", "b: begin", "b: item b/y@2", "b: end@6"];
    check_all(&both, "a/x b/y");
    check_all(&[&both[..], &["a: begin", "a: end@9"]].concat(), "b/y");
    // As after 410: the other watch continues meanwhile.
    check_all(
        &[&both[..], &["a: begin", "b: apply b/z@8", "b: remove b/y@9", "a: item a/w@7", "a: end@9"]].concat(),
        "a/w b/z",
    );
}

#[test]
fn r2_each_namespace_has_a_progress_of_its_own() {
    let mut store = Store::new();
    run_all(&mut store, &["a: begin", "a: end@5", "b: begin", "b: end@7", "a: bookmark@9"]);
    assert_eq!([progress(&store, "a"), progress(&store, "b"), progress(&store, "c")], [Some(9), Some(7), None]);
    // An event of one says nothing about the other.
    assert_eq!(run_all(&mut store, &["a: apply a/x@20", "b: apply b/y@8"]), "a/x b/y");
    assert_eq!([progress(&store, "a"), progress(&store, "b")], [Some(20), Some(8)]);
    run_all(&mut store, &["*: begin", "*: remove b/q@30"]);
    assert_eq!(progress(&store, "b"), Some(8), "during its list a watch promises nothing");
    run_all(&mut store, &["*: end@31"]);
    assert_eq!([progress(&store, "b"), progress(&store, "c")], [Some(31), Some(31)]);
}

#[test]
fn r4_a_scope_is_listed_when_each_of_its_namespaces_is() {
    let mut store = Store::new();
    run_all(&mut store, &["a: begin", "a: end@5", "b: begin"]);
    assert!(has_listed(&store, &["a"], "") && !has_listed(&store, &["a", "b"], "") && !has_listed(&store, &[], ""));
    run_all(&mut store, &["b: end@6"]);
    assert!(has_listed(&store, &["a", "b"], "") && has_listed(&store, &["a"], "x=1"));
    run_all(&mut store, &["*: begin", "*: end@7"]);
    assert!(has_listed(&store, &[], "") && has_listed(&store, &["c"], "") && store.synced(slice("*")));
}

#[test]
fn a_wider_watch_takes_over_without_a_gap_and_what_only_the_former_has_seen_is_kept() {
    let mut store = Store::new();
    run_all(&mut store, &["a: begin", "a: item a/x@1", "a: end@5", "*: begin", "*: item b/y@3"]);
    // The watch of a is ahead of the list of all, which ends at version 8.
    let merged = run_all(&mut store, &["a: apply a/new@10", "a: remove a/x@9", "*: item a/x@1", "*: end@8", "a: drop"]);
    assert_eq!(merged, "a/new b/y");
    assert_eq!(run_all(&mut store, &["*: remove a/x@9", "*: apply a/new@10"]), "a/new b/y");
    assert!(has_listed(&store, &["a"], "") && has_listed(&store, &[], ""));
}

#[test]
fn what_only_a_watch_that_ends_has_shown_leaves_the_cache_without_a_deletion() {
    let mut store = Store::new();
    run_all(&mut store, &["*: begin", "*: item a/x@1", "*: item b/y@2", "*: end@5"]);
    let before = store.snapshot();
    let left = run_all(&mut store, &["a: begin", "a: item a/x@1", "a: end@6", "*: drop"]);
    assert_eq!(left, "a/x");
    assert_eq!(before.len(&pods()), 2, "R1");
    assert!(has_listed(&store, &["a"], "") && !has_listed(&store, &["b"], ""));
    let changes: Vec<String> = store.changes_since(&pods(), before.changes(&pods())).unwrap().map(text).collect();
    assert_eq!(changes, ["-b/y@2"], "who still compares sees that it left");
    assert_eq!(run_all(&mut store, &["b: begin", "b: item b/y@2", "b: end@7"]), "a/x b/y", "it was not deleted");
    assert_eq!(run_all(&mut store, &["a: drop", "b: drop"]), "");
    assert_eq!(store.snapshot().changes(&pods()), 0, "the kind is forgotten");
}

#[test]
fn a_watch_with_other_labels_lists_anew_and_what_left_the_former_labels_comes_back() {
    let mut store = Store::new();
    run_all(&mut store, &["*?x: begin", "*?x: item a/x@1", "*?x: item a/y@2", "*?x: end@5", "*?x: remove a/x@6"]);
    assert!(has_listed(&store, &[], "x") && !has_listed(&store, &[], ""));
    // It lost the label at version 6. The list of all shows that state.
    let all = run_all(&mut store, &["*: begin", "*: item a/x@6", "*: item a/y@2"]);
    assert!(has_listed(&store, &[], "x") && !has_listed(&store, &[], ""), "{all}: the former list counts until then");
    assert_eq!(run_all(&mut store, &["*: end@9"]), "a/x a/y");
    assert!(has_listed(&store, &[], "x") && has_listed(&store, &[], "") && store.synced(slice("*")));
    assert_eq!(run_all(&mut store, &["*?x: begin", "*?x: item a/y@2", "*?x: end@12"]), "a/y");
    assert!(!has_listed(&store, &[], ""));
}

#[test]
fn a_slot_that_another_watch_uses_again_counts_for_its_new_object() {
    let mut store = Store::new();
    run_all(&mut store, &["a: begin", "a: item a/x@1", "a: end@2", "*: begin", "*: item a/x@1"]);
    let left = run_all(&mut store, &["a: remove a/x@3", "a: apply a/w@4", "*: end@5"]);
    assert_eq!(left, "", "the list of all lacks the object in the slot that it has seen before");
}

#[test]
fn r4_after_a_rewind_each_namespace_needs_a_list_of_its_own() {
    let mut store = Store::new();
    run_all(&mut store, &["a: begin", "a: item a/x@90", "a: end@90", "b: begin", "b: item b/y@91", "b: end@91"]);
    store.rewind(&pods());
    run_all(&mut store, &["a: begin", "a: item a/x@3", "a: end@5"]);
    assert!(has_listed(&store, &["a"], "") && !has_listed(&store, &["b"], ""));
    // Another watch notices the same restore later.
    store.rewind_slice(&slice("b"));
    assert!(has_listed(&store, &["a"], ""));
    assert_eq!(run_all(&mut store, &["b: apply b/z@99", "b: begin", "b: end@6"]), "a/x");
}
