//! The metadata that admission and conversion may change: labels and annotations, except those of the host.

use serde_json::value::RawValue;

use crate::json::level::{Level, Member, member};
use crate::json::patch::Patch;
use crate::text::FIELD;
use crate::well_known::PREFIX;

pub(crate) const OPEN: [&str; 2] = ["labels", "annotations"];
/// Members of an object, its metadata, labels or annotations that are looked at: some megabytes. Nobody has as many.
const MOST: usize = 1 << 16;

/// The first field that differs and that a plugin may not change: "metadata.name, which is not a plugin's to change".
pub(crate) fn not_to_change(before: &[Member<'_>], after: &[Member<'_>]) -> Option<String> {
    for (part, _) in before.iter().chain(after) {
        let (was, is) = (member(before, part), member(after, part));
        if let (Some(was), Some(is)) = (was, is)
            && (was.get() == is.get() || Patch::is_same(was, is))
        {
            continue;
        }
        if !OPEN.contains(&&**part) {
            return Some(format!("metadata.{}, which is not a plugin's to change", FIELD.text(part)));
        }
        let (was, is) = match (members_of(was), members_of(is)) {
            (Ok(was), Ok(is)) => (was, is),
            (Err(why), _) | (_, Err(why)) => return Some(format!("metadata.{part}, which {why}")),
        };
        let is_ours = |(key, _): &&Member<'_>| key.starts_with(PREFIX) && !is_same(member(&was, key), member(&is, key));
        if let Some((key, _)) = was.iter().chain(&is).find(is_ours) {
            return Some(format!("metadata.{part}[{:?}], which is the host's", FIELD.text(key)));
        }
    }
    None
}

fn is_same(one: Option<&RawValue>, other: Option<&RawValue>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Patch::is_same(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// The members of an object; of something else there are none. An error says that it has too many.
pub(crate) fn members_of(text: Option<&RawValue>) -> Result<Vec<Member<'_>>, String> {
    match text.map(|text| Level::of(text, MOST)) {
        Some(Level::Object(members)) => Ok(members),
        Some(Level::Wide) => Err(format!("has more than {MOST} members")),
        Some(Level::List(_) | Level::Scalar) | None => Ok(Vec::new()),
    }
}
