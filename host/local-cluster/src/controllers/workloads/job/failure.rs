//! Failed Pods of a Job: which count, when the next one may be made, and when they fail the Job. It must not know how Pods
//! are made.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::super::field::{after, int, list, text};
use super::super::{condition, pod};
use crate::store::Object;
use crate::time;

/// The wait after the first failure, and the longest: it doubles with each failure in a row.
const FIRST_WAIT_SECONDS: i64 = 10;
const LAST_WAIT_SECONDS: i64 = 600;

/// What the failure policy says of a failed Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Counts,
    Ignored,
    /// The Job fails, for this reason.
    FailsJob(String),
}

/// Whether a Pod counts as failed: one that is being deleted does, unless only failed ones are replaced.
pub(super) fn is_failed(job: &Value, pod: &Object) -> bool {
    match pod::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => pod.terminates() && !replaces_failed_only(job),
    }
}

pub(super) fn replaces_failed_only(job: &Value) -> bool {
    job["spec"]["podReplacementPolicy"] == "Failed" || job["spec"]["podFailurePolicy"].is_object()
}

/// Applies the first rule of the failure policy that matches.
pub(super) fn judge(job: &Value, pod: &Object) -> Verdict {
    let (namespace, name) = (pod.namespace(), pod.name());
    for (index, rule) in list(&job["spec"]["podFailurePolicy"]["rules"]).iter().enumerate() {
        let action = text(&rule["action"]);
        let why = if rule["onExitCodes"].is_object() {
            exited(&pod.value["status"], &rule["onExitCodes"]).map(|(container, code)| {
                format!("Container {container} for pod {namespace}/{name} failed with exit code {code}")
            })
        } else {
            let patterns = list(&rule["onPodConditions"]);
            let conditions = list(&pod.value["status"]["conditions"]).iter();
            let matches = |found: &&Value| {
                patterns.iter().any(|one| one["type"] == found["type"] && one["status"] == found["status"])
            };
            let mut matching = conditions.filter(matches);
            matching.next().map(|found| format!("Pod {namespace}/{name} has condition {}", text(&found["type"])))
        };
        match (why, action) {
            (None, _) => {}
            (Some(_), "Ignore") => return Verdict::Ignored,
            (Some(why), "FailJob") => {
                return Verdict::FailsJob(format!("{why} matching FailJob rule at index {index}"));
            }
            (Some(_), _) => return Verdict::Counts,
        }
    }
    Verdict::Counts
}

/// The container whose exit code a rule matches.
fn exited<'a>(status: &'a Value, rule: &Value) -> Option<(&'a str, i64)> {
    let containers = list(&status["containerStatuses"]).iter().chain(list(&status["initContainerStatuses"]));
    let failed = containers.filter_map(|container| {
        let code = container["state"]["terminated"]["exitCode"].as_i64().filter(|code| *code != 0)?;
        Some((text(&container["name"]), code))
    });
    let named = |name: &str| rule["containerName"].is_null() || rule["containerName"] == name;
    let within = |code: i64| list(&rule["values"]).iter().any(|value| int(value) == code);
    let mut matching = failed.filter(|(name, code)| named(name) && within(*code) == (text(&rule["operator"]) == "In"));
    matching.next()
}

/// Whether the containers of Pods that run again restarted more often than the Job allows.
pub(super) fn restarted_too_often(job: &Value, pods: &[Arc<Object>]) -> bool {
    let limit = int(&job["spec"]["backoffLimit"]);
    if job["spec"]["template"]["spec"]["restartPolicy"] != "OnFailure" {
        return false;
    }
    let alive = pods.iter().filter(|pod| matches!(pod::phase(pod), "Running" | "Pending"));
    let containers = alive.flat_map(|pod| {
        let status = &pod.value["status"];
        list(&status["initContainerStatuses"]).iter().chain(list(&status["containerStatuses"]))
    });
    let restarts: i64 = containers.map(|container| int(&container["restartCount"])).sum();
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

/// When the next Pod may be made after failures since the last success.
pub(super) fn next_try(job: &Value, pods: &[Arc<Object>]) -> Option<Timestamp> {
    let succeeded = pods.iter().filter(|pod| pod::phase(pod) == "Succeeded").map(|pod| finished(pod)).max();
    let failed = pods.iter().filter(|pod| is_failed(job, pod) && judge(job, pod) != Verdict::Ignored);
    let failed: Vec<Timestamp> =
        failed.map(|pod| finished(pod)).filter(|at| succeeded.is_none_or(|last| *at > last)).collect();
    let doublings = u32::try_from(failed.len().checked_sub(1)?).unwrap_or(u32::MAX).min(10);
    let wait = FIRST_WAIT_SECONDS.saturating_mul(1 << doublings).min(LAST_WAIT_SECONDS);
    failed.into_iter().max().map(|last| after(last, wait))
}

/// When a Pod ended: its last container, or when it was no longer ready, or its deletion.
fn finished(pod: &Object) -> Timestamp {
    let (status, metadata) = (&pod.value["status"], &pod.value["metadata"]);
    let containers = list(&status["containerStatuses"]).iter();
    let ends: Option<Vec<Timestamp>> =
        containers.map(|container| time::read(&container["state"]["terminated"]["finishedAt"])).collect();
    let unready = || {
        let ready = condition::get(status, "Ready").filter(|ready| ready["status"] == "False")?;
        time::read(&ready["lastTransitionTime"])
    };
    let deleted = || {
        let at = time::read(&metadata["deletionTimestamp"])?;
        Some(after(at, -int(&metadata["deletionGracePeriodSeconds"])))
    };
    let last = ends.and_then(|ends| ends.into_iter().max()).or_else(unready).or_else(deleted);
    last.or_else(|| time::read(&metadata["creationTimestamp"])).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failed(code: i64, at: &str) -> Arc<Object> {
        let terminated = json!({"terminated": {"exitCode": code, "finishedAt": at}});
        let value = json!({
            "metadata": {"name": "p", "namespace": "n"},
            "status": {
                "phase": if code == 0 { "Succeeded" } else { "Failed" },
                "containerStatuses": [{"name": "c", "state": terminated}],
                "conditions": [{"type": "DisruptionTarget", "status": "True"}],
            },
        });
        Arc::new(Object::new(value, 1))
    }

    #[test]
    fn the_first_matching_rule_judges_a_failed_pod() {
        let codes = |operator: &str, action: &str| json!({"action": action, "onExitCodes": {"operator": operator, "values": [42]}});
        let disrupted = |action: &str| json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
        let fails = "Container c for pod n/p failed with exit code 42 matching FailJob rule at index 0".to_owned();
        let disruption = "Pod n/p has condition DisruptionTarget matching FailJob rule at index 1".to_owned();
        for (rules, expected) in [
            (json!([]), Verdict::Counts),
            (json!([codes("In", "FailJob")]), Verdict::FailsJob(fails)),
            (json!([codes("NotIn", "FailJob"), disrupted("FailJob")]), Verdict::FailsJob(disruption)),
            (json!([codes("In", "Count"), disrupted("FailJob")]), Verdict::Counts),
            (json!([disrupted("Ignore")]), Verdict::Ignored),
        ] {
            let job = json!({"spec": {"podFailurePolicy": {"rules": rules}}});
            assert_eq!(judge(&job, &failed(42, "2026-01-01T00:00:00Z")), expected, "{job}");
        }
    }

    #[test]
    fn the_wait_doubles_with_each_failure_since_the_last_success() {
        let wait = |codes: &[i64]| {
            let pod = |(at, code): (usize, &i64)| failed(*code, &format!("2026-01-01T00:00:{at:02}Z"));
            let pods: Vec<Arc<Object>> = codes.iter().enumerate().map(pod).collect();
            next_try(&json!({}), &pods)
                .map(|at| at.as_second() - "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap().as_second())
        };
        assert_eq!(wait(&[0]), None);
        assert_eq!(wait(&[1]), Some(10));
        assert_eq!(wait(&[1, 1, 1]), Some(2 + 40));
        assert_eq!(wait(&[1, 1, 0, 1]), Some(3 + 10));
        assert_eq!(wait(&[1; 30]), Some(29 + 600));
    }
}
