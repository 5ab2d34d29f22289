//! Objects as rows of a table, as `kubectl get` prints them. Input: objects. Output: a `Table`. It must not know verbs.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::Cluster;
use crate::resource::Resource;
use crate::rest::Include;

/// A `Table` of objects; `metadata` is that of the list, or of the one object.
pub(crate) fn render(
    _cluster: &Cluster,
    _resource: &Arc<Resource>,
    objects: &[&Value],
    _include: Include,
    metadata: &Value,
) -> Value {
    let rows = objects.iter().map(|object| json!({"cells": [object["metadata"]["name"]], "object": object}));
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}],
        "rows": rows.collect::<Vec<_>>(),
    })
}
