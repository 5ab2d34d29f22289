//! eru's demo: a Deployment requests restarts by an annotation; at each tick its Pods are replaced.

use anyhow::Result;

use super::cluster::{Cluster, TO_A_TICK};
use crate::checkout::Checkout;
use crate::terminal::headline;

/// The Deployment of the sample, and its Eru.
const DEPLOYMENT: &str = "deployment/web";
const ERU: &str = "eru/web";

pub(super) fn run(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("eru, the elegant rolling update: install the plugin");
    cluster.install(checkout, "eru", "erus.mtsre.meitu.com", "eru labelled -> Ready")?;
    headline("A Deployment with the annotation gets an Eru");
    let sample = cluster.sample(checkout, "eru")?;
    cluster.timed("Deployment applied -> the next tick in its Eru's status", || {
        cluster.kubectl(&["apply", "-f", &sample])?;
        cluster.until("the next tick in the Eru's status", || {
            let next = cluster.read(&["get", ERU, "-o", "jsonpath={.status.nextRestartTime}"]);
            Ok(next.is_ok_and(|next| !next.is_empty()))
        })
    })?;
    cluster.kubectl(&["rollout", "status", DEPLOYMENT])?;
    cluster.kubectl(&["get", "erus", "-o", "wide"])?;
    roll(cluster)?;
    headline("The annotation is removed: the Eru is deleted");
    cluster.kubectl(&["annotate", DEPLOYMENT, "mtsre.meitu.com/eru-"])?;
    cluster.until("the Eru to be deleted", || Ok(cluster.read(&["get", ERU]).is_err()))?;
    cluster.kubectl(&["get", "erus"])
}

fn roll(cluster: &Cluster) -> Result<()> {
    headline("Every minute: at the tick the Deployment controller rolls the Pods");
    cluster.kubectl(&["annotate", DEPLOYMENT, "--overwrite", "mtsre.meitu.com/eru-schedule=* * * * *"])?;
    cluster.until_within(TO_A_TICK, "a restart in the Eru's status", || {
        Ok(cluster.read(&["get", ERU, "-o", "jsonpath={.status.restarts}"])? != "0")
    })?;
    cluster.kubectl(&["rollout", "status", DEPLOYMENT])?;
    cluster.kubectl(&["get", "erus,replicasets,pods"])?;
    cluster.kubectl(&["describe", ERU])
}
