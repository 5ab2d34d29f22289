//! Restarts the Deployment of an Eru: an Eru, its Deployment and the time go in, a patch of the Deployment's Pod
//! template and a status come out. This file must not know who created the Eru.
//!
//! The annotation that restarts a Deployment contains the tick of the restart. So a host knows from the Deployment
//! which tick was the last, also after a crash, and the status is derived from it.

use mortise_sdk::prelude::*;
use mortise_sdk::{LatestTick, ScheduleError};

use crate::{Eru, EruStatus};

/// On the Pod template: the tick of the last restart. A new value causes the Deployment controller to roll the Pods.
const RESTARTED_AT: &str = "mtsre.meitu.com/restarted-at";

/// The fields of a Deployment that are read.
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

/// Reason and message of why nothing is restarted.
type Obstacle = (&'static str, String);

#[controller(reads(Target), writes("apps/v1/Deployment", "patch"))]
pub(crate) fn restart(eru: &Eru, cx: &Context) -> Result<Outcome<EruStatus>, Failure> {
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
        outcome = outcome.action(restarted(eru, tick)).event(event(name, tick));
    }
    Ok(match next {
        Some(next) => {
            let next = Timestamp::from_unix_ms(next).to_string();
            outcome.ready(true, "Scheduled", ["the next restart is at ", &next].concat())
        }
        None => outcome.ready(false, "NeverFires", "spec.schedule never fires again"),
    })
}

/// The status so far. A tick that is on the Deployment and not in the status is one more restart.
fn observed(eru: &Eru, target: Option<&Target>) -> EruStatus {
    let mut status = eru.status.get().cloned().unwrap_or_default();
    status.next_restart_time = None;
    let restarted_at = target.and_then(|target| Timestamp::parse(target.restarted_at.as_deref()?));
    // An older tick is another Eru's.
    let created = time(eru.metadata.creation_timestamp.as_deref());
    if let Some(tick) = restarted_at.filter(|tick| *tick > created && Some(*tick) > status.last_restart_time) {
        status.last_restart_time = Some(tick);
        status.restarts += 1;
    }
    status
}

/// The next tick, and the newest past one that has not caused a restart yet.
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
            "spec.schedule is empty; set it here, or the annotation mtsre.meitu.com/eru-schedule on the Deployment";
        return Err(("NoSchedule", message.to_owned()));
    };
    let invalid = |error: ScheduleError| ("InvalidSchedule", error.message().to_owned());
    let zone = eru.spec.time_zone.as_deref().unwrap_or("UTC");
    let last = last.map(Timestamp::unix_ms);
    // After a clock was set back, ticks after `now` may have caused restarts.
    let next = cx.next_tick(schedule, zone, last.map_or(now, |last| last.max(now))).map_err(invalid)?;
    let created = time(eru.metadata.creation_timestamp.as_deref()).unix_ms();
    // A Deployment that was created after a tick needs no restart for it.
    let target_created = time(target.and_then(|target| target.created)).unix_ms();
    let due = cx.latest_tick(schedule, zone, last.unwrap_or(created).max(target_created), now).map_err(invalid)?;
    Ok((next, due))
}

/// What prevents a restart, apart from the time.
fn obstacle(eru: &Eru, cx: &Context, target: Option<&Target>) -> Result<Option<Obstacle>, Failure> {
    let name = &eru.spec.deployment;
    let mut others = Query::<Other>::new();
    if let Some(namespace) = eru.metadata.namespace.as_deref() {
        others = others.namespace(namespace);
    }
    let others: Vec<Other> = cx.list(&others)?;
    let others = others.iter().filter(|other| other.deployment == Some(name) && other.deleted_at.is_none());
    // The oldest Eru has the Deployment; of those of one second, the first by name.
    let first = others.min_by_key(|other| (time(other.created), other.name)).map(|other| other.name);
    if let Some(first) = first.filter(|first| *first != eru.metadata.name) {
        let message = format!("the Eru {first} restarts the Deployment {name} already; delete one of the two");
        return Ok(Some(("DeploymentTaken", message)));
    }
    Ok(match target {
        None => Some(("DeploymentNotFound", format!("there is no Deployment {name} in this namespace"))),
        Some(target) if target.paused == Some(true) => {
            let message =
                format!("the Deployment {name} is paused; the newest missed tick restarts it when it is resumed");
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

fn event(deployment: &str, tick: LatestTick) -> Event {
    let at = Timestamp::from_unix_ms(tick.unix_ms).to_string();
    let message = ["restarts the Deployment ", deployment, " for the tick of ", &at].concat();
    match tick.count - 1 {
        0 => Event::normal("Restarted", message),
        missed => Event::warning("MissedSchedule", format!("{message}; ticks before it that were missed: {missed}")),
    }
}

/// An instant of the API server; an absent one is before all others.
fn time(text: Option<&str>) -> Timestamp {
    text.and_then(Timestamp::parse).unwrap_or(Timestamp::from_unix_ms(0))
}
