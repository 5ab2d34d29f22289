//! In which form a client wants objects: whole, as metadata alone, or as rows of a table. Input: the Accept header. Output:
//! objects in that form. It must not know verbs.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::halt::{Halt, Status};
use crate::request::Request;
use crate::resource::Resource;
use crate::store::Object;
use crate::{Cluster, table};

/// The form of the objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`, with what each row shows of its object.
    Table(Include),
}

/// What a row of a table has of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

/// The most preferred media type that is served: by `q`, then in the order they are listed in.
pub(crate) fn read(request: &Request) -> Result<Output, Halt> {
    let accept = request.header("accept").filter(|accept| !accept.trim().is_empty()).unwrap_or("*/*");
    let mut entries: Vec<(f64, &str)> = accept.split(',').map(|entry| (quality(entry), entry)).collect();
    entries.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    let found = entries.into_iter().filter(|(quality, _)| *quality > 0.0).find_map(|(_, entry)| served(request, entry));
    found.ok_or_else(|| {
        let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let message = format!("only the following media types are accepted: {known}");
        Status::not_acceptable(message).into()
    })
}

fn quality(entry: &str) -> f64 {
    let quality = entry.split(';').find_map(|part| part.trim().strip_prefix("q="));
    quality.and_then(|quality| quality.parse().ok()).unwrap_or(1.0)
}

/// The form that an entry of the Accept header asks for, if it is served.
fn served(request: &Request, entry: &str) -> Option<Output> {
    let mut parts = entry.split(';').map(str::trim);
    if !matches!(parts.next(), Some("application/json" | "*/*" | "application/*")) {
        return None;
    }
    let parameter = |name: &str| parts.clone().find_map(|part| part.strip_prefix(name));
    let known = parameter("g=") == Some("meta.k8s.io") && matches!(parameter("v="), Some("v1" | "v1beta1"));
    match parameter("as=") {
        None | Some("") => Some(Output::Whole),
        Some("Table") if known => Some(Output::Table(match request.parameter("includeObject") {
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        })),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") if known => Some(Output::Metadata),
        Some(_) => None,
    }
}

impl Output {
    /// One object, as `resource`'s version has it.
    pub(crate) fn object(self, cluster: &Cluster, resource: &Arc<Resource>, object: &Value, now: Timestamp) -> Value {
        match self {
            Self::Whole => object.clone(),
            Self::Metadata => partial(object),
            Self::Table(include) => table::render(cluster, resource, &[object], include, &object["metadata"], now),
        }
    }

    /// A list with its metadata.
    pub(crate) fn list(
        self,
        cluster: &Cluster,
        resource: &Arc<Resource>,
        objects: &[&Value],
        metadata: Value,
        now: Timestamp,
    ) -> Value {
        let items = |of: fn(&Value) -> Value| objects.iter().map(|object| of(object)).collect::<Vec<_>>();
        match self {
            Self::Whole => json!({
                "kind": &*resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata,
                "items": items(Value::clone),
            }),
            Self::Metadata => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "items": items(partial),
            }),
            Self::Table(include) => table::render(cluster, resource, objects, include, &metadata, now),
        }
    }

    /// The object of a bookmark: only its metadata counts.
    pub(crate) fn bookmark(self, resource: &Resource, metadata: Value) -> Value {
        match self {
            Self::Whole => {
                json!({"kind": &*resource.kind, "apiVersion": resource.api_version(), "metadata": metadata})
            }
            Self::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Self::Table(_) => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": [], "rows": [],
            }),
        }
    }
}

/// An object's metadata as an object of its own.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// The values of stored objects.
pub(crate) fn values<'a>(objects: &[&'a Arc<Object>]) -> Vec<&'a Value> {
    objects.iter().map(|object| &object.value).collect()
}
