//! Which Pods a Service leads to, and what both forms of endpoints say of them. Input: Services and Pods. Output: backends and
//! labels. It must not know Endpoints and EndpointSlices.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::Cluster;
use crate::condition;
use crate::controllers::controller::{Key, key, unchanged};
use crate::controllers::storages::{PODS, SERVICES};
use crate::placement::has_ended;
use crate::store::{Change, Event, Object};

const HEADLESS: &str = "service.kubernetes.io/headless";
pub(super) const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// A Pod that a Service leads to.
pub(super) struct Backend {
    pub(super) pod: Arc<Object>,
    pub(super) ports: Vec<Value>,
    pub(super) ready: bool,
}

/// The Services that a change concerns.
pub(super) fn keys(cluster: &Cluster, change: &Change) -> Vec<Key> {
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
    let labels = pod.labels();
    let selector = service.value["spec"]["selector"].as_object().filter(|selector| !selector.is_empty());
    selector.is_some_and(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// A Service that controllers find endpoints for.
pub(super) fn service(cluster: &Cluster, (namespace, name): &Key) -> Option<Arc<Object>> {
    let service = cluster.store.get(&SERVICES, namespace, name)?;
    let spec = &service.value["spec"];
    let selects = spec["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    (selects && spec["type"] != "ExternalName").then(|| service.clone())
}

/// The Pods of a Service that have an address and have not ended.
pub(super) fn backends(cluster: &Cluster, service: &Object, with_terminating: bool) -> Vec<Backend> {
    let pods = cluster.store.list(&PODS, Some(service.namespace()), None);
    let fit = pods.filter(|pod| {
        let addressed = || pod.value["status"]["podIP"].as_str().is_some_and(|address| !address.is_empty());
        selects(service, pod) && (with_terminating || !pod.terminates()) && addressed() && !has_ended(&pod.value)
    });
    let backend = |pod: &Arc<Object>| Backend {
        ports: ports(service, pod),
        ready: condition::is_true(&pod.value["status"], "Ready"),
        pod: pod.clone(),
    };
    fit.map(backend).collect()
}

pub(super) fn publishes_all(service: &Object) -> bool {
    service.value["spec"]["publishNotReadyAddresses"] == true
}

pub(super) fn is_headless(service: &Object) -> bool {
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
pub(super) fn hostname<'a>(service: &Object, pod: &'a Object) -> Option<&'a str> {
    let spec = &pod.value["spec"];
    let under = spec["subdomain"] == service.name();
    spec["hostname"].as_str().filter(|name| under && !name.is_empty())
}

pub(super) fn target(pod: &Object) -> Value {
    json!({"kind": "Pod", "namespace": pod.namespace(), "name": pod.name(), "uid": pod.uid()})
}

/// The Service's labels, with the mark of a headless one and that of the controller.
pub(super) fn labels(service: &Object, managed: (&str, &str)) -> Map<String, Value> {
    let mut labels = service.labels().as_object().cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), "".into());
    }
    labels.insert(managed.0.to_owned(), managed.1.into());
    labels
}
