//! ControllerRevisions: the templates that a StatefulSet or a DaemonSet had. Input: the owner. Output: its revisions, oldest
//! first, the last of which has its template. It must not know Pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::field::{int, set};
use super::hash;
use super::ownership::{Kind, REVISIONS, claim, refusal};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::write;
use crate::deletion::DeleteOptions;
use crate::halt::Halt;
use crate::store::Object;
use crate::time;

/// How many names that are taken are passed over. Two templates with one hash are rare; three do not happen.
const MAX_COLLISIONS: i64 = 8;

pub(super) struct History {
    /// Oldest first; the last one has the owner's template.
    pub(super) revisions: Vec<Arc<Object>>,
    pub(super) collisions: i64,
}

impl History {
    pub(super) fn newest(&self) -> &Arc<Object> {
        self.revisions.last().expect("reading a history makes the newest revision")
    }
}

/// Reads an owner's history, in which its template becomes the newest revision. `label` is what its hash is called.
pub(super) fn read(
    cluster: &mut Cluster,
    context: &Context<'_>,
    (owner, kind): (&Object, &Kind),
    label: &str,
) -> Result<History, Halt> {
    let mut revisions = claim(cluster, context, (owner, kind), &REVISIONS, |_| true)?;
    revisions.sort_by_cached_key(|revision| {
        let made = time::read(&revision.value["metadata"]["creationTimestamp"]);
        (int(&revision.value["revision"]), made, revision.name().to_owned())
    });
    let mut collisions = int(&owner.value["status"]["collisionCount"]);
    let next = revisions.last().map_or(0, |last| int(&last.value["revision"])) + 1;
    let mut template = owner.value["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), "replace".into());
    }
    let data = json!({"spec": {"template": template}});
    match revisions.iter().rposition(|revision| revision.value["data"] == data) {
        Some(at) if at + 1 == revisions.len() => {}
        Some(at) => {
            let known = revisions.remove(at);
            let renumbered =
                write::change(cluster, context, &known, |value| write::set(value, "revision", next.into()))?;
            revisions.push(renumbered);
        }
        None => {
            let first = collisions;
            let made = loop {
                let revision = new((owner, kind), &data, (label, collisions), next);
                match refusal(write::create(cluster, context, REVISIONS.name(), owner.namespace(), revision))? {
                    Ok(made) => break made,
                    Err(status) if status.reason == "AlreadyExists" && collisions - first < MAX_COLLISIONS => {
                        collisions += 1;
                    }
                    Err(status) => return Err(Halt::Status(status)),
                }
            };
            revisions.push(made);
        }
    }
    Ok(History { revisions, collisions })
}

fn new((owner, kind): (&Object, &Kind), data: &Value, (label, collisions): (&str, i64), number: i64) -> Value {
    let hash = hash::of(data, collisions);
    let mut value = json!({
        "metadata": {"name": hash::name(owner.name(), &hash), "ownerReferences": [kind.reference(owner)]},
        "data": data, "revision": number,
    });
    let metadata = &owner.value["spec"]["template"]["metadata"];
    for (key, from) in [("labels", metadata), ("annotations", &owner.value["metadata"])] {
        if from[key].is_object() {
            value["metadata"][key] = from[key].clone();
        }
    }
    set(&mut value, "labels", label, &hash);
    value
}

/// The template that a revision keeps.
pub(super) fn template(revision: &Object) -> Value {
    let mut template = revision.value["data"]["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    template
}

/// Deletes so many of these revisions, oldest first.
pub(super) fn truncate<'a>(
    cluster: &mut Cluster,
    context: &Context<'_>,
    revisions: impl IntoIterator<Item = &'a Arc<Object>>,
    excess: usize,
) -> Result<(), Halt> {
    for revision in revisions.into_iter().take(excess) {
        write::delete(cluster, context, revision, &DeleteOptions::default())?;
    }
    Ok(())
}

/// The values of a label of Pods, such as the revision that they are of.
pub(super) fn labels<'a>(pods: &'a [Arc<Object>], key: &str) -> BTreeSet<&'a str> {
    pods.iter().filter_map(|pod| pod.label(key)).collect()
}
