//! The cluster of a scenario: creates Nodes, Samples and the plugins' objects, and sends heartbeats and changes, as the
//! administrator, whom the API server does not throttle.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::Request;
use mortise_control_plane::node;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::reader::{self, Read};

/// Nodes of a cluster of medium size.
pub(super) const NODES: usize = 100;
/// Creates in flight: enough to keep an API server on two cores busy.
const IN_FLIGHT: usize = 24;
/// Time of the first heartbeat, in Unix seconds.
const FIRST_BEAT_S: i64 = 1_767_323_045;

/// Creates the Nodes and, if plugins read them, the kinds of Samples with a Sample each.
pub(super) async fn set_up(cluster: &Cluster, samples: bool) -> Result<()> {
    let nodes = (0..NODES).map(|number| node(&node_name(number))).collect::<Vec<_>>();
    cluster.plane.apply(&json!({"apiVersion": "v1", "kind": "List", "items": nodes}).to_string())?;
    for read in Read::SAMPLES.into_iter().filter(|_| samples) {
        let definition = reader::definition(&read.kind(), false);
        cluster.plane.apply(&definition.to_string())?;
        let name = format!("crd/{}", definition["metadata"]["name"].as_str().unwrap_or_default());
        cluster.plane.kubectl_output(&["wait", "--for=condition=Established", &name, "--timeout=60s"])?;
        let sample = json!({"apiVersion": read.kind().api_version, "kind": "Sample", "metadata": {"name": "sample"},
            "spec": {"unschedulable": false}, "beat": 0});
        cluster.plane.apply(&sample.to_string())?;
    }
    Ok(())
}

/// Creates this many objects of each plugin's kind.
pub(super) async fn create_objects(cluster: &Cluster, plugins: usize, objects: usize) -> Result<()> {
    let all = (0..objects).flat_map(|number| (0..plugins).map(move |plugin| (plugin, number)));
    let create = |(plugin, number)| async move {
        let path = format!("/apis/{}/namespaces/default/readers", reader::kind(plugin).api_version);
        let body = reader::object(plugin, number).to_string().into_bytes();
        let request = Request::new(path).create(&PostParams::default(), body).context("build a request")?;
        cluster.client.request_text(request).await.map(drop).with_context(|| format!("create object {number}"))
    };
    stream::iter(all).map(create).buffer_unordered(IN_FLIGHT).try_collect().await
}

/// Sets a new label on an object of a plugin's kind.
pub(super) async fn label_object(cluster: &Cluster, plugin: usize, number: usize, count: usize) -> Result<()> {
    let resource = reader::resource(&reader::kind(plugin));
    let api = Api::<DynamicObject>::namespaced_with(cluster.client.clone(), "default", &resource);
    let patch = json!({"metadata": {"labels": {"bench.test/count": count.to_string()}}});
    merge(&api, &format!("object-{number}"), patch).await
}

/// Changes a field that no query has.
pub(super) async fn beat(cluster: &Cluster, read: Read, count: usize) -> Result<()> {
    let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &read.resource());
    if read != Read::Node {
        return merge(&api, "sample", json!({"beat": count})).await;
    }
    let at = Timestamp::from_second(FIRST_BEAT_S + count as i64).context("compute the time")?.to_string();
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at});
    let patch = Patch::Merge(json!({"status": {"conditions": [ready]}}));
    let name = node_name(count % NODES);
    api.patch_status(&name, &PatchParams::default(), &patch).await.map(drop).with_context(|| format!("patch {name}"))
}

/// Changes a field of every query of this kind.
pub(super) async fn change(cluster: &Cluster, read: Read) -> Result<()> {
    let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &read.resource());
    let name = if read == Read::Node { node_name(0) } else { "sample".to_owned() };
    let object = api.get(&name).await.with_context(|| format!("read {name}"))?;
    let is_set = object.data["spec"]["unschedulable"] == true;
    merge(&api, &name, json!({"spec": {"unschedulable": !is_set}})).await
}

pub(super) async fn merge(api: &Api<DynamicObject>, name: &str, patch: Value) -> Result<()> {
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).with_context(|| format!("patch {name}"))
}

fn node_name(number: usize) -> String {
    format!("node-{number}")
}
