//! Which children a workload has: owner references, adoption and release by selector, and the keys that a change of a child
//! concerns. It must not know what workloads do with their children.

use std::sync::Arc;

use serde_json::{Value, json};

use super::field::{list, text};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::Key;
use crate::controllers::write;
use crate::halt::{Halt, Status};
use crate::resource::{Storage, api_version, group_version};
use crate::selector::{Labels, Requirement};
use crate::store::{Change, Event, Object};

/// A kind that workload controllers read and write.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
}

const fn kind(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, kind, plural }
}

pub(super) const PODS: Kind = kind("", "Pod", "pods");
pub(super) const CLAIMS: Kind = kind("", "PersistentVolumeClaim", "persistentvolumeclaims");
pub(super) const NODES: Kind = kind("", "Node", "nodes");
pub(super) const REPLICATION_CONTROLLERS: Kind = kind("", "ReplicationController", "replicationcontrollers");
pub(super) const REPLICA_SETS: Kind = kind("apps", "ReplicaSet", "replicasets");
pub(super) const DEPLOYMENTS: Kind = kind("apps", "Deployment", "deployments");
pub(super) const STATEFUL_SETS: Kind = kind("apps", "StatefulSet", "statefulsets");
pub(super) const DAEMON_SETS: Kind = kind("apps", "DaemonSet", "daemonsets");
pub(super) const REVISIONS: Kind = kind("apps", "ControllerRevision", "controllerrevisions");
pub(super) const JOBS: Kind = kind("batch", "Job", "jobs");
pub(super) const CRON_JOBS: Kind = kind("batch", "CronJob", "cronjobs");

impl Kind {
    pub(super) fn storage(&self) -> Storage {
        Storage::new(self.group, self.plural)
    }

    /// Group, version and kind; all of these kinds are of version `v1`.
    pub(super) fn name(&self) -> (&'static str, &'static str, &'static str) {
        (self.group, "v1", self.kind)
    }

    pub(super) fn get(&self, cluster: &Cluster, key: &Key) -> Option<Arc<Object>> {
        cluster.store.get(&self.storage(), &key.0, &key.1).cloned()
    }

    fn stores(&self, storage: &Storage) -> bool {
        *storage.plural == *self.plural && *storage.group == *self.group
    }

    fn is_named_by(&self, reference: &Value) -> bool {
        text(&reference["kind"]) == self.kind && group_version(text(&reference["apiVersion"])).0 == self.group
    }

    /// The selector of an object of this kind; one that selects everything selects nothing here.
    pub(super) fn selector(&self, object: &Value) -> Option<Labels> {
        let selector = &object["spec"]["selector"];
        let labels = match (self.kind, selector.as_object()) {
            ("ReplicationController", Some(pairs)) => {
                let pair = |(key, value): (&String, &Value)| {
                    Requirement::In(key.as_str().into(), vec![value.as_str().unwrap_or_default().into()])
                };
                Labels(pairs.iter().map(pair).collect())
            }
            _ => Labels::read(selector),
        };
        Some(labels).filter(|labels| !labels.0.is_empty())
    }

    /// The owner reference that makes an object of this kind the controller of another.
    pub(super) fn reference(&self, owner: &Object) -> Value {
        json!({
            "apiVersion": api_version(self.group, "v1"), "kind": self.kind, "name": owner.name(), "uid": owner.uid(),
            "controller": true, "blockOwnerDeletion": true,
        })
    }
}

/// The reference to an object's controller.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    list(&object["metadata"]["ownerReferences"]).iter().find(|reference| reference["controller"] == true)
}

pub(super) fn is_controlled_by(object: &Object, uid: &str) -> bool {
    controller(&object.value).is_some_and(|reference| reference["uid"] == uid)
}

/// The children of a kind that an owner controls, in the order of their names.
pub(super) fn controlled(cluster: &Cluster, owner: &Object, of: &Kind) -> Vec<Arc<Object>> {
    let owned = cluster.store.owned(owner.uid()).into_iter();
    let owned = owned.filter(|(storage, child)| of.stores(storage) && is_controlled_by(child, owner.uid()));
    owned.map(|(_, child)| child).collect()
}

/// The children that an owner controls and selects, after it released those it no longer selects and adopted orphans that it
/// selects. `wanted` says which it looks at.
pub(super) fn claim(
    cluster: &mut Cluster,
    context: &Context<'_>,
    (owner, owner_kind): (&Object, &Kind),
    of: &Kind,
    wanted: impl Fn(&Object) -> bool,
) -> Result<Vec<Arc<Object>>, Halt> {
    let selector = owner_kind.selector(&owner.value);
    let selects = |child: &Object| selector.as_ref().is_some_and(|all| all.matches(child.labels()));
    let mut claimed = Vec::new();
    for child in controlled(cluster, owner, of).into_iter().filter(|child| wanted(child)) {
        if selects(&child) {
            claimed.push(child);
        } else if !owner.terminates() {
            release(cluster, context, owner, &child)?;
        }
    }
    if owner.terminates() {
        return Ok(claimed);
    }
    for child in cluster.store.orphans(&of.storage(), owner.namespace()) {
        if !child.terminates() && wanted(&child) && selects(&child) {
            claimed.push(adopt(cluster, context, owner_kind.reference(owner), &child)?);
        }
    }
    Ok(claimed)
}

fn adopt(
    cluster: &mut Cluster,
    context: &Context<'_>,
    reference: Value,
    child: &Arc<Object>,
) -> Result<Arc<Object>, Halt> {
    let mut value = child.value.clone();
    let mut references = list(&value["metadata"]["ownerReferences"]).to_vec();
    references.retain(|known| known["uid"] != reference["uid"]);
    references.push(reference);
    value["metadata"]["ownerReferences"] = references.into();
    write::update(cluster, context, child, value)
}

fn release(cluster: &mut Cluster, context: &Context<'_>, owner: &Object, child: &Object) -> Result<(), Halt> {
    let mut value = child.value.clone();
    let mut references = list(&value["metadata"]["ownerReferences"]).to_vec();
    references.retain(|known| known["uid"] != owner.uid());
    value["metadata"]["ownerReferences"] = references.into();
    write::update(cluster, context, child, value).map(drop)
}

/// The keys of owners of a kind that a change concerns: of an owner its own, of a child its controller's, of an orphan
/// those of the owners that may adopt it.
pub(super) fn keys(cluster: &Cluster, change: &Change, owner: &Kind, child: &Kind) -> Vec<Key> {
    let object = &change.object;
    if owner.stores(&change.storage) {
        return vec![(object.namespace().into(), object.name().into())];
    }
    if !child.stores(&change.storage) {
        return Vec::new();
    }
    let previous = change.previous.as_ref().map(|previous| &*previous.value);
    let (old, new) = (previous.and_then(controller), controller(&object.value));
    let moved = old.map(|reference| &reference["uid"]) != new.map(|reference| &reference["uid"]);
    let both = [new, old.filter(|_| moved)];
    let named = both.into_iter().flatten().filter(|reference| owner.is_named_by(reference));
    let mut keys: Vec<Key> =
        named.map(|reference| (object.namespace().into(), text(&reference["name"]).into())).collect();
    let labels = object.labels();
    let changed = moved || previous.is_none_or(|previous| previous["metadata"]["labels"] != *labels);
    if new.is_none() && changed && change.event != Event::Deleted {
        let owners = cluster.store.list(&owner.storage(), Some(object.namespace()), None);
        let selecting = owners.filter(|of| owner.selector(&of.value).is_some_and(|selector| selector.matches(labels)));
        keys.extend(selecting.map(|of| (of.namespace().into(), of.name().into())));
    }
    keys
}

/// What a write came to that may be refused: a refusal is state to show, not the end of the reconcile.
pub(super) fn refusal<T>(result: Result<T, Halt>) -> Result<Result<T, Box<Status>>, Halt> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Halt::Status(status)) => Ok(Err(status)),
        Err(call @ Halt::Call(_)) => Err(call),
    }
}

/// Whether a create was refused because the namespace is being deleted: nothing is to be done then.
pub(super) fn namespace_terminates(status: &Status) -> bool {
    let causes = status.details.as_ref().map_or(&[][..], |details| list(&details["causes"]));
    causes.iter().any(|cause| cause["reason"] == "NamespaceTerminating")
}
