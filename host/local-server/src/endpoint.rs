//! Where a Service is: the address of one of its endpoints, since nothing serves its own. Input: a snapshot of the cluster, and
//! a name and a port. Output: an address. It must not know webhooks.

use mortise_local_cluster::{Cluster, Credentials, Method, Reply, Request, User};
use serde_json::Value;

use crate::clock;

/// An endpoint of a Service, as `HOST:PORT`; else why there is none, in kube-apiserver's words.
pub(crate) fn of_service(cluster: &Cluster, namespace: &str, name: &str, port: u64) -> Result<String, String> {
    let missing = || format!("service {name:?} not found");
    let service =
        read(cluster, &format!("/api/v1/namespaces/{namespace}/services/{name}"), None).ok_or_else(missing)?;
    let ports = list(&service["spec"]["ports"]);
    let found = ports.iter().find(|known| known["port"] == port);
    let found = found.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    if let Some(host) = service["spec"]["externalName"].as_str() {
        return Ok(format!("{host}:{port}"));
    }
    let of_service = format!("kubernetes.io/service-name={name}");
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let slices = read(cluster, &slices, Some(of_service)).unwrap_or_default();
    let of_slices = list(&slices["items"]).iter().find_map(|slice| in_slice(slice, &found["name"]));
    let by_hand = || {
        let endpoints = read(cluster, &format!("/api/v1/namespaces/{namespace}/endpoints/{name}"), None)?;
        list(&endpoints["subsets"]).iter().find_map(|subset| in_subset(subset, &found["name"]))
    };
    of_slices.or_else(by_hand).ok_or_else(|| {
        // As a connection to the Service's own address ends.
        let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
        format!("dial tcp {address}:{port}: connect: connection refused")
    })
}

fn in_slice(slice: &Value, port_name: &Value) -> Option<String> {
    let ready = list(&slice["endpoints"]).iter().find(|endpoint| endpoint["conditions"]["ready"] != false)?;
    join(list(&ready["addresses"]).first()?, port(list(&slice["ports"]), port_name)?)
}

fn in_subset(subset: &Value, port_name: &Value) -> Option<String> {
    join(&list(&subset["addresses"]).first()?["ip"], port(list(&subset["ports"]), port_name)?)
}

/// The port of this name; an empty name and none are the same.
fn port(ports: &[Value], name: &Value) -> Option<u64> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ports.iter().find(|port| text(&port["name"]) == text(name))?["port"].as_u64()
}

fn join(address: &Value, port: u64) -> Option<String> {
    let address = address.as_str()?;
    Some(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn read(cluster: &Cluster, path: &str, labels: Option<String>) -> Option<Value> {
    let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
    let request = Request {
        method: Method::Get,
        path: path.to_owned(),
        query: labels.into_iter().map(|labels| ("labelSelector".to_owned(), labels)).collect(),
        headers: Vec::new(),
        credentials: Credentials::User(User { name: "system:apiserver".to_owned(), groups, ..User::default() }),
        body: Vec::new(),
    };
    match cluster.clone().request(&request, &[], clock::now()) {
        Reply::Done(response) if response.status == 200 => response.body.document(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mortise_local_cluster::Options;
    use serde_json::json;

    use super::*;

    fn create(cluster: &mut Cluster, path: &str, body: &Value) {
        let groups = vec!["system:masters".to_owned()];
        let request = Request {
            method: Method::Post,
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            credentials: Credentials::User(User { name: "a".to_owned(), groups, ..User::default() }),
            body: body.to_string().into_bytes(),
        };
        let Reply::Done(response) = cluster.request(&request, &[], clock::now()) else { panic!("a webhook") };
        assert_eq!(response.status, 201, "{:?}", response.body);
    }

    #[test]
    fn a_service_is_where_its_ready_endpoints_are() {
        let options = Options { nodes: 0, controllers: Vec::new(), ..Options::default() };
        let mut cluster = Cluster::new(options, clock::now());
        let find = |cluster: &Cluster, port| of_service(cluster, "default", "hook", port);
        assert_eq!(find(&cluster, 443).unwrap_err(), "service \"hook\" not found");
        let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443, "name": "https", "protocol": "TCP"}]}});
        create(&mut cluster, "/api/v1/namespaces/default/services", &service);
        assert_eq!(find(&cluster, 80).unwrap_err(), "no service port 80 found for service \"hook\"");
        assert!(find(&cluster, 443).unwrap_err().ends_with(":443: connect: connection refused"));
        let slice = json!({
            "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
            "ports": [{"name": "metrics", "port": 8080, "protocol": "TCP"}, {"name": "https", "port": 9443, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["127.0.0.2"], "conditions": {"ready": false}}, {"addresses": ["127.0.0.1"]}],
        });
        create(&mut cluster, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice);
        assert_eq!(find(&cluster, 443).unwrap(), "127.0.0.1:9443");
    }
}
