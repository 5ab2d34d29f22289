//! The Jobs of a CronTab. This file must not know schedules.
//!
//! A Job's template is immutable, and a Job that has run must not run again when the CronTab gets another image, or when
//! somebody deletes it. So an existing Job is kept as it is.

use mortise_sdk::prelude::*;

/// A tick's key, which is also part of its Job's name, is the number of minutes since 1970.
const MINUTE_MS: u64 = 60_000;
/// The longest name of a CronTab to which a dash and eight digits can be added: a Job's name becomes the value of a
/// label, which has 63 bytes at most.
const MAX_OWN_NAME_BYTES: usize = 54;

/// Annotation: when the Job was due, for people.
const SCHEDULED_AT: &str = "stable.example.com/scheduled-at";

/// The fields of a Job that are read.
#[derive(Projection)]
#[projection("batch/v1/Job")]
struct Read<'a> {
    #[field(child_key)]
    key: Option<&'a str>,
    #[field("metadata.name")]
    name: &'a str,
    #[field("metadata.deletionTimestamp")]
    deleted_at: Option<&'a str>,
    #[field("status.conditions")]
    conditions: Option<Vec<JobCondition>>,
}

#[derive(Deserialize)]
struct JobCondition {
    r#type: String,
    status: String,
}

/// The Job of a tick.
pub(crate) struct Job<'a> {
    /// Unix milliseconds.
    pub(crate) tick: u64,
    pub(crate) name: &'a str,
    pub(crate) deleted_at: Option<&'a str>,
    is_finished: bool,
}

impl Job<'_> {
    /// Running or about to run.
    pub(crate) fn is_active(&self) -> bool {
        self.deleted_at.is_none() && !self.is_finished
    }

    /// The existing Job as a child.
    pub(crate) fn kept(&self) -> Child {
        Child::keep(key_of(self.tick), "batch/v1", "Job")
    }
}

/// The Jobs of a CronTab, the oldest first, without those whose key is no tick.
pub(crate) fn owned(cx: &Context) -> Result<Vec<Job<'_>>, Failure> {
    let read: Vec<Read> = cx.owned()?;
    let mut jobs: Vec<Job> = read.into_iter().filter_map(job).collect();
    jobs.sort_by_key(|job| job.tick);
    Ok(jobs)
}

fn job(read: Read<'_>) -> Option<Job<'_>> {
    let minute: u64 = read.key?.parse().ok()?;
    let is_end = |condition: &JobCondition| {
        condition.status == "True" && matches!(condition.r#type.as_str(), "Complete" | "Failed")
    };
    Some(Job {
        tick: minute.checked_mul(MINUTE_MS)?,
        name: read.name,
        deleted_at: read.deleted_at,
        is_finished: read.conditions.iter().flatten().any(is_end),
    })
}

fn key_of(tick: u64) -> String {
    (tick / MINUTE_MS).to_string()
}

/// A new Job for a tick. Without a name, which would be too long, the host derives one.
pub(crate) fn new(crontab: &str, tick: u64, image: &str, replicas: i32) -> Child {
    let minute = key_of(tick);
    let mut job = json!({
        "metadata": {"annotations": {SCHEDULED_AT: Timestamp::from_unix_ms(tick)}},
        "spec": {
            "parallelism": replicas, "completions": replicas,
            "template": {"spec": {
                "restartPolicy": "OnFailure",
                "containers": [{"name": "cron", "image": image}],
            }},
        },
    });
    if crontab.len() <= MAX_OWN_NAME_BYTES {
        job["metadata"]["name"] = [crontab, "-", &minute].concat().into();
    }
    Child::new(minute, Json::of_kind("batch/v1", "Job", &job))
}
