//! `controllers` in a manifest: the reconciled kind, the kinds it owns, and the kinds it reads. This module checks an
//! entry.

use std::sync::Arc;

use serde::Deserialize;

use super::http::HttpRule;
use super::owned::{self, OwnedKind, RawOwned, Replace};
use super::place::{RawKind, kind_at, within};
use super::predicate::{Predicate, RawSelection};
use super::protected::{is_builtin_group, not_for_reconciling};
use super::writes::WriteRule;
use crate::object::{Kind, Object};
use crate::refusal::Refusal;
use crate::well_known::GROUP;

/// Concurrent calls of one controller unless its manifest sets another number. controller-runtime's default is 1, with
/// which one slow object delays all others.
pub(super) const DEFAULT_CONCURRENCY: u32 = 8;
/// More workers than any machine has.
const MAX_CONCURRENCY: u32 = 256;

/// One controller.
#[derive(Clone, PartialEq, Debug)]
pub struct ControllerSpec {
    /// The reconciled kind.
    pub primary: Kind,
    /// It is a built-in kind. Kubernetes writes its status, so the host writes neither status nor conditions.
    pub builtin: bool,
    /// The objects that are reconciled.
    pub selection: Predicate,
    /// Kinds of children.
    pub owns: Vec<OwnedKind>,
    /// Kinds that are only read.
    pub reads: Vec<Kind>,
    /// The other writes that the plugin declares; the same for all of its controllers.
    pub writes: Arc<[WriteRule]>,
    /// Where HTTP requests may be sent; the same for all controllers of the plugin.
    pub http: Arc<[HttpRule]>,
    /// The plugin cleans up before its objects are deleted. See [`Self::has_finalizer`].
    pub finalize: bool,
    /// Calls that may run at once.
    pub concurrency: u32,
}

impl ControllerSpec {
    /// Every kind that the guest may read, each once: the primary, the owned, the read.
    pub fn readable(&self) -> Vec<Kind> {
        let mut kinds = vec![self.primary.clone()];
        for kind in self.owns.iter().map(|owned| &owned.kind).chain(&self.reads) {
            if !kinds.contains(kind) {
                kinds.push(kind.clone());
            }
        }
        kinds
    }

    /// Whether an object of the primary kind is reconciled.
    pub fn selects(&self, object: &Object) -> bool {
        self.selection.is_everything() || self.selection.matches(object)
    }

    /// Whether the controller reads a kind and writes none of it. A change of it is never an echo of its own writes.
    pub fn only_reads(&self, kind: &Kind) -> bool {
        let is_written = || self.writes.iter().any(|rule| rule.kind == *kind);
        *kind != self.primary && self.owned(kind).is_none() && !is_written()
    }

    /// A kind of children; None for a kind that is not owned.
    pub fn owned(&self, kind: &Kind) -> Option<&OwnedKind> {
        self.owns.iter().find(|owned| owned.kind == *kind)
    }

    /// Whether children of any kind get a successor while they are being deleted.
    pub fn replaces_at_once(&self) -> bool {
        self.owns.iter().any(|owned| owned.replace == Replace::AtOnce)
    }

    /// Whether children of a kind are tracked.
    pub fn tracks(&self, kind: &Kind) -> bool {
        self.owned(kind).is_some_and(|owned| owned.tracked)
    }

    /// The kinds of tracked children.
    pub fn tracked(&self) -> impl Iterator<Item = &Kind> {
        self.owns.iter().filter(|owned| owned.tracked).map(|owned| &owned.kind)
    }

    /// Whether its objects have the plugin's finalizer: for the plugin's cleanup, or because no garbage collector deletes
    /// tracked children.
    pub fn has_finalizer(&self) -> bool {
        self.finalize || self.tracked().next().is_some()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawController {
    r#for: RawKind,
    #[serde(default)]
    r#where: RawSelection,
    #[serde(default)]
    owns: Vec<RawOwned>,
    #[serde(default)]
    reads: Vec<RawKind>,
    #[serde(default)]
    finalize: bool,
    #[serde(default)]
    concurrency: Option<u32>,
}

pub(super) fn parse(
    index: usize,
    raw: RawController,
    writes: &Arc<[WriteRule]>,
    http: &Arc<[HttpRule]>,
) -> Result<ControllerSpec, Refusal> {
    let place = format!("controllers[{index}]");
    let primary = kind_at(&format!("{place}.for"), &raw.r#for.api_version, &raw.r#for.kind)?;
    if let Some(why) = not_for_reconciling(&primary) {
        return Err(Refusal::new("ProtectedKind", format!("{place}.for: {primary} cannot be reconciled: {why}")));
    }
    if primary.group() == GROUP {
        let message = format!("{place}.for: {primary} belongs to the host; use a group in a domain of your own");
        return Err(Refusal::new("ProtectedGroup", message));
    }
    let selection = Predicate::parse(&format!("{place}.where"), raw.r#where)?;
    let owns = owned::parse(&place, &primary, &raw.owns)?;
    let read = |(at, kind): (usize, &RawKind)| kind_at(&format!("{place}.reads[{at}]"), &kind.api_version, &kind.kind);
    let reads = raw.reads.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    let concurrency = raw.concurrency.unwrap_or(DEFAULT_CONCURRENCY);
    let concurrency = within(&format!("{place}.concurrency"), concurrency, MAX_CONCURRENCY)?;
    let builtin = is_builtin_group(primary.group());
    let (writes, http, finalize) = (Arc::clone(writes), Arc::clone(http), raw.finalize);
    Ok(ControllerSpec { primary, builtin, selection, owns, reads, writes, http, finalize, concurrency })
}
