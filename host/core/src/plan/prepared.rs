//! An outcome after it was checked: children with their names, actions with their targets. Values only; `plan/prepare.rs`
//! makes them and [`super::diff`] compares them with a snapshot.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::contract::{Condition, GuestEvent, PatchKind, Propagation};
use crate::manifest::Update;
use crate::object::ObjectRef;

/// An outcome that has been checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Prepared {
    /// The desired set with its names; None leaves children alone.
    pub children: Option<Vec<PreparedChild>>,
    /// Writes to objects that are no children.
    pub actions: Vec<PreparedAction>,
    /// The guest's status fields.
    pub status: Option<Map<String, Value>>,
    /// The guest's conditions.
    pub conditions: Vec<Condition>,
    /// The guest's events.
    pub events: Vec<GuestEvent>,
    /// When to call again though nothing changes, within the host's bounds.
    pub requeue_after_ms: Option<u64>,
    /// The cleanup of an object that is being deleted is complete.
    pub finalized: bool,
}

/// A child that has been checked and named.
#[derive(Clone, PartialEq, Debug)]
pub struct PreparedChild {
    /// The object it is.
    pub target: ObjectRef,
    /// The guest's key.
    pub key: Arc<str>,
    /// How it is changed.
    pub update: Update,
    /// The guest's own text, shared among children that are alike.
    pub object: Arc<str>,
    /// Hash of that text's content.
    pub hash: Arc<str>,
}

/// An action that has been checked.
#[derive(Clone, PartialEq, Debug)]
pub struct PreparedAction {
    /// The object that is written.
    pub target: ObjectRef,
    /// What is done to it.
    pub action: Action,
}

/// What is done to an object.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Server-side apply.
    Apply {
        /// The partial object as JSON text.
        object: Arc<str>,
        /// Take fields over from other managers.
        force: bool,
    },
    /// A patch.
    Patch {
        /// How the body is read.
        patch_kind: PatchKind,
        /// The patch as JSON text.
        body: Arc<str>,
        /// None is the object itself.
        subresource: Option<Arc<str>>,
    },
    /// A delete.
    Delete(Propagation),
    /// An eviction.
    Evict,
}
