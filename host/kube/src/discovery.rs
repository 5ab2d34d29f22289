//! Where a kind's objects are: its resource name and whether it lives in namespaces. Asked of the API server once per
//! group and version, when first needed, and forgotten when an answer or a new CRD says that it may have changed.

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

/// A group that does not have a kind, or is not served at all, is asked again after this long, by whoever comes first for
/// all: many writes of an unknown kind cost one request a second together.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What stays as it is in a segment of a path or a value of a query.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What is known of each group and version.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    groups: Mutex<HashMap<Arc<str>, Arc<OnceCell<Group>>>>,
}

#[derive(Debug)]
struct Group {
    asked: Instant,
    resources: HashMap<String, Arc<Resource>>,
}

/// Where the objects of one kind are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resource {
    /// "/api/v1", "/apis/apps/v1".
    root: String,
    /// "pods".
    plural: String,
    /// Whether objects live in namespaces.
    namespaced: bool,
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
    /// The resource behind a kind. `ask` gets the document at a path, None when the API server has none there.
    pub(crate) async fn resource<Answer: Future<Output = Result<Option<Bytes>, Failure>>>(
        &self,
        kind: &Kind,
        ask: impl Fn(String) -> Answer,
    ) -> Result<Arc<Resource>, Failure> {
        let cell = self.cell(&kind.api_version);
        let group = cell.get_or_try_init(|| Group::read(&kind.api_version, &ask)).await?;
        if let Some(resource) = group.resources.get(&*kind.kind) {
            return Ok(resource.clone());
        }
        if group.asked.elapsed() >= ASK_AGAIN_AFTER {
            self.forget_this(&kind.api_version, &cell);
            let cell = self.cell(&kind.api_version);
            let group = cell.get_or_try_init(|| Group::read(&kind.api_version, &ask)).await?;
            if let Some(resource) = group.resources.get(&*kind.kind) {
                return Ok(resource.clone());
            }
        }
        Err(Failure::NotServed(format!("the API server does not serve {kind}; is its CRD installed?")))
    }

    /// Forgets what is known of a group and version.
    pub(crate) fn forget(&self, api_version: &str) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).remove(api_version);
    }

    /// The cell of a group and version, which whoever comes first fills for all.
    fn cell(&self, api_version: &Arc<str>) -> Arc<OnceCell<Group>> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(api_version.clone()).or_default().clone()
    }

    /// Forgets one answer, unless another has already taken its place.
    fn forget_this(&self, api_version: &str, cell: &Arc<OnceCell<Group>>) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if groups.get(api_version).is_some_and(|known| Arc::ptr_eq(known, cell)) {
            groups.remove(api_version);
        }
    }
}

impl Group {
    async fn read<Answer: Future<Output = Result<Option<Bytes>, Failure>>>(
        api_version: &Arc<str>,
        ask: impl Fn(String) -> Answer,
    ) -> Result<Self, Failure> {
        let (root, asking) = (root(api_version), format!("asking for the resources of {api_version}"));
        let answer = ask(root.clone()).await.map_err(|failure| failure.during(&asking))?;
        // A group that is not served is an answer like any other: it has nothing.
        let Some(document) = answer else { return Ok(Self { asked: Instant::now(), resources: HashMap::new() }) };
        let list: ResourceList = serde_json::from_slice(&document)
            .map_err(|error| Failure::Lost(format!("the resources of {api_version} cannot be read: {error}")))?;
        Ok(Self { asked: Instant::now(), resources: resources(&root, api_version, list) })
    }
}

fn resources(root: &str, api_version: &Arc<str>, list: ResourceList) -> HashMap<String, Arc<Resource>> {
    let mut found = HashMap::new();
    // Names with a slash are subresources, whose kind may be that of another resource ("pods/eviction").
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

    /// The path of all objects, or of those of one namespace.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{}/namespaces/{}/{}", self.root, escape(namespace), self.plural)
            }
            _ => format!("{}/{}", self.root, self.plural),
        }
    }

    /// The path of the collection that an object is created in. A kind and a name that do not fit each other are
    /// refused here: "no name" and "no namespace" would address all objects at once.
    pub(crate) fn collection_of(&self, name: &Name) -> Result<String, Failure> {
        if name.name.is_empty() || name.name.contains('/') || matches!(&*name.name, "." | "..") {
            return Err(Failure::Invalid(format!("{} {:?}: that is no name of an object", self.kind, name.name)));
        }
        match (self.namespaced, name.namespace.is_empty()) {
            (true, true) => Err(Failure::Invalid(format!(
                "{} {name}: the kind lives in namespaces, so metadata.namespace has to say in which; a child has its \
                 owner's, when that has one",
                self.kind
            ))),
            (false, false) => Err(Failure::Invalid(format!(
                "{} {name}: the kind has no namespaces, so the object is in none; a child outside namespaces has an owner \
                 outside namespaces",
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
    fn a_name_that_would_address_something_else_is_refused() {
        let pod =
            resource(&Kind::new("v1", "Pod"), r#"{"resources":[{"name":"pods","kind":"Pod","namespaced":true}]}"#);
        for (namespace, name) in [("ns", ""), ("", "a"), ("ns", ".."), ("ns", "a/status")] {
            assert!(matches!(pod.object(&Name::new(namespace, name)), Err(Failure::Invalid(_))), "{namespace}/{name}");
        }
        assert_eq!(pod.object(&Name::new("n?s", "a#b")).unwrap(), "/api/v1/namespaces/n%3Fs/pods/a%23b");
    }

    /// An API server that serves `v1` without any resources and nothing else, and the number of requests that it had.
    async fn barren() -> (ApiServer, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let api = serve(move |asked| {
            count.fetch_add(1, Ordering::SeqCst);
            match &*asked.path {
                "/api/v1" => ("200 OK", r#"{"resources":[]}"#.to_owned()),
                _ => ("404 Not Found", String::new()),
            }
        });
        (api.await, requests)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_who_want_an_unknown_kind_ask_once_a_second_together() {
        let (api, requests) = barren().await;
        for kind in [Kind::new("v1", "Pod"), Kind::new("acme.example.com/v1", "Anvil")] {
            let all_ask = async || {
                let before = requests.load(Ordering::SeqCst);
                let asking = (0..50).map(|_| {
                    let (api, kind) = (api.clone(), kind.clone());
                    tokio::spawn(async move { api.resource(&kind).await })
                });
                for asked in asking.collect::<Vec<_>>() {
                    let failure = asked.await.unwrap().unwrap_err();
                    assert!(
                        matches!(&failure, Failure::NotServed(words) if words.contains(&kind.to_string())),
                        "{failure:?}"
                    );
                }
                requests.load(Ordering::SeqCst) - before
            };
            assert_eq!(all_ask().await, 1, "{kind}");
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
            assert_eq!(all_ask().await, 1, "{kind}, after a second");
        }
    }
}
