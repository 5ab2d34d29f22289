//! Applies samples, and asks for a reconcile. Input: files and objects. Output: requests to the API server. It must not know
//! when.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Client, discovery};
use mortise_core::object::ObjectRef;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Who applies samples, for managed fields.
const MANAGER: &str = "mortise-dev";
/// How long a sample waits for its kind: the definition of a new plugin is there within a second or two.
const WAIT: Duration = Duration::from_secs(20);
/// How often it looks.
const POLL: Duration = Duration::from_millis(50);
/// The annotation that a person's wish to reconcile changes.
const ASKED: &str = "dev.mortise.dev/asked-at";

/// Applies every object of a file; says what they are.
pub(crate) async fn apply(client: &Client, file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is no YAML", file.display()))?;
    let mut applied = Vec::new();
    for object in documents.into_iter().filter(|document| !document.is_null()) {
        let meta: TypeMeta =
            serde_json::from_value(object.clone()).context("an object needs an apiVersion and a kind")?;
        let kind = GroupVersionKind::try_from(&meta).context("an object needs an apiVersion and a kind")?;
        let name = object["metadata"]["name"].as_str().context("an object needs a name")?.to_owned();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let api = api(client, &kind, &namespace).await?;
        let params = PatchParams::apply(MANAGER).force();
        let stored = api.patch(&name, &params, &Patch::Apply(&object)).await;
        let stored = stored.with_context(|| format!("{} {name}", kind.kind))?;
        let within = stored.metadata.namespace.map(|namespace| namespace + "/").unwrap_or_default();
        applied.push(format!("{} {within}{name}", kind.kind));
    }
    Ok(applied.join(", "))
}

/// Makes the namespace of the host's plugins, if it is not there.
pub(crate) async fn ensure_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let params = PatchParams::apply(MANAGER);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    api.patch(name, &params, &Patch::Apply(&namespace))
        .await
        .with_context(|| format!("making the namespace {name}"))?;
    Ok(())
}

/// The API of a kind, as soon as the API server serves it.
pub(crate) async fn api(
    client: &Client,
    kind: &GroupVersionKind,
    namespace: &str,
) -> anyhow::Result<Api<DynamicObject>> {
    let deadline = Instant::now() + WAIT;
    loop {
        match discovery::pinned_kind(client, kind).await {
            Ok((resource, capabilities)) if capabilities.scope == discovery::Scope::Namespaced => {
                return Ok(Api::namespaced_with(client.clone(), namespace, &resource));
            }
            Ok((resource, _)) => return Ok(Api::all_with(client.clone(), &resource)),
            Err(error) if Instant::now() >= deadline => {
                bail!("the API server does not serve {}/{} {}: {error}", kind.group, kind.version, kind.kind)
            }
            Err(_) => sleep(POLL).await,
        }
    }
}

/// Changes an annotation of an object, which wakes it.
pub(crate) async fn ask_for_reconcile(client: &Client, object: &ObjectRef, at: String) -> anyhow::Result<()> {
    let meta = TypeMeta { api_version: object.kind.api_version.to_string(), kind: object.kind.kind.to_string() };
    let kind = GroupVersionKind::try_from(&meta).context("the kind has no version")?;
    let api = api(client, &kind, &object.name.namespace).await?;
    let patch = json!({"metadata": {"annotations": {ASKED: at}}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(&object.name.name, &params, &Patch::Merge(&patch))
        .await
        .with_context(|| format!("asking for {object}"))?;
    Ok(())
}
