//! How the API server finds the host, and for what: addresses, paths and clientConfigs of everything that it asks. Which
//! objects carry them, and what is asked, is not known here.

use std::sync::Arc;

use serde_json::{Value, json};

/// Where the API server finds the host.
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

/// What all webhooks of one host have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Where.
    pub address: Address,
    /// Whom the API server trusts there: PEM, base64-encoded. None: the certificate authorities of its own machine.
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

/// What a plugin is asked about an object that is to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// To fill in defaults.
    Mutate,
    /// To check.
    Validate,
}

impl Purpose {
    /// The word for it in paths, webhooks' names and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

/// What a plugin is asked by the API server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// About an object that is to be stored.
    Admission(Purpose),
    /// For objects in another version.
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

/// The path at which the host answers for a plugin.
pub fn path_of(subject: Subject, plugin: &str) -> String {
    format!("/{}/{plugin}", subject.as_str())
}

/// The other way round.
pub fn at_path(path: &str) -> Option<(Subject, &str)> {
    let (word, plugin) = path.strip_prefix('/')?.split_once('/')?;
    let subject = Subject::ALL.into_iter().find(|subject| subject.as_str() == word)?;
    (!plugin.is_empty() && !plugin.contains('/')).then_some((subject, plugin))
}

/// Characters of one text. The API server cuts warnings at 256, and a Status is no place for more than this.
const MAX_TEXT_CHARS: usize = 1_024;

/// One line of bounded length.
pub(crate) fn cut(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MAX_TEXT_CHARS).collect()
}

/// Who wrote which field is nobody's business in an answer, and is often most of an object.
pub(crate) fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}
