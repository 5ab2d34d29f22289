//! Expose puts a Service, and an Ingress, before Deployments that are annotated. A Deployment is the input; its Service and
//! Ingress are the output. Without the annotation there are none, so the host deletes those that there were.

use std::collections::BTreeMap;

use mortise_sdk::prelude::*;

#[cfg(test)]
mod tests;

#[derive(Projection)]
#[projection("apps/v1/Deployment")]
struct Deployment<'a> {
    #[field("metadata.name")]
    name: &'a str,
    /// The port of the containers.
    #[field("metadata.annotations[\"expose.example.com/port\"]")]
    port: Option<&'a str>,
    /// The host name of the Ingress.
    #[field("metadata.annotations[\"expose.example.com/host\"]")]
    host: Option<&'a str>,
    #[field("spec.selector.matchLabels")]
    labels: Option<BTreeMap<String, String>>,
}

#[reconciler(owns("v1/Service", "networking.k8s.io/v1/Ingress"))]
fn reconcile(deployment: &Deployment, _cx: &Context) -> Result<Outcome, Failure> {
    let Some(port) = deployment.port else { return Ok(Outcome::children([])) };
    let Some(port) = port.parse::<u16>().ok().filter(|port| *port > 0) else {
        let message = format!("the annotation expose.example.com/port is {port:?}; it is a number from 1 to 65535");
        return Ok(Outcome::new().event(Event::warning("InvalidPort", message)));
    };
    let Some(labels) = deployment.labels.as_ref().filter(|labels| !labels.is_empty()) else {
        let message = "spec.selector has no matchLabels, which a Service needs";
        return Ok(Outcome::new().event(Event::warning("NoLabels", message)));
    };
    let name = deployment.name;
    let service = json!({
        "metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": port}]},
    });
    let service = Child::new("service", Json::of_kind("v1", "Service", &service));
    let ingress = deployment.host.map(|host| {
        let backend = json!({"service": {"name": name, "port": {"name": "http"}}});
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
        let rules = json!([{"host": host, "http": {"paths": paths}}]);
        let ingress = json!({"metadata": {"name": name}, "spec": {"rules": rules}});
        Child::new("ingress", Json::of_kind("networking.k8s.io/v1", "Ingress", &ingress))
    });
    Ok(Outcome::children([service].into_iter().chain(ingress)))
}
