//! `owns` of a controller: the kinds of its children, how a child that differs from the outcome is updated, and when one
//! that is being deleted gets a successor. `plan.rs` plans the updates.

use serde::Deserialize;
use serde_json::Value;

use super::narrowing;
use super::place::{kind_at, refuse};
use super::protected::not_for_plugins;
use crate::object::Kind;
use crate::refusal::Refusal;
use crate::scope::Scope;

/// The word for all namespaces.
const ANY: &str = "any";

/// A kind of children and how they change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedKind {
    /// The kind.
    pub kind: Kind,
    /// How they are updated.
    pub update: Update,
    /// When one that is being deleted gets a successor.
    pub replace: Replace,
    /// They may be in other namespaces than their owner, and have no owner references: the host marks them and deletes
    /// them with their owner.
    pub tracked: bool,
    /// Where tracked children may be.
    pub scope: Scope,
    /// Objects that exist already may become children.
    pub adopt: bool,
}

/// When a child that is being deleted gets a successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replace {
    /// When it is gone, so that there is never a second one, not even while the first terminates.
    #[default]
    WhenGone,
    /// As soon as it is being deleted. The successor has another name.
    AtOnce,
}

/// How a child that differs from the outcome is updated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// Changed in place by server-side apply.
    Apply,
    /// Deleted and created anew.
    Recreate,
    /// Deleted and created anew, a few at a time.
    RollingRecreate {
        /// How many of the wanted children of this kind may be unavailable, 1 at least.
        max_unavailable: u32,
    },
    /// Left alone until somebody deletes it, then created anew.
    OnDelete,
}

impl Update {
    /// Whether children are changed in place, not only created and deleted.
    pub fn is_in_place(self) -> bool {
        self == Self::Apply
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawOwned {
    api_version: String,
    kind: String,
    #[serde(default)]
    update: Option<String>,
    #[serde(default)]
    max_unavailable: Option<u32>,
    #[serde(default)]
    replace: Option<String>,
    #[serde(default)]
    namespaces: Option<Value>,
    #[serde(default)]
    labels: Option<Value>,
    #[serde(default)]
    adopt: bool,
}

pub(super) fn parse(place: &str, primary: &Kind, raw: &[RawOwned]) -> Result<Vec<OwnedKind>, Refusal> {
    let mut owns: Vec<OwnedKind> = Vec::new();
    for (at, owned) in raw.iter().enumerate() {
        let place = format!("{place}.owns[{at}]");
        let kind = kind_at(&place, &owned.api_version, &owned.kind)?;
        let (update, replace) = (update(&place, owned)?, replace(&place, owned)?);
        let (tracked, scope) = match &owned.namespaces {
            None => (false, Scope::default()),
            Some(Value::String(word)) if word == ANY => (true, Scope::default()),
            Some(Value::Array(names)) => (true, narrowing::namespaces(&place, names)?),
            Some(other) => {
                return refuse(format!(
                    "{place}.namespaces: {other} is neither \"any\" nor a list; leave it out for children in their owner's \
                     namespace"
                ));
            }
        };
        if owned.labels.is_some() {
            return refuse(format!(
                "{place}.labels: children cannot be narrowed by labels: one that loses its labels would seem deleted, and \
                 the host would create it again and again; only reads can"
            ));
        }
        if owns.iter().any(|owned| owned.kind == kind) {
            return refuse(format!("{place}: {kind} is owned twice"));
        }
        if kind == *primary {
            return refuse(format!("{place}: {kind} cannot be its own child"));
        }
        if let Some(why) = not_for_plugins(&kind) {
            return Err(Refusal::new("ProtectedKind", format!("{place}: {kind} cannot be a child: {why}")));
        }
        owns.push(OwnedKind { kind, update, replace, tracked, scope, adopt: owned.adopt });
    }
    Ok(owns)
}

fn update(place: &str, raw: &RawOwned) -> Result<Update, Refusal> {
    let update = match raw.update.as_deref() {
        None | Some("apply") => Update::Apply,
        Some("recreate") => Update::Recreate,
        Some("rollingRecreate") => Update::RollingRecreate { max_unavailable: raw.max_unavailable.unwrap_or(1) },
        Some("onDelete") => Update::OnDelete,
        Some(other) => {
            return refuse(format!(
                "{place}.update: {other:?} is none of \"apply\", \"recreate\", \"rollingRecreate\" and \"onDelete\""
            ));
        }
    };
    match (update, raw.max_unavailable) {
        (Update::RollingRecreate { max_unavailable: 0 }, _) => {
            refuse(format!("{place}.maxUnavailable: with 0 no child could ever be replaced; set 1 or more"))
        }
        (Update::RollingRecreate { .. }, _) | (_, None) => Ok(update),
        (_, Some(_)) => refuse(format!("{place}.maxUnavailable: only \"update\": \"rollingRecreate\" has it")),
    }
}

fn replace(place: &str, raw: &RawOwned) -> Result<Replace, Refusal> {
    match raw.replace.as_deref() {
        None | Some("whenGone") => Ok(Replace::WhenGone),
        Some("atOnce") => Ok(Replace::AtOnce),
        Some(other) => refuse(format!("{place}.replace: {other:?} is neither \"whenGone\" nor \"atOnce\"")),
    }
}
