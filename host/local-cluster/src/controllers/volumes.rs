//! persistentvolume-binder-controller, and a model of a provisioner: claims are bound to volumes that fit, or to volumes that
//! are made for them. Input: PersistentVolumeClaims, PersistentVolumes and StorageClasses. Output: bindings and volumes. It
//! must not know Pods.

use std::sync::Arc;

use serde_json::{Value, json};

use super::storages::{CLAIMS, CLASSES, VOLUMES};
use super::write;
use crate::Cluster;
use crate::amounts;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, key};
use crate::deletion::DeleteOptions;
use crate::halt::Halt;
use crate::selector::Labels;
use crate::store::{Change, Event, Object};

const PROVISIONER: &str = "local-cluster.mortise.dev/volumes";
const BOUND_BY: &str = "pv.kubernetes.io/bound-by-controller";

pub(super) const CONTROLLER: Controller = Controller {
    name: "persistentvolume-binder-controller",
    user: "system:serviceaccount:kube-system:persistent-volume-binder",
    watches: &[("", "persistentvolumeclaims"), ("", "persistentvolumes"), ("storage.k8s.io", "storageclasses")],
    batches: false,
    keys,
    reconcile,
};

/// The keys of volumes have no namespace; those of claims have one.
fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let object = &change.object;
    let unbound = || {
        let claims = cluster.store.list(&CLAIMS, None, None).filter(|claim| claim.value["status"]["phase"] != "Bound");
        claims.map(|claim| key(claim))
    };
    match (&*change.storage.plural, change.event) {
        ("persistentvolumeclaims", Event::Deleted) => {
            let volume = object.value["spec"]["volumeName"].as_str().filter(|name| !name.is_empty());
            volume.map(|name| ("".into(), name.into())).into_iter().collect()
        }
        ("persistentvolumeclaims", _) => vec![key(object)],
        ("persistentvolumes", Event::Deleted) => claim_of(object).into_iter().collect(),
        ("persistentvolumes", event) => {
            let mut keys = vec![key(object)];
            if event == Event::Added {
                keys.extend(unbound());
            }
            keys
        }
        _ => unbound().collect(),
    }
}

fn claim_of(volume: &Object) -> Option<Key> {
    let claim = &volume.value["spec"]["claimRef"];
    Some((claim["namespace"].as_str()?.into(), claim["name"].as_str()?.into()))
}

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, (namespace, name): &Key) -> Result<Again, Halt> {
    if namespace.is_empty() {
        let volume = cluster.store.get(&VOLUMES, "", name).cloned();
        volume.map_or(Ok(()), |volume| release(cluster, context, &volume))?;
        return Ok(Again::No);
    }
    let claim = cluster.store.get(&CLAIMS, namespace, name).filter(|claim| !claim.terminates()).cloned();
    let Some(claim) = claim else { return Ok(Again::No) };
    let named = claim.value["spec"]["volumeName"].as_str().filter(|name| !name.is_empty());
    let volume = match named {
        Some(named) => cluster.store.get(&VOLUMES, "", named).cloned(),
        None => find(cluster, &claim),
    };
    match volume {
        Some(volume) if belongs(&volume, &claim) => bind(cluster, context, &claim, &volume)?,
        Some(_) => {}
        None if claim.value["status"]["phase"] == "Bound" => {
            let mut status = claim.value["status"].clone();
            write::set(&mut status, "phase", "Lost".into());
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            write::event(cluster, context, &claim, "Warning", "ClaimLost", message)?;
            write::update_status(cluster, context, &claim, status)?;
        }
        None if named.is_none() => provision(cluster, context, &claim)?,
        None => {}
    }
    Ok(Again::No)
}

/// Whether a volume is free for a claim, or is the claim's already.
fn belongs(volume: &Object, claim: &Object) -> bool {
    let owner = &volume.value["spec"]["claimRef"];
    let named = owner["namespace"] == claim.namespace() && owner["name"] == claim.name();
    owner.is_null() || named && owner["uid"].as_str().is_none_or(|uid| uid.is_empty() || uid == claim.uid())
}

fn class(object: &Object) -> Option<&str> {
    object.value["spec"]["storageClassName"].as_str()
}

fn size(amounts: &Value) -> i64 {
    amounts::parse(&amounts["storage"]).unwrap_or(0)
}

/// The smallest free volume that has what a claim asks for.
fn find(cluster: &Cluster, claim: &Object) -> Option<Arc<Object>> {
    let spec = &claim.value["spec"];
    let wanted = size(&spec["resources"]["requests"]);
    let selector = Labels::read(&spec["selector"]);
    let modes = spec["accessModes"].as_array().cloned().unwrap_or_default();
    let fits = |volume: &&Arc<Object>| {
        let of = &volume.value["spec"];
        let has = of["accessModes"].as_array().is_some_and(|has| modes.iter().all(|mode| has.contains(mode)));
        let free = of["claimRef"].is_null() && volume.value["status"]["phase"] != "Released";
        let meant = !of["claimRef"].is_null() && belongs(volume, claim);
        let matches = selector.matches(volume.labels());
        let same_class = class(volume).unwrap_or("") == class(claim).unwrap_or("");
        meant || free && has && matches && same_class && !volume.terminates() && size(&of["capacity"]) >= wanted
    };
    let volumes = cluster.store.list(&VOLUMES, None, None).filter(fits);
    volumes
        .min_by_key(|volume| (volume.value["spec"]["claimRef"].is_null(), size(&volume.value["spec"]["capacity"])))
        .cloned()
}

/// Makes a volume for a claim without a class, or of a class that is there.
fn provision(cluster: &mut Cluster, context: &Context<'_>, claim: &Object) -> Result<(), Halt> {
    let known = class(claim).and_then(|name| cluster.store.get(&CLASSES, "", name)).cloned();
    let provisioner = known.as_ref().and_then(|class| class.value["provisioner"].as_str()).unwrap_or(PROVISIONER);
    let refusal = match (class(claim), &known) {
        (Some(""), _) => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            Some(("Normal", "FailedBinding", message.to_owned()))
        }
        (Some(name), None) => {
            Some(("Warning", "ProvisioningFailed", format!("storageclass.storage.k8s.io {name:?} not found")))
        }
        _ if provisioner == "kubernetes.io/no-provisioner" => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            Some(("Normal", "FailedBinding", message.to_owned()))
        }
        _ => None,
    };
    if let Some((kind, reason, message)) = refusal {
        return write::event(cluster, context, claim, kind, reason, &message);
    }
    let name = format!("pvc-{}", claim.uid());
    let policy = known.as_ref().and_then(|class| class.value["reclaimPolicy"].as_str()).unwrap_or("Delete");
    let spec = &claim.value["spec"];
    let mut volume = json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": provisioner}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]}, "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": policy, "volumeMode": spec["volumeMode"].as_str().unwrap_or("Filesystem"),
            "hostPath": {"path": format!("/var/local-cluster/{name}"), "type": "DirectoryOrCreate"},
            "claimRef": reference(claim),
        },
    });
    if let Some(class) = class(claim) {
        volume["spec"]["storageClassName"] = class.into();
    }
    let volume = write::create(cluster, context, ("", "v1", "PersistentVolume"), "", volume)?;
    let message = format!("Successfully provisioned volume {name}");
    write::event(cluster, context, claim, "Normal", "ProvisioningSucceeded", &message)?;
    bind(cluster, context, claim, &volume)
}

fn reference(claim: &Object) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(), "name": claim.name(),
        "uid": claim.uid(), "resourceVersion": claim.value["metadata"]["resourceVersion"],
    })
}

/// Binds both to each other: the volume's reference and phase first, then the claim's.
fn bind(cluster: &mut Cluster, context: &Context<'_>, claim: &Object, volume: &Object) -> Result<(), Halt> {
    let is_bound = volume.value["spec"]["claimRef"]["uid"] == claim.uid();
    let volume = write::change(cluster, context, volume, |volume| {
        if !is_bound {
            write::set(&mut volume["spec"], "claimRef", reference(claim));
            annotate(volume, BOUND_BY);
        }
    })?;
    let mut status = volume.value["status"].as_object().cloned().unwrap_or_default();
    status.insert("phase".to_owned(), "Bound".into());
    let volume = write::update_status(cluster, context, &volume, status.into())?;
    let bound = write::change(cluster, context, claim, |claim| {
        if claim["spec"]["volumeName"].as_str().is_none_or(str::is_empty) {
            write::set(&mut claim["spec"], "volumeName", volume.name().into());
            annotate(claim, BOUND_BY);
        }
        annotate(claim, "pv.kubernetes.io/bind-completed");
    })?;
    let mut status = bound.value["status"].as_object().cloned().unwrap_or_default();
    let spec = &volume.value["spec"];
    for (field, value) in [
        ("phase", "Bound".into()),
        ("accessModes", spec["accessModes"].clone()),
        ("capacity", spec["capacity"].clone()),
    ] {
        status.insert(field.to_owned(), value);
    }
    write::update_status(cluster, context, &bound, status.into())?;
    Ok(())
}

fn annotate(object: &mut Value, name: &str) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    write::set(annotations, name, "yes".into());
}

/// A volume's phase; one whose claim is gone is deleted or kept, as its policy says.
fn release(cluster: &mut Cluster, context: &Context<'_>, volume: &Object) -> Result<(), Halt> {
    let uid = volume.value["spec"]["claimRef"]["uid"].as_str().filter(|uid| !uid.is_empty());
    let claim = claim_of(volume).and_then(|(namespace, name)| cluster.store.get(&CLAIMS, &namespace, &name));
    let is_claimed = claim.is_some_and(|claim| Some(claim.uid()) == uid);
    let phase = match uid {
        None => "Available",
        Some(_) if is_claimed => "Bound",
        Some(_) => "Released",
    };
    let mut status = volume.value["status"].as_object().cloned().unwrap_or_default();
    status.insert("phase".to_owned(), phase.into());
    let volume = write::update_status(cluster, context, volume, status.into())?;
    if phase == "Released" && volume.value["spec"]["persistentVolumeReclaimPolicy"] == "Delete" && !volume.terminates()
    {
        write::delete(cluster, context, &volume, &DeleteOptions::default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Method::Delete;
    use crate::controllers::testing::{cluster, pass, post, read, reasons};
    use crate::testing::ask;

    const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
    const VOLUMES: &str = "/api/v1/persistentvolumes";
    const CONTROLLERS: [&str; 3] = [
        "persistentvolume-binder-controller",
        "persistentvolumeclaim-protection-controller",
        "persistentvolume-protection-controller",
    ];

    #[test]
    fn a_claim_gets_a_volume_that_is_deleted_with_it() {
        let mut cluster = cluster(&CONTROLLERS);
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let made = post(&mut cluster, CLAIMS, &json!({"metadata": {"name": "c"}, "spec": spec}));
        pass(&mut cluster, 1);
        let bound = read(&mut cluster, &format!("{CLAIMS}/c"));
        let name = format!("pvc-{}", made["metadata"]["uid"].as_str().unwrap());
        assert_eq!((&bound["status"]["phase"], &bound["spec"]["volumeName"]), (&json!("Bound"), &json!(name)));
        assert_eq!(bound["status"]["capacity"], json!({"storage": "1Gi"}));
        assert_eq!(read(&mut cluster, &format!("{VOLUMES}/{name}"))["status"]["phase"], "Bound");
        let revision = cluster.revision();
        pass(&mut cluster, 60);
        assert_eq!(cluster.revision(), revision);
        ask(&mut cluster, Delete, &format!("{CLAIMS}/c"), &json!(null));
        pass(&mut cluster, 61);
        assert!(read(&mut cluster, &format!("{VOLUMES}/{name}")).is_null());
    }

    #[test]
    fn a_claim_of_no_class_waits_for_the_smallest_volume_that_fits() {
        let mut cluster = cluster(&CONTROLLERS);
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}, "storageClassName": "",
        });
        post(&mut cluster, CLAIMS, &json!({"metadata": {"name": "c"}, "spec": spec}));
        pass(&mut cluster, 1);
        assert_eq!(reasons(&mut cluster, "c"), ["FailedBinding"]);
        for size in ["1Gi", "5Gi", "3Gi"] {
            let spec = json!({
                "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
                "persistentVolumeReclaimPolicy": "Retain",
            });
            post(
                &mut cluster,
                VOLUMES,
                &json!({"metadata": {"name": format!("v-{}", size.to_lowercase())}, "spec": spec}),
            );
        }
        pass(&mut cluster, 2);
        assert_eq!(read(&mut cluster, &format!("{CLAIMS}/c"))["spec"]["volumeName"], "v-3gi");
        assert_eq!(read(&mut cluster, &format!("{VOLUMES}/v-1gi"))["status"]["phase"], "Available");
        ask(&mut cluster, Delete, &format!("{CLAIMS}/c"), &json!(null));
        pass(&mut cluster, 3);
        assert_eq!(read(&mut cluster, &format!("{VOLUMES}/v-3gi"))["status"]["phase"], "Released");
    }
}
