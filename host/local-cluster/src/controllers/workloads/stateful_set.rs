//! statefulset-controller: Pods with names and claims that stay. Input: a StatefulSet, its Pods and revisions. Output: Pods
//! created and deleted in order, claims, and the status. It must not know how volumes are made.

mod identity;

use std::sync::Arc;

use serde_json::Value;

use self::identity::{REVISION, ordinal, parse, range};
use super::field::{counts, int, text};
use super::history::{self, History};
use super::ownership::{PODS, STATEFUL_SETS, claim, keys, refusal};
use super::pod;
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Key};
use crate::controllers::write;
use crate::deletion::DeleteOptions;
use crate::halt::Halt;
use crate::store::{Change, Object};

/// How many ordinals one look passes through: as many Pods as a cluster may have. More are not made.
const MAX_REPLICAS: usize = 150_000;

pub(super) fn keys_of(cluster: &Cluster, change: &Change) -> Vec<Key> {
    keys(cluster, change, &STATEFUL_SETS, &PODS)
}

/// A StatefulSet as one look sees it.
struct View {
    set: Arc<Object>,
    history: History,
    current: Arc<Object>,
    /// By ordinal, from the first wanted one; a Pod that is missing is to be created.
    replicas: Vec<Option<Arc<Object>>>,
    /// Pods beyond the wanted ones, the highest ordinal first.
    condemned: Vec<Arc<Object>>,
    min_ready: i64,
    in_order: bool,
}

/// How a walk over Pods continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    On,
    /// This Pod is waited for, or the next look continues.
    Stop,
    /// The API server refused.
    Failed,
}

pub(super) fn reconcile(cluster: &mut Cluster, context: &Context<'_>, key: &Key) -> Result<Again, Halt> {
    let Some(set) = STATEFUL_SETS.get(cluster, key) else { return Ok(Again::No) };
    if STATEFUL_SETS.selector(&set.value).is_none() {
        return Ok(Again::No);
    }
    let name = set.name().to_owned();
    let ours = |pod: &Object| parse(pod.name()).is_some_and(|(parent, _)| parent == name);
    let pods = claim(cluster, context, (&set, &STATEFUL_SETS), &PODS, ours)?;
    let history = history::read(cluster, context, (&set, &STATEFUL_SETS), "controller.kubernetes.io/hash")?;
    let view = view(set, history, &pods);
    let walk = if view.set.terminates() { Walk::On } else { advance(cluster, context, &view)? };
    let status = status(&view, &pods, context);
    if status != view.set.value["status"] {
        write::update_status(cluster, context, &view.set, status)?;
    }
    truncate(cluster, context, &view, &pods)?;
    if walk == Walk::Failed {
        return Ok(Again::Later);
    }
    Ok(pod::next_available(&pods, view.min_ready, context.now).map_or(Again::No, Again::At))
}

fn view(set: Arc<Object>, history: History, pods: &[Arc<Object>]) -> View {
    let range = range(&set);
    let count = usize::try_from(range.end - range.start).unwrap_or(0).min(MAX_REPLICAS);
    let mut replicas = vec![None; count];
    let mut condemned = Vec::new();
    for pod in pods {
        let place = usize::try_from(ordinal(pod) - range.start).ok().and_then(|at| replicas.get_mut(at));
        match place {
            Some(place) => *place = Some(pod.clone()),
            None => condemned.push(pod.clone()),
        }
    }
    condemned.sort_by_cached_key(|pod| -ordinal(pod));
    let known = history.revisions.iter().find(|known| known.name() == text(&set.value["status"]["currentRevision"]));
    View {
        current: known.unwrap_or_else(|| history.newest()).clone(),
        min_ready: int(&set.value["spec"]["minReadySeconds"]),
        in_order: set.value["spec"]["podManagementPolicy"] != "Parallel",
        set,
        history,
        replicas,
        condemned,
    }
}

impl View {
    fn is_available(&self, pod: &Object, context: &Context<'_>) -> bool {
        !pod.terminates() && pod::is_available(pod, self.min_ready, context.now)
    }

    fn partition(&self) -> i64 {
        int(&self.set.value["spec"]["updateStrategy"]["rollingUpdate"]["partition"])
    }

    /// The revision that a new Pod of this place has: those that the rollout has not reached keep the current one.
    fn revision(&self, at: usize) -> &Arc<Object> {
        let strategy = &self.set.value["spec"]["updateStrategy"];
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        let current = if strategy["rollingUpdate"].is_object() {
            at < self.partition()
        } else {
            strategy["type"] == "RollingUpdate" && at < int(&self.set.value["status"]["currentReplicas"])
        };
        if current { &self.current } else { self.history.newest() }
    }
}

/// Takes the next steps: missing Pods come, condemned ones go, then Pods of old revisions go.
fn advance(cluster: &mut Cluster, context: &Context<'_>, view: &View) -> Result<Walk, Halt> {
    for at in 0..view.replicas.len() {
        match replica(cluster, context, view, at)? {
            Walk::Failed => return Ok(Walk::Failed),
            Walk::Stop if view.in_order => return Ok(Walk::Stop),
            _ => {}
        }
    }
    for pod in &view.condemned {
        identity::retain_claims(cluster, context, &view.set, pod)?;
    }
    let unhealthy = view.condemned.iter().rev().find(|pod| !view.is_available(pod, context));
    for pod in &view.condemned {
        if pod.terminates() && !view.in_order {
            continue;
        }
        let waits = !view.is_available(pod, context) && unhealthy.is_none_or(|first| first.uid() != pod.uid());
        if pod.terminates() || view.in_order && waits {
            return Ok(Walk::Stop);
        }
        delete(cluster, context, view, pod)?;
        if view.in_order {
            return Ok(Walk::Stop);
        }
    }
    if view.set.value["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return Ok(Walk::On);
    }
    update(cluster, context, view)
}

/// Deletes the last Pod that is not of the newest revision, if all after it are available.
fn update(cluster: &mut Cluster, context: &Context<'_>, view: &View) -> Result<Walk, Halt> {
    let partition = usize::try_from(view.partition()).unwrap_or(0);
    for pod in view.replicas.iter().skip(partition).rev() {
        let Some(pod) = pod else { return Ok(Walk::Stop) };
        if pod.label(REVISION) != Some(view.history.newest().name()) && !pod.terminates() {
            delete(cluster, context, view, pod)?;
            return Ok(Walk::Stop);
        }
        if !view.is_available(pod, context) {
            return Ok(Walk::Stop);
        }
    }
    Ok(Walk::On)
}

fn replica(cluster: &mut Cluster, context: &Context<'_>, view: &View, at: usize) -> Result<Walk, Halt> {
    let Some(pod) = view.replicas.get(at).and_then(Option::as_ref) else { return create(cluster, context, view, at) };
    if pod::is_finished(pod) {
        if !pod.terminates() {
            delete(cluster, context, view, pod)?;
        }
        return Ok(Walk::Stop);
    }
    if pod::phase(pod) == "Pending" && identity::create_claims(cluster, context, &view.set, ordinal(pod))?.is_some() {
        return Ok(Walk::Failed);
    }
    if view.in_order && !view.is_available(pod, context) {
        return Ok(Walk::Stop);
    }
    identity::restore(cluster, context, &view.set, pod)?;
    identity::retain_claims(cluster, context, &view.set, pod)?;
    Ok(Walk::On)
}

fn create(cluster: &mut Cluster, context: &Context<'_>, view: &View, at: usize) -> Result<Walk, Halt> {
    let set = &view.set;
    let ordinal = range(set).start.saturating_add(i64::try_from(at).unwrap_or(i64::MAX));
    let name = format!("{}-{ordinal}", set.name());
    let problem = match identity::create_claims(cluster, context, set, ordinal)? {
        Some(problem) => Err(problem),
        None => {
            let pod = identity::pod(set, ordinal, view.revision(at));
            let made = refusal(write::create(cluster, context, PODS.name(), set.namespace(), pod))?;
            made.map_err(|status| status.message)
        }
    };
    match problem {
        Ok(pod) => {
            identity::retain_claims(cluster, context, set, &pod)?;
            let message = format!("Create Pod {name} in StatefulSet {} successful", set.name());
            write::event(cluster, context, set, "Normal", "SuccessfulCreate", &message)?;
            Ok(Walk::Stop)
        }
        Err(why) => {
            let message = format!("Create Pod {name} in StatefulSet {} failed error: {why}", set.name());
            write::event(cluster, context, set, "Warning", "FailedCreate", &message)?;
            Ok(Walk::Failed)
        }
    }
}

fn delete(cluster: &mut Cluster, context: &Context<'_>, view: &View, pod: &Object) -> Result<(), Halt> {
    write::delete(cluster, context, pod, &DeleteOptions::default())?;
    let message = format!("Delete Pod {} in StatefulSet {} successful", pod.name(), view.set.name());
    write::event(cluster, context, &view.set, "Normal", "SuccessfulDelete", &message)
}

fn status(view: &View, pods: &[Arc<Object>], context: &Context<'_>) -> Value {
    let count =
        |fits: &dyn Fn(&Object) -> bool| i64::try_from(pods.iter().filter(|pod| fits(pod)).count()).unwrap_or(i64::MAX);
    let of = |revision: &Object| {
        count(&|pod| !pod.terminates() && pod.label(REVISION).is_some_and(|label| label == revision.name()))
    };
    let ready = |pod: &Object| pod::phase(pod) == "Running" && pod::is_ready(pod);
    let available = count(&|pod| ready(pod) && pod::is_available(pod, view.min_ready, context.now));
    let (replicas, ready) = (count(&|pod| !pod::phase(pod).is_empty()), count(&ready));
    let (mut current, updated) = (of(&view.current), of(view.history.newest()));
    let (mut revision, newest) = (view.current.name(), view.history.newest().name());
    let (spec, wanted) = (&view.set.value["spec"], int(&view.set.value["spec"]["replicas"]));
    let complete = [updated, ready, replicas].iter().all(|count| *count == wanted);
    if complete && spec["updateStrategy"]["type"] == "RollingUpdate" {
        (current, revision) = (updated, newest);
    }
    let mut status = Value::Object(counts(&[
        ("observedGeneration", int(&view.set.value["metadata"]["generation"])),
        ("readyReplicas", ready),
        ("currentReplicas", current),
        ("updatedReplicas", updated),
    ]));
    status["replicas"] = replicas.into();
    status["availableReplicas"] = available.into();
    status["currentRevision"] = revision.into();
    status["updateRevision"] = newest.into();
    status["collisionCount"] = view.history.collisions.into();
    status
}

fn truncate(cluster: &mut Cluster, context: &Context<'_>, view: &View, pods: &[Arc<Object>]) -> Result<(), Halt> {
    let Some(limit) = view.set.value["spec"]["revisionHistoryLimit"].as_u64() else { return Ok(()) };
    let mut live = history::labels(pods, REVISION);
    live.extend([view.current.name(), view.history.newest().name()]);
    let unused: Vec<&Arc<Object>> =
        view.history.revisions.iter().filter(|revision| !live.contains(revision.name())).collect();
    let excess = unused.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    history::truncate(cluster, context, unused, excess)
}
