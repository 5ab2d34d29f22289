//! Every dependency one call asked of its snapshot, its clock and its configuration, with a hash of each answer.
//!
//! What a call read is what wakes it (W1): the driver keeps the keys under their [`IndexKey`]s, looks up those of a
//! [`Change`], and asks [`Dependencies::touches`] whether an answer really became another one. And a call whose answers all
//! hash as before need not be repeated (W2): [`Dependencies::holds`] asks every dependency again without putting any JSON
//! together.
//!
//! What is asked here is asked on the one event loop, and guests decide how much there is to ask. So nothing is asked
//! again about a kind that has not changed, and what would take more looks at objects than a bound is taken for changed:
//! then the guest is called, on a thread of its own and at its plugin's expense.
//!
//! `view.rs` records; nothing here knows a guest or a queue.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::budget::Budget;
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::projection::Projection;
use crate::query::CompiledQuery;
use crate::store::{Change, Snapshot, Store};

use self::recorder::Reservation;
pub(crate) use self::recorder::{MemoryQuota, Recorder};

mod recorder;
#[cfg(test)]
mod tests;

/// Dependencies that one read set remembers one by one. With more, it remembers the kinds that were read, and any change of
/// those counts: who asks a thousand things about a kind, one by one, has read most of what there is of it.
pub const MAX_DEPENDENCIES: usize = 1_000;
/// Bytes of the entries that one read set remembers one by one, with the same end. Read sets are kept for each
/// reconciled object, and what stands in them is the guest's choice: a thousand `get`s take some 150 KiB, the few
/// entries of most plugins less than one.
pub const MAX_DEPENDENCY_BYTES: usize = 256 << 10;
/// What a shared text takes beside its characters: two counters.
const COUNTERS_BYTES: usize = 2 * size_of::<usize>();

/// Looks at objects that asking all entries of a set again may take: what a plugin asks that reads every Pod of two
/// hundred full nodes. A set that took more to answer counts as changed when one of its kinds has.
pub const MAX_LOOKS: u64 = 20_000;
/// The same for one set and one change, of which there may be many in a second for thousands of sets. What would take
/// more counts as touched; the change was one that the set is looked up by already.
const MAX_LOOKS_PER_CHANGE: u64 = 512;

/// The hash of an answer that the host did not finish, because it was too large. It never holds.
pub(crate) const UNFINISHED: u64 = 0;
/// The hash of "there is no such object".
const ABSENT: u64 = 1;

/// One dependency.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Dependency {
    /// One whole object.
    Get(ObjectRef),
    /// The objects of a kind whose controller has this UID.
    Owned {
        /// Which kind.
        kind: Kind,
        /// The controller's metadata.uid.
        owner_uid: Arc<str>,
        /// Which of their fields.
        fields: Projection,
    },
    /// The objects that a query selects.
    List(Arc<CompiledQuery>),
    /// Their names alone.
    Keys(Arc<CompiledQuery>),
    /// The time.
    Now,
    /// The plugin's configuration.
    Config,
}

/// What a dependency is about, as a key to look entries up by. A dependency has one index_key at most, a change several.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum IndexKey {
    /// One object.
    Object(ObjectRef),
    /// The objects of a kind with a controller of this UID.
    Owner(Arc<str>, Kind),
    /// The objects of a kind with a label of this key and value.
    Label(Kind, Arc<str>, Arc<str>),
    /// The objects of a kind in a namespace.
    Namespace(Kind, Arc<str>),
    /// All objects of a kind.
    Kind(Kind),
}

/// What a call was or would be given.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The frozen view.
    pub snapshot: &'a Snapshot,
    /// The reconciled object.
    pub primary: &'a Object,
    /// The time.
    pub now_unix_ms: u64,
    /// The plugin's configuration as JSON text.
    pub config: &'a str,
}

/// Every dependency of one call, each once.
#[derive(Clone, Debug, Default)]
pub struct Dependencies {
    /// The reconciled object's content: every call is given it, asked or not.
    primary_hash: u64,
    entries: Vec<(Dependency, u64)>,
    /// The kinds that were read, each with [`Snapshot::changes`] as it was then.
    kinds: Vec<(Kind, u64)>,
    /// The kinds count as read whole, and no dependency about objects is remembered; see [`MAX_DEPENDENCIES`] and
    /// [`MAX_DEPENDENCY_BYTES`].
    whole: bool,
    /// Looks at objects that the answers took.
    looks: u64,
    /// Its part of [`MemoryQuota`], when it is large. Clones share it.
    held: Option<Arc<Reservation>>,
}

impl Dependencies {
    /// The entries, in the order in which they were first asked, with the hashes of their answers.
    pub fn iter(&self) -> &[(Dependency, u64)] {
        &self.entries
    }

    /// [`Object::content_hash`] of the reconciled object that the call was given.
    pub fn primary_hash(&self) -> u64 {
        self.primary_hash
    }

    /// What the entries take in memory, where what several share counts for each.
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(|(dependency, _)| dependency.bytes()).sum()
    }

    /// Whether a call with these inputs would read what this one has read: the reconciled object is the same but for its
    /// resourceVersion, and every answer hashes as before. A set that asked for the time stops holding when time moves.
    pub fn holds(&self, inputs: &Inputs<'_>) -> bool {
        self.primary_hash == inputs.primary.content_hash() && self.answers_hold(inputs)
    }

    /// As [`Self::holds`], without comparing the reconciled object.
    pub fn answers_hold(&self, inputs: &Inputs<'_>) -> bool {
        let changed = self.changed_kinds(inputs.snapshot);
        if !changed.is_empty() && (self.whole || self.looks > MAX_LOOKS) {
            return false;
        }
        let budget = Budget::new(MAX_LOOKS);
        self.entries.iter().all(|(dependency, hash)| match dependency.kind() {
            _ if *hash == UNFINISHED => false,
            Some(kind) => {
                !changed.contains(&kind) || dependency.hash_of_objects(inputs.snapshot, &budget) == Some(*hash)
            }
            None => dependency.hash_of_input(inputs) == Some(*hash),
        })
    }

    /// Whether the store now answers some dependency about objects otherwise. To be asked when a call returns: what changed
    /// while it ran had no read set yet that it could touch, so nobody was woken for it. Time and configuration do not
    /// count, nor answers that were too large: those would differ each time.
    ///
    /// The store's last changes tell that nothing was touched, whatever asking again would take: a plugin that reads very
    /// much must not be called again and again because something else of the kind changes all the time.
    pub fn is_outdated(&self, store: &Store) -> bool {
        let snapshot = store.snapshot();
        let changed = self.changed_kinds(&snapshot);
        if changed.is_empty() {
            return false;
        }
        if self.whole {
            return true;
        }
        if self.is_untouched_since(store) {
            return false;
        }
        let budget = Budget::new(MAX_LOOKS);
        let is_same = |(dependency, hash): &(Dependency, u64)| match dependency.kind() {
            Some(kind) if *hash != UNFINISHED && changed.contains(&kind) => {
                dependency.hash_of_objects(&snapshot, &budget) == Some(*hash)
            }
            _ => true,
        };
        self.looks > MAX_LOOKS || !self.entries.iter().all(is_same)
    }

    /// Whether some answer about one of these kinds is another one now. An answer that is too large to be compared does not
    /// count, nor any of a set that remembers no entries.
    pub fn has_changed_of(&self, is_of: impl Fn(&Kind) -> bool, snapshot: &Snapshot) -> bool {
        if self.whole || self.looks > MAX_LOOKS {
            return false;
        }
        let mut changed = self.changed_kinds(snapshot);
        changed.retain(|kind| is_of(kind));
        let budget = Budget::new(MAX_LOOKS);
        let differs = |(dependency, hash): &(Dependency, u64)| {
            let is_asked = dependency.kind().is_some_and(|kind| *hash != UNFINISHED && changed.contains(&kind));
            is_asked && dependency.hash_of_objects(snapshot, &budget).is_some_and(|now| now != *hash)
        };
        !changed.is_empty() && self.entries.iter().any(differs)
    }

    /// Whether the store remembers all that has changed of the kinds that were read, and nothing of it is in an answer.
    fn is_untouched_since(&self, store: &Store) -> bool {
        let budget = Budget::new(MAX_LOOKS);
        let is_touched = |change: &Change| {
            let mut finished = self.entries.iter().filter(|(_, hash)| *hash != UNFINISHED);
            finished.any(|(dependency, _)| dependency.is_touched(change, &budget))
        };
        self.kinds.iter().all(|(kind, changes)| {
            store.changes_since(kind, *changes).is_some_and(|mut changes| !changes.any(is_touched))
        })
    }

    /// The kinds that were read and have changed since.
    fn changed_kinds(&self, snapshot: &Snapshot) -> Vec<&Kind> {
        let changed = self.kinds.iter().filter(|(kind, changes)| snapshot.changes(kind) != *changes);
        changed.map(|(kind, _)| kind).collect()
    }

    /// Whether a change makes the answer to some dependency another one.
    pub fn touches(&self, change: &Change) -> bool {
        let Some(object) = change.object() else { return false };
        if self.whole {
            return self.kinds.iter().any(|(kind, _)| *kind == object.kind);
        }
        let budget = Budget::new(MAX_LOOKS_PER_CHANGE);
        self.entries.iter().any(|(dependency, _)| dependency.is_touched(change, &budget))
    }

    /// What to look this set up by; a change that touches it has one of these among its own.
    pub fn index_keys(&self) -> impl Iterator<Item = IndexKey> {
        let of_kinds = self.kinds.iter().filter(|_| self.whole).map(|(kind, _)| IndexKey::Kind(kind.clone()));
        self.entries.iter().filter_map(|(dependency, _)| dependency.index_key()).chain(of_kinds)
    }
}

impl Change {
    /// Every index_key that this change could be the answer to: those of the object before and after it, each once.
    pub fn index_keys(&self) -> Vec<IndexKey> {
        let mut index_keys = Vec::new();
        let Some(object) = self.object() else { return index_keys };
        let kind = &object.kind;
        index_keys.push(IndexKey::Object(object.reference()));
        index_keys.push(IndexKey::Namespace(kind.clone(), object.name.namespace.clone()));
        index_keys.push(IndexKey::Kind(kind.clone()));
        let owner = |object: &Object| object.controller.as_ref().map(|controller| controller.uid.clone());
        if let Some(after) = &self.after {
            index_keys.extend(owner(after).map(|uid| IndexKey::Owner(uid, kind.clone())));
            index_keys.extend(after.labels.iter().map(|label| label_key(kind, label)));
        }
        if let Some(before) = &self.before {
            let after = self.after.as_deref();
            let gone = owner(before).filter(|uid| after.and_then(owner).as_ref() != Some(uid));
            index_keys.extend(gone.map(|uid| IndexKey::Owner(uid, kind.clone())));
            let kept = |(key, value): &(Arc<str>, Arc<str>)| after.and_then(|after| after.label(key)) == Some(&**value);
            index_keys.extend(before.labels.iter().filter(|label| !kept(label)).map(|label| label_key(kind, label)));
        }
        index_keys
    }
}

fn label_key(kind: &Kind, (key, value): &(Arc<str>, Arc<str>)) -> IndexKey {
    IndexKey::Label(kind.clone(), key.clone(), value.clone())
}

impl Dependency {
    /// What it reads besides the time and the configuration.
    fn kind(&self) -> Option<&Kind> {
        match self {
            Self::Get(target) => Some(&target.kind),
            Self::Owned { kind, .. } => Some(kind),
            Self::List(query) | Self::Keys(query) => Some(&query.kind),
            Self::Now | Self::Config => None,
        }
    }

    /// What it takes in memory, with its hash. Kinds are shared with the plugin's manifest.
    fn bytes(&self) -> usize {
        let of_text = |text: &str| text.len() + COUNTERS_BYTES;
        let below = match self {
            Self::Get(target) => of_text(&target.name.namespace) + of_text(&target.name.name),
            Self::Owned { owner_uid, fields, .. } => of_text(owner_uid) + fields.bytes(),
            Self::List(query) | Self::Keys(query) => query.bytes(),
            Self::Now | Self::Config => 0,
        };
        size_of::<(Self, u64)>() + below
    }

    /// The narrowest key under which a change of the answer can be found.
    fn index_key(&self) -> Option<IndexKey> {
        match self {
            Self::Get(target) => Some(IndexKey::Object(target.clone())),
            Self::Owned { kind, owner_uid, .. } => Some(IndexKey::Owner(owner_uid.clone(), kind.clone())),
            Self::List(query) | Self::Keys(query) => {
                let kind = query.kind.clone();
                let label = query.selector.required().next();
                Some(match (label, &query.namespace) {
                    (Some((key, value)), _) => IndexKey::Label(kind, key.into(), value.into()),
                    (None, Some(namespace)) => IndexKey::Namespace(kind, namespace.clone()),
                    (None, None) => IndexKey::Kind(kind),
                })
            }
            Self::Now | Self::Config => None,
        }
    }

    /// The hash of an answer that is not about objects.
    fn hash_of_input(&self, inputs: &Inputs<'_>) -> Option<u64> {
        match self {
            Self::Now => Some(hash_of_time(inputs.now_unix_ms)),
            Self::Config => Some(hash_of_text(inputs.config)),
            Self::Get(_) | Self::Owned { .. } | Self::List(_) | Self::Keys(_) => None,
        }
    }

    /// The hash of an answer that a snapshot gives; None for entries that are not about objects, and when the budget
    /// does not last.
    fn hash_of_objects(&self, snapshot: &Snapshot, budget: &Budget) -> Option<u64> {
        if !budget.spend(1) {
            return None;
        }
        let mut answer = AnswerHash::default();
        match self {
            Self::Get(target) => {
                return Some(hash_of_one(snapshot.get(&target.kind, &target.name).map(|object| &**object)));
            }
            Self::Owned { kind, owner_uid, fields } => {
                let objects = snapshot.owned_within(kind, owner_uid, budget);
                objects.iter().for_each(|object| answer.add(fields.projected_hash_within(object, budget)));
            }
            Self::List(query) => {
                let objects = snapshot.select_within(query, budget);
                objects.for_each(|object| answer.add(query.fields.projected_hash_within(object, budget)));
            }
            Self::Keys(query) => {
                snapshot.select_within(query, budget).for_each(|object| answer.add_name(&object.name));
            }
            Self::Now | Self::Config => return None,
        }
        (!budget.is_overdrawn()).then(|| answer.hash())
    }

    /// Whether the change is one of the answer, or cannot be told from one within the budget.
    fn is_touched(&self, change: &Change, budget: &Budget) -> bool {
        if !budget.spend(1) {
            return true;
        }
        let is_touched = match self {
            Self::Get(target) => {
                differs(change, |object| object.kind == target.kind && object.name == target.name, Object::content_hash)
            }
            Self::Owned { kind, owner_uid, fields } => {
                let is_owned = |object: &Object| {
                    object.kind == *kind && object.controller.as_ref().is_some_and(|owner| owner.uid == *owner_uid)
                };
                differs(change, is_owned, |object| fields.projected_hash_within(object, budget))
            }
            Self::List(query) => {
                let hash = |object: &Object| query.fields.projected_hash_within(object, budget);
                differs(change, |object| query.matches(object), hash)
            }
            Self::Keys(query) => differs(change, |object| query.matches(object), |_| ABSENT),
            Self::Now | Self::Config => false,
        };
        is_touched || budget.is_overdrawn()
    }
}

/// Whether an object entered or left an answer, or stayed in it with another hash.
fn differs(change: &Change, is_in: impl Fn(&Object) -> bool, hash: impl Fn(&Object) -> u64) -> bool {
    let before = change.before.as_deref().filter(|object| is_in(object));
    let after = change.after.as_deref().filter(|object| is_in(object));
    match (before, after) {
        (None, None) => false,
        (Some(before), Some(after)) => hash(before) != hash(after),
        _ => true,
    }
}

pub(crate) fn hash_of_one(object: Option<&Object>) -> u64 {
    object.map_or(ABSENT, Object::content_hash)
}

pub(crate) fn hash_of_time(now_unix_ms: u64) -> u64 {
    let mut answer = AnswerHash::default();
    answer.add(now_unix_ms);
    answer.hash()
}

pub(crate) fn hash_of_text(text: &str) -> u64 {
    let mut answer = AnswerHash::default();
    text.hash(&mut answer.0);
    answer.hash()
}

/// The hash of an answer of several objects, in their order.
#[derive(Default)]
pub(crate) struct AnswerHash(DefaultHasher);

impl AnswerHash {
    /// A projection is all that the guest sees of an object, so its hash stands for the object: two that give the same
    /// text are the same to the guest.
    pub(crate) fn add(&mut self, projected_hash: u64) {
        self.0.write_u64(projected_hash);
    }

    pub(crate) fn add_name(&mut self, name: &Name) {
        name.hash(&mut self.0);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.finish().max(ABSENT + 1)
    }
}
