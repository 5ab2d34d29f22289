//! What is done after each test: whatever it may have created is deleted, and gone when the next one begins, except for
//! namespaces, whose names no other test uses. Input: a client, and the test's namespace. It must not know tests.
//!
//! With requests of its own, since a dozen runs of kubectl would take longer than many a test.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Error, ResourceExt};
use serde_json::{Value, json};

/// The namespace of the host that a test starts.
pub const HOST_NAMESPACE: &str = "mortise-system";
/// The label of Nodes and further Namespaces of a test, which are deleted with it.
pub const OF_A_TEST: &str = "mortise.dev/of-a-test=true";

/// Bound of the wait for what is deleted in the background.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const OF_MORTISE: &str = "app.kubernetes.io/managed-by=mortise";
/// The plugins' CRDs, not the host's own.
const OF_PLUGINS: &str = "app.kubernetes.io/managed-by=mortise,app.kubernetes.io/part-of!=mortise";

/// Objects of a kind, in a namespace or in all.
pub fn api(client: &Client, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    of(client, &ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)), namespace)
}

fn of(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

pub async fn all(client: &Client, namespace: &str) -> Result<()> {
    let every = |api_version, kind| api(client, api_version, kind, None);
    let definitions = every("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    // First, since they may refuse the other deletes.
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        delete(&every("admissionregistration.k8s.io/v1", kind), OF_MORTISE).await?;
    }
    delete(&api(client, "v1", "ConfigMap", Some(HOST_NAMESPACE)), "mortise.dev/plugin=true").await?;
    for definition in definitions.list(&ListParams::default().labels(OF_PLUGINS)).await? {
        release(client, &definition.data["spec"]).await?;
    }
    uncordon(&every("v1", "Node")).await?;
    delete(&definitions, OF_PLUGINS).await?;
    delete(&every("v1", "Node"), OF_A_TEST).await?;
    delete(&every("mortise.dev/v1alpha1", "Plugin"), "").await?;
    delete(&api(client, "coordination.k8s.io/v1", "Lease", Some(HOST_NAMESPACE)), "").await?;
    // Otherwise a plugin for Deployments would find them in the next test, in a terminating namespace.
    delete(&api(client, "apps/v1", "Deployment", Some(namespace)), "").await?;
    let namespaces = every("v1", "Namespace");
    let of_test = namespaces.list_metadata(&ListParams::default().labels(OF_A_TEST)).await?;
    let names = of_test.items.iter().map(ResourceExt::name_any).chain([namespace.to_owned()]);
    for name in names {
        found(namespaces.delete(&name, &DeleteParams::default()).await)?;
    }
    Ok(())
}

/// Deletes what a label selector selects, and waits until it is gone. A kind that is not served has no objects.
async fn delete(api: &Api<DynamicObject>, labels: &str) -> Result<()> {
    let (selected, began) = (ListParams::default().labels(labels), Instant::now());
    loop {
        // A webhook that was deleted is called for a moment longer, and may refuse.
        let deleted = found(api.delete_collection(&DeleteParams::default(), &selected).await);
        let left = found(api.list_metadata(&selected).await)?.map_or_else(Vec::new, |left| left.items);
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > DEADLINE {
            deleted.context("the last attempt to delete them")?;
            bail!("{} and {} more do not go away", left[0].name_any(), left.len() - 1);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Removes the finalizers of a CRD's objects.
async fn release(client: &Client, spec: &Value) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // The stored one needs no conversion.
    let stored = spec["versions"].as_array().into_iter().flatten().find(|version| version["storage"] == true);
    let version = stored.map(|version| text(&version["name"])).unwrap_or_default();
    let kind = GroupVersionKind::gvk(&text(&spec["group"]), &version, &text(&spec["names"]["kind"]));
    let resource = ApiResource::from_gvk_with_plural(&kind, &text(&spec["names"]["plural"]));
    let objects = found(of(client, &resource, None).list_metadata(&ListParams::default()).await)?;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for object in objects.into_iter().flatten().filter(|object| !object.finalizers().is_empty()) {
        let there = of(client, &resource, object.namespace().as_deref());
        found(there.patch_metadata(&object.name_any(), &PatchParams::default(), &none).await)?;
    }
    Ok(())
}

async fn uncordon(nodes: &Api<DynamicObject>) -> Result<()> {
    let none = Patch::Merge(json!({
        "metadata": {"annotations": {"maintenance.mortise.dev/cordoned-by": null}}, "spec": {"unschedulable": null},
    }));
    for node in nodes.list(&ListParams::default()).await? {
        if node.data["spec"]["unschedulable"] == true {
            found(nodes.patch(&node.name_any(), &PatchParams::default(), &none).await)?;
        }
    }
    Ok(())
}

/// A result; nothing if the object or the kind does not exist.
fn found<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}
