//! mydaemonset's demo: a Pod on every Node, for new, tainted, untainted and deleted Nodes, and with another image.

use std::time::Duration;

use anyhow::Result;

use super::cluster::Cluster;
use crate::checkout::Checkout;
use crate::terminal::headline;

const SAMPLE: &str = "mydaemonset/mydaemonset-sample";

/// kwok may forget a Node before it ends the Pods there. Then Kubernetes' Pod garbage collector deletes them: it runs
/// every 20 s, and waits 40 s after it has missed a Node, so it takes 80 s at most.
const POD_COLLECTED: Duration = Duration::from_secs(120);

pub(super) fn run(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("mydaemonset, one Pod per Node: install the plugin");
    cluster.install(checkout, "mydaemonset", "mydaemonsets.apps.zhongmingmao.io", "mydaemonset labelled -> Ready")?;
    cover_nodes(checkout, cluster)?;
    add_node(cluster)?;
    taint_node(cluster)?;
    change_image(cluster)?;
    delete_node(cluster)
}

fn cover_nodes(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("A MyDaemonSet has a Pod on every Node");
    let sample = cluster.sample(checkout, "mydaemonset")?;
    cluster.timed("MyDaemonSet applied -> a ready Pod on each Node", || {
        cluster.kubectl(&["apply", "-f", &sample])?;
        wait_for_nodes(cluster, "node-1 node-2")
    })?;
    show(cluster)
}

fn add_node(cluster: &Cluster) -> Result<()> {
    headline("A new Node gets its Pod");
    cluster.timed("Node registered -> its Pod ready", || {
        cluster.add_node("node-3")?;
        wait_for_nodes(cluster, "node-1 node-2 node-3")
    })?;
    show(cluster)
}

fn taint_node(cluster: &Cluster) -> Result<()> {
    headline("A cordoned Node keeps its Pod; a Node with another taint has none");
    cluster.kubectl(&["cordon", "node-1"])?;
    cluster.timed("Node tainted -> its Pod gone", || {
        cluster.kubectl(&["taint", "node", "node-3", "dedicated=db:NoExecute"])?;
        wait_for_nodes(cluster, "node-1 node-2")
    })?;
    show(cluster)?;
    cluster.kubectl(&["uncordon", "node-1"])?;
    cluster.timed("taint removed -> its Pod ready again", || {
        cluster.kubectl(&["taint", "node", "node-3", "dedicated-"])?;
        wait_for_nodes(cluster, "node-1 node-2 node-3")
    })
}

fn change_image(cluster: &Cluster) -> Result<()> {
    headline("Another image");
    cluster.timed("image changed -> every Pod runs it", || {
        cluster.kubectl(&["patch", SAMPLE, "--type=merge", "-p", r#"{"spec":{"image":"nginx:stable-alpine3.21"}}"#])?;
        cluster.until("every Pod to have the new image", || {
            let images = cluster.read(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}"])?;
            Ok(images == ["nginx:stable-alpine3.21"; 3].join(" "))
        })?;
        wait_for_nodes(cluster, "node-1 node-2 node-3")
    })?;
    show(cluster)
}

fn delete_node(cluster: &Cluster) -> Result<()> {
    headline("A Node is deleted, and its Pod too");
    cluster.kubectl(&["delete", "node", "node-3"])?;
    cluster.until("the status to count two Pods", || {
        let counted = cluster.read(&["get", SAMPLE, "-o", "jsonpath={.status.availableReplicas}"])?;
        Ok(counted == "2")
    })?;
    cluster.kubectl(&["get", SAMPLE])?;
    println!("(the Pod is deleted; without a kubelet, Kubernetes may take a minute to remove it)");
    cluster.until_within(POD_COLLECTED, "the Node's Pod to be removed", || {
        Ok(cluster
            .read(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"])?
            .split(' ')
            .all(|on| on != "node-3"))
    })?;
    cluster.kubectl(&["get", "pods"])
}

/// Waits until exactly these Nodes have a ready Pod and the status counts them.
fn wait_for_nodes(cluster: &Cluster, nodes: &str) -> Result<()> {
    let format = "jsonpath={range .items[*]}{.spec.nodeName} {end}";
    let status = r#"jsonpath={.status.availableReplicas} {.status.conditions[?(@.type=="Ready")].status}"#;
    let wanted = format!("{} True", nodes.split(' ').count());
    cluster.until(&format!("a ready Pod on each of {nodes}"), || {
        let on = cluster.read(&["get", "pods", "-o", format, "--sort-by=.spec.nodeName"])?;
        Ok(on.trim() == nodes && cluster.read(&["get", SAMPLE, "-o", status])? == wanted)
    })
}

fn show(cluster: &Cluster) -> Result<()> {
    let columns =
        "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,IMAGE:.spec.containers[0].image,PHASE:.status.phase";
    cluster.kubectl(&["get", SAMPLE])?;
    cluster.kubectl(&["get", "pods", "-o", columns])
}
