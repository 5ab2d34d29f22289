//! An outcome to its plan: what a guest returned is checked, compared with a cluster and written to it until nothing is
//! missing. The fuzzer begins at the host's own type of an outcome: in front of it is only wasmtime's, which has the same
//! fields. `outcome/case.rs` makes an outcome and a cluster of an input, `outcome/cluster.rs` is the cluster, and
//! `outcome/rules.rs` what every write has to keep.

use std::collections::BTreeSet;

use arbitrary::Unstructured;
use mortise_core::contract::GuestFault;
use mortise_core::eviction::Blocked;
use mortise_core::limits::{MAX_CHILDREN, MAX_CONDITIONS, MAX_EVENTS, MAX_STATUS_BYTES};
use mortise_core::plan::{self, Applied, Creates, Memory, Prepared, Sent, UnknownCreates};
use mortise_core::spared::Spared;

use self::case::Case;
use self::cluster::Cluster;

mod case;
mod cluster;
mod rules;

/// The field manager of the plugin.
const MANAGER: &str = "mortise/podset";
/// The time of all plans: no generated value becomes due.
const NOW_UNIX_MS: u64 = 1_700_000_000_000;
/// Plans until nothing is missing. Each group takes some, and a child at most a delete, a create, an apply and a removal.
const MAX_ROUNDS: usize = 40;

pub(crate) fn run(input: &[u8]) {
    let Ok(case) = Case::read(&mut Unstructured::new(input)) else { return };
    let Case { spec, primary, outcome, live } = &case;
    match plan::prepare(spec, primary, outcome, None) {
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
