//! What a Pod's containers do: they wait, run, end and start again. Input: a container's last state, the Pod's annotations
//! and the time. Output: its next state, and when to look again. It must not know conditions and phases.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::annotation::{EXIT_AFTER, EXIT_CODE, annotation, duration, is_ready};
use crate::store::Object;
use crate::time;

/// How long a container waits before it is started again, at first and at most.
const BACK_OFF_SECONDS: i64 = 10;
const MAX_BACK_OFF_SECONDS: i64 = 300;

/// When and how a Pod's containers end by themselves.
pub(super) struct Exit {
    code: i64,
    after: SignedDuration,
}

/// A container after a look at it.
pub(super) struct Looked {
    pub(super) status: Value,
    /// When its state changes by itself.
    pub(super) next: Option<Timestamp>,
    /// Whether it was started by this look.
    pub(super) started: bool,
}

/// What the annotations say; a Job's Pod ends well after a second, if nothing is said.
pub(super) fn exit(pod: &Object) -> Option<Exit> {
    let code = annotation(pod, EXIT_CODE).map(|text| text.parse().unwrap_or(1));
    let after = annotation(pod, EXIT_AFTER).and_then(duration);
    let owners = pod.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let of_job = owners.into_iter().any(|owner| owner["kind"] == "Job" && owner["controller"] == true);
    let ends = of_job || code.is_some() || after.is_some();
    let second = SignedDuration::from_secs(1);
    ends.then(|| Exit { code: code.unwrap_or(0), after: after.unwrap_or(second) })
}

/// A container that was not started yet.
pub(super) fn waiting(container: &Value, known: &Value, reason: &str, message: &str) -> Value {
    let mut state = json!({"reason": reason});
    if !message.is_empty() {
        state["message"] = message.into();
    }
    let known_last = known["lastState"].as_object().cloned().unwrap_or_default();
    json!({
        "name": container["name"], "image": container["image"], "imageID": "", "ready": false, "started": false,
        "restartCount": known["restartCount"].as_i64().unwrap_or(0), "lastState": known_last,
        "state": {"waiting": state},
    })
}

/// Lets a container of a Pod that may run do what its time has come for.
pub(super) fn run(pod: &Object, container: &Value, known: &Value, now: Timestamp) -> Looked {
    let count = known["restartCount"].as_i64().unwrap_or(0);
    let state = &known["state"];
    if state["running"].is_object() {
        return ends(pod, container, known, now);
    }
    let last = if state["terminated"].is_object() { &state["terminated"] } else { &known["lastState"]["terminated"] };
    if !last.is_object() {
        return start(pod, container, &json!({}), count, now);
    }
    if !restarts(pod, last) {
        return Looked { status: known.clone(), next: None, started: false };
    }
    let doublings = u32::try_from(count - 1).unwrap_or(0).min(10);
    let wait = if count == 0 { 0 } else { (BACK_OFF_SECONDS << doublings).min(MAX_BACK_OFF_SECONDS) };
    let due = time::read(&last["finishedAt"]).unwrap_or(now) + SignedDuration::from_secs(wait);
    let last_state = json!({"terminated": last});
    if due <= now {
        return start(pod, container, &last_state, count + 1, now);
    }
    let message = format!(
        "back-off {} restarting failed container={} pod={}_{}({})",
        words(wait),
        container["name"].as_str().unwrap_or_default(),
        pod.name(),
        pod.namespace(),
        pod.uid()
    );
    let mut status = waiting(container, known, "CrashLoopBackOff", &message);
    for field in ["imageID", "containerID"] {
        status[field] = known[field].clone();
    }
    status["lastState"] = last_state;
    Looked { status, next: Some(due), started: false }
}

/// Go's form of a duration in seconds.
fn words(seconds: i64) -> String {
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

fn restarts(pod: &Object, terminated: &Value) -> bool {
    match pod.value["spec"]["restartPolicy"].as_str() {
        Some("Never") => false,
        Some("OnFailure") => terminated["exitCode"] != 0,
        _ => true,
    }
}

fn start(pod: &Object, container: &Value, last: &Value, count: i64, now: Timestamp) -> Looked {
    let image = container["image"].as_str().unwrap_or_default();
    let name = container["name"].as_str().unwrap_or_default();
    let repository = image.split('@').next().unwrap_or_default();
    let status = json!({
        "name": name, "image": image, "imageID": format!("{repository}@sha256:{}", digest(&[image])),
        "containerID": format!("containerd://{}", digest(&[pod.uid(), name, &count.to_string()])),
        "ready": is_ready(pod), "started": true, "restartCount": count, "lastState": last,
        "state": {"running": {"startedAt": time::seconds(now)}},
    });
    Looked { next: exit(pod).map(|exit| now + exit.after), status, started: true }
}

fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A container that runs: it ends when its time has come, and else may become ready or unready.
fn ends(pod: &Object, container: &Value, known: &Value, now: Timestamp) -> Looked {
    let started = time::read(&known["state"]["running"]["startedAt"]).unwrap_or(now);
    let due = exit(pod).map(|exit| (started + exit.after, exit.code));
    if let Some((_, code)) = due.filter(|(at, _)| *at <= now) {
        let status = stopped(known, code, now);
        let terminated = &status["state"]["terminated"];
        // The next look starts it again, or sets back when.
        return if restarts(pod, terminated) {
            run(pod, container, &status, now)
        } else {
            Looked { status, next: None, started: false }
        };
    }
    let mut status = known.clone();
    write_ready(&mut status, is_ready(pod));
    Looked { status, next: due.map(|(at, _)| at), started: false }
}

fn write_ready(status: &mut Value, ready: bool) {
    if let Some(fields) = status.as_object_mut() {
        fields.insert("ready".to_owned(), ready.into());
    }
}

/// A container that ran and ends now.
pub(super) fn stopped(known: &Value, code: i64, now: Timestamp) -> Value {
    let mut status = known.clone();
    let reason = if code == 0 { "Completed" } else { "Error" };
    let state = json!({"terminated": {
        "exitCode": code, "reason": reason, "startedAt": known["state"]["running"]["startedAt"],
        "finishedAt": time::seconds(now), "containerID": known["containerID"],
    }});
    if let Some(fields) = status.as_object_mut() {
        fields.insert("state".to_owned(), state);
        fields.insert("ready".to_owned(), false.into());
        fields.insert("started".to_owned(), false.into());
    }
    status
}

/// An init container that has done its work.
pub(super) fn completed(known: &Value, now: Timestamp) -> Value {
    let mut status = stopped(known, 0, now);
    write_ready(&mut status, true);
    status
}

/// A container that cannot be found any more when its Pod is stopped.
pub(super) fn lost(container: &Value, known: &Value) -> Value {
    let mut status = waiting(container, known, "", "");
    status["state"] = json!({"terminated": {
        "exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null, "finishedAt": null,
        "message": "The container could not be located when the pod was terminated",
    }});
    status
}
