//! Maps that a child owns as a whole, such as a ConfigMap's `data`: server-side apply leaves members of other managers in
//! them, so the host removes these with a patch. Nothing here compares what the plugin does want.

use std::sync::Arc;

use serde_json::Value;

use super::fault::bad;
use super::prepared::{Body, PreparedChild};
use crate::contract::{Child, GuestFault, PatchKind};
use crate::object::Object;
use crate::projection::path;
use crate::write::{Precondition, WriteOp};

/// The fields of an object that others own members of.
const SHARED: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

pub(super) fn parse(child: &Child, is_applied: bool) -> Result<Arc<[Vec<String>]>, GuestFault> {
    if child.exact.is_empty() {
        return Ok(Arc::default());
    }
    if !is_applied {
        let why = "only a child that is changed in place (`update` \"apply\") owns a map exactly";
        return bad(format!("child {:?}: {why}", child.key));
    }
    let parse_one = |text: &Arc<str>| {
        let members = path::parse(text).or_else(|error| bad(format!("child {:?}: {error}", child.key)))?;
        match members.first().filter(|first| SHARED.contains(&first.as_str())) {
            Some(first) => bad(format!("child {:?}: {text}: others have members of {first} too", child.key)),
            None => Ok(members),
        }
    };
    child.exact.iter().map(parse_one).collect()
}

/// The patch that removes the members that are not wanted, or None when there are none. Bytes that it parses are added.
pub(super) fn removal(child: &PreparedChild, body: &Body, live: &Object, parsed_bytes: &mut usize) -> Option<WriteOp> {
    if child.exact.is_empty() {
        return None;
    }
    *parsed_bytes += live.json().len() + body.text.len();
    let (Ok(live_tree), Ok(wanted)) =
        (serde_json::from_str::<Value>(live.json()), serde_json::from_str::<Value>(&body.text))
    else {
        return None;
    };
    let mut patch = Value::Null;
    for path in child.exact.iter() {
        let Some(Value::Object(found)) = at(&live_tree, path) else { continue };
        let wanted = at(&wanted, path);
        for name in found.keys().filter(|name| wanted.is_none_or(|wanted| wanted.get(name).is_none())) {
            let place = path.iter().fold(&mut patch, |place, member| &mut place[member.as_str()]);
            place[name.as_str()] = Value::Null;
        }
    }
    (!patch.is_null()).then(|| WriteOp::Patch {
        target: child.target.clone(),
        patch_kind: PatchKind::Merge,
        body: patch.to_string().into(),
        subresource: None,
        only_if: Precondition::Is(Arc::clone(&live.uid)),
    })
}

fn at<'a>(tree: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(tree, |value, member| value.get(member))
}
