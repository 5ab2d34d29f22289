//! daemonset-controller: a Pod on each node that fits. Input: a DaemonSet, its Pods and revisions, and the nodes. Output: Pods
//! created and deleted, and the status. It must not know the scheduler: a Pod says its node by its affinity.

mod node;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::field::{after, counts, int, list, scaled, set, text};
use super::history::{self, History};
use super::ownership::{DAEMON_SETS, NODES, PODS, claim, keys};
use super::pod;
use super::pod_control::{self, Failure};
use crate::Cluster;
use crate::context::Context;
use crate::controllers::controller::{Again, Key};
use crate::controllers::write;
use crate::halt::Halt;
use crate::store::{Change, Object};
use crate::time;

const HASH: &str = "controller-revision-hash";
const GENERATION: &str = "deprecated.daemonset.template.generation";
/// How old a failed Pod must be before it is replaced: the first wait of the real controller's back-off.
const FAILED_SECONDS: i64 = 1;

pub(super) fn keys_of(cluster: &Cluster, change: &Change) -> Vec<Key> {
    if change.storage != NODES.storage() {
        return keys(cluster, change, &DAEMON_SETS, &PODS);
    }
    // Heartbeats change neither.
    let same = change.previous.as_ref().is_some_and(|previous| {
        let labels = |value: &Value| value["metadata"]["labels"].clone();
        previous.value["spec"] == change.object.value["spec"]
            && labels(&previous.value) == labels(&change.object.value)
            && previous.terminates() == change.object.terminates()
    });
    if same {
        return Vec::new();
    }
    let all = cluster.store.list(&DAEMON_SETS.storage(), None, None);
    all.map(|set| (set.namespace().into(), set.name().into())).collect()
}

/// A DaemonSet as one look sees it.
struct View {
    set: Arc<Object>,
    history: History,
    /// The spec of its Pods.
    spec: Value,
    hash: String,
    nodes: Vec<Arc<Object>>,
    /// Its Pods by node, those that are scheduled first, then the older ones.
    pods: BTreeMap<String, Vec<Arc<Object>>>,
    now: Timestamp,
}

/// What one look does.
#[derive(Default)]
struct Plan {
    create: Vec<String>,
    delete: Vec<Arc<Object>>,
    again: Option<Timestamp>,
}

pub(super) fn reconcile(cluster: &mut Cluster, context: &Context<'_>, key: &Key) -> Result<Again, Halt> {
    let Some(set) = DAEMON_SETS.get(cluster, key) else { return Ok(Again::No) };
    if set.value["spec"]["selector"] == json!({}) {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.";
        write::event(cluster, context, &set, "Warning", "SelectingAll", message)?;
        return Ok(Again::No);
    }
    if set.terminates() {
        return Ok(Again::No);
    }
    let pods = claim(cluster, context, (&set, &DAEMON_SETS), &PODS, |_| true)?;
    let history = history::read(cluster, context, (&set, &DAEMON_SETS), HASH)?;
    let view = view(cluster, set, history, &pods, context.now);
    let mut plan = manage(cluster, context, &view)?;
    if plan.create.is_empty() && plan.delete.is_empty() {
        let rolls = view.set.value["spec"]["updateStrategy"]["type"] == "RollingUpdate";
        match (rolls, view.max_surge(view.wanted())) {
            (false, _) => {}
            (true, 0) => replace(&view, &mut plan),
            (true, surge) => surge_over(&view, surge, &mut plan),
        }
    }
    let failure = carry_out(cluster, context, &view, &plan)?;
    truncate(cluster, context, &view, &pods)?;
    let status = status(&view);
    if status != view.set.value["status"] {
        write::update_status(cluster, context, &view.set, status)?;
    }
    if failure.is_some() {
        return Ok(Again::Later);
    }
    let next = pod::next_available(&pods, view.min_ready(), context.now);
    Ok(next.into_iter().chain(plan.again).min().map_or(Again::No, Again::At))
}

fn view(cluster: &Cluster, set: Arc<Object>, history: History, pods: &[Arc<Object>], now: Timestamp) -> View {
    let mut by_node: BTreeMap<String, Vec<Arc<Object>>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !(pod.terminates() && pod::is_finished(pod))) {
        if let Some(node) = node::target(&pod.value) {
            by_node.entry(node.to_owned()).or_default().push(pod.clone());
        }
    }
    for pods in by_node.values_mut() {
        pods.sort_by_cached_key(|pod| {
            let made = time::read(&pod.value["metadata"]["creationTimestamp"]);
            (text(&pod.value["spec"]["nodeName"]).is_empty(), made, pod.name().to_owned())
        });
    }
    View {
        spec: node::spec(&set.value["spec"]["template"]),
        hash: history.newest().label(HASH).unwrap_or_default().to_owned(),
        nodes: cluster.store.list(&NODES.storage(), None, None).cloned().collect(),
        pods: by_node,
        set,
        history,
        now,
    }
}

impl View {
    fn min_ready(&self) -> i64 {
        int(&self.set.value["spec"]["minReadySeconds"])
    }

    fn is_available(&self, pod: &Object) -> bool {
        pod::is_available(pod, self.min_ready(), self.now)
    }

    fn is_updated(&self, pod: &Object) -> bool {
        pod.label(HASH) == Some(&self.hash)
    }

    fn runs(&self, node: &Object) -> (bool, bool) {
        node::runs(&self.spec, node)
    }

    fn on(&self, node: &Object) -> &[Arc<Object>] {
        self.pods.get(node.name()).map_or(&[], Vec::as_slice)
    }

    /// How many nodes shall run a Pod.
    fn wanted(&self) -> i64 {
        i64::try_from(self.nodes.iter().filter(|node| self.runs(node).0).count()).unwrap_or(i64::MAX)
    }

    fn max_surge(&self, wanted: i64) -> i64 {
        let strategy = &self.set.value["spec"]["updateStrategy"];
        if strategy["type"] == "RollingUpdate" {
            scaled(&strategy["rollingUpdate"]["maxSurge"], wanted, true)
        } else {
            0
        }
    }

    /// The one new and the one old Pod on a node; nothing if there are more.
    fn pair(&self, node: &Object) -> Option<[Option<&Arc<Object>>; 2]> {
        let mut pair = [None; 2];
        for pod in self.on(node).iter().filter(|pod| !pod.terminates()) {
            let [new, old] = &mut pair;
            let place = if self.is_updated(pod) { new } else { old };
            if place.replace(pod).is_some() {
                return None;
            }
        }
        Some(pair)
    }
}

/// Which nodes lack a Pod, and which Pods are too many or have ended.
fn manage(cluster: &mut Cluster, context: &Context<'_>, view: &View) -> Result<Plan, Halt> {
    let mut plan = Plan::default();
    for node in &view.nodes {
        let (run, go_on) = view.runs(node);
        let pods = view.on(node);
        if !go_on {
            plan.delete.extend(pods.iter().filter(|pod| !pod.terminates()).cloned());
        } else if pods.is_empty() {
            plan.create.extend(run.then(|| node.name().to_owned()));
        } else {
            let mut running = Vec::new();
            for pod in pods.iter().filter(|pod| !pod.terminates()) {
                if pod::is_finished(pod) {
                    end(cluster, context, view, (pod, node), &mut plan)?;
                } else {
                    running.push(pod);
                }
            }
            trim(view, node, run, &running, &mut plan);
        }
    }
    // Pods that wait for a node that is gone.
    let known = |name: &str| view.nodes.iter().any(|node| node.name() == name);
    for (_, pods) in view.pods.iter().filter(|(name, _)| !known(name)) {
        let waiting = pods.iter().filter(|pod| text(&pod.value["spec"]["nodeName"]).is_empty() && !pod.terminates());
        plan.delete.extend(waiting.cloned());
    }
    Ok(plan)
}

/// Replaces a Pod whose containers have ended.
fn end(
    cluster: &mut Cluster,
    context: &Context<'_>,
    view: &View,
    (pod, node): (&Arc<Object>, &Object),
    plan: &mut Plan,
) -> Result<(), Halt> {
    let failed = pod::phase(pod) == "Failed";
    let made = time::read(&pod.value["metadata"]["creationTimestamp"]).unwrap_or(Timestamp::MIN);
    let at = after(made, FAILED_SECONDS);
    if failed && at > view.now {
        plan.again = Some(plan.again.map_or(at, |known| known.min(at)));
        return Ok(());
    }
    let (kind, reason, word, verb) = if failed {
        ("Warning", "FailedDaemonPod", "failed", "kill")
    } else {
        ("Normal", "SucceededDaemonPod", "succeeded", "delete")
    };
    let (namespace, name) = (pod.namespace(), pod.name());
    let message = format!("Found {word} daemon pod {namespace}/{name} on node {}, will try to {verb} it", node.name());
    write::event(cluster, context, &view.set, kind, reason, &message)?;
    plan.delete.push(pod.clone());
    Ok(())
}

/// Deletes all Pods of a node but the oldest; with surge, all but the oldest new and the oldest old one.
fn trim(view: &View, node: &Object, run: bool, running: &[&Arc<Object>], plan: &mut Plan) {
    if view.max_surge(1) == 0 {
        plan.delete.extend(running.iter().skip(1).map(|pod| (*pod).clone()));
        return;
    }
    if running.len() < 2 {
        plan.create.extend((running.is_empty() && run).then(|| node.name().to_owned()));
        return;
    }
    let (new, old): (Vec<_>, Vec<_>) = running.iter().copied().partition(|pod| view.is_updated(pod));
    plan.delete.extend(
        new.iter()
            .chain(&old)
            .filter(|pod| {
                let oldest = |pods: &[&Arc<Object>]| pods.first().is_some_and(|first| first.uid() == pod.uid());
                !oldest(&new) && !oldest(&old)
            })
            .map(|pod| (*pod).clone()),
    );
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!pod::is_ready(old) || view.is_available(new))
    {
        plan.delete.push((*old).clone());
    }
}

/// Deletes old Pods: those that are not available, and others while not too many nodes are without an available one.
fn replace(view: &View, plan: &mut Plan) {
    let wanted = view.wanted();
    let most = scaled(&view.set.value["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], wanted, true);
    let most = if most == 0 { 1 } else { most };
    let (mut unavailable, mut candidates) = (0, Vec::new());
    for node in view.nodes.iter().filter(|node| view.runs(node).0 || !view.on(node).is_empty()) {
        match view.pair(node) {
            Some([Some(new), None]) => unavailable += i64::from(!view.is_available(new)),
            Some([None, Some(old)]) if view.is_available(old) => candidates.push(old.clone()),
            Some([None, Some(old)]) => {
                plan.delete.push(old.clone());
                unavailable += 1;
            }
            _ => unavailable += 1,
        }
    }
    plan.delete.extend(candidates.into_iter().take(usize::try_from(most - unavailable).unwrap_or(0)));
}

/// Creates new Pods beside old ones, within what may surge, and deletes the old ones when the new ones are available.
fn surge_over(view: &View, most: i64, plan: &mut Plan) {
    let (mut surge, mut available) = (0, 0);
    let (mut candidates, mut leaving) = (Vec::new(), Vec::new());
    for node in view.nodes.iter().filter(|node| view.runs(node).0 || !view.on(node).is_empty()) {
        let Some([new, old]) = view.pair(node) else {
            surge += 1;
            continue;
        };
        available += i64::from(old.or(new).is_some_and(|pod| view.is_available(pod)));
        match (new, old) {
            (None, Some(old)) => match (view.runs(node).0, view.is_available(old)) {
                (true, true) => candidates.push(node.name().to_owned()),
                (true, false) => plan.create.push(node.name().to_owned()),
                (false, true) => leaving.push(old.clone()),
                (false, false) => plan.delete.push(old.clone()),
            },
            (Some(new), Some(old)) if view.is_available(new) => plan.delete.push(old.clone()),
            (Some(_), Some(_)) => surge += 1,
            (_, None) => {}
        }
    }
    let count = |count: i64| usize::try_from(count).unwrap_or(0);
    plan.delete.extend(leaving.into_iter().take(count(available - view.wanted())));
    plan.create.extend(candidates.into_iter().take(count(most - surge)));
}

fn carry_out(cluster: &mut Cluster, context: &Context<'_>, view: &View, plan: &Plan) -> Result<Option<Failure>, Halt> {
    let generation = view.set.value["metadata"]["annotations"][GENERATION].as_str();
    let pods = plan.create.iter().map(|name| {
        let template = &view.set.value["spec"]["template"];
        let mut pod = pod::from_template(template, &view.set, DAEMON_SETS.reference(&view.set));
        set(&mut pod, "labels", HASH, &view.hash);
        if let Some(generation) = generation {
            set(&mut pod, "labels", "pod-template-generation", generation);
        }
        let mut spec = view.spec.clone();
        node::bind(&mut spec, name);
        pod["spec"] = spec;
        pod
    });
    let refused = pod_control::create(cluster, context, &view.set, pods)?;
    let kept = pod_control::delete(cluster, context, &view.set, &plan.delete)?;
    Ok(refused.or(kept))
}

fn status(view: &View) -> Value {
    let (mut wanted, mut scheduled, mut misplaced, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0, 0);
    for node in &view.nodes {
        let pod = view.on(node).first();
        match (view.runs(node).0, pod) {
            (false, pod) => misplaced += i64::from(pod.is_some()),
            (true, None) => wanted += 1,
            (true, Some(pod)) => {
                (wanted, scheduled) = (wanted + 1, scheduled + 1);
                ready += i64::from(pod::is_ready(pod));
                available += i64::from(view.is_available(pod));
                updated += i64::from(view.is_updated(pod));
            }
        }
    }
    let mut status = Value::Object(counts(&[
        ("observedGeneration", int(&view.set.value["metadata"]["generation"])),
        ("updatedNumberScheduled", updated),
        ("numberAvailable", available),
        ("numberUnavailable", wanted - available),
        ("collisionCount", view.history.collisions),
    ]));
    status["desiredNumberScheduled"] = wanted.into();
    status["currentNumberScheduled"] = scheduled.into();
    status["numberMisscheduled"] = misplaced.into();
    status["numberReady"] = ready.into();
    if !list(&view.set.value["status"]["conditions"]).is_empty() {
        status["conditions"] = view.set.value["status"]["conditions"].clone();
    }
    status
}

fn truncate(cluster: &mut Cluster, context: &Context<'_>, view: &View, pods: &[Arc<Object>]) -> Result<(), Halt> {
    let Some(limit) = view.set.value["spec"]["revisionHistoryLimit"].as_u64() else { return Ok(()) };
    let old = view.history.revisions.split_last().map_or(&[][..], |(_, old)| old);
    let live = history::labels(pods, HASH);
    let unused = old.iter().filter(|revision| !revision.label(HASH).is_some_and(|hash| live.contains(hash)));
    let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    history::truncate(cluster, context, unused, excess)
}
