//! Objects that have the name of a child and are none: which of them may become the child, by which write, and why the
//! others may not. An object that another controller has is never touched.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::body;
use super::parsing::Parsing;
use super::prepared::PreparedChild;
use crate::contract::Handling;
use crate::digest::fingerprint;
use crate::json::compare::Comparison;
use crate::json::level::Level;
use crate::object::{Object, ObjectRef, Verdict};
use crate::well_known::{AGGREGATE_LABEL, HOST, MANAGED_BY_LABEL, OWNER_UID_LABEL, PART_OF_LABEL, PLUGIN};
use crate::write::{Precondition, WriteOp};

/// An object that has the name of a child and is not one, or a place that no child may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The object.
    pub target: ObjectRef,
    /// The key of the child that should have its name.
    pub key: Arc<str>,
    /// Who has it, "of Deployment web"; None for an object without an owner.
    of: Option<String>,
    /// Nobody has it: it is in the host's namespace.
    pub is_reserved: bool,
}

impl Taken {
    /// An object that is not a child.
    pub fn new(live: &Object, key: Arc<str>) -> Self {
        let of = match &live.controller {
            Some(owner) => Some(format!("of {} {}", owner.kind.kind, owner.name)),
            None if is_of_host(live) => Some(format!("of {HOST}")),
            None => live.deleting.then(|| "being deleted".to_owned()),
        };
        Self { target: live.reference(), key, of, is_reserved: false }
    }

    /// A child that would be in the host's namespace.
    pub(super) fn reserved(child: &PreparedChild) -> Self {
        Self { target: child.target.clone(), key: Arc::clone(&child.key), of: None, is_reserved: true }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Some(of) => write!(f, "{} ({of})", self.target),
            None => write!(f, "{}", self.target),
        }
    }
}

/// Whether an object that is not a child may become one.
pub(super) fn is_free(live: &Object) -> bool {
    let is_marked = live.label(OWNER_UID_LABEL).is_some();
    live.controller.is_none() && !live.deleting && !is_marked && !is_of_host(live)
}

/// A plugin's bytes, a CRD, the key of the webhooks, the host's roles and its Lease: who changes these has the host's
/// rights. Former children have the label of what is managed too, and a key.
fn is_of_host(live: &Object) -> bool {
    let has = |label: &str| live.label(label) == Some(HOST);
    let is_named = live.label(PLUGIN).is_some() || live.label(AGGREGATE_LABEL).is_some() || has(PART_OF_LABEL);
    is_named || (has(MANAGED_BY_LABEL) && live.child_key.is_none())
}

/// The write that makes a free object a child. It applies to the version that was seen alone: another controller may take
/// the object at the same time.
///
/// A child that is changed in place gets its fields at once. Another is not changed: when it has every wanted field it
/// counts as created from them, else as created from something else, and `update` of its kind says when it is replaced. None
/// when that is not compared yet, for want of budget.
pub(super) fn adopt(child: &PreparedChild, primary: &Object, live: &Object, parsing: &mut Parsing) -> Option<WriteOp> {
    let body = match &child.body {
        Some(body) => Arc::clone(&body.text),
        None => {
            let is_wanted = match live.verdict(fingerprint_of(child)) {
                _ if child.handling != Handling::Managed => false,
                Some(verdict) => verdict == Verdict::Same,
                None if !parsing.allows(size(child, live)) => return None,
                None => is_as_wanted(child, live),
            };
            body::claim(child, primary, is_wanted.then_some(&*child.hash))
        }
    };
    let only_if = Precondition::Unchanged { uid: Arc::clone(&live.uid), version: live.resource_version };
    Some(WriteOp::Apply { target: child.target.clone(), body, force: true, only_if, draws: None })
}

/// The bytes that [`adopt`] would parse of an object of which nothing is remembered.
pub(super) fn bytes(child: &PreparedChild, live: &Object) -> usize {
    let is_compared = child.adopt && child.body.is_none() && child.handling == Handling::Managed && is_free(live);
    if is_compared && live.verdict(fingerprint_of(child)).is_none() { size(child, live) } else { 0 }
}

/// Compares, and lets the object remember the result.
pub(super) fn remember(child: &PreparedChild, live: &Object) {
    if bytes(child, live) > 0 {
        let verdict = if is_as_wanted(child, live) { Verdict::Same } else { Verdict::Differs };
        live.remember_verdict(fingerprint_of(child), verdict);
    }
}

fn size(child: &PreparedChild, live: &Object) -> usize {
    live.json().len() + child.object.len()
}

fn fingerprint_of(child: &PreparedChild) -> u128 {
    fingerprint(&["adopt", &child.hash])
}

fn is_as_wanted(child: &PreparedChild, live: &Object) -> bool {
    let raw = |text| serde_json::from_str::<&RawValue>(text).ok();
    let texts = raw(live.json()).zip(raw(&child.object));
    texts.is_some_and(|(live, wanted)| {
        Comparison::new(live.get().len() + wanted.get().len()).has(live, wanted, is_nothing)
    })
}

/// Whether the API server may leave out a member of this value.
fn is_nothing(wanted: &RawValue) -> bool {
    wanted.get() == "null"
        || match Level::of(wanted, 1) {
            Level::Object(members) => members.is_empty(),
            Level::List(items) => items.is_empty(),
            Level::Scalar | Level::Wide => false,
        }
}
