//! The Pods of a Job: how they are made, which index they have, and which are too many. It must not know when they count.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::field::{fields, int, list, set, text};
use super::super::ownership::JOBS;
use super::super::pod;
use crate::Cluster;
use crate::context::Context;
use crate::controllers::write;
use crate::halt::Halt;
use crate::store::Object;

pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(super) fn is_tracked(pod: &Object) -> bool {
    list(&pod.value["metadata"]["finalizers"]).iter().any(|finalizer| finalizer == FINALIZER)
}

/// Lets a Pod go that was counted.
pub(super) fn untrack(cluster: &mut Cluster, context: &Context<'_>, pod: &Object) -> Result<(), Halt> {
    let mut left = list(&pod.value["metadata"]["finalizers"]).to_vec();
    left.retain(|finalizer| finalizer != FINALIZER);
    write::change(cluster, context, pod, |value| {
        if let Some(metadata) = fields(&mut value["metadata"]) {
            if left.is_empty() {
                metadata.remove("finalizers");
            } else {
                metadata.insert("finalizers".to_owned(), left.into());
            }
        }
    })
    .map(drop)
}

pub(super) fn is_indexed(job: &Value) -> bool {
    job["spec"]["completionMode"] == "Indexed"
}

/// A Pod's completion index, if the Job has it.
pub(super) fn index(job: &Value, pod: &Object) -> Option<i64> {
    let index = text(pod.value["metadata"]["annotations"].get(INDEX)?).parse::<u32>().ok()?;
    Some(i64::from(index)).filter(|index| *index < int(&job["spec"]["completions"]))
}

/// A Pod of a Job; an indexed one says its index in a label, an annotation, its host name and its environment.
pub(super) fn new(job: &Object, index: Option<i64>) -> Value {
    let mut pod = pod::from_template(&job.value["spec"]["template"], job, JOBS.reference(job));
    let mut finalizers = list(&pod["metadata"]["finalizers"]).to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
    pod["metadata"]["finalizers"] = finalizers.into();
    let Some(index) = index else { return pod };
    let number = index.to_string();
    pod["metadata"]["generateName"] = format!("{}-{number}-", job.name()).into();
    set(&mut pod, "annotations", INDEX, &number);
    set(&mut pod, "labels", INDEX, &number);
    let variable = json!({
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']")}},
    });
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.insert("hostname".to_owned(), format!("{}-{number}", job.name()).into());
        for key in ["initContainers", "containers"] {
            for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
                let mut variables = list(&container["env"]).to_vec();
                if variables.iter().all(|known| known["name"] != variable["name"]) {
                    variables.push(variable.clone());
                    if let Some(container) = container.as_object_mut() {
                        container.insert("env".to_owned(), variables.into());
                    }
                }
            }
        }
    }
    pod
}

/// The active Pods to delete when at least so many are too many: those that share an index first, then those that lose
/// the least.
pub(super) fn to_remove(job: &Value, active: &[Arc<Object>], at_least: usize, now: Timestamp) -> Vec<Arc<Object>> {
    let (mut remove, mut keep) = (Vec::new(), active.to_vec());
    pod::rank(&mut keep, &[], now);
    if is_indexed(job) {
        // The last of each index is the one to keep.
        let last: BTreeMap<Option<i64>, String> =
            keep.iter().map(|pod| (index(job, pod), pod.uid().to_owned())).collect();
        let twice = |pod: &Arc<Object>| {
            let index = index(job, pod);
            index.is_none() || last.get(&index).is_some_and(|uid| uid != pod.uid())
        };
        (remove, keep) = keep.into_iter().partition(twice);
    }
    let more = at_least.saturating_sub(remove.len());
    remove.extend(keep.into_iter().take(more));
    remove
}
