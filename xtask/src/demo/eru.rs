//! eru's story: a Deployment asks for restarts by an annotation, and at a tick its Pods are rolled.

use std::time::Duration;

use anyhow::Result;

use super::stage::Stage;
use crate::checkout::Checkout;
use crate::terminal::headline;

/// The Deployment of the sample, and its Eru.
const DEPLOYMENT: &str = "deployment/web";
const ERU: &str = "eru/web";

/// A tick comes within a minute, and the rollout needs as long as any other step.
const TO_A_TICK: Duration = Duration::from_secs(120);

pub(super) fn tell(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("eru, the elegant rolling update: the plugin arrives");
    stage.arrives(checkout, "eru", "erus.mtsre.meitu.com", "eru labelled -> Ready")?;
    headline("A Deployment that asks for it by an annotation has an Eru");
    let sample = stage.sample(checkout, "eru")?;
    stage.timed("Deployment applied -> its Eru knows the next tick", || {
        stage.kubectl(&["apply", "-f", &sample])?;
        stage.until("the next tick in the Eru's status", || {
            let next = stage.ask(&["get", ERU, "-o", "jsonpath={.status.nextRestartTime}"]);
            Ok(next.is_ok_and(|next| !next.is_empty()))
        })
    })?;
    stage.kubectl(&["rollout", "status", DEPLOYMENT])?;
    stage.kubectl(&["get", "erus", "-o", "wide"])?;
    rolls(stage)?;
    headline("The annotation goes, and the Eru with it");
    stage.kubectl(&["annotate", DEPLOYMENT, "mtsre.meitu.com/eru-"])?;
    stage.until("the Eru to be gone", || Ok(stage.ask(&["get", ERU]).is_err()))?;
    stage.kubectl(&["get", "erus"])
}

fn rolls(stage: &Stage) -> Result<()> {
    headline("Every minute: at the tick the Deployment controller rolls the Pods");
    stage.kubectl(&["annotate", DEPLOYMENT, "--overwrite", "mtsre.meitu.com/eru-schedule=* * * * *"])?;
    stage.until_within(TO_A_TICK, "a restart in the Eru's status", || {
        Ok(stage.ask(&["get", ERU, "-o", "jsonpath={.status.restarts}"])? != "0")
    })?;
    stage.kubectl(&["rollout", "status", DEPLOYMENT])?;
    stage.kubectl(&["get", "erus,replicasets,pods"])?;
    stage.kubectl(&["describe", ERU])
}
