//! The addresses and ports of Services. Input: a Service that is created or updated. Output: the same with what the cluster
//! gives it. It must not know who reads them. An address that is taken is an IPAddress object, as in the API server: to give
//! one is to create it, and a request that is refused leaves none.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::field::{Causes, Path, is_empty, items, text};
use super::fill::{at_mut, set};
use crate::halt::{Halt, Status};
use crate::resource::Storage;
use crate::{Cluster, time, uid};

/// The range of addresses: `10.96.0.0/12`. Those that are chosen lie above the first 256, which are for clients that name one.
pub(super) const RANGE: &str = "10.96.0.0/12";
const FIRST: u32 = 0x0a60_0000;
const SIZE: u32 = 1 << 20;
const NAMED: u32 = 256;
/// The ports that Services get on nodes.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

fn addresses() -> Storage {
    Storage::new("networking.k8s.io", "ipaddresses")
}

fn needs_address(service: &Value) -> bool {
    service["spec"]["type"] != "ExternalName"
}

fn needs_node_ports(service: &Value) -> bool {
    matches!(text(&service["spec"]["type"]), "NodePort" | "LoadBalancer")
}

fn needs_health_port(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

/// A small number that follows from the cluster's seed, for choosing without a clash.
fn draw(cluster: &mut Cluster) -> u32 {
    let suffix = uid::suffix(cluster, 8);
    suffix.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(27).wrapping_add(byte.into()))
}

/// Gives a new Service its address and ports.
pub(super) fn create(cluster: &mut Cluster, service: &mut Value, now: jiff::Timestamp) -> Result<(), Halt> {
    if needs_address(service) {
        let given = service["spec"]["clusterIP"].clone();
        if !is_empty(&given) && is_empty(&service["spec"]["clusterIPs"]) {
            set(service, "spec.clusterIPs", Some(json!([given])));
        }
        families(service);
        address(cluster, service, now)?;
    }
    node_ports(cluster, service)
}

/// Keeps what an updated Service has, gives what its new type needs, and takes back what it needs no more.
pub(super) fn update(
    cluster: &mut Cluster,
    service: &mut Value,
    old: &Value,
    now: jiff::Timestamp,
) -> Result<(), Halt> {
    keep(service, old);
    drop_unneeded(service, old);
    if needs_address(service) {
        families(service);
        if !needs_address(old) || is_empty(&old["spec"]["clusterIPs"]) {
            address(cluster, service, now)?;
        }
    } else if needs_address(old) {
        release(cluster, old);
    }
    node_ports(cluster, service)
}

/// Takes a Service's address back.
pub(super) fn release(cluster: &mut Cluster, service: &Value) {
    for address in items(&service["spec"]["clusterIPs"]) {
        cluster.store.remove(&addresses(), "", text(address));
    }
}

/// What a client leaves out of an update stays as it was.
fn keep(service: &mut Value, old: &Value) {
    let (spec, before) = (&service["spec"], &old["spec"]);
    let mut kept: Vec<(&str, Value)> = Vec::new();
    if needs_address(service) && needs_address(old) {
        if is_empty(&spec["clusterIP"]) && is_empty(&spec["clusterIPs"]) {
            kept.push(("clusterIP", before["clusterIP"].clone()));
            kept.push(("clusterIPs", before["clusterIPs"].clone()));
        } else if is_empty(&spec["clusterIP"]) && spec["clusterIPs"] == before["clusterIPs"] {
            kept.push(("clusterIP", before["clusterIP"].clone()));
        } else if spec["clusterIP"] != before["clusterIP"] && spec["clusterIPs"] == before["clusterIPs"]
            || is_empty(&spec["clusterIPs"])
        {
            kept.push(("clusterIPs", json!([spec["clusterIP"]])));
        }
        for name in ["ipFamilies", "ipFamilyPolicy"] {
            if is_empty(&spec[name]) {
                kept.push((name, before[name].clone()));
            }
        }
    }
    if needs_health_port(service) && needs_health_port(old) && is_empty(&spec["healthCheckNodePort"]) {
        kept.push(("healthCheckNodePort", before["healthCheckNodePort"].clone()));
    }
    for (name, value) in kept {
        set(service, &format!("spec.{name}"), Some(value).filter(|value| !value.is_null()));
    }
    if needs_node_ports(service) && needs_node_ports(old) {
        keep_node_ports(service, old);
    }
}

fn keep_node_ports(service: &mut Value, old: &Value) {
    let used: Vec<i64> = ports(service).filter_map(|port| port["nodePort"].as_i64()).collect();
    let list = at_mut(service, "spec.ports").and_then(Value::as_array_mut);
    for port in list.into_iter().flatten().filter(|port| port["nodePort"].as_i64().unwrap_or(0) == 0) {
        let was = ports(old).find(|was| text(&was["name"]) == text(&port["name"]));
        let number = was.and_then(|was| was["nodePort"].as_i64()).filter(|number| !used.contains(number));
        if let Some(number) = number {
            set(port, "nodePort", Some(number.into()));
        }
    }
}

fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    items(&service["spec"]["ports"]).iter()
}

/// Fields that the old type had and the new one has not go, unless the client set them.
fn drop_unneeded(service: &mut Value, old: &Value) {
    let same = |service: &Value, name: &str| service["spec"][name] == old["spec"][name];
    let external = |service: &Value| needs_node_ports(service) || !is_empty(&service["spec"]["externalIPs"]);
    let mut gone = Vec::new();
    if needs_address(old) && !needs_address(service) {
        gone.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    if needs_health_port(old) && !needs_health_port(service) {
        gone.push("healthCheckNodePort");
    }
    if old["spec"]["type"] == "LoadBalancer" && service["spec"]["type"] != "LoadBalancer" {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if external(old) && !external(service) {
        gone.push("externalTrafficPolicy");
    }
    for name in gone.into_iter().filter(|name| same(service, name)).collect::<Vec<_>>() {
        set(service, &format!("spec.{name}"), None);
    }
    if needs_node_ports(old) && !needs_node_ports(service) {
        let before: Vec<i64> = ports(old).filter_map(|port| port["nodePort"].as_i64()).collect();
        let all_known = ports(service).filter_map(|port| port["nodePort"].as_i64()).all(|port| before.contains(&port));
        let list = at_mut(service, "spec.ports").and_then(Value::as_array_mut);
        for port in list.into_iter().flatten().filter(|_| all_known) {
            set(port, "nodePort", None);
        }
    }
    if service["spec"]["type"] != "LoadBalancer" {
        set(service, "status.loadBalancer", Some(json!({})));
    }
}

fn families(service: &mut Value) {
    let spec = &service["spec"];
    let bare = spec["clusterIP"] == "None" && is_empty(&spec["selector"]);
    if is_empty(&spec["ipFamilyPolicy"]) {
        let policy = if bare { "RequireDualStack" } else { "SingleStack" };
        set(service, "spec.ipFamilyPolicy", Some(policy.into()));
    }
    if is_empty(&service["spec"]["ipFamilies"]) {
        let both = bare && service["spec"]["ipFamilyPolicy"] != "SingleStack";
        let families = if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
        set(service, "spec.ipFamilies", Some(families));
    }
}

fn refuse(service: &Value, field: &str, value: &Value, detail: &str) -> Halt {
    let mut causes = Causes::default();
    causes.invalid(&Path::Field(&Path::Root, field), value, detail);
    Status::invalid("", "Service", text(&service["metadata"]["name"]), &causes.0).into()
}

/// Takes the address that the Service names, or a free one.
fn address(cluster: &mut Cluster, service: &mut Value, now: jiff::Timestamp) -> Result<(), Halt> {
    let given = text(&service["spec"]["clusterIP"]).to_owned();
    let taken = |cluster: &Cluster, address: &str| cluster.store.get(&addresses(), "", address).is_some();
    let address = if given == "None" {
        return Ok(());
    } else if given.is_empty() {
        let start = draw(cluster) % (SIZE - NAMED - 1);
        let candidates = (0..SIZE - NAMED - 1).map(|step| NAMED + (start + step) % (SIZE - NAMED - 1));
        let mut candidates = candidates.map(|offset| Ipv4Addr::from(FIRST + offset).to_string());
        let free = candidates.find(|address| !taken(cluster, address));
        free.ok_or_else(|| Status::internal("failed to allocate a serviceIP for Service: range is full"))?
    } else {
        // A text that is no address is for validation to refuse.
        let Ok(wanted) = given.parse::<Ipv4Addr>() else { return Ok(()) };
        let why = if !(FIRST + 1..FIRST + SIZE - 1).contains(&u32::from(wanted)) {
            "the provided network does not match the current range"
        } else if taken(cluster, &given) {
            "provided IP is already allocated"
        } else {
            ""
        };
        if !why.is_empty() {
            let detail = format!("failed to allocate IP {given}: {why}");
            return Err(refuse(service, "spec.clusterIPs", &service["spec"]["clusterIPs"], &detail));
        }
        given
    };
    let metadata = &service["metadata"];
    let parent = json!({
        "group": "", "resource": "services", "namespace": metadata["namespace"], "name": metadata["name"],
    });
    let labels = json!({"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"});
    let metadata = json!({
        "name": address, "uid": uid::uid(cluster), "creationTimestamp": time::seconds(now), "labels": labels,
    });
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": metadata, "spec": {"parentRef": parent},
    });
    cluster.store.put(&addresses(), object);
    set(service, "spec.clusterIP", Some(address.as_str().into()));
    set(service, "spec.clusterIPs", Some(json!([address])));
    Ok(())
}

/// Gives ports on the nodes, where the type needs them and the client names none.
fn node_ports(cluster: &mut Cluster, service: &mut Value) -> Result<(), Halt> {
    let wants = service["spec"]["type"] == "NodePort"
        || service["spec"]["type"] == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] != false;
    if !needs_node_ports(service) {
        return Ok(());
    }
    let mut used = used_ports(cluster, service);
    for index in 0..ports(service).count() {
        let number = ports(service).nth(index).and_then(|port| port["nodePort"].as_i64()).unwrap_or(0);
        let path = format!("spec.ports[{index}].nodePort");
        if number == 0 && !wants {
            continue;
        }
        let number = if number == 0 {
            free_port(cluster, &used)?
        } else if !NODE_PORTS.contains(&number) {
            let detail = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            return Err(refuse(service, &path, &number.into(), detail));
        } else if used.contains(&number) {
            return Err(refuse(service, &path, &number.into(), "provided port is already allocated"));
        } else {
            number
        };
        used.push(number);
        if let Some(port) = at_mut(service, "spec.ports").and_then(|list| list.get_mut(index)) {
            set(port, "nodePort", Some(number.into()));
        }
    }
    if needs_health_port(service) && is_empty(&service["spec"]["healthCheckNodePort"]) {
        let number = free_port(cluster, &used)?;
        set(service, "spec.healthCheckNodePort", Some(number.into()));
    }
    Ok(())
}

/// The ports of all other Services.
fn used_ports(cluster: &Cluster, service: &Value) -> Vec<i64> {
    let own = &service["metadata"]["uid"];
    let others = cluster.store.list(&Storage::new("", "services"), None, None).map(|object| &object.value);
    let others = others.filter(|other| other["metadata"]["uid"] != *own);
    let numbers = others
        .flat_map(|other| ports(other).map(|port| &port["nodePort"]).chain([&other["spec"]["healthCheckNodePort"]]));
    numbers.filter_map(Value::as_i64).filter(|number| *number != 0).collect()
}

fn free_port(cluster: &mut Cluster, used: &[i64]) -> Result<i64, Halt> {
    let count = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    let start = i64::from(draw(cluster)) % count;
    let mut all = (0..count).map(|step| NODE_PORTS.start() + (start + step) % count);
    let free = all.find(|number| !used.contains(number));
    free.ok_or_else(|| Status::internal("failed to allocate a nodePort: range is full").into())
}
