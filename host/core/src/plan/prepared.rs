//! A checked outcome: children with their names, actions with their targets. Values only; `plan/prepare.rs` makes them
//! and [`super::diff`] compares them with a snapshot.

use std::sync::Arc;

use crate::contract::{Condition, GuestEvent, Handling, PatchKind, Propagation};
use crate::generated::{Wanted, fingerprint_of};
use crate::heap::{HeapBytes, allocation, shared};
use crate::http::OutgoingRequest;
use crate::manifest::{Replace, Update};
use crate::object::{Object, ObjectRef};

/// A checked outcome.
#[derive(Clone, PartialEq, Debug)]
pub struct Prepared {
    /// The wanted children by group; None leaves children alone.
    pub children: Option<Vec<PreparedChild>>,
    /// Writes to objects that are not children.
    pub actions: Vec<PreparedAction>,
    /// The guest's status fields as JSON text: a tree of them may have a hundred times its bytes.
    pub status: Option<Arc<str>>,
    /// The guest's conditions.
    pub conditions: Vec<Condition>,
    /// The guest's events.
    pub events: Vec<GuestEvent>,
    /// When to call again if nothing changes, clamped to the host's bounds.
    pub requeue_after_ms: Option<u64>,
    /// The cleanup is complete, so the finalizer can be removed.
    pub finalized: bool,
    /// HTTP requests; shared with the exchanges and their effects.
    pub requests: Vec<Arc<OutgoingRequest>>,
    /// [`Self::bytes`], which the worker counts and not the event loop.
    pub(super) bytes: usize,
}

impl Prepared {
    /// Marks the children and actions in the host's namespace, and that actions spare the ConfigMaps of plugins
    /// elsewhere: a user who may create an owner, or the plugin itself, could have another plugin written there, or a
    /// Pod with the host's ServiceAccount.
    pub(crate) fn reserve(&mut self, Reserved { namespace, from_inside }: &Reserved, primary: &Object) {
        let has_children = primary.name.namespace == *namespace && !from_inside;
        for child in self.children.iter_mut().flatten() {
            child.is_reserved = child.target.name.namespace == *namespace && !has_children;
        }
        for action in &mut self.actions {
            action.is_reserved = action.target.name.namespace == *namespace;
            action.spares_sources = true;
        }
    }

    /// The outcome of a cleanup that has nothing left to do.
    pub fn finalized() -> Self {
        Self {
            children: None,
            actions: Vec::new(),
            status: None,
            conditions: Vec::new(),
            events: Vec::new(),
            requeue_after_ms: None,
            finalized: true,
            requests: Vec::new(),
            bytes: 0,
        }
    }

    /// How many objects it wants: its children, and what its actions apply.
    pub fn objects(&self) -> usize {
        let applies = self.actions.iter().filter(|action| matches!(action.action, Action::Apply { .. }));
        self.children.as_ref().map_or(0, Vec::len) + applies.count()
    }

    /// Its tracked children.
    pub fn tracked(&self) -> impl Iterator<Item = &ObjectRef> {
        self.children.iter().flatten().filter(|child| child.tracked).map(|child| &child.target)
    }

    /// Bytes in memory, as the allocator counts them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same, counted. Children with the same text are side by side mostly, and share it.
    pub(super) fn count_bytes(&self) -> usize {
        let children = self.children.iter().flatten();
        let before = [None].into_iter().chain(children.clone().map(Some));
        let is_shared = |(child, before): &(&PreparedChild, Option<&PreparedChild>)| {
            before.is_some_and(|before| Arc::ptr_eq(&before.object, &child.object))
        };
        let texts = children.clone().zip(before).filter(|pair| !is_shared(pair));
        let texts = texts.map(|(child, _)| child.object.heap_bytes() + child.hash.heap_bytes());
        let of_list =
            self.children.as_ref().map_or(0, |children| allocation(children.capacity() * size_of::<PreparedChild>()));
        shared(size_of::<Self>())
            + of_list
            + children.map(HeapBytes::heap_bytes).sum::<usize>()
            + texts.sum::<usize>()
            + self.actions.heap_bytes()
            + self.status.heap_bytes()
            + self.conditions.heap_bytes()
            + self.events.heap_bytes()
            + allocation(self.requests.capacity() * size_of::<Arc<OutgoingRequest>>())
            + self.requests.iter().map(|request| request.bytes()).sum::<usize>()
    }
}

impl HeapBytes for PreparedChild {
    /// Without the guest's text and its hash, which several children may share.
    fn heap_bytes(&self) -> usize {
        let Self { target, key, body, exact, generated, .. } = self;
        target.heap_bytes()
            + key.heap_bytes()
            + body.as_ref().map_or(0, |body| body.text.heap_bytes())
            + exact.paths.heap_bytes()
            + generated.heap_bytes()
    }
}

impl HeapBytes for PreparedAction {
    fn heap_bytes(&self) -> usize {
        self.target.heap_bytes()
            + match &self.action {
                Action::Apply { body, .. } => body.text.heap_bytes(),
                Action::Patch { body, subresource, .. } => body.text.heap_bytes() + subresource.heap_bytes(),
                Action::Delete(_) | Action::Evict => 0,
            }
    }
}

/// The host's namespace, where plugins do not write.
#[derive(Clone, Debug, Default)]
pub struct Reserved {
    /// Its name.
    pub namespace: Arc<str>,
    /// Objects in it have no children there either.
    pub from_inside: bool,
}

/// A checked child.
#[derive(Clone, PartialEq, Debug)]
pub struct PreparedChild {
    /// Kind and name. One that replaces another may have a name of its own.
    pub target: ObjectRef,
    /// The guest has chosen the name.
    pub is_named: bool,
    /// The guest's key.
    pub key: Arc<str>,
    /// How it is updated.
    pub update: Update,
    /// When it is replaced.
    pub replace: Replace,
    /// The guest's text, shared among children with the same text.
    pub object: Arc<str>,
    /// Hash of the text's content.
    pub hash: Arc<str>,
    /// The body to apply, for a child that is changed in place: every diff compares it.
    pub body: Option<Body>,
    /// What the host does with it.
    pub handling: Handling,
    /// It is left out while another's object has its name.
    pub or_skip: bool,
    /// An object of its name that nobody controls becomes the child.
    pub adopt: bool,
    /// It is marked, without an owner reference.
    pub tracked: bool,
    /// It would be in the host's namespace.
    pub is_reserved: bool,
    /// Its group.
    pub group: u32,
    /// The maps that have the wanted members alone.
    pub exact: Exact,
    /// The values that the host makes.
    pub generated: Arc<[Wanted]>,
}

/// Maps that a child owns as a whole.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Exact {
    /// Their paths as text: as members they have thirty times its bytes.
    pub paths: Arc<[Arc<str>]>,
    /// The fingerprint of the paths.
    pub fingerprint: u128,
}

/// What a write sends. A key remembers it by its fingerprint, which the worker computes and not the event loop.
#[derive(Clone, PartialEq, Debug)]
pub struct Body {
    /// JSON text.
    pub text: Arc<str>,
    /// The fingerprint of the text and of what the host adds to it.
    pub fingerprint: u128,
}

impl Body {
    pub(super) fn new(text: Arc<str>) -> Self {
        Self::with(text, &[])
    }

    /// The body of a child with generated values, which are not in the text.
    pub(super) fn with(text: Arc<str>, generated: &[Wanted]) -> Self {
        Self { fingerprint: fingerprint_of(&text, generated), text }
    }
}

/// A checked action.
#[derive(Clone, PartialEq, Debug)]
pub struct PreparedAction {
    /// The object to write.
    pub target: ObjectRef,
    /// The write.
    pub action: Action,
    /// It would be in the host's namespace.
    pub is_reserved: bool,
    /// It is not carried out on a ConfigMap that brings a plugin.
    pub spares_sources: bool,
}

/// A write to an object that is not a child.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Server-side apply.
    Apply {
        /// The partial object.
        body: Body,
        /// Take fields over from other managers.
        force: bool,
    },
    /// A patch.
    Patch {
        /// How the body is read.
        patch_kind: PatchKind,
        /// The patch.
        body: Body,
        /// None is the object itself.
        subresource: Option<Arc<str>>,
    },
    /// A delete.
    Delete(Propagation),
    /// An eviction.
    Evict,
}
