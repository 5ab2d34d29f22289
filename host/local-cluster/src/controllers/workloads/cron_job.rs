//! cronjob-controller: a Job for each time of a schedule. Input: a CronJob and its Jobs. Output: Jobs created and deleted,
//! and the status. It must not know how Jobs run.

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::field::{after, list, set, text};
use super::job;
use super::ownership::{CRON_JOBS, JOBS, controlled, is_controlled_by, keys, refusal};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Key};
use crate::controllers::write;
use crate::deletion::{DeleteOptions, Propagation};
use crate::halt::Halt;
use crate::schedule::Schedule;
use crate::store::{Change, Object};
use crate::time;

/// How long after its time a schedule is looked at, as the real controller does.
const DELTA: SignedDuration = SignedDuration::from_millis(100);
/// How many missed times are reported as too many.
const MANY: i64 = 100;
/// Marks the key of a CronJob whose schedule changed: times of the new one that have passed already do not count. No name
/// has this letter.
const CHANGED: char = '@';

pub(super) fn keys_of(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let mut keys = keys(cluster, change, &CRON_JOBS, &JOBS);
    let schedule =
        |object: &Object| (object.value["spec"]["schedule"].clone(), object.value["spec"]["timeZone"].clone());
    let changed = change.previous.as_ref().is_some_and(|previous| schedule(previous) != schedule(&change.object));
    if changed && change.storage == CRON_JOBS.storage() {
        for (_, name) in &mut keys {
            *name = format!("{name}{CHANGED}").into();
        }
    }
    keys
}

/// A CronJob as one look sees it.
struct View {
    cron: Arc<Object>,
    /// The status that it will have.
    status: Map<String, Value>,
    active: Vec<Value>,
    jobs: Vec<Arc<Object>>,
}

pub(super) fn reconcile(cluster: &mut Cluster, context: &Context<'_>, key: &Key) -> Result<Again, Halt> {
    let name = key.1.trim_end_matches(CHANGED);
    let Some(cron) = CRON_JOBS.get(cluster, &(key.0.clone(), name.into())) else { return Ok(Again::No) };
    if name.len() < key.1.len()
        && let Some(at) = after_change(&cron, context.now)
    {
        return Ok(Again::At(at));
    }
    let mut view = View {
        status: cron.value["status"].as_object().cloned().unwrap_or_default(),
        active: list(&cron.value["status"]["active"]).to_vec(),
        jobs: controlled(cluster, &cron, &JOBS),
        cron,
    };
    observe(cluster, context, &mut view)?;
    let again = start(cluster, context, &mut view)?;
    clean_up(cluster, context, &mut view)?;
    view.status.remove("active");
    if !view.active.is_empty() {
        view.status.insert("active".to_owned(), view.active.into());
    }
    let status = Value::Object(view.status);
    if status != view.cron.value["status"] {
        write::update_status(cluster, context, &view.cron, status)?;
    }
    Ok(again)
}

/// When a changed schedule fires first; nothing if it does now.
fn after_change(cron: &Object, now: Timestamp) -> Option<Timestamp> {
    let schedule = parse(cron).ok()?;
    let due = schedule.next(now - SignedDuration::from_secs(1)).filter(|at| *at <= now);
    if due.is_some() { None } else { schedule.next(now).map(|at| at + DELTA) }
}

fn parse(cron: &Object) -> Result<Schedule, String> {
    let spec = &cron.value["spec"];
    Schedule::parse(text(&spec["schedule"]), spec["timeZone"].as_str())
}

/// Takes finished and missing Jobs from the active ones, and remembers the last success.
fn observe(cluster: &mut Cluster, context: &Context<'_>, view: &mut View) -> Result<(), Halt> {
    let cron = view.cron.clone();
    for job in view.jobs.clone() {
        let found = view.active.iter().any(|known| known["uid"] == job.uid());
        match (job::finished(&job.value), found) {
            (None, true) => {}
            (None, false) => {
                let message = format!("Saw a job that the controller did not create or forgot: {}", job.name());
                write::event(cluster, context, &cron, "Warning", "UnexpectedJob", &message)?;
            }
            (Some(end), _) => {
                if found {
                    view.active.retain(|known| known["uid"] != job.uid());
                    let message = format!("Saw completed job: {}, condition: {end}", job.name());
                    write::event(cluster, context, &cron, "Normal", "SawCompletedJob", &message)?;
                }
                let at = &job.value["status"]["completionTime"];
                let last = view.status.get("lastSuccessfulTime").and_then(time::read);
                if end == "Complete" && time::read(at).is_some_and(|at| last.is_none_or(|last| at > last)) {
                    view.status.insert("lastSuccessfulTime".to_owned(), at.clone());
                }
            }
        }
    }
    for known in view.active.clone() {
        let key = (text(&known["namespace"]).into(), text(&known["name"]).into());
        let ours = view.jobs.iter().any(|job| known["uid"] == job.uid());
        if !ours && JOBS.get(cluster, &key).is_none() {
            let message = format!("Active job went missing: {}", key.1);
            write::event(cluster, context, &cron, "Normal", "MissingJob", &message)?;
            view.active.retain(|one| one["uid"] != known["uid"]);
        }
    }
    Ok(())
}

/// Starts the Job of the last time that has passed, unless it was started, is too late, or the policy is against it.
fn start(cluster: &mut Cluster, context: &Context<'_>, view: &mut View) -> Result<Again, Halt> {
    let (cron, spec) = (view.cron.clone(), view.cron.value["spec"].clone());
    if cron.terminates() || spec["suspend"] == true {
        return Ok(Again::No);
    }
    let schedule = match parse(&cron) {
        Ok(schedule) => schedule,
        Err(why) => {
            let message = format!("unparseable schedule: {:?} : {why}", text(&spec["schedule"]));
            write::event(cluster, context, &cron, "Warning", "UnparseableSchedule", &message)?;
            return Ok(Again::No);
        }
    };
    let again = next(view, &schedule, context.now).map_or(Again::No, Again::At);
    let deadline = spec["startingDeadlineSeconds"].as_i64();
    let recent = recent(view, &schedule, context.now, deadline);
    let Some(at) = recent.last else { return Ok(again) };
    if recent.missed > MANY {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        write::event(cluster, context, &cron, "Warning", "TooManyMissedTimes", message)?;
    }
    if deadline.is_some_and(|seconds| after(at, seconds) < context.now) {
        let at = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {at}");
        write::event(cluster, context, &cron, "Warning", "MissSchedule", &message)?;
        return Ok(again);
    }
    let name = format!("{}-{}", cron.name(), at.as_second() / 60);
    let started = view.status.get("lastScheduleTime").and_then(time::read) == Some(at);
    if started || view.active.iter().any(|known| known["name"] == name) {
        return Ok(again);
    }
    if spec["concurrencyPolicy"] == "Forbid" && !view.active.is_empty() {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        write::event(cluster, context, &cron, "Normal", "JobAlreadyActive", message)?;
        return Ok(again);
    }
    if spec["concurrencyPolicy"] == "Replace" {
        for known in view.active.clone() {
            let key = (text(&known["namespace"]).into(), text(&known["name"]).into());
            if let Some(job) = JOBS.get(cluster, &key) {
                delete(cluster, context, view, &job)?;
            }
        }
    }
    create(cluster, context, view, (name, at), again)
}

fn create(
    cluster: &mut Cluster,
    context: &Context<'_>,
    view: &mut View,
    (name, at): (String, Timestamp),
    again: Again,
) -> Result<Again, Halt> {
    let cron = view.cron.clone();
    let job = template(&cron, &name, at);
    let job = match refusal(write::create(cluster, context, JOBS.name(), cron.namespace(), job))? {
        Ok(job) => {
            write::event(cluster, context, &cron, "Normal", "SuccessfulCreate", &format!("Created job {name}"))?;
            job
        }
        Err(status) if status.reason == "AlreadyExists" => {
            let known = JOBS.get(cluster, &(cron.namespace().into(), name.into()));
            match known.filter(|job| is_controlled_by(job, cron.uid())) {
                Some(job) => job,
                None => return Ok(Again::No),
            }
        }
        Err(status) => {
            let message = format!("Error creating job: {}", status.message);
            write::event(cluster, context, &cron, "Warning", "FailedCreate", &message)?;
            return Ok(Again::Later);
        }
    };
    if job::finished(&job.value).is_none() {
        view.active.push(json!({
            "kind": JOBS.kind, "namespace": job.namespace(), "name": job.name(), "uid": job.uid(),
            "apiVersion": "batch/v1", "resourceVersion": job.value["metadata"]["resourceVersion"],
        }));
    }
    view.status.insert("lastScheduleTime".to_owned(), time::seconds(at).into());
    Ok(match next(view, &parse(&cron).map_err(crate::halt::Status::internal)?, context.now) {
        Some(at) => Again::At(at),
        None => again,
    })
}

fn template(cron: &Object, name: &str, at: Timestamp) -> Value {
    let template = &cron.value["spec"]["jobTemplate"];
    let mut job = json!({
        "metadata": {"name": name, "ownerReferences": [CRON_JOBS.reference(cron)]},
        "spec": template["spec"],
    });
    for key in ["labels", "annotations"] {
        if template["metadata"][key].is_object() {
            job["metadata"][key] = template["metadata"][key].clone();
        }
    }
    let zone = cron.value["spec"]["timeZone"].as_str().and_then(|name| TimeZone::get(name).ok());
    let wall = match zone.filter(|zone| *zone != TimeZone::UTC) {
        Some(zone) => at.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        None => time::seconds(at),
    };
    set(&mut job, "annotations", "batch.kubernetes.io/cronjob-scheduled-timestamp", &wall);
    job
}

/// The times of a schedule that have passed since the last one that was seen.
struct Recent {
    earliest: Timestamp,
    last: Option<Timestamp>,
    missed: i64,
}

fn recent(view: &View, schedule: &Schedule, now: Timestamp, deadline: Option<i64>) -> Recent {
    let last = view.status.get("lastScheduleTime").and_then(time::read);
    let made = || time::read(&view.cron.value["metadata"]["creationTimestamp"]);
    let mut earliest = last.or_else(made).unwrap_or(now);
    if let Some(seconds) = deadline {
        earliest = earliest.max(after(now, seconds.saturating_neg()));
    }
    let first = schedule.next(earliest).filter(|first| *first <= now);
    let Some(first) = first else { return Recent { earliest, last: None, missed: 0 } };
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else {
        return Recent { earliest, last: Some(first), missed: 0 };
    };
    // Counted by the distance of the first two: a schedule with gaps counts as more than it has.
    let period = (second.as_second() - first.as_second()).max(1);
    let missed = (now.as_second() - first.as_second()) / period + 1;
    let from = after(first, (missed - 2).saturating_mul(period));
    let times = std::iter::successors(schedule.next(from), |at| schedule.next(*at));
    Recent { earliest, last: times.take_while(|at| *at <= now).last(), missed }
}

/// When to look again.
fn next(view: &View, schedule: &Schedule, now: Timestamp) -> Option<Timestamp> {
    let recent = recent(view, schedule, now, None);
    let from = recent.last.unwrap_or(if recent.missed == 0 { recent.earliest } else { now });
    schedule.next(from.min(now)).map(|at| at.max(now).saturating_add(DELTA).unwrap_or(Timestamp::MAX))
}

/// Deletes the oldest finished Jobs beyond what the history keeps.
fn clean_up(cluster: &mut Cluster, context: &Context<'_>, view: &mut View) -> Result<(), Halt> {
    for (limit, end) in [("successfulJobsHistoryLimit", "Complete"), ("failedJobsHistoryLimit", "Failed")] {
        let Some(limit) = view.cron.value["spec"][limit].as_i64() else { continue };
        let mut jobs: Vec<Arc<Object>> =
            view.jobs.iter().filter(|job| job::finished(&job.value) == Some(end)).cloned().collect();
        jobs.sort_by_cached_key(|job| {
            let start = time::read(&job.value["status"]["startTime"]);
            (start.is_none(), start, job.name().to_owned())
        });
        let excess = jobs.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for job in jobs.iter().take(excess).filter(|job| !job.terminates()) {
            delete(cluster, context, view, job)?;
        }
    }
    Ok(())
}

fn delete(cluster: &mut Cluster, context: &Context<'_>, view: &mut View, job: &Object) -> Result<(), Halt> {
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    write::delete(cluster, context, job, &options)?;
    view.active.retain(|known| known["uid"] != job.uid());
    write::event(cluster, context, &view.cron, "Normal", "SuccessfulDelete", &format!("Deleted job {}", job.name()))
}
