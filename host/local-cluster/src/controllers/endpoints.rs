//! endpoints-controller and endpointslice-controller: which Pods a Service leads to. Input: Services and Pods. Output:
//! Endpoints and EndpointSlices. It must not know nodes.

mod backend;
mod slices;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::backend::{TRIGGERED, backends, hostname, is_headless, keys, labels, publishes_all, service, target};
use super::storages::{ENDPOINTS, SERVICES};
use super::write;
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key};
use crate::halt::Halt;
use crate::store::Object;
use crate::time;

/// How many addresses Endpoints have; the others are left out, with an annotation.
const MAX_ADDRESSES: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

pub(super) const CONTROLLER: Controller = Controller {
    name: "endpoints-controller",
    user: "system:serviceaccount:kube-system:endpoint-controller",
    watches: &[("", "pods"), ("", "services"), ("", "endpoints")],
    batches: true,
    keys,
    reconcile,
};

pub(super) const SLICE_CONTROLLER: Controller = slices::CONTROLLER;

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, key: &Key) -> Result<Again, Halt> {
    let Some(service) = service(cluster, key) else {
        // Endpoints of a Service that is gone go with it; those that somebody else made have no such mark.
        let gone = cluster.store.get(&SERVICES, &key.0, &key.1).is_none();
        let known = cluster.store.get(&ENDPOINTS, &key.0, &key.1).filter(|_| gone).cloned();
        if let Some(known) = known.filter(|known| known.label("endpoints.kubernetes.io/managed-by").is_some()) {
            write::delete(cluster, context, &known, &crate::deletion::DeleteOptions::default())?;
        }
        return Ok(Again::No);
    };
    let (subsets, truncated) = subsets(cluster, &service);
    let labels = Value::from(labels(&service, ("endpoints.kubernetes.io/managed-by", "endpoint-controller")));
    let known = cluster.store.get(&ENDPOINTS, &key.0, &key.1).cloned();
    let mut annotations = json!({TRIGGERED: time::seconds(context.now)});
    if truncated {
        annotations[OVER_CAPACITY] = "truncated".into();
    }
    match known {
        None => {
            let metadata = json!({"name": &*key.1, "labels": labels, "annotations": annotations});
            let object = json!({"metadata": metadata, "subsets": subsets});
            write::create(cluster, context, ("", "v1", "Endpoints"), &key.0, object)?;
        }
        Some(known) => {
            let before = known.value["subsets"].as_array().map_or(&[][..], Vec::as_slice);
            if before == subsets && *known.labels() == labels {
                return Ok(Again::No);
            }
            write::change(cluster, context, &known, |object| {
                write::set(&mut object["metadata"], "labels", labels);
                write::set(&mut object["metadata"], "annotations", annotations);
                write::set(object, "subsets", subsets.into());
            })?;
        }
    }
    Ok(Again::No)
}

/// Ports, and the addresses that are ready and that are not.
type Subset = (Vec<Value>, Vec<Value>, Vec<Value>);

/// The Pods with the same ports together, and whether some were left out.
fn subsets(cluster: &Cluster, service: &Object) -> (Vec<Value>, bool) {
    let all = publishes_all(service);
    let backends = backends(cluster, service, all);
    let truncated = backends.len() > MAX_ADDRESSES;
    let mut groups: BTreeMap<String, Subset> = BTreeMap::new();
    for backend in backends.into_iter().take(MAX_ADDRESSES) {
        if backend.ports.is_empty() && !is_headless(service) {
            continue;
        }
        let pod = &backend.pod;
        let mut address = json!({
            "ip": pod.value["status"]["podIP"], "nodeName": pod.value["spec"]["nodeName"], "targetRef": target(pod),
        });
        if let Some(name) = hostname(service, pod) {
            address["hostname"] = name.into();
        }
        let mut ports = backend.ports.clone();
        for port in ports.iter_mut().filter(|port| port["name"] == "") {
            port.as_object_mut().map(|fields| fields.remove("name"));
        }
        let group = groups.entry(Value::from(ports.clone()).to_string()).or_insert((ports, Vec::new(), Vec::new()));
        let list = if backend.ready || all { &mut group.1 } else { &mut group.2 };
        list.push(address);
    }
    let subset = |(ports, mut ready, mut unready): Subset| {
        let mut subset = json!({});
        for (field, list) in [("addresses", &mut ready), ("notReadyAddresses", &mut unready)] {
            if !list.is_empty() {
                list.sort_by(|a, b| a["ip"].as_str().cmp(&b["ip"].as_str()));
                subset[field] = std::mem::take(list).into();
            }
        }
        if !ports.is_empty() {
            subset["ports"] = ports.into();
        }
        subset
    };
    (groups.into_values().map(subset).collect(), truncated)
}
