//! Anonymous memory of the running host: per idle plugin and per cached Pod. Memory mapped from files (code, compiled
//! plugins) does not count, since the kernel can drop it at any time.

use std::path::Path;

use anyhow::{Context, Result};

use crate::cluster::Cluster;
use crate::measure::median;
use crate::operator::Operator;
use crate::programs::Host;
use crate::table::{Table, rating};
use crate::{sample, variant};

const PLUGINS: [usize; 3] = [1, 10, 100];
const PODS: usize = 2_000;
const KIB: f64 = 1024.0;
/// Anonymous memory of one more idle plugin.
const PLUGIN_TARGET_KIB: f64 = 64.0;
/// Anonymous memory of one more cached Pod, as a multiple of its JSON without managedFields.
const POD_TARGET: f64 = 1.5;

pub(crate) async fn run(host: &Host, rounds: usize) -> Result<()> {
    // Only the API server is needed.
    let cluster = Cluster::start(true).await?;
    let folders = tempfile::tempdir().context("create a folder for plugins")?;
    let mut idle = Vec::new();
    for plugins in PLUGINS {
        let folder = folders.path().join(plugins.to_string());
        variant::write(host, &folder, plugins)?;
        // The first start compiles in child processes; later ones are restarts.
        let first = anonymous(&cluster, host, &folder).await?;
        let mut again = Vec::new();
        for _ in 0..rounds {
            again.push(anonymous(&cluster, host, &folder).await?);
        }
        idle.push((plugins, first, median(again)));
    }
    print!("{}", plugins_table(host, &idle, rounds));

    let folder = folders.path().join(PLUGINS[0].to_string());
    let (_, _, empty) = idle[0];
    print!("{}", pods_table(&cluster, host, &folder, empty, rounds).await?);
    Ok(())
}

/// Starts the host with a folder of plugins, waits until it is idle, and ends it.
async fn anonymous(cluster: &Cluster, host: &Host, folder: &Path) -> Result<f64> {
    let running = Operator::mortise(cluster, host, folder).await?;
    let usage = running.quiet().await?;
    running.stop().await?;
    Ok(usage.anonymous_bytes as f64)
}

fn plugins_table(host: &Host, idle: &[(usize, f64, f64)], rounds: usize) -> Table {
    let title = format!("Anonymous memory of host {} with idle plugins (restarts: median of {rounds})", host.name);
    let mut table =
        Table::new(title, &["plugins", "after a first start", "after a restart", "per plugin", "target", ""]);
    let (fewest, _, base) = idle[0];
    for (plugins, first, again) in idle {
        let mut row = vec![plugins.to_string(), mib(*first), mib(*again)];
        if plugins > &fewest {
            let each = (again - base) / (plugins - fewest) as f64 / KIB;
            row.extend([format!("{each:.1} KiB"), format!("<= {PLUGIN_TARGET_KIB} KiB")]);
            row.push(rating(each, Some(PLUGIN_TARGET_KIB)));
        }
        table.row(row);
    }
    table
}

async fn pods_table(cluster: &Cluster, host: &Host, folder: &Path, empty: f64, rounds: usize) -> Result<Table> {
    let namespace = "bench-memory";
    cluster.create_namespace(namespace).await?;
    let running = Operator::mortise(cluster, host, folder).await?;
    running.quiet().await?;
    cluster.create_pods(namespace, PODS, &sample::template()).await?;
    let watched = running.quiet().await?.anonymous_bytes as f64;
    running.stop().await?;
    let mut listed = Vec::new();
    for _ in 0..rounds {
        listed.push(anonymous(cluster, host, folder).await?);
    }
    let raw = cluster.mean_pod_bytes(namespace).await?;
    let title = format!(
        "Anonymous memory of host {} per cached Pod ({PODS} Pods of {raw:.0} bytes of JSON without managedFields)",
        host.name
    );
    let mut table = Table::new(title, &["cache filled by", "host", "per Pod", "of its JSON", "target", ""]);
    for (how, bytes) in [("watch events", watched), ("a list, after a restart", median(listed))] {
        let each = (bytes - empty) / PODS as f64;
        let (ratio, target) = (each / raw, format!("<= {POD_TARGET}x"));
        let cells = [how.to_owned(), mib(bytes), format!("{:.1} KiB", each / KIB), format!("{ratio:.2}x"), target];
        table.row(cells.into_iter().chain([rating(ratio, Some(POD_TARGET))]));
    }
    Ok(table)
}

fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / KIB / KIB)
}
