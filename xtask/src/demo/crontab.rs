//! crontab's demo, the object of the CRD tutorial: it has a controller here, which runs Jobs.

use anyhow::Result;

use super::cluster::{Cluster, TO_A_TICK};
use crate::checkout::Checkout;
use crate::terminal::headline;

const SAMPLE: &str = "crontab/my-new-cron-object";

pub(super) fn run(checkout: &Checkout, cluster: &Cluster) -> Result<()> {
    headline("crontab, the CRD tutorial's CronTab with the controller that it lacks: install the plugin");
    cluster.install(checkout, "crontab", "crontabs.stable.example.com", "crontab labelled -> Ready")?;
    headline("A CronTab shows when it runs next");
    let sample = cluster.sample(checkout, "crontab")?;
    cluster.timed("CronTab applied -> its next tick in the status", || {
        cluster.kubectl(&["apply", "-f", &sample])?;
        cluster.until("the next tick in the CronTab's status", || {
            Ok(!cluster.read(&["get", SAMPLE, "-o", "jsonpath={.status.nextScheduleTime}"])?.is_empty())
        })
    })?;
    cluster.kubectl(&["get", "ct"])?;
    cluster.kubectl(&["get", SAMPLE, "-o", "jsonpath={.status.nextScheduleTime}{\"\\n\"}"])?;
    run_job(cluster)
}

fn run_job(cluster: &Cluster) -> Result<()> {
    headline("Every minute, two Pods at once");
    cluster.kubectl(&["patch", SAMPLE, "--type=merge", "-p", r#"{"spec":{"cronSpec":"* * * * *","replicas":2}}"#])?;
    cluster.until_within(TO_A_TICK, "a Job with two Pods that have succeeded", || {
        let succeeded = cluster.read(&["get", "jobs", "-o", "jsonpath={.items[*].status.succeeded}"])?;
        Ok(succeeded.split(' ').any(|count| count == "2"))
    })?;
    cluster.until("the tick in the CronTab's status", || {
        Ok(!cluster.read(&["get", SAMPLE, "-o", "jsonpath={.status.lastScheduleTime}"])?.is_empty())
    })?;
    cluster.kubectl(&["get", "ct,jobs,pods"])
}
