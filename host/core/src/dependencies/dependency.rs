//! One dependency: what a call read, and whether a change affects its result. It does not know the keys that have it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::budget::Budget;
use crate::heap::{HeapBytes, shared};
use crate::object::owner::Owner;
use crate::object::{Kind, Name, Object, ObjectRef};
use crate::projection::Projection;
use crate::query::CompiledQuery;
use crate::scope::Scope;
use crate::store::{Change, Snapshot};

/// The hash of a result that was too large to finish. It never holds.
pub(crate) const UNFINISHED: u64 = 0;
const ABSENT: u64 = 1;
/// An entry of a set, which has no spare capacity.
const ENTRY_BYTES: usize = size_of::<(Arc<SharedDependency>, u64)>();
/// What the dependency index keeps for one key of one dependency: an entry in a list that has grown twofold, its place in a hash
/// table that is less than half full, and its posting in a tree of half-full nodes. For a dependency of several keys it is the
/// key in the dependency's own tree.
const POSTING_BYTES: usize = 192;
/// The same for a label's key that dependencies select by, beside its text.
const LABEL_BYTES: usize = 80;

/// One dependency.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Dependency {
    /// One object.
    Get {
        /// Its key.
        target: ObjectRef,
        /// What the plugin may see of the kind; None: every object.
        scope: Option<Arc<Scope>>,
        /// The fields that were read.
        fields: Projection,
    },
    /// The objects of a kind that have this owner.
    Owned {
        /// Their kind.
        kind: Kind,
        /// Their owner.
        owner: Owner,
        /// What the plugin may see of the kind; None: every object.
        scope: Option<Arc<Scope>>,
        /// The fields that were read.
        fields: Projection,
    },
    /// The objects that a query selects.
    List(Arc<CompiledQuery>),
    /// The names of the objects that a query selects.
    Keys(Arc<CompiledQuery>),
    /// The number of the objects that a query selects.
    Count(Arc<CompiledQuery>),
    /// The time.
    Now,
    /// The plugin's configuration.
    Config,
    /// What was rejected of the object's outcomes.
    Rejected,
    /// The replies to the object's HTTP requests.
    Replies,
    /// Whether a dynamic kind is served, and listed.
    Kind(Kind),
}

impl Dependency {
    /// The kind of its objects; None for what is not about objects of the view.
    pub(crate) fn kind(&self) -> Option<&Kind> {
        match self {
            Self::Get { target, .. } => Some(&target.kind),
            Self::Owned { kind, .. } => Some(kind),
            Self::List(query) | Self::Keys(query) | Self::Count(query) => Some(&query.kind),
            Self::Now | Self::Config | Self::Rejected | Self::Replies | Self::Kind(_) => None,
        }
    }

    /// The fields that were read.
    fn fields(&self) -> Option<&Projection> {
        match self {
            Self::Get { fields, .. } | Self::Owned { fields, .. } => Some(fields),
            Self::List(query) | Self::Keys(query) | Self::Count(query) => Some(&query.fields),
            Self::Now | Self::Config | Self::Rejected | Self::Replies | Self::Kind(_) => None,
        }
    }

    /// Its bytes in memory after another of its set, which may have the same fields.
    pub(super) fn bytes_after(&self, before: Option<&Self>) -> usize {
        let fields =
            self.fields().filter(|fields| !before.and_then(Self::fields).is_some_and(|it| it.is_shared(fields)));
        self.bytes() + fields.map_or(0, Projection::bytes)
    }

    /// Its bytes in memory without its fields, with its place in a set and in the dependency index. The kinds of objects are
    /// shared with the plugin's manifest, or with its states; scopes with the controller.
    fn bytes(&self) -> usize {
        let below = match self {
            Self::Get { target, .. } => target.heap_bytes(),
            Self::Owned { owner, .. } => owner.uid.heap_bytes() + owner.namespace.heap_bytes(),
            Self::List(query) | Self::Keys(query) | Self::Count(query) => query.bytes(),
            Self::Kind(kind) => kind.api_version.heap_bytes() + kind.kind.heap_bytes(),
            Self::Now | Self::Config | Self::Rejected | Self::Replies => 0,
        };
        let in_index = if self.kind().is_some() { POSTING_BYTES } else { 0 };
        shared(size_of::<SharedDependency>()) + ENTRY_BYTES + below + in_index + self.label_bytes()
    }

    /// Bytes of the label by which the dependency index finds it.
    fn label_bytes(&self) -> usize {
        let query = match self {
            Self::List(query) | Self::Keys(query) | Self::Count(query) => Some(query),
            _ => None,
        };
        let label = query.and_then(|query| query.selector.required().next());
        label.map_or(0, |(key, _)| LABEL_BYTES + shared(key.len()))
    }

    /// The hash of its result in a snapshot; None when it is not about objects, or when the budget is overdrawn.
    pub(super) fn hash_of_objects(&self, snapshot: &Snapshot, budget: &Budget) -> Option<u64> {
        if !budget.spend(1) {
            return None;
        }
        let mut result = ResultHash::default();
        let mut add = |object: &Object, fields: &Projection| {
            result.add(fields.projected_hash_within(object, budget).unwrap_or(UNFINISHED));
        };
        match self {
            Self::Get { target, scope, fields } => {
                let object = snapshot.get(&target.kind, &target.name).filter(|object| is_in(scope, object));
                return object.map_or(Some(ABSENT), |object| fields.projected_hash_within(object, budget));
            }
            Self::Owned { kind, owner, scope, fields } => {
                let owned = snapshot.owned_within(kind, owner, budget).into_iter();
                owned.filter(|object| is_in(scope, object)).for_each(|object| add(object, fields));
            }
            Self::List(query) => {
                snapshot.select_within(query, budget).for_each(|object| add(object, &query.fields));
            }
            Self::Keys(query) => {
                snapshot.select_within(query, budget).for_each(|object| result.add_name(&object.name));
            }
            Self::Count(query) => {
                let count = snapshot.select_within(query, budget).count();
                return (!budget.is_overdrawn()).then(|| hash_of_number(count as u64));
            }
            Self::Now | Self::Config | Self::Rejected | Self::Replies | Self::Kind(_) => return None,
        }
        (!budget.is_overdrawn()).then(|| result.hash())
    }

    /// Whether a change affects the result. True also when the budget is overdrawn before both sides were compared.
    pub(crate) fn is_affected(&self, change: &Change, budget: &Budget) -> bool {
        let differs = match self {
            Self::Get { target, scope, fields } => {
                let is_target = |object: &Object| {
                    Some(object.kind == target.kind && object.name == target.name && is_in(scope, object))
                };
                differs(change, is_target, |object| fields.projected_hash_within(object, budget))
            }
            Self::Owned { kind, owner, scope, fields } => {
                let is_owned =
                    |object: &Object| Some(object.kind == *kind && owner.owns(object) && is_in(scope, object));
                differs(change, is_owned, |object| fields.projected_hash_within(object, budget))
            }
            Self::List(query) => {
                let hash = |object: &Object| query.fields.projected_hash_within(object, budget);
                differs(change, |object| query.matches_within(object, budget), hash)
            }
            Self::Keys(query) | Self::Count(query) => {
                differs(change, |object| query.matches_within(object, budget), |_| Some(ABSENT))
            }
            Self::Now | Self::Config | Self::Rejected | Self::Replies | Self::Kind(_) => Some(false),
        };
        differs.unwrap_or(true)
    }
}

/// Whether an object entered or left a result, or stayed in it with another hash; None when that is not known.
fn differs(
    change: &Change,
    is_in: impl Fn(&Object) -> Option<bool>,
    hash: impl Fn(&Object) -> Option<u64>,
) -> Option<bool> {
    let in_result = |side: &Option<Arc<Object>>| side.as_deref().map_or(Some(false), &is_in);
    match (in_result(&change.before)?, in_result(&change.after)?) {
        (false, false) => Some(false),
        (true, true) => {
            let [before, after] = [&change.before, &change.after].map(|side| side.as_deref().and_then(&hash));
            Some(before? != after?)
        }
        _ => Some(true),
    }
}

/// A dependency that the sets of many keys share, see [`crate::dependency_index`].
#[derive(Debug)]
pub struct SharedDependency {
    dependency: Dependency,
    /// [`Snapshot::changes`] of the kind with the hash at that time: the first of many keys computes it for all.
    result: Mutex<Option<(u64, u64)>>,
}

impl SharedDependency {
    pub(super) fn new(dependency: Dependency) -> Self {
        Self { dependency, result: Mutex::new(None) }
    }

    /// The dependency.
    pub fn dependency(&self) -> &Dependency {
        &self.dependency
    }

    /// As [`Dependency::hash_of_objects`]; a known hash costs one look.
    pub(super) fn hash_of_objects(&self, snapshot: &Snapshot, budget: &Budget) -> Option<u64> {
        let changes = snapshot.changes(self.dependency.kind()?);
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        match *result {
            Some((at, hash)) if at == changes => budget.spend(1).then_some(hash),
            _ => {
                let hash = self.dependency.hash_of_objects(snapshot, budget)?;
                *result = Some((changes, hash));
                Some(hash)
            }
        }
    }
}

impl PartialEq for SharedDependency {
    fn eq(&self, other: &Self) -> bool {
        self.dependency == other.dependency
    }
}

impl Eq for SharedDependency {}

impl Hash for SharedDependency {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dependency.hash(state);
    }
}

/// Whether a plugin may see an object of a kind.
pub(crate) fn is_in(scope: &Option<Arc<Scope>>, object: &Object) -> bool {
    scope.as_ref().is_none_or(|scope| scope.contains(object))
}

pub(crate) fn hash_of_one(object: Option<&Object>, fields: &Projection) -> u64 {
    object.map_or(ABSENT, |object| fields.projected_hash(object))
}

pub(crate) fn hash_of_number(number: u64) -> u64 {
    let mut result = ResultHash::default();
    result.add(number);
    result.hash()
}

/// The hash of a result that is not about objects: a text, rejections.
pub(crate) fn hash_of<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut result = ResultHash::default();
    value.hash(&mut result.0);
    result.hash()
}

/// The hash of a result of several objects, in their order.
#[derive(Default)]
pub(crate) struct ResultHash(DefaultHasher);

impl ResultHash {
    /// Adds an object by the hash of its projection, which is all that the guest sees of it.
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
