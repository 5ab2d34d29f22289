//! Objects with their children, as an outline. Input: the objects that the cache shows. Output: rows with a depth. It must
//! not know colours or columns.

use std::collections::{BTreeMap, BTreeSet};

use mortise_core::object::ObjectRef;
use serde_json::Value;

use crate::event::Shown;

/// One row of the outline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) depth: usize,
    pub(crate) object: ObjectRef,
    /// In a word or two: `Ready`, `Running`, `Terminating`, or why not ready.
    pub(crate) state: String,
}

/// Deepest level: an owner that owns itself by a circle must not hang the screen.
const MAX_DEPTH: usize = 8;

/// The reconciled objects, each with what it owns.
pub(crate) fn outline(objects: &BTreeMap<ObjectRef, Shown>, roots: &BTreeSet<String>) -> Vec<Row> {
    let mut children: BTreeMap<&ObjectRef, Vec<&ObjectRef>> = BTreeMap::new();
    for (object, shown) in objects {
        if let Some(owner) = &shown.owner {
            children.entry(owner).or_default().push(object);
        }
    }
    let mut rows = Vec::new();
    for object in objects.keys().filter(|object| roots.contains(&object.kind.to_string())) {
        let owned = objects[object].owner.as_ref().is_some_and(|owner| roots.contains(&owner.kind.to_string()));
        if !owned {
            add(&mut rows, 0, object, objects, &children);
        }
    }
    rows
}

fn add(
    rows: &mut Vec<Row>,
    depth: usize,
    object: &ObjectRef,
    objects: &BTreeMap<ObjectRef, Shown>,
    children: &BTreeMap<&ObjectRef, Vec<&ObjectRef>>,
) {
    let Some(shown) = objects.get(object) else { return };
    rows.push(Row { depth, object: object.clone(), state: state(shown) });
    if depth < MAX_DEPTH {
        for child in children.get(object).into_iter().flatten() {
            add(rows, depth + 1, child, objects, children);
        }
    }
}

fn state(shown: &Shown) -> String {
    if shown.terminates {
        return "Terminating".to_owned();
    }
    let object: Value = serde_json::from_str(&shown.json).unwrap_or_default();
    let status = &object["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ready =
        conditions.into_iter().find(|condition| condition["type"] == "Ready" || condition["type"] == "Available");
    match ready {
        Some(ready) if ready["status"] == "True" => "Ready".to_owned(),
        Some(ready) => {
            let text = |key: &str| ready[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            text("reason").or_else(|| text("message")).unwrap_or_else(|| "not ready".to_owned())
        }
        None => status["phase"].as_str().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::reference;

    #[test]
    fn children_stand_below_their_owner() {
        let shown = |owner: Option<&ObjectRef>, json: &str| Shown {
            json: json.into(),
            owner: owner.cloned(),
            terminates: false,
        };
        let set = reference("PodSet", "a");
        let waits = r#"{"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Scaling"}]}}"#;
        let objects = BTreeMap::from([
            (set.clone(), shown(None, waits)),
            (reference("Pod", "a-1"), shown(Some(&set), r#"{"status": {"phase": "Running"}}"#)),
            (reference("Pod", "stranger"), shown(None, "{}")),
        ]);
        let rows = outline(&objects, &BTreeSet::from([set.kind.to_string()]));
        let rows: Vec<_> = rows.iter().map(|row| (row.depth, &*row.object.name.name, row.state.as_str())).collect();
        assert_eq!(rows, [(0, "a", "Scaling"), (1, "a-1", "Running")]);
    }
}
