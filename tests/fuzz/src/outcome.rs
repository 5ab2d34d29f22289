//! An outcome to its plan: what a guest returned is checked, compared with a cluster and written to it until nothing is
//! missing. The fuzzer begins at the host's own type of an outcome: in front of it is only wasmtime's, which has the same
//! fields. `outcome/case.rs` makes an outcome and a cluster of an input, `outcome/cluster.rs` is the cluster, and
//! `outcome/rules.rs` what every write has to keep.

use std::collections::BTreeSet;

use arbitrary::Unstructured;
use mortise_core::contract::{Action, GuestFault, Outcome};
use mortise_core::eviction::Blocked;
use mortise_core::limits::{MAX_CHILDREN, MAX_CONDITIONS, MAX_EVENTS, MAX_STATUS_BYTES};
use mortise_core::plan::{self, Applied, Creates, Memory, Prepared, Sent, UnknownCreates};
use mortise_core::spared::Spared;

use crate::cost::{self, Bound};
use crate::tree_bytes::tree_bytes;
use crate::worst::Maker;

use self::case::Case;
use self::cluster::Cluster;

mod case;
mod cluster;
mod rules;

/// The field manager of the plugin.
const MANAGER: &str = "mortise/podset";
/// The time of all plans: no generated value becomes due.
const NOW_UNIX_MS: u64 = 1_700_000_000_000;
/// Trees of one object at a time, while an outcome is checked: the guest's and what is sent.
const TREES: usize = 3;
/// Of each byte of the guest's texts, beside these: their copies, one of which grows by doubling.
const TEXTS_FACTOR: usize = 8;
/// The message of a fault is a line of a KiB.
const MAX_MESSAGE_BYTES: usize = 8 << 10;
/// Plans until nothing is missing. Each group takes some, and a child at most a delete, a create, an apply and a removal.
const MAX_ROUNDS: usize = 40;

pub(crate) fn run(input: &[u8]) {
    let case = match Maker::of(input) {
        Some(mut maker) => Case::made(&mut maker),
        None => Case::read(&mut Unstructured::new(input)),
    };
    let Ok(case) = case else { return };
    let Case { spec, primary, outcome, live } = &case;
    let prepare = || plan::prepare(spec, primary, outcome, None);
    let kept = |prepared: &Result<Prepared, GuestFault>| match prepared {
        Ok(prepared) => prepared.bytes(),
        Err(_) => MAX_MESSAGE_BYTES,
    };
    let texts = Vec::from_iter(texts(outcome));
    let input: usize = texts.iter().map(|text| text.len()).sum();
    // One object after the other is a tree, and its body another one; all that is left of them is text.
    let trees = texts.iter().map(|text| tree_bytes(text.as_bytes())).max().unwrap_or_default();
    let peak = kept(&prepare()) + TREES * trees + TEXTS_FACTOR * input;
    match cost::within("preparing an outcome", Bound { input, peak }, prepare, kept) {
        Ok(prepared) => {
            let again = plan::prepare(spec, primary, outcome, Some(&prepared));
            assert_eq!(again.as_ref(), Ok(&prepared), "an outcome that is returned twice");
            check_bounds(&case, &prepared);
            let mut cluster = Cluster::new(&case.kinds(), live);
            check_actions(&case, &prepared, &cluster);
            reconcile(&case, &prepared, &mut cluster);
        }
        Err(GuestFault::BadOutcome { message }) => {
            assert!(!message.is_empty() && message.len() <= 8 << 10, "a message of {} bytes", message.len());
        }
        Err(other) => panic!("{other:?} is no fault of an outcome"),
    }
}

/// All texts that the guest wrote.
fn texts(outcome: &Outcome) -> impl Iterator<Item = &str> {
    let children = outcome.children.iter().flatten().flat_map(|child| [&*child.object, &*child.key]);
    let actions = outcome.actions.iter().filter_map(|action| match action {
        Action::Apply { object: text, .. } | Action::Patch { body: text, .. } => Some(&**text),
        Action::Delete { .. } | Action::Evict { .. } => None,
    });
    let conditions = outcome.conditions.iter().flat_map(|it| [&*it.name, &*it.reason, &*it.message]);
    let events = outcome.events.iter().flat_map(|it| [&*it.reason, &*it.message]);
    let requests = outcome.requests.iter().map(|request| &*request.url);
    children.chain(actions).chain(outcome.status.as_deref()).chain(conditions).chain(events).chain(requests)
}

/// The results of earlier writes, as a key remembers them.
#[derive(Default)]
struct Remembered {
    applied: Applied,
    exact: Applied,
    sent: Sent,
}

const NONE_UNKNOWN: &UnknownCreates = &UnknownCreates::new();

impl Remembered {
    fn memory<'a>(&'a mut self, blocked: &'a Blocked) -> Memory<'a> {
        let creates = Creates { inherited: false, unknown: NONE_UNKNOWN };
        Memory {
            applied: &mut self.applied,
            exact: &mut self.exact,
            sent: &mut self.sent,
            blocked,
            creates,
            spared: Spared::default(),
        }
    }
}

fn check_bounds(case: &Case, prepared: &Prepared) {
    let children = prepared.children.as_deref().unwrap_or_default();
    assert!(children.len() <= MAX_CHILDREN && prepared.status.as_deref().map_or(0, str::len) <= MAX_STATUS_BYTES);
    assert!(prepared.conditions.len() <= MAX_CONDITIONS && prepared.events.len() <= MAX_EVENTS);
    let targets: BTreeSet<_> = children.iter().map(|child| &child.target).collect();
    assert_eq!(targets.len(), children.len(), "each child has an object of its own");
    for child in children {
        let owned = case.spec.owned(&child.target.kind).expect("a child is of an owned kind");
        let namespace = &child.target.name.namespace;
        assert!(owned.tracked || *namespace == case.primary.name.namespace, "{:?}", child.target);
        assert!(owned.scope.has_namespace(namespace));
    }
    for request in &prepared.requests {
        let rule = case.spec.http.iter().find(|rule| rule.origin == request.origin);
        assert!(rule.is_some_and(|rule| rule.methods.contains(&request.method)), "{request:?}");
    }
}

fn check_actions(case: &Case, prepared: &Prepared, cluster: &Cluster) {
    let (mut remembered, blocked) = (Remembered::default(), Blocked::default());
    let snapshot = cluster.snapshot();
    let memory = remembered.memory(&blocked);
    let diff = plan::diff_actions(&prepared.actions, &case.spec, MANAGER, &snapshot, memory, NOW_UNIX_MS);
    for op in diff.changes.iter().chain(&diff.removals) {
        rules::check_action(case, &snapshot, op);
    }
}

/// Writes what is missing until nothing is. After a restart, when nothing is remembered, what is repeated changes nothing.
fn reconcile(case: &Case, prepared: &Prepared, cluster: &mut Cluster) {
    if settle(case, prepared, cluster).is_none() {
        return;
    }
    let before = cluster.text();
    if settle(case, prepared, cluster).is_some() {
        assert_eq!(cluster.text(), before, "a restart changes nothing");
    }
}

/// None when the cluster refuses a write.
fn settle(case: &Case, prepared: &Prepared, cluster: &mut Cluster) -> Option<()> {
    let (mut remembered, blocked) = (Remembered::default(), Blocked::default());
    for _ in 0..MAX_ROUNDS {
        let snapshot = cluster.snapshot();
        let memory = remembered.memory(&blocked);
        let diff = plan::diff(prepared, &case.spec, &case.primary, MANAGER, &snapshot, memory, NOW_UNIX_MS);
        rules::check_diff(case, &snapshot, &diff);
        if !diff.changes_what_is_read() {
            return Some(());
        }
        for op in diff.children.iter().chain(&diff.deletes) {
            let version = cluster.write(op)?;
            remembered.remember(op, version);
        }
    }
    panic!("no end after {MAX_ROUNDS} plans of {:?}", case.outcome);
}
