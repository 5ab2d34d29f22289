//! crontab's story, which is the CRD tutorial's: the object that had no controller there runs its Jobs here.

use std::time::Duration;

use anyhow::Result;

use super::stage::Stage;
use crate::checkout::Checkout;
use crate::terminal::headline;

/// The CronTab of the sample.
const SAMPLE: &str = "crontab/my-new-cron-object";

/// A tick comes within a minute, and its Job needs as long as any other step.
const TO_A_TICK: Duration = Duration::from_secs(120);

pub(super) fn tell(checkout: &Checkout, stage: &Stage) -> Result<()> {
    headline("crontab, the CRD tutorial's CronTab with the controller that it lacks: the plugin arrives");
    stage.arrives(checkout, "crontab", "crontabs.stable.example.com", "crontab labelled -> Ready")?;
    headline("A CronTab knows when it runs next");
    let sample = stage.sample(checkout, "crontab")?;
    stage.timed("CronTab applied -> its next tick in the status", || {
        stage.kubectl(&["apply", "-f", &sample])?;
        stage.until("the next tick in the CronTab's status", || {
            Ok(!stage.ask(&["get", SAMPLE, "-o", "jsonpath={.status.nextScheduleTime}"])?.is_empty())
        })
    })?;
    stage.kubectl(&["get", "ct"])?;
    stage.kubectl(&["get", SAMPLE, "-o", "jsonpath={.status.nextScheduleTime}{\"\\n\"}"])?;
    runs(stage)
}

fn runs(stage: &Stage) -> Result<()> {
    headline("Every minute, two Pods at once");
    stage.kubectl(&["patch", SAMPLE, "--type=merge", "-p", r#"{"spec":{"cronSpec":"* * * * *","replicas":2}}"#])?;
    stage.until_within(TO_A_TICK, "a Job with two Pods that have succeeded", || {
        let succeeded = stage.ask(&["get", "jobs", "-o", "jsonpath={.items[*].status.succeeded}"])?;
        Ok(succeeded.split(' ').any(|count| count == "2"))
    })?;
    stage.until("the tick in the CronTab's status", || {
        Ok(!stage.ask(&["get", SAMPLE, "-o", "jsonpath={.status.lastScheduleTime}"])?.is_empty())
    })?;
    stage.kubectl(&["get", "ct,jobs,pods"])
}
