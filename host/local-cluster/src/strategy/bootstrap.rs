//! What is there from the start: namespaces, the Service of the API server, nodes. Input: the cluster's options. Output:
//! objects to be created. It must not know the roles and classes of the other areas.

use serde_json::{Value, json};

use super::service::RANGE;
use crate::options::Options;
use crate::published::KUBERNETES;

/// Where the Service of the API server leads.
const SERVER: &str = "172.18.0.2";
/// The address of that Service: the first one.
const SERVICE: &str = "10.96.0.1";

/// The objects, each after those that it needs.
pub(crate) fn bootstrap(options: &Options) -> Vec<Value> {
    let names = ["default", "kube-node-lease", "kube-public", "kube-system"];
    let namespaces = names.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let mut objects: Vec<Value> = namespaces.into();
    objects.push(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [RANGE]},
    }));
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let metadata = json!({"name": "kubernetes", "namespace": "default", "labels": labels});
    objects.push(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {
            "clusterIP": SERVICE, "clusterIPs": [SERVICE], "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
    }));
    let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    objects.push(json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "subsets": [{
            "addresses": [{"ip": SERVER}],
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
        }],
    }));
    objects.push(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [SERVER], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
    }));
    objects.extend((0..options.nodes).map(node));
    objects
}

/// A node as a kubelet registers it, with much room; conditions are the kubelets' matter.
fn node(index: u32) -> Value {
    let name = format!("node-{index}");
    let labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
    });
    let room = json!({
        "cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti", "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
    });
    let [high, low] = [index / 250, index % 250 + 3];
    let address = format!("172.18.{high}.{low}");
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": format!("local://{name}")},
        "status": {
            "capacity": room.clone(), "allocatable": room,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://2.2.0",
                "kernelVersion": "6.12.0", "kubeProxyVersion": "", "kubeletVersion": KUBERNETES, "machineID": "",
                "operatingSystem": "linux", "osImage": "local", "systemUUID": "",
            },
        },
    })
}
