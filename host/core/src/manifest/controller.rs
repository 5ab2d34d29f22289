//! What a manifest says under `controllers`: the reconciled kind, its children, and what is read beside them. A raw entry
//! comes in, a checked one goes out.

use std::sync::Arc;

use serde::Deserialize;

use super::owned::{self, OwnedKind, RawOwned, Update};
use super::place::{RawKind, kind_at, refuse};
use super::predicate::{Predicate, RawSelection};
use super::protected::{is_builtin_group, not_for_reconciling};
use super::writes::WriteRule;
use crate::object::{Kind, Object};
use crate::refusal::Refusal;
use crate::well_known::GROUP;

/// Calls of one controller that run at once unless its manifest says otherwise; controller-runtime's default is 1,
/// which makes one slow object hold up all others.
pub(super) const DEFAULT_CONCURRENCY: u32 = 8;
/// More than any machine has workers for.
const MAX_CONCURRENCY: u32 = 256;

/// One controller.
#[derive(Clone, PartialEq, Debug)]
pub struct ControllerSpec {
    /// The reconciled kind.
    pub primary: Kind,
    /// It is a kind of Kubernetes itself, which writes its status: the host writes none, and no condition either.
    pub builtin: bool,
    /// Which of its objects are reconciled.
    pub selection: Predicate,
    /// Kinds of children.
    pub owns: Vec<OwnedKind>,
    /// Kinds that are only read.
    pub reads: Vec<Kind>,
    /// What the plugin may write besides; the same for all of its controllers.
    pub writes: Arc<[WriteRule]>,
    /// Objects are kept from going until the plugin has cleaned up after them.
    pub finalize: bool,
    /// Calls that may run at once.
    pub concurrency: u32,
}

impl ControllerSpec {
    /// Every kind that the guest may see, without repetition: the primary, what it owns, what it reads.
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

    /// Whether the guest sees a kind and writes none of it, so that a change of it is never an echo of its own writes.
    pub fn only_reads(&self, kind: &Kind) -> bool {
        let (is_owned, is_written) =
            (self.update_of(kind).is_some(), self.writes.iter().any(|rule| rule.kind == *kind));
        *kind != self.primary && !is_owned && !is_written
    }

    /// How children of a kind are changed, or None when it is not owned.
    pub fn update_of(&self, kind: &Kind) -> Option<Update> {
        self.owns.iter().find(|owned| owned.kind == *kind).map(|owned| owned.update)
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

/// Reads one controller.
pub(super) fn parse(index: usize, raw: RawController, writes: &Arc<[WriteRule]>) -> Result<ControllerSpec, Refusal> {
    let place = format!("controllers[{index}]");
    let primary = kind_at(&format!("{place}.for"), &raw.r#for.api_version, &raw.r#for.kind)?;
    if let Some(why) = not_for_reconciling(&primary) {
        return Err(Refusal::new("ProtectedKind", format!("{place}.for: {primary} cannot be reconciled: {why}")));
    }
    if primary.group() == GROUP {
        return Err(Refusal::new(
            "ProtectedGroup",
            format!(
                "{place}.for: {primary} is the host's own record of its plugins; take a group of a domain of yours"
            ),
        ));
    }
    let selection = Predicate::parse(&format!("{place}.where"), raw.r#where)?;
    let owns = owned::parse(&place, &primary, &raw.owns)?;
    let reads = raw
        .reads
        .iter()
        .enumerate()
        .map(|(at, kind)| kind_at(&format!("{place}.reads[{at}]"), &kind.api_version, &kind.kind))
        .collect::<Result<Vec<_>, _>>()?;
    let concurrency = raw.concurrency.unwrap_or(DEFAULT_CONCURRENCY);
    if concurrency == 0 || concurrency > MAX_CONCURRENCY {
        return refuse(format!("{place}.concurrency: {concurrency} is not within 1 and {MAX_CONCURRENCY}"));
    }
    let builtin = is_builtin_group(primary.group());
    let (writes, finalize) = (Arc::clone(writes), raw.finalize);
    Ok(ControllerSpec { primary, builtin, selection, owns, reads, writes, finalize, concurrency })
}
