//! What one plugin makes the Reconciler keep at the edges of its bounds, with the worst content: bytes as the allocator gave them.

use super::*;
use crate::allocations::counted;
use crate::contract::{Condition, ConditionStatus, GuestEvent};
use crate::engine::reconciler::kept_calls::BOUNDS;
use crate::http::Request;
use crate::limits::{MAX_CONDITIONS, MAX_EVENTS, MAX_STATUS_BYTES};

/// What every key takes, whatever its plugin does: its state and its places in the queue and in tables.
const KEY_BYTES: usize = 8 << 10;

impl Alone {
    /// A host with so many objects of a plugin.
    fn with_objects(objects: usize) -> Self {
        let mut alone = Self::serving(&[]);
        (0..objects).for_each(|number| alone.put(object("PodSet", &format!("object-{number}"))));
        alone
    }

    /// All calls return, and all writes succeed.
    fn return_all(&mut self, outcome: impl Fn(usize) -> Outcome, reads: impl Fn(usize, &mut View)) {
        let mut number = 0;
        while !self.calls.is_empty() {
            self.returns_with(CallResult::Done(outcome(number)), |view| reads(number, view));
            number += 1;
            while let Some(write) = self.sent.pop_front() {
                self.version += 1;
                let written = Written { uid: "uid".into(), resource_version: ResourceVersion(self.version) };
                self.wrote(write, Ok(written));
            }
        }
    }

    /// What the Reconciler holds, in bytes of the allocator, and what it has counted.
    fn held(mut self) -> (usize, usize) {
        self.requested.clear();
        let counted_bytes = self.reconciler.kept_bytes.total();
        let (count, ()) = counted(|| drop(self.reconciler));
        (count.held_bytes.unsigned_abs(), counted_bytes)
    }
}

/// A status of many bytes of tree: each of its values is a map with an empty key.
pub(super) fn maps(bytes: usize) -> Arc<str> {
    format!(r#"{{"a":[{}]}}"#, vec![r#"{"":0}"#; (bytes - 8) / 7].join(",")).into()
}

#[test]
fn p7_p18_a_status_is_kept_as_its_text_however_many_values_it_has() {
    const OBJECTS: usize = 150;
    let status = maps(MAX_STATUS_BYTES / 4);
    let mut alone = Alone::with_objects(OBJECTS);
    alone.return_all(|_| Outcome { status: Some(status.to_string().into()), ..Outcome::default() }, |_, _| ());
    let (held, counted) = alone.held();
    println!("150 statuses of {} bytes: counted {counted}, allocated {held}", status.len());
    assert!((OBJECTS * status.len()..BOUNDS.share / 2).contains(&counted), "{counted} bytes");
    assert!(held <= counted + counted / 2 + OBJECTS * KEY_BYTES, "{held} bytes of {counted} that were counted");
}

#[test]
fn p7_p18_a_name_in_an_event_that_no_object_can_have_is_refused_and_nothing_of_it_is_kept() {
    const OBJECTS: usize = 600;
    let about = |name: &str| ObjectRef { kind: kind("Secret"), name: Name::new("default", name) };
    let event = |name: &str| GuestEvent {
        warning: false,
        reason: "Said".to_owned(),
        message: String::new(),
        regarding: Some(about(name)),
    };
    let mut alone = Alone::with_objects(OBJECTS);
    let name = "n".repeat((4 << 20) - 1_024);
    alone.return_all(|_| Outcome { events: vec![event(&name)], ..Outcome::default() }, |_, _| ());
    assert_eq!(alone.recorded.iter().filter(|reason| *reason == "BadOutcome").count(), OBJECTS);
    let (held, counted) = alone.held();
    println!("600 names of {} bytes: counted {counted}, allocated {held}", name.len());
    assert!(held <= OBJECTS * KEY_BYTES, "{held} bytes");
}

/// An outcome at the edge of all bounds of its parts, which shares no text with others.
fn worst(number: usize) -> Outcome {
    let long = |of: &str, bytes: usize| format!("{of}{number:0bytes$}");
    let condition = |at: usize| Condition {
        name: format!("C{at}{}", "n".repeat(100)),
        status: ConditionStatus::True,
        reason: format!("R{}", "r".repeat(127)),
        message: "ä".repeat(1_000),
    };
    let event = |at: usize| GuestEvent {
        warning: true,
        reason: format!("R{}", "r".repeat(127)),
        message: long("m", 1_000),
        regarding: Some(ObjectRef {
            kind: kind("Secret"),
            name: Name::new(&"s".repeat(253), &format!("{at}{}", "n".repeat(240))),
        }),
    };
    let request = |at: usize| Request {
        headers: (0..32).map(|header| (format!("h{header}").into(), long("v", 200).into())).collect(),
        ..Request::get(format!("{at}{}", "k".repeat(240)), format!("https://api.example.com/{}", "p".repeat(4_000)))
    };
    let child = |at: usize| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": long("v", 100)}});
        Child {
            exact: vec![["a"; 16].join(".").into(); 16],
            ..Child::new(long(&at.to_string(), 200), object.to_string())
        }
    };
    Outcome {
        status: Some(maps(16 << 10)),
        conditions: (0..MAX_CONDITIONS).map(condition).collect(),
        events: (0..MAX_EVENTS).map(event).collect(),
        requests: (0..16).map(request).collect(),
        children: Some((0..5).map(child).collect()),
        ..Outcome::default()
    }
}

#[test]
fn p7_p18_a_plugin_at_the_edge_of_every_bound_has_no_more_memory_than_their_sum() {
    const OBJECTS: usize = 250;
    let mut alone = Alone::with_objects(OBJECTS);
    alone.return_all(worst, |number, view| {
        for read in 0..300 {
            let name = format!("{number}-{read}-{}", "n".repeat(230));
            view.get(&ObjectRef { kind: kind("Secret"), name: Name::new("default", &name) }, &[]).unwrap();
        }
        for query in 0..2 {
            let fields = vec![format!("f{number}.{query}{}", ".x".repeat(100))];
            let selector = Some(format!("!l{number}-{query}"));
            view.count(&Query { fields, selector, ..Query::all(kind("Secret")) }).unwrap();
        }
    });
    let (held, counted) = alone.held();
    println!("250 of the worst outcomes: counted {counted}, allocated {held}");
    assert!(counted > BOUNDS.share * 9 / 10, "the bound was not reached: {counted} bytes");
    let most = BOUNDS.share + exchanges::BOUNDS.share;
    assert!(held <= most + most / 2 + OBJECTS * KEY_BYTES, "{held} bytes of {most}");
}
