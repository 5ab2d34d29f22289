//! An operator under measurement: mortise with podset, or the same with kube-rs. Starts it, waits for it, reads its
//! usage, and ends it.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mortise_control_plane::{Process, Usage, usage_of};

use crate::cluster::{Cluster, until};
use crate::metrics::Metrics;
use crate::programs::Host;

/// Ten times what a start without compiling takes.
const READY: Duration = Duration::from_secs(60);
/// Five times what it takes to compile one more plugin.
const READY_PER_PLUGIN: Duration = Duration::from_millis(1_500);
/// The host finishes its writes for 10 s at most.
const ENDED: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// A process is idle if it used no more than a tick of CPU time for this long.
const QUIET: Duration = Duration::from_secs(2);
/// One clock tick, the precision of CPU times.
const TICK: Duration = Duration::from_millis(10);
const QUIET_DEADLINE: Duration = Duration::from_secs(120);
/// Bound of a scrape: the metrics of a thousand plugins have about 10 MB.
const SCRAPED: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Which {
    Mortise,
    KubeRs,
}

impl Which {
    pub(crate) const ALL: [Self; 2] = [Self::Mortise, Self::KubeRs];

    /// Its user at the API server.
    pub(crate) fn user(self) -> &'static str {
        match self {
            Self::Mortise => "mortise",
            Self::KubeRs => "kube-rs",
        }
    }
}
pub(crate) struct Operator {
    process: Process,
    /// mortise's endpoints.
    served: Option<Served>,
    /// The number of plugins that must serve before it is ready.
    plugins: usize,
}

#[derive(Clone, Copy, Debug)]
struct Served {
    probes: SocketAddr,
    metrics: SocketAddr,
}

impl Operator {
    /// Starts mortise with every component of a folder. Each host has a cache of compiled plugins in the control
    /// plane's folder, so only the first start compiles a component.
    pub(crate) async fn mortise(cluster: &Cluster, host: &Host, plugin_dir: &Path) -> Result<Self> {
        let files = fs::read_dir(plugin_dir).with_context(|| format!("list {}", plugin_dir.display()))?;
        let is_plugin = |file: &fs::DirEntry| file.path().extension() == Some(OsStr::new("wasm"));
        let plugins = files.flatten().filter(is_plugin).count();
        let [probes, metrics, webhook] = free_addresses()?;
        let mut command = Command::new(&host.program);
        command
            .args(["run", "--namespace", "default", "--log-level", "info"])
            .arg("--kubeconfig")
            .arg(cluster.plane.kubeconfig(Which::Mortise.user())?)
            .arg("--plugin-dir")
            .arg(plugin_dir)
            .arg("--cache-dir")
            .arg(cluster.plane.dir().join(format!("mortise-cache-{}", host.name)))
            .args(["--metrics-bind-address", &metrics.to_string()])
            .args(["--health-probe-bind-address", &probes.to_string()])
            .args(["--webhook-port", &webhook.port().to_string()]);
        let process = cluster.plane.spawn("mortise", command)?;
        Self { process, served: Some(Served { probes, metrics }), plugins }.ready(0).await
    }

    pub(crate) async fn kube_rs(cluster: &Cluster, program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", cluster.plane.kubeconfig(Which::KubeRs.user())?);
        // Starts append to the log, and an earlier one has logged that it is ready.
        let log = cluster.plane.logs().join("kube-rs.log");
        let before = fs::metadata(log).map_or(0, |metadata| metadata.len() as usize);
        let process = cluster.plane.spawn("kube-rs", command)?;
        Self { process, served: None, plugins: 0 }.ready(before).await
    }

    async fn ready(mut self, log_offset: usize) -> Result<Self> {
        let deadline = READY + READY_PER_PLUGIN * self.plugins as u32;
        // The readiness response for a thousand plugins takes the host a millisecond, which would distort the
        // measurement.
        let poll = POLL * (1 + self.plugins as u32 / 100);
        until("the operator to be ready", deadline, poll, || {
            if let Some(status) = self.process.ended()? {
                bail!("it has ended ({status}); the end of its log:\n{}", self.process.tail());
            }
            let ready = match self.served {
                Some(served) => readiness(served.probes).is_some_and(|text| serves(&text, self.plugins)),
                None => fs::read_to_string(self.process.log())?[log_offset..].contains("the cache of Pods is filled"),
            };
            Ok(ready.then_some(()))
        })
        .await
        .with_context(|| format!("the end of its log:\n{}", self.process.tail()))?;
        Ok(self)
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        usage_of(self.process.pid())
    }

    /// Its metrics; only mortise has them.
    pub(crate) fn metrics(&self) -> Result<Metrics> {
        let served = self.served.context("this operator has no metrics")?;
        let (_, text) = get(served.metrics, "/metrics", SCRAPED).context("read the host's metrics")?;
        Ok(Metrics(text))
    }

    /// Waits until it is idle, and returns its usage so far.
    pub(crate) async fn quiet(&self) -> Result<Usage> {
        self.quiet_within(QUIET_DEADLINE, TICK).await
    }

    /// The same with another deadline, and for a host that takes up to `idle` of CPU time when idle.
    pub(crate) async fn quiet_within(&self, deadline: Duration, idle: Duration) -> Result<Usage> {
        let mut since = (self.usage()?, tokio::time::Instant::now());
        until("the operator to be quiet", deadline, POLL, || {
            let usage = self.usage()?;
            if usage.cpu > since.0.cpu + idle {
                since = (usage, tokio::time::Instant::now());
            }
            Ok((since.1.elapsed() >= QUIET).then_some(usage))
        })
        .await
    }

    /// Sends SIGTERM, and waits for the end.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.process.terminate()?;
        until("the operator to end", ENDED, POLL, || Ok(self.process.ended()?.map(drop))).await
    }
}

/// Three free ports for the host, taken at once so that they differ.
fn free_addresses() -> Result<[SocketAddr; 3]> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held = [free()?, free()?, free()?];
    Ok([held[0].local_addr()?, held[1].local_addr()?, held[2].local_addr()?])
}

/// The text of `/readyz?verbose`, once the host is ready.
fn readiness(probes: SocketAddr) -> Option<String> {
    let (head, body) = get(probes, "/readyz?verbose", Duration::from_secs(1)).ok()?;
    head.lines().next()?.contains(" 200 ").then_some(body)
}

/// The head and the body of a response.
fn get(address: SocketAddr, path: &str, deadline: Duration) -> Result<(String, String)> {
    let mut stream = TcpStream::connect_timeout(&address, POLL)?;
    stream.set_read_timeout(Some(deadline))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("the response has no body")?;
    Ok((head.to_owned(), body.to_owned()))
}

fn serves(text: &str, plugins: usize) -> bool {
    text.lines().filter(|line| line.starts_with("[+]plugin/")).count() == plugins
}

#[cfg(test)]
mod tests {
    use super::serves;

    #[test]
    fn only_serving_plugins_count() {
        let text = "HTTP/1.0 200 OK\r\n\r\n[+]sources ok\n[+]plugin/a ok\n[-]plugin/b failed: Compiling: wait\n";
        assert!(serves(text, 1));
        assert!(!serves(text, 2));
    }
}
