//! job-controller: Pods that run to their end, counted once each. Input: a Job and its Pods. Output: Pods created and
//! deleted, their finalizers removed when they are counted, and the status. It must not know what Pods do.

mod failure;
mod indexes;
mod pods;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::failure::Verdict;
use self::indexes::Indexes;
use super::field::{after, int, list, text};
use super::ownership::{JOBS, PODS, claim, controlled, controller, keys};
use super::pod_control::{self, BURST};
use super::{condition, pod};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Key};
use crate::controllers::write;
use crate::halt::Halt;
use crate::store::{Change, Object};
use crate::time;

pub(super) fn keys_of(cluster: &Cluster, change: &Change) -> Vec<Key> {
    let mut found = keys(cluster, change, &JOBS, &PODS);
    // A tracked Pod without a Job: the key without a name frees those.
    if found.is_empty() && change.storage == PODS.storage() && pods::is_tracked(&change.object) {
        found.push((change.object.namespace().into(), "".into()));
    }
    found
}

/// Which end a Job comes to.
#[derive(Clone)]
struct End {
    /// `SuccessCriteriaMet` or `FailureTarget`; the Job is then on the way to `Complete` or `Failed`.
    of: &'static str,
    reason: String,
    message: String,
}

/// A Job as one look sees it.
struct View {
    job: Arc<Object>,
    /// The status that it will have.
    status: Map<String, Value>,
    pods: Vec<Arc<Object>>,
    /// Indexes whose Pods succeeded, of those that are counted already and of all.
    counted: Indexes,
    completed: Indexes,
    succeeded: i64,
    failed: i64,
    end: Option<End>,
    again: Again,
}

pub(super) fn reconcile(cluster: &mut Cluster, context: &Context<'_>, key: &Key) -> Result<Again, Halt> {
    let Some(job) = JOBS.get(cluster, key) else { return free(cluster, context, &key.0) };
    if is_foreign(&job.value) || finished(&job.value).is_some() {
        return Ok(Again::No);
    }
    let pods = claim(cluster, context, (&job, &JOBS), &PODS, |_| true)?;
    let mut view = view(job, pods, context.now);
    end(&mut view, context.now);
    let mut suspended = None;
    if view.end.is_some() {
        let active: Vec<Arc<Object>> = view.pods.iter().filter(|pod| pod::is_active(pod)).cloned().collect();
        pod_control::delete(cluster, context, &view.job, &active)?;
    } else {
        if !view.job.terminates() {
            manage(cluster, context, &mut view)?;
            suspended = suspend(&mut view, context.now);
        }
    }
    view.pods = controlled(cluster, &view.job, &PODS);
    complete(&mut view);
    count(cluster, context, &mut view)?;
    if let Some((reason, message)) = suspended {
        write::event(cluster, context, &view.job, "Normal", reason, message)?;
    }
    Ok(view.again)
}

/// Whether another controller manages it.
fn is_foreign(job: &Value) -> bool {
    job["spec"]["managedBy"].as_str().is_some_and(|name| name != "kubernetes.io/job-controller")
}

/// The condition that a finished Job has: `Complete` or `Failed`.
pub(super) fn finished(job: &Value) -> Option<&'static str> {
    ["Complete", "Failed"].into_iter().find(|of| condition::is_true(&job["status"], of))
}

/// Takes the finalizer from Pods whose Job is gone.
fn free(cluster: &mut Cluster, context: &Context<'_>, namespace: &str) -> Result<Again, Halt> {
    let tracked = cluster.store.list(&PODS.storage(), Some(namespace), None).filter(|pod| pods::is_tracked(pod));
    let tracked: Vec<Arc<Object>> = tracked.cloned().collect();
    for pod in tracked {
        let alone = controller(&pod.value).is_none_or(|owner| {
            let job = JOBS.get(cluster, &(namespace.into(), text(&owner["name"]).into()));
            let gone = job.is_none_or(|job| {
                job.uid() != text(&owner["uid"]) || !is_foreign(&job.value) && finished(&job.value).is_some()
            });
            owner["kind"] == JOBS.kind && gone
        });
        if alone {
            pods::untrack(cluster, context, &pod)?;
        }
    }
    Ok(Again::No)
}

fn view(job: Arc<Object>, pods: Vec<Arc<Object>>, now: Timestamp) -> View {
    let value = &job.value;
    let indexed = pods::is_indexed(value);
    let fresh = |pod: &&Arc<Object>| pods::is_tracked(pod) && (!indexed || pods::index(value, pod).is_some());
    let succeeded = pods.iter().filter(fresh).filter(|pod| pod::phase(pod) == "Succeeded");
    let counted = Indexes::parse(text(&value["status"]["completedIndexes"]), int(&value["spec"]["completions"]));
    let (completed, succeeded) = if indexed {
        let completed = counted.clone().with(succeeded.filter_map(|pod| pods::index(value, pod)));
        let total = completed.total();
        (completed, total)
    } else {
        (Indexes::default(), int(&value["status"]["succeeded"]) + i64::try_from(succeeded.count()).unwrap_or(0))
    };
    let failed = pods.iter().filter(fresh).filter(|pod| failure::is_failed(value, pod));
    let failed = failed.filter(|pod| failure::judge(value, pod) != Verdict::Ignored).count();
    let mut status = value["status"].as_object().cloned().unwrap_or_default();
    if value["spec"]["suspend"] != true && !status.contains_key("startTime") {
        status.insert("startTime".to_owned(), time::seconds(now).into());
    }
    let failed = int(&value["status"]["failed"]) + i64::try_from(failed).unwrap_or(0);
    View { job, status, pods, counted, completed, succeeded, failed, end: None, again: Again::No }
}

/// Decides whether the Job comes to an end: one that is decided already, a failure, or the success policy.
fn end(view: &mut View, now: Timestamp) {
    let (job, spec) = (&view.job.value, &view.job.value["spec"]);
    let known = |of: &'static str| {
        let known = condition::get(&job["status"], of).filter(|known| known["status"] == "True")?;
        Some(End { of, reason: text(&known["reason"]).to_owned(), message: text(&known["message"]).to_owned() })
    };
    let fails = |reason: &str, message: &str| {
        Some(End { of: "FailureTarget", reason: reason.to_owned(), message: message.to_owned() })
    };
    view.end = known("SuccessCriteriaMet").or_else(|| known("FailureTarget"));
    if view.end.is_none() {
        let failed = view.pods.iter().filter(|pod| failure::is_failed(job, pod));
        view.end = failed.map(|pod| failure::judge(job, pod)).find_map(|verdict| match verdict {
            Verdict::FailsJob(message) => fails("PodFailurePolicy", &message),
            _ => None,
        });
    }
    if view.end.is_none() {
        let deadline = spec["activeDeadlineSeconds"].as_i64().filter(|_| spec["suspend"] != true);
        let start = view.status.get("startTime").and_then(time::read);
        let deadline = deadline.zip(start).map(|(seconds, start)| after(start, seconds));
        if view.failed > int(&spec["backoffLimit"]) || failure::restarted_too_often(job, &view.pods) {
            view.end = fails("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        } else if deadline.is_some_and(|at| at <= now) {
            view.end = fails("DeadlineExceeded", "Job was active longer than specified deadline");
        } else if let Some(at) = deadline {
            view.again = Again::At(at);
        }
    }
    if view.end.is_none()
        && let Some(rule) = succeeds_early(job, &view.completed)
    {
        let message = format!("Matched rules at index {rule}");
        view.end = Some(End { of: "SuccessCriteriaMet", reason: "SuccessPolicy".to_owned(), message });
    }
}

/// The rule of the success policy that the completed indexes meet.
fn succeeds_early(job: &Value, completed: &Indexes) -> Option<usize> {
    let spec = &job["spec"];
    if completed.total() == 0 {
        return None;
    }
    list(&spec["successPolicy"]["rules"]).iter().position(|rule| {
        let enough = |count: i64| rule["succeededCount"].as_i64().is_some_and(|wanted| count >= wanted);
        match rule["succeededIndexes"].as_str() {
            None => enough(completed.total()),
            Some(wanted) => {
                let wanted = Indexes::parse(wanted, int(&spec["completions"]));
                let shared = completed.shared(&wanted);
                wanted.total() > 0 && (shared == wanted.total() || enough(shared))
            }
        }
    })
}

/// Creates the Pods that may run now, or deletes those that are too many; all, if the Job is suspended.
fn manage(cluster: &mut Cluster, context: &Context<'_>, view: &mut View) -> Result<(), Halt> {
    let (job, spec) = (view.job.clone(), &view.job.value["spec"]);
    let active: Vec<Arc<Object>> = view.pods.iter().filter(|pod| pod::is_active(pod)).cloned().collect();
    let running = i64::try_from(active.len()).unwrap_or(i64::MAX);
    let parallelism = int(&spec["parallelism"]);
    let wanted = match (spec["suspend"] == true, spec["completions"].as_i64()) {
        (true, _) => 0,
        (false, None) if view.succeeded > 0 => running,
        (false, None) => parallelism,
        (false, Some(completions)) => (completions - view.succeeded).clamp(0, parallelism.max(0)),
    };
    let excess = usize::try_from(running - wanted).unwrap_or(0);
    let mut remove = pods::to_remove(&job.value, &active, excess, context.now);
    remove.truncate(BURST);
    if !remove.is_empty() {
        // These do not count: they go without an end.
        for pod in remove.iter().filter(|pod| pods::is_tracked(pod)) {
            pods::untrack(cluster, context, pod)?;
        }
        return pod_control::delete(cluster, context, &job, &remove).map(drop);
    }
    let terminating = view.pods.iter().filter(|pod| pod.terminates() && !pod::is_finished(pod));
    let held: Vec<&Arc<Object>> = terminating.filter(|_| failure::replaces_failed_only(&job.value)).collect();
    let missing = usize::try_from(wanted - running).unwrap_or(0).saturating_sub(held.len()).min(BURST);
    if missing == 0 {
        return Ok(());
    }
    if let Some(at) = failure::next_try(&job.value, &view.pods).filter(|at| *at > context.now) {
        view.again = match view.again {
            Again::At(known) => Again::At(known.min(at)),
            _ => Again::At(at),
        };
        return Ok(());
    }
    let indexes: Vec<Option<i64>> = if pods::is_indexed(&job.value) {
        let taken = active.iter().chain(held).filter_map(|pod| pods::index(&job.value, pod));
        let taken = view.completed.clone().with(taken);
        taken.missing(int(&spec["completions"]), missing).into_iter().map(Some).collect()
    } else {
        vec![None; missing]
    };
    let new = indexes.into_iter().map(|index| pods::new(&job, index));
    if pod_control::create(cluster, context, &job, new)?.is_some() {
        view.again = Again::Later;
    }
    Ok(())
}

/// Says in the conditions whether the Job is suspended; what it returns is the event to record.
fn suspend(view: &mut View, now: Timestamp) -> Option<(&'static str, &'static str)> {
    let known = view.status.get("conditions").map_or(&[][..], list);
    let was = known.iter().find(|known| known["type"] == "Suspended").map(|known| known["status"] == "True");
    let is = view.job.value["spec"]["suspend"] == true;
    if was.unwrap_or(false) == is {
        return None;
    }
    let (status, reason, message, event) = if is {
        ("True", "JobSuspended", "Job suspended", "Suspended")
    } else {
        ("False", "JobResumed", "Job resumed", "Resumed")
    };
    ensure(&mut view.status, "Suspended", status, reason, message, now);
    if is {
        view.status.remove("startTime");
    } else {
        view.status.insert("startTime".to_owned(), time::seconds(now).into());
    }
    Some((event, message))
}

/// Puts a condition in its place; one that is new is put at the end.
fn ensure(status: &mut Map<String, Value>, of: &str, truth: &str, reason: &str, message: &str, now: Timestamp) {
    let mut new = condition::new(of, truth, reason, message, now);
    new["lastProbeTime"] = time::seconds(now).into();
    let mut all = status.get("conditions").map_or(&[][..], list).to_vec();
    match all.iter_mut().find(|known| known["type"] == of) {
        Some(known) => {
            let same = |key: &str| known[key] == new[key];
            if !(same("status") && same("reason") && same("message")) {
                *known = new;
            }
        }
        None => all.push(new),
    }
    status.insert("conditions".to_owned(), all.into());
}

/// A Job is complete when enough Pods succeeded and none is active.
fn complete(view: &mut View) {
    if view.end.is_some() || view.pods.iter().any(|pod| pod::is_active(pod)) {
        return;
    }
    let enough = match view.job.value["spec"]["completions"].as_i64() {
        Some(completions) => view.succeeded >= completions,
        None => view.succeeded > 0,
    };
    if enough {
        let (reason, message) = ("CompletionsReached", "Reached expected number of succeeded pods");
        view.end = Some(End { of: "SuccessCriteriaMet", reason: reason.to_owned(), message: message.to_owned() });
    }
}

/// Counts Pods that ended: writes their UIDs in the status, takes their finalizers, then writes the counts. So a Pod that
/// is gone was counted, and none is counted twice.
fn count(cluster: &mut Cluster, context: &Context<'_>, view: &mut View) -> Result<(), Halt> {
    let job = view.job.value.clone();
    let indexed = pods::is_indexed(&job);
    let fails = view.end.as_ref().is_some_and(|end| end.of == "FailureTarget");
    let (mut free, mut succeeded, mut failed, mut indexes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for pod in view.pods.iter().filter(|pod| pods::is_tracked(pod)) {
        let (success, failure) = (pod::phase(pod) == "Succeeded", failure::is_failed(&job, pod));
        if !(success || failure || view.end.is_some() || view.job.terminates()) {
            continue;
        }
        free.push(pod.clone());
        let index = pods::index(&job, pod);
        let uid = Value::from(pod.uid());
        if success {
            match index.filter(|_| indexed) {
                Some(index) => indexes.push(index),
                None if indexed => {}
                None => succeeded.push(uid),
            }
        } else if (failure || fails) && (!indexed || index.is_some()) && failure::judge(&job, pod) != Verdict::Ignored {
            failed.push(uid);
        }
        if free.len() >= BURST {
            break;
        }
    }
    let all = free.len() < BURST;
    observe(view, indexed.then_some(indexes), context.now);
    let (won, lost) = (i64::try_from(succeeded.len()).unwrap_or(0), i64::try_from(failed.len()).unwrap_or(0));
    let mut uncounted = Map::new();
    for (key, uids) in [("succeeded", succeeded), ("failed", failed)] {
        if !uids.is_empty() {
            uncounted.insert(key.to_owned(), uids.into());
        }
    }
    view.status.insert("uncountedTerminatedPods".to_owned(), uncounted.into());
    store(cluster, context, view)?;
    for pod in free {
        pods::untrack(cluster, context, &pod)?;
    }
    view.status.insert("uncountedTerminatedPods".to_owned(), json!({}));
    for (key, more) in [("succeeded", won), ("failed", lost)] {
        let total = view.status.get(key).map_or(0, int) + more;
        if total > 0 {
            view.status.insert(key.to_owned(), total.into());
        }
    }
    let ended = all && finish(view, context.now);
    store(cluster, context, view)?;
    if ended { announce(cluster, context, view) } else { Ok(()) }
}

/// Writes what is seen of the Pods, and which end the Job comes to.
fn observe(view: &mut View, indexes: Option<Vec<i64>>, now: Timestamp) {
    let count = |fits: &dyn Fn(&Object) -> bool| view.pods.iter().filter(|pod| fits(pod)).count();
    let active = count(&pod::is_active);
    let ready = count(&|pod| pod::is_active(pod) && pod::is_ready(pod));
    let terminating = count(&|pod| pod.terminates() && !pod::is_finished(pod));
    let status = &mut view.status;
    status.remove("active");
    if active > 0 {
        status.insert("active".to_owned(), active.into());
    }
    status.insert("ready".to_owned(), ready.into());
    status.insert("terminating".to_owned(), terminating.into());
    if let Some(indexes) = indexes {
        let completed = view.counted.clone().with(indexes);
        if completed.total() > 0 {
            status.insert("completedIndexes".to_owned(), completed.to_string().into());
            status.insert("succeeded".to_owned(), completed.total().into());
        }
    }
    if let Some(end) = &view.end {
        ensure(status, end.of, "True", &end.reason, &end.message, now);
    }
}

/// Marks the Job as finished once none of its Pods terminates.
fn finish(view: &mut View, now: Timestamp) -> bool {
    let Some(end) = view.end.clone().filter(|_| view.status.get("terminating").map_or(0, int) == 0) else {
        return false;
    };
    let of = if end.of == "FailureTarget" { "Failed" } else { "Complete" };
    ensure(&mut view.status, of, "True", &end.reason, &end.message, now);
    if of == "Complete" {
        view.status.insert("completionTime".to_owned(), time::seconds(now).into());
    }
    true
}

fn store(cluster: &mut Cluster, context: &Context<'_>, view: &mut View) -> Result<(), Halt> {
    let status = Value::Object(view.status.clone());
    if status != view.job.value["status"] {
        view.job = write::update_status(cluster, context, &view.job, status)?;
    }
    Ok(())
}

fn announce(cluster: &mut Cluster, context: &Context<'_>, view: &View) -> Result<(), Halt> {
    let Some(end) = &view.end else { return Ok(()) };
    if end.of == "FailureTarget" {
        return write::event(cluster, context, &view.job, "Warning", &end.reason, &end.message);
    }
    let completions = view.job.value["spec"]["completions"].as_i64();
    if completions.is_some_and(|completions| view.succeeded > completions) {
        let message = "Too many succeeded pods running after completion count reached";
        write::event(cluster, context, &view.job, "Warning", "TooManySucceededPods", message)?;
    }
    write::event(cluster, context, &view.job, "Normal", "Completed", "Job completed")
}
