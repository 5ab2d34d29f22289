//! pods/log: the output of a container, which a modelled one has none of. Input: a request for it. Output: empty text, or why
//! there can be no log. It must not know kubelets.

use serde_json::Value;

use crate::Cluster;
use crate::attributes::Attributes;
use crate::halt::{Halt, Status};
use crate::request::{Request, Response};

pub(super) fn get(cluster: &Cluster, request: &Request, attributes: &Attributes) -> Result<Response, Halt> {
    let pod = cluster.store.get(&attributes.resource.storage, &attributes.namespace, &attributes.name);
    let pod = pod.ok_or_else(|| attributes.not_found())?;
    let names = |key: &str| {
        let all = pod.value["spec"][key].as_array().map_or(&[][..], Vec::as_slice);
        all.iter().filter_map(|container| container["name"].as_str()).collect::<Vec<_>>()
    };
    let (containers, init) = (names("containers"), names("initContainers"));
    let name = &attributes.name;
    let wanted = request.parameter("container").filter(|wanted| !wanted.is_empty());
    let container = match (wanted, containers.as_slice()) {
        (Some(wanted), _) if containers.contains(&wanted) || init.contains(&wanted) => wanted,
        (Some(wanted), _) if names("ephemeralContainers").contains(&wanted) => wanted,
        (Some(wanted), _) => {
            return Err(Status::bad_request(format!("container {wanted} is not valid for pod {name}")).into());
        }
        (None, [one]) => one,
        (None, all) => {
            let mut message =
                format!("a container name must be specified for pod {name}, choose one of: [{}]", all.join(" "));
            if !init.is_empty() {
                message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            return Err(Status::bad_request(message).into());
        }
    };
    let statuses = pod.value["status"]["containerStatuses"].as_array().map_or(&[][..], Vec::as_slice);
    let status = statuses.iter().find(|status| status["name"] == container).unwrap_or(&Value::Null);
    if let Some(reason) = status["state"]["waiting"]["reason"].as_str() {
        let message = format!("container {container:?} in pod {name:?} is waiting to start: {reason}");
        return Err(Status::bad_request(message).into());
    }
    Ok(Response::text(""))
}
