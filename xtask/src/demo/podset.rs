//! podset's demo: installs the plugin, runs, scales and heals its Pods, and replaces the plugin while it serves.

use anyhow::{Context, Result};

use super::cluster::{Cluster, LABEL, NAMESPACE};
use crate::checkout::Checkout;
use crate::guests;
use crate::terminal::headline;

const SAMPLE: &str = "podset/example-podset";

pub(super) fn run(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("Install a plugin: a WebAssembly component in a labelled ConfigMap");
    cluster.install(checkout, "podset", "podsets.app.example.com", "plugin labelled -> Ready")?;
    run_pods(checkout, cluster)?;
    scale(cluster)?;
    heal(cluster)?;
    reload(cluster, &checkout.shown(&guests::test_guest(checkout, "podset-next")).to_string())
}

fn run_pods(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("A PodSet of three replicas");
    let sample = cluster.sample(checkout, "podset")?;
    cluster.timed("PodSet applied -> 3 Pods running, in its status", || {
        cluster.kubectl(&["apply", "-f", &sample])?;
        wait_for_pods(cluster, 3, None)
    })?;
    show(cluster)
}

fn scale(cluster: &Cluster) -> Result<()> {
    headline("Scale to five, through the scale subresource");
    cluster.timed("scaled -> 5 Pods running, in its status", || {
        cluster.kubectl(&["scale", SAMPLE, "--replicas=5"])?;
        wait_for_pods(cluster, 5, None)
    })?;
    show(cluster)
}

fn heal(cluster: &Cluster) -> Result<()> {
    headline("A deleted Pod has a successor while it terminates");
    let pods = pods(cluster)?;
    let victim = pods.first().context("find a Pod to delete")?;
    cluster.timed("Pod deleted -> its successor runs", || {
        cluster.kubectl(&["delete", "pod", &victim.name, "--wait=false"])?;
        wait_for_pods(cluster, 5, Some(&victim.uid))
    })?;
    show(cluster)
}

fn reload(cluster: &Cluster, wasm: &str) -> Result<()> {
    headline("Replace the plugin while it serves, by a build with another condition message");
    let message = ["get", SAMPLE, "-o", r#"jsonpath={.status.conditions[?(@.type=="Ready")].message}{"\n"}"#];
    let digest = ["get", "plugin", "podset", "-o", r#"jsonpath={.status.digest}{"\n"}"#];
    let (old_message, old_digest) = (cluster.read(&message)?, cluster.read(&digest)?);
    cluster.kubectl(&digest)?;
    cluster.kubectl(&message)?;
    let file = format!("--from-file=plugin.wasm={wasm}");
    let create = ["create", "configmap", "podset", "--namespace", NAMESPACE, &file, "--dry-run=client", "-o", "yaml"];
    // `replace` overwrites labels, and without its label the plugin would be removed.
    let label = ["label", "--local", "-f", "-", LABEL, "-o", "yaml"];
    cluster.timed("ConfigMap replaced -> the new build's message", || {
        cluster.pipe(&[&create, &label, &["replace", "-f", "-"]])?;
        cluster.until("another digest of the plugin", || Ok(cluster.read(&digest)? != old_digest))?;
        cluster.until("the new build's message in the PodSet's status", || Ok(cluster.read(&message)? != old_message))
    })?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "plugin/podset", "--timeout=60s"])?;
    cluster.kubectl(&digest)?;
    cluster.kubectl(&message)?;
    cluster.kubectl(&["get", "plugin", "podset"])?;
    wait_for_pods(cluster, 5, None)?;
    show(cluster)
}

struct Pod {
    name: String,
    uid: String,
}

/// The Pods that run and are not being deleted.
fn pods(cluster: &Cluster) -> Result<Vec<Pod>> {
    let format = "jsonpath={range .items[?(@.status.phase==\"Running\")]}{.metadata.name} {.metadata.uid} {.metadata.deletionTimestamp}{\"\\n\"}{end}";
    let list = cluster.read(&["get", "pods", "-o", format])?;
    Ok(list.lines().filter_map(pod).collect())
}

/// Parses `NAME UID `, without a deletion timestamp.
fn pod(line: &str) -> Option<Pod> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [name, uid] => Some(Pod { name: name.to_owned(), uid: uid.to_owned() }),
        _ => None,
    }
}

/// Waits until `count` Pods run, none of them `gone`, and the status names exactly them.
fn wait_for_pods(cluster: &Cluster, count: usize, gone: Option<&str>) -> Result<()> {
    cluster.until(&format!("{count} running Pods in the PodSet's status"), || {
        let pods = pods(cluster)?;
        let status = cluster.read(&["get", SAMPLE, "-o", "jsonpath={.status.podNames[*]}"])?;
        let mut named = status.split_whitespace().collect::<Vec<_>>();
        let mut running = pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>();
        named.sort_unstable();
        running.sort_unstable();
        Ok(running.len() == count && running == named && pods.iter().all(|pod| Some(pod.uid.as_str()) != gone))
    })
}

fn show(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["get", "podsets,pods"])?;
    cluster.kubectl(&["get", SAMPLE, "-o", "jsonpath={.status.podNames}{\"\\n\"}"])
}
