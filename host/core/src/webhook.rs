//! The webhook endpoints of the host: addresses, paths and clientConfigs of admission and conversion.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
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

/// Values in the JSON of a review. A tree of so many takes some hundred megabytes; the largest reviews, lists of objects
/// that are mostly managedFields, have half as many.
const MAX_VALUES: usize = 1 << 20;

/// Why the JSON text is not read: as a tree it may take a hundred times as much memory as its bytes.
pub(crate) fn too_wide(text: &[u8]) -> Option<String> {
    let (mut values, mut in_string, mut escaped, mut opened) = (1_usize, false, false, false);
    for byte in text {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        if byte.is_ascii_whitespace() {
            continue;
        }
        // The first value of a list or of an object.
        values += usize::from(opened && !matches!(byte, b']' | b'}'));
        opened = matches!(byte, b'[' | b'{');
        values += usize::from(*byte == b',');
        in_string = *byte == b'"';
    }
    (values > MAX_VALUES).then(|| format!("it has {values} values, and mortise reads {MAX_VALUES}"))
}

/// managedFields are often most of an object, and no plugin needs them.
pub(crate) fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// The same in JSON text, without a tree of the object. None when it is no object.
pub(crate) fn text_without_managed_fields(object: &RawValue) -> Option<Arc<str>> {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let mut members: Members = serde_json::from_str(object.get()).ok()?;
    let metadata = members.get("metadata").and_then(|metadata| {
        let mut metadata: Members = serde_json::from_str(metadata.get()).ok()?;
        metadata.remove("managedFields")?;
        to_raw_value(&metadata).ok()
    });
    if let Some(metadata) = &metadata {
        members.insert("metadata".to_owned(), metadata);
    }
    serde_json::to_string(&members).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_more_values_than_the_bound_is_not_read_whatever_its_strings_say() {
        let list = |value: &str, count: usize| format!("[{}]", vec![value; count].join(","));
        for value in [" [ ] ", "{}", r#"",[{\",""#] {
            assert_eq!(too_wide(list(value, MAX_VALUES - 1).as_bytes()), None, "{value}");
            let why = too_wide(list(value, MAX_VALUES).as_bytes()).expect(value);
            assert_eq!(why, "it has 1048577 values, and mortise reads 1048576", "{value}");
        }
        assert!(too_wide(list(r#"{"a":[0]}"#, MAX_VALUES / 3).as_bytes()).is_none());
        assert!(too_wide(list(r#"{"a":[0]}"#, MAX_VALUES / 3 + 1).as_bytes()).is_some());
    }
}
