//! `writes` in a manifest: what a plugin may write besides children and status. Every action is checked against these
//! rules; whether RBAC allows it too is not known here.

use serde::Deserialize;

use super::place::{MAX_ENTRIES, at_most, kind_at, refuse};
use super::protected::not_for_plugins;
use crate::object::Kind;
use crate::refusal::Refusal;
use crate::scope::Scope;

/// The bound of a DNS label. Subresources become part of a request's path, so nothing but a lowercase word is accepted.
const MAX_SUBRESOURCE_BYTES: usize = 63;

/// The actions that are allowed on objects of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteRule {
    /// The kind.
    pub kind: Kind,
    /// Sorted, each once.
    pub verbs: Vec<WriteVerb>,
    /// Subresources that may be patched too; sorted, each once.
    pub subresources: Vec<String>,
}

/// What an action does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WriteVerb {
    /// Create or change by server-side apply.
    Apply,
    /// Patch an existing object.
    Patch,
    /// Delete, with the UID in view.
    Delete,
    /// Evict a Pod through its eviction subresource.
    Evict,
}

impl WriteVerb {
    const ALL: [Self; 4] = [Self::Apply, Self::Patch, Self::Delete, Self::Evict];

    /// The word in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Evict => "evict",
        }
    }

    /// Whether the request carries the UID that was seen (X4), so that the controller must read the kind.
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

/// Merges the entries of one kind: several controllers of a plugin may each bring theirs.
pub(super) fn parse(raw: Vec<RawWrite>) -> Result<Vec<WriteRule>, Refusal> {
    at_most("writes", raw.len(), MAX_ENTRIES)?;
    let mut rules: Vec<WriteRule> = Vec::new();
    for (index, write) in raw.into_iter().enumerate() {
        let next = rule(&format!("writes[{index}]"), write)?;
        if let Some(known) = rules.iter_mut().find(|known| known.kind == next.kind) {
            known.verbs.extend(next.verbs);
            known.subresources.extend(next.subresources);
        } else {
            rules.push(next);
        }
    }
    for rule in &mut rules {
        rule.verbs.sort();
        rule.verbs.dedup();
        rule.subresources.sort();
        rule.subresources.dedup();
    }
    Ok(rules)
}

fn rule(place: &str, raw: RawWrite) -> Result<WriteRule, Refusal> {
    let kind = kind_at(place, &raw.api_version, &raw.kind)?;
    if let Some(why) = not_for_plugins(&kind) {
        return Err(Refusal::new("ProtectedKind", format!("{place}: {kind} cannot be written: {why}")));
    }
    let mut verbs = Vec::new();
    for word in &raw.verbs {
        let Some(verb) = WriteVerb::ALL.into_iter().find(|verb| verb.as_str() == word) else {
            return refuse(format!(
                "{place}.verbs: {word:?} is none of \"apply\", \"patch\", \"delete\" and \"evict\""
            ));
        };
        verbs.push(verb);
    }
    if verbs.is_empty() {
        return refuse(format!("{place}.verbs: there is none, so nothing could be done to {kind}"));
    }
    if verbs.contains(&WriteVerb::Evict) && kind != Kind::new("v1", "Pod") {
        return refuse(format!("{place}.verbs: only v1/Pod can be evicted, not {kind}"));
    }
    if !raw.subresources.is_empty() && !verbs.contains(&WriteVerb::Patch) {
        return refuse(format!("{place}.subresources: they can only be patched, and patch is not declared"));
    }
    if let Some(odd) = raw.subresources.iter().find(|name| !is_subresource(name)) {
        return refuse(format!("{place}.subresources: {odd:?} is not a subresource such as \"status\" or \"scale\""));
    }
    Ok(WriteRule { kind, verbs, subresources: raw.subresources })
}

/// A delete and an eviction carry the UID that was seen (X4), so some controller must read the kind. Of a kind that is
/// read by labels, the cache does not show what the plugin writes without them (R2).
pub(super) fn check_views(rules: &[WriteRule], scopes: &[(Kind, Scope)]) -> Result<(), Refusal> {
    let is_read = |kind: &Kind| scopes.iter().any(|(read, _)| read == kind);
    for (index, WriteRule { kind, verbs, .. }) in rules.iter().enumerate() {
        if let Some((_, scope)) = scopes.iter().find(|(of, scope)| of == kind && !scope.labels.is_everything()) {
            return refuse(format!(
                "writes[{index}]: {kind} is read with the labels {} alone, so the host would not see what it has written \
                 without them; read the kind without labels",
                scope.labels
            ));
        }
        if let Some(verb) = verbs.iter().find(|verb| verb.needs_view() && !is_read(kind)) {
            let verb = verb.as_str();
            return refuse(format!(
                "writes[{index}]: {verb} of {kind} carries the UID that was seen; declare the kind under reads of a \
                 controller"
            ));
        }
    }
    Ok(())
}

fn is_subresource(name: &str) -> bool {
    (1..=MAX_SUBRESOURCE_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_lowercase())
}
