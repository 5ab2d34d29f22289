//! The children of an outcome against a snapshot: which are created, changed, replaced and deleted (X4, X5), and which
//! wait for the children of a lower group.

use std::borrow::Cow;
use std::cell::{LazyCell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::actions::{self, Memory};
use super::adoption::{self, Taken};
use super::applied::{self, is_applied};
use super::existing::Existing;
use super::found::{Finder, Found, is_child};
use super::parsing::{LOOP_BYTES, Parsing};
use super::prepared::{Body, Prepared, PreparedChild};
use super::rollout::Rollout;
use super::{body, exact};
use crate::availability::is_available;
use crate::contract::{Handling, Propagation};
use crate::generated::Draws;
use crate::limits::MAX_DELETES_PER_PLAN;
use crate::manifest::{ControllerSpec, Update};
use crate::object::owner::Owner;
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::store::Snapshot;
use crate::well_known::OWNER_UID_LABEL;
use crate::write::{Precondition, WriteOp};

/// Bytes of the children that one plan creates, of those whose bodies are made then: a hundred large Pods, some
/// milliseconds of the event loop.
const MAX_CREATED_BYTES: usize = 512 << 10;

/// The writes of children that are missing between a snapshot and an outcome.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Diff {
    /// Creates and applies, in the guest's order.
    pub children: Vec<WriteOp>,
    /// Deletes of children that are not wanted or must be replaced.
    pub deletes: Vec<WriteOp>,
    /// A child's predecessor is still being deleted, or what the view does not show may be a child.
    pub waits: bool,
    /// Some of these children wait for time to pass.
    pub unsure: bool,
    /// Some wait until the object is marked as one whose children have successors.
    pub unmarked: bool,
    /// The deletes exceed [`MAX_DELETES_PER_PLAN`].
    pub more_deletes: bool,
    /// Objects of another owner that have the names of children.
    pub taken: Vec<Taken>,
    /// The same of children that may be left out.
    pub skipped: Vec<Taken>,
    /// The children that `children` and `deletes` write, by their objects.
    pub written: BTreeMap<ObjectRef, Written>,
    /// When the first generated value is due, in Unix milliseconds.
    pub renew_at_ms: Option<u64>,
    /// The JSON that was parsed for the comparison, for which the plugin is charged.
    pub parsing: Parsing,
}

/// A child that is written.
#[derive(Clone, PartialEq, Debug)]
pub struct Written {
    /// Its key.
    pub key: Arc<str>,
    /// It is left out or adopts an object, as the view shows, when one that is not a child has its name.
    pub may_share_name: bool,
}

impl Diff {
    /// Whether it has writes of children, which the guest may read.
    pub fn changes_what_is_read(&self) -> bool {
        !self.children.is_empty() || !self.deletes.is_empty()
    }

    fn bound_deletes(&mut self) {
        self.more_deletes = self.deletes.len() > MAX_DELETES_PER_PLAN;
        self.deletes.truncate(MAX_DELETES_PER_PLAN);
    }

    /// Whether children will still change, so that a status computed before is soon outdated.
    pub fn changes_children(&self) -> bool {
        self.changes_what_is_read() || self.waits || self.more_deletes
    }
}

/// Compares a prepared outcome with a snapshot. `memory` has the children that need no write, so that each version of
/// an object is compared once.
pub fn diff(
    prepared: &Prepared,
    spec: &ControllerSpec,
    primary: &Object,
    manager: &str,
    snapshot: &Snapshot,
    memory: Memory<'_>,
    now_unix_ms: u64,
) -> Diff {
    let Some(children) = &prepared.children else { return Diff::default() };
    let (diff, rollouts) = (Diff::default(), BTreeMap::new());
    let (is_marked, others) = (OnceCell::new(), OnceCell::new());
    let creates = memory.creates;
    let existing = Existing::of(spec, primary, snapshot);
    let finder = Finder { spec, primary, snapshot, children, creates, existing, is_marked, others };
    let created_bytes = 0;
    let mut comparison = Comparison { finder, manager, memory, now_unix_ms, created_bytes, diff, rollouts };
    let mut groups = children.chunk_by(|one, next| one.group == next.group).peekable();
    while let Some(group) = groups.next() {
        group.iter().for_each(|child| comparison.compare(child));
        if groups.peek().is_some() && !comparison.is_settled(group) {
            break;
        }
    }
    let unwanted = comparison.unwanted();
    let mut diff = comparison.finish();
    diff.deletes.extend(unwanted);
    diff.bound_deletes();
    for deleted in diff.deletes.iter().map(WriteOp::target) {
        let live = snapshot.get(&deleted.kind, &deleted.name);
        if let Some(key) = live.and_then(|live| live.child_key.as_deref()) {
            diff.written.insert(deleted.clone(), Written { key: key.into(), may_share_name: false });
        }
    }
    diff
}

/// Compares on a worker what takes too long on the event loop, so that the objects of the snapshot remember what it finds.
/// What [`diff`] and [`super::diff_actions`] can compare there is left to them, since a key remembers it for good.
pub fn compare_beforehand(prepared: &Prepared, manager: &str, snapshot: &Snapshot) {
    let live = |target: &ObjectRef| snapshot.get(&target.kind, &target.name);
    let in_place = prepared
        .children
        .iter()
        .flatten()
        .filter_map(|child| Some((child, child.body.as_ref()?, live(&child.target)?)));
    let to_adopt = prepared.children.iter().flatten().filter_map(|child| Some((child, live(&child.target)?)));
    let acted_on = prepared.actions.iter().filter_map(|it| Some((&it.action, live(&it.target)?)));
    let of_child = |(child, body, live): (&PreparedChild, &Body, &Arc<Object>)| {
        applied::bytes(live, body, manager) + exact::bytes(child, body, live)
    };
    let of_adopted: usize = to_adopt.clone().map(|(child, live)| adoption::bytes(child, live)).sum();
    let of_children = of_adopted + in_place.clone().map(of_child).sum::<usize>();
    let of_actions: usize = acted_on.clone().map(|(action, live)| actions::bytes(action, live, manager)).sum();
    if of_children > LOOP_BYTES {
        for (child, body, live) in in_place {
            applied::remember(live, body, &child.generated, manager);
            exact::remember(child, body, live);
        }
        to_adopt.for_each(|(child, live)| adoption::remember(child, live));
    }
    if of_actions > LOOP_BYTES {
        acted_on.for_each(|(action, live)| actions::remember(action, live, manager));
    }
}

/// The deletes of all tracked children, which no garbage collector deletes with their owner: also of those that have the
/// marks of an earlier version, which tracked their kind, and no write since that made them a reference.
pub fn deletes_of_tracked(spec: &ControllerSpec, primary: &Object, snapshot: &Snapshot) -> Diff {
    let owner = Owner::of(primary, true);
    let is_marked = |live: &Object| live.label(OWNER_UID_LABEL) == Some(&*primary.uid);
    let owned = spec.owns.iter().flat_map(|owned| snapshot.owned(&owned.kind, &owner));
    let tracked = owned.filter(|live| spec.tracks(&live.kind) || is_marked(live));
    let live = tracked.filter(|live| !live.deleting && is_child(spec, primary, live));
    let deletes = live.map(|live| delete(live)).take(MAX_DELETES_PER_PLAN + 1).collect();
    let mut diff = Diff { deletes, ..Diff::default() };
    diff.bound_deletes();
    diff
}

struct Comparison<'a> {
    finder: Finder<'a>,
    manager: &'a str,
    memory: Memory<'a>,
    now_unix_ms: u64,
    /// Of the children that are created from their text.
    created_bytes: usize,
    diff: Diff,
    rollouts: BTreeMap<&'a Kind, Rollout>,
}

impl<'a> Comparison<'a> {
    fn rollout(&mut self, child: &'a PreparedChild) -> Option<&mut Rollout> {
        let Update::RollingRecreate { max_unavailable } = child.update else { return None };
        Some(self.rollouts.entry(&child.target.kind).or_insert_with(|| Rollout::new(max_unavailable)))
    }

    /// Adds the writes that a child needs. One that is kept needs none.
    fn compare(&mut self, child: &'a PreparedChild) {
        if child.handling == Handling::Keep {
            return;
        }
        if child.is_reserved {
            return self.refuse(child, Taken::reserved(child));
        }
        match self.finder.find(child) {
            Found::Live(live) => return self.compare_live(child, live),
            Found::Taken(live) if child.adopt && adoption::is_free(live) => {
                match adoption::adopt(child, self.finder.primary, live, &mut self.diff.parsing) {
                    Some(adopt) => self.write(child, adopt),
                    None => (self.diff.waits, self.diff.unsure) = (true, true),
                }
            }
            Found::Taken(live) => self.refuse(child, Taken::new(live, Arc::clone(&child.key))),
            Found::Terminating => self.diff.waits = true,
            Found::Unmarked => (self.diff.waits, self.diff.unmarked) = (true, true),
            Found::Unsure => (self.diff.waits, self.diff.unsure) = (true, true),
            // The next plan creates the others.
            Found::Absent(_) if child.body.is_none() && self.created_bytes > MAX_CREATED_BYTES => {
                self.diff.waits = true
            }
            Found::Absent(target) => {
                let named = self.named(child, &target.name);
                let parsed_bytes = if named.body.is_none() { named.object.len() } else { 0 };
                self.diff.parsing.bytes += parsed_bytes;
                self.created_bytes += parsed_bytes;
                self.write(child, create(&named, self.finder.primary, self.now_unix_ms));
            }
        }
        self.rollout(child).into_iter().for_each(Rollout::absent);
    }

    /// A child that cannot be written is left out, or stalls its owner.
    fn refuse(&mut self, child: &PreparedChild, taken: Taken) {
        if child.or_skip { self.diff.skipped.push(taken) } else { self.diff.taken.push(taken) }
    }

    fn write(&mut self, child: &PreparedChild, op: WriteOp) {
        let written = Written { key: Arc::clone(&child.key), may_share_name: child.or_skip || child.adopt };
        self.diff.written.insert(op.target().clone(), written);
        self.diff.children.push(op);
    }

    /// A child under the name that its object has. The body has it too.
    fn named(&mut self, child: &'a PreparedChild, name: &Name) -> Cow<'a, PreparedChild> {
        if *name == child.target.name {
            return Cow::Borrowed(child);
        }
        let target = ObjectRef { kind: child.target.kind.clone(), name: name.clone() };
        let mut named = PreparedChild { target, body: None, ..child.clone() };
        if child.body.is_some() {
            self.diff.parsing.bytes += child.object.len();
            named.body = Some(Body::with(body::of(&named, self.finder.primary, None), &named.generated));
        }
        Cow::Owned(named)
    }

    fn compare_live(&mut self, child: &'a PreparedChild, live: &Arc<Object>) {
        let named = self.named(child, &live.name);
        let Some(body) = &named.body else { return self.compare_hash(child, live) };
        let write = if self.has_generated(&named, live) {
            let due_ms = live.generated.as_ref().and_then(|record| record.renew_at_ms());
            self.diff.renew_at_ms = self.diff.renew_at_ms.into_iter().chain(due_ms).min();
            self.missing(&named, body, live)
        } else {
            Some(apply(&named, body, live, self.now_unix_ms))
        };
        write.into_iter().for_each(|op| self.write(child, op));
    }

    /// A child that is never changed in place.
    fn compare_hash(&mut self, child: &'a PreparedChild, live: &Arc<Object>) {
        let is_current = is_current(child, live);
        if let Some(rollout) = self.rollout(child) {
            if is_current { rollout.current(live) } else { rollout.outdated(live) }
        } else if child.update == Update::Recreate && !is_current {
            self.diff.deletes.push(delete(live));
        }
    }

    /// The write of a child that has its generated values. An apply may remove members too, so the next plan looks for
    /// what is left in exact maps.
    fn missing(&mut self, child: &PreparedChild, body: &Body, live: &Object) -> Option<WriteOp> {
        let (memory, parsing) = (&mut self.memory, &mut self.diff.parsing);
        if !is_applied(live, body, &child.generated, self.manager, memory.applied, parsing) {
            return Some(apply(child, body, live, self.now_unix_ms));
        }
        exact::removal(child, body, live, memory, parsing)
    }

    /// Whether the child has its generated values, and none is due.
    fn has_generated(&self, child: &PreparedChild, live: &Object) -> bool {
        let has = |wanted| live.generated.as_ref().is_some_and(|record| record.has(wanted, self.now_unix_ms));
        child.generated.iter().all(has)
    }

    /// Whether the children of a group are as wanted and available, so that the next group may follow. One that is left
    /// out or kept holds up nothing.
    fn is_settled(&mut self, group: &[PreparedChild]) -> bool {
        let has_writes = self.diff.changes_what_is_read() || self.diff.waits || !self.diff.taken.is_empty();
        let mut is_settled = |child: &PreparedChild| {
            let Found::Live(live) = self.finder.find(child) else { return true };
            is_current(child, live) && is_available(live, &mut self.diff.parsing.bytes)
        };
        !has_writes && group.iter().filter(|child| child.handling != Handling::Keep).all(&mut is_settled)
    }

    /// Deletes of children that the outcome does not have, as many as a plan has and one more. What the guest was not shown
    /// it could not want.
    fn unwanted(&self) -> Vec<WriteOp> {
        let Self { finder, memory: Memory { spared, .. }, .. } = self;
        let children = finder.children;
        // Few owners have objects that were not found by the name of a child.
        let wanted = LazyCell::new(|| BTreeSet::from_iter(children.iter().map(|child| &child.target)));
        let renamed = LazyCell::new(|| finder.renamed());
        let kept = children.iter().filter(|child| child.handling == Handling::Keep);
        let kept: BTreeSet<(&Kind, &str)> = kept.map(|child| (&child.target.kind, &*child.key)).collect();
        let is_kept = |live: &Object| live.child_key.as_deref().is_some_and(|key| kept.contains(&(&live.kind, key)));
        let has_place = |target: &ObjectRef| wanted.contains(target) || renamed.contains(target);
        let is_wanted = |live: &Object| is_kept(live) || has_place(&live.reference());
        let living = finder.existing.not_found().filter(|live| !live.deleting);
        let unwanted = living.filter(|live| !spared.has(live) && !is_wanted(live));
        unwanted.map(|live| delete(live)).take(MAX_DELETES_PER_PLAN + 1).collect()
    }

    fn finish(self) -> Diff {
        let Self { mut diff, rollouts, .. } = self;
        for rollout in rollouts.values() {
            diff.deletes.extend(rollout.next(&mut diff.parsing.bytes).into_iter().map(|live| delete(live)));
        }
        diff
    }
}

/// Whether a child is not to be replaced. One that is changed in place is compared by its fields.
fn is_current(child: &PreparedChild, live: &Object) -> bool {
    let is_replaced = child.handling == Handling::Managed && !child.update.is_in_place();
    !is_replaced || live.desired.as_deref() == Some(&*child.hash)
}

fn delete(live: &Object) -> WriteOp {
    WriteOp::Delete { target: live.reference(), uid: Arc::clone(&live.uid), propagation: Propagation::Background }
}

fn create(child: &PreparedChild, primary: &Object, now_unix_ms: u64) -> WriteOp {
    let target = child.target.clone();
    let (draws, only_if) = (draws(child, now_unix_ms), Precondition::Absent);
    if let Some(body) = &child.body {
        return WriteOp::Apply { target, body: Arc::clone(&body.text), force: false, only_if, draws };
    }
    let hash = (child.handling == Handling::Managed).then_some(&*child.hash);
    let body = body::of(child, primary, hash);
    match draws {
        Some(_) => WriteOp::Apply { target, body, force: false, only_if, draws },
        None => WriteOp::Create { target, body },
    }
}

/// Forced: the owner reference shows that the child is ours, so wanted fields that others have set are set back.
fn apply(child: &PreparedChild, body: &Body, live: &Object, now_unix_ms: u64) -> WriteOp {
    let (target, body, only_if) =
        (child.target.clone(), Arc::clone(&body.text), Precondition::Is(Arc::clone(&live.uid)));
    WriteOp::Apply { target, body, force: true, only_if, draws: draws(child, now_unix_ms) }
}

fn draws(child: &PreparedChild, now_unix_ms: u64) -> Option<Draws> {
    (!child.generated.is_empty()).then(|| Draws { wanted: Arc::clone(&child.generated), now_unix_ms })
}
