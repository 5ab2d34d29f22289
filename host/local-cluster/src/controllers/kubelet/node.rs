//! A node's status and lease. Input: the node and the time. Output: addresses, capacity and conditions, and heartbeats as
//! often as a kubelet sends them. It must not know Pods.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::Cluster;
use crate::condition;
use crate::context::Context;
use crate::controllers::controller::Again;
use crate::controllers::storages::LEASES;
use crate::controllers::write;
use crate::halt::Halt;
use crate::options::NODE_LEASE_SECONDS;
use crate::published::KUBERNETES;
use crate::store::Object;
use crate::time;

/// How often a status that does not change is reported, `nodeStatusReportFrequency`.
const REPORT: SignedDuration = SignedDuration::from_secs(300);

pub(super) fn reconcile(cluster: &mut Cluster, context: &Context<'_>, node: &Object) -> Result<Again, Halt> {
    let now = context.now;
    let status = status(node, now);
    write::update_status(cluster, context, node, status)?;
    let seconds = cluster.options.node_lease_seconds;
    // A quarter of its life.
    let renew = SignedDuration::from_millis(i64::from(seconds) * 250);
    let Some(lease) = cluster.store.get(&LEASES, "kube-node-lease", node.name()).cloned() else {
        let reference = json!({"apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": node.uid()});
        let lease = json!({
            "metadata": {"name": node.name(), "ownerReferences": [reference]},
            "spec": {
                "holderIdentity": node.name(), "leaseDurationSeconds": seconds, "renewTime": time::micro(now),
            },
        });
        let kind = ("coordination.k8s.io", "v1", "Lease");
        return match write::create(cluster, context, kind, "kube-node-lease", lease) {
            Err(Halt::Call(call)) => Err(Halt::Call(call)),
            Ok(_) | Err(Halt::Status(_)) => Ok(Again::At(now + renew)),
        };
    };
    let spec = &lease.value["spec"];
    let due = time::read(&spec["renewTime"]).map_or(now, |renewed| renewed + renew);
    if due > now && spec["leaseDurationSeconds"] == seconds {
        return Ok(Again::At(due));
    }
    beat(cluster, &lease, seconds, now);
    Ok(Again::At(now + renew))
}

/// The last heartbeat of a kubelet that is gone now. Where leases last longer than usual it was not due, and the node would
/// seem well for as long.
pub(super) fn leave(cluster: &mut Cluster, node: &Object, now: Timestamp) {
    let Some(lease) = cluster.store.get(&LEASES, "kube-node-lease", node.name()).cloned() else { return };
    if lease.value["spec"]["leaseDurationSeconds"].as_u64() > Some(NODE_LEASE_SECONDS.into()) {
        beat(cluster, &lease, NODE_LEASE_SECONDS, now);
    }
}

/// A heartbeat takes the short way: nothing but the time changes, and nothing may refuse it.
fn beat(cluster: &mut Cluster, lease: &Object, seconds: u32, now: Timestamp) {
    let mut value = lease.value.clone();
    write::set(&mut value["spec"], "renewTime", time::micro(now).into());
    write::set(&mut value["spec"], "leaseDurationSeconds", seconds.into());
    cluster.store.put(&LEASES, value);
}

fn status(node: &Object, now: Timestamp) -> Value {
    let mut status = node.value["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    let resources = json!({
        "cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti", "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
    });
    let capacity = Some(&status["capacity"]).filter(|known| known.is_object()).unwrap_or(&resources).clone();
    let addresses = json!([
        {"type": "InternalIP", "address": address(node.name())}, {"type": "Hostname", "address": node.name()},
    ]);
    for (field, value) in [
        ("allocatable", capacity.clone()),
        ("capacity", capacity),
        ("addresses", addresses),
        ("daemonEndpoints", json!({"kubeletEndpoint": {"Port": 10250}})),
        ("nodeInfo", info(node)),
    ] {
        if status[field].is_null() || status[field].as_array().is_some_and(Vec::is_empty) {
            write::set(&mut status, field, value);
        }
    }
    let info_is_empty = status["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default().is_empty();
    if info_is_empty {
        write::set(&mut status, "nodeInfo", info(node));
    }
    for (kind, value, reason, message) in [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ] {
        let mut wanted = condition::new(kind, value, reason, message);
        let known = condition::get(&status, kind).filter(|known| known["status"] == value);
        let last = known.map(|known| known["lastHeartbeatTime"].clone());
        let last = last.filter(|last| time::read(last).is_some_and(|last| now.duration_since(last) < REPORT));
        wanted["lastHeartbeatTime"] = last.unwrap_or_else(|| time::seconds(now).into());
        condition::set(&mut status, wanted, now);
    }
    status
}

fn info(node: &Object) -> Value {
    json!({
        "architecture": "amd64", "bootID": node.uid(), "containerRuntimeVersion": "containerd://2.2.0",
        "kernelVersion": "6.12.0", "kubeProxyVersion": "", "kubeletVersion": KUBERNETES, "machineID": node.uid(),
        "operatingSystem": "linux", "osImage": "Local cluster", "systemUUID": node.uid(),
    })
}

/// `node-3` is at 172.18.0.6, as if registered in order; a node without a number is somewhere in 172.19.0.0/16.
fn address(name: &str) -> String {
    let number = name.rsplit('-').next().and_then(|text| text.parse::<u16>().ok());
    let hash = name.bytes().fold(0_u16, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let place = number.unwrap_or(hash);
    format!("172.{}.{}.{}", if number.is_some() { 18 } else { 19 }, (place / 250) % 256, place % 250 + 3)
}
