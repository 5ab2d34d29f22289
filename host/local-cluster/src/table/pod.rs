//! The cells of a Pod: its status in one word, restarts, readiness. Input: a Pod. Output: cells. It must not know tables.

use serde_json::{Value, json};

use super::cells::{Row, since, text};

/// What kubectl shows of a Pod besides its name and age.
pub(super) struct Summary {
    pub(super) ready: String,
    pub(super) status: String,
    pub(super) restarts: String,
}

/// Counts over containers.
#[derive(Default)]
struct Counts<'a> {
    ready: usize,
    restarts: i64,
    /// When a container ended last.
    last: Option<&'a Value>,
}

impl<'a> Counts<'a> {
    fn restarted(&mut self, status: &'a Value) {
        self.restarts += status["restartCount"].as_i64().unwrap_or(0);
        // RFC 3339 in UTC: text order is time order.
        let ended = Some(&status["lastState"]["terminated"]["finishedAt"]).filter(|time| time.is_string());
        let newer = |ended: &&Value| self.last.is_none_or(|last| last.as_str() < ended.as_str());
        if let Some(ended) = ended.filter(newer) {
            self.last = Some(ended);
        }
    }
}

pub(super) fn summary(row: Row<'_>) -> Summary {
    let scheduled = row.list("/status/conditions").iter();
    let gated = scheduled.filter(|condition| condition["type"] == "PodScheduled");
    let gated = gated.into_iter().any(|condition| condition["reason"] == "SchedulingGated");
    let mut status = match row.str("/status/reason") {
        _ if gated => "SchedulingGated".to_owned(),
        "" => row.str("/status/phase").to_owned(),
        reason => reason.to_owned(),
    };
    let mut total = row.length("/spec/containers");
    total += row.list("/spec/initContainers").iter().filter(|container| restarts_always(container)).count();
    let (mut counts, sidecars, initializing) = initialize(row, &mut status);
    if !initializing || row.has_condition("Initialized", "True") {
        counts = Counts { ready: counts.ready, ..sidecars };
        run(row, &mut counts, &mut status);
    }
    if row.terminates() && row.str("/status/reason") == "NodeLost" {
        status = "Unknown".to_owned();
    } else if row.terminates() && !matches!(row.str("/status/phase"), "Succeeded" | "Failed") {
        status = "Terminating".to_owned();
    }
    let restarts = match counts.last {
        Some(last) if counts.restarts > 0 => format!("{} ({} ago)", counts.restarts, since(last, row.now)),
        _ => counts.restarts.to_string(),
    };
    Summary { ready: format!("{}/{total}", counts.ready), status, restarts }
}

fn restarts_always(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Looks at the init containers: their counts, those of sidecars alone, and whether one still has to end.
fn initialize<'a>(row: Row<'a>, status: &mut String) -> (Counts<'a>, Counts<'a>, bool) {
    let specs = row.list("/spec/initContainers");
    let (mut counts, mut sidecars) = (Counts::default(), Counts::default());
    for (index, container) in row.list("/status/initContainerStatuses").iter().enumerate() {
        let is_sidecar = specs.iter().any(|spec| spec["name"] == container["name"] && restarts_always(spec));
        counts.restarted(container);
        if is_sidecar {
            sidecars.restarted(container);
        }
        let state = &container["state"];
        let (ended, waiting) = (&state["terminated"], &state["waiting"]["reason"]);
        if ended.is_object() && ended["exitCode"].as_i64().unwrap_or(0) == 0 {
            continue;
        }
        if is_sidecar && container["started"] == true {
            counts.ready += usize::from(container["ready"] == true);
            continue;
        }
        *status = match waiting.as_str() {
            _ if ended.is_object() => format!("Init:{}", end(ended)),
            Some(reason) if !matches!(reason, "" | "PodInitializing") => format!("Init:{reason}"),
            _ => format!("Init:{index}/{}", specs.len()),
        };
        return (counts, sidecars, true);
    }
    (counts, sidecars, false)
}

/// Why a container ended.
fn end(ended: &Value) -> String {
    match (ended["reason"].as_str(), ended["signal"].as_i64()) {
        (Some(reason), _) if !reason.is_empty() => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", ended["exitCode"].as_i64().unwrap_or(0)),
    }
}

/// Looks at the containers, the last one first: the first one's reason counts.
fn run<'a>(row: Row<'a>, counts: &mut Counts<'a>, status: &mut String) {
    let (mut running, mut error) = (false, None);
    for container in row.list("/status/containerStatuses").iter().rev() {
        counts.restarted(container);
        let state = &container["state"];
        match state["waiting"]["reason"].as_str() {
            Some(reason) if !reason.is_empty() => *status = reason.to_owned(),
            _ if state["terminated"].is_object() => {
                *status = end(&state["terminated"]);
                if state["terminated"]["exitCode"].as_i64().unwrap_or(0) != 0 {
                    error = Some(status.clone());
                }
            }
            _ if container["ready"] == true && state["running"].is_object() => {
                running = true;
                counts.ready += 1;
            }
            _ => {}
        }
    }
    if status == "Completed" {
        match error {
            _ if running && row.has_condition("Ready", "True") => *status = "Running".to_owned(),
            Some(error) => *status = error,
            None if running => *status = "NotReady".to_owned(),
            None => {}
        }
    }
}

/// How many readiness gates are open.
pub(super) fn gates(row: Row<'_>) -> Value {
    let gates = row.list("/spec/readinessGates");
    let open = gates.iter().filter(|gate| row.has_condition(&text(&gate["conditionType"]), "True")).count();
    if gates.is_empty() { "<none>".into() } else { format!("{open}/{}", gates.len()).into() }
}

/// What marks the row of a Pod that has ended.
pub(super) fn row_condition(object: &Value) -> Option<Value> {
    let (reason, message) = match object["status"]["phase"].as_str() {
        Some("Succeeded") => ("Succeeded", "The pod has completed successfully."),
        Some("Failed") => ("Failed", "The pod failed."),
        _ => return None,
    };
    let is_pod = object["kind"] == "Pod" && object["apiVersion"] == "v1";
    is_pod.then(|| json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pod: &Value, wanted: (&str, &str, &str)) {
        let found = summary(Row { object: pod, now: "2026-01-01T01:00:00Z".parse().unwrap() });
        assert_eq!((found.ready.as_str(), found.status.as_str(), found.restarts.as_str()), wanted);
    }

    /// A Pod with containers in these states.
    fn pod(phase: &str, containers: &[Value]) -> Value {
        json!({"spec": {"containers": containers}, "status": {"phase": phase, "containerStatuses": containers}})
    }

    #[test]
    fn the_status_of_a_pod_is_one_word() {
        let up = json!({"ready": true, "state": {"running": {}}});
        let done = json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let failed = json!({"state": {"terminated": {"exitCode": 3}}});
        let killed = json!({"state": {"terminated": {"exitCode": 9, "signal": 9}}});
        let waits = json!({"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:58:30Z"}}});
        check(&pod("Running", &[up.clone(), up.clone()]), ("2/2", "Running", "0"));
        check(&pod("Running", &[up.clone(), waits]), ("1/2", "CrashLoopBackOff", "2 (90s ago)"));
        check(&pod("Succeeded", std::slice::from_ref(&done)), ("0/1", "Completed", "0"));
        check(&pod("Failed", std::slice::from_ref(&failed)), ("0/1", "ExitCode:3", "0"));
        check(&pod("Failed", &[killed]), ("0/1", "Signal:9", "0"));
        check(&pod("Running", &[done.clone(), up.clone()]), ("1/2", "NotReady", "0"));
        check(&pod("Running", &[done.clone(), failed]), ("0/2", "ExitCode:3", "0"));
        let mut ready = pod("Running", &[done, up]);
        ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        check(&ready, ("1/2", "Running", "0"));
        ready["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        check(&ready, ("1/2", "Terminating", "0"));
    }

    #[test]
    fn init_containers_are_counted_until_they_ended() {
        let spec =
            json!({"initContainers": [{"name": "a"}, {"name": "b", "restartPolicy": "Always"}], "containers": [{}]});
        let mut pod = json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 0}}}, {"name": "b", "state": {"waiting": {}}},
        ]}});
        check(&pod, ("0/2", "Init:1/2", "0"));
        pod["status"]["initContainerStatuses"][1] =
            json!({"name": "b", "started": true, "ready": true, "restartCount": 1});
        check(&pod, ("1/2", "Pending", "1"));
        pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] = 1.into();
        check(&pod, ("0/2", "Init:ExitCode:1", "0"));
    }
}
