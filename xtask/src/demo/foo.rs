//! foo's story, which is the sample-controller's: a Foo makes a Deployment, scales it, and stays away from one that is
//! somebody else's.

use anyhow::Result;

use super::stage::Stage;
use crate::checkout::Checkout;
use crate::terminal::headline;

/// The Foo of the sample.
const SAMPLE: &str = "foo/example-foo";

pub(super) fn tell(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("foo, the Kubernetes sample-controller: the plugin arrives");
    stage.arrives(checkout, "foo", "foos.samplecontroller.k8s.io", "foo labelled -> Ready")?;
    makes_a_deployment(checkout, stage)?;
    scales_it(stage)?;
    leaves_others_alone(stage)
}

fn makes_a_deployment(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("A Foo makes a Deployment");
    let sample = stage.sample(checkout, "foo")?;
    stage.timed("Foo applied -> its Deployment available", || {
        stage.kubectl(&["apply", "-f", &sample])?;
        wait_available(stage, 1)
    })?;
    stage.kubectl(&["get", "foos,deployments,pods"])?;
    wait_told(stage, "Synced")?;
    events(stage)
}

fn scales_it(stage: &Stage) -> Result<()> {
    headline("Three replicas");
    stage.timed("Foo patched -> 3 replicas available", || {
        stage.kubectl(&["patch", SAMPLE, "--type=merge", "-p", r#"{"spec":{"replicas":3}}"#])?;
        wait_available(stage, 3)
    })?;
    stage.kubectl(&["get", "foos,deployments"])
}

fn leaves_others_alone(stage: &Stage) -> Result<()> {
    headline("A Deployment of that name is somebody else's: it is left alone until the name is free");
    stage.kubectl(&["create", "deployment", "taken", "--image=busybox"])?;
    stage.kubectl(&["patch", SAMPLE, "--type=merge", "-p", r#"{"spec":{"deploymentName":"taken"}}"#])?;
    wait_told(stage, "ErrResourceExists")?;
    events(stage)?;
    stage.kubectl(&["get", "foos,deployments"])?;
    stage.timed("name free -> the Deployment has moved there", || {
        stage.kubectl(&["delete", "deployment", "taken"])?;
        stage.until("the Foo's Deployment under its new name alone", || {
            let names = stage.ask(&["get", "deployments", "-o", "jsonpath={.items[*].metadata.name}"])?;
            Ok(names == "taken")
        })?;
        wait_available(stage, 3)
    })?;
    stage.kubectl(&["get", "foos,deployments"])
}

fn wait_available(stage: &Stage, replicas: usize) -> Result<()> {
    let format = r#"jsonpath={.status.availableReplicas} {.status.conditions[?(@.type=="Ready")].status}"#;
    stage.until(&format!("{replicas} available replicas in the Foo's status"), || {
        Ok(stage.ask(&["get", SAMPLE, "-o", format])? == format!("{replicas} True"))
    })
}

fn wait_told(stage: &Stage, reason: &str) -> Result<()> {
    let selector = format!("involvedObject.kind=Foo,reason={reason}");
    stage.until(&format!("the event {reason}"), || {
        Ok(!stage.ask(&["get", "events", "--field-selector", &selector, "-o", "name"])?.is_empty())
    })
}

fn events(stage: &Stage) -> Result<()> {
    stage.kubectl(&["get", "events", "--field-selector", "involvedObject.kind=Foo"])
}
