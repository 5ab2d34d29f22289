//! `cargo xtask demo`: what mortise is, told by kubectl on a real control plane. Each kubectl command is shown as it is
//! typed, with its own output; every wait is on a condition with a deadline. This file is the story; `stage` is what it is
//! played on.

mod stage;

use std::fs;

use anyhow::{Context, Result};

use crate::checkout::Checkout;
use crate::guests;
use crate::terminal::headline;

use stage::{NAMESPACE, Stage};

/// What becomes of the control plane and the host when the story has been told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// They end.
    End,
    /// They stay until Ctrl-C.
    Keep,
}

/// The label that makes a ConfigMap in the host's namespace a plugin.
const LABEL: &str = "mortise.dev/plugin=true";

/// The plugin's sample, and the PodSet in it.
const SAMPLE_FILE: &str = "plugins/podset/sample.yaml";
const SAMPLE: &str = "podset/example-podset";

/// Builds what is missing, and tells the story. On a failure the end of the host's log is shown, and all logs are kept.
pub(crate) fn run(checkout: &Checkout, after: After) -> Result<()> {
    headline("Building the plugins and the host");
    guests::build(checkout)?;
    let host = checkout.build_host()?;
    let stage = Stage::open(checkout, &host)?;
    match tell(checkout, &stage) {
        Ok(()) => stage.close(after),
        Err(error) => Err(stage.fail(error)),
    }
}

fn tell(checkout: &Checkout, stage: &Stage) -> Result<()> {
    plugin_arrives(stage, &checkout.shown(&guests::plugin(checkout, "podset")).to_string())?;
    pods_run(checkout, stage)?;
    scale(stage)?;
    heal(stage)?;
    reload(stage, &checkout.shown(&guests::test_guest(checkout, "podset-next")).to_string())
}

fn plugin_arrives(stage: &Stage, wasm: &str) -> Result<()> {
    headline("A plugin arrives: a WebAssembly component in a labelled ConfigMap");
    let file = format!("--from-file=plugin.wasm={wasm}");
    stage.kubectl(&["create", "configmap", "podset", "--namespace", NAMESPACE, &file])?;
    stage.timed("plugin labelled -> Ready", || {
        stage.kubectl(&["label", "configmap", "podset", "--namespace", NAMESPACE, LABEL])?;
        stage.until("the host to report the plugin", || Ok(stage.ask(&["get", "plugin", "podset"]).is_ok()))?;
        stage.kubectl(&["wait", "--for=condition=Ready", "plugin/podset", "--timeout=60s"])
    })?;
    stage.kubectl(&["get", "plugin", "podset"])?;
    stage.kubectl(&["get", "crd", "podsets.app.example.com"])
}

fn pods_run(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("A PodSet of three replicas");
    let sample = fs::read_to_string(checkout.path(SAMPLE_FILE)).with_context(|| format!("read {SAMPLE_FILE}"))?;
    println!("{}", sample.trim());
    stage.timed("PodSet applied -> 3 Pods running, in its status", || {
        stage.kubectl(&["apply", "-f", SAMPLE_FILE])?;
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
