//! Finds the object of a child in a snapshot: by its name and, since a successor has a name of its own, by its key among
//! the objects of its owner in the child's namespace. For a missing child it decides whether and under which name it is
//! created (X3), from what is being deleted, from the mark of its owner, and from creates that the snapshot may not show.
//! It does not know what a child should look like.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::existing::{Existing, is_ours};
use super::name;
use super::prepared::PreparedChild;
use crate::manifest::{ControllerSpec, Replace};
use crate::object::owner::Owner;
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::store::Snapshot;
use crate::successor_mark::is_marked;

/// Objects of one key that are being deleted when it gets a successor. An object whose finalizer is never removed, or whose
/// node is lost, may be deleted again and again with its successors; each takes room and perhaps money. Sixteen are more
/// than a rollout leaves behind, unless something keeps them.
pub(super) const MAX_PREDECESSORS: usize = 16;

/// What the owner of children knows about creates that a view does not show. A name follows from what is seen, so a create
/// that is not seen may be one of another name.
#[derive(Clone, Copy, Debug)]
pub struct Creates<'a> {
    /// Creates of another host may be under way, under any names if the owner is marked, else under the names of children
    /// without predecessors.
    pub inherited: bool,
    /// Creates of unknown result, which may still be carried out.
    pub unknown: &'a UnknownCreates,
}

/// Creates of unknown result, by the kind, namespace and key of the child. One that is wanted in another namespace is
/// another object.
pub type UnknownCreates = BTreeMap<(Kind, Arc<str>, Arc<str>), UnknownCreate>;

/// The last create of a child that has an unknown result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownCreate {
    /// The object.
    pub target: ObjectRef,
    /// Until when the API server may carry it out without the view showing it.
    pub until_ms: u64,
}

/// Whether an object is a child that the host created for this primary, also one of a kind that is not owned now.
pub fn is_child(spec: &ControllerSpec, primary: &Object, live: &Object) -> bool {
    let owned = spec.owned(&live.kind);
    Owner::of(primary, owned.is_some_and(|owned| owned.tracked)).owns(live) && is_ours(spec, owned, live)
}

/// A child's object in the view.
pub(super) enum Found<'a> {
    /// There is none; this one may be created.
    Absent(ObjectRef),
    /// It is being deleted, and has no successor before it is gone.
    Terminating,
    /// It is being deleted, and has no successor before its owner is marked.
    Unmarked,
    /// It may have been created under another name than the view suggests, so none is created now.
    Unsure,
    /// This object, which is not a child, has its name.
    Taken(&'a Arc<Object>),
    Live(&'a Arc<Object>),
}

type ByKey<'a> = BTreeMap<(&'a Kind, &'a str), Vec<&'a Arc<Object>>>;

pub(super) struct Finder<'a> {
    pub spec: &'a ControllerSpec,
    pub primary: &'a Object,
    pub snapshot: &'a Snapshot,
    pub children: &'a [PreparedChild],
    pub creates: Creates<'a>,
    pub existing: Existing<'a>,
    /// Children may have had successors.
    pub is_marked: OnceCell<bool>,
    /// The owner's objects that have another name than any wanted child: few, or none, mostly.
    pub others: OnceCell<ByKey<'a>>,
}

impl<'a> Finder<'a> {
    pub(super) fn find(&self, child: &PreparedChild) -> Found<'a> {
        let by_name = self.at(&child.target);
        if child.is_named || matches!(by_name, Found::Live(_)) {
            return by_name;
        }
        let others = self.others_of(child);
        if let Some(live) = others.iter().find(|live| !live.deleting) {
            return Found::Live(live);
        }
        if let Found::Taken(_) = by_name {
            return by_name;
        }
        let predecessors: BTreeSet<&str> =
            self.known(&child.target).into_iter().chain(others).map(|live| &*live.uid).collect();
        self.missing(child, &Vec::from_iter(predecessors))
    }

    /// Where a child without a living object is created.
    fn missing(&self, child: &PreparedChild, predecessors: &[&str]) -> Found<'a> {
        let (kind, namespace) = (&child.target.kind, &child.target.name.namespace);
        // Of a marked object a host of another version may have left the create of a successor, also of a kind that has
        // none now.
        let may_follow = child.replace == Replace::AtOnce && !predecessors.is_empty();
        if self.creates.inherited && (may_follow || self.is_marked()) {
            return Found::Unsure;
        }
        let of_child = || (kind.clone(), Arc::clone(namespace), Arc::clone(&child.key));
        let unknown = Some(self.creates.unknown).filter(|unknown| !unknown.is_empty());
        if let Some(create) = unknown.and_then(|unknown| unknown.get(&of_child())) {
            // Repeated under the same name, there is one at most. While an object of this name is being deleted, a create
            // that is under way can follow it.
            return match self.at(&create.target) {
                Found::Terminating => Found::Unsure,
                found => found,
            };
        }
        if predecessors.is_empty() {
            return Found::Absent(child.target.clone());
        }
        match child.replace {
            Replace::WhenGone => return Found::Terminating,
            Replace::AtOnce if predecessors.len() > MAX_PREDECESSORS => return Found::Terminating,
            // So any host can see that names of its children may be unknown to it.
            Replace::AtOnce if !self.is_marked() => return Found::Unmarked,
            Replace::AtOnce => {}
        }
        let name = name::derived(self.primary, kind, &child.key, predecessors).into();
        self.at(&ObjectRef { kind: kind.clone(), name: Name { namespace: Arc::clone(namespace), name } })
    }

    fn is_marked(&self) -> bool {
        *self.is_marked.get_or_init(|| is_marked(self.primary))
    }

    fn at(&self, target: &ObjectRef) -> Found<'a> {
        let live = match self.existing.find(target) {
            Some(child) => child,
            None => match self.known(target) {
                None => return Found::Absent(target.clone()),
                Some(other) if !is_child(self.spec, self.primary, other) => return Found::Taken(other),
                Some(child) => child,
            },
        };
        if live.deleting { Found::Terminating } else { Found::Live(live) }
    }

    /// The object of this name. What the plugin may not read is as absent, so the API server answers the create; a child is
    /// found wherever it is.
    fn known(&self, target: &ObjectRef) -> Option<&'a Arc<Object>> {
        let is_seen = || self.spec.sees(&target.kind, &target.name.namespace);
        let live = self.snapshot.get(&target.kind, &target.name)?;
        (is_seen() || is_child(self.spec, self.primary, live)).then_some(live)
    }

    /// Living children that have other names than the outcome's, because they replaced others.
    pub(super) fn renamed(&self) -> BTreeSet<ObjectRef> {
        let others = self.others.get_or_init(|| self.others());
        let has_others = |child: &&PreparedChild| others.contains_key(&(&child.target.kind, &*child.key));
        let found = self.children.iter().filter(has_others).map(|child| (child, self.find(child)));
        let renamed = found.filter_map(|(child, found)| match found {
            Found::Live(live) if live.name != child.target.name => Some(live.reference()),
            _ => None,
        });
        renamed.collect()
    }

    /// The objects of a child's key and namespace that have other names than the wanted ones, by name.
    fn others_of(&self, child: &PreparedChild) -> Vec<&'a Arc<Object>> {
        let ObjectRef { kind, name } = &child.target;
        let of_key = self.others.get_or_init(|| self.others()).get(&(kind, &*child.key));
        of_key.into_iter().flatten().copied().filter(|live| live.name.namespace == name.namespace).collect()
    }

    fn others(&self) -> ByKey<'a> {
        let wanted: BTreeSet<&ObjectRef> = self.children.iter().map(|child| &child.target).collect();
        let mut others = ByKey::new();
        for live in self.existing.all() {
            if let Some(key) = live.child_key.as_deref()
                && !wanted.contains(&live.reference())
            {
                others.entry((&live.kind, key)).or_default().push(live);
            }
        }
        others
    }
}
