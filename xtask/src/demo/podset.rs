//! podset's story: a plugin arrives, its Pods run, are scaled and healed, and it is replaced while it serves.

use anyhow::{Context, Result};

use super::stage::{LABEL, NAMESPACE, Stage};
use crate::checkout::Checkout;
use crate::guests;
use crate::terminal::headline;

/// The PodSet of the sample.
const SAMPLE: &str = "podset/example-podset";

pub(super) fn tell(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("A plugin arrives: a WebAssembly component in a labelled ConfigMap");
    stage.arrives(checkout, "podset", "podsets.app.example.com", "plugin labelled -> Ready")?;
    pods_run(checkout, stage)?;
    scale(stage)?;
    heal(stage)?;
    reload(stage, &checkout.shown(&guests::test_guest(checkout, "podset-next")).to_string())
}

fn pods_run(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("A PodSet of three replicas");
    let sample = stage.sample(checkout, "podset")?;
    stage.timed("PodSet applied -> 3 Pods running, in its status", || {
        stage.kubectl(&["apply", "-f", &sample])?;
        wait_for_pods(stage, 3, None)
    })?;
    show(stage)
}

fn scale(stage: &Stage) -> Result<()> {
    headline("Scaled to five, through the scale subresource");
    stage.timed("scaled -> 5 Pods running, in its status", || {
        stage.kubectl(&["scale", SAMPLE, "--replicas=5"])?;
        wait_for_pods(stage, 5, None)
    })?;
    show(stage)
}

fn heal(stage: &Stage) -> Result<()> {
    headline("A Pod is deleted, and replaced");
    let pods = pods(stage)?;
    let victim = pods.first().context("find a Pod to delete")?;
    stage.timed("Pod deleted -> replaced and running", || {
        stage.kubectl(&["delete", "pod", &victim.name, "--wait=false"])?;
        wait_for_pods(stage, 5, Some(&victim.uid))
    })?;
    show(stage)
}

fn reload(stage: &Stage, wasm: &str) -> Result<()> {
    headline("The plugin is replaced by a changed build, which words its condition differently, while it serves");
    let says = ["get", SAMPLE, "-o", r#"jsonpath={.status.conditions[?(@.type=="Ready")].message}{"\n"}"#];
    let digest = ["get", "plugin", "podset", "-o", r#"jsonpath={.status.digest}{"\n"}"#];
    let (old_words, old_digest) = (stage.ask(&says)?, stage.ask(&digest)?);
    stage.kubectl(&digest)?;
    stage.kubectl(&says)?;
    let file = format!("--from-file=plugin.wasm={wasm}");
    let create = ["create", "configmap", "podset", "--namespace", NAMESPACE, &file, "--dry-run=client", "-o", "yaml"];
    // `replace` takes the object as it is given, so the label is put on again on the way; without it the plugin would go.
    let label = ["label", "--local", "-f", "-", LABEL, "-o", "yaml"];
    stage.timed("ConfigMap replaced -> the new build's words", || {
        stage.pipe(&[&create, &label, &["replace", "-f", "-"]])?;
        stage.until("another digest of the plugin", || Ok(stage.ask(&digest)? != old_digest))?;
        stage.until("the new build's words in the PodSet's status", || Ok(stage.ask(&says)? != old_words))
    })?;
    stage.kubectl(&["wait", "--for=condition=Ready", "plugin/podset", "--timeout=60s"])?;
    stage.kubectl(&digest)?;
    stage.kubectl(&says)?;
    stage.kubectl(&["get", "plugin", "podset"])?;
    wait_for_pods(stage, 5, None)?;
    show(stage)
}

struct Pod {
    name: String,
    uid: String,
}

/// The Pods that run and are not about to go.
fn pods(stage: &Stage) -> Result<Vec<Pod>> {
    let format = "jsonpath={range .items[?(@.status.phase==\"Running\")]}{.metadata.name} {.metadata.uid} {.metadata.deletionTimestamp}{\"\\n\"}{end}";
    let list = stage.ask(&["get", "pods", "-o", format])?;
    Ok(list.lines().filter_map(pod).collect())
}

/// From `NAME UID ` with nothing behind it.
fn pod(line: &str) -> Option<Pod> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [name, uid] => Some(Pod { name: name.to_owned(), uid: uid.to_owned() }),
        _ => None,
    }
}

/// Waits until `count` Pods run, `gone` is none of them, and the status names exactly them.
fn wait_for_pods(stage: &Stage, count: usize, gone: Option<&str>) -> Result<()> {
    stage.until(&format!("{count} running Pods in the PodSet's status"), || {
        let pods = pods(stage)?;
        let status = stage.ask(&["get", SAMPLE, "-o", "jsonpath={.status.podNames[*]}"])?;
        let mut named = status.split_whitespace().collect::<Vec<_>>();
        let mut running = pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>();
        named.sort_unstable();
        running.sort_unstable();
        Ok(running.len() == count && running == named && pods.iter().all(|pod| Some(pod.uid.as_str()) != gone))
    })
}

fn show(stage: &Stage) -> Result<()> {
    stage.kubectl(&["get", "podsets,pods"])?;
    stage.kubectl(&["get", SAMPLE, "-o", "jsonpath={.status.podNames}{\"\\n\"}"])
}
