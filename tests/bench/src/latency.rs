//! The latency from an event to the write that follows it, on a real control plane.
//!
//! PodSets are scaled by one, one step at a time, with nothing else going on. Two clocks start for each step: when the
//! API server received the scale request (audit log), and when its watch event arrived at an independent watcher, which
//! gets it at the same moment as mortise. Both stop when the API server received mortise's first write of a Pod (audit
//! log). All times are one machine's. The second figure is mortise's own share: read, decode and index the event, wake
//! the key, call the guest, plan, send the request and have its head read.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use futures::AsyncBufReadExt;
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, received_ms, set_name};
use crate::measure::quantile;
use crate::observer::{Observer, World};
use crate::operator::{Operator, Which};
use crate::programs::Host;
use crate::sample;
use crate::table::Table;

const SETS: usize = 50;
const REPLICAS: usize = 3;
/// Steps per round. The 99th percentile needs some hundreds.
const STEPS: usize = 200;

pub(crate) async fn run(host: &Host, rounds: usize) -> Result<()> {
    let cluster = Cluster::start(false).await?;
    let folder = tempfile::tempdir().context("create a folder for the plugin")?;
    fs::write(folder.path().join("podset.wasm"), host.plugin("podset")?).context("write podset.wasm")?;
    let running = Operator::mortise(&cluster, host, folder.path()).await?;
    let namespace = "bench-latency";
    cluster.create_namespace(namespace).await?;
    let observer = Observer::start(&cluster, namespace);
    cluster.create_pod_sets(namespace, SETS, REPLICAS, &sample::template()).await?;
    observer.until("every PodSet to have its Pods", |world| world.has_converged(SETS) && world.runs()).await?;
    running.quiet().await?;

    let (mut from_request, mut from_event) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        // A round is much shorter than kube's watches, which end after 290 s.
        let arrivals = Arrivals::start(&cluster, namespace).await?;
        for step in 0..STEPS {
            let (set, replicas) = (set_name(step / 2 % SETS), if step % 2 == 0 { REPLICAS + 1 } else { REPLICAS });
            let audit = cluster.audit_mark()?;
            cluster.scale(namespace, &set, replicas).await?;
            let done =
                |world: &World| world.replicas(&set) == Some(replicas) && world.has_converged(SETS) && world.runs();
            observer.until(&format!("PodSet {set} to have {replicas} Pods"), done).await?;
            let (request, write) = times(&cluster, audit, namespace)?;
            let event =
                arrivals.of(&set, replicas).with_context(|| format!("the event of PodSet {set} did not arrive"))?;
            from_request.push(write - request);
            from_event.push(write - event);
        }
    }
    running.stop().await?;
    let title = format!(
        "From an event to the write of host {} that follows it, {} steps one by one on a real control plane",
        host.name,
        rounds * STEPS
    );
    let mut table = Table::new(title, &["from ... to mortise's write at the API server", "p50", "p99", "max"]);
    for (name, values) in [
        ("the scale request at the API server", from_request),
        ("its watch event at an independent watcher", from_event),
    ] {
        let cell = |share| format!("{:.2} ms", quantile(values.clone(), share));
        table.row([name.to_owned(), cell(0.5), cell(0.99), cell(1.0)]);
    }
    print!("{table}");
    Ok(())
}

/// When the API server received the newest scale request, and mortise's first write of a Pod after it.
fn times(cluster: &Cluster, audit: u64, namespace: &str) -> Result<(f64, f64)> {
    let records = cluster.requests_since(audit)?;
    let here = || records.iter().filter(|record| record.namespace == namespace && record.is_write());
    let own = |user: &str| user == Which::Mortise.user();
    let request =
        here().find(|record| record.resource == "podsets" && record.subresource.is_empty() && !own(&record.user));
    let mut writes = here().filter(|record| record.resource == "pods" && own(&record.user));
    let request = received_ms(request.context("the audit log does not have the scale request")?)?;
    let write = received_ms(writes.next().context("the audit log does not have mortise's write")?)?;
    ensure!(write > request, "the write was received before its scale request");
    Ok((request, write))
}

/// When each state of a PodSet arrived at an independent watcher, in Unix milliseconds, taken before the event is
/// parsed.
struct Arrivals {
    seen: Arc<Mutex<BTreeMap<(String, usize), f64>>>,
    task: JoinHandle<Result<()>>,
}

impl Arrivals {
    async fn start(cluster: &Cluster, namespace: &str) -> Result<Self> {
        let version = cluster.pod_sets(namespace).list(&ListParams::default()).await?.metadata.resource_version;
        let path = format!("/apis/app.example.com/v1alpha1/namespaces/{namespace}/podsets");
        let params = WatchParams::default().disable_bookmarks();
        let request = Request::new(path).watch(&params, &version.unwrap_or_default())?;
        let mut lines = Box::pin(cluster.client.request_stream(request).await.context("watch PodSets")?);
        let seen = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let kept = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut line = String::new();
            while lines.read_line(&mut line).await? > 0 {
                let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as f64 / 1e3;
                let event: Value = serde_json::from_str(&line)?;
                line.clear();
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let replicas = event["object"]["spec"]["replicas"].as_u64().unwrap_or_default() as usize;
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                // Only the last state matters, and its first event: later ones repeat it with another status.
                kept.retain(|(other, count), _| *other != name || *count == replicas);
                kept.entry((name, replicas)).or_insert(now_ms);
            }
            Ok(())
        });
        Ok(Self { seen, task })
    }

    fn of(&self, set: &str, replicas: usize) -> Option<f64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&(set.to_owned(), replicas)).copied()
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.task.abort();
    }
}
