//! One round with `mortise cluster`: it starts, gets Pods over HTTP, which its nodes run, and serves lists and watches.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{PostParams, WatchEvent};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use mortise_control_plane::usage_of;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::load::{PAGE, PATH, PODS, Round, Sample, pod};
use crate::measure::median;
use crate::programs::Host;
use crate::table::Table;

/// Requests in flight.
const IN_FLIGHT: usize = 20;
/// A node has room for 110 Pods.
const NODES: usize = PODS / 100;
/// How long the nodes may take to run all Pods.
const RUNNING: Duration = Duration::from_secs(600);
const MIB: f64 = (1 << 20) as f64;

/// Anonymous memory of the server in bytes: of one that just started, with all Pods, and with all of them running.
pub(super) type Used = [f64; 3];

/// A Pod, as far as its phase is concerned.
#[derive(Clone, Deserialize)]
struct Phase {
    metadata: Named,
    status: Status,
}

#[derive(Clone, Deserialize)]
struct Named {
    name: String,
}

#[derive(Clone, Deserialize)]
struct Status {
    phase: String,
}

/// A server, ended when it is dropped.
struct Server {
    child: Child,
    client: Client,
}

pub(super) async fn round(host: &Host) -> Result<(Round, Used)> {
    let mut round = Round::new();
    let began = Instant::now();
    let one = Server::start(host, 1).await?;
    round.push(("start until it is ready", Sample::since(began, 1, 0)));
    let started = one.used()?;
    drop(one);
    let nodes = Server::start(host, 0).await?;
    round.push(("create", nodes.create().await?));
    let created = nodes.used()?;
    round.push(("list", nodes.list("").await?));
    round.push(("list a page", Sample { count: PAGE, ..nodes.list(&format!("limit={PAGE}")).await? }));
    round.push(("watch from the start", nodes.watch().await?));
    drop(nodes);
    let busy = Server::start(host, NODES).await?;
    busy.create_mounted().await?;
    round.push(("create while the nodes run them", busy.create().await?));
    round.push(("until all run", busy.running().await?));
    let used = [started, created, busy.used()?];
    Ok((round, used))
}

/// The memory of the rounds.
pub(super) fn memory(rounds: &[Used]) -> Table {
    let mut table = Table::new("Anonymous memory of the server", &["with", "whole", "for each Pod"]);
    let middle = |at: usize| median(rounds.iter().map(|used| used[at]).collect());
    let each = |at: usize| format!("{:.1} KiB", (middle(at) - middle(0)) / PODS as f64 / 1024.0);
    let whole = |at: usize| format!("{:.1} MiB", middle(at) / MIB);
    table.row(["no Pods".to_owned(), whole(0)]);
    table.row([format!("{PODS} Pods"), whole(1), each(1)]);
    table.row([format!("{PODS} running Pods"), whole(2), each(2)]);
    table
}

impl Server {
    async fn start(host: &Host, nodes: usize) -> Result<Self> {
        let folder = tempfile::tempdir().context("create a folder for the kubeconfig")?;
        let file = folder.path().join("kubeconfig");
        let mut command = Command::new(&host.program);
        command.args(["cluster", "--nodes", &nodes.to_string(), "--kubeconfig"]).arg(&file);
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().context("start `mortise cluster`")?;
        let output = child.stdout.take().context("read the output of `mortise cluster`")?;
        let line = BufReader::new(output).lines().next_line().await?;
        ensure!(line.is_some_and(|line| line.contains("ready")), "`mortise cluster` ended");
        let kubeconfig = Kubeconfig::read_from(&file).context("read the kubeconfig of `mortise cluster`")?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { child, client: Client::try_from(config)? })
    }

    fn used(&self) -> Result<f64> {
        let id = self.child.id().context("`mortise cluster` has ended")?;
        Ok(usage_of(id)?.anonymous_bytes as f64)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self) -> Result<Sample> {
        let pods = (0..PODS).map(|number| serde_json::from_value(pod(number))).collect::<Result<Vec<Pod>, _>>()?;
        let api = self.pods();
        let began = Instant::now();
        let create = |pod: Pod| {
            let api = &api;
            async move { api.create(&PostParams::default(), &pod).await.map(drop) }
        };
        stream::iter(pods.into_iter().map(create)).buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
        Ok(Sample::since(began, PODS, 0))
    }

    /// Creates what the Pods mount: without it no kubelet runs them.
    async fn create_mounted(&self) -> Result<()> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some("sample".to_owned());
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), "default");
        maps.create(&PostParams::default(), &map).await.context("create the ConfigMap of the Pods")?;
        Ok(())
    }

    async fn list(&self, query: &str) -> Result<Sample> {
        let began = Instant::now();
        let text = self.client.request_text(http::Request::get(format!("{PATH}?{query}")).body(Vec::new())?).await?;
        Ok(Sample::since(began, PODS, text.len()))
    }

    async fn watch(&self) -> Result<Sample> {
        let began = Instant::now();
        let request = http::Request::get(format!("{PATH}?watch=true")).body(Vec::new())?;
        let mut events = Box::pin(self.client.request_events::<IgnoredAny>(request).await?);
        for seen in 0..PODS {
            match events.try_next().await? {
                Some(WatchEvent::Added(_)) => {}
                _ => bail!("the watch ended after {seen} Pods"),
            }
        }
        Ok(Sample::since(began, PODS, 0))
    }

    /// Waits until every Pod runs, as a client that watches them sees it.
    async fn running(&self) -> Result<Sample> {
        let began = Instant::now();
        let mut running = BTreeSet::new();
        let watched = tokio::time::timeout(RUNNING, async {
            while running.len() < PODS {
                self.watch_running(&mut running).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
        match watched.await {
            Ok(done) => done.map(|()| Sample::since(began, PODS, 0)),
            Err(_) => bail!("{} of {PODS} Pods ran within {} s", running.len(), RUNNING.as_secs()),
        }
    }

    /// One watch from the start: until all run, or until it is too far behind.
    async fn watch_running(&self, running: &mut BTreeSet<String>) -> Result<()> {
        let request = http::Request::get(format!("{PATH}?watch=true")).body(Vec::new())?;
        let mut events = Box::pin(self.client.request_events::<Phase>(request).await?);
        while running.len() < PODS
            && let Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = events.try_next().await?
        {
            if pod.status.phase == "Running" {
                running.insert(pod.metadata.name);
            }
        }
        Ok(())
    }
}
