//! The JSON patch from an object to the same object with defaults. Changes of fields that are not the plugin's are
//! refused here, because the API server accepts most of them, also of names, owners and status. Both are text; neither
//! becomes a tree, of which a client's object may be a large one.

use serde_json::value::RawValue;

use crate::json::level::{member, parse};
use crate::json::patch::Patch;
use crate::metadata::{self, members_of};

/// Fields that are not the plugin's, beside those of the metadata.
const NOT_TO_CHANGE: [&str; 3] = ["apiVersion", "kind", "status"];

/// The patch as text, or None when there are no defaults to fill in. An error names a change that the plugin may not make.
pub(super) fn patch(object: &str, completed: &str) -> Result<Option<String>, String> {
    if object == completed {
        return Ok(None);
    }
    let completed = parse(completed).map_err(|error| format!("the object with its defaults is not JSON: {error}"))?;
    let object: &RawValue = serde_json::from_str(object).map_err(|error| format!("the object is not JSON: {error}"))?;
    let bytes = object.get().len() + completed.get().len();
    if !completed.get().starts_with('{') {
        return Err("the object with its defaults is no JSON object".to_owned());
    }
    let members = |text| members_of(text).map_err(|why| format!("the object or its metadata {why}"));
    let (before, after) = (members(Some(object))?, members(Some(completed))?);
    let is_same = |part: &&str| match (member(&before, part), member(&after, part)) {
        (Some(was), Some(is)) => Patch::is_same(was, is),
        (was, is) => was.is_none() && is.is_none(),
    };
    if let Some(part) = NOT_TO_CHANGE.iter().find(|part| !is_same(part)) {
        return Err(format!("filling in defaults changed {part}, which is not a plugin's to change"));
    }
    let (was, is) = (member(&before, METADATA), member(&after, METADATA));
    let (metadata_before, metadata_after) = (members(was)?, members(is)?);
    if let Some(place) = metadata::not_to_change(&metadata_before, &metadata_after) {
        return Err(format!("filling in defaults changed {place}"));
    }
    let mut patch = Patch::new(bytes);
    if was.is_some() && is.is_some() {
        // Never replaced as a whole: the API server's object has managedFields too.
        patch.within(METADATA, |patch| patch.between_members(&metadata_before, &metadata_after, &[]));
        patch.between_members(&before, &after, &[METADATA]);
    } else {
        patch.between_members(&before, &after, &[]);
    }
    Ok(patch.into_text())
}

const METADATA: &str = "metadata";
