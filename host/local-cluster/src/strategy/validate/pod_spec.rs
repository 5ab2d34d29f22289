//! What must hold for the specs of Pods and templates. Input: a spec. Output: causes. It must not know the objects around it.

use serde_json::Value;

use super::super::field::{Causes, Path, how_many, is_empty, items, names, quantity, text};
use super::super::format;
use super::super::rule::{Check, Rule, check};

pub(super) const POD: &[Rule] =
    &[("spec", Check::Code(|spec, path, causes| pod_spec(spec, path, &[], causes))), ("spec", Check::Code(gates))];

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

const VOLUME_SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "flocker",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "azureFile",
    "configMap",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
    "projected",
    "portworxVolume",
    "scaleIO",
    "storageos",
    "csi",
    "ephemeral",
    "image",
];
const KEYS: &[Rule] = &[("key", Check::Required("")), ("path", Check::Required("")), ("mode", Check::Code(mode))];
const VOLUME: &[Rule] = &[
    ("hostPath", Check::Within(&[("path", Check::Required(""))])),
    (
        "secret",
        Check::Within(&[
            ("secretName", Check::Required("")),
            ("defaultMode", Check::Code(mode)),
            ("items", Check::Each(KEYS)),
        ]),
    ),
    ("nfs", Check::Within(&[("server", Check::Required("")), ("path", Check::Required(""))])),
    ("persistentVolumeClaim", Check::Within(&[("claimName", Check::Required(""))])),
    (
        "configMap",
        Check::Within(&[
            ("name", Check::Required("")),
            ("defaultMode", Check::Code(mode)),
            ("items", Check::Each(KEYS)),
        ]),
    ),
    ("csi", Check::Within(&[("driver", Check::Required(""))])),
    ("", Check::Code(volume_sources)),
    ("name", Check::Required("")),
    ("name", Check::Text(format::label)),
];
const PORTS: &[Rule] = &[
    ("name", Check::Text(format::port_name)),
    ("containerPort", Check::Code(container_port)),
    ("hostPort", Check::Code(host_port)),
    ("protocol", Check::Required("")),
    ("protocol", Check::OneOf(PROTOCOLS)),
];
const KEY_REF: &[Rule] = &[
    ("name", Check::Code(|value, path, causes| causes.invalid_text(path, text(value), format::subdomain(text(value))))),
    ("key", Check::Required("")),
    ("key", Check::Text(format::config_key)),
];
const ENV: &[Rule] = &[
    ("name", Check::Required("")),
    ("name", Check::Text(format::env_name)),
    ("valueFrom.fieldRef", Check::Within(&[("fieldPath", Check::Required(""))])),
    ("valueFrom.resourceFieldRef", Check::Within(&[("resource", Check::Required(""))])),
    ("valueFrom.configMapKeyRef", Check::Within(KEY_REF)),
    ("valueFrom.secretKeyRef", Check::Within(KEY_REF)),
    ("", Check::Code(env_sources)),
];
const ENV_FROM: &[Rule] = &[
    ("prefix", Check::Text(format::env_name)),
    ("configMapRef", Check::Within(&[("name", Check::Required(""))])),
    ("secretRef", Check::Within(&[("name", Check::Required(""))])),
];
/// The rules of a container up to its mounts, and those after them.
const CONTAINER: &[Rule] = &[
    ("name", Check::Required("")),
    ("name", Check::Text(format::label)),
    ("image", Check::Required("")),
    ("terminationMessagePolicy", Check::OneOf(&["File", "FallbackToLogsOnError"])),
    ("ports", Check::Each(PORTS)),
    ("ports", Check::Unique("name")),
    ("env", Check::Each(ENV)),
    ("envFrom", Check::Each(ENV_FROM)),
    ("envFrom", Check::Code(env_from_sources)),
];
const CONTAINER_END: &[Rule] =
    &[("imagePullPolicy", Check::OneOf(&["Always", "IfNotPresent", "Never"])), ("resources", Check::Code(resources))];
const HTTP_GET: &[Rule] = &[
    ("path", Check::Required("")),
    ("port", Check::Port),
    ("scheme", Check::OneOf(&["HTTP", "HTTPS"])),
    ("httpHeaders", Check::Each(&[("name", Check::Text(format::header))])),
];
const HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
const HANDLER: &[Rule] = &[
    ("exec", Check::Within(&[("command", Check::Required(""))])),
    ("httpGet", Check::Within(HTTP_GET)),
    ("tcpSocket", Check::Within(&[("port", Check::Port)])),
    ("grpc", Check::Within(&[("port", Check::Port)])),
    ("", Check::Code(handlers)),
];
const PROBE: &[Rule] = &[
    ("", Check::Within(HANDLER)),
    ("initialDelaySeconds", Check::AtLeast(0)),
    ("timeoutSeconds", Check::AtLeast(0)),
    ("periodSeconds", Check::AtLeast(0)),
    ("successThreshold", Check::AtLeast(0)),
    ("failureThreshold", Check::AtLeast(0)),
];
const TOLERATION: &[Rule] = &[
    ("key", Check::Text(format::qualified)),
    ("", Check::Code(toleration)),
    ("effect", Check::OneOf(&["NoSchedule", "PreferNoSchedule", "NoExecute"])),
];
const SPREAD: &[Rule] = &[
    ("maxSkew", Check::Code(positive)),
    ("topologyKey", Check::Required("can not be empty")),
    ("whenUnsatisfiable", Check::OneOf(&["DoNotSchedule", "ScheduleAnyway"])),
    ("labelSelector", Check::Selector),
];
/// The rules of a spec after its containers.
const SPEC_END: &[Rule] = &[
    ("restartPolicy", Check::OneOf(&["Always", "OnFailure", "Never"])),
    ("dnsPolicy", Check::OneOf(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"])),
    ("nodeSelector", Check::Labels),
    ("imagePullSecrets", Check::Each(&[("name", Check::Required(""))])),
    ("topologySpreadConstraints", Check::Each(SPREAD)),
    ("serviceAccountName", Check::Text(format::subdomain)),
    ("nodeName", Check::Text(format::subdomain)),
    ("activeDeadlineSeconds", Check::Between(1, 2_147_483_647)),
    ("hostname", Check::Text(format::label)),
    ("subdomain", Check::Text(format::label)),
    ("tolerations", Check::Each(TOLERATION)),
    ("priorityClassName", Check::Text(format::subdomain)),
    ("runtimeClassName", Check::Text(format::subdomain)),
];

/// Finds what is wrong with a spec. `more` are volumes that the Pods get besides.
pub(super) fn pod_spec(spec: &Value, path: &Path<'_>, more: &[&str], causes: &mut Causes) {
    check(spec, path, &[("volumes", Check::Each(VOLUME)), ("volumes", Check::Unique("name"))], causes);
    let known: Vec<&str> = names(&spec["volumes"]).chain(more.iter().copied()).collect();
    let list = Path::Field(path, "containers");
    if is_empty(&spec["containers"]) {
        causes.required(&list, "");
    }
    for (index, one) in items(&spec["containers"]).iter().enumerate() {
        container(one, &Path::Index(&list, index), &known, causes);
        probes(one, &Path::Index(&list, index), causes);
    }
    check(&spec["containers"], &list, &[("", Check::Unique("name")), ("", Check::Code(host_ports))], causes);
    let list = Path::Field(path, "initContainers");
    for (index, one) in items(&spec["initContainers"]).iter().enumerate() {
        let place = Path::Index(&list, index);
        container(one, &place, &known, causes);
        let name = text(&one["name"]);
        if !name.is_empty() && names(&spec["containers"]).any(|other| other == name) {
            causes.duplicate(&Path::Field(&place, "name"), &name.into());
        }
        if one["restartPolicy"] == "Always" {
            probes(one, &place, causes);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if !one[field].is_null() {
                let words = "may not be set for init containers without restartPolicy=Always";
                causes.forbidden(&Path::Field(&place, field), words);
            }
        }
    }
    check(&spec["initContainers"], &list, &[("", Check::Unique("name"))], causes);
    check(spec, path, SPEC_END, causes);
}

fn container(value: &Value, path: &Path<'_>, volumes: &[&str], causes: &mut Causes) {
    check(value, path, CONTAINER, causes);
    let list = Path::Field(path, "volumeMounts");
    let mounts = items(&value["volumeMounts"]);
    for (index, mount) in mounts.iter().enumerate() {
        let place = Path::Index(&list, index);
        let (name, target) = (text(&mount["name"]), text(&mount["mountPath"]));
        if name.is_empty() {
            causes.required(&Path::Field(&place, "name"), "");
        }
        if !volumes.contains(&name) {
            causes.not_found(&Path::Field(&place, "name"), &name.into());
        }
        if target.is_empty() {
            causes.required(&Path::Field(&place, "mountPath"), "");
        }
        if mounts.iter().take(index).any(|other| text(&other["mountPath"]) == target) {
            causes.invalid(&Path::Field(&place, "mountPath"), &target.into(), "must be unique");
        }
    }
    check(value, path, CONTAINER_END, causes);
}

fn probes(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    for hook in ["postStart", "preStop"] {
        let found = &value["lifecycle"][hook];
        check(found, &Path::Field(&Path::Field(path, "lifecycle"), hook), &[("", Check::Within(HANDLER))], causes);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let (probe, place) = (&value[name], Path::Field(path, name));
        if !probe.is_object() {
            continue;
        }
        check(probe, &place, PROBE, causes);
        if name != "readinessProbe" && probe["successThreshold"].as_i64().is_some_and(|number| number != 1) {
            causes.invalid(&Path::Field(&place, "successThreshold"), &probe["successThreshold"], "must be 1");
        }
    }
}

fn handlers(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let mut set = HANDLERS.iter().filter(|name| !value[**name].is_null());
    if set.next().is_none() {
        causes.required(path, "must specify a handler type");
    }
    for name in set {
        causes.forbidden(&Path::Field(path, name), "may not specify more than 1 handler type");
    }
}

fn volume_sources(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let mut set = VOLUME_SOURCES.iter().filter(|name| !value[**name].is_null());
    if set.next().is_none() {
        causes.required(path, "must specify a volume type");
    }
    for name in set {
        causes.forbidden(&Path::Field(path, name), "may not specify more than 1 volume type");
    }
}

fn env_sources(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let from = &value["valueFrom"];
    if !from.is_object() {
        return;
    }
    let place = Path::Field(path, "valueFrom");
    let set = how_many(from, &["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"]);
    let words = if set == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if !is_empty(&value["value"]) {
        "may not be specified when `value` is not empty"
    } else if set > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    causes.invalid(&place, &"".into(), words);
}

fn env_from_sources(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    for source in items(value) {
        match how_many(source, &["configMapRef", "secretRef"]) {
            0 => causes.invalid(path, &"".into(), "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => causes.invalid(path, &"".into(), "may not have more than one field specified at a time"),
        }
    }
}

fn container_port(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    match value.as_i64().unwrap_or(0) {
        0 => causes.required(path, ""),
        _ => check(value, path, &[("", Check::Between(1, 65535))], causes),
    }
}

fn host_port(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    if value.as_i64().unwrap_or(0) != 0 {
        check(value, path, &[("", Check::Between(1, 65535))], causes);
    }
}

/// No two containers use one port of the node.
fn host_ports(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let mut seen = Vec::new();
    for (at, container) in items(value).iter().enumerate() {
        for (index, port) in items(&container["ports"]).iter().enumerate() {
            let number = port["hostPort"].as_i64().unwrap_or(0);
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", text(&port["protocol"]), text(&port["hostIP"]));
            if seen.contains(&key) {
                let place = Path::Index(path, at);
                let place = Path::Field(&place, "ports");
                let place = Path::Index(&place, index);
                causes.duplicate(&Path::Field(&place, "hostPort"), &key.into());
            } else {
                seen.push(key);
            }
        }
    }
}

fn mode(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    if value.as_i64().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        causes.invalid(path, value, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

pub(super) fn positive(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    if value.as_i64().unwrap_or(0) <= 0 {
        causes.invalid(path, value, "must be greater than zero");
    }
}

fn toleration(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let field = |name: &str| text(&value[name]);
    let operator = Path::Field(path, "operator");
    if field("key").is_empty() && field("operator") != "Exists" {
        let words = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        causes.invalid(&operator, &field("operator").into(), words);
    }
    if !value["tolerationSeconds"].is_null() && field("effect") != "NoExecute" {
        let words = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        causes.invalid(&Path::Field(path, "effect"), &field("effect").into(), words);
    }
    match field("operator") {
        "" | "Equal" => {
            let given = field("value");
            let wrong = format::label_value(given);
            if !wrong.is_empty() {
                causes.invalid(&operator, &given.into(), &wrong.join(";"));
            }
        }
        "Exists" if !field("value").is_empty() => {
            causes.invalid(&operator, &field("value").into(), "value must be empty when `operator` is 'Exists'");
        }
        "Exists" => {}
        other => causes.not_supported(&operator, &other.into(), &["Equal", "Exists"]),
    }
}

fn gates(spec: &Value, path: &Path<'_>, causes: &mut Causes) {
    if !is_empty(&spec["nodeName"]) && !is_empty(&spec["schedulingGates"]) {
        causes.forbidden(&Path::Field(path, "nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    if spec["hostNetwork"] != true {
        return;
    }
    let list = Path::Field(path, "containers");
    for (at, container) in items(&spec["containers"]).iter().enumerate() {
        let place = Path::Index(&list, at);
        let ports = Path::Field(&place, "ports");
        for (index, port) in items(&container["ports"]).iter().enumerate() {
            if port["hostPort"] != port["containerPort"] {
                let words = "must match `containerPort` when `hostNetwork` is true";
                causes.invalid(&Path::Field(&Path::Index(&ports, index), "hostPort"), &port["hostPort"], words);
            }
        }
    }
}

/// Whether a resource may be promised more often than it is there.
fn overcommits(name: &str) -> bool {
    !name.starts_with("hugepages-") && (!name.contains('/') || name.contains("kubernetes.io/"))
}

/// Requests and limits are quantities of known resources, and no request is above its limit.
fn resources(value: &Value, path: &Path<'_>, causes: &mut Causes) {
    let (limits, requests) = (Path::Field(path, "limits"), Path::Field(path, "requests"));
    for (list, place) in [("limits", &limits), ("requests", &requests)] {
        for name in value[list].as_object().into_iter().flatten().map(|(name, _)| name.as_str()) {
            let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
            if !name.contains('/') && !standard && format::qualified(name).is_empty() {
                let key = Path::Key(place, name);
                causes.invalid(&key, &name.into(), "must be a standard resource type or fully qualified");
                causes.invalid(&key, &name.into(), "must be a standard resource for containers");
            }
        }
        check(&value[list], place, &[("", Check::Quantities)], causes);
    }
    for (name, amount) in value["requests"].as_object().into_iter().flatten() {
        let Some(request) = quantity(amount) else { continue };
        let limit = value["limits"].get(name).and_then(quantity);
        match limit {
            Some(limit) if request.cmp(&limit).is_ne() && !overcommits(name) => {
                let words = format!("must be equal to {name} limit of {limit}");
                causes.invalid(&requests, amount, &words);
            }
            Some(limit) if request > limit => {
                let words = format!("must be less than or equal to {name} limit of {limit}");
                causes.invalid(&requests, amount, &words);
            }
            None if !overcommits(name) => {
                causes.required(&limits, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
}
