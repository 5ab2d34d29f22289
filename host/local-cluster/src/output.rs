//! The forms of objects in responses: whole, as metadata alone, or as rows of a table. Input: objects. Output: documents. It
//! must not know requests and verbs.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::Resource;
use crate::store::Object;
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

/// The text of objects in responses, where it is the one that they are stored with: as they are, in their version.
pub(crate) struct Texts {
    /// What the text of an object in the wanted version begins with.
    start: String,
    /// The lists of built-in kinds alone say what their items are.
    bare_items: bool,
}

impl Texts {
    pub(crate) fn of(resource: &Resource) -> Self {
        let start = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", resource.kind, resource.api_version());
        Self { start, bare_items: resource.custom.is_none() }
    }

    /// None of an object that is stored in another version.
    pub(crate) fn object<'a>(&self, object: &'a Object) -> Option<&'a str> {
        Some(object.text()).filter(|text| text.starts_with(&self.start))
    }

    /// None of a list with an object that is stored in another version.
    pub(crate) fn list(&self, resource: &Resource, objects: &[Arc<Object>], metadata: &Value) -> Option<String> {
        let items = || objects.iter().map(|object| self.object(object));
        let size = items().try_fold(0, |size, item| Some(size + item?.len() + 1))?;
        let (kind, version) = (&resource.list_kind, resource.api_version());
        let mut list =
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[");
        list.reserve(size);
        for (at, item) in items().flatten().enumerate() {
            list.push_str(if at == 0 { "" } else { "," });
            match item.strip_prefix(&self.start).filter(|_| self.bare_items) {
                Some(rest) => {
                    list.push('{');
                    list.push_str(rest);
                }
                None => list.push_str(item),
            }
        }
        list.push_str("]}\n");
        Some(list)
    }
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
                "items": items(if resource.custom.is_some() { Value::clone } else { item }),
            }),
            Self::Metadata => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                // Go's list of nothing.
                "items": if objects.is_empty() { Value::Null } else { items(partial).into() },
            }),
            Self::Table(include) => table::render(resource, objects, include, &metadata, now),
        }
    }

    /// The object of a bookmark: only its metadata counts.
    pub(crate) fn bookmark(self, resource: &Arc<Resource>, metadata: Value, now: Timestamp) -> Value {
        match self {
            Self::Whole => {
                json!({"kind": &*resource.kind, "apiVersion": resource.api_version(), "metadata": metadata})
            }
            Self::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Self::Table(_) => {
                let row = json!({"kind": &*resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
                let version = json!({"resourceVersion": metadata["resourceVersion"]});
                let mut table = table::render(resource, &[&row], Include::Metadata, &version, now);
                table["columnDefinitions"] = Value::Null;
                table
            }
        }
    }
}

/// An object in a list of a built-in kind: only the list says what it is.
fn item(object: &Value) -> Value {
    let fields =
        object.as_object().into_iter().flatten().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion"));
    Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// An object's metadata as an object of its own.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
