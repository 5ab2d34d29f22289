//! garbage-collector-controller: deletes dependents whose owners are gone, and works off the finalizers `orphan` and
//! `foregroundDeletion`. Input: changes of owners and dependents. Output: deletions, and updates of references. It must not
//! know kinds, except that Events own nothing and are not owned.

use std::sync::Arc;

use serde_json::Value;

use super::write;
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, unchanged};
use crate::deletion::{DeleteOptions, Propagation};
use crate::halt::Halt;
use crate::resource::{Storage, group_version};
use crate::store::{Change, Event, Object};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

pub(super) const CONTROLLER: Controller = Controller {
    name: "garbage-collector-controller",
    user: "system:serviceaccount:kube-system:generic-garbage-collector",
    watches: &[],
    batches: false,
    keys,
    reconcile,
};

/// What an owner reference leads to.
enum Owner {
    /// It is there and stays.
    Solid,
    /// It is not there.
    Absent,
    /// It is being deleted in the foreground and waits for its dependents.
    Waits,
    /// Its kind is not served: nobody knows.
    Unknown,
    /// A namespaced owner of a cluster-scoped object: that is no owner, and not for the collector to judge.
    Invalid,
}

fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let object = &*change.object;
    if &*change.storage.plural == "events" {
        return Vec::new();
    }
    let mut keys = Vec::new();
    let before = change.previous.as_deref();
    let released = change.event == Event::Deleted
        || before.is_some_and(|before| !unchanged(before, object, &["/metadata/ownerReferences"]));
    if let (true, Some(before)) = (released, before) {
        keys.extend(owners(&before.value).filter_map(|reference| waiting(cluster, before, reference)));
    }
    if change.event == Event::Deleted {
        keys.extend(dependents(cluster, object));
        return keys;
    }
    let works = |object: &Object| object.terminates() && (has(object, FOREGROUND) || has(object, ORPHAN));
    let begins = works(object) && !before.is_some_and(works);
    if begins && has(object, FOREGROUND) {
        keys.extend(dependents(cluster, object));
    }
    if begins || owners(&object.value).next().is_some() && (before.is_none() || released) {
        keys.push(key(&change.storage, object));
    }
    keys
}

fn dependents(cluster: &Cluster, owner: &Object) -> Vec<Key> {
    cluster.store.dependents(owner.uid()).map(|(storage, object)| key(storage, object)).collect()
}

/// The key of an owner that waits for its dependents.
fn waiting(cluster: &Cluster, dependent: &Object, reference: &Value) -> Option<Key> {
    let (storage, owner) = find(cluster, dependent, reference).ok()??;
    (owner.terminates() && has(&owner, FOREGROUND)).then(|| key(&storage, &owner))
}

/// The storage as `group/plural`, and the object as `namespace/name`: neither group, plural nor namespace has a slash.
fn key(storage: &Storage, object: &Object) -> Key {
    let storage = format!("{}/{}", storage.group, storage.plural);
    (storage.into(), format!("{}/{}", object.namespace(), object.name()).into())
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

fn has(object: &Object, finalizer: &str) -> bool {
    object.value["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|known| known == finalizer))
}

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, (storage, name): &Key) -> Result<Again, Halt> {
    let (group, plural) = storage.split_once('/').unwrap_or_default();
    let (namespace, name) = name.split_once('/').unwrap_or_default();
    let Some(object) = cluster.store.get(&Storage::new(group, plural), namespace, name).cloned() else {
        return Ok(Again::No);
    };
    if !object.terminates() {
        return collect(cluster, context, &object);
    }
    if has(&object, ORPHAN) {
        for (_, dependent) in cluster.store.owned(object.uid()) {
            release(cluster, context, &dependent, &[object.uid()])?;
        }
        remove_finalizer(cluster, context, &object, ORPHAN)?;
    } else if has(&object, FOREGROUND) {
        let blocks = |dependent: &Object| {
            let mut references = owners(&dependent.value).filter(|reference| reference["uid"] == object.uid());
            references.any(|reference| reference["blockOwnerDeletion"] == true)
        };
        if !cluster.store.dependents(object.uid()).any(|(_, dependent)| blocks(dependent)) {
            remove_finalizer(cluster, context, &object, FOREGROUND)?;
        }
    }
    Ok(Again::No)
}

/// Deletes an object that has owners, but none that is there and stays.
fn collect(cluster: &mut Cluster, context: &Context<'_>, object: &Object) -> Result<Again, Halt> {
    let (mut solid, mut waits, mut gone) = (0, 0, Vec::new());
    for reference in owners(&object.value) {
        match classify(cluster, object, reference) {
            Owner::Solid => solid += 1,
            Owner::Absent => gone.push(reference["uid"].as_str().unwrap_or_default()),
            Owner::Waits => {
                waits += 1;
                gone.push(reference["uid"].as_str().unwrap_or_default());
            }
            Owner::Unknown => return Ok(Again::Later),
            Owner::Invalid => return Ok(Again::No),
        }
    }
    if gone.is_empty() {
        return Ok(Again::No);
    }
    if solid > 0 {
        release(cluster, context, object, &gone)?;
        return Ok(Again::No);
    }
    let unblocked;
    let mut object = object;
    let has_dependents = cluster.store.dependents(object.uid()).next().is_some();
    let propagation = if waits > 0 && has_dependents {
        let circle = |dependent: &Object| dependent.terminates() && has(dependent, FOREGROUND);
        if cluster.store.dependents(object.uid()).any(|(_, dependent)| circle(dependent)) {
            unblocked = unblock(cluster, context, object)?;
            object = &unblocked;
        }
        Propagation::Foreground
    } else if has(object, ORPHAN) {
        Propagation::Orphan
    } else if has(object, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let uid = Some(object.uid().to_owned());
    let options = DeleteOptions { propagation: Some(propagation), uid, ..DeleteOptions::default() };
    write::delete(cluster, context, object, &options)?;
    Ok(Again::No)
}

fn classify(cluster: &Cluster, object: &Object, reference: &Value) -> Owner {
    match find(cluster, object, reference) {
        Err(unknown) => unknown,
        Ok(None) => Owner::Absent,
        Ok(Some((_, owner))) if owner.terminates() && has(&owner, FOREGROUND) => Owner::Waits,
        Ok(Some(_)) => Owner::Solid,
    }
}

/// The owner that a reference names: a cluster-scoped one, or one in the dependent's namespace, with the reference's UID.
fn find(cluster: &Cluster, object: &Object, reference: &Value) -> Result<Option<(Storage, Arc<Object>)>, Owner> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (group, version) = group_version(text("apiVersion"));
    let resource = cluster.kind(group, version, text("kind")).ok_or(Owner::Unknown)?;
    let namespace = if resource.namespaced { object.namespace() } else { "" };
    if resource.namespaced && namespace.is_empty() {
        return Err(Owner::Invalid);
    }
    let owner = cluster.store.get(&resource.storage, namespace, text("name"));
    let owner = owner.filter(|owner| owner.uid() == text("uid"));
    Ok(owner.map(|owner| (resource.storage.clone(), owner.clone())))
}

/// Takes references to owners away.
fn release(cluster: &mut Cluster, context: &Context<'_>, object: &Object, uids: &[&str]) -> Result<(), Halt> {
    write::change(cluster, context, object, |object| {
        let stays = |reference: &Value| !uids.iter().any(|uid| reference["uid"] == *uid);
        retain(object, "ownerReferences", stays);
    })?;
    Ok(())
}

/// Makes references such that owners do not wait, which breaks a circle of owners.
fn unblock(cluster: &mut Cluster, context: &Context<'_>, object: &Object) -> Result<Arc<Object>, Halt> {
    write::change(cluster, context, object, |object| {
        for reference in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            write::set(reference, "blockOwnerDeletion", false.into());
        }
    })
}

fn remove_finalizer(cluster: &mut Cluster, context: &Context<'_>, object: &Object, name: &str) -> Result<(), Halt> {
    write::change(cluster, context, object, |object| retain(object, "finalizers", |finalizer| finalizer != name))?;
    Ok(())
}

/// Keeps some entries of a list in the metadata, and the list only if any are left.
fn retain(object: &mut Value, field: &str, stays: impl Fn(&Value) -> bool) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let Some(list) = metadata.get_mut(field).and_then(Value::as_array_mut) else { return };
    list.retain(stays);
    if list.is_empty() {
        metadata.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Cluster;
    use crate::Method::{Delete, Put};
    use crate::controllers::testing::{cluster, pass, post, read};
    use crate::testing::ask;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn made(cluster: &mut Cluster, name: &str, owners: &[&Value], finalizers: &[&str]) -> Value {
        let reference = |owner: &&Value| {
            json!({"apiVersion": "v1", "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
        };
        let references: Vec<Value> = owners.iter().map(reference).collect();
        let metadata = json!({"name": name, "ownerReferences": references, "finalizers": finalizers});
        post(cluster, MAPS, &json!({"metadata": metadata}))
    }

    fn delete(cluster: &mut Cluster, name: &str, policy: &str) {
        let (code, answer) = ask(cluster, Delete, &format!("{MAPS}/{name}"), &json!({"propagationPolicy": policy}));
        assert_eq!(code, 200, "{answer}");
        pass(cluster, 1);
    }

    fn names(cluster: &mut Cluster) -> String {
        let list = read(cluster, MAPS);
        let names = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn dependents_go_with_their_last_owner() {
        let mut cluster = cluster(&["garbage-collector-controller"]);
        let (a, b) = (made(&mut cluster, "a", &[], &[]), made(&mut cluster, "b", &[], &[]));
        let both = made(&mut cluster, "c", &[&a, &b], &[]);
        made(&mut cluster, "d", &[&both], &[]);
        delete(&mut cluster, "a", "Background");
        assert_eq!(names(&mut cluster), "b c d");
        let left = read(&mut cluster, &format!("{MAPS}/c"));
        assert_eq!(left["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
        delete(&mut cluster, "b", "Background");
        assert_eq!(names(&mut cluster), "");
    }

    #[test]
    fn an_owner_that_never_was_or_lives_in_another_namespace_is_gone() {
        let mut cluster = cluster(&["garbage-collector-controller"]);
        let mut other =
            post(&mut cluster, "/api/v1/namespaces/kube-public/configmaps", &json!({"metadata": {"name": "x"}}));
        made(&mut cluster, "a", &[&other], &[]);
        other["metadata"]["uid"] = "another".into();
        made(&mut cluster, "b", &[&other], &[]);
        let node = read(&mut cluster, "/api/v1/nodes/node-0");
        made(&mut cluster, "c", &[&node], &[]);
        pass(&mut cluster, 1);
        assert_eq!(names(&mut cluster), "c");
    }

    #[test]
    fn a_foreground_deletion_waits_for_blocking_dependents() {
        let mut cluster = cluster(&["garbage-collector-controller"]);
        let owner = made(&mut cluster, "a", &[], &[]);
        let child = made(&mut cluster, "b", &[&owner], &["example.com/keep"]);
        made(&mut cluster, "c", &[&child], &[]);
        delete(&mut cluster, "a", "Foreground");
        assert_eq!(names(&mut cluster), "a b");
        let revision = cluster.revision();
        pass(&mut cluster, 60);
        assert_eq!(cluster.revision(), revision);
        let mut held = read(&mut cluster, &format!("{MAPS}/b"));
        held["metadata"]["finalizers"] = json!([]);
        ask(&mut cluster, Put, &format!("{MAPS}/b"), &held);
        pass(&mut cluster, 61);
        assert_eq!(names(&mut cluster), "");
    }

    #[test]
    fn an_orphaning_deletion_leaves_the_dependents_without_owner() {
        let mut cluster = cluster(&["garbage-collector-controller"]);
        let owner = made(&mut cluster, "a", &[], &[]);
        made(&mut cluster, "b", &[&owner], &[]);
        delete(&mut cluster, "a", "Orphan");
        assert_eq!(names(&mut cluster), "b");
        assert!(read(&mut cluster, &format!("{MAPS}/b"))["metadata"]["ownerReferences"].is_null());
    }
}
