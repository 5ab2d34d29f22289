//! An operator under measurement: mortise with podset, or the same with kube-rs. Started, waited for, asked what it has
//! used, and ended; what it does is not looked at here.

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
/// Five times what one more plugin takes that has to be compiled.
const READY_PER_PLUGIN: Duration = Duration::from_millis(1_500);
/// The host finishes its writes for 10 s at most.
const ENDED: Duration = Duration::from_secs(20);
/// How often a process is looked at.
const POLL: Duration = Duration::from_millis(50);
/// A process that has used so little for so long has nothing left to do.
const QUIET: Duration = Duration::from_secs(2);
/// One clock tick, which is what reading the time at the wrong moment looks like.
const TICK: Duration = Duration::from_millis(10);
/// Longest that one takes to get there.
const QUIET_DEADLINE: Duration = Duration::from_secs(120);
/// Longest that a host takes to write out its metrics, of which a thousand plugins have some 10 MB.
const SCRAPED: Duration = Duration::from_secs(30);

/// Which operator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Which {
    Mortise,
    KubeRs,
}

impl Which {
    pub(crate) const ALL: [Self; 2] = [Self::Mortise, Self::KubeRs];

    /// As whom it speaks to the API server.
    pub(crate) fn user(self) -> &'static str {
        match self {
            Self::Mortise => "mortise",
            Self::KubeRs => "kube-rs",
        }
    }
}

/// A running operator.
#[derive(Debug)]
pub(crate) struct Operator {
    process: Process,
    /// Where mortise answers.
    served: Option<Served>,
    /// Plugins that have to serve before it counts as ready.
    plugins: usize,
}

#[derive(Clone, Copy, Debug)]
struct Served {
    probes: SocketAddr,
    metrics: SocketAddr,
}

impl Operator {
    /// Starts mortise with every component of a folder. Compiled ones are kept in a folder of the control plane that each
    /// host has of its own, so only the first start with a component compiles it.
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

    /// Starts the operator that is written with kube-rs.
    pub(crate) async fn kube_rs(cluster: &Cluster, program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", cluster.plane.kubeconfig(Which::KubeRs.user())?);
        // Logs are appended to, and an earlier start has said what is waited for.
        let log = cluster.plane.logs().join("kube-rs.log");
        let before = fs::metadata(log).map_or(0, |metadata| metadata.len() as usize);
        let process = cluster.plane.spawn("kube-rs", command)?;
        Self { process, served: None, plugins: 0 }.ready(before).await
    }

    async fn ready(mut self, log_offset: usize) -> Result<Self> {
        let deadline = READY + READY_PER_PLUGIN * self.plugins as u32;
        // Of a thousand plugins an answer takes the host a millisecond, which is not to show in what a start takes.
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

    /// What it has used so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        usage_of(self.process.pid())
    }

    /// What it has counted so far; only of mortise.
    pub(crate) fn metrics(&self) -> Result<Metrics> {
        let served = self.served.context("this operator has no metrics")?;
        let (_, text) = get(served.metrics, "/metrics", SCRAPED).context("read the host's metrics")?;
        Ok(Metrics(text))
    }

    /// Waits until it does nothing any more, and returns what it has used until then.
    pub(crate) async fn quiet(&self) -> Result<Usage> {
        self.quiet_within(QUIET_DEADLINE, TICK).await
    }

    /// The same with another deadline, and for a host that spends up to `idle` on standing by.
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

    /// Ends it as a cluster would, and waits until it is gone.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.process.terminate()?;
        until("the operator to end", ENDED, POLL, || Ok(self.process.ended()?.map(drop))).await
    }
}

/// Three that are free at this moment: the host is the next to ask for a port. All are held at once, so that they differ.
fn free_addresses() -> Result<[SocketAddr; 3]> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held = [free()?, free()?, free()?];
    Ok([held[0].local_addr()?, held[1].local_addr()?, held[2].local_addr()?])
}

/// The text of `/readyz?verbose`, once the host answers that it is ready.
fn readiness(probes: SocketAddr) -> Option<String> {
    let (head, body) = get(probes, "/readyz?verbose", Duration::from_secs(1)).ok()?;
    head.lines().next()?.contains(" 200 ").then_some(body)
}

/// The head and the body of an answer.
fn get(address: SocketAddr, path: &str, deadline: Duration) -> Result<(String, String)> {
    let mut stream = TcpStream::connect_timeout(&address, POLL)?;
    stream.set_read_timeout(Some(deadline))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("the answer has no body")?;
    Ok((head.to_owned(), body.to_owned()))
}

fn serves(text: &str, plugins: usize) -> bool {
    text.lines().filter(|line| line.starts_with("[+]plugin/")).count() == plugins
}

#[cfg(test)]
mod tests {
    use super::serves;

    #[test]
    fn only_plugins_that_serve_count() {
        let text = "HTTP/1.0 200 OK\r\n\r\n[+]sources ok\n[+]plugin/a ok\n[-]plugin/b failed: Compiling: wait\n";
        assert!(serves(text, 1));
        assert!(!serves(text, 2));
    }
}
