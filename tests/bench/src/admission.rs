//! The latency of admission: AdmissionReviews as the API server sends them, over TLS on loopback, to a host that serves
//! mydaemonset. Without the API server's own share.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::measure::quantile;
use crate::operator::Operator;
use crate::programs::Host;
use crate::table::Table;

const PLUGIN: &str = "mydaemonset";
/// Reviews of each kind and concurrency per round. The 99th percentile needs some hundreds.
const REVIEWS: usize = 1_000;
/// One at a time, and as many as a busy API server sends.
const AT_ONCE: [usize; 2] = [1, 20];
const TARGET_MS: f64 = 5.0;
/// Ten times what it takes to write the webhook configurations.
const SERVED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

pub(crate) async fn run(host: &Host, rounds: usize) -> Result<()> {
    let cluster = Cluster::start(true).await?;
    let folder = tempfile::tempdir().context("create a folder for the plugin")?;
    fs::write(folder.path().join("mydaemonset.wasm"), host.plugin(PLUGIN)?).context("write mydaemonset.wasm")?;
    let running = Operator::mortise(&cluster, host, folder.path()).await?;
    let webhook = webhook(&cluster).await?;
    let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
    for round in 0..rounds {
        let cases = ["mutate", "validate"].into_iter().flat_map(|path| AT_ONCE.map(|at_once| (path, at_once)));
        for (case, (path, at_once)) in cases.enumerate() {
            let times = reviews(&webhook, path, at_once).await?;
            match round {
                0 => rows.push((format!("{path}, {at_once} at once"), times)),
                _ => rows[case].1.extend(times),
            }
        }
    }
    running.stop().await?;
    let title = format!(
        "AdmissionReviews by host {} on loopback, {} of each (p99: target {TARGET_MS} ms)",
        host.name,
        rounds * REVIEWS
    );
    let mut table = Table::new(title, &["from request to response", "p50", "p99", "max"]);
    for (name, times) in rows {
        let cell = |share| format!("{:.2} ms", quantile(times.clone(), share));
        table.row([name, cell(0.5), cell(0.99), cell(1.0)]);
    }
    print!("{table}");
    Ok(())
}

/// A client of the host's webhooks, with the CA bundle of their configuration.
async fn webhook(cluster: &Cluster) -> Result<Client> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration");
    let resource = ApiResource::from_gvk(&kind);
    let configurations: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
    let begin = Instant::now();
    let config = loop {
        if let Some(found) = configurations.get_opt("mortise-mydaemonset").await? {
            break found.data["webhooks"][0]["clientConfig"].clone();
        }
        ensure!(begin.elapsed() < SERVED, "the host did not write its webhook configuration within {SERVED:?}");
        tokio::time::sleep(POLL).await;
    };
    let url = config["url"].as_str().context("the webhook has no URL")?;
    let server = url.strip_suffix("/validate/mydaemonset").context("the webhook's URL has another path")?;
    let kubeconfig: Kubeconfig = serde_json::from_value(json!({
        "clusters": [{"name": "w", "cluster": {"server": server, "certificate-authority-data": config["caBundle"]}}],
        "users": [{"name": "w", "user": {}}],
        "contexts": [{"name": "w", "context": {"cluster": "w", "user": "w"}}],
        "current-context": "w",
    }))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The duration of each review, in milliseconds.
async fn reviews(webhook: &Client, path: &str, at_once: usize) -> Result<Vec<f64>> {
    let one = |number: usize| async move {
        let body = serde_json::to_vec(&review(number))?;
        let request = Request::post(format!("/{path}/{PLUGIN}?timeout=10s")).header("Content-Type", "application/json");
        let request = request.body(body)?;
        let begin = Instant::now();
        let response: Value = webhook.request(request).await.context("call the webhook")?;
        let elapsed = begin.elapsed();
        ensure!(response["response"]["allowed"] == true, "it refused: {response}");
        Ok(elapsed.as_secs_f64() * 1e3)
    };
    stream::iter(0..REVIEWS).map(one).buffer_unordered(at_once).try_collect().await
}

fn review(number: usize) -> Value {
    let name = format!("set-{number}");
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": format!("review-{number}"),
            "kind": {"group": "apps.zhongmingmao.io", "version": "v1beta1", "kind": "MyDaemonSet"},
            "resource": {"group": "apps.zhongmingmao.io", "version": "v1beta1", "resource": "mydaemonsets"},
            "name": name, "namespace": "default", "operation": "CREATE", "dryRun": false,
            "userInfo": {"username": "bench"}, "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
            "object": {
                "apiVersion": "apps.zhongmingmao.io/v1beta1", "kind": "MyDaemonSet",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"image": "nginx:stable-alpine3.17", "imagePullPolicy": "IfNotPresent"},
            },
            "oldObject": null,
        },
    })
}
