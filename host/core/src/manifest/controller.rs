//! `controllers` in a manifest: the reconciled kind, the kinds it owns, and the kinds it reads. This module checks an
//! entry.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::http::HttpRule;
use super::narrowing;
use super::owned::{self, OwnedKind, RawOwned, Replace};
use super::place::{RawKind, at_most, kind_at, refuse, within};
use super::predicate::{Predicate, RawSelection};
use super::protected::{is_builtin_group, not_for_reconciling};
use super::writes::WriteRule;
use crate::kind_pattern::KindPattern;
use crate::limits::MAX_KINDS;
use crate::object::{Kind, Object};
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::well_known::GROUP;

/// Concurrent calls of one controller unless its manifest sets another number. controller-runtime's default is 1, with
/// which one slow object delays all others.
pub(super) const DEFAULT_CONCURRENCY: u32 = 8;
/// Patterns of kinds that one controller reads: each costs a comparison when a call names a kind.
const MAX_PATTERNS: usize = 32;
/// More workers than any machine has.
const MAX_CONCURRENCY: u32 = 256;

/// One controller.
#[derive(Clone, PartialEq, Debug)]
pub struct ControllerSpec {
    /// The reconciled kind.
    pub primary: Kind,
    /// Which of its objects there are for the plugin; all, but for a tenant's.
    pub scope: Scope,
    /// It is a built-in kind. Kubernetes writes its status, so the host writes neither status nor conditions.
    pub builtin: bool,
    /// The objects that are reconciled.
    pub selection: Predicate,
    /// Kinds of children.
    pub owns: Vec<OwnedKind>,
    /// Kinds that are only read.
    pub reads: Vec<ReadKind>,
    /// Kinds that calls may name at run time, to read them.
    pub patterns: Vec<KindPattern>,
    /// The other writes that the plugin declares; the same for all of its controllers.
    pub writes: Arc<[WriteRule]>,
    /// Where HTTP requests may be sent; the same for all controllers of the plugin.
    pub http: Arc<[HttpRule]>,
    /// The plugin cleans up before its objects are deleted. See [`Self::has_finalizer`].
    pub finalize: bool,
    /// Calls that may run at once.
    pub concurrency: u32,
    /// What is seen of kinds of which the plugin may not read all. No manifest says that: the Reconciler knows it.
    pub visible: Vec<(Kind, Arc<Scope>)>,
}

/// A kind that is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadKind {
    /// The kind.
    pub kind: Kind,
    /// Which of its objects.
    pub scope: Scope,
}

impl From<Kind> for ReadKind {
    /// Every object of the kind.
    fn from(kind: Kind) -> Self {
        Self { kind, scope: Scope::default() }
    }
}

impl ControllerSpec {
    /// Every kind that the guest may read, each once: the primary, the owned, the read.
    pub fn readable(&self) -> Vec<Kind> {
        self.scopes().into_iter().map(|(kind, _)| kind).collect()
    }

    /// Every kind that the guest may read, with what it may see of it: the union of what is declared.
    pub fn scopes(&self) -> Vec<(Kind, Scope)> {
        let mut scopes: Vec<(Kind, Scope)> = Vec::new();
        for (kind, scope) in self.declared() {
            match scopes.iter_mut().find(|(known, _)| known == kind) {
                Some((_, known)) => *known = std::mem::take(known).union(scope),
                None => scopes.push((kind.clone(), scope.clone())),
            }
        }
        scopes
    }

    /// Whether a namespace of a kind is declared and may be read, so that the cache shows what is written there.
    pub fn sees(&self, kind: &Kind, namespace: &str) -> bool {
        let mut visible = self.visible.iter().filter(|(visible, _)| visible == kind);
        self.declares(kind, namespace) && visible.all(|(_, scope)| scope.has_namespace(namespace))
    }

    /// Whether a namespace of a kind is declared.
    pub fn declares(&self, kind: &Kind, namespace: &str) -> bool {
        let of_kind = self.declared().filter(|(declared, _)| *declared == kind);
        of_kind.into_iter().any(|(_, scope)| scope.has_namespace(namespace))
    }

    /// The declared kind that equals this one: what is kept of a guest's texts shares the manifest's.
    pub(crate) fn declared_kind(&self, kind: &Kind) -> Option<&Kind> {
        let written = self.writes.iter().map(|rule| &rule.kind);
        self.declared().map(|(declared, _)| declared).chain(written).find(|declared| *declared == kind)
    }

    /// The declarations, which may name a kind twice.
    fn declared(&self) -> impl Iterator<Item = (&Kind, &Scope)> {
        let owned = self.owns.iter().map(|owned| (&owned.kind, &owned.scope));
        let read = self.reads.iter().map(|read| (&read.kind, &read.scope));
        [(&self.primary, &self.scope)].into_iter().chain(owned).chain(read)
    }

    /// The watches of kinds in some namespaces.
    pub(super) fn count_watches(&self) -> usize {
        self.declared().map(|(_, scope)| scope.namespaces.len()).sum()
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
    reads: Vec<RawRead>,
    #[serde(default)]
    finalize: bool,
    #[serde(default)]
    concurrency: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawRead {
    api_version: String,
    kind: String,
    #[serde(default)]
    namespaces: Option<Vec<Value>>,
    #[serde(default)]
    labels: Option<String>,
}

fn parse_read(place: &str, raw: &RawRead) -> Result<ReadKind, Refusal> {
    let kind = kind_at(place, &raw.api_version, &raw.kind)?;
    let mut scope = Scope::default();
    if let Some(namespaces) = &raw.namespaces {
        scope = narrowing::namespaces(place, namespaces)?;
    }
    if let Some(labels) = &raw.labels {
        scope.labels = narrowing::labels(place, labels)?;
    }
    Ok(ReadKind { kind, scope })
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
    // Their entries are compared with each other.
    at_most(&format!("{place}.owns"), raw.owns.len(), MAX_KINDS)?;
    at_most(&format!("{place}.reads"), raw.reads.len(), MAX_KINDS + MAX_PATTERNS)?;
    let owns = owned::parse(&place, &primary, &raw.owns)?;
    let (reads, patterns) = read_kinds(&place, &raw.reads)?;
    let concurrency = raw.concurrency.unwrap_or(DEFAULT_CONCURRENCY);
    let concurrency = within(&format!("{place}.concurrency"), concurrency, MAX_CONCURRENCY)?;
    let builtin = is_builtin_group(primary.group());
    let (writes, http, finalize) = (Arc::clone(writes), Arc::clone(http), raw.finalize);
    Ok(ControllerSpec {
        primary,
        scope: Scope::default(),
        builtin,
        selection,
        owns,
        reads,
        patterns,
        writes,
        http,
        finalize,
        concurrency,
        visible: Vec::new(),
    })
}

/// The kinds, and the patterns: entries whose kind is `*`.
fn read_kinds(place: &str, raw: &[RawRead]) -> Result<(Vec<ReadKind>, Vec<KindPattern>), Refusal> {
    let (mut kinds, mut patterns) = (Vec::new(), Vec::new());
    for (at, raw) in raw.iter().enumerate() {
        let place = format!("{place}.reads[{at}]");
        match &*raw.kind {
            "*" if raw.namespaces.is_some() || raw.labels.is_some() => {
                return refuse(format!("{place}: a pattern of kinds is not narrowed by namespaces or labels"));
            }
            "*" => {
                patterns.push(KindPattern::parse(&raw.api_version).or_else(|why| refuse(format!("{place}: {why}")))?)
            }
            _ => kinds.push(parse_read(&place, raw)?),
        }
    }
    at_most(&format!("{place}.reads: patterns"), patterns.len(), MAX_PATTERNS)?;
    Ok((kinds, patterns))
}
