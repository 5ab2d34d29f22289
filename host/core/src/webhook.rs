//! The webhook endpoints of the host: addresses, paths and clientConfigs of admission and conversion.

use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Where the API server reaches the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// "https://127.0.0.1:9443".
    Url(Arc<str>),
    /// A Service in the host's namespace.
    Service {
        /// Its name.
        name: Arc<str>,
        /// Its port.
        port: u16,
    },
}

/// The endpoint of all webhooks of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The address.
    pub address: Address,
    /// The certificate authorities that the API server trusts: PEM, base64-encoded. None: those of its own machine.
    pub ca_bundle: Option<Arc<str>>,
    /// The host's namespace.
    pub namespace: Arc<str>,
}

impl Endpoint {
    /// The clientConfig of a webhook.
    pub fn client(&self, subject: Subject, plugin: &str) -> Value {
        let path = path_of(subject, plugin);
        let mut client = match &self.address {
            Address::Url(url) => json!({"url": format!("{}{path}", url.trim_end_matches('/'))}),
            Address::Service { name, port } => json!({"service": {
                "namespace": &*self.namespace, "name": &**name, "path": path, "port": port,
            }}),
        };
        if let Some(ca_bundle) = &self.ca_bundle {
            client["caBundle"] = json!(&**ca_bundle);
        }
        client
    }
}

/// The purpose of an admission webhook.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// Sets defaults.
    Mutate,
    /// Validates.
    Validate,
}

impl Purpose {
    /// Its name in paths, webhooks' names and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

/// The kind of a webhook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Reviews objects before they are stored.
    Admission(Purpose),
    /// Converts objects between versions.
    Conversion,
}

impl Subject {
    const ALL: [Self; 3] = [Self::Admission(Purpose::Mutate), Self::Admission(Purpose::Validate), Self::Conversion];

    fn as_str(self) -> &'static str {
        match self {
            Self::Admission(purpose) => purpose.as_str(),
            Self::Conversion => "convert",
        }
    }
}

/// The path of a plugin's webhook.
pub fn path_of(subject: Subject, plugin: &str) -> String {
    format!("/{}/{plugin}", subject.as_str())
}

/// The webhook and the plugin of a path.
pub fn at_path(path: &str) -> Option<(Subject, &str)> {
    let (word, plugin) = path.strip_prefix('/')?.split_once('/')?;
    let subject = Subject::ALL.into_iter().find(|subject| subject.as_str() == word)?;
    (!plugin.is_empty() && !plugin.contains('/')).then_some((subject, plugin))
}

/// managedFields are often most of an object, and no plugin needs them.
pub(crate) fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Where parts of an object's text are.
pub(crate) struct Parts {
    /// The metadata, without the space around it.
    pub(crate) metadata: Option<Range<usize>>,
    /// The value of its managedFields.
    pub(crate) managed_fields: Option<Range<usize>>,
}

#[derive(Deserialize)]
struct RawObject<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata<'a> {
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

impl Parts {
    /// None when the text is no object, or has one of the parts twice.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let begin = |part: &str| part.as_ptr().addr() - text.as_ptr().addr();
        let range = |part: &RawValue| begin(part.get())..begin(part.get()) + part.get().len();
        let RawObject { metadata } = serde_json::from_str(text).ok().filter(|_| text.trim_start().starts_with('{'))?;
        let is_object = metadata.filter(|metadata| metadata.get().starts_with('{'));
        let managed_fields = match is_object {
            Some(metadata) => serde_json::from_str::<RawMetadata<'_>>(metadata.get()).ok()?.managed_fields,
            None => None,
        };
        Some(Self { metadata: metadata.map(range), managed_fields: managed_fields.map(range) })
    }
}

/// The text of an object without its managedFields, without a tree of it. None as with [`Parts::of`].
pub(crate) fn text_without_managed_fields(text: &str) -> Option<Arc<str>> {
    let Some(value) = Parts::of(text)?.managed_fields else { return Some(text.into()) };
    let (before, after) = (text.get(..value.start)?, text.get(value.end..)?.trim_start());
    // The name has no quotes within it, also if it is written with escapes.
    let before = before.trim_end().strip_suffix(':')?.trim_end().strip_suffix('"')?;
    let before = before.get(..before.rfind('"')?)?.trim_end();
    let is_last = before.strip_suffix(',').map(|before| [before, after].concat());
    Some(is_last.unwrap_or_else(|| [before, after.strip_prefix(',').unwrap_or(after)].concat()).into())
}

/// The text of an object with managedFields in its metadata, which has none. None when it has no metadata.
pub(crate) fn text_with_managed_fields(text: &str, managed_fields: &str) -> Option<String> {
    let begin = Parts::of(text)?.metadata?.start;
    let (before, members) = (text.get(..begin)?, text.get(begin..)?.strip_prefix('{')?);
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    Some([before, "{\"managedFields\":", managed_fields, comma, members].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_are_cut_out_and_put_back_wherever_they_are_and_nothing_else_changes() {
        for (text, without) in [
            (r#"{"a":1,"metadata":{"managedFields":[{"b":","}],"name":"a"}}"#, r#"{"a":1,"metadata":{"name":"a"}}"#),
            (r#"{"metadata":{"name":"a" , "managedFields" : [ ] } }"#, r#"{"metadata":{"name":"a" } }"#),
            (r#"{"metadata":{ "managedFields":{}}}"#, r#"{"metadata":{}}"#),
            (r#"{"metadata":{"managed\u0046ields":7,"x":"managedFields"}}"#, r#"{"metadata":{"x":"managedFields"}}"#),
            (r#" {"spec":{"managedFields":1}} "#, r#" {"spec":{"managedFields":1}} "#),
            (r#"{"metadata":null}"#, r#"{"metadata":null}"#),
        ] {
            assert_eq!(text_without_managed_fields(text).as_deref(), Some(without), "{text}");
        }
        for text in [
            "7",
            "[]",
            r#"["a"]"#,
            r#"{"metadata":{},"metadata":{}}"#,
            r#"{"metadata":{"managedFields":1,"managedFields":2}}"#,
        ] {
            assert_eq!(text_without_managed_fields(text), None, "{text}");
        }
        for (text, with) in [
            (r#"{"metadata": {"name":"a"}}"#, r#"{"metadata": {"managedFields":[1],"name":"a"}}"#),
            (r#"{"metadata":{ }}"#, r#"{"metadata":{"managedFields":[1] }}"#),
        ] {
            assert_eq!(text_with_managed_fields(text, "[1]").as_deref(), Some(with), "{text}");
        }
        assert_eq!(text_with_managed_fields(r#"{"metadata":null}"#, "[]"), None);
    }
}
