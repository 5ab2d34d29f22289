//! Pods created and deleted for a workload, with the events that say so. It must not know which workload, nor why.

use std::sync::Arc;

use serde_json::Value;

use super::ownership::{PODS, namespace_terminates, refusal};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::write;
use crate::deletion::DeleteOptions;
use crate::halt::{Halt, Status};
use crate::store::Object;

/// How many Pods one look creates or deletes, as kube-controller-manager has it.
pub(super) const BURST: usize = 500;

/// Why Pods could not be created or deleted.
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) status: Box<Status>,
}

/// Creates Pods in batches that double, and stops after a batch in which one is refused.
pub(super) fn create(
    cluster: &mut Cluster,
    context: &Context<'_>,
    owner: &Object,
    pods: impl IntoIterator<Item = Value>,
) -> Result<Option<Failure>, Halt> {
    let (mut batch, mut tried, mut failure) = (1, 0, None);
    for pod in pods.into_iter().take(BURST) {
        if tried == batch {
            if failure.is_some() {
                break;
            }
            (batch, tried) = (batch * 2, 0);
        }
        tried += 1;
        match refusal(write::create(cluster, context, PODS.name(), owner.namespace(), pod))? {
            Ok(made) => {
                let message = format!("Created pod: {}", made.name());
                write::event(cluster, context, owner, "Normal", "SuccessfulCreate", &message)?;
            }
            Err(status) if namespace_terminates(&status) => return Ok(None),
            Err(status) => {
                let message = format!("Error creating: {}", status.message);
                write::event(cluster, context, owner, "Warning", "FailedCreate", &message)?;
                failure = Some(Failure { reason: "FailedCreate", status });
            }
        }
    }
    Ok(failure)
}

pub(super) fn delete<'a>(
    cluster: &mut Cluster,
    context: &Context<'_>,
    owner: &Object,
    pods: impl IntoIterator<Item = &'a Arc<Object>>,
) -> Result<Option<Failure>, Halt> {
    let mut failure = None;
    for pod in pods.into_iter().take(BURST) {
        match refusal(write::delete(cluster, context, pod, &DeleteOptions::default()))? {
            Ok(()) => {
                let message = format!("Deleted pod: {}", pod.name());
                write::event(cluster, context, owner, "Normal", "SuccessfulDelete", &message)?;
            }
            Err(status) => {
                let message = format!("Error deleting: {}", status.message);
                write::event(cluster, context, owner, "Warning", "FailedDelete", &message)?;
                failure = Some(Failure { reason: "FailedDelete", status });
            }
        }
    }
    Ok(failure)
}
