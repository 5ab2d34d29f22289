//! What the API server fills in in a Pod's spec. Input: the spec of a Pod or of a template. Output: the same, completed. It must
//! not know the objects around it.

use serde_json::{Map, Value, json};

use super::field::{is_empty, quantity, text};
use super::fill::{Default, Fill, fill, set};
use crate::quantity::Quantity;

const SPEC: &[Default] = &[
    ("dnsPolicy", Fill::Text("ClusterFirst")),
    ("restartPolicy", Fill::Text("Always")),
    ("securityContext", Fill::Object),
    ("terminationGracePeriodSeconds", Fill::Number(30)),
    ("schedulerName", Fill::Text("default-scheduler")),
    ("volumes[].hostPath.type", Fill::Text("")),
    ("volumes[].secret.defaultMode", Fill::Number(0o644)),
    ("volumes[].configMap.defaultMode", Fill::Number(0o644)),
    ("volumes[].downwardAPI.defaultMode", Fill::Number(0o644)),
    ("volumes[].downwardAPI.items[].fieldRef.apiVersion", Fill::Text("v1")),
    ("volumes[].downwardAPI.items[].resourceFieldRef.divisor", Fill::Text("0")),
    ("volumes[].projected.defaultMode", Fill::Number(0o644)),
    ("volumes[].projected.sources[].downwardAPI.items[].fieldRef.apiVersion", Fill::Text("v1")),
    ("volumes[].projected.sources[].serviceAccountToken.expirationSeconds", Fill::Number(3600)),
    ("volumes[].ephemeral.volumeClaimTemplate.spec.volumeMode", Fill::Text("Filesystem")),
    ("volumes[].iscsi.iscsiInterface", Fill::Text("default")),
    ("volumes[].rbd.pool", Fill::Text("rbd")),
    ("volumes[].rbd.user", Fill::Text("admin")),
    ("volumes[].rbd.keyring", Fill::Text("/etc/ceph/keyring")),
];
const CONTAINER: &[Default] = &[
    ("terminationMessagePath", Fill::Text("/dev/termination-log")),
    ("terminationMessagePolicy", Fill::Text("File")),
    ("resources", Fill::Object),
    ("ports[].protocol", Fill::Text("TCP")),
    ("env[].valueFrom.fieldRef.apiVersion", Fill::Text("v1")),
    ("env[].valueFrom.resourceFieldRef.divisor", Fill::Text("0")),
    ("env[].valueFrom.fileKeyRef.optional", Fill::Flag(false)),
    ("lifecycle.postStart.httpGet.path", Fill::Text("/")),
    ("lifecycle.postStart.httpGet.scheme", Fill::Text("HTTP")),
    ("lifecycle.preStop.httpGet.path", Fill::Text("/")),
    ("lifecycle.preStop.httpGet.scheme", Fill::Text("HTTP")),
];
const PROBE: &[Default] = &[
    ("timeoutSeconds", Fill::NonZero(1)),
    ("periodSeconds", Fill::NonZero(10)),
    ("successThreshold", Fill::NonZero(1)),
    ("failureThreshold", Fill::NonZero(3)),
    ("httpGet.path", Fill::Text("/")),
    ("httpGet.scheme", Fill::Text("HTTP")),
    ("grpc.service", Fill::Text("")),
];

/// Fills in a spec; what a Pod has and a template has not is filled in in Pods only.
pub(super) fn spec(spec: &mut Value, is_pod: bool) {
    fill(spec, SPEC);
    service_account(spec);
    for volume in list(spec, "volumes") {
        self::volume(volume);
    }
    let host_network = is_pod && spec["hostNetwork"] == true;
    for name in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(spec, name) {
            self::container(container);
            if is_pod && name != "ephemeralContainers" {
                requests(container, host_network);
            }
        }
    }
    if is_pod {
        fill(spec, &[("enableServiceLinks", Fill::Flag(true))]);
        pod_requests(spec);
    }
}

fn list<'a>(value: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The old name of a field is written beside the new one.
fn service_account(spec: &mut Value) {
    let name = match text(&spec["serviceAccountName"]) {
        "" => text(&spec["serviceAccount"]),
        name => name,
    };
    if !name.is_empty() && (spec["serviceAccountName"] != name || spec["serviceAccount"] != name) {
        let name = Value::from(name);
        set(spec, "serviceAccount", Some(name.clone()));
        set(spec, "serviceAccountName", Some(name));
    }
}

fn volume(volume: &mut Value) {
    let Some(fields) = volume.as_object_mut() else { return };
    if fields.iter().all(|(name, value)| name == "name" || value.is_null()) {
        fields.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(image) = fields.get_mut("image").filter(|image| is_empty(&image["pullPolicy"])) {
        let policy = pull_policy(text(&image["reference"]));
        set(image, "pullPolicy", Some(policy.into()));
    }
}

fn container(container: &mut Value) {
    if container.is_object() && is_empty(&container["imagePullPolicy"]) {
        let policy = pull_policy(text(&container["image"]));
        set(container, "imagePullPolicy", Some(policy.into()));
    }
    fill(container, CONTAINER);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            fill(probe, PROBE);
        }
    }
}

/// Images without a tag, and those that say `latest`, are pulled always. A name that is none has no tag to go by.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let latest = match (image.contains('@'), name.split_once(':')) {
        (false, Some((_, tag))) => tag == "latest",
        (true, _) => image.split('@').next().unwrap_or_default().ends_with(":latest"),
        (false, None) => !name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b' '),
    };
    if latest { "Always" } else { "IfNotPresent" }
}

/// What a container may use at most it requests, if it says nothing else.
fn requests(container: &mut Value, host_network: bool) {
    let Some(fields) = container.as_object_mut() else { return };
    if let Some(resources) = fields.get_mut("resources").filter(|resources| !is_empty(&resources["limits"])) {
        let limits = resources["limits"].as_object().cloned().unwrap_or_default();
        if let Some(requests) = super::fill::object(resources, "requests") {
            for (name, amount) in limits {
                requests.entry(name).or_insert(amount);
            }
        }
    }
    if !host_network {
        return;
    }
    for port in fields.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let unset = port["hostPort"].as_i64().unwrap_or(0) == 0;
        if let (true, Some(number)) = (unset, port.get("containerPort").cloned()) {
            set(port, "hostPort", Some(number));
        }
    }
}

/// The requests of a whole Pod with limits: what its containers request, else the limits.
fn pod_requests(spec: &mut Value) {
    let limits = spec["resources"]["limits"].as_object().cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let mut sums: Map<String, Value> = Map::new();
    for name in ["cpu", "memory"] {
        let amounts = super::field::items(&spec["containers"]).iter();
        let amounts = amounts.filter_map(|container| quantity(&container["resources"]["requests"][name]));
        if let Some(sum) = amounts.reduce(Quantity::plus) {
            sums.insert(name.to_owned(), sum.to_string().into());
        }
    }
    let Some(requests) = super::fill::object(spec, "resources.requests") else { return };
    for (name, amount) in sums.into_iter().chain(limits) {
        requests.entry(name).or_insert(amount);
    }
}
