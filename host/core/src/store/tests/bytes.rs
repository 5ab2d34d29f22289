//! What the cache costs, in bytes and allocations: counted, never timed, so it is the same on every machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::*;
use crate::object::Interner;

thread_local! {
    /// Bytes that this thread holds, and how often it has asked for some.
    static COUNT: Cell<(isize, usize)> = const { Cell::new((0, 0)) };
}

/// The system's allocator, counted for each thread: tests run beside each other.
struct Counting;

/// What glibc's malloc takes for a request: a header of eight bytes, in steps of sixteen, 32 at least.
fn taken(size: usize) -> isize {
    (size + 8).next_multiple_of(16).max(32).cast_signed()
}

fn count(bytes: isize, allocations: usize) {
    // A thread that is ending has no count any longer.
    _ = COUNT.try_with(|count| {
        let (held, asked) = count.get();
        count.set((held + bytes, asked + allocations));
    });
}

#[expect(unsafe_code, reason = "an allocator can only be wrapped by one")]
// SAFETY: every request goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(taken(layout.size()), 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-taken(layout.size()), 0);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that are held afterwards and were not before, and allocations on the way.
fn counted<T>(work: impl FnOnce() -> T) -> (isize, usize, T) {
    let (held, asked) = COUNT.get();
    let result = work();
    let (held_now, asked_now) = COUNT.get();
    (held_now - held, asked_now - asked, result)
}

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
        store.apply(Object::decode(pod_text(number).as_bytes(), &mut interner).unwrap());
    }
    (store, interner)
}

#[test]
fn a_cached_pod_holds_at_most_1_3_times_its_text() {
    const PODS: usize = 3_000;
    let text: usize = (0..PODS).map(|number| pod_text(number).len()).sum();
    assert!((5_000..5_800).contains(&(text / PODS)), "the pods are of {} bytes", text / PODS);
    let (held, _, _store) = counted(|| filled(PODS));
    let ratio = held as f64 / text as f64;
    assert!(
        ratio < 1.3,
        "{ratio:.3} times {} bytes: {} more for each",
        text / PODS,
        (held - text.cast_signed()) / 3_000
    );
}

#[test]
fn a_snapshot_allocates_nothing_however_much_there_is() {
    let (store, _) = filled(2_000);
    let (held, allocations, _snapshot) = counted(|| store.snapshot());
    assert_eq!((held, allocations), (0, 0));
}

#[test]
fn decoding_allocates_only_what_the_object_keeps() {
    let mut interner = Interner::default();
    Object::decode(pod_text(0).as_bytes(), &mut interner).unwrap();
    let text = pod_text(1);
    let (_, allocations, _object) = counted(|| Object::decode(text.as_bytes(), &mut interner).unwrap());
    // The text, the name, the uid, the list of labels (as it is read and as it is kept), and the parser's stack.
    assert!(allocations <= 6, "{allocations} allocations");
}

#[test]
fn an_event_after_a_snapshot_copies_a_path_and_not_the_table() {
    let (mut store, mut interner) = filled(10_000);
    for number in [0, 5_000, 9_999] {
        let text = pod_text(number).replace(r#""resourceVersion":"1"#, r#""resourceVersion":"2"#);
        let object = Object::decode(text.as_bytes(), &mut interner).unwrap();
        let snapshot = store.snapshot();
        let (held, allocations, change) = counted(|| store.apply(object));
        assert!(change.before.is_some());
        assert!(held < 96, "{held} bytes in {allocations} allocations");
        drop(snapshot);
    }
}

#[test]
fn a_second_look_at_unchanged_children_copies_no_text() {
    let (store, _) = filled(30);
    let snapshot = store.snapshot();
    let fields = crate::projection::Projection::parse(&["status.phase".to_owned()]).unwrap();
    let owner = "0d5c1b7e-9a58-4b1c-8a0f-000000000000";
    let look = || snapshot.owned(&pods(), owner).map(|pod| fields.projected_hash(pod)).collect::<Vec<_>>();
    assert_eq!(look().len(), 3);
    let (_, allocations, _) = counted(look);
    assert!(allocations <= 6, "{allocations} allocations");
}
