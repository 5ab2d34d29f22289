//! One Job of a CronTab: how it is wanted, and what is read of it. Knows no schedule.
//!
//! A Job's template cannot be changed, and a Job that has run must not run again because the CronTab has another image now.
//! So a Job that exists is wanted by its name alone: the host leaves it as it is (`update = "on_delete"`), and should somebody
//! delete it while it is wanted, there is nothing that the API server would make a Job of.

use mortise_sdk::prelude::*;

/// A tick's key and part of its Job's name is its number of minutes since 1970.
const MINUTE_MS: u64 = 60_000;
/// The longest name of a CronTab to which a minute of eight digits can be added: a Job's name becomes the value of a label,
/// which has 63 bytes.
const MAX_OWN_NAME_BYTES: usize = 54;

/// Says when a Job should have started, for people.
const SCHEDULED_AT: &str = "stable.example.com/scheduled-at";

/// What matters about a Job.
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

/// A Job of a tick.
pub(crate) struct Job<'a> {
    /// Unix milliseconds.
    pub(crate) tick: u64,
    pub(crate) name: &'a str,
    pub(crate) deleted_at: Option<&'a str>,
    is_finished: bool,
}

impl Job<'_> {
    /// It runs or is about to.
    pub(crate) fn is_active(&self) -> bool {
        self.deleted_at.is_none() && !self.is_finished
    }

    /// The Job as it is.
    pub(crate) fn kept(&self) -> Child {
        let named = json!({"metadata": {"name": self.name}});
        Child::new(key_of(self.tick), Json::of_kind("batch/v1", "Job", &named))
    }
}

/// The Jobs of a CronTab, the oldest first. What carries no tick is none of them.
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

/// The Job of a tick that has none. The host names those of a CronTab whose name is too long.
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
