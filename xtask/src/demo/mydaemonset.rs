//! mydaemonset's story: a Pod on every Node, one more when a Node comes, none on a Node that keeps Pods off, another image
//! for all, and one less when a Node goes.

use std::time::Duration;

use anyhow::Result;

use super::stage::Stage;
use crate::checkout::Checkout;
use crate::terminal::headline;

/// The MyDaemonSet of the sample.
const SAMPLE: &str = "mydaemonset/mydaemonset-sample";

/// kwok may forget a Node before it ends the Pods there. Then Kubernetes' own collector of Pods does: it looks every
/// 20 s, and at a Node that is gone only 40 s after it has missed it, which is 80 s at the latest.
const POD_COLLECTED: Duration = Duration::from_secs(120);

pub(super) fn tell(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("mydaemonset, one Pod per Node: the plugin arrives");
    stage.arrives(checkout, "mydaemonset", "mydaemonsets.apps.zhongmingmao.io", "mydaemonset labelled -> Ready")?;
    covers_the_nodes(checkout, stage)?;
    follows_the_nodes(stage)?;
    heeds_taints(stage)?;
    takes_another_image(stage)?;
    loses_a_node(stage)
}

fn covers_the_nodes(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("A MyDaemonSet has a Pod on every Node");
    let sample = stage.sample(checkout, "mydaemonset")?;
    stage.timed("MyDaemonSet applied -> a ready Pod on each Node", || {
        stage.kubectl(&["apply", "-f", &sample])?;
        wait_for_nodes(stage, "node-1 node-2")
    })?;
    show(stage)
}

fn follows_the_nodes(stage: &Stage) -> Result<()> {
    headline("A Node comes, and gets its Pod");
    stage.timed("Node registered -> its Pod ready", || {
        stage.node_joins("node-3")?;
        wait_for_nodes(stage, "node-1 node-2 node-3")
    })?;
    show(stage)
}

fn heeds_taints(stage: &Stage) -> Result<()> {
    headline("A Node that is cordoned keeps its Pod; one that is tainted otherwise has none");
    stage.kubectl(&["cordon", "node-1"])?;
    stage.timed("Node tainted -> its Pod gone", || {
        stage.kubectl(&["taint", "node", "node-3", "dedicated=db:NoExecute"])?;
        wait_for_nodes(stage, "node-1 node-2")
    })?;
    show(stage)?;
    stage.kubectl(&["uncordon", "node-1"])?;
    stage.timed("taint taken off -> its Pod ready again", || {
        stage.kubectl(&["taint", "node", "node-3", "dedicated-"])?;
        wait_for_nodes(stage, "node-1 node-2 node-3")
    })
}

fn takes_another_image(stage: &Stage) -> Result<()> {
    headline("Another image");
    stage.timed("image changed -> every Pod runs it", || {
        stage.kubectl(&["patch", SAMPLE, "--type=merge", "-p", r#"{"spec":{"image":"nginx:stable-alpine3.21"}}"#])?;
        stage.until("every Pod to have the new image", || {
            let images = stage.ask(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}"])?;
            Ok(images == ["nginx:stable-alpine3.21"; 3].join(" "))
        })?;
        wait_for_nodes(stage, "node-1 node-2 node-3")
    })?;
    show(stage)
}

fn loses_a_node(stage: &Stage) -> Result<()> {
    headline("A Node goes, and its Pod with it");
    stage.kubectl(&["delete", "node", "node-3"])?;
    stage.until("the status to count two Pods", || {
        let counted = stage.ask(&["get", SAMPLE, "-o", "jsonpath={.status.availableReplicas}"])?;
        Ok(counted == "2")
    })?;
    stage.kubectl(&["get", SAMPLE])?;
    println!("(the Pod is deleted; with its kubelet gone too, Kubernetes may take a minute to end it)");
    stage.until_within(POD_COLLECTED, "the Pod of the Node to go", || {
        Ok(stage.ask(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"])?.split(' ').all(|on| on != "node-3"))
    })?;
    stage.kubectl(&["get", "pods"])
}

/// Waits until there is a ready Pod on each of these Nodes and no other, and the status counts them.
fn wait_for_nodes(stage: &Stage, nodes: &str) -> Result<()> {
    let format = "jsonpath={range .items[*]}{.spec.nodeName} {end}";
    let says = r#"jsonpath={.status.availableReplicas} {.status.conditions[?(@.type=="Ready")].status}"#;
    let wanted = format!("{} True", nodes.split(' ').count());
    stage.until(&format!("a ready Pod on each of {nodes}"), || {
        let on = stage.ask(&["get", "pods", "-o", format, "--sort-by=.spec.nodeName"])?;
        Ok(on.trim() == nodes && stage.ask(&["get", SAMPLE, "-o", says])? == wanted)
    })
}

fn show(stage: &Stage) -> Result<()> {
    let columns =
        "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,IMAGE:.spec.containers[0].image,PHASE:.status.phase";
    stage.kubectl(&["get", SAMPLE])?;
    stage.kubectl(&["get", "pods", "-o", columns])
}
