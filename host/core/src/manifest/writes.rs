//! What a plugin may write besides children and status: the manifest's `writes`, checked. Kinds and verbs come in, the
//! permissions come out that every action is held against; whether the API server allows them too is not known here.

use serde::Deserialize;

use super::place::{kind_at, refuse};
use super::protected::not_for_plugins;
use crate::object::Kind;
use crate::refusal::Refusal;

/// Subresources that a patch can do something with are words like these; whatever else is written is refused before it gets
/// into a path.
const MAX_SUBRESOURCE_BYTES: usize = 63;

/// What may be done to objects of one kind that are no children.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteRule {
    /// The kind.
    pub kind: Kind,
    /// What may be done, each once.
    pub verbs: Vec<WriteVerb>,
    /// Subresources that may be patched beside the object itself.
    pub subresources: Vec<String>,
}

/// What an action does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WriteVerb {
    /// Create or change by server-side apply.
    Apply,
    /// Change what is there.
    Patch,
    /// Delete what was seen.
    Delete,
    /// Evict a Pod through its eviction subresource.
    Evict,
}

impl WriteVerb {
    /// All of them, as a manifest writes them.
    const ALL: [Self; 4] = [Self::Apply, Self::Patch, Self::Delete, Self::Evict];

    /// As a manifest writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Evict => "evict",
        }
    }

    /// Whether it is about the very object that was seen, so that the kind has to be read.
    pub fn needs_view(self) -> bool {
        matches!(self, Self::Delete | Self::Evict)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawWrite {
    api_version: String,
    kind: String,
    verbs: Vec<String>,
    #[serde(default)]
    subresources: Vec<String>,
}

/// Whether a verb is declared for a kind.
pub fn allows(rules: &[WriteRule], kind: &Kind, verb: WriteVerb) -> bool {
    rules.iter().any(|rule| rule.kind == *kind && rule.verbs.contains(&verb))
}

/// Whether patches of a kind's subresource are declared.
pub fn allows_subresource(rules: &[WriteRule], kind: &Kind, subresource: &str) -> bool {
    let names = |rule: &WriteRule| rule.subresources.iter().any(|declared| declared == subresource);
    rules.iter().any(|rule| rule.kind == *kind && rule.verbs.contains(&WriteVerb::Patch) && names(rule))
}

/// The Pods that evictions are of.
fn pod() -> Kind {
    Kind::new("v1", "Pod")
}

/// Reads `writes`. Several entries of one kind add up, because several controllers of a plugin may each bring theirs.
pub(super) fn parse(raw: Vec<RawWrite>) -> Result<Vec<WriteRule>, Refusal> {
    let mut rules: Vec<WriteRule> = Vec::new();
    for (index, write) in raw.into_iter().enumerate() {
        let next = rule(&format!("writes[{index}]"), write)?;
        let Some(known) = rules.iter_mut().find(|known| known.kind == next.kind) else {
            rules.push(next);
            continue;
        };
        known.verbs.extend(next.verbs);
        known.verbs.sort();
        known.verbs.dedup();
        known.subresources.extend(next.subresources);
        known.subresources.sort();
        known.subresources.dedup();
    }
    Ok(rules)
}

fn rule(place: &str, raw: RawWrite) -> Result<WriteRule, Refusal> {
    let kind = kind_at(place, &raw.api_version, &raw.kind)?;
    if let Some(why) = not_for_plugins(&kind) {
        return Err(Refusal::new("ProtectedKind", format!("{place}: {kind} cannot be written: {why}")));
    }
    let mut verbs = Vec::new();
    for written in &raw.verbs {
        let Some(verb) = WriteVerb::ALL.into_iter().find(|verb| verb.as_str() == written) else {
            return refuse(format!(
                "{place}.verbs: {written:?} is none of \"apply\", \"patch\", \"delete\" and \"evict\""
            ));
        };
        verbs.push(verb);
    }
    verbs.sort();
    verbs.dedup();
    if verbs.is_empty() {
        return refuse(format!("{place}.verbs: there is none, so nothing could be done to {kind}"));
    }
    if verbs.contains(&WriteVerb::Evict) && kind != pod() {
        return refuse(format!("{place}.verbs: only v1/Pod can be evicted, not {kind}"));
    }
    if !raw.subresources.is_empty() && !verbs.contains(&WriteVerb::Patch) {
        return refuse(format!(
            "{place}.subresources: only a patch can be of a subresource, and patch is not declared"
        ));
    }
    if let Some(odd) = raw.subresources.iter().find(|name| !is_subresource(name)) {
        return refuse(format!("{place}.subresources: {odd:?} is no subresource, such as \"status\" or \"scale\""));
    }
    Ok(WriteRule { kind, verbs, subresources: raw.subresources })
}

/// A delete and an eviction carry the UID that was seen (X4), so some controller has to see the kind.
pub(super) fn check_views(rules: &[WriteRule], is_seen: impl Fn(&Kind) -> bool) -> Result<(), Refusal> {
    for (index, rule) in rules.iter().enumerate() {
        if let Some(verb) = rule.verbs.iter().find(|verb| verb.needs_view() && !is_seen(&rule.kind)) {
            return refuse(format!(
                "writes[{index}]: {} of {} needs the kind under reads of a controller, because it carries the UID that was \
                 seen",
                verb.as_str(),
                rule.kind
            ));
        }
    }
    Ok(())
}

fn is_subresource(name: &str) -> bool {
    (1..=MAX_SUBRESOURCE_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_lowercase())
}
