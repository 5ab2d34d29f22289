//! An operator under measurement: mortise with podset, or the same with kube-rs. Started, waited for, asked what it has
//! used, and ended; what it does is not looked at here.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mortise_control_plane::{Process, Usage, usage_of};

use crate::cluster::{Cluster, until};
use crate::programs::Programs;

/// Ten times what a start takes, a compiler for each of a hundred plugins included.
const READY: Duration = Duration::from_secs(180);
/// The host finishes its writes for 10 s at most.
const ENDED: Duration = Duration::from_secs(20);
/// How often a process is looked at.
const POLL: Duration = Duration::from_millis(50);
/// A process that has used less than two clock ticks for so long has nothing left to do.
const QUIET: Duration = Duration::from_secs(2);
/// Longest that one takes to get there.
const QUIET_DEADLINE: Duration = Duration::from_secs(120);

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
    probe: Option<SocketAddr>,
    /// Plugins that have to serve before it counts as ready.
    plugins: usize,
}

impl Operator {
    /// Starts mortise with every component of a folder. Compiled ones are kept in a folder of the control plane, so
    /// only the first start with a component compiles it.
    pub(crate) async fn mortise(cluster: &Cluster, programs: &Programs, plugin_dir: &Path) -> Result<Self> {
        let plugins = fs::read_dir(plugin_dir).with_context(|| format!("list {}", plugin_dir.display()))?.count();
        let (probe, webhook) = free_addresses()?;
        let mut command = Command::new(&programs.mortise);
        command
            .arg("run")
            .args(["--namespace", "default", "--metrics-bind-address", "0", "--log-level", "info"])
            .arg("--kubeconfig")
            .arg(cluster.plane.kubeconfig(Which::Mortise.user())?)
            .arg("--plugin-dir")
            .arg(plugin_dir)
            .arg("--cache-dir")
            .arg(cluster.plane.dir().join("mortise-cache"))
            .args(["--health-probe-bind-address", &probe.to_string()])
            .args(["--webhook-port", &webhook.port().to_string()]);
        let process = cluster.plane.spawn("mortise", command)?;
        Self { process, probe: Some(probe), plugins }.ready(0).await
    }

    /// Starts the operator that is written with kube-rs.
    pub(crate) async fn kube_rs(cluster: &Cluster, programs: &Programs) -> Result<Self> {
        let mut command = Command::new(&programs.kube_rs);
        command.env("KUBECONFIG", cluster.plane.kubeconfig(Which::KubeRs.user())?);
        // Logs are appended to, and an earlier start has said what is waited for.
        let log = cluster.plane.logs().join("kube-rs.log");
        let before = fs::metadata(log).map_or(0, |metadata| metadata.len() as usize);
        let process = cluster.plane.spawn("kube-rs", command)?;
        Self { process, probe: None, plugins: 0 }.ready(before).await
    }

    async fn ready(mut self, log_offset: usize) -> Result<Self> {
        until("the operator to be ready", READY, POLL, || {
            if let Some(status) = self.process.ended()? {
                bail!("it has ended ({status}); the end of its log:\n{}", self.process.tail());
            }
            let ready = match self.probe {
                Some(probe) => readiness(probe).is_some_and(|text| serves(&text, self.plugins)),
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

    /// Waits until it does nothing any more, and returns what it has used until then.
    pub(crate) async fn quiet(&self) -> Result<Usage> {
        let mut since = (self.usage()?, tokio::time::Instant::now());
        until("the operator to be quiet", QUIET_DEADLINE, POLL, || {
            let usage = self.usage()?;
            // One tick is what reading the time at the wrong moment looks like.
            if usage.cpu > since.0.cpu + Duration::from_millis(10) {
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

/// Two that are free at this moment: the host is the next to ask for a port. Both are held at once, so that they differ.
fn free_addresses() -> Result<(SocketAddr, SocketAddr)> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (free()?, free()?);
    Ok((one.local_addr()?, other.local_addr()?))
}

/// The text of `/readyz?verbose`, once the host answers that it is ready.
fn readiness(probe: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&probe, POLL).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"GET /readyz?verbose HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.lines().next()?.contains(" 200 ").then_some(text)
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
