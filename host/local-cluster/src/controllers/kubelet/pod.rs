//! A Pod's life on a node: ContainerCreating, init containers, Running, its end, and its deletion. Input: the Pod, its node
//! and the time. Output: the Pod's status, Events, and its removal. It must not know how Pods get to nodes.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::annotation::{STOPS_AFTER, annotation, duration};
use super::containers::{self, Looked};
use super::references;
use crate::Cluster;
use crate::attributes::Attributes;
use crate::condition;
use crate::context::Context;
use crate::controllers::controller::Again;
use crate::controllers::storages::PODS;
use crate::controllers::write;
use crate::halt::Halt;
use crate::placement::has_ended;
use crate::rest;
use crate::store::Object;
use crate::time;

/// How long a sandbox, and each init container, takes.
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// How often a kubelet looks for what a Pod lacks.
const RETRY: SignedDuration = SignedDuration::from_secs(2);

/// A Pod's status while a look at it changes it.
struct Looking<'a> {
    pod: &'a Object,
    status: Value,
    now: Timestamp,
    /// When something changes by itself.
    next: Option<Timestamp>,
    /// Type, reason and message.
    events: Vec<(&'static str, &'static str, String)>,
}

pub(super) fn reconcile(
    cluster: &mut Cluster,
    context: &Context<'_>,
    pod: &Object,
    node: &Object,
) -> Result<Again, Halt> {
    if pod.terminates() {
        return stop(cluster, context, pod);
    }
    if has_ended(&pod.value) {
        return Ok(Again::No);
    }
    let status = Some(&pod.value["status"]).filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
    let mut looking = Looking { pod, status, now: context.now, next: None, events: Vec::new() };
    looking.look(cluster, node);
    let Looking { mut status, next, events, .. } = looking;
    conclude(pod, &mut status, context.now);
    write::update_status(cluster, context, pod, status)?;
    for (kind, reason, message) in events {
        write::event(cluster, context, pod, kind, reason, &message)?;
    }
    Ok(next.map_or(Again::No, Again::At))
}

fn list<'a>(pod: &'a Object, field: &str) -> &'a [Value] {
    pod.value["spec"][field].as_array().map_or(&[], Vec::as_slice)
}

/// A container's entry in a list of statuses.
fn known<'a>(status: &'a Value, field: &str, container: &Value) -> &'a Value {
    let found = status[field].as_array().into_iter().flatten().find(|entry| entry["name"] == container["name"]);
    found.unwrap_or(&Value::Null)
}

impl Looking<'_> {
    fn look(&mut self, cluster: &Cluster, node: &Object) {
        let Some(began) = time::read(&self.status["startTime"]) else { return self.begin(node) };
        if self.status["podIP"].is_null() {
            if began + SECOND > self.now {
                self.at(began + SECOND);
                return;
            }
            if let Some((volume, why)) = references::missing_volume(cluster, self.pod) {
                let message = format!("MountVolume.SetUp failed for volume {volume:?} : {why}");
                self.events.push(("Warning", "FailedMount", message));
                self.at(self.now + RETRY);
                return;
            }
            let own = || cluster.controllers.placement.address(self.pod.uid()).to_string();
            let shared = self.pod.value["spec"]["hostNetwork"] == true;
            let address = if shared { self.status["hostIP"].clone() } else { own().into() };
            write::set(&mut self.status, "podIPs", json!([{"ip": address}]));
            write::set(&mut self.status, "podIP", address);
        }
        let initialized = self.init(cluster);
        self.main(cluster, initialized);
    }

    fn at(&mut self, time: Timestamp) {
        self.next = Some(self.next.map_or(time, |known| known.min(time)));
    }

    /// The kubelet has seen the Pod: its containers are being created.
    fn begin(&mut self, node: &Object) {
        let addresses = node.value["status"]["addresses"].as_array().into_iter().flatten();
        let internal = addresses.into_iter().find(|address| address["type"] == "InternalIP");
        let address = internal.map_or(Value::Null, |address| address["address"].clone());
        let reason = if list(self.pod, "initContainers").is_empty() { "ContainerCreating" } else { "PodInitializing" };
        for (field, statuses) in [("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")] {
            let all = list(self.pod, field).iter();
            let all: Vec<Value> =
                all.map(|container| containers::waiting(container, &Value::Null, reason, "")).collect();
            if !all.is_empty() {
                write::set(&mut self.status, statuses, all.into());
            }
        }
        write::set(&mut self.status, "hostIPs", json!([{"ip": address}]));
        write::set(&mut self.status, "hostIP", address);
        write::set(&mut self.status, "startTime", time::seconds(self.now).into());
        let whole = Timestamp::from_second(self.now.as_second()).unwrap_or(self.now);
        self.at(whole + SECOND);
    }

    /// Runs the init containers, one after another; says whether all are done.
    fn init(&mut self, cluster: &Cluster) -> bool {
        let (mut all, mut done) = (Vec::new(), true);
        for container in list(self.pod, "initContainers") {
            let known = known(&self.status, "initContainerStatuses", container).clone();
            let stays = container["restartPolicy"] == "Always";
            let ended = known["state"]["terminated"]["exitCode"] == 0;
            if !done || ended && !stays {
                all.push(known);
                continue;
            }
            if known["state"]["running"].is_object() {
                let due = time::read(&known["state"]["running"]["startedAt"]).map_or(self.now, |began| began + SECOND);
                if stays {
                    all.push(known);
                } else if due <= self.now {
                    all.push(containers::completed(&known, self.now));
                } else {
                    self.at(due);
                    done = false;
                    all.push(known);
                }
                continue;
            }
            let mut status = self.create(cluster, container, &known);
            if !stays {
                // An init container is ready when it has ended well.
                write::set(&mut status, "ready", false.into());
            }
            done = stays && status["state"]["running"].is_object();
            if !done {
                self.at(self.now + SECOND);
            }
            all.push(status);
        }
        if !all.is_empty() {
            write::set(&mut self.status, "initContainerStatuses", all.into());
        }
        done
    }

    fn main(&mut self, cluster: &Cluster, initialized: bool) {
        let mut all = Vec::new();
        for container in list(self.pod, "containers") {
            let known = known(&self.status, "containerStatuses", container).clone();
            let status = if initialized {
                self.create(cluster, container, &known)
            } else {
                containers::waiting(container, &known, "PodInitializing", "")
            };
            all.push(status);
        }
        write::set(&mut self.status, "containerStatuses", all.into());
    }

    /// Starts a container whose variables are there, and lets one that was started go on.
    fn create(&mut self, cluster: &Cluster, container: &Value, known: &Value) -> Value {
        let fresh = known["state"]["waiting"]["reason"] != "CrashLoopBackOff" && known["containerID"].is_null();
        if let Some(why) = references::missing_variable(cluster, self.pod, container).filter(|_| fresh) {
            self.at(self.now + RETRY);
            self.events.push(("Warning", "Failed", format!("Error: {why}")));
            return containers::waiting(container, known, "CreateContainerConfigError", &why);
        }
        let Looked { status, next, started } = containers::run(self.pod, container, known, self.now);
        if let Some(next) = next {
            self.at(next);
        }
        if started {
            let image = container["image"].as_str().unwrap_or_default();
            let pulled = format!("Container image {image:?} already present on machine and can be accessed by the pod");
            self.events.push(("Normal", "Pulled", pulled));
            self.events.push(("Normal", "Created", "Container created".to_owned()));
            self.events.push(("Normal", "Started", "Container started".to_owned()));
        } else if status["state"]["waiting"]["reason"] == "CrashLoopBackOff" && status != *known {
            let name = container["name"].as_str().unwrap_or_default();
            let (pod, namespace, uid) = (self.pod.name(), self.pod.namespace(), self.pod.uid());
            let message = format!("Back-off restarting failed container {name} in pod {pod}_{namespace}({uid})");
            self.events.push(("Warning", "BackOff", message));
        }
        status
    }
}

/// The phase that follows from the containers' states.
fn phase(pod: &Object, status: &Value) -> &'static str {
    let initialized = list(pod, "initContainers").iter().all(|container| {
        let known = known(status, "initContainerStatuses", container);
        known["state"]["terminated"]["exitCode"] == 0 || known["state"]["running"].is_object()
    });
    let (mut running, mut waiting, mut stopped, mut failed) = (0, 0, 0, 0);
    for container in list(pod, "containers") {
        let known = known(status, "containerStatuses", container);
        let (state, last) = (&known["state"], &known["lastState"]["terminated"]);
        if state["running"].is_object() {
            running += 1;
        } else if state["terminated"].is_object() {
            stopped += 1;
            failed += usize::from(state["terminated"]["exitCode"] != 0);
        } else if last.is_object() {
            stopped += 1;
            failed += usize::from(last["exitCode"] != 0);
        } else {
            waiting += 1;
        }
    }
    match (pod.value["spec"]["restartPolicy"].as_str(), failed) {
        _ if !initialized || waiting > 0 => "Pending",
        _ if running > 0 => "Running",
        _ if stopped == 0 => "Pending",
        (Some("Never" | "OnFailure"), 0) => "Succeeded",
        (Some("Never"), _) => "Failed",
        _ => "Running",
    }
}

/// Sets the phase and the conditions.
fn conclude(pod: &Object, status: &mut Value, now: Timestamp) {
    let phase = phase(pod, status);
    write::set(status, "phase", phase.into());
    set_conditions(pod, status, phase, now);
}

/// The kubelet's conditions in its order.
const OWN: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

fn set_conditions(pod: &Object, status: &mut Value, phase: &str, now: Timestamp) {
    let names = |field: &str, statuses: &str, fine: fn(&Value) -> bool| {
        let all = list(pod, field).iter().filter(|container| !fine(known(status, statuses, container)));
        let all: Vec<&str> = all.filter_map(|container| container["name"].as_str()).collect();
        all.join(" ")
    };
    let unready = names("containers", "containerStatuses", |known| known["ready"] == true);
    let incomplete = names("initContainers", "initContainerStatuses", |known| known["ready"] == true);
    let sandbox = if status["podIP"].is_null() || matches!(phase, "Succeeded" | "Failed") { "False" } else { "True" };
    let completed = if phase == "Succeeded" { "PodCompleted" } else { "" };
    let initialized = if incomplete.is_empty() || phase == "Succeeded" {
        condition::new("Initialized", "True", completed, "")
    } else {
        let message = format!("containers with incomplete status: [{incomplete}]");
        condition::new("Initialized", "False", "ContainersNotInitialized", &message)
    };
    let containers = match phase {
        "Succeeded" => condition::new("ContainersReady", "False", "PodCompleted", ""),
        "Failed" => condition::new("ContainersReady", "False", "PodFailed", ""),
        _ if unready.is_empty() => condition::new("ContainersReady", "True", "", ""),
        _ => {
            let message = format!("containers with unready status: [{unready}]");
            condition::new("ContainersReady", "False", "ContainersNotReady", &message)
        }
    };
    let mut ready = containers.clone();
    let gates = closed_gates(pod, status);
    if containers["status"] == "True" && !gates.is_empty() {
        ready = condition::new("Ready", "False", "ReadinessGatesNotReady", &gates);
    }
    write::set(&mut ready, "type", "Ready".into());
    let scheduled = condition::new("PodScheduled", "True", "", "");
    let sandbox = condition::new("PodReadyToStartContainers", sandbox, "", "");
    let generation = pod.value["metadata"]["generation"].clone();
    for mut condition in [sandbox, initialized, ready, containers, scheduled] {
        condition["lastProbeTime"] = Value::Null;
        if !generation.is_null() {
            condition["observedGeneration"] = generation.clone();
        }
        condition::set(status, condition, now);
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        // Others' come first, and then the kubelet's in its order.
        conditions.sort_by_key(|condition| OWN.iter().position(|own| condition["type"] == *own));
    }
    if !generation.is_null() {
        write::set(status, "observedGeneration", generation);
    }
}

/// What is said of the readiness gates that are not open.
fn closed_gates(pod: &Object, status: &Value) -> String {
    let gates = list(pod, "readinessGates").iter().filter_map(|gate| gate["conditionType"].as_str());
    let closed = gates.filter_map(|gate| match condition::get(status, gate) {
        None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
        Some(known) if known["status"] == "True" => None,
        Some(known) => {
            let found = known["status"].as_str().unwrap_or_default();
            Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {found}"))
        }
    });
    closed.collect::<Vec<_>>().join(", ")
}

/// Stops the containers of a Pod that is being deleted, and removes it when they have stopped.
fn stop(cluster: &mut Cluster, context: &Context<'_>, pod: &Object) -> Result<Again, Halt> {
    let metadata = &pod.value["metadata"];
    let grace =
        SignedDuration::from_secs(metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0).clamp(0, 1 << 31));
    let said = annotation(pod, STOPS_AFTER).and_then(duration);
    let wanted = said.unwrap_or(SECOND);
    let runs = known_running(pod);
    if !has_ended(&pod.value) && runs {
        let deadline = time::read(&metadata["deletionTimestamp"]).unwrap_or(context.now);
        // The deletion's time is cut to a second, and a Pod that takes its time does not end before.
        let cut = said.map_or(SignedDuration::ZERO, |_| SECOND);
        let stops_at = (deadline - grace) + wanted.min(grace) + cut;
        if stops_at > context.now {
            return Ok(Again::At(stops_at));
        }
    }
    if !has_ended(&pod.value) {
        let code = if wanted > grace && grace > SignedDuration::ZERO { 137 } else { 0 };
        let status = stopped(pod, code, context.now);
        for container in list(pod, "containers").iter().filter_map(|container| container["name"].as_str()) {
            write::event(cluster, context, pod, "Normal", "Killing", &format!("Stopping container {container}"))?;
        }
        write::update_status(cluster, context, pod, status)?;
    }
    let resource = cluster.kind("", "v1", "Pod").cloned().expect("Pods are built in");
    let attributes = Attributes::of("delete", &resource, pod.namespace(), pod.name());
    if cluster.store.get(&PODS, pod.namespace(), pod.name()).is_some() {
        rest::finish(cluster, context, &attributes)?;
    }
    Ok(Again::No)
}

fn known_running(pod: &Object) -> bool {
    let all = pod.value["status"]["containerStatuses"].as_array().into_iter().flatten();
    all.into_iter().any(|status| status["state"]["running"].is_object())
}

/// The status of a Pod whose containers were stopped.
fn stopped(pod: &Object, code: i64, now: Timestamp) -> Value {
    let mut status =
        Some(&pod.value["status"]).filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
    let mut fails = false;
    let all = list(pod, "containers").iter().map(|container| {
        let known = known(&status, "containerStatuses", container);
        let ended = if known["state"]["running"].is_object() {
            containers::stopped(known, code, now)
        } else if known["state"]["terminated"].is_object() {
            known.clone()
        } else {
            containers::lost(container, known)
        };
        fails |= ended["state"]["terminated"]["exitCode"] != 0;
        ended
    });
    let all: Vec<Value> = all.collect();
    let phase = if fails { "Failed" } else { "Succeeded" };
    write::set(&mut status, "containerStatuses", all.into());
    write::set(&mut status, "phase", phase.into());
    set_conditions(pod, &mut status, phase, now);
    status
}
