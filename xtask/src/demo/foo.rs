//! foo's demo, as of the sample-controller: a Foo creates and scales a Deployment, and leaves another owner's alone.

use anyhow::Result;

use super::cluster::Cluster;
use crate::checkout::Checkout;
use crate::terminal::headline;

const SAMPLE: &str = "foo/example-foo";

pub(super) fn run(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("foo, the Kubernetes sample-controller: install the plugin");
    cluster.install(checkout, "foo", "foos.samplecontroller.k8s.io", "foo labelled -> Ready")?;
    create_deployment(checkout, cluster)?;
    scale(cluster)?;
    conflict(cluster)
}

fn create_deployment(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("A Foo creates a Deployment");
    let sample = cluster.sample(checkout, "foo")?;
    cluster.timed("Foo applied -> its Deployment available", || {
        cluster.kubectl(&["apply", "-f", &sample])?;
        wait_available(cluster, 1)
    })?;
    cluster.kubectl(&["get", "foos,deployments,pods"])?;
    wait_for_event(cluster, "Synced")?;
    events(cluster)
}

fn scale(cluster: &Cluster) -> Result<()> {
    headline("Three replicas");
    cluster.timed("Foo patched -> 3 replicas available", || {
        cluster.kubectl(&["patch", SAMPLE, "--type=merge", "-p", r#"{"spec":{"replicas":3}}"#])?;
        wait_available(cluster, 3)
    })?;
    cluster.kubectl(&["get", "foos,deployments"])
}

fn conflict(cluster: &Cluster) -> Result<()> {
    headline("Another owner has a Deployment of that name: the plugin waits until it is deleted");
    cluster.kubectl(&["create", "deployment", "taken", "--image=busybox"])?;
    cluster.kubectl(&["patch", SAMPLE, "--type=merge", "-p", r#"{"spec":{"deploymentName":"taken"}}"#])?;
    wait_for_event(cluster, "ErrResourceExists")?;
    events(cluster)?;
    cluster.kubectl(&["get", "foos,deployments"])?;
    cluster.timed("name free -> Deployment renamed", || {
        cluster.kubectl(&["delete", "deployment", "taken"])?;
        cluster.until("the Foo's Deployment under its new name only", || {
            let names = cluster.read(&["get", "deployments", "-o", "jsonpath={.items[*].metadata.name}"])?;
            Ok(names == "taken")
        })?;
        wait_available(cluster, 3)
    })?;
    cluster.kubectl(&["get", "foos,deployments"])
}

fn wait_available(cluster: &Cluster, replicas: usize) -> Result<()> {
    let format = r#"jsonpath={.status.availableReplicas} {.status.conditions[?(@.type=="Ready")].status}"#;
    cluster.until(&format!("{replicas} available replicas in the Foo's status"), || {
        Ok(cluster.read(&["get", SAMPLE, "-o", format])? == format!("{replicas} True"))
    })
}

fn wait_for_event(cluster: &Cluster, reason: &str) -> Result<()> {
    let selector = format!("involvedObject.kind=Foo,reason={reason}");
    cluster.until(&format!("the event {reason}"), || {
        Ok(!cluster.read(&["get", "events", "--field-selector", &selector, "-o", "name"])?.is_empty())
    })
}

fn events(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.kind=Foo"])
}
