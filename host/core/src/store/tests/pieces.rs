//! Lists that end and watches that stop, in pieces.

use super::*;
use crate::store::pieces::Ended;

const OBJECTS: usize = 1_000;

/// A store that has listed so many Pods at version 10, in this slice.
fn listed(slice: &Slice) -> Store {
    let mut store = Store::new();
    store.begin_list(slice.clone());
    for number in 0..OBJECTS {
        store.list_item_of(slice, Sample::pod("a", &format!("p{number}")).version(5).build());
    }
    store.end_list(slice.clone(), ResourceVersion(10));
    store
}

fn slice(text: &str) -> Slice {
    crate::scope::tests::slice(pods(), text)
}

#[test]
fn r6_what_a_list_lacks_leaves_object_by_object_and_the_list_is_complete_when_all_has_left() {
    for of in ["*", "a"] {
        let slice = slice(of);
        let mut store = listed(&slice);
        store.rewind(&pods());
        store.begin_list(slice.clone());
        store.list_item_of(&slice, Sample::pod("a", "p500").version(5).build());
        store.begin_end(&slice, ResourceVersion(20));
        let (mut lost, mut pieces) = (0, 0);
        let ended = loop {
            let mut looks = 64;
            pieces += 1;
            let ended = loop {
                match store.end_next(&slice, &mut looks) {
                    Ended::Lost(change) => {
                        assert!(change.after.is_none() && change.before.is_some());
                        lost += 1;
                    }
                    ended => break ended,
                }
            };
            if !matches!(ended, Ended::NotYet) {
                break ended;
            }
            assert_eq!(looks, 0);
            assert!(!store.synced(slice.clone()), "R4: it is not complete");
        };
        assert!(matches!(ended, Ended::Complete) && store.synced(slice.clone()));
        assert_eq!((lost, pieces), (OBJECTS - 1, OBJECTS.div_ceil(64)), "{of}");
        assert!(matches!(store.end_next(&slice, &mut 1), Ended::Abandoned));
    }
}

#[test]
fn r2_events_that_come_before_a_list_is_complete_count_when_it_is() {
    for of in ["*", "a"] {
        let slice = slice(of);
        let mut store = listed(&slice);
        store.begin_list(slice.clone());
        store.begin_end(&slice, ResourceVersion(20));
        assert!(matches!(store.end_next(&slice, &mut 1), Ended::Lost(_)));
        let apply = |store: &mut Store, name: &str, version| {
            text(&store.apply_of(&slice, Sample::pod("a", name).version(version).build()))
        };
        assert_eq!(apply(&mut store, "p999", 25), "~a/p999@5>25", "it exists");
        assert_eq!(apply(&mut store, "new", 26), "+a/new@26");
        assert_eq!(apply(&mut store, "p998", 15), "", "R3: the list shows that it is gone since");
        assert_eq!(text(&store.remove(slice.clone(), &name("a/p997"), ResourceVersion(27))), "-a/p997@5");
        let progress = |store: &Store| store.snapshot().progress(&pods(), &"a".into());
        assert_eq!(progress(&store), Some(ResourceVersion(10)), "before, it is not known what is gone");
        while matches!(store.end_next(&slice, &mut 1_000), Ended::Lost(_)) {}
        assert_eq!(names(store.snapshot().list(&pods(), None, &Selector::default())), "a/new a/p999");
        assert_eq!(progress(&store), Some(ResourceVersion(27)));
        assert_eq!(apply(&mut store, "p1", 12), "", "R3");
    }
}

#[test]
fn another_list_that_begins_replaces_one_that_is_not_complete() {
    let mut store = listed(&slice("*"));
    store.begin_list(slice("*"));
    store.begin_end(&slice("*"), ResourceVersion(20));
    assert!(matches!(store.end_next(&slice("*"), &mut 1), Ended::Lost(_)));
    store.begin_list(slice("*"));
    assert!(matches!(store.end_next(&slice("*"), &mut 1), Ended::Abandoned));
    store.list_item(Sample::pod("a", "p7").version(5).build());
    assert_eq!(store.end_list(slice("*"), ResourceVersion(30)).len(), OBJECTS - 2);
}

#[test]
fn what_no_watch_shows_leaves_in_pieces_and_what_another_one_shows_again_stays() {
    let mut store = listed(&slice("a"));
    store.begin_list(slice("b"));
    store.list_item_of(&slice("b"), Sample::pod("b", "y").version(5).build());
    store.end_list(slice("b"), ResourceVersion(10));
    assert!(store.drop_slice(&slice("a")).is_none(), "b is shown still");
    let left = |store: &Store| store.snapshot().len(&pods());
    assert_eq!(left(&store), OBJECTS + 1);
    assert_eq!(store.drop_next(320), 0);
    assert!((OBJECTS - 11..OBJECTS).contains(&left(&store)), "{} are left", left(&store));
    // Somebody reads a again: its list shows what there is.
    store.begin_list(slice("a"));
    let before = left(&store);
    assert!(store.drop_next(usize::MAX) > 0 && !store.is_dropping());
    assert_eq!(left(&store), before);
    assert_eq!(store.end_list(slice("a"), ResourceVersion(30)).len(), before - 1);
}
