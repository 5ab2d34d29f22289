//! What woke an object: the changes that the host saw between two calls, of what concerns the object. It must not know how
//! the engine decides; it sees changes and calls as they pass.

use std::collections::{BTreeMap, VecDeque};

use mortise_core::dependencies::{Dependencies, Dependency};
use mortise_core::object::{Kind, Name, Object, ObjectRef};

/// Changes that are remembered: a burst of more leaves the first of them out.
const MAX_CHANGES: usize = 1_024;

/// A change, with the object's controller.
#[derive(Clone, Debug)]
struct Change {
    number: u64,
    object: ObjectRef,
    owner: Option<ObjectRef>,
}

/// An object's last calls.
#[derive(Clone, Debug, Default)]
struct Called {
    /// The numbers of the newest changes at the last call and at the one before it.
    last: u64,
    before: u64,
    /// What the call before it had read.
    kinds: Vec<Kind>,
    single: Vec<ObjectRef>,
    /// What the last call has read.
    next: (Vec<Kind>, Vec<ObjectRef>),
}

#[derive(Debug, Default)]
pub(super) struct Wakes {
    newest: u64,
    changes: VecDeque<Change>,
    called: BTreeMap<ObjectRef, Called>,
}

impl Wakes {
    pub(super) fn changed(&mut self, object: &Object) {
        self.newest += 1;
        let owner = object.controller.as_ref().map(|owner| ObjectRef {
            kind: owner.kind.clone(),
            name: Name { namespace: owner.namespace.clone(), name: owner.name.clone() },
        });
        if self.changes.len() >= MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(Change { number: self.newest, object: object.reference(), owner });
    }

    pub(super) fn called(&mut self, object: &ObjectRef) {
        let called = self.called.entry(object.clone()).or_default();
        (called.before, called.last) = (called.last, self.newest);
        (called.kinds, called.single) = std::mem::take(&mut called.next);
    }

    pub(super) fn read(&mut self, object: ObjectRef, reads: &Dependencies) {
        let (mut kinds, mut single) = (Vec::new(), Vec::new());
        for (dependency, _) in reads.iter() {
            match dependency {
                Dependency::Get { target, .. } => single.push(target.clone()),
                Dependency::List(query) | Dependency::Keys(query) | Dependency::Count(query) => {
                    kinds.push(query.kind.clone());
                }
                Dependency::Owned { .. } | Dependency::Kind(_) | Dependency::Now | Dependency::Config => {}
                Dependency::Rejected | Dependency::Replies => {}
            }
        }
        kinds.extend(reads.whole_kinds().cloned());
        self.called.entry(object).or_default().next = (kinds, single);
    }

    pub(super) fn of(&self, object: &ObjectRef) -> Vec<ObjectRef> {
        let Some(called) = self.called.get(object) else { return Vec::new() };
        let concerns = |change: &&Change| {
            let is_between = change.number > called.before && change.number <= called.last;
            let is_own = change.object == *object || change.owner.as_ref() == Some(object);
            let is_read = called.single.contains(&change.object) || called.kinds.contains(&change.object.kind);
            is_between && (is_own || is_read)
        };
        let mut found: Vec<ObjectRef> = Vec::new();
        for change in self.changes.iter().filter(concerns) {
            if !found.contains(&change.object) {
                found.push(change.object.clone());
            }
        }
        found
    }
}
