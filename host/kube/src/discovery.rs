//! The paths of a kind's objects: its resource name and whether it is namespaced. Read once per group and version, when first
//! needed, and forgotten when a response or a new CRD shows that it may have changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mortise_core::object::{Kind, Name};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::failure::Failure;

/// The document of a group that lacks a kind, or is not served, is read again after this long, once for all callers: many
/// writes of an unknown kind cost one request a second together.
const REREAD_AFTER: Duration = Duration::from_secs(1);

/// Characters that are not escaped in a segment of a path or a value of a query.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The documents that were read.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    groups: Mutex<HashMap<Arc<str>, Arc<OnceCell<Group>>>>,
}

#[derive(Debug)]
struct Group {
    read_at: Instant,
    resources: HashMap<String, Arc<Resource>>,
}

/// The resource of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resource {
    /// "/api/v1", "/apis/apps/v1".
    root: String,
    /// "pods".
    pub(crate) plural: String,
    /// Whether its objects have namespaces.
    pub(crate) namespaced: bool,
    kind: Kind,
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<RawResource>,
}

#[derive(Deserialize)]
struct RawResource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

impl Discovery {
    /// The resource of a kind. `get` reads the document at a path; None when there is none.
    pub(crate) async fn resource<Document: Future<Output = Result<Option<Bytes>, Failure>>>(
        &self,
        kind: &Kind,
        get: impl Fn(String) -> Document,
    ) -> Result<Arc<Resource>, Failure> {
        let cell = self.cell(&kind.api_version);
        let group = cell.get_or_try_init(|| Group::read(&kind.api_version, &get)).await?;
        if let Some(resource) = group.resources.get(&*kind.kind) {
            return Ok(resource.clone());
        }
        if group.read_at.elapsed() >= REREAD_AFTER {
            self.forget_this(&kind.api_version, &cell);
            let cell = self.cell(&kind.api_version);
            let group = cell.get_or_try_init(|| Group::read(&kind.api_version, &get)).await?;
            if let Some(resource) = group.resources.get(&*kind.kind) {
                return Ok(resource.clone());
            }
        }
        Err(Failure::NotServed(format!("the API server does not serve {kind}; is its CRD installed?")))
    }

    /// Forgets the document of a group and version.
    pub(crate) fn forget(&self, api_version: &str) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).remove(api_version);
    }

    /// The cell of a group and version; the first caller fills it for all.
    fn cell(&self, api_version: &Arc<str>) -> Arc<OnceCell<Group>> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(api_version.clone()).or_default().clone()
    }

    /// Forgets one document, unless it was already read again.
    fn forget_this(&self, api_version: &str, cell: &Arc<OnceCell<Group>>) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if groups.get(api_version).is_some_and(|known| Arc::ptr_eq(known, cell)) {
            groups.remove(api_version);
        }
    }
}

impl Group {
    async fn read<Document: Future<Output = Result<Option<Bytes>, Failure>>>(
        api_version: &Arc<str>,
        get: impl Fn(String) -> Document,
    ) -> Result<Self, Failure> {
        let (root, reading) = (root(api_version), format!("reading the resources of {api_version}"));
        let document = get(root.clone()).await.map_err(|failure| failure.during(&reading))?;
        // A group that is not served has no resources.
        let Some(document) = document else { return Ok(Self { read_at: Instant::now(), resources: HashMap::new() }) };
        let list: ResourceList = serde_json::from_slice(&document)
            .map_err(|error| Failure::Lost(format!("the resources of {api_version} cannot be read: {error}")))?;
        Ok(Self { read_at: Instant::now(), resources: resources(&root, api_version, list) })
    }
}

fn resources(root: &str, api_version: &Arc<str>, list: ResourceList) -> HashMap<String, Arc<Resource>> {
    let mut found = HashMap::new();
    // Names with a slash are subresources, some with the kind of another resource ("pods/eviction").
    for raw in list.resources.into_iter().filter(|raw| !raw.name.contains('/')) {
        let kind = Kind { api_version: api_version.clone(), kind: raw.kind.as_str().into() };
        let resource = Resource { root: root.to_owned(), plural: raw.name, namespaced: raw.namespaced, kind };
        found.entry(raw.kind).or_insert_with(|| Arc::new(resource));
    }
    found
}

fn root(api_version: &str) -> String {
    let encoded: Vec<String> = api_version.split('/').map(escape).collect();
    if encoded.len() == 1 { format!("/api/{}", encoded[0]) } else { format!("/apis/{}", encoded.join("/")) }
}

/// Text as one segment of a path, or as one value of a query.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

impl Resource {
    /// "pods".
    pub(crate) fn plural(&self) -> &str {
        &self.plural
    }

    /// Whether its objects have namespaces.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// The path of all objects, or of those of one namespace.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{}/namespaces/{}/{}", self.root, escape(namespace), self.plural)
            }
            _ => format!("{}/{}", self.root, self.plural),
        }
    }

    /// The path of the collection that an object is created in. A name or namespace that does not fit the kind is refused
    /// here: without them the path would address all objects at once.
    pub(crate) fn collection_of(&self, name: &Name) -> Result<String, Failure> {
        if name.name.is_empty() || name.name.contains('/') || matches!(&*name.name, "." | "..") {
            return Err(Failure::Invalid(format!("{} {:?} is not a name of an object", self.kind, name.name)));
        }
        match (self.namespaced, name.namespace.is_empty()) {
            (true, true) => Err(Failure::Invalid(format!(
                "{} {name}: the kind is namespaced, so metadata.namespace is required; a child has its owner's, when that has \
                 one",
                self.kind
            ))),
            (false, false) => Err(Failure::Invalid(format!(
                "{} {name}: the kind is not namespaced, so metadata.namespace must be empty; a cluster-scoped child needs a \
                 cluster-scoped owner",
                self.kind
            ))),
            (true, false) => Ok(self.collection(Some(&name.namespace))),
            (false, true) => Ok(self.collection(None)),
        }
    }

    /// The path of one object.
    pub(crate) fn object(&self, name: &Name) -> Result<String, Failure> {
        Ok(format!("{}/{}", self.collection_of(name)?, escape(&name.name)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::client::ApiServer;
    use crate::testing::serve;

    fn resource(kind: &Kind, json: &str) -> Arc<Resource> {
        let list = serde_json::from_str(json).unwrap();
        resources(&root(&kind.api_version), &kind.api_version, list)[&*kind.kind].clone()
    }

    #[test]
    fn paths_follow_group_scope_and_name() {
        let pod = resource(
            &Kind::new("v1", "Pod"),
            r#"{"resources":[{"name":"pods/status","kind":"Pod","namespaced":true},
                             {"name":"pods","kind":"Pod","namespaced":true}]}"#,
        );
        assert_eq!(pod.collection(None), "/api/v1/pods");
        assert_eq!(pod.object(&Name::new("ns", "a.b-c")).unwrap(), "/api/v1/namespaces/ns/pods/a.b-c");
        let plugin = resource(
            &Kind::new("mortise.dev/v1alpha1", "Plugin"),
            r#"{"resources":[{"name":"plugins","kind":"Plugin","namespaced":false}]}"#,
        );
        assert_eq!(plugin.object(&Name::new("", "podset")).unwrap(), "/apis/mortise.dev/v1alpha1/plugins/podset");
    }

    #[test]
    fn a_name_that_would_address_another_path_is_refused() {
        let pod =
            resource(&Kind::new("v1", "Pod"), r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true}]}"#);
        for (namespace, name) in [("ns", ""), ("", "a"), ("ns", ".."), ("ns", "a/status")] {
            assert!(matches!(pod.object(&Name::new(namespace, name)), Err(Failure::Invalid(_))), "{namespace}/{name}");
        }
        assert_eq!(pod.object(&Name::new("n?s", "a#b")).unwrap(), "/api/v1/namespaces/n%3Fs/pods/a%23b");
    }

    /// An API server that serves `v1` without resources and nothing else, and the number of requests.
    async fn empty() -> (ApiServer, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let api = serve(move |request| {
            count.fetch_add(1, Ordering::SeqCst);
            match &*request.path {
                "/api/v1" => ("200 OK", r#"{"resources":[]}"#.to_owned()),
                _ => ("404 Not Found", String::new()),
            }
        });
        (api.await, requests)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_callers_of_an_unknown_kind_send_one_request_a_second_together() {
        let (api, requests) = empty().await;
        for kind in [Kind::new("v1", "Pod"), Kind::new("acme.example.com/v1", "Anvil")] {
            let call_all = async || {
                let before = requests.load(Ordering::SeqCst);
                let calls = (0..50).map(|_| {
                    let (api, kind) = (api.clone(), kind.clone());
                    tokio::spawn(async move { api.resource(&kind).await })
                });
                for call in calls.collect::<Vec<_>>() {
                    let failure = call.await.unwrap().unwrap_err();
                    assert!(
                        matches!(&failure, Failure::NotServed(message) if message.contains(&kind.to_string())),
                        "{failure:?}"
                    );
                }
                requests.load(Ordering::SeqCst) - before
            };
            assert_eq!(call_all().await, 1, "{kind}");
            tokio::time::sleep(REREAD_AFTER).await;
            assert_eq!(call_all().await, 1, "{kind}, after a second");
        }
    }
}
