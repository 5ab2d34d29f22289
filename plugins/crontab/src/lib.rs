//! CronTab creates a Job at each tick of a schedule. An object and the Jobs that it owns go in, the desired Jobs and a
//! status come out. The host evaluates the schedule, and the Job controller runs the Jobs.
//!
//! A Job is named after its tick, and a tick is done when its Job was seen or the status has it. So no tick runs twice,
//! however often it is reconciled and by whichever host.

use mortise_sdk::prelude::*;
use mortise_sdk::{LatestTick, MAX_CHILDREN, ScheduleError};

use self::admission::check;
use self::job::Job;

mod admission;
mod job;
#[cfg(test)]
mod tests;

/// Runs a Job at each tick of a schedule.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "stable.example.com", version = "v1beta1", kind = "CronTab", plural = "crontabs", short_name = "ct",
    status = CronTabStatus,
    column(name = "Spec", path = ".spec.cronSpec"),
    column(name = "Replicas", type = "integer", path = ".spec.replicas"),
    column(name = "Suspend", type = "boolean", path = ".spec.suspend"),
    column(name = "Last Schedule", type = "date", path = ".status.lastScheduleTime"),
    column(name = "Ready", path = ".status.conditions[?(@.type=='Ready')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Ready')].message", wide)
)]
#[serde(rename_all = "camelCase")]
pub struct CronTabSpec {
    /// The schedule: five fields (minute, hour, day of month, month, day of week), or a macro such as @daily. White
    /// space around it is allowed.
    #[schemars(length(max = 1024))]
    pub cron_spec: String,
    /// The image of the container that each Pod runs.
    #[schemars(length(min = 1))]
    pub image: String,
    /// How many Pods a Job runs, all at once.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// The IANA time zone of cronSpec; UTC unless given.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// No Job is started while this is true. The newest missed tick runs afterwards, unless its deadline has passed.
    #[serde(default)]
    pub suspend: bool,
    /// How many seconds after its tick a Job may still be started; any number unless given.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
    /// What happens at a tick while Jobs of earlier ticks run.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// How many finished Jobs are kept.
    #[serde(default = "three")]
    #[schemars(range(min = 0, max = 100))]
    pub history_limit: i32,
}

/// What happens at a tick while Jobs of earlier ticks run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConcurrencyPolicy {
    /// Its Job runs beside them.
    #[default]
    Allow,
    /// Its Job waits until they have ended; only the newest tick runs then.
    Forbid,
    /// They are deleted, then its Job runs.
    Replace,
}

fn one() -> i32 {
    1
}

fn three() -> i32 {
    3
}

/// The last observed state of a CronTab.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct CronTabStatus {
    /// The newest tick that has had its Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Timestamp>,
    /// The next tick; none while suspended, and when cronSpec never fires or does not parse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Timestamp>,
    /// The Jobs that run.
    pub active: Vec<String>,
}

/// What to do for the ticks since the last one that had its Job.
enum Due {
    /// There was no tick, or the CronTab is suspended.
    Nothing,
    /// Create the newest tick's Job; earlier ticks were missed.
    Start(LatestTick),
    /// The newest tick is older than the deadline.
    Late(u64),
    /// The newest tick waits until the running Jobs have ended.
    Waits(u64),
    /// The running Jobs are deleted for the newest tick.
    Replaces(u64),
}

/// How long a Job is kept that waits only for its tick to be in the status: the status is written at once.
const RECORDED_AFTER: Duration = Duration::from_secs(1);

#[reconciler(owns("batch/v1/Job", update = "on_delete"), admission(validate = check))]
fn reconcile(tab: &CronTab, cx: &Context) -> Result<Outcome<CronTabStatus>, Failure> {
    let now = cx.now_unix_ms();
    let jobs = job::owned(cx)?;
    let recorded = tab.status.get().and_then(|status| status.last_schedule_time).map(Timestamp::unix_ms);
    let last = recorded.max(jobs.iter().map(|job| job.tick).max());
    let mut status = CronTabStatus {
        last_schedule_time: last.map(Timestamp::from_unix_ms),
        next_schedule_time: None,
        active: jobs.iter().filter(|job| job.is_active()).map(|job| job.name.to_owned()).collect(),
    };
    let (next, due) = match ticks(tab, cx, now, last, &status.active) {
        Ok(ticks) => ticks,
        Err(error) => return Ok(Outcome::new().status(&status).ready(false, "InvalidSchedule", error.message())),
    };
    status.next_schedule_time = next.filter(|_| !tab.spec.suspend).map(Timestamp::from_unix_ms);

    let (mut children, waits_for_status) = kept(tab, &jobs, &due, recorded);
    if let Due::Start(tick) = &due {
        children.push(job::new(&tab.metadata.name, tick.unix_ms, &tab.spec.image, tab.spec.replicas));
    }
    if children.len() > MAX_CHILDREN {
        let message = format!("{} Jobs run, and a CronTab can own {MAX_CHILDREN} at most", status.active.len());
        return Ok(Outcome::new().status(&status).ready(false, "TooManyJobs", message));
    }
    let mut outcome = report(tab, next, &due, Outcome::children(children).status(&status));
    if let Some(next) = next.filter(|_| !tab.spec.suspend) {
        outcome = outcome.requeue_after(Duration::from_millis(next.saturating_sub(now)));
    }
    Ok(if waits_for_status { outcome.requeue_after(RECORDED_AFTER) } else { outcome })
}

/// The next tick, and what to do for past ones.
fn ticks(
    tab: &CronTab,
    cx: &Context,
    now: u64,
    last: Option<u64>,
    active: &[String],
) -> Result<(Option<u64>, Due), ScheduleError> {
    let spec = &tab.spec;
    let zone = spec.time_zone.as_deref().unwrap_or("UTC");
    // After a clock was set back, ticks after `now` may have had their Jobs.
    let next = cx.next_tick(&spec.cron_spec, zone, last.map_or(now, |last| last.max(now)))?;
    let created = tab.metadata.creation_timestamp.as_deref().and_then(Timestamp::parse);
    let begin = last.or(created.map(Timestamp::unix_ms)).unwrap_or(now);
    let Some(tick) = cx.latest_tick(&spec.cron_spec, zone, begin, now)?.filter(|_| !spec.suspend) else {
        return Ok((next, Due::Nothing));
    };
    let deadline = spec.starting_deadline_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let is_late = deadline.is_some_and(|seconds| now - tick.unix_ms > seconds.saturating_mul(1000));
    let due = match spec.concurrency_policy {
        _ if is_late => Due::Late(tick.unix_ms),
        ConcurrencyPolicy::Forbid if !active.is_empty() => Due::Waits(tick.unix_ms),
        ConcurrencyPolicy::Replace if !active.is_empty() => Due::Replaces(tick.unix_ms),
        _ => Due::Start(tick),
    };
    Ok((next, due))
}

/// The Jobs to keep: running ones, unless they are replaced, and the newest finished ones. Also whether one is kept
/// only until its tick is in the status: without Job and status, the tick would run again.
fn kept(tab: &CronTab, jobs: &[Job], due: &Due, recorded: Option<u64>) -> (Vec<Child>, bool) {
    let replaces = matches!(due, Due::Replaces(_));
    let jobs = || jobs.iter().filter(|job| job.deleted_at.is_none());
    let active = jobs().filter(|job| job.is_active()).count();
    let limit = usize::try_from(tab.spec.history_limit).unwrap_or_default();
    // Room for the Job of the next tick.
    let room = MAX_CHILDREN.saturating_sub(active + 1);
    let mut too_old = (jobs().count() - active).saturating_sub(limit.min(room));
    let (mut children, mut waits_for_status) = (Vec::with_capacity(jobs().count() + 1), false);
    for job in jobs() {
        let unwanted = if job.is_active() { replaces } else { too_old > 0 };
        too_old = too_old.saturating_sub(usize::from(!job.is_active()));
        // A Job that is replaced need not be in the status: a newer tick is still to run, and older ones never run
        // after it.
        if unwanted && (replaces || recorded.is_some_and(|recorded| job.tick <= recorded)) {
            continue;
        }
        waits_for_status |= unwanted;
        children.push(job.kept());
    }
    (children, waits_for_status)
}

/// Events and the condition `Ready`.
fn report(tab: &CronTab, next: Option<u64>, due: &Due, outcome: Outcome<CronTabStatus>) -> Outcome<CronTabStatus> {
    let time = |unix_ms: u64| Timestamp::from_unix_ms(unix_ms).to_string();
    let outcome = match due {
        Due::Start(tick) => {
            let started = ["started the Job of ", &time(tick.unix_ms)].concat();
            let outcome = outcome.event(Event::normal("SuccessfulCreate", started));
            match tick.count - 1 {
                0 => outcome,
                missed => {
                    let message = ["; ticks before it that were missed: ", &missed.to_string()].concat();
                    let newest = ["only the newest tick runs, that of ", &time(tick.unix_ms), &message].concat();
                    outcome.event(Event::warning("MissedSchedule", newest))
                }
            }
        }
        Due::Late(tick) => {
            let message =
                ["the tick of ", &time(*tick), " was missed by more than spec.startingDeadlineSeconds"].concat();
            outcome.event(Event::warning("MissedSchedule", message))
        }
        _ => outcome,
    };
    match (due, next) {
        _ if tab.spec.suspend => outcome.ready(true, "Suspended", "spec.suspend is set: no Job is started"),
        (Due::Waits(tick), _) => {
            let message = ["the tick of ", &time(*tick), " waits until the running Jobs have ended"].concat();
            outcome.ready(true, "JobActive", message)
        }
        (Due::Replaces(tick), _) => {
            let message = ["the running Jobs make room for the tick of ", &time(*tick)].concat();
            outcome.ready(true, "Replacing", message)
        }
        (_, Some(next)) => outcome.ready(true, "Scheduled", ["the next tick is at ", &time(next)].concat()),
        (_, None) => outcome.ready(false, "NeverFires", format!("{:?} never fires again", tab.spec.cron_spec)),
    }
}
