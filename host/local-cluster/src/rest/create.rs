//! create. Input: an object as a client sent it, or as a controller made it. Output: the object as it is stored. It must
//! not know kinds: what is special about one is in `strategy`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Update, output};
use crate::attributes::Attributes;
use crate::context::Context;
use crate::halt::{Cause, Halt, Status};
use crate::managed_fields::{self, Operation};
use crate::request::{Request, Response};
use crate::store::Object;
use crate::{Cluster, admission, body, definition, strategy, time, uid};

/// How long a name may be before `generateName`'s suffix of five letters.
const MAX_GENERATED_BASE: usize = 63 - 5;
/// How often a generated name that is taken is drawn again, as the API server does.
const MAX_DRAWS: usize = 8;

pub(super) fn from_request(
    cluster: &mut Cluster,
    request: &Request,
    attributes: &Attributes,
    context: &Context<'_>,
) -> Result<Response, Halt> {
    let output = output::read(request)?;
    let object = body::known_object(request, &attributes.resource, context)?;
    let stored = create(cluster, context, attributes, object)?;
    output::one(cluster, output, attributes, 201, &stored, context)
}

/// Creates an object. `attributes.name` may be empty; the namespace is the one of the request.
pub(crate) fn create(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: Value,
) -> Result<Arc<Object>, Halt> {
    create_as(cluster, context, attributes, object, Update::Whole)
}

/// Creates an object; of one that is applied, the managed fields are set already.
pub(super) fn create_as(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    mut object: Value,
    how: Update,
) -> Result<Arc<Object>, Halt> {
    let resource = &attributes.resource;
    definition::may_create(resource, object["metadata"]["name"].as_str().unwrap_or_default())?;
    name(cluster, attributes, &mut object)?;
    system_fields(cluster, context, &mut object);
    if let (Update::Applied, Some(metadata)) = (how, object["metadata"].as_object_mut()) {
        // It is a precondition of the update that an apply is when the object is there, and means nothing when it is not.
        metadata.remove("resourceVersion");
    }
    strategy::complete(resource, &mut object, None);
    if how == Update::Whole {
        managed_fields::update(resource, None, &mut object, &context.manager, Operation::Update, "", context.now);
    }
    if admission::lacks_default_account(cluster, attributes, &object) {
        default_account(cluster, context, &attributes.namespace)?;
    }
    if admission::mutate(cluster, context, attributes, &mut object, None)? {
        strategy::default(resource, &mut object);
    }
    strategy::prepare_create(cluster, context, resource, &mut object)?;
    finish(cluster, context, attributes, object)
}

/// Makes the account `default`. An API server waits for it, which the controller makes in each namespace; here it is made at
/// once.
fn default_account(cluster: &mut Cluster, context: &Context<'_>, namespace: &str) -> Result<(), Halt> {
    let Some(resource) = cluster.kind("", "v1", "ServiceAccount").cloned() else { return Ok(()) };
    let user = "system:serviceaccount:kube-system:service-account-controller";
    let context = Context {
        manager: "kube-controller-manager".to_owned(),
        ..Context::system(user, context.answers, context.now)
    };
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}});
    create(cluster, &context, &Attributes::of("create", &resource, namespace, ""), account).map(drop)
}

/// What follows on mutating admission: validation, validating admission, storing.
fn finish(
    cluster: &mut Cluster,
    context: &Context<'_>,
    attributes: &Attributes,
    object: Value,
) -> Result<Arc<Object>, Halt> {
    let resource = &attributes.resource;
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut causes = strategy::validate_metadata(resource, &object);
    causes.extend(resource.schema().validate(&object, None));
    causes.extend(strategy::validate_create(cluster, resource, &object));
    if !causes.is_empty() {
        return Err(Status::invalid(&resource.group, &resource.kind, &name, &causes).into());
    }
    admission::validate(cluster, context, attributes, Some(&object), None)?;
    if cluster.store.get(&resource.storage, &attributes.namespace, &name).is_some() {
        return Err(Status::already_exists(&resource.group, &resource.plural, &name).into());
    }
    if !object["metadata"]["resourceVersion"].is_null() {
        return Err(Status::unforeseen("resourceVersion should not be set on objects to be created").into());
    }
    let object = definition::for_storage(cluster, resource, object, context.answers)?;
    let stored = cluster.store.put(&resource.storage, object);
    definition::written(cluster, context, resource, &stored)?;
    Ok(stored)
}

/// Checks the name and the namespace, and draws a name after `generateName`.
fn name(cluster: &mut Cluster, attributes: &Attributes, object: &mut Value) -> Result<(), Halt> {
    let resource = &attributes.resource;
    if let Some(metadata) = object["metadata"].as_object_mut().filter(|_| !resource.namespaced) {
        metadata.remove("namespace");
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && namespace != attributes.namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message).into());
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if resource.namespaced {
        object["metadata"]["namespace"] = attributes.namespace.clone().into();
        strategy::namespace_is_open(cluster, resource, &attributes.namespace, object)?;
    }
    let base = object["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
    if object["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
        if base.is_empty() {
            let cause = Cause {
                reason: "FieldValueRequired",
                message: "Required value: name or generateName is required".to_owned(),
                field: "metadata.name".to_owned(),
            };
            return Err(Status::invalid(&resource.group, &resource.kind, "", &[cause]).into());
        }
        let kept: String = base.chars().take(MAX_GENERATED_BASE).collect();
        for _ in 0..MAX_DRAWS {
            let name = format!("{kept}{}", uid::suffix(cluster, 5));
            let taken = cluster.store.get(&resource.storage, &attributes.namespace, &name).is_some();
            object["metadata"]["name"] = name.into();
            if !taken {
                break;
            }
        }
    }
    Ok(())
}

/// Sets what the server alone decides.
fn system_fields(cluster: &mut Cluster, context: &Context<'_>, object: &mut Value) {
    let uid = uid::uid(cluster);
    let metadata = &mut object["metadata"];
    if let Some(fields) = metadata.as_object_mut() {
        if matches!(fields.get("resourceVersion").and_then(Value::as_str), Some("" | "0")) {
            fields.remove("resourceVersion");
        }
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            fields.remove(key);
        }
    }
    metadata["uid"] = uid.into();
    metadata["creationTimestamp"] = time::seconds(context.now).into();
}
