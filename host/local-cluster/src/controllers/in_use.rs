//! persistentvolumeclaim-protection-controller and persistentvolume-protection-controller: what is deleted while it is used
//! waits. Input: claims, volumes and Pods. Output: their finalizers, set and taken. It must not know how volumes are bound.

use serde_json::{Value, json};

use super::storages::{CLAIMS, PODS, VOLUMES};
use super::write;
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, key};
use crate::deletion::{CLAIM_IN_USE, VOLUME_IN_USE, add_finalizer};
use crate::halt::Halt;
use crate::placement::node_of;
use crate::store::{Change, Event, Object};

pub(super) const CLAIM_PROTECTION: Controller = Controller {
    name: "persistentvolumeclaim-protection-controller",
    user: "system:serviceaccount:kube-system:pvc-protection-controller",
    watches: &[("", "persistentvolumeclaims"), ("", "pods")],
    batches: false,
    keys: claim_keys,
    reconcile: claim,
};

pub(super) const VOLUME_PROTECTION: Controller = Controller {
    name: "persistentvolume-protection-controller",
    user: "system:serviceaccount:kube-system:pv-protection-controller",
    watches: &[("", "persistentvolumes")],
    batches: false,
    keys: |_, change| vec![key(&change.object)],
    reconcile: volume,
};

/// A claim's own, and those that a Pod used which is gone.
fn claim_keys(_: &Cluster, change: &Change) -> Vec<Key> {
    let object = &change.object;
    match (&*change.storage.plural, change.event) {
        ("pods", Event::Deleted) => {
            claims_of(object).into_iter().map(|name| (object.namespace().into(), name.into())).collect()
        }
        ("pods", _) => Vec::new(),
        _ => vec![key(object)],
    }
}

/// The claims that a Pod's volumes name, or are made for.
fn claims_of(pod: &Object) -> Vec<String> {
    let volumes = pod.value["spec"]["volumes"].as_array().into_iter().flatten();
    let claim = |volume: &Value| match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(name) => Some(name.to_owned()),
        None if volume["ephemeral"].is_object() => Some(format!("{}-{}", pod.name(), volume["name"].as_str()?)),
        None => None,
    };
    volumes.filter_map(claim).collect()
}

/// A Pod that has no node yet does not use its claims: it will not start with one that is being deleted.
fn claim(cluster: &mut Cluster, context: &Context<'_>, (namespace, name): &Key) -> Result<Again, Halt> {
    let Some(claim) = cluster.store.get(&CLAIMS, namespace, name).cloned() else { return Ok(Again::No) };
    let is_used = claim.terminates()
        && cluster
            .store
            .list(&PODS, Some(&**namespace), None)
            .any(|pod| node_of(&pod.value).is_some() && claims_of(pod).iter().any(|claim| **claim == **name));
    protect(cluster, context, &claim, CLAIM_IN_USE, is_used)
}

fn volume(cluster: &mut Cluster, context: &Context<'_>, (_, name): &Key) -> Result<Again, Halt> {
    let Some(volume) = cluster.store.get(&VOLUMES, "", name).cloned() else { return Ok(Again::No) };
    let is_used = volume.value["status"]["phase"] == "Bound";
    protect(cluster, context, &volume, VOLUME_IN_USE, is_used)
}

/// Sets the finalizer of what is not being deleted, and takes it of what is and is not used.
fn protect(
    cluster: &mut Cluster,
    context: &Context<'_>,
    object: &Object,
    finalizer: &str,
    is_used: bool,
) -> Result<Again, Halt> {
    let set = object.value["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    match (object.terminates(), set.iter().any(|one| one == finalizer)) {
        (true, true) if !is_used => {
            let left: Vec<Value> = set.into_iter().filter(|one| one != finalizer).collect();
            write::change(cluster, context, object, |object| {
                write::set(&mut object["metadata"], "finalizers", json!(left));
            })?;
        }
        (false, false) => drop(write::change(cluster, context, object, |object| add_finalizer(object, finalizer))?),
        _ => {}
    }
    Ok(Again::No)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Method::Delete;
    use crate::controllers::testing::{cluster, pass, pod, post, read};
    use crate::testing::ask;

    const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
    const PODS: &str = "/api/v1/namespaces/default/pods";

    #[test]
    fn a_claim_that_a_scheduled_pod_uses_is_deleted_after_it() {
        let mut cluster =
            cluster(&["persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller"]);
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        for name in ["used", "waited-for", "free"] {
            let made = post(&mut cluster, CLAIMS, &json!({"metadata": {"name": name}, "spec": spec}));
            assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
        }
        for (name, claim, node) in [("runs", "used", Some("n")), ("waits", "waited-for", None)] {
            let mut pod = pod(name);
            pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
            if let Some(node) = node {
                pod["spec"]["nodeName"] = node.into();
            }
            post(&mut cluster, PODS, &pod);
        }
        ask(&mut cluster, Delete, CLAIMS, &Value::Null);
        pass(&mut cluster, 1);
        let left = read(&mut cluster, CLAIMS);
        let left = left["items"].as_array().unwrap();
        assert_eq!(left.len(), 1, "only the one that runs uses its claim");
        assert_eq!(left[0]["metadata"]["name"], "used");
        assert!(left[0]["metadata"]["deletionTimestamp"].is_string());
        ask(&mut cluster, Delete, &format!("{PODS}/runs?gracePeriodSeconds=0"), &Value::Null);
        pass(&mut cluster, 2);
        assert!(read(&mut cluster, &format!("{CLAIMS}/used")).is_null());
    }

    #[test]
    fn a_volume_is_deleted_after_its_claim() {
        let mut cluster = cluster(&["*"]);
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let made = post(&mut cluster, CLAIMS, &json!({"metadata": {"name": "c"}, "spec": spec}));
        pass(&mut cluster, 1);
        let volume = format!("/api/v1/persistentvolumes/pvc-{}", made["metadata"]["uid"].as_str().unwrap());
        assert_eq!(read(&mut cluster, &volume)["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
        ask(&mut cluster, Delete, &volume, &Value::Null);
        pass(&mut cluster, 2);
        assert!(read(&mut cluster, &volume)["metadata"]["deletionTimestamp"].is_string());
        ask(&mut cluster, Delete, &format!("{CLAIMS}/c"), &Value::Null);
        pass(&mut cluster, 3);
        assert!(read(&mut cluster, &volume).is_null());
    }
}
