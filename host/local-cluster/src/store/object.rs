//! A stored object. Input: the object as it was admitted. Output: the same as a value or as text, and what is looked up often.
//! It must not know where it is stored.
//!
//! As a tree of values an object takes ten times the memory of its text. So it has the text, which is also what clients are
//! sent, and the tree while it is new or somebody looks at it. What nobody is sent while it is new has no text yet.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// What deeper objects are not read again from their text: the parser refuses 128 levels.
const MAX_DEPTH: usize = 120;

/// An object with its version. What is stored never changes: a new version is a new object.
#[derive(Debug)]
pub(crate) struct Object {
    /// The object as it was admitted, with its resource version.
    pub(crate) value: Parsed,
    /// Its resource version.
    pub(crate) revision: u64,
    head: Arc<Head>,
}

/// What of an object is looked up without reading its text.
#[derive(Debug)]
struct Head {
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Box<str>,
    labels: Value,
    terminates: bool,
    owners: Box<[Arc<str>]>,
}

/// A value with its text: each is made from the other when it is looked at, and one of them is always there.
#[derive(Debug)]
pub(crate) struct Parsed {
    text: OnceLock<Arc<str>>,
    value: OnceLock<Box<Value>>,
}

impl Deref for Parsed {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value.get_or_init(|| Box::new(self.parse()))
    }
}

impl Parsed {
    fn new(value: Value) -> Self {
        Self { text: OnceLock::new(), value: OnceLock::from(Box::new(value)) }
    }

    fn of(text: Arc<str>) -> Self {
        Self { text: OnceLock::from(text), value: OnceLock::new() }
    }

    fn text(&self) -> &Arc<str> {
        self.text.get_or_init(|| text(self.value.get().expect("what has no text has a value")).into())
    }

    fn parse(&self) -> Value {
        serde_json::from_str(self.text()).expect("it was written from a value that is not too deep")
    }
}

impl Object {
    pub(crate) fn new(value: Value, revision: u64) -> Self {
        let metadata = &value["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default();
        let head = Head {
            namespace: text("namespace").into(),
            name: text("name").into(),
            uid: text("uid").into(),
            labels: metadata["labels"].clone(),
            terminates: !metadata["deletionTimestamp"].is_null(),
            owners: owners(metadata).map(Into::into).collect(),
        };
        Self { head: Arc::new(head), value: Parsed::new(value), revision }
    }

    /// The same object with another version.
    pub(super) fn at(&self, revision: u64) -> Self {
        let says = |revision: u64| format!("\"resourceVersion\":\"{revision}\"");
        let old = says(self.revision);
        // Labels and annotations may say the same.
        if self.has_tree() || self.text().matches(&old).count() != 1 {
            let mut value = self.read().into_owned();
            value["metadata"]["resourceVersion"] = revision.to_string().into();
            return Self::new(value, revision);
        }
        let text = self.text().replacen(&old, &says(revision), 1);
        Self { value: Parsed::of(text.into()), revision, head: self.head.clone() }
    }

    /// The same object, without its tree unless it has to have one. None if it is so already.
    pub(super) fn without_tree(&self) -> Option<Arc<Self>> {
        let value = self.value.value.get().filter(|value| !is_deeper(value, MAX_DEPTH));
        let text = value.map(|_| self.value.text().clone())?;
        Some(Arc::new(Self { value: Parsed::of(text), revision: self.revision, head: self.head.clone() }))
    }

    /// Whether it takes the memory of its tree.
    pub(crate) fn has_tree(&self) -> bool {
        self.value.value.get().is_some()
    }

    /// The value, to look at once: an object that has no tree gets none.
    pub(crate) fn read(&self) -> Cow<'_, Value> {
        match self.value.value.get() {
            Some(value) => Cow::Borrowed(value),
            None => Cow::Owned(self.value.parse()),
        }
    }

    /// The object as a JSON document, which begins with its kind, its version and its metadata.
    pub(crate) fn text(&self) -> &str {
        self.value.text()
    }

    pub(crate) fn name(&self) -> &str {
        &self.head.name
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.head.namespace
    }

    /// Namespace and name, as the store has them.
    pub(crate) fn key(&self) -> (Arc<str>, Arc<str>) {
        (self.head.namespace.clone(), self.head.name.clone())
    }

    pub(crate) fn uid(&self) -> &str {
        &self.head.uid
    }

    /// Whether it is being deleted.
    pub(crate) fn terminates(&self) -> bool {
        self.head.terminates
    }

    /// What it is indexed by: its owners' UIDs, and the empty one if none of them is its controller.
    pub(super) fn owners(&self) -> &[Arc<str>] {
        &self.head.owners
    }

    pub(crate) fn labels(&self) -> &Value {
        &self.head.labels
    }

    /// A label's value.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels().get(key).and_then(Value::as_str)
    }
}

fn owners(metadata: &Value) -> impl Iterator<Item = &str> {
    let references = metadata["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let orphan = references.iter().all(|reference| reference["controller"] != true);
    let owners = references.iter().filter_map(|reference| reference["uid"].as_str());
    owners.filter(|uid| !uid.is_empty()).chain(orphan.then_some(""))
}

/// An object's fields as Kubernetes writes them: what it is, then its metadata.
struct Ordered<'a>(&'a Map<String, Value>);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: [&str; 3] = ["kind", "apiVersion", "metadata"];
        let first = FIRST.iter().filter_map(|key| self.0.get_key_value(*key));
        serializer.collect_map(first.chain(self.0.iter().filter(|(key, _)| !FIRST.contains(&key.as_str()))))
    }
}

fn text(value: &Value) -> String {
    let text =
        value.as_object().map_or_else(|| serde_json::to_string(value), |all| serde_json::to_string(&Ordered(all)));
    text.expect("a JSON value is written to memory")
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(fields) => levels == 0 || fields.values().any(|value| is_deeper(value, levels - 1)),
        Value::Array(items) => levels == 0 || items.iter().any(|value| is_deeper(value, levels - 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_the_same_with_and_without_its_tree() {
        let value = json!({"apiVersion": "v1", "data": {"k": "v"}, "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "labels": {"l": "x"}}});
        let object = Object::new(value.clone(), 7);
        let text = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"labels":{"l":"x"},"name":"a","namespace":"n"},"data":{"k":"v"}}"#;
        assert_eq!((object.text(), object.has_tree()), (text, true));
        let lean = object.without_tree().unwrap();
        assert_eq!((lean.has_tree(), lean.label("l"), lean.revision), (false, Some("x"), 7));
        assert_eq!(lean.read().into_owned(), value);
        assert!(!lean.has_tree() && lean.without_tree().is_none());
        assert_eq!((&lean.value["data"]["k"], lean.has_tree()), (&json!("v"), true));
    }

    #[test]
    fn an_object_says_its_version_whatever_else_says_so() {
        for labels in [json!({}), json!({"resourceVersion": "7"})] {
            let value =
                json!({"kind": "ConfigMap", "metadata": {"labels": labels, "name": "a", "resourceVersion": "7"}});
            let mut wanted = value.clone();
            wanted["metadata"]["resourceVersion"] = "8".into();
            let object = Object::new(value, 7);
            for later in [object.without_tree().unwrap().at(8), object.at(8)] {
                assert_eq!(later.text(), Object::new(wanted.clone(), 8).text());
                assert_eq!((&*later.value, later.revision, later.name()), (&wanted, 8, "a"));
            }
        }
    }

    #[test]
    fn an_object_that_is_too_deep_to_be_read_again_keeps_its_tree() {
        let mut deep = json!(1);
        for _ in 0..200 {
            deep = json!([deep]);
        }
        let object = Object::new(json!({"metadata": {"name": "a"}, "x": deep}), 1);
        assert!(object.without_tree().is_none());
    }
}
