//! A copy of what plugins read in a cluster. Input: a kubeconfig, and kinds with their scopes. Output: objects. It reads, and
//! must not write.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Client, discovery};
use mortise_core::object::{Kind, Name, ObjectRef};
use mortise_core::pages::Tokens;
use mortise_core::scope::Scope;
use serde_json::Value;
use tokio::runtime::Builder;

use crate::session;

/// How many objects a list gets at a time, as kubectl does.
const PAGE: u32 = 500;

/// Objects of a cluster as they were when they were read.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    objects: BTreeMap<ObjectRef, Value>,
}

impl Copied {
    /// Reads the objects of these kinds, and all namespaces and definitions, from the cluster of a kubeconfig. A kind that is
    /// not served there has none.
    ///
    /// # Errors
    /// A cluster that cannot be reached, or a kind that may not be listed.
    pub fn read(kubeconfig: &Path, kinds: impl IntoIterator<Item = (Kind, Scope)>) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("starting I/O")?;
        runtime.block_on(async {
            let client = session::client(kubeconfig).await?;
            let mut copy = Self::default();
            for kind in [Kind::new("v1", "Namespace"), Kind::new("apiextensions.k8s.io/v1", "CustomResourceDefinition")]
            {
                copy.add(&client, &kind, &Scope::default()).await?;
            }
            for (kind, scope) in kinds {
                copy.add(&client, &kind, &scope).await?;
            }
            Ok(copy)
        })
    }

    /// The objects, for a cluster that begins with them.
    pub fn objects(&self) -> Vec<Value> {
        self.objects.values().cloned().collect()
    }

    pub(super) fn get(&self, object: &ObjectRef) -> Option<&Value> {
        self.objects.get(object)
    }

    async fn add(&mut self, client: &Client, kind: &Kind, scope: &Scope) -> anyhow::Result<()> {
        let (group, version) = kind.api_version.split_once('/').unwrap_or(("", &kind.api_version));
        let wanted = GroupVersionKind::gvk(group, version, &kind.kind);
        // A kind that the plugin itself brings may not be there yet.
        let Some(resource) = served(client, &wanted).await? else { return Ok(()) };
        for place in scope.places() {
            let api: Api<DynamicObject> = match &place {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            let mut page = ListParams::default().limit(PAGE);
            page.label_selector = scope.labels_text().map(|labels| labels.to_string());
            let mut tokens = Tokens::default();
            loop {
                let list = api.list(&page).await.with_context(|| format!("cannot list {kind}"))?;
                let token = list.metadata.continue_.unwrap_or_default();
                page.continue_token =
                    tokens.next(&resource.plural, &token, list.items.len()).map_err(anyhow::Error::msg)?;
                for object in list.items {
                    self.put(kind, object)?;
                }
                if page.continue_token.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, kind: &Kind, object: DynamicObject) -> anyhow::Result<()> {
        let metadata = &object.metadata;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let name = Name::new(&text(&metadata.namespace), &text(&metadata.name));
        let mut value = serde_json::to_value(&object).context("reading an object")?;
        value["apiVersion"] = (*kind.api_version).into();
        value["kind"] = (*kind.kind).into();
        self.objects.insert(ObjectRef { kind: kind.clone(), name }, value);
        Ok(())
    }
}

/// How a kind is served; none if it is not.
async fn served(client: &Client, kind: &GroupVersionKind) -> anyhow::Result<Option<ApiResource>> {
    match discovery::pinned_kind(client, kind).await {
        Ok((resource, _)) => Ok(Some(resource)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot find out how {} is served", kind.kind)),
    }
}
