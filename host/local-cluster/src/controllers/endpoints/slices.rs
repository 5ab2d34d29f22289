//! endpointslice-controller: a Service's endpoints in slices of a hundred. Input: Services and Pods. Output: EndpointSlices,
//! in which an endpoint stays where it is. It must not know Endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::backend::{self, Backend, TRIGGERED, backends, hostname, labels, publishes_all, service, target};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key};
use crate::controllers::storages::SLICES;
use crate::controllers::write;
use crate::deletion::DeleteOptions;
use crate::halt::Halt;
use crate::store::{Change, Event, Object};
use crate::time;

/// `--max-endpoints-per-slice`.
const MAX_ENDPOINTS: usize = 100;
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: (&str, &str) = ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io");

pub(super) const CONTROLLER: Controller = Controller {
    name: "endpointslice-controller",
    user: "system:serviceaccount:kube-system:endpointslice-controller",
    watches: &[("", "pods"), ("", "services"), ("discovery.k8s.io", "endpointslices")],
    batches: true,
    keys,
    reconcile,
};

fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    if change.storage != *SLICES {
        return backend::keys(cluster, change);
    }
    let slice = &change.object;
    let managed = slice.label(MANAGED_BY.0) == Some(MANAGED_BY.1) && change.event != Event::Added;
    let service = slice.label(SERVICE_NAME).filter(|_| managed);
    service.map(|service| (slice.namespace().into(), service.into())).into_iter().collect()
}

/// Ports, and the endpoints that have them.
type Group = (Vec<Value>, Vec<Value>);

fn reconcile(cluster: &mut Cluster, context: &Context<'_>, key: &Key) -> Result<Again, Halt> {
    // Slices have their Service as owner: the garbage collector takes those of one that is gone.
    let Some(service) = service(cluster, key) else { return Ok(Again::No) };
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for backend in backends(cluster, &service, true) {
        let text = Value::from(backend.ports.clone()).to_string();
        let endpoint = endpoint(&service, &backend);
        groups.entry(text).or_insert_with(|| (backend.ports, Vec::new())).1.push(endpoint);
    }
    if groups.is_empty() {
        groups.insert("[]".to_owned(), Group::default());
    }
    let mut known: Vec<Arc<Object>> = cluster
        .store
        .owned(service.uid())
        .into_iter()
        .filter(|(storage, slice)| *storage == *SLICES && slice.label(MANAGED_BY.0) == Some(MANAGED_BY.1))
        .map(|(_, slice)| slice)
        .filter(|slice| !slice.terminates())
        .collect();
    for (ports, endpoints) in groups.into_values() {
        let of_group = |slice: &Arc<Object>| list(&slice.value["ports"]) == ports;
        let (mut own, others): (Vec<_>, Vec<_>) = known.into_iter().partition(of_group);
        known = others;
        // The last slice of all may take any ports.
        if own.is_empty() {
            own.extend(known.pop());
        }
        write_group(cluster, context, &service, &ports, endpoints, own)?;
    }
    for slice in known {
        write::delete(cluster, context, &slice, &DeleteOptions::default())?;
    }
    Ok(Again::No)
}

/// Writes the slices of one group: an endpoint stays in its slice, and new ones fill the slices up.
fn write_group(
    cluster: &mut Cluster,
    context: &Context<'_>,
    service: &Object,
    ports: &[Value],
    endpoints: Vec<Value>,
    slices: Vec<Arc<Object>>,
) -> Result<(), Halt> {
    let uid = |endpoint: &Value| endpoint["targetRef"]["uid"].as_str().unwrap_or_default().to_owned();
    let order: Vec<String> = endpoints.iter().map(uid).collect();
    let mut rest: BTreeMap<String, Value> = endpoints.into_iter().map(|endpoint| (uid(&endpoint), endpoint)).collect();
    let mut filled: Vec<(Option<Arc<Object>>, Vec<Value>)> = Vec::new();
    for slice in slices {
        let known = slice.value["endpoints"].as_array().into_iter().flatten();
        let kept: Vec<Value> = known.filter_map(|endpoint| rest.remove(&uid(endpoint))).collect();
        filled.push((Some(slice), kept));
    }
    let mut new: Vec<Value> = order.iter().filter_map(|uid| rest.remove(uid)).collect();
    for (_, kept) in &mut filled {
        let room = MAX_ENDPOINTS.saturating_sub(kept.len()).min(new.len());
        kept.extend(new.drain(..room));
    }
    while !new.is_empty() || filled.is_empty() {
        let room = MAX_ENDPOINTS.min(new.len());
        filled.push((None, new.drain(..room).collect()));
    }
    let empty = |(_, kept): &(Option<Arc<Object>>, Vec<Value>)| kept.is_empty();
    let all_empty = filled.iter().all(empty);
    for (at, (slice, kept)) in filled.into_iter().enumerate() {
        match slice {
            // One empty slice says that the Service has no endpoints.
            Some(slice) if kept.is_empty() && !(all_empty && at == 0) => {
                write::delete(cluster, context, &slice, &DeleteOptions::default())?;
            }
            slice => write_slice(cluster, context, service, ports, kept, slice.as_deref())?,
        }
    }
    Ok(())
}

fn write_slice(
    cluster: &mut Cluster,
    context: &Context<'_>,
    service: &Object,
    ports: &[Value],
    endpoints: Vec<Value>,
    slice: Option<&Object>,
) -> Result<(), Halt> {
    let mut labels = labels(service, MANAGED_BY);
    labels.insert(SERVICE_NAME.to_owned(), service.name().into());
    let annotations = json!({TRIGGERED: time::seconds(context.now)});
    let labels = Value::from(labels);
    let Some(slice) = slice else {
        let owner = json!({
            "apiVersion": "v1", "kind": "Service", "name": service.name(), "uid": service.uid(),
            "controller": true, "blockOwnerDeletion": true,
        });
        let metadata = json!({
            "generateName": format!("{}-", service.name()), "labels": labels, "annotations": annotations,
            "ownerReferences": [owner],
        });
        let object = json!({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
        let kind = ("discovery.k8s.io", "v1", "EndpointSlice");
        write::create(cluster, context, kind, service.namespace(), object)?;
        return Ok(());
    };
    let known = &slice.value;
    if list(&known["endpoints"]) == endpoints && list(&known["ports"]) == ports && known["metadata"]["labels"] == labels
    {
        return Ok(());
    }
    write::change(cluster, context, slice, |object| {
        write::set(&mut object["metadata"], "labels", labels);
        write::set(&mut object["metadata"], "annotations", annotations);
        write::set(object, "endpoints", endpoints.into());
        write::set(object, "ports", ports.to_vec().into());
    })?;
    Ok(())
}

/// A list of a slice; an empty one is null there.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn endpoint(service: &Object, backend: &Backend) -> Value {
    let pod = &backend.pod;
    let terminating = pod.terminates();
    let ready = publishes_all(service) || backend.ready && !terminating;
    let mut endpoint = json!({
        "addresses": [pod.value["status"]["podIP"]],
        "conditions": {"ready": ready, "serving": backend.ready, "terminating": terminating},
        "nodeName": pod.value["spec"]["nodeName"], "targetRef": target(pod),
    });
    if let Some(name) = hostname(service, pod) {
        endpoint["hostname"] = name.into();
    }
    endpoint
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Method::{Delete, Put};
    use crate::controllers::testing::{cluster, pass, pod, post, read};
    use crate::testing::ask;

    const BASE: &str = "/api/v1/namespaces/default";
    const SLICES: &str =
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Ds";

    #[test]
    fn a_service_leads_to_its_pods() {
        let mut cluster = cluster(&["scheduler", "kubelet", "endpoints-controller", "endpointslice-controller"]);
        let ports = json!([{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}]);
        let service = json!({
            "metadata": {"name": "s", "labels": {"team": "x"}},
            "spec": {"selector": {"app": "a"}, "ports": ports, "clusterIP": "10.96.0.7", "type": "ClusterIP"},
        });
        post(&mut cluster, &format!("{BASE}/services"), &service);
        pass(&mut cluster, 0);
        let empty = read(&mut cluster, SLICES)["items"][0].clone();
        assert_eq!((&empty["endpoints"], &empty["addressType"]), (&json!(null), &json!("IPv4")));
        for name in ["p", "q"] {
            let mut pod = pod(name);
            pod["metadata"]["labels"] = json!({"app": "a"});
            pod["metadata"]["annotations"] = json!({"local-cluster.mortise.dev/ready": (name == "p").to_string()});
            pod["spec"]["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 8080, "protocol": "TCP"}]);
            post(&mut cluster, &format!("{BASE}/pods"), &pod);
        }
        pass(&mut cluster, 2);
        let list = read(&mut cluster, SLICES);
        let [slice] = list["items"].as_array().unwrap().as_slice() else { panic!("{list}") };
        assert_eq!(slice["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
        let ready = |at: usize| slice["endpoints"][at]["conditions"].clone();
        assert_eq!(ready(0), json!({"ready": true, "serving": true, "terminating": false}));
        assert_eq!(ready(1), json!({"ready": false, "serving": false, "terminating": false}));
        assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "s");
        assert_eq!(slice["metadata"]["labels"]["team"], "x");
        let subset = read(&mut cluster, &format!("{BASE}/endpoints/s"))["subsets"][0].clone();
        assert_eq!(subset["addresses"][0]["targetRef"]["name"], "p");
        assert_eq!(subset["notReadyAddresses"][0]["targetRef"]["name"], "q");
        assert_eq!(subset["ports"], slice["ports"]);
        let revision = cluster.revision();
        pass(&mut cluster, 8);
        assert_eq!(cluster.revision(), revision);
        let mut moved = read(&mut cluster, &format!("{BASE}/pods/p"));
        moved["metadata"]["labels"] = json!({});
        ask(&mut cluster, Put, &format!("{BASE}/pods/p"), &moved);
        ask(&mut cluster, Delete, &format!("{BASE}/pods/q?gracePeriodSeconds=0"), &json!(null));
        pass(&mut cluster, 9);
        let list = read(&mut cluster, SLICES);
        assert_eq!(list["items"][0]["endpoints"], json!(null));
        assert!(read(&mut cluster, &format!("{BASE}/endpoints/s"))["subsets"].as_array().is_none_or(Vec::is_empty));
    }

    #[test]
    fn more_than_a_hundred_pods_fill_two_slices() {
        let mut cluster = cluster(&["endpointslice-controller"]);
        let service = json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "a"}, "clusterIP": "None"}});
        post(&mut cluster, &format!("{BASE}/services"), &service);
        for at in 0..101 {
            let mut pod = pod(&format!("p{at}"));
            pod["metadata"]["labels"] = json!({"app": "a"});
            let made = post(&mut cluster, &format!("{BASE}/pods"), &pod);
            let mut ready = made.clone();
            ready["status"] = json!({"podIP": format!("10.0.0.{at}")});
            ask(&mut cluster, Put, &format!("{BASE}/pods/p{at}/status"), &ready);
        }
        pass(&mut cluster, 1);
        let list = read(&mut cluster, SLICES);
        let mut sizes: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|slice| slice["endpoints"].as_array().unwrap().len())
            .collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 100]);
    }
}
