//! Cells of built-in kinds that are more than a field. Input: an object. Output: a cell. It must not know tables.

use serde_json::Value;

use super::cells::{Row, first, human, text};
use crate::time;

/// How many ports, addresses or hosts are shown.
const ENTRIES: usize = 3;
/// How many metrics of an autoscaler are shown.
const METRICS: usize = 2;

fn strings(list: &[Value]) -> Vec<String> {
    list.iter().map(text).collect()
}

pub(super) fn join(list: &[Value]) -> String {
    strings(list).join(",")
}

pub(super) fn number_or_none(row: Row<'_>, pointer: &str) -> Value {
    if row.at(pointer).is_number() { row.at(pointer).clone() } else { "<none>".into() }
}

/// Ready and wanted replicas.
pub(super) fn ready(row: Row<'_>) -> Value {
    format!("{}/{}", row.number("/status/readyReplicas"), row.number("/spec/replicas")).into()
}

pub(super) fn controller(row: Row<'_>) -> Value {
    let owners = row.list("/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|owner| owner["controller"] == true) else { return "<none>".into() };
    let group = owner["apiVersion"].as_str().and_then(|text| text.split_once('/')).map_or("", |(group, _)| group);
    let kind = text(&owner["kind"]).to_lowercase();
    let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
    format!("{kind}/{}", text(&owner["name"])).into()
}

pub(super) fn job_status(row: Row<'_>) -> Value {
    let is = |kind| row.has_condition(kind, "True");
    let ends = ["Complete", "Failed"].into_iter().find(|kind| is(kind));
    let terminating = row.terminates().then_some("Terminating");
    let other = || ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|kind| is(kind));
    ends.or(terminating).or_else(other).unwrap_or("Running").into()
}

pub(super) fn completions(row: Row<'_>) -> Value {
    let (succeeded, parallelism) = (row.number("/status/succeeded"), row.number("/spec/parallelism"));
    match row.at("/spec/completions").as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}").into(),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}").into(),
        None => format!("{succeeded}/1").into(),
    }
}

pub(super) fn job_duration(row: Row<'_>) -> Value {
    let Some(start) = time::read(row.at("/status/startTime")) else { return "".into() };
    let end = time::read(row.at("/status/completionTime")).unwrap_or(row.now);
    human(end.as_second() - start.as_second()).into()
}

pub(super) fn node_status(row: Row<'_>) -> Value {
    let conditions = row.list("/status/conditions");
    let mut words = match conditions.iter().rfind(|condition| condition["type"] == "Ready") {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if row.truth("/spec/unschedulable") {
        words.push_str(",SchedulingDisabled");
    }
    words.into()
}

pub(super) fn node_roles(row: Row<'_>) -> Value {
    let labels = row.at("/metadata/labels").as_object().into_iter().flatten();
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()).filter(|role| !role.is_empty()),
        None => (key == "kubernetes.io/role").then(|| text(value)).filter(|role| !role.is_empty()),
    };
    let mut roles: Vec<String> = labels.filter_map(role).collect();
    roles.sort();
    roles.dedup();
    if roles.is_empty() { "<none>".into() } else { roles.join(",").into() }
}

pub(super) fn node_address(row: Row<'_>, kind: &str) -> Value {
    let found = row.list("/status/addresses").iter().find(|address| address["type"] == kind);
    found.map_or("<none>".into(), |address| address["address"].clone())
}

pub(super) fn kernel(row: Row<'_>) -> Value {
    let version = text(&row.or("/status/nodeInfo/kernelVersion", "<unknown>"));
    match row.str("/status/nodeInfo/architecture") {
        "" => version.into(),
        architecture => format!("{version} ({architecture})").into(),
    }
}

/// The addresses of a load balancer, sorted.
pub(super) fn load_balancer(row: Row<'_>) -> String {
    let ingress = row.list("/status/loadBalancer/ingress").iter();
    let address =
        |entry: &Value| [&entry["ip"], &entry["hostname"]].map(text).into_iter().find(|text| !text.is_empty());
    let mut addresses: Vec<String> = ingress.filter_map(address).collect();
    addresses.sort();
    addresses.dedup();
    addresses.join(",")
}

pub(super) fn external_ip(row: Row<'_>) -> Value {
    let own = join(row.list("/spec/externalIPs"));
    let all = match row.str("/spec/type") {
        "ClusterIP" | "NodePort" if own.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => own,
        "LoadBalancer" => match (load_balancer(row), own) {
            (balancer, own) if balancer.is_empty() && own.is_empty() => "<pending>".to_owned(),
            (balancer, own) => {
                [balancer, own].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(",")
            }
        },
        "ExternalName" => row.str("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    };
    all.into()
}

pub(super) fn service_ports(row: Row<'_>) -> Value {
    let port = |port: &Value| {
        let node =
            port["nodePort"].as_i64().filter(|node| *node > 0).map_or_else(String::new, |node| format!(":{node}"));
        format!("{}{node}/{}", text(&port["port"]), text(&port["protocol"]))
    };
    let ports: Vec<String> = row.list("/spec/ports").iter().map(port).collect();
    if ports.is_empty() { "<none>".into() } else { ports.join(",").into() }
}

pub(super) fn subsets(row: Row<'_>) -> Value {
    let mut all = Vec::new();
    for subset in row.list("/subsets") {
        let list = |key: &str| subset[key].as_array().map_or(&[][..], Vec::as_slice);
        let addresses = || list("addresses").iter().map(|address| text(&address["ip"]));
        if list("ports").is_empty() {
            all.extend(addresses());
        }
        for port in list("ports") {
            let host = |ip: String| if ip.contains(':') { format!("[{ip}]") } else { ip };
            all.extend(addresses().map(|ip| format!("{}:{}", host(ip), text(&port["port"]))));
        }
    }
    first(&all, ENTRIES, ",", if row.length("/subsets") == 0 { "<none>" } else { "" }).into()
}

pub(super) fn slice_ports(row: Row<'_>) -> Value {
    let port = |port: &Value| {
        [&port["port"], &port["name"]].into_iter().find(|value| !value.is_null()).map_or("*".to_owned(), text)
    };
    first(&row.list("/ports").iter().map(port).collect::<Vec<_>>(), ENTRIES, ",", "<unset>").into()
}

pub(super) fn slice_endpoints(row: Row<'_>) -> Value {
    let endpoints = row.list("/endpoints").iter();
    let addresses = endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten().map(text));
    first(&addresses.collect::<Vec<_>>(), ENTRIES, ",", "<unset>").into()
}

pub(super) fn hosts(row: Row<'_>) -> Value {
    let rules = row.list("/spec/rules");
    let hosts: Vec<String> = rules.iter().map(|rule| text(&rule["host"])).filter(|host| !host.is_empty()).collect();
    match first(&hosts, ENTRIES, ",", "*") {
        // What is more is counted by rules, with a host or without.
        shown if hosts.len() > ENTRIES => {
            let shown = shown.split(" + ").next().unwrap_or_default();
            format!("{shown} + {} more...", rules.len() - ENTRIES).into()
        }
        shown => shown.into(),
    }
}

pub(super) fn class_parameters(row: Row<'_>) -> Value {
    let parameters = row.at("/spec/parameters");
    if parameters.is_null() {
        return "<none>".into();
    }
    let group = parameters["apiGroup"].as_str().map_or_else(String::new, |group| format!(".{group}"));
    format!("{}{group}/{}", text(&parameters["kind"]), text(&parameters["name"])).into()
}

pub(super) fn parent_reference(row: Row<'_>) -> Value {
    let of = |key: &str| text(&row.at("/spec/parentRef")[key]);
    if row.at("/spec/parentRef").is_null() {
        return "<none>".into();
    }
    let (resource, group, namespace) = (of("resource"), of("group"), of("namespace"));
    let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") }.to_lowercase();
    let namespace = if namespace.is_empty() { namespace } else { format!("/{namespace}") };
    format!("{resource}{namespace}/{}", of("name")).into()
}

pub(super) fn role(row: Row<'_>) -> Value {
    format!("{}/{}", row.str("/roleRef/kind"), row.str("/roleRef/name")).into()
}

pub(super) fn subjects(row: Row<'_>, kind: &str) -> Value {
    let subjects = row.list("/subjects").iter().filter(|subject| subject["kind"] == kind);
    let name = |subject: &Value| match kind {
        "ServiceAccount" => format!("{}/{}", text(&subject["namespace"]), text(&subject["name"])),
        _ => text(&subject["name"]),
    };
    subjects.map(name).collect::<Vec<_>>().join(", ").into()
}

pub(super) fn param_kind(row: Row<'_>) -> Value {
    match row.at("/spec/paramKind") {
        Value::Null => "<unset>".into(),
        kind => format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"])).into(),
    }
}

pub(super) fn param_ref(row: Row<'_>) -> Value {
    match (row.str("/spec/paramRef/name"), row.str("/spec/paramRef/namespace")) {
        ("", _) if row.at("/spec/paramRef/selector").is_object() => {
            struct_text(row.at("/spec/paramRef/selector")).into()
        }
        ("", _) => "<unset>".into(),
        (name, "") => format!("*/{name}").into(),
        (name, namespace) => format!("{namespace}/{name}").into(),
    }
}

/// A selector as Go prints its struct.
fn struct_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", text(value))).collect();
    let expression = |of: &Value| {
        let values = strings(of["values"].as_array().map_or(&[], Vec::as_slice)).join(" ");
        let (key, operator) = (text(&of["key"]), text(&of["operator"]));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let expressions: String = selector["matchExpressions"].as_array().into_iter().flatten().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub(super) fn available(row: Row<'_>) -> Value {
    let condition = row.list("/status/conditions").iter().find(|condition| condition["type"] == "Available");
    let Some(condition) = condition else { return "Unknown".into() };
    match (text(&condition["status"]), text(&condition["reason"])) {
        (status, reason) if status == "True" || reason.is_empty() => status.into(),
        (status, reason) => format!("{status} ({reason})").into(),
    }
}

pub(super) fn access_modes(row: Row<'_>, pointer: &str) -> Value {
    let modes = row.list(pointer);
    let words =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let there = words.into_iter().filter(|(mode, _)| modes.iter().any(|known| known == mode));
    there.map(|(_, word)| word).collect::<Vec<_>>().join(",").into()
}

pub(super) fn volume_phase(row: Row<'_>) -> Value {
    if row.terminates() { "Terminating".into() } else { row.text("/status/phase") }
}

pub(super) fn claim(row: Row<'_>) -> Value {
    match row.at("/spec/claimRef") {
        Value::Null => "".into(),
        claim => format!("{}/{}", text(&claim["namespace"]), text(&claim["name"])).into(),
    }
}

pub(super) fn storage_class(row: Row<'_>) -> Value {
    match &row.at("/metadata/annotations")["volume.beta.kubernetes.io/storage-class"] {
        Value::String(class) => class.clone().into(),
        _ => row.text("/spec/storageClassName"),
    }
}

/// What a quota counts: its limits, or all the rest.
pub(super) fn quota(row: Row<'_>, limits: bool) -> Value {
    let hard = row.at("/status/hard").as_object().into_iter().flatten();
    let mut parts: Vec<(&String, String)> = hard
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = text(&row.at("/status/used")[name.as_str()]);
            (name, format!("{name}: {}/{}", if used.is_empty() { "0" } else { &used }, text(hard)))
        })
        .collect();
    parts.sort();
    parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(", ").into()
}

pub(super) fn first_seen(row: Row<'_>) -> String {
    let first = if row.at("/firstTimestamp").is_null() { "/eventTime" } else { "/firstTimestamp" };
    row.since(first)
}

pub(super) fn last_seen(row: Row<'_>) -> Value {
    match (row.at("/series"), row.at("/lastTimestamp")) {
        (Value::Object(_), _) => row.since("/series/lastObservedTime"),
        (_, Value::Null) => first_seen(row),
        _ => row.since("/lastTimestamp"),
    }
    .into()
}

pub(super) fn event_count(row: Row<'_>) -> Value {
    match row.at("/series") {
        Value::Object(_) => row.count("/series/count"),
        _ => row.number("/count").max(1).into(),
    }
}

pub(super) fn involved(row: Row<'_>) -> Value {
    let kind = row.str("/involvedObject/kind").to_lowercase();
    match row.str("/involvedObject/name") {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

pub(super) fn event_source(row: Row<'_>) -> Value {
    let first = |of: [&str; 2]| {
        of.into_iter().map(|pointer| row.str(pointer)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let component = first(["/source/component", "/reportingComponent"]);
    match first(["/source/host", "/reportingInstance"]) {
        "" => component.into(),
        instance => format!("{component}, {instance}").into(),
    }
}

/// What an autoscaler's metrics are, and should be.
pub(super) fn metrics(row: Row<'_>) -> Value {
    let statuses = row.list("/status/currentMetrics");
    let metric = |(index, spec): (usize, &Value)| {
        let source = match spec["type"].as_str() {
            Some("External") => "external",
            Some("Pods") => "pods",
            Some("Object") => "object",
            Some("Resource") => "resource",
            Some("ContainerResource") => "containerResource",
            _ => return "<unknown type>".to_owned(),
        };
        let target = &spec[source]["target"];
        let current = &statuses.get(index).unwrap_or(&Value::Null)[source]["current"];
        let known = |value: &Value, unit: &str| {
            if value.is_null() { "<unknown>".to_owned() } else { format!("{}{unit}", text(value)) }
        };
        let average = (&target["averageValue"], known(&current["averageValue"], ""));
        match source {
            "resource" | "containerResource" => {
                let name = text(&spec[source]["name"]);
                let wanted = &target["averageUtilization"];
                match average {
                    (Value::Null, _) if wanted.is_null() => {
                        format!("{name}: {}/<auto>", known(&current["averageUtilization"], "%"))
                    }
                    (Value::Null, _) => {
                        format!("{name}: {}/{}%", known(&current["averageUtilization"], "%"), text(wanted))
                    }
                    (wanted, current) => format!("{name}: {current}/{}", text(wanted)),
                }
            }
            _ => match average {
                (Value::Null, _) => format!("{}/{}", known(&current["value"], ""), text(&target["value"])),
                (wanted, current) if source == "pods" => format!("{current}/{}", text(wanted)),
                (wanted, current) => format!("{current}/{} (avg)", text(wanted)),
            },
        }
    };
    let all: Vec<String> = row.list("/spec/metrics").iter().enumerate().map(metric).collect();
    first(&all, METRICS, ", ", "<none>").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::columns;

    #[track_caller]
    fn check(group: &str, kind: &str, object: Value, wanted: &[&str]) {
        let row = Row { object: &object, now: "2026-01-01T01:00:00Z".parse().unwrap() };
        let cells: Vec<String> = columns::of(group, kind).cells(&row).iter().map(text).collect();
        assert_eq!(cells, wanted);
    }

    #[test]
    fn cells_are_those_of_kubectl_get() {
        let metadata = json!({"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let template = json!({"spec": {"containers": [{"name": "x", "image": "i"}, {"name": "y", "image": "j"}]}});
        let set = json!({"metadata": metadata, "spec": {"replicas": 3, "template": template, "selector": {"matchLabels": {"k": "v"}}},
            "status": {"readyReplicas": 2, "updatedReplicas": 1}});
        check("apps", "Deployment", set.clone(), &["a", "2/3", "1", "0", "60m", "x,y", "i,j", "k=v"]);
        check("apps", "ReplicaSet", set, &["a", "3", "0", "2", "60m", "x,y", "i,j", "k=v"]);
        let job = json!({"metadata": metadata, "spec": {"completions": 2},
            "status": {"succeeded": 2, "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:07Z",
                "conditions": [{"type": "Complete", "status": "True"}]}});
        check("batch", "Job", job, &["a", "Complete", "2/2", "7s", "60m", "", "", "<none>"]);
        let service = json!({"metadata": metadata, "spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"], "selector": {"k": "v"},
            "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}});
        check("", "Service", service, &["a", "NodePort", "10.0.0.1", "<none>", "80:30000/TCP,53/UDP", "60m", "k=v"]);
        let node = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}],
                "nodeInfo": {"kernelVersion": "6", "architecture": "arm64"}}});
        let wanted = [
            "n",
            "NotReady,SchedulingDisabled",
            "worker",
            "<unknown>",
            "",
            "<none>",
            "<none>",
            "<unknown>",
            "6 (arm64)",
            "<unknown>",
        ];
        check("", "Node", node, &wanted);
        let event = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "Made", "message": " done ", "eventTime": "2026-01-01T00:59:00.000000Z",
            "involvedObject": {"kind": "Pod", "name": "p"}, "reportingComponent": "c"});
        check("", "Event", event, &["60s", "Normal", "Made", "pod/p", "", "c", "done", "60s", "1", "e"]);
        let slice = json!({"metadata": metadata, "addressType": "IPv4", "ports": [{"port": 80}],
            "endpoints": [{"addresses": ["1", "2"]}, {"addresses": ["3"]}, {"addresses": ["4"]}]});
        check("discovery.k8s.io", "EndpointSlice", slice, &["a", "IPv4", "80", "1,2,3 + 1 more...", "60m"]);
    }

    #[test]
    fn an_autoscaler_shows_two_metrics() {
        let cpu = |wanted: &str| json!({"type": "Resource", "resource": {"name": wanted, "target": {"averageUtilization": 80}}});
        let object = json!({"metadata": {"name": "a"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 4, "metrics": [cpu("cpu"), cpu("memory"), cpu("x")]},
            "status": {"currentMetrics": [{"resource": {"current": {"averageUtilization": 7}}}]}});
        let shown = "cpu: 7%/80%, memory: <unknown>/80% + 1 more...";
        check(
            "autoscaling",
            "HorizontalPodAutoscaler",
            object,
            &["a", "Deployment/d", shown, "<unset>", "4", "0", "<unknown>"],
        );
    }
}
