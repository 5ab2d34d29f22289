//! What Kubernetes publishes about itself: the aggregated discovery document and the OpenAPI v3 documents of its groups,
//! packed by `cargo xtask gen` into one file. Input: that file. Output: documents, and the schemas of built-in kinds. It
//! must not know objects.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

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

/// The schema of a built-in kind; of a kind that no document describes, one that accepts anything.
pub(crate) fn schema(group: &str, version: &str, kind: &str) -> Arc<Schema> {
    let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
    let Some(text) = open_api(&path) else { return Arc::new(Schema::anything()) };
    let document = parse(text);
    let definitions = &document["components"]["schemas"];
    let is_it = |definition: &Value| {
        let kinds = definition["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| {
            kinds.iter().any(|of| of["group"] == group && of["version"] == version && of["kind"] == kind)
        })
    };
    let found = definitions.as_object().and_then(|all| all.values().find(|definition| is_it(definition)));
    found.map_or_else(|| Arc::new(Schema::anything()), |found| Arc::new(Schema::compile(found, definitions)))
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
