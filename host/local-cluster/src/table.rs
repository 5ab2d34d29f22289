//! Objects as rows of a table, as `kubectl get` prints them. Input: objects. Output: a `Table`. It must not know verbs.

mod cells;
mod columns;
mod custom;
mod json_path;
mod pod;
mod workloads;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::builtin_versions;
use crate::resource::Resource;

use self::cells::Row;

/// What a row of a table has of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

/// A `Table` of objects; `metadata` is that of the list, or of the one object.
pub(crate) fn render(
    resource: &Arc<Resource>,
    objects: &[&Value],
    include: Include,
    metadata: &Value,
    now: Timestamp,
) -> Value {
    let kept = ["resourceVersion", "continue", "remainingItemCount"];
    let kept = kept.iter().filter_map(|key| Some(((*key).to_owned(), metadata.get(*key)?.clone())));
    let (columns, rows): (Value, Vec<Value>) = match &resource.custom {
        Some(version) => {
            let columns = custom::columns(version);
            let row = |object: &&Value| row(object, custom::cells(&columns, object, now), include);
            (columns.iter().map(custom::Column::definition).collect(), objects.iter().map(row).collect())
        }
        None => {
            let printer = columns::of(&resource.storage.group, &resource.kind);
            let rows = objects.iter().map(|object| {
                // The cells are those of the version that is stored, as of Kubernetes' internal one.
                let stored = builtin_versions::stored(resource, object);
                row(object, printer.cells(&Row { object: &stored, now }), include)
            });
            (printer.definitions().clone(), rows.collect())
        }
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": kept.collect::<Map<_, _>>(),
        "columnDefinitions": columns, "rows": rows,
    })
}

fn row(object: &Value, cells: Vec<Value>, include: Include) -> Value {
    let shown = match include {
        Include::None => Value::Null,
        Include::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
        }
        Include::Object => object.clone(),
    };
    let mut row = json!({"cells": cells, "object": shown});
    if let (Some(condition), Some(fields)) = (pod::row_condition(object), row.as_object_mut()) {
        fields.insert("conditions".to_owned(), json!([condition]));
    }
    row
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Cluster;
    use crate::Method::{Get, Post};
    use crate::testing::{quiet, request, respond};

    const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

    fn table(cluster: &mut Cluster, target: &str) -> Value {
        respond(cluster, &request(Get, target, &[("accept", AS_TABLE)], &json!(null))).body.document().unwrap()
    }

    fn names(table: &Value) -> Vec<&str> {
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_list_is_a_table_with_the_columns_of_its_kind() {
        let mut cluster = quiet();
        let map = json!({"metadata": {"name": "a"}, "data": {"k": "v", "l": "w"}});
        respond(&mut cluster, &request(Post, "/api/v1/namespaces/default/configmaps", &[], &map));
        let found = table(&mut cluster, "/api/v1/namespaces/default/configmaps");
        assert_eq!(names(&found), ["Name", "Data", "Age"]);
        assert_eq!(found["rows"][0]["cells"], json!(["a", 2, "0s"]));
        assert_eq!(found["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(found["columnDefinitions"][0]["format"], "name");
        let about = found["columnDefinitions"][1]["description"].as_str().unwrap();
        assert!(about.starts_with("Data contains the configuration data."), "{about}");
        let none = table(&mut cluster, "/api/v1/namespaces/default/configmaps/a?includeObject=None");
        assert_eq!(none["rows"][0]["object"], json!(null));
        assert_eq!(none["metadata"].as_object().unwrap().len(), 1, "{none}");
    }

    #[test]
    fn a_kind_without_columns_shows_when_it_was_created() {
        let mut cluster = quiet();
        let role = json!({"metadata": {"name": "a"}, "rules": []});
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
        respond(&mut cluster, &request(Post, path, &[], &role));
        let found = table(&mut cluster, path);
        assert_eq!(names(&found), ["Name", "Created At"]);
        assert_eq!(found["rows"][0]["cells"], json!(["a", "2026-01-01T00:00:00Z"]));
    }
}
