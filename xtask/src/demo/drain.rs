//! drain's story: a node is emptied as far as a PodDisruptionBudget allows, then altogether, and given back.

use anyhow::Result;

use super::stage::Stage;
use crate::checkout::Checkout;
use crate::terminal::headline;

/// The NodeMaintenance of the sample, and the node that it is of.
const SAMPLE: &str = "nodemaintenance/worker-1";
const NODE: &str = "worker-1";
/// Where the Pods of the story run.
const ON_NODE: &str = r#"{"spec":{"nodeName":"worker-1"}}"#;

pub(super) fn tell(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("drain, node maintenance as an object: the plugin arrives");
    stage.arrives(checkout, "drain", "nodemaintenances.maintenance.mortise.dev", "drain labelled -> Ready")?;
    waits_for_a_budget(checkout, stage)?;
    drains(stage)?;
    gives_back(stage)
}

fn waits_for_a_budget(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("A node with three Pods, two of which a PodDisruptionBudget holds back");
    stage.node_joins(NODE)?;
    for (name, labels) in [("web-0", "app=web"), ("web-1", "app=web"), ("batch", "app=batch")] {
        let (labels, overrides) = (format!("--labels={labels}"), format!("--overrides={ON_NODE}"));
        stage.kubectl(&["run", name, "--image=busybox", &labels, &overrides])?;
    }
    stage.kubectl(&["create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=2"])?;
    stage.until("the budget to count its Pods", || {
        Ok(stage.ask(&["get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy}"])? == "2")
    })?;
    let sample = stage.sample(checkout, "drain")?;
    stage.timed("NodeMaintenance applied -> the budget named", || {
        stage.kubectl(&["apply", "-f", &sample])?;
        wait_ready(stage, "False WaitingForBudget")
    })?;
    stage.kubectl(&["get", "nodemaintenances", "-o", "wide"])?;
    stage.kubectl(&["get", "nodes,pods"])
}

fn drains(stage: &Stage) -> Result<()> {
    headline("The budget goes: the node is drained");
    stage.timed("budget deleted -> node drained", || {
        stage.kubectl(&["delete", "poddisruptionbudget", "web"])?;
        wait_ready(stage, "True Drained")
    })?;
    stage.kubectl(&["get", "nodemaintenances,pods", "-o", "wide"])
}

fn gives_back(stage: &Stage) -> Result<()> {
    headline("The maintenance is over: its finalizer uncordons the node before it goes");
    stage.timed("NodeMaintenance deleted -> node uncordoned", || stage.kubectl(&["delete", SAMPLE]))?;
    stage.kubectl(&["get", "nodes"])
}

fn wait_ready(stage: &Stage, expected: &str) -> Result<()> {
    let ready = r#".status.conditions[?(@.type=="Ready")]"#;
    let format = format!("jsonpath={{{ready}.status}} {{{ready}.reason}}");
    stage.until(&format!("the NodeMaintenance to be Ready={expected}"), || {
        Ok(stage.ask(&["get", SAMPLE, "-o", &format])? == expected)
    })
}
