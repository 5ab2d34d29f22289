//! What Kubernetes publishes about itself: the aggregated discovery document and the OpenAPI v3 documents of its groups,
//! packed by `cargo xtask gen` into one file. Input: that file. Output: documents, and the schemas of built-in kinds. It
//! must not know objects.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::schema::Schema;

/// The version of Kubernetes that the file was made from and that the cluster says it is.
pub(crate) const KUBERNETES: &str = "v1.36.3";

/// Packed documents: for each a line with its name and its length in bytes, then its bytes and a line end.
static PACKED: &[u8] = include_bytes!("../data/kubernetes.zst");

/// The documents' text by name.
fn documents() -> &'static BTreeMap<&'static str, &'static str> {
    static DOCUMENTS: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
        let bytes = zstd::decode_all(PACKED).expect("the file was packed by this project's generator");
        let mut rest: &'static str = String::from_utf8(bytes).expect("JSON is text").leak();
        let mut documents = BTreeMap::new();
        while let Some((head, body)) = rest.split_once('\n') {
            let (name, length) = head.split_once(' ').expect("a document begins with its name and length");
            let length: usize = length.parse().expect("a length is a number");
            documents.insert(name, &body[..length]);
            rest = &body[length + 1..];
        }
        documents
    });
    &DOCUMENTS
}

/// The aggregated discovery document of the served groups, core among them with an empty name.
pub(crate) fn discovery() -> &'static Value {
    static DISCOVERY: LazyLock<Value> = LazyLock::new(|| parse(documents()["discovery"]));
    &DISCOVERY
}

/// The OpenAPI v3 document of a path such as `apis/apps/v1`, as text.
pub(crate) fn open_api(path: &str) -> Option<&'static str> {
    documents().get(path).copied()
}

/// The paths that have an OpenAPI v3 document.
pub(crate) fn open_api_paths() -> impl Iterator<Item = &'static str> {
    documents().keys().copied().filter(|name| *name != "discovery")
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("the documents are JSON")
}

/// The schemas of one document by name, as text: a document has hundreds, of which few are asked for.
type Definitions = BTreeMap<&'static str, &'static RawValue>;

/// One document, its parts as text.
struct Document {
    schemas: Definitions,
    paths: BTreeMap<&'static str, &'static RawValue>,
}

fn document(path: &str) -> Option<&'static Document> {
    static ALL: LazyLock<BTreeMap<&str, OnceLock<Document>>> =
        LazyLock::new(|| open_api_paths().map(|path| (path, OnceLock::new())).collect());
    #[derive(Deserialize)]
    struct Read<'a> {
        #[serde(borrow)]
        components: Components<'a>,
        #[serde(borrow)]
        paths: BTreeMap<&'a str, &'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Components<'a> {
        #[serde(borrow, default)]
        schemas: BTreeMap<&'a str, &'a RawValue>,
    }
    let (path, found) = ALL.get_key_value(path)?;
    Some(found.get_or_init(|| {
        let read: Read<'_> = serde_json::from_str(documents()[path]).expect("the documents are OpenAPI");
        Document { schemas: read.components.schemas, paths: read.paths }
    }))
}

fn definitions(path: &str) -> Option<&'static Definitions> {
    document(path).map(|document| &document.schemas)
}

/// The operations of one URL path.
pub(crate) fn operations(path: &str, url: &str) -> Value {
    document(path).and_then(|document| document.paths.get(url)).map_or(Value::Null, |text| parse(text.get()))
}

/// All schemas and all paths of a document, each by name.
pub(crate) fn parts(path: &str) -> [Vec<(&'static str, Value)>; 2] {
    let all = |part: &BTreeMap<&'static str, &'static RawValue>| {
        part.iter().map(|(name, text)| (*name, parse(text.get()))).collect()
    };
    document(path).map_or_else(Default::default, |document| [all(&document.schemas), all(&document.paths)])
}

/// The schemas of a document that one of them needs, itself among them.
fn reachable(definitions: &Definitions, name: &str) -> Value {
    let mut found = serde_json::Map::new();
    let mut waiting = vec![name.to_owned()];
    while let Some(name) = waiting.pop() {
        let Some(text) = definitions.get(name.as_str()).filter(|_| !found.contains_key(&name)) else { continue };
        let references = text.get().split("\"#/components/schemas/").skip(1);
        waiting.extend(references.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        found.insert(name, parse(text.get()));
    }
    Value::Object(found)
}

/// One schema by its full name, with all that it refers to, by name.
pub(crate) fn with_references(path: &str, name: &str) -> Value {
    definitions(path).map_or(Value::Null, |definitions| reachable(definitions, name))
}

/// The description of a field; `kind` is the last part of its schema's name.
pub(crate) fn field_description(path: &str, kind: &str, field: &str) -> String {
    let mut all = definitions(path).into_iter().flatten();
    let found = all.find(|(name, _)| name.rsplit('.').next() == Some(kind)).map(|(_, text)| parse(text.get()));
    let described = found.and_then(|schema| Some(schema["properties"][field]["description"].as_str()?.to_owned()));
    described.unwrap_or_default()
}

/// The schema of a built-in kind; of a kind that no document describes, one that accepts anything.
pub(crate) fn schema(group: &str, version: &str, kind: &str) -> Arc<Schema> {
    let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
    let Some(definitions) = definitions(&path) else { return Arc::new(Schema::anything()) };
    let named = definitions.iter().filter(|(name, _)| name.rsplit('.').next() == Some(kind));
    let found = named.map(|(name, text)| (name, parse(text.get()))).find(|(_, definition)| {
        let kinds = definition["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| {
            kinds.iter().any(|of| of["group"] == group && of["version"] == version && of["kind"] == kind)
        })
    });
    match found {
        Some((name, found)) => Arc::new(Schema::compile(&found, &reachable(definitions, name))),
        None => Arc::new(Schema::anything()),
    }
}

/// The definitions below `ObjectMeta`, which all objects have.
pub(crate) fn metadata() -> &'static Value {
    static METADATA: LazyLock<Value> = LazyLock::new(|| {
        let mut document = open_api("api/v1").map_or(Value::Null, parse);
        let mut definitions = document["components"]["schemas"].take();
        if let Some(definitions) = definitions.as_object_mut() {
            definitions.retain(|name, _| name.starts_with("io.k8s.apimachinery.pkg.apis.meta.v1."));
        }
        definitions
    });
    &METADATA
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_comes_with_all_that_it_refers_to() {
        let found = with_references("apis/apps/v1", "io.k8s.api.apps.v1.Deployment");
        for name in ["io.k8s.api.core.v1.Container", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"] {
            assert!(found[name]["properties"].is_object(), "{name}");
        }
        assert!(found["io.k8s.api.apps.v1.StatefulSet"].is_null());
        let name = field_description("api/v1", "ObjectMeta", "name");
        assert!(name.starts_with("Name must be unique within a namespace."), "{name}");
    }
}
