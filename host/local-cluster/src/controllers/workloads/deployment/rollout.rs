//! A Deployment with its ReplicaSets: the new one, whose template is the Deployment's, and the old ones. It must not know
//! how a rollout continues.

use std::sync::Arc;

use serde_json::Value;

use super::super::field::{int, scaled, text};
use super::super::ownership::{DEPLOYMENTS, REPLICA_SETS, claim};
use crate::Cluster;
use crate::context::Context;
use crate::halt::Halt;
use crate::store::Object;
use crate::time;

pub(super) const HASH: &str = "pod-template-hash";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

pub(super) struct Rollout {
    pub(super) deployment: Arc<Object>,
    pub(super) new: Option<Arc<Object>>,
    /// Oldest first.
    pub(super) old: Vec<Arc<Object>>,
}

impl Rollout {
    pub(super) fn read(cluster: &mut Cluster, context: &Context<'_>, deployment: Arc<Object>) -> Result<Self, Halt> {
        let mut old = claim(cluster, context, (&deployment, &DEPLOYMENTS), &REPLICA_SETS, |_| true)?;
        old.sort_by_cached_key(|set| age(set));
        let template = &deployment.value["spec"]["template"];
        let new = old.iter().position(|set| same_template(template, &set.value["spec"]["template"]));
        let new = new.map(|at| old.remove(at));
        Ok(Self { deployment, new, old })
    }

    pub(super) fn spec(&self) -> &Value {
        &self.deployment.value["spec"]
    }

    pub(super) fn wanted(&self) -> i64 {
        int(&self.spec()["replicas"])
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.old.iter().chain(&self.new)
    }

    pub(super) fn rolls(&self) -> bool {
        self.spec()["strategy"]["type"] == "RollingUpdate"
    }

    pub(super) fn max_surge(&self) -> i64 {
        if self.rolls() {
            scaled(&self.spec()["strategy"]["rollingUpdate"]["maxSurge"], self.wanted(), true)
        } else {
            0
        }
    }

    /// At least one if nothing may surge, so that the rollout can go on.
    pub(super) fn max_unavailable(&self) -> i64 {
        if !self.rolls() || self.wanted() == 0 {
            return 0;
        }
        let unavailable = scaled(&self.spec()["strategy"]["rollingUpdate"]["maxUnavailable"], self.wanted(), false);
        let unavailable = if unavailable == 0 && self.max_surge() == 0 { 1 } else { unavailable };
        unavailable.min(self.wanted())
    }

    /// Puts a newer state of a ReplicaSet in place of the one it was read as.
    pub(super) fn put(&mut self, set: &Arc<Object>) {
        for known in self.old.iter_mut().chain(&mut self.new).filter(|known| known.uid() == set.uid()) {
            *known = set.clone();
        }
    }

    /// How many Pods all ReplicaSets want.
    pub(super) fn size(&self) -> i64 {
        self.all().map(|set| replicas(set)).sum()
    }

    /// How many Pods of all ReplicaSets are counted in this field of the status.
    pub(super) fn count(&self, field: &str) -> i64 {
        self.all().map(|set| int(&set.value["status"][field])).sum()
    }

    /// The seconds in which a rollout must go on, if there is such a time: the largest number means that there is none.
    pub(super) fn deadline_seconds(&self) -> Option<i64> {
        self.spec()["progressDeadlineSeconds"].as_i64().filter(|seconds| *seconds != i64::from(i32::MAX))
    }
}

/// How many Pods a ReplicaSet wants.
pub(super) fn replicas(set: &Object) -> i64 {
    int(&set.value["spec"]["replicas"])
}

pub(super) fn annotation<'a>(object: &'a Object, key: &str) -> &'a str {
    object.value["metadata"]["annotations"].get(key).map_or("", text)
}

pub(super) fn revision(set: &Object) -> i64 {
    annotation(set, REVISION).parse().unwrap_or(0)
}

/// What ReplicaSets are sorted by: their creation, then their names.
pub(super) fn age(set: &Object) -> (Option<jiff::Timestamp>, String) {
    (time::read(&set.value["metadata"]["creationTimestamp"]), set.name().to_owned())
}

/// Whether templates are the same but for the label that tells ReplicaSets apart.
pub(super) fn same_template(one: &Value, other: &Value) -> bool {
    let metadata = |template: &Value| {
        let mut metadata = template["metadata"].clone();
        if let Some(labels) = metadata["labels"].as_object_mut() {
            labels.remove(HASH);
        }
        if let Some(fields) = metadata.as_object_mut() {
            fields.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
        }
        metadata
    };
    one["spec"] == other["spec"] && metadata(one) == metadata(other)
}
