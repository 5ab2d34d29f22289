//! The forms of objects in responses: whole, as metadata alone, or as rows of a table. Input: objects. Output: documents. It
//! must not know requests and verbs.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::Resource;
use crate::table::{self, Include};

/// The form of the objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`, with what each row shows of its object.
    Table(Include),
}

impl Output {
    /// One object, as `resource`'s version has it.
    pub(crate) fn object(self, resource: &Arc<Resource>, object: &Value, now: Timestamp) -> Value {
        match self {
            Self::Whole => object.clone(),
            Self::Metadata => partial(object),
            Self::Table(include) => table::render(resource, &[object], include, &object["metadata"], now),
        }
    }

    /// A list with its metadata.
    pub(crate) fn list(self, resource: &Arc<Resource>, objects: &[&Value], metadata: Value, now: Timestamp) -> Value {
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
            Self::Table(include) => table::render(resource, objects, include, &metadata, now),
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
