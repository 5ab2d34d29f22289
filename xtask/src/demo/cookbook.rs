//! The demos of the cookbook's small plugins: the sample is applied, what follows is shown, and one change is made.

use anyhow::Result;

use super::cluster::{Cluster, NAMESPACE};
use crate::checkout::Checkout;
use crate::terminal::headline;

/// Prints and applies a plugin's sample.
fn apply(checkout: &Checkout, cluster: &Cluster, plugin: &str) -> Result<()> {
    let sample = cluster.sample(checkout, plugin)?;
    cluster.kubectl(&["apply", "-f", &sample])
}

/// Waits until kubectl prints a text.
fn wait_until(cluster: &Cluster, what: &str, args: &[&str], expected: &str) -> Result<()> {
    cluster.until(what, || Ok(cluster.read(args).unwrap_or_default().trim() == expected))
}

pub(super) fn memcached(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("memcached: install the plugin");
    cluster.install(checkout, "memcached", "memcacheds.cache.example.com", "memcached labelled -> Ready")?;
    headline("A Deployment, the names of its Pods, and conditions");
    cluster.timed("Memcached applied -> available", || {
        apply(checkout, cluster, "memcached")?;
        let nodes = [
            "get",
            "memcached/memcached-sample",
            "-o",
            "jsonpath={.status.size} {.status.conditions[?(@.type==\"Available\")].status}",
        ];
        wait_until(cluster, "two servers to be available", &nodes, "2 True")
    })?;
    cluster.kubectl(&["get", "memcacheds,deployments,pods"])?;
    cluster.kubectl(&["get", "memcached/memcached-sample", "-o", "jsonpath={.status.nodes}{\"\\n\"}"])
}

pub(super) fn bluegreen(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    const IN_USE: [&str; 4] = [
        "get",
        "bluegreendeployment/nginx-blue-green",
        "-o",
        "jsonpath={.status.activeColor} {.status.conditions[?(@.type==\"Ready\")].status}",
    ];
    headline("bluegreen: install the plugin");
    let crd = "bluegreendeployments.ctl.enisoc.com";
    cluster.install(checkout, "bluegreen", crd, "bluegreen labelled -> Ready")?;
    headline("The first ReplicaSet is blue");
    apply(checkout, cluster, "bluegreen")?;
    wait_until(cluster, "blue to be in use", &IN_USE, "blue True")?;
    cluster.kubectl(&["get", "bgd,replicasets,services,pods"])?;
    headline("Another image: the Service switches when all green Pods are available");
    let patch = r#"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:1.28"}]"#;
    cluster.timed("image patched -> green in use", || {
        cluster.kubectl(&["patch", "bgd/nginx-blue-green", "--type=json", "-p", patch])?;
        wait_until(cluster, "green to be in use", &IN_USE, "green True")
    })?;
    cluster.kubectl(&["get", "bgd,replicasets", "-o", "wide"])?;
    cluster.kubectl(&["get", "events", "--field-selector", "involvedObject.kind=BlueGreenDeployment"])
}

pub(super) fn janitor(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("janitor: a Job with a time to live of ten seconds");
    cluster.install_with(checkout, "janitor", &[], "janitor labelled -> Ready")?;
    apply(checkout, cluster, "janitor")?;
    cluster.kubectl(&["get", "jobs", "--show-labels"])?;
    wait_until(cluster, "the Job to be deleted", &["get", "jobs", "-o", "name"], "")?;
    cluster.kubectl(&["get", "events", "--field-selector", "reason=Expired"])
}

pub(super) fn tenancy(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    const ALL: [&str; 4] = ["get", "resourcequotas,limitranges,networkpolicies", "--namespace", "team-a"];
    headline("tenancy: tiers of Namespaces, from the plugin's configuration");
    let config = ["--from-file=config.yaml=plugins/tenancy/config.yaml"];
    cluster.install_with(checkout, "tenancy", &config, "tenancy labelled -> Ready")?;
    cluster.kubectl(&[
        "get",
        "configmap",
        "tenancy",
        "--namespace",
        NAMESPACE,
        "-o",
        "jsonpath={.data.config\\.yaml}",
    ])?;
    apply(checkout, cluster, "tenancy")?;
    cluster.until("the three children", || {
        Ok(cluster.read(&[&ALL[..], &["-o", "name"]].concat())?.lines().count() == 3)
    })?;
    cluster.kubectl(&ALL)?;
    headline("The label is removed, and with it the children");
    cluster.kubectl(&["label", "namespace", "team-a", "tenancy.example.com/tier-"])?;
    cluster.until("no children", || Ok(cluster.read(&[&ALL[..], &["-o", "name"]].concat())?.trim().is_empty()))
}

pub(super) fn expose(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("expose: a Service and an Ingress for an annotated Deployment");
    cluster.install_with(checkout, "expose", &[], "expose labelled -> Ready")?;
    apply(checkout, cluster, "expose")?;
    wait_until(cluster, "the Ingress", &["get", "ingresses", "-o", "name"], "ingress.networking.k8s.io/web")?;
    cluster.kubectl(&["get", "deployments,services,ingresses"])?;
    headline("The annotations are removed: so are the children");
    cluster.kubectl(&["annotate", "deployment/web", "expose.example.com/port-", "expose.example.com/host-"])?;
    wait_until(cluster, "no Ingress", &["get", "ingresses", "-o", "name"], "")?;
    cluster.kubectl(&["get", "services"])
}

pub(super) fn replicator(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    const COPIES: [&str; 5] = ["get", "configmaps", "--all-namespaces", "--selector", "mortise.dev/owner-uid"];
    headline("replicator: a ConfigMap in the Namespaces that a selector matches");
    let crd = "configmapreplicas.replication.mortise.dev";
    cluster.install(checkout, "replicator", crd, "replicator labelled -> Ready")?;
    apply(checkout, cluster, "replicator")?;
    let names = [&COPIES[..], &["-o", "jsonpath={.items[*].metadata.namespace}"]].concat();
    wait_until(cluster, "the copy", &names, "shop")?;
    cluster.kubectl(&COPIES)?;
    headline("Its owner is deleted, after the copy");
    cluster.kubectl(&["delete", "cmr/company-ca"])?;
    cluster.kubectl(&COPIES)
}

pub(super) fn password(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    const LENGTH: &str = "go-template={{len (base64decode .data.password)}}";
    const LOGIN: [&str; 4] = ["get", "secret/database-login", "-o", LENGTH];
    headline("password: a password that the host makes and no plugin sees");
    let crd = "passwords.secrets.mortise.dev";
    cluster.install(checkout, "password", crd, "password labelled -> Ready")?;
    apply(checkout, cluster, "password")?;
    wait_until(cluster, "a password of 24 characters", &LOGIN, "24")?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "password/database"])?;
    cluster.kubectl(&["get", "passwords,secrets"])?;
    headline("Another length: a new password");
    cluster.kubectl(&["patch", "password/database", "--type=merge", "-p", r#"{"spec":{"length":40}}"#])?;
    wait_until(cluster, "a password of 40 characters", &LOGIN, "40")
}
