//! pods/binding and bindings: a Pod gets its node. Input: a Binding. Output: a Status. It must not know schedulers.

use serde_json::{Value, json};

use super::posted::{admit, document, success};
use crate::Cluster;
use crate::attributes::Attributes;
use crate::condition;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::request::{Request, Response};
use crate::resource::Storage;

pub(super) fn create(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let mut binding = document(request, "v1", "Binding")?;
    let name = binding["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !attributes.name.is_empty() && name != attributes.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object").into());
    }
    check_target(&binding["target"])?;
    admit(cluster, context, attributes, &mut binding)?;
    bind(cluster, context, &attributes.namespace, &name, &binding)?;
    Ok(success())
}

fn check_target(target: &Value) -> Result<(), Halt> {
    let mut causes = Vec::new();
    let mut wrong = |reason, field: &str, message: String| {
        causes.push(Cause { reason, message, field: field.to_owned() });
    };
    if let Some(kind) = target["kind"].as_str().filter(|kind| !kind.is_empty() && *kind != "Node") {
        let message = format!("Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\"");
        wrong("FieldValueNotSupported", "target.kind", message);
    }
    if target["name"].as_str().unwrap_or_default().is_empty() {
        wrong("FieldValueRequired", "target.name", "Required value".to_owned());
    }
    // Here the API server does not say that it is a refusal.
    let words: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    match words.as_slice() {
        [] => Ok(()),
        [one] => Err(Status::unforeseen(one.as_str()).into()),
        all => Err(Status::unforeseen(format!("[{}]", all.join(", "))).into()),
    }
}

/// Assigns a Pod to the binding's node, unless it has one.
fn bind(
    cluster: &mut Cluster,
    context: &Context<'_>,
    namespace: &str,
    name: &str,
    binding: &Value,
) -> Result<(), Halt> {
    let storage = Storage::new("", "pods");
    let stored = cluster.store.get(&storage, namespace, name).ok_or_else(|| Status::not_found("", "pods", name))?;
    let conflict = |why: &str| Halt::from(Status::conflict("", "pods/binding", name, why));
    let mut pod = stored.value.clone();
    for (key, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, found) = (&binding["metadata"][key], &pod["metadata"][key]);
        if let Some(wanted) = wanted.as_str().filter(|wanted| !wanted.is_empty() && found != wanted) {
            let found = found.as_str().unwrap_or_default();
            let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
            return Err(Status::conflict("", "pods", name, &why).into());
        }
    }
    if stored.terminates() {
        return Err(conflict(&format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return Err(conflict(&format!("pod {name} is already assigned to node {node:?}")));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(conflict(&format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    if !pod["spec"].is_object() || !pod["metadata"].is_object() {
        return Err(Status::internal(format!("unexpected object: {name}")).into());
    }
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for key in ["annotations", "labels"] {
        for (label, value) in binding["metadata"][key].as_object().into_iter().flatten() {
            if !pod["metadata"][key].is_object() {
                pod["metadata"][key] = json!({});
            }
            pod["metadata"][key][label.as_str()] = value.clone();
        }
    }
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
    condition::set(&mut pod["status"], condition, context.now);
    cluster.store.put(&storage, pod);
    Ok(())
}
