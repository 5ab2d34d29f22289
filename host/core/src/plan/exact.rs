//! Maps that a child owns as a whole, such as a ConfigMap's `data`: server-side apply leaves members of other managers in
//! them, so the host removes these with a patch. Nothing here compares what the plugin does want.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::actions::Memory;
use super::fault::bad;
use super::parsing::Parsing;
use super::prepared::{Body, Exact, PreparedChild};
use crate::contract::{Child, GuestFault, PatchKind};
use crate::digest::fingerprint;
use crate::json::level::{Level, member};
use crate::json::object_text::ObjectText;
use crate::object::{Object, Verdict};
use crate::projection::path;
use crate::write::{Precondition, WriteOp};

/// The fields of an object that others own members of.
const SHARED: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// Exact maps of one child. A ConfigMap has two, and each is searched for in every version of the child.
const MAX_PATHS: usize = 16;
/// Members of one path. The deepest map of a built-in kind, a CronJob's nodeSelector, has six.
const MAX_MEMBERS: usize = 16;

pub(super) fn parse(child: &Child, is_applied: bool) -> Result<Exact, GuestFault> {
    parse_paths(&child.exact, is_applied).or_else(|why| bad(format!("child {:?}: {why}", child.key)))
}

fn parse_paths(paths: &[Arc<str>], is_applied: bool) -> Result<Exact, String> {
    if paths.is_empty() {
        return Ok(Exact::default());
    }
    if !is_applied {
        return Err("only a child that is changed in place (`update` \"apply\") owns a map exactly".to_owned());
    }
    if paths.len() > MAX_PATHS {
        return Err(format!("exact: there are {} paths, the most is {MAX_PATHS}", paths.len()));
    }
    for text in paths {
        let members = path::parse(text).map_err(|error| error.to_string())?;
        if members.len() > MAX_MEMBERS {
            return Err(format!("exact: a path has {} members, the most is {MAX_MEMBERS}", members.len()));
        }
        if let Some(first) = members.first().filter(|first| SHARED.contains(&first.as_str())) {
            return Err(format!("{text}: others have members of {first} too"));
        }
    }
    let texts: Vec<&str> = paths.iter().map(|text| &**text).collect();
    Ok(Exact { paths: paths.into(), fingerprint: fingerprint(&texts) })
}

/// The patch that removes the members that are not wanted. None when there are none, or when the API server kept them
/// in answer to the same patch, because it sets their default; the next plan looks for those that there was no budget to look
/// for.
pub(super) fn removal(
    child: &PreparedChild,
    body: &Body,
    live: &Object,
    memory: &mut Memory<'_>,
    parsing: &mut Parsing,
) -> Option<WriteOp> {
    if child.exact.paths.is_empty() {
        return None;
    }
    let target = live.reference();
    let this = (fingerprint_of(child, body), live.resource_version);
    if memory.exact.get(&target) == Some(&this) {
        return None;
    }
    let patch = match live.verdict(this.0) {
        Some(Verdict::Needs(patch)) => Some(patch),
        Some(Verdict::Same | Verdict::Differs) => None,
        None if !parsing.allows(live.json().len() + body.text.len()) => return None,
        None => patch(child, body, live).map(Arc::from),
    };
    let place = (target, None);
    let is_sent = |patch: &Arc<str>| {
        let sent = memory.sent.get(&place).filter(|(_, version)| *version == live.resource_version);
        sent.is_some_and(|(sent, _)| *sent == fingerprint(&[patch]))
    };
    let target = place.0.clone();
    let Some(patch) = patch.filter(|patch| !is_sent(patch)) else {
        memory.exact.insert(target, this);
        return None;
    };
    Some(WriteOp::Patch {
        target,
        patch_kind: PatchKind::Merge,
        body: patch,
        subresource: None,
        only_if: Precondition::Is(Arc::clone(&live.uid)),
    })
}

/// The bytes that [`removal`] would parse of an object of which nothing is remembered.
pub(super) fn bytes(child: &PreparedChild, body: &Body, live: &Object) -> usize {
    let is_known = child.exact.paths.is_empty() || live.verdict(fingerprint_of(child, body)).is_some();
    if is_known { 0 } else { live.json().len() + body.text.len() }
}

/// Looks for the patch, and lets the object remember the result.
pub(super) fn remember(child: &PreparedChild, body: &Body, live: &Object) {
    if bytes(child, body, live) > 0 {
        let verdict = patch(child, body, live).map_or(Verdict::Same, |patch| Verdict::Needs(patch.into()));
        live.remember_verdict(fingerprint_of(child, body), verdict);
    }
}

fn fingerprint_of(child: &PreparedChild, body: &Body) -> u128 {
    child.exact.fingerprint ^ body.fingerprint
}

/// The JSON merge patch, or None when nothing has to go.
fn patch(child: &PreparedChild, body: &Body, live: &Object) -> Option<String> {
    let live: &RawValue = serde_json::from_str(live.json()).ok()?;
    let wanted: &RawValue = serde_json::from_str(&body.text).ok()?;
    let parsed = child.exact.paths.iter().map(|path| path::parse(path).expect("prepare has parsed this path"));
    let paths: Vec<Vec<String>> = parsed.collect();
    let is_generated = |name: &str| child.generated.iter().any(|own| own.keys().any(|key| key == name));
    let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
    removals(live, Some(wanted), &paths, &is_generated, Depth::Object)
}

/// How deep members are: those of `data` may be the host's.
#[derive(Clone, Copy, PartialEq)]
enum Depth {
    Object,
    Data,
    Other,
}

/// What has to go of the values at some paths. Each value on their ways is read once, however many begin with it.
fn removals(
    live: &RawValue,
    wanted: Option<&RawValue>,
    paths: &[&[String]],
    is_generated: &dyn Fn(&str) -> bool,
    depth: Depth,
) -> Option<String> {
    let live = Level::of(live, usize::MAX).into_members()?;
    let wanted = wanted.and_then(|wanted| Level::of(wanted, usize::MAX).into_members()).unwrap_or_default();
    let is_wanted = |name: &str| member(&wanted, name).is_some() || (depth == Depth::Data && is_generated(name));
    let is_exact = paths.iter().any(|path| path.is_empty());
    let mut below: BTreeMap<&str, Vec<&[String]>> = BTreeMap::new();
    for (name, rest) in paths.iter().filter_map(|path| path.split_first()) {
        below.entry(name).or_default().push(rest);
    }
    let mut patch = ObjectText::default();
    for (name, value) in &live {
        if is_exact && !is_wanted(name) {
            patch.push(name, "null");
        } else if let Some(paths) = below.get(&**name) {
            let is_data = depth == Depth::Object && name == "data" && paths.iter().any(|path| path.is_empty());
            let depth = if is_data { Depth::Data } else { Depth::Other };
            if let Some(inner) = removals(value, member(&wanted, name), paths, is_generated, depth) {
                patch.push(name, &inner);
            }
        }
    }
    patch.finish()
}
