//! Restarting what an Eru names: an Eru goes in with its Deployment and the time, a patch of the Deployment's Pod template
//! and a status come out. It does not know where the Eru came from.
//!
//! The Deployment itself remembers the tick of its last restart, in the annotation that restarts it. So a tick that has been
//! acted upon is known to have been, whoever looks and whatever died in between, and the status follows what stands there.

use mortise_sdk::prelude::*;
use mortise_sdk::{LatestTick, ScheduleError};

use crate::{Eru, EruStatus};

/// On the Pod template: the tick of the last restart. A new value makes the Deployment controller roll the Pods.
const RESTARTED_AT: &str = "mtsre.meitu.com/restarted-at";

/// What of a Deployment matters for its restart.
#[derive(Projection)]
#[projection("apps/v1/Deployment")]
struct Target<'a> {
    #[field("metadata.creationTimestamp")]
    created: Option<&'a str>,
    #[field("metadata.deletionTimestamp")]
    deleted_at: Option<&'a str>,
    #[field("spec.paused")]
    paused: Option<bool>,
    #[field("spec.template.metadata.annotations[\"mtsre.meitu.com/restarted-at\"]")]
    restarted_at: Option<String>,
}

/// An Eru of the same namespace, which may name the same Deployment.
#[derive(Projection)]
#[projection("mtsre.meitu.com/v1/Eru")]
struct Other<'a> {
    #[field("metadata.name")]
    name: &'a str,
    #[field("metadata.creationTimestamp")]
    created: Option<&'a str>,
    #[field("metadata.deletionTimestamp")]
    deleted_at: Option<&'a str>,
    #[field("spec.deployment")]
    deployment: Option<&'a str>,
}

/// Why nothing is restarted, for a person.
type Obstacle = (&'static str, String);

#[controller(reads(Target<'static>), writes("apps/v1/Deployment", "patch"))]
pub(crate) fn restart(eru: &Eru, cx: &Context) -> Result<Outcome, Failure> {
    let (now, name) = (cx.now_unix_ms(), &eru.spec.deployment);
    let namespace = eru.metadata.namespace.as_deref();
    let target: Option<Target> = cx.get(namespace, name)?.filter(|target: &Target| target.deleted_at.is_none());
    let mut status = observed(eru, target.as_ref());
    let (next, due) = match ticks(eru, cx, now, target.as_ref(), status.last_restart_time) {
        Ok(ticks) => ticks,
        Err((reason, message)) => return Ok(Outcome::new().status(&status).ready(false, reason, message)),
    };
    status.next_restart_time = next.filter(|_| !eru.spec.suspend).map(Timestamp::from_unix_ms);
    let mut outcome = Outcome::new().status(&status);
    if let Some(next) = next.filter(|_| !eru.spec.suspend) {
        outcome = outcome.requeue_after(Duration::from_millis(next.saturating_sub(now)));
    }
    if let Some((reason, message)) = obstacle(eru, cx, target.as_ref())? {
        return Ok(outcome.ready(false, reason, message));
    }
    if eru.spec.suspend {
        return Ok(outcome.ready(true, "Suspended", "spec.suspend is set: nothing is restarted"));
    }
    if let Some(tick) = due {
        outcome = outcome.action(restarted(eru, tick)).event(told(name, tick));
    }
    Ok(match next {
        Some(next) => {
            let next = Timestamp::from_unix_ms(next).to_string();
            outcome.ready(true, "Scheduled", ["the next restart is at ", &next].concat())
        }
        None => outcome.ready(false, "NeverFires", "spec.schedule never fires again"),
    })
}

/// What has happened so far: a tick that stands on the Deployment and not in the status yet is one restart more.
fn observed(eru: &Eru, target: Option<&Target>) -> EruStatus {
    let mut status = eru.status.get().cloned().unwrap_or_default();
    status.next_restart_time = None;
    let stands = target.and_then(|target| Timestamp::parse(target.restarted_at.as_deref()?));
    // What is older was brought about by another Eru.
    let created = time(eru.metadata.creation_timestamp.as_deref());
    if let Some(stands) = stands.filter(|stands| *stands > created && Some(*stands) > status.last_restart_time) {
        status.last_restart_time = Some(stands);
        status.restarts += 1;
    }
    status
}

/// The next tick, and the newest one that has not led to a restart yet.
fn ticks(
    eru: &Eru,
    cx: &Context,
    now: u64,
    target: Option<&Target>,
    last: Option<Timestamp>,
) -> Result<(Option<u64>, Option<LatestTick>), Obstacle> {
    let schedule = eru.spec.schedule.as_deref().filter(|schedule| !schedule.trim().is_empty());
    let Some(schedule) = schedule else {
        let message =
            "spec.schedule says nothing; set it here, or the annotation mtsre.meitu.com/eru-schedule on the Deployment";
        return Err(("NoSchedule", message.to_owned()));
    };
    let invalid = |error: ScheduleError| ("InvalidSchedule", error.message().to_owned());
    let zone = eru.spec.time_zone.as_deref().unwrap_or("UTC");
    let last = last.map(Timestamp::unix_ms);
    // A clock that was set back sees ticks again that have been.
    let next = cx.next_tick(schedule, zone, last.map_or(now, |last| last.max(now))).map_err(invalid)?;
    let created = time(eru.metadata.creation_timestamp.as_deref()).unix_ms();
    // A Deployment that was made after a tick has nothing left to restart.
    let made = time(target.and_then(|target| target.created)).unix_ms();
    let due = cx.latest_tick(schedule, zone, last.unwrap_or(created).max(made), now).map_err(invalid)?;
    Ok((next, due))
}

/// What keeps the Deployment from being restarted, apart from the time.
fn obstacle(eru: &Eru, cx: &Context, target: Option<&Target>) -> Result<Option<Obstacle>, Failure> {
    let name = &eru.spec.deployment;
    let mut others = Query::<Other>::new();
    if let Some(namespace) = eru.metadata.namespace.as_deref() {
        others = others.namespace(namespace);
    }
    let others: Vec<Other> = cx.list(&others)?;
    let others = others.iter().filter(|other| other.deployment == Some(name) && other.deleted_at.is_none());
    // The oldest one has it. Those of one second are told apart by their names.
    let first = others.min_by_key(|other| (time(other.created), other.name)).map(|other| other.name);
    if let Some(first) = first.filter(|first| *first != eru.metadata.name) {
        let message = format!("the Eru {first} restarts the Deployment {name} already; delete one of the two");
        return Ok(Some(("DeploymentTaken", message)));
    }
    Ok(match target {
        None => Some(("DeploymentNotFound", format!("there is no Deployment {name} in this namespace"))),
        Some(target) if target.paused == Some(true) => {
            let message =
                format!("the Deployment {name} is paused; a tick of that time is made up for when it goes on");
            Some(("DeploymentPaused", message))
        }
        Some(_) => None,
    })
}

fn restarted(eru: &Eru, tick: LatestTick) -> Patch {
    let at = Timestamp::from_unix_ms(tick.unix_ms);
    let body = json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: at}}}}});
    let namespace = eru.metadata.namespace.as_deref();
    Patch::merge(ObjectKey::of::<Target>(namespace, &eru.spec.deployment), &body)
}

fn told(deployment: &str, tick: LatestTick) -> Event {
    let at = Timestamp::from_unix_ms(tick.unix_ms).to_string();
    let message = ["restarts the Deployment ", deployment, " for the tick of ", &at].concat();
    match tick.count - 1 {
        0 => Event::normal("Restarted", message),
        missed => Event::warning("MissedSchedule", format!("{message}; ticks before it that were missed: {missed}")),
    }
}

/// An instant of the API server's; one that is not there is before all others.
fn time(text: Option<&str>) -> Timestamp {
    text.and_then(Timestamp::parse).unwrap_or(Timestamp::from_unix_ms(0))
}
