//! Anonymous memory of the running host: how much one more idle plugin takes, and one more cached Pod. What is mapped
//! from files (code, compiled plugins) can be dropped by the kernel at any time and is not counted.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cluster::Cluster;
use crate::measure::median;
use crate::operator::Operator;
use crate::programs::{self, Programs};
use crate::table::{Table, verdict};
use crate::{sample, variant};

const PLUGINS: [usize; 3] = [1, 10, 100];
const PODS: usize = 2_000;
const KIB: f64 = 1024.0;
/// Anonymous memory of one more idle plugin.
const PLUGIN_TARGET_KIB: f64 = 64.0;
/// Anonymous memory of one more cached Pod, as a multiple of its JSON without managedFields.
const POD_TARGET: f64 = 1.5;

/// Measures both and prints the tables.
pub(crate) async fn run(programs: &Programs, rounds: usize) -> Result<()> {
    // Nothing has to run here; only the API server is asked.
    let cluster = Cluster::start(true).await?;
    let folders = tempfile::tempdir().context("make a folder for plugins")?;
    let mut idle = Vec::new();
    for plugins in PLUGINS {
        let folder = folders.path().join(plugins.to_string());
        write_plugins(&folder, plugins)?;
        // The first start compiles in child processes; from the second on, the host does what it does after any
        // restart.
        let first = anonymous(&cluster, programs, &folder).await?;
        let mut again = Vec::new();
        for _ in 0..rounds {
            again.push(anonymous(&cluster, programs, &folder).await?);
        }
        idle.push((plugins, first, median(again)));
    }
    print!("{}", plugins_table(&idle, rounds));

    let folder = folders.path().join(PLUGINS[0].to_string());
    let (_, _, empty) = idle[0];
    print!("{}", pods_table(&cluster, programs, &folder, empty, rounds).await?);
    Ok(())
}

fn write_plugins(folder: &Path, plugins: usize) -> Result<()> {
    let component = programs::podset()?;
    fs::create_dir(folder).with_context(|| format!("create {}", folder.display()))?;
    for number in 0..plugins {
        let path = folder.join(format!("p{number:02}.wasm"));
        fs::write(&path, variant::of(&component, number)?).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Starts the host with a folder of plugins, waits until it has nothing to do, and ends it.
async fn anonymous(cluster: &Cluster, programs: &Programs, folder: &Path) -> Result<f64> {
    let host = Operator::mortise(cluster, programs, folder).await?;
    let usage = host.quiet().await?;
    host.stop().await?;
    Ok(usage.anonymous_bytes as f64)
}

fn plugins_table(idle: &[(usize, f64, f64)], rounds: usize) -> Table {
    let title = format!("Anonymous memory of the host with idle plugins (restarts: median of {rounds})");
    let mut table =
        Table::new(title, &["plugins", "after a first start", "after a restart", "per plugin", "target", ""]);
    let (fewest, _, base) = idle[0];
    for (plugins, first, again) in idle {
        let mut row = vec![plugins.to_string(), mib(*first), mib(*again)];
        if plugins > &fewest {
            let each = (again - base) / (plugins - fewest) as f64 / KIB;
            row.extend([format!("{each:.1} KiB"), format!("<= {PLUGIN_TARGET_KIB} KiB")]);
            row.push(verdict(each, Some(PLUGIN_TARGET_KIB)));
        }
        table.row(row);
    }
    table
}

async fn pods_table(cluster: &Cluster, programs: &Programs, folder: &Path, empty: f64, rounds: usize) -> Result<Table> {
    let namespace = "bench-memory";
    cluster.create_namespace(namespace).await?;
    let host = Operator::mortise(cluster, programs, folder).await?;
    host.quiet().await?;
    cluster.create_pods(namespace, PODS, &sample::template()).await?;
    let watched = host.quiet().await?.anonymous_bytes as f64;
    host.stop().await?;
    let mut listed = Vec::new();
    for _ in 0..rounds {
        listed.push(anonymous(cluster, programs, folder).await?);
    }
    let raw = cluster.mean_pod_bytes(namespace).await?;
    let title =
        format!("Anonymous memory per cached Pod ({PODS} Pods of {raw:.0} bytes of JSON without managedFields)");
    let mut table = Table::new(title, &["cache filled by", "host", "per Pod", "of its JSON", "target", ""]);
    for (how, bytes) in [("watch events", watched), ("a list, after a restart", median(listed))] {
        let each = (bytes - empty) / PODS as f64;
        let (ratio, target) = (each / raw, format!("<= {POD_TARGET}x"));
        let cells = [how.to_owned(), mib(bytes), format!("{:.1} KiB", each / KIB), format!("{ratio:.2}x"), target];
        table.row(cells.into_iter().chain([verdict(ratio, Some(POD_TARGET))]));
    }
    Ok(table)
}

fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / KIB / KIB)
}
