//! drain's demo: evicts a node's Pods as far as a PodDisruptionBudget allows, then all of them, and uncordons the node.

use anyhow::Result;

use super::cluster::Cluster;
use crate::checkout::Checkout;
use crate::terminal::headline;

/// The NodeMaintenance of the sample, and its node.
const SAMPLE: &str = "nodemaintenance/worker-1";
const NODE: &str = "worker-1";
const ON_NODE: &str = r#"{"spec":{"nodeName":"worker-1"}}"#;

pub(super) fn run(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("drain, node maintenance as an object: install the plugin");
    cluster.install(checkout, "drain", "nodemaintenances.maintenance.mortise.dev", "drain labelled -> Ready")?;
    wait_for_budget(checkout, cluster)?;
    drain(cluster)?;
    uncordon(cluster)
}

fn wait_for_budget(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("A node with three Pods, two of them protected by a PodDisruptionBudget");
    cluster.add_node(NODE)?;
    for (name, labels) in [("web-0", "app=web"), ("web-1", "app=web"), ("batch", "app=batch")] {
        let (labels, overrides) = (format!("--labels={labels}"), format!("--overrides={ON_NODE}"));
        cluster.kubectl(&["run", name, "--image=busybox", &labels, &overrides])?;
    }
    cluster.kubectl(&["create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=2"])?;
    cluster.until("the budget to count its Pods", || {
        Ok(cluster.read(&["get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy}"])? == "2")
    })?;
    let sample = cluster.sample(checkout, "drain")?;
    cluster.timed("NodeMaintenance applied -> the budget named", || {
        cluster.kubectl(&["apply", "-f", &sample])?;
        wait_ready(cluster, "False WaitingForBudget")
    })?;
    cluster.kubectl(&["get", "nodemaintenances", "-o", "wide"])?;
    cluster.kubectl(&["get", "nodes,pods"])
}

fn drain(cluster: &Cluster) -> Result<()> {
    headline("The budget is deleted: the node is drained");
    cluster.timed("budget deleted -> node drained", || {
        cluster.kubectl(&["delete", "poddisruptionbudget", "web"])?;
        wait_ready(cluster, "True Drained")
    })?;
    cluster.kubectl(&["get", "nodemaintenances,pods", "-o", "wide"])
}

fn uncordon(cluster: &Cluster) -> Result<()> {
    headline("The NodeMaintenance is deleted: the plugin uncordons the node, then removes its finalizer");
    cluster.timed("NodeMaintenance deleted -> node uncordoned", || cluster.kubectl(&["delete", SAMPLE]))?;
    cluster.kubectl(&["get", "nodes"])
}

fn wait_ready(cluster: &Cluster, expected: &str) -> Result<()> {
    let ready = r#".status.conditions[?(@.type=="Ready")]"#;
    let format = format!("jsonpath={{{ready}.status}} {{{ready}.reason}}");
    cluster.until(&format!("the NodeMaintenance to be Ready={expected}"), || {
        Ok(cluster.read(&["get", SAMPLE, "-o", &format])? == expected)
    })
}
