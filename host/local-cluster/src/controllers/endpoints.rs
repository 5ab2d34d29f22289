//! endpoints-controller and endpointslice-controller: which Pods a Service leads to. Input: Services and Pods. Output:
//! Endpoints and EndpointSlices. It must not know nodes.

mod slices;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::storages::{ENDPOINTS, PODS, SERVICES};
use super::{condition, write};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Controller, Key, key, unchanged};
use crate::halt::Halt;
use crate::placement::has_ended;
use crate::store::{Change, Event, Object};
use crate::time;

/// How many addresses Endpoints have; the others are left out, with an annotation.
const MAX_ADDRESSES: usize = 1000;
const HEADLESS: &str = "service.kubernetes.io/headless";
const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";
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

/// A Pod that a Service leads to.
struct Backend {
    pod: Arc<Object>,
    ports: Vec<Value>,
    ready: bool,
}

/// The Services that a change concerns.
fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let object = &change.object;
    match &*change.storage.plural {
        "pods" => services_of(cluster, change),
        "services" if change.event == Event::Deleted => Vec::new(),
        "services" => vec![key(object)],
        _ if change.event == Event::Added => Vec::new(),
        _ => vec![key(object)],
    }
}

/// The Services whose selector a Pod matches, or matched before.
fn services_of(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let state =
        |pod: &Object| (condition::is_true(&pod.value["status"], "Ready"), has_ended(&pod.value), pod.terminates());
    let same = |before: &Object, pod: &Object| {
        state(before) == state(pod) && unchanged(before, pod, &["/metadata/labels", "/status/podIPs"])
    };
    let before = change.previous.as_deref().filter(|_| change.event == Event::Modified);
    if before.is_some_and(|before| same(before, &change.object)) {
        return Vec::new();
    }
    let services = cluster.store.list(&SERVICES, Some(change.object.namespace()), None);
    let concerned = services.filter(|service| {
        let selects = |pod: &Object| selects(service, pod);
        selects(&change.object) || before.is_some_and(selects)
    });
    concerned.map(|service| key(service)).collect()
}

fn selects(service: &Object, pod: &Object) -> bool {
    let labels = &pod.value["metadata"]["labels"];
    let selector = service.value["spec"]["selector"].as_object().filter(|selector| !selector.is_empty());
    selector.is_some_and(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// A Service that controllers find endpoints for.
fn service(cluster: &Cluster, (namespace, name): &Key) -> Option<Arc<Object>> {
    let service = cluster.store.get(&SERVICES, namespace, name)?;
    let spec = &service.value["spec"];
    let selects = spec["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    (selects && spec["type"] != "ExternalName").then(|| service.clone())
}

/// The Pods of a Service that have an address and have not ended.
fn backends(cluster: &Cluster, service: &Object, with_terminating: bool) -> Vec<Backend> {
    let pods = cluster.store.list(&PODS, Some(service.namespace()), None);
    let fit = pods.filter(|pod| {
        let addressed = pod.value["status"]["podIP"].as_str().is_some_and(|address| !address.is_empty());
        addressed && !has_ended(&pod.value) && (with_terminating || !pod.terminates()) && selects(service, pod)
    });
    let backend = |pod: &Arc<Object>| Backend {
        ports: ports(service, pod),
        ready: condition::is_true(&pod.value["status"], "Ready"),
        pod: pod.clone(),
    };
    fit.map(backend).collect()
}

fn publishes_all(service: &Object) -> bool {
    service.value["spec"]["publishNotReadyAddresses"] == true
}

fn is_headless(service: &Object) -> bool {
    matches!(service.value["spec"]["clusterIP"].as_str(), None | Some("" | "None"))
}

/// The Service's ports as numbers of this Pod; a name that the Pod does not know is left out.
fn ports(service: &Object, pod: &Object) -> Vec<Value> {
    let all = service.value["spec"]["ports"].as_array().into_iter().flatten();
    let port = |port: &Value| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let number = match &port["targetPort"] {
            Value::String(name) => named_port(pod, name, protocol)?,
            Value::Number(number) if number.as_i64() != Some(0) => Value::Number(number.clone()),
            _ => port["port"].clone(),
        };
        let mut found =
            json!({"name": port["name"].as_str().unwrap_or_default(), "port": number, "protocol": protocol});
        if let Some(protocol) = port["appProtocol"].as_str() {
            found["appProtocol"] = protocol.into();
        }
        Some(found)
    };
    all.into_iter().filter_map(port).collect()
}

fn named_port(pod: &Object, name: &str, protocol: &str) -> Option<Value> {
    let spec = &pod.value["spec"];
    let sidecars = spec["initContainers"].as_array().into_iter().flatten();
    let sidecars = sidecars.filter(|container| container["restartPolicy"] == "Always");
    let containers = spec["containers"].as_array().into_iter().flatten().chain(sidecars);
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    let found = ports.find(|port| port["name"] == name && port["protocol"].as_str().unwrap_or("TCP") == protocol);
    found.map(|port| port["containerPort"].clone())
}

/// The Pod's own host name under a headless Service.
fn hostname<'a>(service: &Object, pod: &'a Object) -> Option<&'a str> {
    let spec = &pod.value["spec"];
    let under = spec["subdomain"] == service.name();
    spec["hostname"].as_str().filter(|name| under && !name.is_empty())
}

fn target(pod: &Object) -> Value {
    json!({"kind": "Pod", "namespace": pod.namespace(), "name": pod.name(), "uid": pod.uid()})
}

/// The Service's labels, with the mark of a headless one and that of the controller.
fn labels(service: &Object, managed: (&str, &str)) -> Map<String, Value> {
    let mut labels = service.value["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), "".into());
    }
    labels.insert(managed.0.to_owned(), managed.1.into());
    labels
}

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
            if before == subsets && known.value["metadata"]["labels"] == labels {
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
